//! Label keys: those by which the kubelet finds a pod's sandboxes and containers at the runtime, and those of
//! the Node.

/// The node's zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The node's region.
pub const REGION: &str = "topology.kubernetes.io/region";
/// The node's zone, by its older name.
pub const ZONE_BETA: &str = "failure-domain.beta.kubernetes.io/zone";
/// The node's region, by its older name.
pub const REGION_BETA: &str = "failure-domain.beta.kubernetes.io/region";
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
    REGION_BETA,
    ZONE_BETA,
    ARCH,
    HOSTNAME,
    OS,
    "node.kubernetes.io/instance-type",
    REGION,
    ZONE,
];

/// The namespaces, below Kubernetes' own, of further labels that a kubelet may set on its own Node.
pub const NAMESPACES_OF_NODE: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Whether a kubelet may set the label on its own Node: of the labels in Kubernetes' namespaces the API server lets it set
/// few.
pub fn is_for_node(key: &str) -> bool {
    let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
    let is_below = |parent: &&str| {
        namespace == *parent || namespace.strip_suffix(*parent).is_some_and(|before| before.ends_with('.'))
    };
    let is_kubernetes = ["kubernetes.io", "k8s.io"].iter().any(&is_below);
    !is_kubernetes || OF_NODE.contains(&key) || NAMESPACES_OF_NODE.iter().any(is_below)
}

/// The labels that a kubelet gives every Node. Those of `--node-labels` override them.
pub fn of_node(name: &str, architecture: &str) -> impl Iterator<Item = (String, String)> {
    let own =
        [(HOSTNAME, name), (OS, LINUX), (ARCH, architecture), (BETA_OS, LINUX), (BETA_ARCH, architecture)];
    own.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter()
}
