//! The kinds of objects that the server in memory has, and how each kind behaves.

/// A kind of object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Resource {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    /// The kind has a subresource `status`, and a write to the object does not change its status.
    pub status: bool,
    /// A replacement without a resource version is accepted.
    pub unconditional: bool,
    /// A replacement of a missing object creates it.
    pub creates_on_update: bool,
}

const CORE: &str = "";

const fn of(group: &'static str, plural: &'static str, kind: &'static str, namespaced: bool) -> Resource {
    Resource {
        group,
        version: "v1",
        plural,
        kind,
        namespaced,
        status: false,
        unconditional: true,
        creates_on_update: false,
    }
}

impl Resource {
    const fn with_status(mut self) -> Self {
        self.status = true;
        self
    }

    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The name in errors, such as `leases.coordination.k8s.io`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The name in errors about a whole object, such as `Lease.coordination.k8s.io`.
    pub fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// Whether objects of this kind are questions that are answered and never stored.
    pub fn is_review(&self) -> bool {
        matches!(self.plural, "tokenreviews" | "subjectaccessreviews")
    }
}

pub(super) const ALL: &[Resource] = &[
    of(CORE, "namespaces", "Namespace", false).with_status(),
    of(CORE, "pods", "Pod", true).with_status(),
    of(CORE, "nodes", "Node", false).with_status(),
    of(CORE, "secrets", "Secret", true),
    of(CORE, "configmaps", "ConfigMap", true),
    of(CORE, "services", "Service", true).with_status(),
    of(CORE, "serviceaccounts", "ServiceAccount", true),
    Resource { creates_on_update: true, ..of(CORE, "events", "Event", true) },
    of(CORE, "persistentvolumes", "PersistentVolume", false).with_status(),
    of(CORE, "persistentvolumeclaims", "PersistentVolumeClaim", true).with_status(),
    Resource {
        unconditional: false,
        creates_on_update: true,
        ..of("coordination.k8s.io", "leases", "Lease", true)
    },
    of("authentication.k8s.io", "tokenreviews", "TokenReview", false),
    of("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview", false),
    of("certificates.k8s.io", "certificatesigningrequests", "CertificateSigningRequest", false).with_status(),
    of("node.k8s.io", "runtimeclasses", "RuntimeClass", false),
    of("storage.k8s.io", "csinodes", "CSINode", false),
    of("storage.k8s.io", "csidrivers", "CSIDriver", false),
    of("storage.k8s.io", "volumeattachments", "VolumeAttachment", false).with_status(),
    of("scheduling.k8s.io", "priorityclasses", "PriorityClass", false),
];

pub(super) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    ALL.iter()
        .find(|resource| resource.group == group && resource.version == version && resource.plural == plural)
}
