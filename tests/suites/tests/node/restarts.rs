//! Restart rules, the active deadline, and restarts that must not happen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::fake::{Behaviour, Fault, Match};
use bridge_cri::{CriErrorKind, Rpc};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use supervision::Policy;
use testkit::node::{FakeNode, IMAGE, is_ready, settings};
use testkit::sandbox;

use crate::cluster::{clustered, pod, until};
use crate::life::world;
use crate::pods::job;

fn condition<'a>(status: &'a PodStatus, kind: &str) -> &'a str {
    let mut all = status.conditions.iter().flatten();
    all.find(|condition| condition.type_ == kind).map_or("", |condition| &condition.status)
}

#[test]
fn one_exit_restarts_all_containers_in_place() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(31);
        let watcher = || Match::Container("watcher".to_owned());
        world.runtime.behave(watcher(), vec![Behaviour::exits(Duration::from_secs(20), 88)]);
        world.manifest(
            "p.yaml",
            &format!(
                "apiVersion: v1
kind: Pod
metadata: {{name: p}}
spec:
  restartPolicy: Never
  initContainers:
  - {{name: prepare, image: {IMAGE}, imagePullPolicy: IfNotPresent, command: [prepare]}}
  containers:
  - {{name: main, image: {IMAGE}, imagePullPolicy: IfNotPresent, command: [serve]}}
  - name: watcher
    image: {IMAGE}
    imagePullPolicy: IfNotPresent
    command: [serve]
    restartPolicy: Never
    restartPolicyRules:
    - {{action: RestartAllContainers, exitCodes: {{operator: In, values: [88]}}}}
"
            ),
        );
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("p to be Ready", |pods| pods.get("p").is_some_and(|status| is_ready(status))).await;
        world.runtime.behave(watcher(), vec![Behaviour::forever()]);
        let sandboxes = world.runtime.sandboxes();
        node.until("all of p to be restarted", |pods| {
            pods.get("p").is_some_and(|status| {
                let all: Vec<_> = status.container_statuses.iter().flatten().collect();
                is_ready(status)
                    && all.len() == 2
                    && all.iter().all(|container| container.restart_count == 1)
                    && condition(status, "AllContainersRestarting") == "False"
            })
        })
        .await;
        let status = node.by_name().await["p"].clone();
        for container in status.container_statuses.iter().flatten() {
            let last = container.last_state.clone().and_then(|state| state.terminated).expect("it ended");
            assert_eq!(last.reason.as_deref(), Some("RestartingAllContainers"), "{}", container.name);
        }
        assert_eq!(world.runtime.sandboxes(), sandboxes, "in place");
        assert_eq!(world.runtime.counts()[&Rpc::CreateContainer], 6, "init container and both others twice");
        node.stop().await;
    });
}

#[test]
fn restarts_of_all_containers_back_off_and_leave_one_log_each() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(34);
        let watcher = Match::Container("watcher".to_owned());
        world.runtime.behave(watcher, vec![Behaviour::exits(Duration::from_secs(1), 88)]);
        world.manifest(
            "p.yaml",
            &format!(
                "apiVersion: v1
kind: Pod
metadata: {{name: p}}
spec:
  containers:
  - {{name: main, image: {IMAGE}, imagePullPolicy: IfNotPresent, command: [serve]}}
  - name: watcher
    image: {IMAGE}
    imagePullPolicy: IfNotPresent
    command: [serve]
    restartPolicy: Never
    restartPolicyRules:
    - {{action: RestartAllContainers, exitCodes: {{operator: In, values: [88]}}}}
"
            ),
        );
        let node = FakeNode::start(sandbox, &world, &settings());
        sandbox.pass(Duration::from_secs(300)).await;
        // At once, and after 10, 20, 40, 80 and 160 seconds.
        let created = world.runtime.counts()[&Rpc::CreateContainer];
        assert!((10..=14).contains(&created), "{created} containers of two");
        let logs = world.disk.paths_below("/var/log/pods");
        for name in ["main", "watcher"] {
            let of = logs.iter().filter(|path| path.to_string_lossy().contains(&format!("/{name}/"))).count();
            assert!((1..=2).contains(&of), "{of} logs of {name}: {logs:?}");
        }
        node.stop().await;
    });
}

