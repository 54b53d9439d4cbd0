//! PURE: the Node with its status computed, given the Node at the API server (rows 13.2 to 13.7, 13.10, 13.11).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_csi::rules::csi_node;
use bridge_node::host::FoundAddresses;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeCondition, NodeDaemonEndpoints, NodeFeatures,
    NodeRuntimeHandler, NodeRuntimeHandlerFeatures, NodeStatus, NodeSwapStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use messages::facts::{CsiDriversObserved, CsiNodeState, DriverNode, OtherVolumesObserved, Pressure};
use messages::node_status::Degradation;
use pod_rules::conditions::READY;
use pod_rules::labels;
use pod_spec::resources::{is_huge_pages, is_native};

use crate::NodeStatusConfig;
use crate::addresses::{AddressSettings, addresses};
use crate::conditions::{self, RuntimeState};

/// The annotation with `--node-ip`, for an external cloud provider.
const PROVIDED_IP: &str = "alpha.kubernetes.io/provided-node-ip";
/// The resources without which a node is not ready.
const REQUIRED: [&str; 3] = ["cpu", "memory", "pods"];
/// A resource in [`NodeResources`](pod_spec::resources::NodeResources) that a Node does not show.
const NOT_SHOWN: &str = "pid";

/// The facts from which the status is computed.
#[derive(Clone, Copy, Debug)]
pub struct NodeInput<'a> {
    /// Wall time.
    pub now: Timestamp,
    /// Time since the fixed moment to which the times of `runtime` refer.
    pub elapsed: Duration,
    /// The state of the runtime.
    pub runtime: &'a RuntimeState,
    /// Images in the form of the status; `None` until the runtime has listed them.
    pub images: Option<&'a [ContainerImage]>,
    /// The machine's addresses; `None` until they have been found.
    pub found: Option<&'a FoundAddresses>,
    /// The node's pressure; `None` until it has been measured.
    pub pressure: Option<Pressure>,
    /// Volumes that an earlier kubelet has left; `None` until they have been told.
    pub volumes: Option<&'a OtherVolumesObserved>,
    /// The CSI drivers of this node, and whether it has a CSINode.
    pub drivers: &'a CsiDriversObserved,
    /// Subsystems that have given up, each with its reason.
    pub degraded: &'a BTreeMap<Arc<str>, (Degradation, Arc<str>)>,
    /// Why the kubelet is about to end, if it is.
    pub failed: Option<&'a str>,
}

/// The computed Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Updated {
    /// The whole object.
    pub node: Node,
    /// Events of the conditions that have changed.
    pub events: Vec<&'static str>,
    /// Whether the machine has another boot ID than the Node had.
    pub rebooted: bool,
    /// Parts of the status that stay as they were, each with the reason.
    pub problems: Vec<String>,
}

/// The Node with its status computed. Only the kubelet's own fields differ from `before`.
pub fn updated(before: &Node, config: &NodeStatusConfig, known: &NodeInput<'_>) -> Updated {
    let mut made = Updated { node: before.clone(), ..Updated::default() };
    let labels = made.node.metadata.labels.get_or_insert_default();
    labels.insert(labels::OS.to_owned(), labels::LINUX.to_owned());
    labels.insert(labels::ARCH.to_owned(), config.machine.architecture.clone());
    provided_ip(&mut made.node, config);
    made.problems.extend(drivers(&mut made.node, &known.drivers.drivers));

    let mut status = made.node.status.take().unwrap_or_default();
    if let Some(found) = known.found {
        let told = AddressSettings {
            name: &config.name,
            node_ips: &config.node_ips,
            external_cloud: config.external_cloud,
        };
        match addresses(told, found, status.addresses.as_deref().unwrap_or_default()) {
            Ok(list) => status.addresses = Some(list),
            Err(problem) => made.problems.push(problem),
        }
    }
    resources(&mut status, config);
    made.rebooted = node_info(&mut status, config, known.runtime);
    let endpoint = DaemonEndpoint { port: config.port };
    status.daemon_endpoints = Some(NodeDaemonEndpoints { kubelet_endpoint: Some(endpoint) });
    if let Some(images) = known.images {
        status.images = Some(images.to_vec()).filter(|images| !images.is_empty());
    }
    runtime_features(&mut status, known.runtime);
    if let Some(volumes) = known.volumes {
        status.volumes_in_use = Some(in_use(&status, volumes)).filter(|names| !names.is_empty());
    }
    let declared = &config.declared_features;
    status.declared_features = Some(declared.clone()).filter(|features| !features.is_empty());
    let mut errors = known.runtime.errors(known.elapsed);
    errors.extend(csi_node_problem(before, &known.drivers.csi_node));
    errors.extend(missing(&status, config));
    errors.extend(known.failed.map(str::to_owned));
    made.events = conditions::set(&mut status, known.now, known.pressure, errors, known.degraded);
    made.node.status = Some(status);
    made
}

