//! Keys of labels: those by which a pod's objects are found again at the runtime, and those of the Node.

/// At the runtime: `metadata.uid` of the pod.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// At the runtime: `metadata.name` of the pod.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// At the runtime: `metadata.namespace` of the pod.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// At the runtime: the container's name in the pod's spec.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// Of the Node: its host name.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// Of the Node: its operating system.
pub const OS: &str = "kubernetes.io/os";
/// Of the Node: its architecture, as Go names it.
pub const ARCH: &str = "kubernetes.io/arch";
/// [`OS`] as it was named before.
pub const BETA_OS: &str = "beta.kubernetes.io/os";
/// [`ARCH`] as it was named before.
pub const BETA_ARCH: &str = "beta.kubernetes.io/arch";
/// The one operating system that this kubelet runs on, as [`OS`] and `spec.os` spell it.
pub const LINUX: &str = "linux";

/// The labels in Kubernetes' namespaces that a kubelet sets on its own Node, in alphabetical order: those that `--node-labels`
/// may name, and those that are put right on a Node that is there already.
pub const OF_NODE: [&str; 11] = [
    BETA_ARCH,
    "beta.kubernetes.io/instance-type",
    BETA_OS,
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    ARCH,
    HOSTNAME,
    OS,
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// The labels that a kubelet gives every Node, before those of `--node-labels`, which win.
pub fn of_node(name: &str, architecture: &str) -> impl Iterator<Item = (String, String)> {
    let own =
        [(HOSTNAME, name), (OS, LINUX), (ARCH, architecture), (BETA_OS, LINUX), (BETA_ARCH, architecture)];
    own.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter()
}
