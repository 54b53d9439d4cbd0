//! Rules on taints.

use pod_rules::label_syntax::{label_value_errors, qualified_name_errors};
use pod_rules::taints;

use super::super::node::Taint;

pub(super) fn taint_is_valid(taint: &Taint) -> bool {
    qualified_name_errors(&taint.key).is_empty()
        && label_value_errors(&taint.value).is_empty()
        && (taint.effect.is_empty() || taints::EFFECTS.contains(&taint.effect.as_str()))
}
