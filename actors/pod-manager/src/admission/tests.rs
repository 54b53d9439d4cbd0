use serde_json::{Value, json};

use super::*;
use crate::admission::fixtures::node_resources;

fn node() -> NodeView {
    let further = [("zone".to_owned(), "a".to_owned())].into();
    let taint = Taint { key: "down".to_owned(), effect: "NoExecute".to_owned(), ..Taint::default() };
    NodeView {
        name: "n1".to_owned(),
        labels: node_labels("n1", "amd64", &further),
        taints: vec![taint],
        resources: Arc::new(node_resources(&[("cpu", "2")])),
        pods_max: 10,
        sysctls: SysctlAllowlist::new("6.1.0", &[]).unwrap(),
        app_armor: false,
    }
}

/// A pod with these labels and this spec.
fn pod(labels: Value, spec: Value) -> Pod {
    let mut spec = spec;
    spec["containers"].as_array().is_none().then(|| spec["containers"] = json!([{"name": "a"}]));
    serde_json::from_value(json!({"metadata": {"labels": labels}, "spec": spec})).unwrap()
}

fn reason(pod: &Pod, source: Source, others: &[&Pod], strict: Option<bool>) -> String {
    match judge(pod, source, &Room::of(others), || others.to_vec(), &node(), strict) {
        AdmissionVerdict::Reject(why) => format!("{}: {}", why.reason, why.message),
        other => format!("{other:?}"),
    }
}

/// The refusals of the checks, in the order of the checks.
#[test]
fn the_first_check_that_fails_gives_the_reason() {
    let port = json!({"containerPort": 80, "hostPort": 80});
    let other = pod(json!({}), json!({"containers": [{"name": "a", "ports": [port]}]}));
    let mut labels = json!({"kubernetes.io/os": "windows"});
    let mut spec = json!({
        "os": {"name": "windows"},
        "nodeName": "n2",
        "nodeSelector": {"zone": "b"},
        "securityContext": {
            "sysctls": [{"name": "vm.swappiness", "value": "1"}],
            "supplementalGroupsPolicy": "Strict",
            "appArmorProfile": {"type": "RuntimeDefault"},
        },
        "containers": [{"name": "a", "ports": [port], "resources": {"requests": {"cpu": "3"}}}],
    });
    let expect = |labels: &Value, spec: &Value, expected: &str| {
        assert_eq!(reason(&pod(labels.clone(), spec.clone()), Source::Api, &[&other], Some(false)), expected);
    };
    expect(&labels, &spec, "SysctlForbidden: forbidden sysctl: \"vm.swappiness\" not allowlisted");
    spec["securityContext"]["sysctls"] = json!([]);
    let os_label = "PodOSSelectorNodeLabelDoesNotMatch: Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
    expect(&labels, &spec, os_label);
    labels["kubernetes.io/os"] = json!("linux");
    expect(&labels, &spec, "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS");
    spec["os"]["name"] = json!("linux");
    let groups =
        "SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node";
    expect(&labels, &spec, groups);
    spec["securityContext"]["supplementalGroupsPolicy"] = json!("Merge");
    let cpu = "OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000";
    expect(&labels, &spec, cpu);
    let affinity =
        "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    spec["priority"] = json!(2_000_000_000);
    expect(&labels, &spec, affinity);
    spec["containers"][0]["resources"] = json!({});
    expect(&labels, &spec, affinity);
    // When nothing else speaks against the pod, a Node that is fetched anew decides.
    let only =
        pod(json!({}), json!({"nodeSelector": {"zone": "b"}, "tolerations": [{"operator": "Exists"}]}));
    let AdmissionVerdict::AskNode(why) = judge(&only, Source::Api, &Room::default(), Vec::new, &node(), None)
    else {
        panic!("it is refused at once");
    };
    assert_eq!(format!("{}: {}", why.reason, why.message), affinity);
    spec["nodeSelector"]["zone"] = json!("a");
    expect(
        &labels,
        &spec,
        "NodeName: Predicate NodeName failed: node(s) didn't match the requested node name",
    );
    spec["nodeName"] = json!("n1");
    let ports =
        "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    expect(&labels, &spec, ports);
    spec["containers"][0]["ports"] = json!([]);
    let taints =
        "TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
    expect(&labels, &spec, taints);
    spec["tolerations"] = json!([{"key": "down", "operator": "Exists"}]);
    expect(&labels, &spec, "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host");
    spec["securityContext"]["appArmorProfile"] = Value::Null;
    expect(&labels, &spec, "Admit");
}

