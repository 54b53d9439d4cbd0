//! The fields of a valid pod that this kubelet does not support. Such a pod waits with the reason; no field is ignored.
//!
//! The check walks over the whole defaulted pod, as JSON, and looks each field up in one table of rules
//! ([`Supported`]). A field without a rule is reported, so a field that is new in the API is never missed. A later
//! version supports a feature by adding a row to [`Supported::this_version`].

mod table;
mod walk;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use messages::facts::{REFUSAL_BYTES_MAX, Rejection, UNSUPPORTED_FIELDS};
use pod_rules::errors::listed;

/// How far a field is supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Supported with every value; the fields below it are not checked.
    Yes,
    /// Not the kubelet's: read by others (the scheduler, controllers, people) before or beside it.
    NotOurs,
    /// Supported with these values only, written as in a manifest.
    Only(&'static [&'static str]),
    /// Supported only when empty: an empty mapping, list or string, zero, false.
    Empty,
    /// An object or a list of objects whose fields have rules of their own.
    Within,
}

/// The table of supported fields. The paths leave out indexes: `spec.containers.image`; rows for `spec.containers` hold
/// for all supported kinds of containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supported {
    rules: BTreeMap<String, Rule>,
}

/// A field that is not supported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnsupportedField {
    /// The field's path, `spec.containers[0].resources`.
    pub path: String,
    /// Why the pod cannot run here, as the end of a sentence: `is not supported by this version`.
    pub reason: String,
}

impl std::fmt::Display for UnsupportedField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.path, self.reason)
    }
}

/// The unsupported fields of a defaulted pod, in the order of the pod's JSON, the first 256 of them; empty if the pod can run.
pub fn unsupported(pod: &Pod, supported: &Supported) -> Vec<UnsupportedField> {
    let json = serde_json::to_value(pod).expect("a Pod has string keys only, hence is JSON");
    let mut found = Vec::new();
    walk::check(&json, supported, &mut found);
    found
}

/// The refusal of a defaulted pod that has unsupported fields.
pub fn refusal(pod: &Pod, supported: &Supported) -> Option<Rejection> {
    let fields = unsupported(pod, supported);
    let message = listed(String::new(), &fields, REFUSAL_BYTES_MAX);
    (!fields.is_empty()).then(|| Rejection::new(UNSUPPORTED_FIELDS, message))
}
