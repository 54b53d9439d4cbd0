//! Rules on settings that exist as flags only.

use pod_rules::label_syntax::{label_value_errors, qualified_name_errors};
use pod_rules::labels::{NAMESPACES_OF_NODE, OF_NODE, is_for_node};

use super::KubeletFlags;

/// Checks the flags that have no field in a configuration file.
///
/// # Errors
/// Labels that are malformed or that a node may not set on itself, in upstream's words.
pub fn validate(flags: &KubeletFlags) -> Result<(), String> {
    let unknown: Vec<&str> =
        flags.node_labels.keys().map(String::as_str).filter(|key| !is_for_node(key)).collect();
    if !unknown.is_empty() {
        return Err(format!(
            "unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [{}]\n--node-labels in the \
             'kubernetes.io' namespace must begin with an allowed prefix ({}) or be in the specifically allowed set \
             ({})",
            unknown.join(" "),
            NAMESPACES_OF_NODE.join(", "),
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
