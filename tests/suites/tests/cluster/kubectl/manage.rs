//! `kubectl run`, `get`, `describe`, `wait`, `delete`.

use serde_json::json;
use testkit::process::eventually;

use crate::Shared;
use crate::kubectl::Kubectl;
use crate::member::Member;
use crate::node::SOON;
use crate::spec::{OBEDIENT, STUBBORN, containers, shell, sleeper, with};

pub const ALL: &[(&str, Shared)] = &[
    ("a_pod_is_run_seen_and_deleted", life),
    ("the_node_is_described", node),
    ("a_job_is_waited_for", job),
    ("a_pod_is_deleted_by_force", force),
    ("a_manifest_is_applied_and_changed", applied),
    ("figures_come_through_the_api_server", figures),
];

/// `kubectl run` of the test image on this node.
fn run(member: &Member, kubectl: &Kubectl, name: &str, options: &[&str], command: &[&str]) {
    let image = format!("--image={}", member.setting.runtime.image);
    let overrides = json!({"spec": {"nodeName": member.name, "terminationGracePeriodSeconds": 5}});
    let overrides = format!("--overrides={overrides}");
    let head = ["run", name, &image, &overrides, "--image-pull-policy=IfNotPresent"];
    kubectl.ok(&[&head, options, &["--command", "--"], command].concat());
}

