//! Validation of label selectors.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::field::{Errors, Path, items};
use super::{metadata, names};

pub(super) fn label_selector(selector: &LabelSelector, path: &Path, errors: &mut Errors) {
    metadata::labels(selector.match_labels.as_ref(), &path.child("matchLabels"), errors);
    for (index, requirement) in items(&selector.match_expressions).iter().enumerate() {
        let path = path.child("matchExpressions").index(index);
        let values = items(&requirement.values);
        match requirement.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                let message = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.required(&path.child("values"), message);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let message = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.forbidden(&path.child("values"), message);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
        }
        errors.all_invalid(&path.child("key"), &requirement.key, names::qualified_name(&requirement.key));
        for (index, value) in values.iter().enumerate() {
            errors.all_invalid(&path.child("values").index(index), value, names::label_value(value));
        }
    }
}

/// A label's key.
pub(super) fn label_key(key: &str, path: &Path, errors: &mut Errors) {
    errors.all_invalid(path, key, names::qualified_name(key));
}
