//! NodeStatus's configuration.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bridge_node::host::MachineFacts;
use k8s_openapi::api::core::v1::Taint;
use pod_spec::resources::NodeResources;

/// Facts that do not change while the kubelet runs.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeStatusConfig {
    /// The Node's name, and its hostname.
    pub name: Arc<str>,
    /// `registerNode`: otherwise another program creates the Node.
    pub register: bool,
    /// `--node-labels`.
    pub labels: BTreeMap<String, String>,
    /// `registerWithTaints`.
    pub taints: Vec<Taint>,
    /// `providerID`; empty for none.
    pub provider_id: String,
    /// `enableControllerAttachDetach`.
    pub controller_attach_detach: bool,
    /// `--cloud-provider=external`.
    pub external_cloud: bool,
    /// `--node-ip`: one address, or one of each family; an unspecified one stands for its family.
    pub node_ips: Vec<IpAddr>,
    /// Facts about the machine.
    pub machine: MachineFacts,
    /// Capacity and allocatable amounts.
    pub resources: Arc<NodeResources>,
    /// `localStorageCapacityIsolation`: a node without `ephemeral-storage` is not ready.
    pub storage_isolation: bool,
    /// `v1.36.2`.
    pub kubelet_version: &'static str,
    /// The port on which the API server reaches the kubelet.
    pub port: i32,
    /// `nodeStatusMaxImages`; `None` for all.
    pub images_max: Option<usize>,
    /// `nodeStatusUpdateFrequency`: time between two computations.
    pub update: Duration,
    /// `nodeStatusReportFrequency`: longest time between two postings of an unchanged status.
    pub report: Duration,
    /// Features that pods may require and this kubelet has, sorted.
    pub declared_features: Vec<String>,
}

/// A node's configuration for tests.
#[cfg(test)]
pub(crate) fn test_config() -> NodeStatusConfig {
    use pod_spec::quantity::Quantity;

    let amounts = |texts: &[(&str, &str)]| {
        let read = |text| Quantity::parse(text).expect("a quantity");
        texts.iter().map(|(name, text)| ((*name).to_owned(), read(text))).collect()
    };
    let storage = ("ephemeral-storage", "100Gi");
    NodeStatusConfig {
        name: Arc::from("n1"),
        register: true,
        labels: [("disk".to_owned(), "ssd".to_owned())].into(),
        taints: Vec::new(),
        provider_id: String::new(),
        controller_attach_detach: true,
        external_cloud: false,
        node_ips: Vec::new(),
        machine: MachineFacts {
            hostname: "n1".into(),
            boot_id: "boot-1".into(),
            boot_second: None,
            machine_id: "machine".into(),
            system_uuid: "system".into(),
            memory_bytes: 8 << 30,
            swap_bytes: 0,
            cpu_count: 4,
            huge_pages: BTreeMap::new(),
            pids_max: Some(32_768),
            kernel_version: "6.12.0".into(),
            os_image: "Linux".into(),
            architecture: "amd64".into(),
            app_armor: false,
        },
        resources: Arc::new(NodeResources {
            capacity: amounts(&[("cpu", "4"), ("memory", "8Gi"), ("pods", "110"), ("pid", "32768"), storage]),
            allocatable: amounts(&[("cpu", "3500m"), ("memory", "7680Mi"), ("pods", "110"), storage]),
        }),
        storage_isolation: true,
        kubelet_version: "v1.36.2",
        port: 10250,
        images_max: Some(50),
        update: Duration::from_secs(10),
        report: Duration::from_secs(300),
        declared_features: Vec::new(),
    }
}