#[test]
fn a_pod_that_is_active_for_too_long_fails_even_across_a_restart_of_the_kubelet() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(32);
        let manifest = job("late").replace("[job]", "[serve]");
        world.manifest("late.yaml", &manifest.replace("spec:", "spec:\n  activeDeadlineSeconds: 60"));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("it to be Ready", |pods| pods.get("late").is_some_and(|status| is_ready(status))).await;
        let begun = node.by_name().await["late"].start_time.clone().expect("it has begun").0;
        sandbox.pass(Duration::from_secs(40)).await;
        let node = node.restart(&settings(), Policy::default()).await;
        node.until("it to fail", |pods| {
            pods.get("late").is_some_and(|status| status.phase.as_deref() == Some("Failed"))
        })
        .await;
        use bridge_io::clock::Clock as _;
        let took = world.clock.now().duration_since(begun).as_secs();
        assert!((60..=65).contains(&took), "{took} s");
        let status = node.by_name().await["late"].clone();
        assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
        let message = "Pod was active on the node longer than the specified deadline";
        assert_eq!(status.message.as_deref(), Some(message));
        let events = node.events().await;
        assert!(events.iter().any(|e| &*e.reason == "DeadlineExceeded" && &*e.message == message));
        assert_eq!(world.runtime.containers().len(), 1, "it is kept for its logs");
        node.stop().await;
    });
}

#[test]
fn nothing_is_restarted_in_a_sandbox_that_dies() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(33);
        world.manifest("p.yaml", &job("p").replace("[job]", "[serve]").replace("OnFailure", "Always"));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("p to be Ready", |pods| pods.get("p").is_some_and(|status| is_ready(status))).await;
        let dying = world.runtime.sandboxes()[0].id.clone();
        let id = world.runtime.containers()[0].id.clone();
        // In containerd's order: containers end first, and their events come before the sandbox's.
        assert!(world.runtime.exit_container(&id, 137, false));
        sandbox.pass(Duration::from_millis(700)).await;
        assert!(world.runtime.kill_sandbox(&dying));
        node.until("p to be Ready in another sandbox", |pods| {
            pods.get("p").is_some_and(|status| is_ready(status)) && world.runtime.sandboxes().len() > 1
        })
        .await;
        let calls = world.runtime.calls();
        let created = calls.iter().filter(|call| call.rpc == Rpc::CreateContainer);
        let in_the_dying = created.filter(|call| call.subject.starts_with(&dying)).count();
        assert_eq!(in_the_dying, 1, "only the first");
        node.stop().await;
    });
}

#[test]
fn a_pod_that_comes_back_while_it_ends_starts_anew_when_it_has_ended() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(34);
        world.runtime.behave(Match::Any, vec![Behaviour::stubborn()]);
        let manifest = job("p").replace("[job]", "[serve]").replace("OnFailure", "Always");
        world.manifest("p.yaml", &manifest);
        let node = FakeNode::start(sandbox, &world, &settings());
        let ready = "p to be Ready";
        node.until(ready, |pods| pods.get("p").is_some_and(|status| is_ready(status))).await;
        let first = world.runtime.sandboxes()[0].id.clone();
        world.remove_manifest("p.yaml");
        sandbox.pass(Duration::from_secs(10)).await;
        world.manifest("p.yaml", &manifest);
        sandbox.pass(Duration::from_secs(5)).await;
        assert_eq!(world.runtime.counts()[&Rpc::RunPodSandbox], 1, "the old one still ends");
        node.until(ready, |pods| {
            let fresh = world.runtime.sandboxes().iter().all(|sandbox| sandbox.id != first);
            fresh && pods.get("p").is_some_and(|status| is_ready(status))
        })
        .await;
        assert_eq!(world.runtime.counts()[&Rpc::RunPodSandbox], 2);
        node.stop().await;
    });
}

