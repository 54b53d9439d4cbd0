//! The Node and its lease.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node as NodeObject;
use rustix::process::Signal;
use serde_json::json;
use testkit::process::eventually;

use crate::member::{Member, condition};
use crate::node::{LATER, SOON};
use crate::setting::Setting;
use crate::spec::{containers, exec_probe, sleeper, with};

pub fn registers(setting: &Arc<Setting>) {
    let member = Member::alone(setting, "registers");
    let node = member.becomes_ready();
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure"] {
        assert_eq!(condition(&node, kind)["status"], "False", "{kind}");
    }
    let status = &node["status"];
    assert_eq!(status["nodeInfo"]["kubeletVersion"], "v1.36.2");
    let addresses = json!([
        {"type": "InternalIP", "address": setting.ip.to_string()},
        {"type": "Hostname", "address": member.name},
    ]);
    assert_eq!(status["addresses"], addresses);
    assert_eq!(status["daemonEndpoints"]["kubeletEndpoint"]["Port"], member.node.server.0.port());
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], json!(member.name));
    for resource in ["cpu", "memory", "pods", "ephemeral-storage"] {
        assert!(status["capacity"][resource].is_string(), "{resource}: {}", status["capacity"]);
        assert!(status["allocatable"][resource].is_string(), "{resource}: {}", status["allocatable"]);
    }
    let first = eventually("there is a lease", SOON, || member.renewed());
    eventually("the lease is renewed", SOON, || match member.renewed()? {
        now if now > first => Ok(()),
        now => Err(now),
    });
    // Labels of other writers stay, whatever the kubelet writes.
    member.api.merge::<NodeObject>(None, &member.name, json!({"metadata": {"labels": {"disk": "golden"}}}));
    let pid = member.node.kubelet_pid();
    member.node.signal_kubelet(Signal::TERM);
    assert!(member.node.kubelet_ends().success());
    member.node.start_kubelet();
    assert_ne!(member.node.kubelet_pid(), pid);
    let stopped = member.renewed().expect("a lease");
    eventually("the lease is renewed by the next kubelet", SOON, || match member.renewed()? {
        now if now > stopped => Ok(()),
        now => Err(now),
    });
    let node = member.becomes_ready();
    assert_eq!(node["metadata"]["labels"]["disk"], "golden");
}

/// The metrics have upstream's labels, at upstream's paths.
fn figures(member: &Member) {
    eventually("one pod is counted", SOON, || {
        let text = member.node.read_only.text("/metrics")?;
        let lines = [
            "kubelet_desired_pods{static=\"\"} 1",
            "kubelet_desired_pods{static=\"true\"} 0",
            "kubelet_working_pods{config=\"desired\",lifecycle=\"sync\",static=\"\"} 1",
            "kubelet_working_pods{config=\"runtime_only\",lifecycle=\"terminating\",static=\"unknown\"} 0",
        ];
        let missing = lines.into_iter().find(|line| !text.lines().any(|one| one == *line));
        match missing {
            None if text.contains("prober_probe_total") => Err("probes are in another place".to_owned()),
            None => Ok(()),
            Some(line) => Err(format!("no line {line}")),
        }
    });
    let probes = member.node.read_only.text("/metrics/probes").expect("they have a place");
    assert!(probes.contains("prober_probe_total{") && !probes.contains("kubelet_"), "{probes}");
}

pub fn deleted(setting: &Arc<Setting>) {
    let member = Member::alone(setting, "deleted");
    let probed = with(sleeper("main"), json!({"readinessProbe": exec_probe("true")}));
    let pod = member.pod("stays", containers([probed]));
    let before = pod.ready();
    figures(&member);
    let uid = member.object().expect("the Node")["metadata"]["uid"].clone();
    member.api.delete::<NodeObject>(None, &member.name, None);
    eventually("the Node is there again", LATER, || {
        let node = member.object()?;
        if node["metadata"]["uid"] == uid { Err("still the old one".to_owned()) } else { Ok(()) }
    });
    member.becomes_ready();
    let after = pod.look().expect("the pod is there");
    assert_eq!(after.container_id("main"), before.container_id("main"));
    member.pod("next", containers([sleeper("main")])).ready();
}
