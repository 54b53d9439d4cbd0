//! Rules on settings that exist as flags only.

use pod_rules::labels::OF_NODE;

use super::KubeletFlags;
use crate::config::validation::{label_value_errors, qualified_name_errors};

/// Namespaces of labels that a node may set on itself.
const LABEL_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Checks the flags that have no field in a configuration file.
///
/// # Errors
/// Labels that are malformed or that a node may not set on itself, in upstream's words.
pub fn validate(flags: &KubeletFlags) -> Result<(), String> {
    let unknown: Vec<&str> = flags
        .node_labels
        .keys()
        .map(String::as_str)
        .filter(|key| is_kubernetes_label(key) && !may_set_itself(key))
        .collect();
    if !unknown.is_empty() {
        return Err(format!(
            "unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [{}]\n--node-labels in the \
             'kubernetes.io' namespace must begin with an allowed prefix ({}) or be in the specifically allowed set \
             ({})",
            unknown.join(" "),
            LABEL_NAMESPACES.join(", "),
            OF_NODE.join(", ")
        ));
    }
    let malformed: Vec<String> = flags
        .node_labels
        .iter()
        .flat_map(|(key, value)| [(key, qualified_name_errors(key)), (value, label_value_errors(value))])
        .filter(|(_, errors)| !errors.is_empty())
        .map(|(text, errors)| format!("'{text}' - {}", errors.join(", ")))
        .collect();
    if malformed.is_empty() { Ok(()) } else { Err(format!("invalid node labels: {}", malformed.join("; "))) }
}

fn namespace(key: &str) -> &str {
    key.split_once('/').map_or("", |(namespace, _)| namespace)
}

fn in_namespace(namespace: &str, parent: &str) -> bool {
    namespace == parent || namespace.strip_suffix(parent).is_some_and(|before| before.ends_with('.'))
}

fn is_kubernetes_label(key: &str) -> bool {
    ["kubernetes.io", "k8s.io"].iter().any(|parent| in_namespace(namespace(key), parent))
}

fn may_set_itself(key: &str) -> bool {
    OF_NODE.contains(&key) || LABEL_NAMESPACES.iter().any(|parent| in_namespace(namespace(key), parent))
}
