//! Upstream's names of the volume plugins that this kubelet has; paths, metrics and messages contain them.

/// ConfigMap volumes.
pub const CONFIG_MAP: &str = "kubernetes.io/configmap";
/// DownwardAPI volumes.
pub const DOWNWARD_API: &str = "kubernetes.io/downward-api";
/// EmptyDir volumes.
pub const EMPTY_DIR: &str = "kubernetes.io/empty-dir";
/// HostPath volumes.
pub const HOST_PATH: &str = "kubernetes.io/host-path";
/// Projected volumes.
pub const PROJECTED: &str = "kubernetes.io/projected";
/// Secret volumes.
pub const SECRET: &str = "kubernetes.io/secret";

/// All plugins, in alphabetical order.
pub const ALL: &[&str] = &[CONFIG_MAP, DOWNWARD_API, EMPTY_DIR, HOST_PATH, PROJECTED, SECRET];
