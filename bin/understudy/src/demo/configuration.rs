//! PURE: the paths of the demo's files, and the kubelet's configuration for them.

use std::path::{Path, PathBuf};

use serde_json::json;

/// The node's name.
pub const NODE: &str = "demo";

/// The paths and ports of the demo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The directory of static pod manifests.
    pub manifests: PathBuf,
    /// The kubelet's root directory.
    pub root: PathBuf,
    /// The directory of certificates, if the kubelet needs any.
    pub certificates: PathBuf,
    /// The directory of containers' logs.
    pub logs: PathBuf,
    /// The directory of legacy links to the logs.
    pub log_links: PathBuf,
    /// The directory that the runtime reports for images.
    pub images: PathBuf,
    /// The runtime's socket.
    pub socket: PathBuf,
    /// The file of the KubeletConfiguration.
    pub kubelet_config: PathBuf,
    /// The file of the UnderstudyConfiguration.
    pub understudy_config: PathBuf,
    /// The kubelet's read-only port.
    pub read_only_port: u16,
    /// The kubelet's health port.
    pub healthz_port: u16,
}

impl Places {
    /// Paths within one directory.
    pub fn within(directory: &Path, [read_only_port, healthz_port]: [u16; 2]) -> Self {
        let at = |name: &str| directory.join(name);
        Self {
            manifests: at("manifests"),
            root: at("kubelet"),
            certificates: at("kubelet/pki"),
            logs: at("logs"),
            log_links: at("log-links"),
            images: at("images"),
            socket: at("runtime.sock"),
            kubelet_config: at("kubelet.yaml"),
            understudy_config: at("understudy.yaml"),
            read_only_port,
            healthz_port,
        }
    }

    /// The directories that must exist before the kubelet starts.
    pub fn directories(&self) -> [&Path; 6] {
        [&self.manifests, &self.root, &self.certificates, &self.logs, &self.log_links, &self.images]
    }
}

/// The configuration of a standalone kubelet that stays within its directory: no cgroups, no node settings, loopback
/// only.
pub fn kubelet_configuration(places: &Places) -> String {
    let configuration = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "staticPodPath": places.manifests,
        "fileCheckFrequency": "5s",
        "containerRuntimeEndpoint": format!("unix://{}", places.socket.display()),
        "address": "127.0.0.1",
        "readOnlyPort": places.read_only_port,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": places.healthz_port,
        "podLogsDir": places.logs,
        "volumePluginDir": places.root.join("volume-plugins"),
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        // A full disk on the user's machine should not end the demo.
        "evictionHard": {},
        // Limits that any process may have without privileges.
        "maxOpenFiles": 1024,
        "oomScoreAdj": 0,
        "failCgroupV1": false,
        "failSwapOn": false,
        "makeIPTablesUtilChains": false,
        "registerNode": false,
        "resolvConf": "",
        // Without an API server there are no reviews of callers, so there is no HTTPS server; a kubelet requires these
        // settings all the same.
        "enableServer": false,
        "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
        "authorization": { "mode": "AlwaysAllow" },
    });
    format!("{configuration:#}\n")
}

/// The configuration without links outside the directory, and without changes of the kernel's settings.
pub fn understudy_configuration(places: &Places) -> String {
    let configuration = json!({
        "apiVersion": "understudy.dev/v1alpha1",
        "kind": "UnderstudyConfiguration",
        "legacyLogSymlinkDir": places.log_links,
        "sysctlDir": "",
    });
    format!("{configuration:#}\n")
}
