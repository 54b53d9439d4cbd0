//! Logs that grow: rotated, compressed and bounded in number; and files that are left alone.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bridge_cri::fake::Fault;
use bridge_cri::wire::ContainerState;
use bridge_cri::{CriErrorKind, Rpc};
use bridge_node::mounts::FileKind;
use kubelet::wiring::Settings;
use log_manager::LogRotation;
use supervision::{Policy, RestartPolicy};
use testkit::node::{FakeNode, World, is_ready, settings};
use testkit::{Sandbox, sandbox};

use crate::life::world;
use crate::pods::web;

const KIB: usize = 1 << 10;
/// More than the period of looks at sizes.
const LOOK: Duration = Duration::from_secs(11);

fn rotating(files_max: usize) -> Settings {
    let logs = LogRotation { bytes_max: Some(KIB as u64), files_max, ..LogRotation::default() };
    Settings { logs, ..settings() }
}

async fn started(sandbox: &Sandbox, world: &World, settings: &Settings) -> FakeNode {
    world.manifest("web.yaml", &web("web"));
    let node = FakeNode::start(sandbox, world, settings);
    node.until("web to be Ready", |pods| pods.get("web").is_some_and(|status| is_ready(status))).await;
    node
}

/// The log of a container of the only pod.
fn log_of(world: &World, container: &str) -> PathBuf {
    let named = |one: &&bridge_cri::wire::ContainerStatus| {
        one.metadata.as_ref().is_some_and(|metadata| metadata.name == container)
    };
    world.runtime.containers().iter().find(named).expect("the container is there").log_path.clone().into()
}

fn files(world: &World, log: &Path) -> Vec<String> {
    let beside = world.disk.children(log.parent().expect("a directory"));
    beside.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect()
}

fn reopened(world: &World) -> u64 {
    world.runtime.counts().get(&Rpc::ReopenContainerLog).copied().unwrap_or(0)
}

#[test]
fn a_full_log_is_put_aside_and_some_few_are_kept() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(201);
        let node = started(sandbox, &world, &rotating(3)).await;
        let (log, other) = (log_of(&world, "main"), log_of(&world, "side"));
        sandbox.pass(LOOK).await;
        assert_eq!((files(&world, &log).len(), reopened(&world)), (1, 0), "nothing has grown");
        for round in 0..5 {
            world.disk.write(&log, vec![b'a' + round; KIB], 0o640);
            world.disk.write(&other, vec![b'x'; KIB - 1], 0o640);
            sandbox.pass(LOOK).await;
            assert_eq!(world.disk.read(&log), Some(Vec::new()), "the runtime has begun another one");
        }
        let left = files(&world, &log);
        assert_eq!((left.len(), reopened(&world)), (3, 5), "{left:?}");
        assert_eq!(left[0], "0.log");
        assert!(left[1].starts_with("0.log.2027") && left[1].ends_with(".gz"), "{left:?}");
        assert!(left[2] > left[1] && !left[2].ends_with(".gz"), "the newest stays as it is: {left:?}");
        let newest = world.disk.read(log.with_file_name(&left[2])).expect("a file");
        assert_eq!(newest, vec![b'e'; KIB], "no byte is lost");
        assert_eq!(files(&world, &other), ["0.log"], "this one has not reached its size");
        // All log files go with their container.
        world.remove_manifest("web.yaml");
        node.until_empty().await;
        let _ = node.node.collect.tell(messages::garbage_collector::CollectNow);
        sandbox.pass(Duration::from_secs(1)).await;
        assert_eq!(files(&world, &log), [""; 0]);
        node.stop().await;
    });
}

#[test]
fn a_log_far_beyond_its_size_is_compressed_at_the_next_look() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(202);
        let node = started(sandbox, &world, &rotating(5)).await;
        let log = log_of(&world, "main");
        world.disk.write(&log, vec![b'a'; 20 * KIB], 0o640);
        sandbox.pass(LOOK).await;
        let left = files(&world, &log);
        assert!(left.len() == 2 && !left[1].ends_with(".gz"), "its readers come to its end first: {left:?}");
        sandbox.pass(LOOK).await;
        let left = files(&world, &log);
        assert!(left.len() == 2 && left[1].ends_with(".gz"), "{left:?}");
        node.stop().await;
    });
}

