//! Probes and the statuses that follow from them.

use std::time::Duration;

use bridge_cri::Rpc;
use bridge_cri::fake::ExecScript;
use bridge_http::probes::{FakeAnswer, FakeHealth};
use k8s_openapi::api::core::v1::PodStatus;
use supervision::Policy;
use testkit::node::{FakeNode, IMAGE, is_ready, settings};
use testkit::sandbox;

use crate::life::world;

fn condition(status: &PodStatus, kind: &str) -> (String, String, String) {
    let found = status.conditions.iter().flatten().find(|condition| condition.type_ == kind);
    let found = found.unwrap_or_else(|| panic!("no {kind} in {status:?}")).clone();
    (found.status, found.reason.unwrap_or_default(), found.message.unwrap_or_default())
}

fn health(health: FakeHealth) -> FakeAnswer {
    FakeAnswer::Health([("web".to_owned(), health)].into())
}

#[test]
fn a_grpc_probe_decides_over_ready() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(21);
        world.manifest(
            "grpc.yaml",
            &format!(
                "apiVersion: v1
kind: Pod
metadata: {{name: grpc}}
spec:
  containers:
  - name: main
    image: {IMAGE}
    imagePullPolicy: IfNotPresent
    command: [serve]
    readinessProbe: {{grpc: {{port: 5000, service: web}}, periodSeconds: 1, failureThreshold: 1}}
"
            ),
        );
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("an address", |pods| pods.get("grpc").is_some_and(|status| status.pod_ip.is_some())).await;
        let ip = node.by_name().await["grpc"].pod_ip.clone().expect("it was there");
        sandbox.pass(Duration::from_secs(10)).await;
        assert!(!is_ready(&node.by_name().await["grpc"]), "nobody answers");
        let said = async |words: &str| node.events().await.iter().any(|event| event.message.contains(words));
        let words = format!("timeout: failed to connect service \"{ip}:5000\" within 1s");
        assert!(said(&words).await, "{words}");

        world.prober.set(&ip, 5000, health(FakeHealth::Serving));
        node.until("grpc to be Ready", |pods| is_ready(&pods["grpc"])).await;
        world.prober.set(&ip, 5000, health(FakeHealth::NotServing));
        node.until("grpc not to be Ready", |pods| !is_ready(&pods["grpc"])).await;
        assert!(said("Readiness probe failed: service unhealthy (responded with \"NOT_SERVING\")").await);
        node.stop().await;
    });
}

#[test]
fn a_readiness_gate_stays_shut_without_an_api_server() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(22);
        world.manifest(
            "gate.yaml",
            &format!(
                "apiVersion: v1
kind: Pod
metadata: {{name: gate}}
spec:
  readinessGates: [{{conditionType: a/b}}]
  containers:
  - {{name: main, image: {IMAGE}, imagePullPolicy: IfNotPresent, command: [serve]}}
"
            ),
        );
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("its containers to be ready", |pods| {
            pods.get("gate").is_some_and(|status| condition(status, "ContainersReady").0 == "True")
        })
        .await;
        let message = "corresponding condition of pod readiness gate \"a/b\" does not exist.".to_owned();
        let shut = ("False".to_owned(), "ReadinessGatesNotReady".to_owned(), message);
        assert_eq!(condition(&node.by_name().await["gate"], "Ready"), shut);
        node.stop().await;
    });
}

/// A pod whose probes all hang for an hour.
fn hanging(name: &str) -> String {
    let probe =
        |handler: &str| format!("{{{handler}, periodSeconds: 1, timeoutSeconds: 3600, failureThreshold: 9}}");
    let (exec, http) = (probe("exec: {command: [hang]}"), probe("httpGet: {host: hangs, port: 80}"));
    let container = |container: &str, probe: &str| {
        format!(
            "{{name: {container}, image: {IMAGE}, imagePullPolicy: IfNotPresent, command: [serve], \
             livenessProbe: {probe}, readinessProbe: {probe}}}"
        )
    };
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec: {{terminationGracePeriodSeconds: 0, containers: [{}, {}]}}
",
        container("a", &exec),
        container("b", &http)
    )
}

/// A number of ProbeManager's report.
async fn probes(node: &FakeNode, what: &str) -> u64 {
    let actors = node.tree.snapshot().await.actors;
    let actor = actors.iter().find(|actor| actor.name == "ProbeManager").expect("it is seated");
    actor.observed[what].as_u64().expect("it answers")
}