/// A pod of the API server that serves, with this restart policy for its name.
fn serving(policy: &str) -> Pod {
    let mut pod = pod(&policy.to_lowercase(), "serve");
    pod.spec.get_or_insert_default().restart_policy = Some(policy.to_owned());
    pod
}

#[test]
fn what_ran_before_the_runtime_was_wiped_is_run_again_by_its_policy_only() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(35);
        let told = |name: &str| api.get::<Pod>(Some("default"), name).and_then(|pod| pod.status);
        let restarted = |name: &str| {
            told(name).is_some_and(|status| {
                is_ready(&status) && status.container_statuses.iter().flatten().all(|c| c.restart_count == 1)
            })
        };
        for policy in ["Never", "OnFailure", "Always"] {
            api.put(&serving(policy));
        }
        let node = FakeNode::start(sandbox, &world, &settings());
        let all = ["never", "onfailure", "always"];
        until("all to be Ready", || all.iter().all(|name| told(name).is_some_and(|s| is_ready(&s)))).await;
        node.stop().await;
        world.runtime.wipe();
        // While the kubelet was away a pod came that has never run.
        let mut new = serving("Never");
        new.metadata.name = Some("new".to_owned());
        api.put(&new);

        let node = FakeNode::start(sandbox, &world, &settings());
        until("the one to fail", || told("never").is_some_and(|s| s.phase.as_deref() == Some("Failed")))
            .await;
        until("the others to run again", || restarted("onfailure") && restarted("always")).await;
        until("the new one to run", || told("new").is_some_and(|status| is_ready(&status))).await;
        sandbox.pass(Duration::from_secs(120)).await;
        let status = told("never").expect("its status");
        let main = &status.container_statuses.as_ref().expect("a container")[0];
        let end = main.state.as_ref().and_then(|state| state.terminated.as_ref()).expect("it has ended");
        assert_eq!((end.exit_code, end.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
        assert_eq!(
            world.runtime.counts()[&Rpc::CreateContainer],
            6,
            "three, then two of them again and the new one"
        );
        node.stop().await;
    });
}

#[test]
fn a_container_that_is_removed_behind_the_kubelets_back_is_run_again_by_its_policy_only() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(36);
        let serve =
            |name: &str, policy: &str| job(name).replace("[job]", "[serve]").replace("OnFailure", policy);
        world.manifest("once.yaml", &serve("once", "Never"));
        world.manifest("ever.yaml", &serve("ever", "Always"));
        let node = FakeNode::start(sandbox, &world, &settings());
        let both = ["once", "ever"];
        node.until("both to be Ready", |pods| {
            both.iter().all(|name| pods.get(*name).is_some_and(|status| is_ready(status)))
        })
        .await;
        for container in world.runtime.containers() {
            world.runtime.lose_container(&container.id);
        }
        node.until("one to fail and the other to run again", |pods| {
            let failed = pods.get("once").is_some_and(|status| status.phase.as_deref() == Some("Failed"));
            let again = pods.get("ever").is_some_and(|status| {
                is_ready(status) && status.container_statuses.iter().flatten().all(|c| c.restart_count == 1)
            });
            failed && again
        })
        .await;
        sandbox.pass(Duration::from_secs(120)).await;
        assert_eq!(world.runtime.counts()[&Rpc::CreateContainer], 3);
        node.stop().await;
    });
}

