//! Label keys: those by which the kubelet finds a pod's sandboxes and containers at the runtime, and those of
//! the Node.

/// Label at the runtime: `metadata.uid` of the pod.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// Label at the runtime: `metadata.name` of the pod.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Label at the runtime: `metadata.namespace` of the pod.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Label at the runtime: the container's name in the pod's spec.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// Label of the Node: its host name.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// Label of the Node: its operating system.
pub const OS: &str = "kubernetes.io/os";
/// Label of the Node: its architecture, as Go names it.
pub const ARCH: &str = "kubernetes.io/arch";
/// The deprecated key of [`OS`].
pub const BETA_OS: &str = "beta.kubernetes.io/os";
/// The deprecated key of [`ARCH`].
pub const BETA_ARCH: &str = "beta.kubernetes.io/arch";
/// The one operating system that this kubelet runs on, as [`OS`] and `spec.os` spell it.
pub const LINUX: &str = "linux";

/// The labels in Kubernetes' namespaces that a kubelet sets on its own Node, in alphabetical order:
/// `--node-labels` may name them, and NodeStatus corrects them on a Node that exists already.
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

/// The labels that a kubelet gives every Node. Those of `--node-labels` override them.
pub fn of_node(name: &str, architecture: &str) -> impl Iterator<Item = (String, String)> {
    let own =
        [(HOSTNAME, name), (OS, LINUX), (ARCH, architecture), (BETA_OS, LINUX), (BETA_ARCH, architecture)];
    own.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter()
}
