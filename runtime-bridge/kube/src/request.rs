//! What a call asks for.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use pod_spec::weight::{GROWN, PODS_BYTES_MAX};
use serde_json::Value;

/// The characters to escape in a query or a part of a path; selectors stay readable.
const ESCAPED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'=')
    .remove(b',')
    .remove(b'!');

pub(super) fn escaped(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, &ESCAPED)
}

/// The selection of objects of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Select {
    /// The namespace; `None` is all of them.
    pub namespace: Option<String>,
    /// A field selector, such as `spec.nodeName=n`.
    pub fields: Option<String>,
    /// About how many bytes of memory all objects of a list may take, and those of a namespace half of it; a part is left to critical pods
    /// and to namespaces that take little, wherever in the list they are. What is beyond that is told as an object that cannot be
    /// decoded. `None` is no bound.
    pub bytes_max: Option<u64>,
}

impl Select {
    /// Selects the one object of this name.
    pub fn named(namespace: Option<&str>, name: &str) -> Self {
        let fields = Some(format!("metadata.name={name}"));
        Self { namespace: namespace.map(str::to_owned), fields, bytes_max: None }
    }

    /// Whether at most one object is selected.
    pub(super) fn is_one(&self) -> bool {
        self.fields.as_ref().is_some_and(|fields| fields.starts_with("metadata.name="))
    }

    /// Selects the pods that are bound to a node, as many as there is room for in the kubelet.
    pub fn pods_of(node: &str) -> Self {
        let bytes_max = Some(GROWN * PODS_BYTES_MAX);
        Self { namespace: None, fields: Some(format!("spec.nodeName={node}")), bytes_max }
    }
}

/// A change of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// `application/strategic-merge-patch+json`.
    Strategic(Value),
    /// `application/merge-patch+json`.
    Merge(Value),
}

/// How an object is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delete {
    /// The grace in seconds; `None` leaves it to the object's default.
    pub grace_seconds: Option<i64>,
    /// Deletes the object only if it has this UID.
    pub uid: Option<String>,
}