#[test]
fn probes_that_hang_in_many_pods_hold_up_no_other_pod() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(23);
        let hour = ExecScript { takes: Duration::from_secs(7200), ..ExecScript::default() };
        world.runtime.script_exec("hang", hour);
        world.prober.set("hangs", 80, FakeAnswer::Hang);
        for n in 0..40 {
            world.manifest(&format!("hanging{n}.yaml"), &hanging(&format!("hanging{n}")));
        }
        let node = FakeNode::start(sandbox, &world, &settings());
        let all_run = |pods: &std::collections::BTreeMap<String, std::sync::Arc<PodStatus>>| {
            pods.len() == 40 && pods.values().all(|status| status.phase.as_deref() == Some("Running"))
        };
        node.until("the pods to run", all_run).await;
        sandbox.pass(Duration::from_secs(60)).await;
        assert_eq!((probes(&node, "inFlight").await, probes(&node, "waiting").await), (160, 0));

        world.manifest("good.yaml", &crate::pods::web("good"));
        let begun = tokio::time::Instant::now();
        node.until("the good pod to be Ready", |pods| pods.get("good").is_some_and(|one| is_ready(one)))
            .await;
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());

        // A removed pod's probes end at once, whatever their timeout.
        for n in 0..40 {
            world.remove_manifest(&format!("hanging{n}.yaml"));
        }
        node.until("the others to be gone", |pods| pods.len() == 1).await;
        let left = probes(&node, "inFlight").await;
        assert!(left <= 1, "{left} probes of nobody");
        node.stop().await;
    });
}

#[test]
fn a_restarted_containers_probes_do_not_wait_for_those_of_the_last_one() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(24);
        let hour = ExecScript { takes: Duration::from_secs(7200), ..ExecScript::default() };
        world.runtime.script_exec("alive", hour);
        let slow = "timeoutSeconds: 3600, periodSeconds: 1";
        world.manifest(
            "web.yaml",
            &format!(
                "apiVersion: v1
kind: Pod
metadata: {{name: web}}
spec:
  containers:
  - name: main
    image: {IMAGE}
    imagePullPolicy: IfNotPresent
    command: [serve]
    readinessProbe: {{exec: {{command: [alive]}}, {slow}}}
"
            ),
        );
        let node = FakeNode::start(sandbox, &world, &settings());
        let asked = || world.runtime.counts().get(&Rpc::ExecSync).copied().unwrap_or_default();
        node.until("the probe to hang", |_| asked() == 1).await;
        world.runtime.script_exec("alive", ExecScript::default());
        let id = world.runtime.containers()[0].id.clone();
        world.runtime.exit_container(&id, 1, false);
        node.until("the new container to be Ready", |pods| is_ready(&pods["web"])).await;
        node.stop().await;
    });
}

/// 35 variables, each twice as long as the one before.
#[test]
fn variables_that_double_are_a_container_that_cannot_be_configured() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(25);
        let env: Vec<String> = (0..35)
            .map(|n| match n {
                0 => "{name: V0, value: xx}".to_owned(),
                n => format!("{{name: V{n}, value: $(V{0})$(V{0})}}", n - 1),
            })
            .collect();
        world.manifest(
            "bomb.yaml",
            &format!(
                "apiVersion: v1
kind: Pod
metadata: {{name: bomb}}
spec:
  containers:
  - {{name: main, image: {IMAGE}, imagePullPolicy: IfNotPresent, command: [serve], env: [{}]}}
",
                env.join(", ")
            ),
        );
        world.manifest("web.yaml", &crate::pods::web("web"));
        let node = FakeNode::start(sandbox, &world, &settings());
        let waiting = |status: &PodStatus| {
            let containers = status.container_statuses.clone().unwrap_or_default();
            let waiting = containers.into_iter().find_map(|one| one.state.and_then(|state| state.waiting));
            waiting.map(|waiting| (waiting.reason.unwrap_or_default(), waiting.message.unwrap_or_default()))
        };
        let message = "container \"main\": environment variable \"V21\": environment, command and arguments would \
                       have more than 8388608 bytes";
        let expected = Some(("CreateContainerConfigError".to_owned(), message.to_owned()));
        node.until("the bomb to be refused", |pods| {
            pods.get("bomb").is_some_and(|status| waiting(status) == expected)
        })
        .await;
        node.until("the other to be Ready", |pods| pods.get("web").is_some_and(|one| is_ready(one))).await;
        node.stop().await;
    });
}
