//! PURE: what follows from objects, answers of drivers and files, in upstream's words and formats: no clock, no effect.

pub mod access;
pub mod attachment;
pub mod capabilities;
pub mod context;
pub mod csi_node;
pub mod figures;
pub mod migrated;
pub mod paths;
pub mod plan;
pub mod policy;
pub mod requests;
pub mod versions;
pub mod vol_data;

use sha2::{Digest, Sha256};

/// Upstream's name of the plugin; paths, metrics and messages contain it.
pub use pod_rules::volume_plugins::CSI as PLUGIN;

/// A message of the plugin, as upstream begins each of them.
#[must_use]
pub fn says(message: &str) -> String {
    format!("{PLUGIN}: {message}")
}

/// SHA-256 of the parts, one after the other, in lower-case hexadecimal.
fn sha256(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
