//! Cgroups of pods, of their classes and of the node, and their names.

use std::sync::Arc;
use std::time::Duration;

use bridge_cri::fake::{FakeRuntime, Fault};
use bridge_cri::{CriErrorKind, Rpc, wire};
use bridge_node::cgroups::{
    CgroupDriver, CgroupError, CgroupReads, CgroupValues, Cgroups, CpuLimit, HugePages, Limit,
};
use kubelet::cgroups::{DriverAnswer, ask_driver, disagreement};
use messages::event_recorder::{EventType, RecordedEvent};
use pod_spec::quantity::Quantity;
use pod_spec::resources::QosClass;
use resource_manager::{ReservedCgroup, ReservedFor, ResourceManagerConfig};
use supervision::{Policy, RestartPolicy};
use testkit::node::{FakeNode, IMAGE, World, is_ready, settings};
use testkit::sandbox;

use crate::life::world;

/// A pod whose container has these resources, in YAML.
fn pod(name: &str, resources: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {{name: main, image: {IMAGE}, imagePullPolicy: IfNotPresent, command: [serve], resources: {resources}}}
"
    )
}

fn burstable(name: &str, cpu: &str) -> String {
    pod(name, &format!("{{requests: {{cpu: {cpu}}}}}"))
}

const GUARANTEED: &str = "{limits: {cpu: 500m, memory: 64Mi}}";

async fn until_ready(node: &FakeNode, names: &[&str]) {
    let what = format!("{names:?} to be Ready");
    let ready = |pods: &std::collections::BTreeMap<String, Arc<_>>| {
        names.iter().all(|name| pods.get(*name).is_some_and(|status| is_ready(status)))
    };
    node.until(&what, ready).await;
}

fn shares(world: &World, cgroup: &str) -> Option<u64> {
    world.cgroups.values(cgroup).and_then(|values| values.cpu_shares)
}

async fn until_shares(world: &World, cgroup: &str, expected: u64) {
    for _ in 0..3000 {
        if shares(world, cgroup) == Some(expected) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{cgroup} has {:?} shares, not {expected}", shares(world, cgroup));
}

async fn until_event(node: &FakeNode, reason: &str, part: &str) -> RecordedEvent {
    for _ in 0..3000 {
        let events = node.events().await;
        let found = |event: &&RecordedEvent| &*event.reason == reason && event.message.contains(part);
        if let Some(event) = events.iter().find(found) {
            return event.clone();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("no event {reason} with {part:?}: {:?}", node.events().await);
}

/// The names of the pods' cgroups that exist.
async fn pods_cgroups(world: &World) -> Vec<(QosClass, String)> {
    let found = world.cgroups.list_pod_cgroups().await.expect("the fake lists");
    found.into_iter().map(|pod| (pod.qos, pod.name)).collect()
}

fn patient() -> Policy {
    let restart = RestartPolicy { restarts_max: 1000, ..RestartPolicy::default() };
    Policy { restart, ..Policy::default() }
}

#[test]
fn pods_classes_and_the_node_hold_their_values() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(21);
        world.manifest("g.yaml", &pod("g", GUARANTEED));
        world.manifest("b.yaml", &burstable("b", "250m"));
        world.manifest("c.yaml", &burstable("c", "500m"));
        world.manifest("e.yaml", &pod("e", "{}"));
        let node = FakeNode::start(sandbox, &world, &settings());
        until_ready(&node, &["g", "b", "c", "e"]).await;
        until_shares(&world, "/kubepods/burstable", 768).await;
        until_shares(&world, "/kubepods/besteffort", 2).await;
        let kubepods = world.cgroups.values("/kubepods").expect("it is made at the start");
        assert_eq!((kubepods.cpu_shares, kubepods.memory), (Some(3584), Some(Limit::At(7680 << 20))));
        assert_eq!(kubepods.pids, Some(Limit::At(32_768)));
        let found = pods_cgroups(&world).await;
        assert_eq!(found.len(), 4);
        let (_, guaranteed) =
            found.iter().find(|(qos, _)| *qos == QosClass::Guaranteed).expect("one of each class");
        let expected = CgroupValues {
            cpu_shares: Some(512),
            cpu: Some(CpuLimit { quota_us: Limit::At(50_000), period_us: 100_000 }),
            memory: Some(Limit::At(64 << 20)),
            pids: Some(Limit::Unlimited),
            huge_pages: Some(HugePages::Only([].into())),
        };
        assert_eq!(world.cgroups.values(guaranteed), Some(expected));
        let event = until_event(&node, "NodeAllocatableEnforced", "").await;
        assert_eq!(&*event.message, "Updated Node Allocatable limit across pods");

        // Nothing is written while nothing happens.
        let writes = world.cgroups.writes();
        sandbox.pass(Duration::from_secs(180)).await;
        assert_eq!(world.cgroups.writes(), writes);

        // Another program's change is corrected within a minute.
        let changed = CgroupValues { cpu_shares: Some(9), ..CgroupValues::default() };
        world.cgroups.ensure("/kubepods/burstable", changed).await.expect("the fake takes it");
        sandbox.pass(Duration::from_secs(61)).await;
        until_shares(&world, "/kubepods/burstable", 768).await;

        world.remove_manifest("c.yaml");
        until_shares(&world, "/kubepods/burstable", 256).await;
        for file in ["g.yaml", "b.yaml", "e.yaml"] {
            world.remove_manifest(file);
        }
        node.until_empty().await;
        until_shares(&world, "/kubepods/burstable", 2).await;
        assert_eq!(pods_cgroups(&world).await, []);
    });
}

