//! One pod from its manifest to Running and Ready, and away again.

use std::fs;
use std::net::{IpAddr, SocketAddr};

use bridge_cri::wire::PodSandboxState;
use serde_json::json;
use testkit::process::{Port, eventually};

use crate::Shared;
use crate::cgroups;
use crate::cri::{CONTAINER_NAME_LABEL, NAMESPACE_LABEL, POD_NAME_LABEL, UID_LABEL};
use crate::node::{Node, SOON, mounts_below};
use crate::pod::PodFile;
use crate::spec::{containers, exec_probe, server, sleeper, with};
use crate::view::PodView;

pub const ALL: &[(&str, Shared)] = &[
    ("a_pod_runs_from_manifest_to_ready_and_away", from_manifest_to_ready),
    ("containers_of_a_pod_share_its_network", shared_network),
    ("a_pod_on_the_hosts_network_has_the_hosts_address", host_network),
    ("the_ports_answer", ports),
];

fn from_manifest_to_ready(node: &Node) {
    let probe = json!({"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1});
    let file = node.pod("web", containers([with(server("web"), json!({"readinessProbe": probe}))]));
    let pod = file.ready();
    identity(node, &file, &pod);
    status(&pod);
    serves(&pod);
    in_the_runtime(node, &file, &pod);
    logs(node, &file, &pod);
    let image = &node.environment.image;
    let pulled =
        format!("Container image \"{image}\" already present on machine and can be accessed by the pod");
    for (reason, message) in
        [("Pulled", pulled.as_str()), ("Created", "Container created"), ("Started", "Container started")]
    {
        let event = file.event(&pod, "Normal", reason, message);
        assert_eq!((event.message.as_str(), event.field.as_str()), (message, "spec.containers{web}"));
    }

    file.remove();
    file.stopped(pod.uid(), SOON);
    file.event(&pod, "Normal", "Killing", "Stopping container web");
    file.gone(&pod);
    let below_pod = mounts_below(&node.root().join("pods").join(pod.uid()));
    assert_eq!(below_pod, [] as [std::path::PathBuf; 0]);
    eventually("the link to the log is removed", SOON * 2, || match links(node, &pod) {
        links if links.is_empty() => Ok(()),
        links => Err(format!("{links:?}")),
    });
}

fn identity(node: &Node, file: &PodFile<'_>, pod: &PodView) {
    let node_name = pod.text("/spec/nodeName");
    assert!(!node_name.is_empty());
    assert_eq!(pod.name(), format!("{}-{node_name}", file.base));
    assert_eq!(pod.namespace(), node.namespace);
    let annotations = &pod.0["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.hash"], pod.uid());
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert!(annotations["kubernetes.io/config.seen"].is_string(), "{annotations}");
    assert_eq!(pod.0["metadata"]["labels"]["app"], file.base.as_str());
}

fn status(pod: &PodView) {
    for kind in ["Initialized", "ContainersReady", "PodScheduled", "PodReadyToStartContainers"] {
        assert_eq!(pod.condition(kind)["status"], "True", "{kind}: {}", pod.status());
    }
    assert!(pod.text("/status/startTime").ends_with('Z'), "{}", pod.status());
    assert_eq!(pod.status()["qosClass"], "BestEffort");
    assert!(pod.ip().parse::<IpAddr>().is_ok(), "{}", pod.status());
    assert_eq!(pod.status()["podIPs"], json!([{"ip": pod.ip()}]));
    let container = pod.container("web");
    assert!(
        container["containerID"].as_str().is_some_and(|id| id.starts_with("containerd://")),
        "{container}"
    );
    assert!(container["imageID"].as_str().is_some_and(|id| !id.is_empty()), "{container}");
    assert_eq!(container["image"], "understudy.dev/demo:1");
    assert_eq!(
        (&container["restartCount"], &container["ready"], &container["started"]),
        (&json!(0), &json!(true), &json!(true))
    );
    assert!(container["state"]["running"]["startedAt"].is_string(), "{container}");
    assert!(container["lastState"].as_object().is_none_or(serde_json::Map::is_empty), "{container}");
}

fn serves(pod: &PodView) {
    let address: IpAddr = pod.ip().parse().expect("checked before");
    let page = Port(SocketAddr::new(address, 8080)).text("/index.html");
    assert_eq!(page.expect("the pod answers"), "Understudy's demo image\n");
}

fn in_the_runtime(node: &Node, file: &PodFile<'_>, pod: &PodView) {
    let sandbox = file.sandbox(pod.uid());
    let metadata = sandbox.metadata.clone().expect("metadata");
    assert_eq!(
        (metadata.name.as_str(), metadata.namespace.as_str(), metadata.uid.as_str(), metadata.attempt),
        (pod.name(), pod.namespace(), pod.uid(), 0)
    );
    for (label, value) in [
        (POD_NAME_LABEL, pod.name()),
        (NAMESPACE_LABEL, pod.namespace()),
        (UID_LABEL, pod.uid()),
        ("app", &file.base),
        ("understudy.dev/suite", "standalone"),
    ] {
        assert_eq!(sandbox.labels.get(label).map(String::as_str), Some(value), "{label}");
    }
    let running = file.running(pod.uid());
    assert_eq!(running.len(), 1, "{running:?}");
    assert_eq!(running[0].id, pod.container_id("web"));
    assert_eq!(running[0].labels.get(CONTAINER_NAME_LABEL).map(String::as_str), Some("web"));
    let annotation = |name: &str| running[0].annotations.get(name).map(String::as_str);
    assert_eq!(annotation("io.kubernetes.container.restartCount"), Some("0"));
    assert_eq!(annotation("io.kubernetes.pod.terminationGracePeriod"), Some("5"));
    assert!(annotation("io.kubernetes.container.hash").is_some(), "{running:?}");
    let cgroups = cgroups::named(&node.cgroup(), &format!("pod{}", pod.uid()));
    assert!(!cgroups.is_empty(), "no cgroup for {} below {}", pod.uid(), node.cgroup());
    let ips = node.cri.sandbox_status(&sandbox.id).network.map(|network| network.ip);
    assert_eq!(ips.as_deref(), Some(pod.ip()));
}

fn logs(node: &Node, file: &PodFile<'_>, pod: &PodView) {
    let log = eventually("the request is logged", SOON, || {
        let lines = file.log(pod, "web", 0)?;
        if lines.iter().any(|line| line.contains("/index.html")) {
            Ok(lines)
        } else {
            Err(format!("{lines:?}"))
        }
    });
    assert!(!log.is_empty());
    let links = links(node, pod);
    let [link] = links.as_slice() else { panic!("one link to the log: {links:?}") };
    assert_eq!(
        link.file_name().and_then(|name| name.to_str()).expect("a name"),
        format!("{}_{}_web-{}.log", pod.name(), pod.namespace(), pod.container_id("web"))
    );
    let target = fs::canonicalize(link).expect("the link leads to the log");
    let log = fs::canonicalize(file.log_dir(pod).join("web/0.log")).expect("the log");
    assert_eq!(target, log);
}

fn links(node: &Node, pod: &PodView) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(node.links()).into_iter().flatten().flatten();
    let of_pod = format!("{}_", pod.name());
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&of_pod))
        .map(|entry| entry.path())
        .collect()
}

