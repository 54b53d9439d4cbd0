//! Feature gates with values other than their defaults, and other settings of a kubelet.

use std::sync::Arc;
use std::time::Duration;

use bridge_cri::fake::{Behaviour, Fault, Match};
use bridge_cri::{CriErrorKind, Rpc};
use kubelet::wiring::Settings;
use pod_worker::NodeRules;
use supervision::Policy;
use testkit::node::{FakeNode, IMAGE, is_ready, settings};
use testkit::sandbox;

use crate::life::world;

/// A pod that its policy does not restart, with a container whose rule restarts it after exit code 42.
fn ruled() -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: p}}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: {IMAGE}
    imagePullPolicy: IfNotPresent
    command: [serve]
    restartPolicy: Never
    restartPolicyRules:
    - {{action: Restart, exitCodes: {{operator: In, values: [42]}}}}
"
    )
}

/// Waits until the pod has this phase, and returns how often its container has been started.
fn outcome(settings: &Settings, phase: &'static str) -> u64 {
    let starts = std::cell::Cell::new(0);
    sandbox(Policy::default(), async |sandbox| {
        let world = world(71);
        world.runtime.behave(
            Match::Container("main".to_owned()),
            vec![Behaviour::exits(Duration::from_secs(2), 42), Behaviour::forever()],
        );
        world.manifest("p.yaml", &ruled());
        let node = FakeNode::start(sandbox, &world, settings);
        node.until("its outcome", |pods| {
            pods.get("p").is_some_and(|status| {
                let restarts =
                    status.container_statuses.iter().flatten().map(|one| one.restart_count).sum::<i32>();
                status.phase.as_deref() == Some(phase) && (phase == "Failed" || restarts == 1)
            })
        })
        .await;
        sandbox.pass(Duration::from_secs(30)).await;
        starts.set(world.runtime.counts()[&Rpc::StartContainer]);
        node.stop().await;
    });
    starts.get()
}

#[test]
fn rules_of_containers_hold_while_their_gate_is_on() {
    assert_eq!(outcome(&settings(), "Running"), 2);
    let mut off = settings();
    off.restart_rules.container = false;
    off.restart_rules.all_containers = false;
    assert_eq!(outcome(&off, "Failed"), 1);
}

#[test]
fn a_condition_is_told_while_its_gate_is_on() {
    for told in [true, false] {
        sandbox(Policy::default(), async |sandbox| {
            let world = world(72);
            world.manifest("p.yaml", &ruled());
            let node =
                FakeNode::start(sandbox, &world, &Settings { ready_to_start_condition: told, ..settings() });
            node.until("p to be Ready", |pods| pods.get("p").is_some_and(|status| is_ready(status))).await;
            let status = node.by_name().await["p"].clone();
            let is_there =
                status.conditions.iter().flatten().any(|one| one.type_ == "PodReadyToStartContainers");
            assert_eq!(is_there, told);
            node.stop().await;
        });
    }
}

#[test]
fn a_stop_signal_is_sent_and_told_while_its_gate_is_on() {
    for on in [true, false] {
        sandbox(Policy::default(), async |sandbox| {
            let world = world(74);
            let signalled = ruled()
                .replace("  containers:", "  os: {name: linux}\n  containers:")
                .replace("    command:", "    lifecycle: {stopSignal: SIGRTMIN+3}\n    command:");
            world.manifest("p.yaml", &signalled);
            let mut settings = settings();
            settings.worker.rules =
                Arc::new(NodeRules { stop_signals: on, ..NodeRules::clone(&settings.worker.rules) });
            let node = FakeNode::start(sandbox, &world, &settings);
            node.until("p to be Ready", |pods| pods.get("p").is_some_and(|status| is_ready(status))).await;
            let status = node.by_name().await["p"].clone();
            let told = status.container_statuses.iter().flatten().find_map(|one| one.stop_signal.clone());
            assert_eq!(told.as_deref(), on.then_some("SIGRTMIN+3"));
            node.stop().await;
        });
    }
}

#[test]
fn the_runtime_hears_of_the_addresses_of_pods_as_soon_as_it_answers() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(73);
        let away = Fault::Error(CriErrorKind::Unavailable, "no such socket".to_owned());
        world.runtime.fault(Rpc::UpdateRuntimeConfig, 3, away);
        let tell = kubelet::pod_cidr::tell(Arc::new(world.runtime.clone()), "10.88.0.0/16".to_owned());
        let begun = tokio::time::Instant::now();
        tell.await;
        assert_eq!(begun.elapsed().as_secs(), 6, "it tries again every two seconds");
        assert_eq!(world.runtime.counts()[&Rpc::UpdateRuntimeConfig], 4);
        let none = Fault::Error(CriErrorKind::Unimplemented, "unknown method".to_owned());
        world.runtime.fault(Rpc::UpdateRuntimeConfig, 1, none);
        kubelet::pod_cidr::tell(Arc::new(world.runtime.clone()), "10.99.0.0/16".to_owned()).await;
        assert_eq!(world.runtime.counts()[&Rpc::UpdateRuntimeConfig], 5, "it is asked no more");
        sandbox.pass(Duration::from_secs(1)).await;
    });
}