/// The volumes of `volumesInUse`: those that this kubelet uses, and those that the Node reports in use or attached and
/// of which a kubelet has left mounts, which must not be detached.
fn in_use(status: &NodeStatus, volumes: &OtherVolumesObserved) -> Vec<String> {
    let reported = status.volumes_in_use.iter().flatten();
    let attached = status.volumes_attached.iter().flatten().map(|volume| &volume.name);
    let found = reported.chain(attached).filter(|name| volumes.has(name));
    let names: BTreeSet<&String> = found.chain(volumes.own.iter()).collect();
    names.into_iter().cloned().collect()
}

/// Why a Node is not ready as far as its CSINode goes, in upstream's words. A Node that is ready had one: it stays ready
/// while that is looked up again.
fn csi_node_problem(before: &Node, csi_node: &CsiNodeState) -> Option<String> {
    let conditions = before.status.as_ref().and_then(|status| status.conditions.as_ref());
    let is_ready = |condition: &NodeCondition| condition.type_ == READY && condition.status == "True";
    if conditions.into_iter().flatten().any(is_ready) {
        return None;
    }
    match csi_node {
        CsiNodeState::Of(uid) if **uid == *before.metadata.uid.as_deref().unwrap_or_default() => None,
        CsiNodeState::Failed(why) => Some(format!("failed to initialize CSINode: {why}")),
        CsiNodeState::Of(_) | CsiNodeState::Unknown => Some("CSINode is not yet initialized".to_owned()),
    }
}

/// Sets what the Node says of CSI drivers: its name in each driver's world, and its place in their topologies. Labels
/// of drivers that are gone stay, as upstream has it. Returns what cannot be set.
fn drivers(node: &mut Node, drivers: &BTreeMap<String, Option<DriverNode>>) -> Vec<String> {
    let mut problems = Vec::new();
    for (driver, told) in drivers {
        let annotations = node.metadata.annotations.as_ref();
        let present = annotations.and_then(|all| all.get(csi_node::NODE_IDS)).map(String::as_str);
        let node_id = told.as_ref().map(|told| told.node_id.as_str());
        match (csi_node::node_ids(present, driver, node_id), &mut node.metadata.annotations) {
            (Ok(Some(ids)), annotations) => {
                annotations.get_or_insert_default().insert(csi_node::NODE_IDS.to_owned(), ids);
            }
            (Ok(None), Some(annotations)) => drop(annotations.remove(csi_node::NODE_IDS)),
            (Ok(None), None) => {}
            (Err(problem), _) => problems.push(problem),
        }
        let labels = node.metadata.labels.get_or_insert_default();
        match told.as_ref().map(|told| csi_node::topology_labels(labels, &told.topology)) {
            Some(Ok(missing)) => labels.extend(missing),
            Some(Err(problem)) => problems.push(problem),
            None => {}
        }
    }
    problems
}