fn shared_network(node: &Node) {
    let reaches = exec_probe("wget -q -O - http://127.0.0.1:8080/ | grep -q Understudy");
    let client =
        with(sleeper("client"), json!({"readinessProbe": with(reaches, json!({"failureThreshold": 30}))}));
    let pod = node.pod("pair", containers([server("server"), client])).ready();
    assert_eq!(pod.status()["containerStatuses"].as_array().map(Vec::len), Some(2));
}

fn host_network(node: &Node) {
    let spec = with(containers([sleeper("main")]), json!({"hostNetwork": true}));
    let file = node.pod("host", spec);
    let pod = file.ready();
    assert!(!pod.text("/status/hostIP").is_empty(), "{}", pod.status());
    assert_eq!(pod.ip(), pod.text("/status/hostIP"), "{}", pod.status());
    assert_eq!(file.sandbox(pod.uid()).state(), PodSandboxState::SandboxReady);
}

fn ports(node: &Node) {
    for port in [node.healthz, node.read_only] {
        assert_eq!(port.text("/healthz").as_deref(), Ok("ok"));
    }
    assert_eq!(node.healthz.get("/pods").expect("an answer").status, 404, "pods are not for the health port");
    let tree = node.read_only.json("/supervision").expect("the tree");
    let actors = tree["actors"].as_array().expect("actors");
    for name in ["PodSources", "PodManager", "PodWorkerPool", "Pleg", "StatusManager"] {
        let actor = actors.iter().find(|actor| actor["kind"] == name);
        let actor = actor.unwrap_or_else(|| panic!("no {name} in {tree}"));
        assert_eq!((&actor["state"], &actor["vitality"]), (&json!("running"), &json!("vital")), "{actor}");
    }
    assert!(node.metric("kubelet_runtime_operations_total").expect("a metric") > 0.0);
}
