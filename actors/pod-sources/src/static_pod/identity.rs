//! The UID of a static pod: always the same for the same manifest, node and source, and another for any other.
//!
//! The algorithm, version 1: SHA-256 over four byte strings, each preceded by its length in bytes as eight bytes
//! big-endian, of which the first 16 bytes are written as 32 lower-case hex digits. The four are
//! 1. `understudy static pod 1`,
//! 2. the defaulted Pod without `status`, `metadata.uid` and the `kubernetes.io/config.*` annotations, as JSON with keys
//!    sorted by their bytes, no blanks and no null fields,
//! 3. the node's name,
//! 4. the source: `file:` and the path, `url:` and the URL, or `submission:`, whatever the submission.
//!
//! A release that adds a default changes the JSON of every manifest, hence every UID, and restarts every static pod, as
//! an upgrade of upstream's kubelet may. The test `uids_are_pinned` fails then.

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use sha2::{Digest, Sha256};

use pod_rules::annotations::{CONFIG_HASH, CONFIG_SOURCE};

use super::{CONFIG_SEEN_ANNOTATION, Source};

const VERSION: &str = "understudy static pod 1";

/// The UID of a defaulted pod that comes from `source` and runs on `node`.
pub fn uid_of(pod: &Pod, source: &Source, node: &str) -> String {
    let mut pod = pod.clone();
    pod.status = None;
    pod.metadata.uid = None;
    if let Some(annotations) = &mut pod.metadata.annotations {
        for own in [CONFIG_HASH, CONFIG_SEEN_ANNOTATION, CONFIG_SOURCE] {
            annotations.remove(own);
        }
        if annotations.is_empty() {
            pod.metadata.annotations = None;
        }
    }
    let value = serde_json::to_value(&pod).expect("a Pod has string keys only, hence is JSON");
    let mut json = String::new();
    write_canonical(&value, &mut json);
    let source = match source {
        Source::File(path) => format!("file:{path}"),
        Source::Http(url) => format!("url:{url}"),
        Source::Submission(_) => "submission:".to_owned(),
    };
    let mut hasher = Sha256::new();
    for part in [VERSION, &json, node, &source] {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Writes JSON that depends on the value alone: serde_json's order of keys is a build option.
fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().filter(|(_, value)| !value.is_null()).collect();
            entries.sort_by_key(|(key, _)| key.as_bytes());
            out.push('{');
            for (index, (key, value)) in entries.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write_canonical(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}
