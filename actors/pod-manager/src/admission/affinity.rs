//! PURE: whether the node matches the pod's node selector and required node affinity (row 16.2).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;
use pod_rules::node_selector;

/// Whether the node has every label of `nodeSelector` and matches one term of the required node affinity, if
/// there are any.
pub(super) fn fits(spec: &PodSpec, node: &str, labels: &BTreeMap<String, String>) -> bool {
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|required| node_selector::fits(required, node, labels))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Affinity;
    use serde_json::{Value, json};

    use super::*;

    fn fit(spec: Value) -> bool {
        let labels = [("zone", "a"), ("cores", "8"), ("disk", "")];
        let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let spec = PodSpec {
            node_selector: serde_json::from_value(spec["nodeSelector"].clone()).unwrap(),
            affinity: serde_json::from_value::<Option<Affinity>>(spec["affinity"].clone()).unwrap(),
            ..PodSpec::default()
        };
        fits(&spec, "n1", &labels)
    }

    fn terms(terms: Value) -> Value {
        let required = json!({"nodeSelectorTerms": terms});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
    }

    #[test]
    fn selectors() {
        assert!(fit(json!({})));
        assert!(fit(json!({"nodeSelector": {"zone": "a", "disk": ""}})));
        assert!(!fit(json!({"nodeSelector": {"zone": "b"}})));
        assert!(!fit(json!({"nodeSelector": {"rack": ""}})));
    }

    #[test]
    fn expressions() {
        for (key, operator, values, expected) in [
            ("zone", "In", json!(["b", "a"]), true),
            ("zone", "In", json!(["b"]), false),
            ("rack", "In", json!([""]), false),
            ("zone", "NotIn", json!(["a"]), false),
            ("rack", "NotIn", json!(["a"]), true),
            ("disk", "Exists", json!(null), true),
            ("rack", "Exists", json!(null), false),
            ("rack", "DoesNotExist", json!(null), true),
            ("cores", "Gt", json!(["7"]), true),
            ("cores", "Gt", json!(["8"]), false),
            ("cores", "Lt", json!(["9"]), true),
            ("zone", "Lt", json!(["9"]), false),
            ("rack", "Gt", json!(["1"]), false),
            ("zone", "Like", json!(["a"]), false),
        ] {
            let expression = json!({"key": key, "operator": operator, "values": values});
            assert_eq!(
                fit(terms(json!([{"matchExpressions": [expression]}]))),
                expected,
                "{key} {operator} {values}"
            );
        }
    }

    #[test]
    fn one_term_is_enough_and_an_empty_one_fits_nothing() {
        let name = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        assert!(fit(terms(json!([name("n1")]))));
        assert!(!fit(terms(json!([name("n2")]))));
        assert!(fit(terms(json!([name("n2"), name("n1")]))));
        assert!(!fit(terms(json!([{}]))));
        let both = json!({
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}],
        });
        assert!(!fit(terms(json!([both]))));
    }
}