fn provided_ip(node: &mut Node, config: &NodeStatusConfig) {
    let specified: Vec<String> =
        config.node_ips.iter().filter(|ip| !ip.is_unspecified()).map(ToString::to_string).collect();
    if config.external_cloud && !specified.is_empty() {
        let annotations = node.metadata.annotations.get_or_insert_default();
        annotations.insert(PROVIDED_IP.to_owned(), specified.join(","));
    } else if let Some(annotations) = &mut node.metadata.annotations {
        annotations.remove(PROVIDED_IP);
    }
}

/// Whether the resource is a device plugin's, or one that an administrator gives the node.
pub(crate) fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.")
}

/// Sets capacity and allocatable. Resources of other writers stay, and pods may use all of them.
fn resources(status: &mut NodeStatus, config: &NodeStatusConfig) {
    let capacity = status.capacity.get_or_insert_default();
    let own = &config.resources;
    capacity.retain(|name, _| !is_huge_pages(name) || own.capacity.contains_key(name));
    for (name, amount) in own.capacity.iter().filter(|(name, _)| *name != NOT_SHOWN) {
        capacity.insert(name.clone(), Quantity(amount.to_string()));
    }
    let allocatable = status.allocatable.get_or_insert_default();
    allocatable.retain(|name, _| capacity.contains_key(name) || !(is_extended(name) || is_huge_pages(name)));
    for (name, amount) in capacity.iter() {
        let amount =
            own.allocatable.get(name).map_or_else(|| amount.clone(), |own| Quantity(own.to_string()));
        allocatable.insert(name.clone(), amount);
    }
}

fn missing(status: &NodeStatus, config: &NodeStatusConfig) -> Option<String> {
    let storage = config.storage_isolation.then_some("ephemeral-storage");
    let lacks = |name: &&str| !status.capacity.as_ref().is_some_and(|capacity| capacity.contains_key(*name));
    let missing: Vec<&str> = REQUIRED.into_iter().chain(storage).filter(lacks).collect();
    let text = || format!("missing node capacity for resources: {}", missing.join(", "));
    (!missing.is_empty()).then(text)
}

fn node_info(status: &mut NodeStatus, config: &NodeStatusConfig, runtime: &RuntimeState) -> bool {
    let machine = &config.machine;
    let info = status.node_info.get_or_insert_default();
    let rebooted = !info.boot_id.is_empty() && info.boot_id != machine.boot_id;
    info.machine_id = machine.machine_id.clone();
    info.system_uuid = machine.system_uuid.clone();
    info.boot_id = machine.boot_id.clone();
    info.kernel_version = machine.kernel_version.clone();
    info.os_image = machine.os_image.clone();
    info.container_runtime_version = runtime.version.clone();
    info.kubelet_version = config.kubelet_version.to_owned();
    info.kube_proxy_version = String::new();
    info.operating_system = labels::LINUX.to_owned();
    info.architecture = machine.architecture.clone();
    if machine.swap_bytes != 0 {
        info.swap = Some(NodeSwapStatus { capacity: i64::try_from(machine.swap_bytes).ok() });
    }
    rebooted
}

