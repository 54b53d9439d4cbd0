//! Upstream's names of the volume plugins that this kubelet has; paths, metrics and messages contain them.

/// ConfigMap volumes.
pub const CONFIG_MAP: &str = "kubernetes.io/configmap";
/// Volumes of CSI drivers.
pub const CSI: &str = "kubernetes.io/csi";
/// DownwardAPI volumes.
pub const DOWNWARD_API: &str = "kubernetes.io/downward-api";
/// EmptyDir volumes.
pub const EMPTY_DIR: &str = "kubernetes.io/empty-dir";
/// Disks of Fibre Channel.
pub const FC: &str = "kubernetes.io/fc";
/// The directory of FlexVolume drivers' mounts; volumes are of the plugin of their driver.
pub const FLEX_VOLUME: &str = "kubernetes.io/flexvolume";
/// HostPath volumes.
pub const HOST_PATH: &str = "kubernetes.io/host-path";
/// Image volumes, which the runtime mounts.
pub const IMAGE: &str = "kubernetes.io/image";
/// Disks of iSCSI targets.
pub const ISCSI: &str = "kubernetes.io/iscsi";
/// Local persistent volumes.
pub const LOCAL: &str = "kubernetes.io/local-volume";
/// Shares of NFS servers.
pub const NFS: &str = "kubernetes.io/nfs";
/// Projected volumes.
pub const PROJECTED: &str = "kubernetes.io/projected";
/// Secret volumes.
pub const SECRET: &str = "kubernetes.io/secret";

/// All plugins that this kubelet has, in alphabetical order.
pub const ALL: &[&str] =
    &[CONFIG_MAP, CSI, DOWNWARD_API, EMPTY_DIR, FC, HOST_PATH, IMAGE, ISCSI, LOCAL, NFS, PROJECTED, SECRET];

/// Whether a FlexVolume driver may have this name, which is that of its volumes' plugin, too: a name, or a vendor and a name. The
/// vendor `kubernetes.io` is that of upstream's own plugins.
pub fn is_flex_driver(plugin: &str) -> bool {
    let is_name = |part: &str| {
        !part.is_empty() && !part.starts_with('.') && !part.contains(|c: char| c == '~' || c.is_control())
    };
    let parts = plugin.split('/').count();
    parts <= 2 && plugin.split('/').all(is_name) && !plugin.starts_with("kubernetes.io/")
}
