//! What a valid pod asks for that this kubelet does not do yet. Such a pod waits with the reason; nothing is ignored.
//!
//! The check walks everything that the defaulted pod says, as JSON, and looks each field up in one table of rules
//! ([`Supported`]). A field without a rule is reported, so a field that is new to the API can never slip through. A
//! later version turns a feature on by adding a row to [`Supported::this_version`].

mod table;
mod walk;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

/// What becomes of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Done, whatever the value; nothing below it is looked at.
    Yes,
    /// Read by others (the scheduler, controllers, people), and no business of a kubelet that got the pod assigned.
    NotOurs,
    /// Done for these values only, written as in a manifest.
    Only(&'static [&'static str]),
    /// Done only when empty: an empty mapping, list or string, zero, false.
    Empty,
    /// An object or a list of objects whose fields have rules of their own.
    Within,
}

/// Which fields are done. The paths leave out indexes: `spec.containers.image`; rows for `spec.containers` hold for all
/// kinds of containers that are themselves done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supported {
    rules: BTreeMap<String, Rule>,
}

/// One field that is not done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnsupportedField {
    /// The field's path, `spec.containers[0].resources`.
    pub path: String,
    /// Why the pod cannot run here, a sentence's end: `is not supported by this version`.
    pub reason: String,
}

impl std::fmt::Display for UnsupportedField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.path, self.reason)
    }
}

/// All fields of a defaulted pod that are not done, in the order of the pod's JSON; empty when the pod can run.
pub fn unsupported(pod: &Pod, supported: &Supported) -> Vec<UnsupportedField> {
    let json = serde_json::to_value(pod).expect("a Pod has string keys only, hence is JSON");
    let mut found = Vec::new();
    walk::check(&json, supported, &mut found);
    found
}
