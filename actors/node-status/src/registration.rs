//! PURE: the Node to register, and the corrections of one that exists already (rows 13.1, 13.2).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSpec, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_rules::labels;
use pod_rules::taints::NO_SCHEDULE;

use crate::NodeStatusConfig;
use crate::status::{NodeInput, Updated, is_extended, updated};

/// Tells the controller manager to attach volumes.
const ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

fn labels(config: &NodeStatusConfig) -> BTreeMap<String, String> {
    let (name, arch) = (&*config.name, config.machine.architecture.as_str());
    labels::of_node(name, arch).chain(config.labels.clone()).collect()
}

/// The Node to create if the cluster has none of this name.
pub fn initial(config: &NodeStatusConfig, known: &NodeInput<'_>) -> Updated {
    let cloud = config.external_cloud.then(|| Taint {
        key: "node.cloudprovider.kubernetes.io/uninitialized".to_owned(),
        value: Some("true".to_owned()),
        effect: NO_SCHEDULE.to_owned(),
        time_added: None,
    });
    let taints: Vec<Taint> = config.taints.iter().cloned().chain(cloud).collect();
    let annotation = config.controller_attach_detach.then(|| (ATTACH_DETACH.to_owned(), "true".to_owned()));
    let overwritten = labels(config);
    let mut made = updated(
        &Node {
            metadata: ObjectMeta {
                name: Some(config.name.to_string()),
                labels: Some(overwritten.clone()),
                annotations: Some(annotation.into_iter().collect())
                    .filter(|a: &BTreeMap<_, _>| !a.is_empty()),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                taints: Some(taints).filter(|taints| !taints.is_empty()),
                provider_id: Some(config.provider_id.clone()).filter(|id| !id.is_empty()),
                ..NodeSpec::default()
            }),
            status: None,
        },
        config,
        known,
    );
    // --node-labels overrides the default labels.
    made.node.metadata.labels = Some(overwritten);
    made
}

/// An existing Node, corrected; `None` if nothing is wrong.
pub fn reconciled(initial: &Node, existing: &Node) -> Option<Node> {
    let mut node = existing.clone();
    let wanted = initial.metadata.annotations.as_ref().and_then(|all| all.get(ATTACH_DETACH));
    match wanted {
        Some(value) => {
            node.metadata.annotations.get_or_insert_default().insert(ATTACH_DETACH.to_owned(), value.clone());
        }
        None => {
            node.metadata.annotations.iter_mut().for_each(|all| drop(all.remove(ATTACH_DETACH)));
        }
    }
    let ours = initial.metadata.labels.iter().flatten();
    for (key, value) in ours.filter(|(key, _)| labels::OF_NODE.contains(&key.as_str())) {
        let labels = node.metadata.labels.get_or_insert_default();
        if value.is_empty() {
            labels.remove(key);
        } else {
            labels.insert(key.clone(), value.clone());
        }
    }
    // Devices come back when their plugins do; until then the scheduler must not count on them.
    if let Some(status) = &mut node.status {
        let names: Vec<String> = status
            .capacity
            .iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .filter(|name| is_extended(name))
            .collect();
        for name in names {
            for list in [&mut status.capacity, &mut status.allocatable] {
                list.get_or_insert_default().insert(name.clone(), Quantity("0".to_owned()));
            }
        }
    }
    (node != *existing).then_some(node)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::NodeStatus;
    use messages::facts::CsiDriversObserved;

    use super::*;
    use crate::changes::patch;
    use crate::conditions::RuntimeState;
    use crate::config::test_config;

    fn first(config: &NodeStatusConfig) -> Node {
        let (runtime, degraded) = (RuntimeState::default(), BTreeMap::new());
        let known = NodeInput {
            now: jiff::Timestamp::UNIX_EPOCH,
            elapsed: std::time::Duration::ZERO,
            runtime: &runtime,
            images: None,
            found: None,
            pressure: None,
            volumes: None,
            drivers: &CsiDriversObserved::default(),
            degraded: &degraded,
            failed: None,
        };
        initial(config, &known).node
    }

    #[test]
    fn a_new_node_has_labels_taints_and_conditions() {
        let taint = |key: &str, value: &str| Taint {
            key: key.into(),
            value: Some(value.into()),
            effect: "NoSchedule".into(),
            time_added: None,
        };
        let mut config = test_config();
        config.taints = vec![taint("dedicated", "x")];
        config.external_cloud = true;
        config.labels.insert("kubernetes.io/hostname".into(), "other".into());
        let node = first(&config);
        let labels: Vec<String> =
            node.metadata.labels.iter().flatten().map(|(key, value)| format!("{key}={value}")).collect();
        let expected = [
            "beta.kubernetes.io/arch=amd64",
            "beta.kubernetes.io/os=linux",
            "disk=ssd",
            "kubernetes.io/arch=amd64",
            "kubernetes.io/hostname=other",
            "kubernetes.io/os=linux",
        ];
        assert_eq!(labels, expected);
        let cloud = taint("node.cloudprovider.kubernetes.io/uninitialized", "true");
        let spec = node.spec.expect("a spec");
        assert_eq!(spec.taints, Some(vec![taint("dedicated", "x"), cloud]));
        let conditions = node.status.and_then(|status| status.conditions).expect("conditions");
        assert_eq!(
            conditions[3].message.as_deref(),
            Some(
                "[container runtime status check may not have completed yet, PLEG is not healthy: pleg has yet to be \
                 successful, network state unknown, CSINode is not yet initialized]"
            )
        );
    }

    #[test]
    fn an_old_node_is_put_right_in_what_is_ours() {
        let wanted = first(&test_config());
        assert_eq!(reconciled(&wanted, &wanted), None);
        let mut old = wanted.clone();
        old.metadata.annotations = Some([("theirs".to_owned(), "a".to_owned())].into());
        let labels = old.metadata.labels.as_mut().expect("labels");
        labels.remove("disk");
        labels.insert("kubernetes.io/hostname".into(), "old".into());
        labels.insert("theirs".into(), "l".into());
        let gpu = || Some([("example.com/gpu".to_owned(), Quantity("4".to_owned()))].into());
        old.status = Some(NodeStatus { capacity: gpu(), allocatable: gpu(), ..NodeStatus::default() });
        let new = reconciled(&wanted, &old).expect("it was wrong");
        assert_eq!(
            patch(&old, &new),
            serde_json::json!({
                "metadata": {
                    "annotations": {(ATTACH_DETACH): "true"},
                    "labels": {"kubernetes.io/hostname": "n1"},
                },
                "status": {"capacity": {"example.com/gpu": "0"}, "allocatable": {"example.com/gpu": "0"}},
            }),
            "labels of --node-labels are only set when the Node is made"
        );
    }
}