#[test]
fn a_manifest_that_is_removed_and_made_anew_at_once_ends_its_pod_and_starts_it_again() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(37);
        let manifest = job("p").replace("[job]", "[serve]").replace("OnFailure", "Always");
        world.manifest("p.yaml", &manifest);
        world.manifest("other.yaml", &manifest.replace("name: p", "name: other"));
        let node = FakeNode::start(sandbox, &world, &settings());
        let told = |name: &str| api.get::<Pod>(Some("default"), name).and_then(|pod| pod.status);
        let runs = |name: &str, restarts: i32| {
            told(name).is_some_and(|status| {
                let mut all = status.container_statuses.iter().flatten();
                is_ready(&status) && all.all(|container| container.restart_count == restarts)
            })
        };
        until("both to be Ready", || runs("p-node", 0) && runs("other-node", 0)).await;
        sandbox.pass(Duration::from_secs(5)).await;
        for restarts in 1..3 {
            world.remove_manifest("p.yaml");
            world.manifest("p.yaml", &manifest);
            until("it to run again", || runs("p-node", restarts)).await;
            sandbox.pass(Duration::from_secs(60)).await;
            assert!(runs("p-node", restarts) && runs("other-node", 0), "once, and no other");
        }
        assert_eq!(world.runtime.counts()[&Rpc::RunPodSandbox], 4);
        let node = node.restart(&settings(), Policy::default()).await;
        sandbox.pass(Duration::from_secs(60)).await;
        assert!(runs("p-node", 2));
        assert_eq!(world.runtime.counts()[&Rpc::RunPodSandbox], 4, "a restarted kubelet goes on with it");
        world.remove_manifest("p.yaml");
        until("no mirror", || told("p-node").is_none()).await;
        node.stop().await;
    });
}

#[test]
fn a_job_whose_manifest_is_made_anew_runs_again_after_a_death_while_it_was_released() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(39);
        let manifest = job("once").replace("OnFailure", "Never");
        world.manifest("once.yaml", &manifest);
        let node = FakeNode::start(sandbox, &world, &settings());
        let succeeded = |pods: &BTreeMap<String, Arc<PodStatus>>| {
            pods.get("once").is_some_and(|status| status.phase.as_deref() == Some("Succeeded"))
        };
        node.until("it to succeed", succeeded).await;
        sandbox.pass(Duration::from_secs(5)).await;
        let refuses = Fault::Error(CriErrorKind::Other, "busy".to_owned());
        world.runtime.fault(Rpc::RemovePodSandbox, 10_000, refuses);
        world.remove_manifest("once.yaml");
        world.manifest("once.yaml", &manifest);
        until("its container to be removed", || world.runtime.containers().is_empty()).await;
        sandbox.pass(Duration::from_secs(10)).await;
        let node = node.restart(&settings(), Policy::default()).await;
        world.runtime.clear_faults();
        node.until("it to succeed again", |pods| {
            world.runtime.counts()[&Rpc::CreateContainer] == 2 && succeeded(pods)
        })
        .await;
        node.stop().await;
    });
}

#[test]
fn a_job_whose_manifest_is_made_anew_runs_again_whatever_its_policy() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(38);
        let manifest = job("once").replace("OnFailure", "Never");
        world.manifest("once.yaml", &manifest);
        let node = FakeNode::start(sandbox, &world, &settings());
        let succeeded = |restarts: i32| {
            move |pods: &BTreeMap<String, Arc<PodStatus>>| {
                pods.get("once").is_some_and(|status| {
                    let mut all = status.container_statuses.iter().flatten();
                    status.phase.as_deref() == Some("Succeeded") && all.all(|c| c.restart_count == restarts)
                })
            }
        };
        node.until("it to succeed", succeeded(0)).await;
        sandbox.pass(Duration::from_secs(5)).await;
        world.remove_manifest("once.yaml");
        world.manifest("once.yaml", &manifest);
        node.until("it to succeed again", succeeded(1)).await;
        assert_eq!(world.runtime.counts()[&Rpc::CreateContainer], 2);
        node.stop().await;
    });
}