#[test]
fn a_crash_while_pods_start_leaves_no_pod_without_its_cgroup() {
    sandbox(patient(), async |sandbox| {
        sandbox.expect_crashes();
        let world = world(22);
        for (name, cpu) in [("a", "100m"), ("b", "200m"), ("c", "300m"), ("d", "400m")] {
            world.manifest(&format!("{name}.yaml"), &burstable(name, cpu));
        }
        let node = FakeNode::start(sandbox, &world, &settings());
        for _ in 0..8 {
            sandbox.pass(Duration::from_millis(37)).await;
            node.tree.kill("ResourceManager").expect("it is in the tree");
        }
        until_ready(&node, &["a", "b", "c", "d"]).await;
        until_shares(&world, "/kubepods/burstable", 1024).await;
        let mut all: Vec<_> =
            pods_cgroups(&world).await.iter().map(|(_, name)| shares(&world, name)).collect();
        all.sort_unstable();
        assert_eq!(all, [Some(102), Some(204), Some(307), Some(409)]);
        assert_eq!(world.runtime.sandboxes().len(), 4);
        // An incarnation that made none of the cgroups knows which pods count.
        node.tree.kill("ResourceManager").expect("it is in the tree");
        world.remove_manifest("d.yaml");
        until_shares(&world, "/kubepods/burstable", 614).await;
    });
}

#[test]
fn a_pod_waits_for_its_cgroup_and_says_why() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(23);
        let refused = CgroupError::NotWritten {
            path: "/sys/fs/cgroup/memory.max".into(),
            value: "67108864".into(),
            reason: "Read-only file system (os error 30)".into(),
        };
        world.cgroups.set_broken(Some(refused));
        world.manifest("g.yaml", &pod("g", GUARANTEED));
        let node = FakeNode::start(sandbox, &world, &settings());
        let why = "cannot write \"67108864\" to /sys/fs/cgroup/memory.max: Read-only file system";
        let event = until_event(&node, "FailedCreatePodContainer", why).await;
        assert_eq!(event.event_type, EventType::Warning);
        let event = until_event(&node, "FailedNodeAllocatableEnforcement", why).await;
        let begins = "Failed to update Node Allocatable Limits [\"kubepods\"]: ";
        assert!(event.message.starts_with(begins), "{}", event.message);
        assert_eq!(world.runtime.sandboxes().len(), 0, "no sandbox outside its cgroup");
        world.cgroups.set_broken(None);
        until_ready(&node, &["g"]).await;
        until_event(&node, "NodeAllocatableEnforced", "").await;
    });
}

#[test]
fn what_is_reserved_is_enforced_on_cgroups_that_are_there() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(24);
        world.cgroups.add("/system");
        let cpu = |units| [("cpu".to_owned(), Quantity::decimal(units))].into();
        let reserved = |reserved_for, name: &str, units| ReservedCgroup {
            reserved_for,
            name: name.to_owned(),
            amounts: cpu(units),
            compressible_only: true,
        };
        let mut settings = settings();
        settings.resources.reserved =
            vec![reserved(ReservedFor::System, "/system", 1), reserved(ReservedFor::Kube, "/kube", 2)];
        let node = FakeNode::start(sandbox, &world, &settings);
        until_event(&node, "NodeAllocatableEnforced", "Updated limits on system reserved cgroup /system")
            .await;
        assert_eq!(shares(&world, "/system"), Some(1024));
        let failed = "Failed to enforce Kube Reserved Compressible Cgroup Limits on \"/kube\": ";
        until_event(&node, "FailedNodeAllocatableEnforcement", failed).await;
        world.cgroups.add("/kube");
        sandbox.pass(Duration::from_secs(61)).await;
        until_event(&node, "NodeAllocatableEnforced", "Updated limits on kube reserved cgroup /kube").await;
        assert_eq!(shares(&world, "/kube"), Some(2048));
    });
}