#[test]
fn what_the_runtime_does_not_begin_anew_is_put_back() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(203);
        let node = started(sandbox, &world, &rotating(5)).await;
        let log = log_of(&world, "main");
        let refuses = Fault::Error(CriErrorKind::Other, "no space left on device".to_owned());
        world.runtime.fault(Rpc::ReopenContainerLog, 1, refuses);
        world.disk.write(&log, vec![b'a'; KIB], 0o640);
        sandbox.pass(LOOK).await;
        assert_eq!((files(&world, &log), reopened(&world)), (vec!["0.log".to_owned()], 1));
        assert_eq!(world.disk.read(&log), Some(vec![b'a'; KIB]));
        let report = sandbox.report("LogManager").await.observed;
        assert!(
            report["problems"][0].as_str().is_some_and(|text| text.contains("no space left")),
            "{report}"
        );
        sandbox.pass(LOOK).await;
        assert_eq!((files(&world, &log).len(), reopened(&world)), (2, 2));
        let report = sandbox.report("LogManager").await.observed;
        assert_eq!(
            (report["rotated"].as_u64(), report["problems"].as_array().map(Vec::len)),
            (Some(1), Some(0))
        );
        node.stop().await;
    });
}

#[test]
fn a_runtime_that_hangs_over_one_log_holds_up_no_other_for_long() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(204);
        let node = started(sandbox, &world, &rotating(5)).await;
        let logs = [log_of(&world, "main"), log_of(&world, "side")];
        world.runtime.fault(Rpc::ReopenContainerLog, 1, Fault::Hang);
        for log in &logs {
            world.disk.write(log, vec![b'a'; KIB], 0o640);
        }
        sandbox.pass(LOOK + LOOK).await;
        let turned = logs.iter().filter(|log| files(&world, log).len() == 2).count();
        assert!(turned >= 1, "the other one");
        sandbox.pass(Duration::from_secs(180)).await;
        for log in &logs {
            assert_eq!(world.disk.read(log), Some(Vec::new()), "{}", log.display());
        }
        node.stop().await;
    });
}

#[test]
fn a_death_between_the_two_steps_leaves_no_container_without_a_log() {
    let policy = Policy {
        restart: RestartPolicy { restarts_max: 1000, ..RestartPolicy::default() },
        ..Policy::default()
    };
    sandbox(policy, async |sandbox| {
        sandbox.expect_crashes();
        let world = world(205);
        let node = started(sandbox, &world, &rotating(5)).await;
        let log = log_of(&world, "main");
        world.runtime.fault(Rpc::ReopenContainerLog, 1, Fault::Hang);
        world.disk.write(&log, vec![b'a'; KIB], 0o640);
        sandbox.until("it to be put aside", || world.disk.kind(&log).is_none()).await;
        node.tree.kill("LogManager").expect("every subsystem is in the tree");
        sandbox.until("another log", || world.disk.kind(&log).is_some()).await;
        let left = files(&world, &log);
        assert_eq!(left.len(), 2, "{left:?}");
        assert_eq!(world.disk.read(log.with_file_name(&left[1])), Some(vec![b'a'; KIB]));
        node.stop().await;
    });
}

#[test]
fn what_does_not_run_or_is_no_file_is_left_alone() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(206);
        let node = started(sandbox, &world, &rotating(5)).await;
        let (ended, linked) = (log_of(&world, "prepare"), log_of(&world, "main"));
        let containers = world.runtime.containers();
        assert!(containers.iter().any(|one| one.state() == ContainerState::ContainerExited));
        world.disk.write(&ended, vec![b'a'; 50 * KIB], 0o640);
        world.disk.remove(&linked);
        world.disk.write("/etc/precious", vec![b'a'; 50 * KIB], 0o600);
        world.disk.symlink(&linked, "/etc/precious");
        sandbox.pass(LOOK + LOOK).await;
        assert_eq!((files(&world, &ended).len(), files(&world, &linked).len(), reopened(&world)), (1, 1, 0));
        assert_eq!(world.disk.kind(&linked), Some(FileKind::Symlink));
        let report = sandbox.report("LogManager").await.observed;
        assert!(report["problems"][0].as_str().is_some_and(|text| text.ends_with("is not a regular file")));
        node.stop().await;
    });
}

#[test]
fn without_a_size_nothing_is_looked_at() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(207);
        let logs = LogRotation { bytes_max: None, ..LogRotation::default() };
        let node = started(sandbox, &world, &Settings { logs, ..settings() }).await;
        let log = log_of(&world, "main");
        world.disk.write(&log, vec![b'a'; 50 * KIB], 0o640);
        sandbox.pass(Duration::from_secs(60)).await;
        assert_eq!((files(&world, &log).len(), reopened(&world)), (1, 0));
        node.stop().await;
    });
}