fn life(member: &Member) {
    let kubectl = member.kubectl();
    let pod = member.named_pod(member.pod_name("run"));
    let name = pod.name().to_owned();
    run(member, &kubectl, &name, &["--labels=app=run", "--env=WORD=said"], &["sh", "-c", OBEDIENT]);
    kubectl.ok(&["wait", "--for=condition=Ready", &format!("pod/{name}"), "--timeout=90s"]);
    let seen = pod.ready();

    let line = |arguments: &[&str]| {
        let out = kubectl.ok(arguments);
        let line = out.lines().find(|line| line.starts_with(&name)).unwrap_or_else(|| panic!("{out}"));
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let columns = line(&["get", "pods", "-l", "app=run"]);
    assert_eq!(columns[1..4], ["1/1", "Running", "0"]);
    let columns = line(&["get", "pod", &name, "-o", "wide"]);
    assert_eq!(columns[5..7], [seen.ip(), &member.name]);
    let image_id =
        kubectl.ok(&["get", "pod", &name, "-o", "jsonpath={.status.containerStatuses[0].imageID}"]);
    assert!(image_id.starts_with("sha256:"), "{image_id}");

    pod.event(&seen, "Started", "Container started");
    let described = kubectl.ok(&["describe", "pod", &name]);
    for words in [
        "Status:           Running",
        "WORD:  said",
        "QoS Class:                   BestEffort",
        seen.container_id(&name),
    ] {
        assert!(described.contains(words), "{words:?} in\n{described}");
    }
    for reason in ["Pulled", "Created", "Started"] {
        assert!(described.contains(&format!("Normal  {reason}")), "{reason} in\n{described}");
    }

    assert!(kubectl.ok(&["delete", "pod", &name]).contains(&format!("pod \"{name}\" deleted")));
    let after = kubectl.run(&["get", "pod", &name]);
    assert!(after.err.contains("NotFound"), "{after:?}");
    pod.gone(&seen);
}

fn node(member: &Member) {
    let kubectl = member.kubectl();
    let out = kubectl.ok(&["get", "node", &member.name, "-o", "wide", "--no-headers"]);
    let columns: Vec<&str> = out.split_whitespace().collect();
    let ip = member.setting.ip.to_string();
    assert_eq!((columns[1], columns[4], columns[5]), ("Ready", "v1.36.2", ip.as_str()), "{out}");
    assert!(out.contains("containerd://"), "{out}");

    let pod = member.pod(
        "counted",
        containers([with(sleeper("main"), json!({"resources": {"requests": {"cpu": "70m"}}}))]),
    );
    pod.ready();
    let described = kubectl.ok(&["describe", "node", &member.name]);
    for words in [
        "kubernetes.io/os=linux",
        "HolderIdentity:  ",
        "KubeletHasSufficientMemory",
        "KubeletReady",
        "kubelet is posting ready status",
        "Allocatable:",
        "Container Runtime Version:  containerd://",
        "Starting kubelet.",
    ] {
        assert!(described.contains(words), "{words:?} in\n{described}");
    }
    let line = described.lines().find(|line| line.contains(pod.name()));
    assert!(line.is_some_and(|line| line.contains("70m")), "{described}");
}

fn job(member: &Member) {
    let kubectl = member.kubectl();
    let pod = member.named_pod(member.pod_name("job"));
    run(member, &kubectl, pod.name(), &["--restart=Never"], &["sh", "-c", "echo done; exit 0"]);
    let name = format!("pod/{}", pod.name());
    kubectl.ok(&["wait", "--for=jsonpath={.status.phase}=Succeeded", &name, "--timeout=90s"]);
    let out = kubectl.ok(&["get", &name, "--no-headers"]);
    assert!(out.contains("Completed") && out.contains("0/1"), "{out}");
    assert_eq!(kubectl.ok(&["logs", &name]), "done\n");
    let seen = pod.look().expect("the pod stays");
    assert_eq!(seen.terminated(pod.name())["exitCode"], 0);
    kubectl.ok(&["delete", &name]);
    pod.gone(&seen);
}

fn force(member: &Member) {
    let kubectl = member.kubectl();
    let spec = with(containers([shell("main", STUBBORN)]), json!({"terminationGracePeriodSeconds": 600}));
    let pod = member.pod("forced", spec);
    let seen = pod.ready();
    kubectl.ok(&["delete", "pod", pod.name(), "--grace-period=0", "--force"]);
    let after = kubectl.run(&["get", "pod", pod.name()]);
    assert!(after.err.contains("NotFound"), "{after:?}");
    pod.gone(&seen);
}

fn applied(member: &Member) {
    let kubectl = member.kubectl();
    let pod = member.named_pod(member.pod_name("applied"));
    let mut manifest =
        pod.file.manifest(with(containers([sleeper("main")]), json!({"nodeName": member.name})));
    let file = member.node.notes(&format!("{}.json", pod.name()));
    let apply = |manifest: &serde_json::Value| {
        std::fs::write(&file, manifest.to_string()).expect("a file of the node's");
        kubectl.ok(&["apply", "-f", file.to_str().expect("a plain path")])
    };
    assert!(apply(&manifest).contains("created"));
    let seen = pod.ready();
    manifest["metadata"]["labels"]["stage"] = json!("second");
    assert!(apply(&manifest).contains("configured"));
    assert!(apply(&manifest).contains("unchanged"));
    let now = pod.wait("still the same", SOON, |pod| pod.text("/metadata/labels/stage") == "second");
    assert_eq!((now.uid(), now.container_id("main")), (seen.uid(), seen.container_id("main")));
    assert!(kubectl.ok(&["delete", "-f", file.to_str().expect("a plain path"), "--now"]).contains("deleted"));
    pod.gone(&seen);
}

/// What metrics-server and a person ask for, on the way that a person has.
fn figures(member: &Member) {
    let kubectl = member.kubectl();
    let pod = member.pod("figures", containers([sleeper("main")]));
    let seen = pod.ready();
    let raw =
        |page: &str| kubectl.ok(&["get", "--raw", &format!("/api/v1/nodes/{}/proxy/{page}", member.name)]);
    // Figures may be a second old.
    let found = eventually("the pod's figures", SOON, || {
        let summary: serde_json::Value = serde_json::from_str(&raw("stats/summary")).expect("JSON");
        assert_eq!(summary["node"]["nodeName"], member.name.as_str());
        let pods = summary["pods"].as_array().cloned().unwrap_or_default();
        let found = pods.into_iter().find(|one| one["podRef"]["uid"] == seen.uid());
        found.ok_or_else(|| format!("no {}: {summary}", pod.name()))
    });
    assert!(found["containers"][0]["memory"]["workingSetBytes"].as_u64() > Some(0), "{found}");
    assert_eq!(found["network"]["name"], "eth0", "{found}");
    let of_pod = format!("pod=\"{}\"", pod.name());
    for (page, series) in [
        ("metrics/resource", "container_memory_working_set_bytes{container=\"main\","),
        ("metrics/cadvisor", "container_network_receive_bytes_total{"),
    ] {
        eventually("the pod's series", SOON, || {
            let text = raw(page);
            let told = text.lines().any(|line| line.starts_with(series) && line.contains(&of_pod));
            if told { Ok(()) } else { Err(text) }
        });
    }
}