fn runtime_features(status: &mut NodeStatus, runtime: &RuntimeState) {
    if let Some(supported) = runtime.supplemental_groups_policy {
        status.features = Some(NodeFeatures { supplemental_groups_policy: Some(supported) });
    }
    let handlers = runtime.handlers.iter().map(|handler| NodeRuntimeHandler {
        // The default handler's empty name is in the server's object, too: left out here, the two would always differ.
        name: Some(handler.name.clone()),
        features: Some(NodeRuntimeHandlerFeatures {
            recursive_read_only_mounts: Some(handler.recursive_read_only_mounts),
            user_namespaces: Some(handler.user_namespaces),
        }),
    });
    let handlers: Vec<_> = handlers.collect();
    if !handlers.is_empty() {
        status.runtime_handlers = Some(handlers);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use k8s_openapi::api::core::v1::AttachedVolume;
    use messages::runtime::{RuntimeHandler, RuntimeHealth};

    use super::*;
    use crate::config::test_config;

    pub(crate) fn ready_runtime() -> RuntimeState {
        let handler = |name: &str| RuntimeHandler {
            name: name.to_owned(),
            recursive_read_only_mounts: true,
            user_namespaces: false,
        };
        let mut runtime = RuntimeState::default();
        let health = RuntimeHealth {
            name: "containerd".into(),
            version: "2.3.0".into(),
            answered: true,
            ready: true,
            network_ready: true,
            supplemental_groups_policy: true,
            handlers: vec![handler(""), handler("runc")],
            listed_ago: Some(Duration::ZERO),
            ..RuntimeHealth::default()
        };
        runtime.learn(&health, Duration::ZERO);
        runtime
    }

    pub(crate) fn made(before: &Node, config: &NodeStatusConfig, second: i64) -> Updated {
        made_with(before, config, second, None)
    }

    fn made_with(
        before: &Node,
        config: &NodeStatusConfig,
        second: i64,
        volumes: Option<&OtherVolumesObserved>,
    ) -> Updated {
        let csi_node = CsiNodeState::Of(before.metadata.uid.clone().unwrap_or_default().into());
        let drivers = CsiDriversObserved { csi_node, ..CsiDriversObserved::default() };
        made_of(before, config, second, volumes, &drivers)
    }

    fn made_of(
        before: &Node,
        config: &NodeStatusConfig,
        second: i64,
        volumes: Option<&OtherVolumesObserved>,
        drivers: &CsiDriversObserved,
    ) -> Updated {
        let (runtime, degraded) = (ready_runtime(), BTreeMap::new());
        let found = FoundAddresses {
            default_routes: vec!["10.0.0.9".parse().expect("an address")],
            ..FoundAddresses::default()
        };
        let known = NodeInput {
            now: Timestamp::from_second(second).expect("a timestamp"),
            elapsed: Duration::ZERO,
            runtime: &runtime,
            images: Some(&[]),
            found: Some(&found),
            pressure: None,
            volumes,
            drivers,
            degraded: &degraded,
            failed: None,
        };
        updated(before, config, &known)
    }

    fn amounts(list: Option<&BTreeMap<String, Quantity>>) -> Vec<String> {
        list.into_iter().flatten().map(|(name, amount)| format!("{name}={}", amount.0)).collect()
    }

    #[test]
    fn a_node_shows_its_machine_and_runtime() {
        let status = made(&Node::default(), &test_config(), 1).node.status.expect("a status");
        let capacity = ["cpu=4", "ephemeral-storage=100Gi", "memory=8Gi", "pods=110"];
        assert_eq!(amounts(status.capacity.as_ref()), capacity, "no pid");
        let allocatable = ["cpu=3500m", "ephemeral-storage=100Gi", "memory=7680Mi", "pods=110"];
        assert_eq!(amounts(status.allocatable.as_ref()), allocatable);
        let info = serde_json::to_value(status.node_info).expect("it can be written");
        assert_eq!(
            info,
            serde_json::json!({
                "machineID": "machine", "systemUUID": "system", "bootID": "boot-1", "kernelVersion": "6.12.0",
                "osImage": "Linux", "containerRuntimeVersion": "containerd://2.3.0", "kubeletVersion": "v1.36.2",
                "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
            })
        );
        let endpoint = status.daemon_endpoints.and_then(|endpoints| endpoints.kubelet_endpoint);
        assert_eq!(endpoint.map(|endpoint| endpoint.port), Some(10250));
        let names: Vec<_> =
            status.runtime_handlers.into_iter().flatten().filter_map(|handler| handler.name).collect();
        assert_eq!(names, ["", "runc"], "as the server has them");
        assert_eq!(status.features.and_then(|features| features.supplemental_groups_policy), Some(true));
    }

    #[test]
    fn a_second_look_at_the_same_node_changes_nothing_but_heartbeats() {
        let first = made(&Node::default(), &test_config(), 1);
        let second = made(&first.node, &test_config(), 11);
        assert!(second.events.is_empty() && !second.rebooted);
        assert!(!crate::changes::changed(&first.node, &second.node));
    }

    #[test]
    fn resources_of_others_stay_and_lost_huge_pages_go() {
        let mut node = Node::default();
        let list = |names: &[&str]| {
            Some(names.iter().map(|name| ((*name).to_owned(), Quantity("2".to_owned()))).collect())
        };
        node.status = Some(NodeStatus {
            capacity: list(&["example.com/gpu", "hugepages-2Mi"]),
            allocatable: list(&["example.com/gone", "hugepages-2Mi"]),
            ..NodeStatus::default()
        });
        let status = made(&node, &test_config(), 1).node.status.expect("a status");
        let of = |list: Option<&BTreeMap<String, Quantity>>| {
            let names = list.into_iter().flatten().map(|(name, _)| name.clone());
            names.filter(|name| name.contains('/') || is_huge_pages(name)).collect::<Vec<_>>()
        };
        assert_eq!(of(status.capacity.as_ref()), ["example.com/gpu"]);
        assert_eq!(of(status.allocatable.as_ref()), ["example.com/gpu"]);
    }

    #[test]
    fn what_others_of_this_name_have_left_goes() {
        let status = NodeStatus { declared_features: Some(vec!["Old".to_owned()]), ..NodeStatus::default() };
        let node = Node { status: Some(status), ..Node::default() };
        let mut config = test_config();
        config.declared_features = vec!["New".to_owned()];
        let status = made(&node, &config, 1).node.status.expect("a status");
        assert_eq!(status.declared_features, Some(vec!["New".to_owned()]));
    }

    #[test]
    fn volumes_of_an_earlier_kubelet_are_in_use_until_they_are_gone() {
        let csi = |handle: &str| format!("kubernetes.io/csi/x^{handle}");
        let attached = |name: String| AttachedVolume { name, device_path: String::new() };
        let status = NodeStatus {
            volumes_in_use: Some(vec![csi("2"), csi("1"), "kubernetes.io/fc/wwn:1".to_owned()]),
            volumes_attached: Some(vec![attached(csi("1")), attached(csi("3")), attached(csi("4"))]),
            ..NodeStatus::default()
        };
        let node = Node { status: Some(status.clone()), ..Node::default() };
        let in_use = |volumes: Option<&OtherVolumesObserved>| {
            made_with(&node, &test_config(), 1, volumes).node.status.expect("a status").volumes_in_use
        };
        assert_eq!(in_use(None), status.volumes_in_use, "nobody has looked yet");
        let here = |names: &[String], plugins: &[&str]| OtherVolumesObserved {
            names: Arc::new(names.iter().cloned().collect()),
            plugins: Arc::new(plugins.iter().map(|plugin| (*plugin).to_owned()).collect()),
            own: Arc::default(),
        };
        // A volume that is attached to no node is never in use, as at the API server.
        let some = here(&[csi("1"), csi("3"), csi("9")], &[]);
        assert_eq!(in_use(Some(&some)), Some(vec![csi("1"), csi("3")]));
        let fc = here(&[], &["kubernetes.io/fc", "kubernetes.io/cs"]);
        assert_eq!(in_use(Some(&fc)), Some(vec!["kubernetes.io/fc/wwn:1".to_owned()]));
        assert_eq!(in_use(Some(&here(&[], &[]))), None);
        // A volume that this kubelet is about to use is reported before it is attached.
        let own = OtherVolumesObserved { own: Arc::new([csi("7")].into()), ..some };
        assert_eq!(in_use(Some(&own)), Some(vec![csi("1"), csi("3"), csi("7")]));
    }

    #[test]
    fn the_node_says_how_drivers_call_it_and_where_it_is() {
        let told = |id: &str, zone: &str| {
            let topology = BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
            Some(DriverNode { node_id: id.to_owned(), topology })
        };
        let with = |node: &Node, drivers: &[(&str, Option<DriverNode>)]| {
            let drivers = drivers.iter().map(|(name, told)| ((*name).to_owned(), told.clone())).collect();
            let drivers = CsiDriversObserved { drivers: Arc::new(drivers), ..CsiDriversObserved::default() };
            made_of(node, &test_config(), 1, None, &drivers)
        };
        let ids = |node: &Node| node.metadata.annotations.as_ref()?.get(csi_node::NODE_IDS).cloned();
        let first = with(&Node::default(), &[("d", told("i-1", "a")), ("e", told("i-2", "a"))]);
        assert_eq!(ids(&first.node).as_deref(), Some(r#"{"d":"i-1","e":"i-2"}"#));
        assert_eq!(first.node.metadata.labels.as_ref().expect("labels")["zone"], "a");
        let again = with(&first.node, &[("d", told("i-9", "b")), ("e", None)]);
        assert_eq!(ids(&again.node).as_deref(), Some(r#"{"d":"i-9"}"#));
        assert_eq!(again.node.metadata.labels.as_ref().expect("labels")["zone"], "a", "it is not moved");
        assert!(again.problems[0].contains("topology value collision"), "{:?}", again.problems);
        assert_eq!(ids(&with(&again.node, &[("d", None)]).node), None);
        let silent = with(&again.node, &[]);
        assert!(!crate::changes::changed(&again.node, &silent.node), "drivers may not have registered yet");
    }

    #[test]
    fn a_new_node_is_ready_once_it_has_its_csi_node() {
        let of = |uid: &str| CsiNodeState::Of(uid.into());
        let node = |status: Option<&str>| {
            let condition = |status: &str| NodeCondition {
                type_: READY.to_owned(),
                status: status.to_owned(),
                ..NodeCondition::default()
            };
            let mut node = Node::default();
            node.metadata.uid = Some("u".to_owned());
            let conditions = status.map(|status| vec![condition(status)]);
            node.status = Some(NodeStatus { conditions, ..NodeStatus::default() });
            node
        };
        for status in [None, Some("False")] {
            let problem = |state: &CsiNodeState| csi_node_problem(&node(status), state);
            assert_eq!(problem(&of("u")), None);
            let waits = Some("CSINode is not yet initialized".to_owned());
            assert_eq!([problem(&CsiNodeState::Unknown), problem(&of("earlier"))], [waits.clone(), waits]);
            let failed = problem(&CsiNodeState::Failed("forbidden".into()));
            assert_eq!(failed.as_deref(), Some("failed to initialize CSINode: forbidden"));
        }
        assert_eq!(
            csi_node_problem(&node(Some("True")), &CsiNodeState::Unknown),
            None,
            "it is ready already"
        );
    }

    #[test]
    fn another_boot_is_noticed_once() {
        let config = test_config();
        let before = made(&Node::default(), &config, 1).node;
        let mut later = config.clone();
        later.machine.boot_id = "boot-2".into();
        let after = made(&before, &later, 2);
        assert!(after.rebooted && !made(&after.node, &later, 3).rebooted);
    }

    #[test]
    fn a_node_without_what_it_needs_is_not_ready() {
        let mut config = test_config();
        let mut resources = (*config.resources).clone();
        resources.capacity.remove("ephemeral-storage");
        resources.capacity.remove("pods");
        config.resources = Arc::new(resources);
        let ready = |config: &NodeStatusConfig| {
            let status = made(&Node::default(), config, 1).node.status.expect("a status");
            status.conditions.expect("conditions")[3].message.clone().expect("a message")
        };
        assert_eq!(ready(&config), "missing node capacity for resources: pods, ephemeral-storage");
        config.storage_isolation = false;
        assert_eq!(ready(&config), "missing node capacity for resources: pods");
    }
}