#[test]
fn cgroups_that_nobody_knows_go_with_the_processes_that_are_lost_in_them() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(25);
        world.cgroups.add_pod(QosClass::BestEffort, "empty").expect("a name");
        world.cgroups.add_pod(QosClass::Burstable, "busy").expect("a name");
        world.cgroups.add_pid("busy", 4711);
        world.manifest("b.yaml", &burstable("b", "250m"));
        let node = FakeNode::start(sandbox, &world, &settings());
        until_ready(&node, &["b"]).await;
        assert_eq!(pods_cgroups(&world).await.len(), 3, "nothing is removed in haste");
        sandbox.pass(Duration::from_secs(150)).await;
        let names: Vec<_> = pods_cgroups(&world).await.into_iter().map(|(_, name)| name).collect();
        assert_eq!(names.len(), 1, "not even the runtime knows them: {names:?}");
        assert_eq!(shares(&world, "/kubepods/burstable"), Some(256), "strangers do not count");
        assert!(node.by_name().await.get("b").is_some_and(|status| is_ready(status)));
    });
}

#[test]
fn a_process_that_the_runtime_has_lost_does_not_keep_its_pod() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(28);
        world.manifest("b.yaml", &burstable("b", "250m"));
        let node = FakeNode::start(sandbox, &world, &settings());
        until_ready(&node, &["b"]).await;
        let pod = world.cgroups.list_pod_cgroups().await.expect("a listing").remove(0);
        // containerd answers so for a container whose start was broken off, until the process is dead.
        world.cgroups.add_pid(&pod.uid, 4711);
        let refuses = Fault::Error(CriErrorKind::Other, "cannot delete running task".to_owned());
        world.runtime.fault(Rpc::RemoveContainer, 1000, refuses);
        world.remove_manifest("b.yaml");
        for _ in 0..300 {
            sandbox.pass(Duration::from_millis(100)).await;
            if world.cgroups.pids(&pod.uid).await.expect("the cgroup's processes").is_empty() {
                world.runtime.clear_faults();
            }
        }
        node.until_empty().await;
        assert!(pods_cgroups(&world).await.is_empty());
        node.stop().await;
    });
}

#[test]
fn without_cgroups_per_class_nothing_is_made() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(26);
        world.manifest("b.yaml", &burstable("b", "250m"));
        let mut settings = settings();
        settings.resources = ResourceManagerConfig { per_qos: false, ..settings.resources };
        let node = FakeNode::start(sandbox, &world, &settings);
        until_ready(&node, &["b"]).await;
        sandbox.pass(Duration::from_secs(120)).await;
        assert_eq!((world.cgroups.writes(), world.cgroups.values("/kubepods")), (0, None));
        world.remove_manifest("b.yaml");
        node.until_empty().await;
    });
}

#[test]
fn the_runtime_names_the_driver() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_bridge_tasks();
        let runtime = FakeRuntime::new(27);
        assert_eq!(ask_driver(&runtime).await, DriverAnswer::Driver(CgroupDriver::Cgroupfs));
        runtime.set_cgroup_driver(Some(wire::CgroupDriver::Systemd));
        assert_eq!(ask_driver(&runtime).await, DriverAnswer::Driver(CgroupDriver::Systemd));
        runtime.set_cgroup_driver(None);
        assert_eq!(ask_driver(&runtime).await, DriverAnswer::Nothing { outdated: true });

        // A runtime that is away is asked again, then the configured driver is taken until it is back.
        runtime.set_cgroup_driver(Some(wire::CgroupDriver::Systemd));
        runtime.set_down(true);
        let began = tokio::time::Instant::now();
        assert!(matches!(ask_driver(&runtime).await, DriverAnswer::Silent(_)));
        assert_eq!(began.elapsed().as_secs(), 4);
        let runtime = Arc::new(runtime);
        let waited = disagreement(runtime.clone(), CgroupDriver::Cgroupfs);
        assert!(tokio::time::timeout(Duration::from_secs(60), waited).await.is_err(), "still away");
        runtime.set_down(false);
        let told = disagreement(runtime.clone(), CgroupDriver::Cgroupfs);
        let told = tokio::time::timeout(Duration::from_secs(60), told).await;
        assert_eq!(told.ok(), Some(CgroupDriver::Systemd));
        let agrees = disagreement(runtime, CgroupDriver::Systemd);
        assert!(tokio::time::timeout(Duration::from_secs(600), agrees).await.is_err());
    });
}