#[test]
fn static_pods_bear_every_taint() {
    let plain = pod(json!({}), json!({}));
    assert_eq!(reason(&plain, Source::File, &[], None), "Admit");
    assert!(reason(&plain, Source::Api, &[], None).starts_with("TaintToleration"));
}

#[test]
fn what_the_runtime_can_do_is_waited_for() {
    let strict = pod(json!({}), json!({"securityContext": {"supplementalGroupsPolicy": "Strict"}}));
    assert_eq!(reason(&strict, Source::File, &[], None), "AskAgain");
    assert_eq!(reason(&strict, Source::File, &[], Some(true)), "Admit");
}

#[test]
fn a_critical_pod_ends_others_unless_it_is_refused_anyway() {
    let request = |cpu: &str| json!([{"name": "a", "resources": {"requests": {"cpu": cpu}}}]);
    let other = pod(json!({}), json!({"containers": request("1500m")}));
    let critical = |cpu: &str, profile: &str| {
        pod(
            json!({}),
            json!({
                "priorityClassName": "system-node-critical", "containers": request(cpu),
                "securityContext": {"appArmorProfile": {"type": profile}},
            }),
        )
    };
    let room = AdmissionVerdict::Preempt { victims: vec![0], resource: "cpu".to_owned() };
    let judged = |pod: &Pod| judge(pod, Source::File, &Room::of(&[&other]), || vec![&other], &node(), None);
    assert_eq!(judged(&critical("1", "Unconfined")), room);
    assert!(
        matches!(judged(&critical("1", "RuntimeDefault")), AdmissionVerdict::Reject(why) if why.reason == "AppArmor")
    );
    let error = "UnexpectedAdmissionError: Unexpected error while attempting to recover from admission failure: \
                 preemption: error finding a set of pods to preempt: \
                 no set of running pods found to reclaim resources: [(res: cpu, q: 1000), ]";
    assert_eq!(reason(&critical("3", "Unconfined"), Source::File, &[&other], None), error);
}

#[test]
fn refusals_are_counted_by_few_reasons() {
    for (reason, label) in [
        ("OutOfcpu", "OutOfcpu"),
        ("OutOfexample.com/card", "OutOfExtendedResources"),
        ("OutOfhugepages-2Mi", "OutOfExtendedResources"),
        ("NodePorts", "Other"),
        ("TaintToleration", "Other"),
        ("SysctlForbidden", "SysctlForbidden"),
    ] {
        assert_eq!(counted_as(reason), label);
    }
}

#[test]
fn a_node_has_its_labels() {
    let labels = node_labels("n1", "arm64", &[("kubernetes.io/arch".to_owned(), "other".to_owned())].into());
    assert_eq!(labels["kubernetes.io/hostname"], "n1");
    assert_eq!(labels["kubernetes.io/os"], "linux");
    assert_eq!(labels["kubernetes.io/arch"], "other");
    assert_eq!(labels["beta.kubernetes.io/arch"], "arm64");
}

#[test]
fn the_node_is_the_one_that_the_api_server_has() {
    let config = NodeView { labels: [("a".to_owned(), "config".to_owned())].into(), ..NodeView::default() };
    let node: Node = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "n", "labels": {"b": "server"}},
        "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]},
    }))
    .expect("a Node");
    let view = config.as_observed(Some(&node));
    assert_eq!(view.labels, [("b".to_owned(), "server".to_owned())].into());
    assert_eq!(view.taints.len(), 1);
    assert_eq!(config.as_observed(None).labels, config.labels);
}

#[test]
fn who_is_not_critical_ends_nobody_whatever_its_priority() {
    let request = json!([{"name": "a", "resources": {"requests": {"cpu": "1500m"}}}]);
    let of = |priority: i32| {
        let tolerations = json!([{"operator": "Exists"}]);
        pod(json!({}), json!({"priority": priority, "containers": request, "tolerations": tolerations}))
    };
    let cpu = "OutOfcpu: Node didn't have enough resource: cpu, requested: 1500, used: 1500, capacity: 2000";
    assert_eq!(reason(&of(100), Source::Api, &[&of(1)], None), cpu);
}
