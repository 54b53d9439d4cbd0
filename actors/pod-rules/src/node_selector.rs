//! Which nodes a node selector fits: of a pod's required affinity, and of a PersistentVolume.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

/// Whether a node with this name and these labels matches one of the selector's terms.
pub fn fits(selector: &NodeSelector, node: &str, labels: &BTreeMap<String, String>) -> bool {
    selector.node_selector_terms.iter().any(|term| fits_term(term, node, labels))
}

/// A term without expressions and fields matches no node.
fn fits_term(term: &NodeSelectorTerm, node: &str, labels: &BTreeMap<String, String>) -> bool {
    let expressions = || term.match_expressions.iter().flatten();
    let fields = || term.match_fields.iter().flatten();
    let field = |key: &str| (key == "metadata.name").then_some(node);
    let asks = expressions().next().is_some() || fields().next().is_some();
    asks && expressions().all(|wanted| holds(wanted, labels.get(&wanted.key).map(String::as_str)))
        && fields().all(|wanted| holds(wanted, field(&wanted.key)))
}

fn holds(wanted: &NodeSelectorRequirement, found: Option<&str>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let listed = || found.is_some_and(|found| values.iter().any(|value| value == found));
    let compared = || {
        let bound: i64 = values.first()?.parse().ok()?;
        Some(found?.parse::<i64>().ok()?.cmp(&bound))
    };
    match wanted.operator.as_str() {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compared().is_some_and(std::cmp::Ordering::is_gt),
        "Lt" => compared().is_some_and(std::cmp::Ordering::is_lt),
        _ => false,
    }
}
