use std::time::Duration;

use super::*;
use crate::deadlines::Deadlines;
use crate::error::Progress;
use crate::fake::{FakeDriver, FakePlugins, Fault};
use crate::rules::access::{Access, AccessMode};
use crate::rules::requests::{Publishing, Staging, publish, stage};

const NAME: &str = "d.example";

struct Stand {
    drivers: Drivers,
    driver: FakeDriver,
    plugins: FakePlugins,
    metrics: CsiMetrics,
}

fn candidate(socket: &str, versions: &[&str]) -> Candidate {
    Candidate {
        name: NAME.into(),
        endpoint: format!("/plugins/{NAME}.sock"),
        versions: versions.iter().map(|version| (*version).to_owned()).collect(),
        socket: socket.into(),
    }
}

/// A driver that is registered.
async fn stand() -> Stand {
    let (plugins, driver) = (FakePlugins::default(), FakeDriver::new(NAME));
    plugins.show_driver(&driver);
    let metrics = CsiMetrics::new().unwrap();
    let drivers = Drivers::new(Arc::new(plugins.clone()), Io::current(), metrics.clone());
    let told = drivers.register(candidate("/a", &["1.0.0"])).await.unwrap();
    assert_eq!(told.node_id, "node-of-d.example");
    Stand { drivers, driver, plugins, metrics }
}

fn staging(volume_id: &str) -> NodeStageVolumeRequest {
    let staging = Staging {
        volume_id: volume_id.into(),
        path: format!("/staging/{volume_id}"),
        access: Access::mount(AccessMode::ReadWriteOnce, "ext4"),
        ..Default::default()
    };
    stage(&staging, &Capabilities::default())
}

fn publishing(volume_id: &str, target: &str) -> NodePublishVolumeRequest {
    let publishing = Publishing {
        volume_id: volume_id.into(),
        staging_path: format!("/staging/{volume_id}"),
        target_path: target.into(),
        access: Access::mount(AccessMode::ReadWriteOnce, "ext4"),
        ..Default::default()
    };
    publish(&publishing, &Capabilities { stage_unstage: true, ..Default::default() })
}

fn unpublishing(volume_id: &str, target: &str) -> NodeUnpublishVolumeRequest {
    NodeUnpublishVolumeRequest { volume_id: volume_id.into(), target_path: target.into() }
}

fn unstaging(volume_id: &str) -> NodeUnstageVolumeRequest {
    let staging_target_path = format!("/staging/{volume_id}");
    NodeUnstageVolumeRequest { volume_id: volume_id.into(), staging_target_path }
}

#[tokio::test(start_paused = true)]
async fn a_call_outlives_its_asker_and_the_next_asker_joins_it() {
    let Stand { drivers, driver, .. } = stand().await;
    driver.fault(Rpc::NodeStageVolume, 1, Fault::Latency(Duration::from_secs(30)));
    drop(drivers.stage(NAME, staging("v")));
    let volume = Volume::new(NAME, "v");
    let in_flight = drivers.in_flight();
    assert_eq!((in_flight.len(), in_flight[0].rpc, in_flight[0].waiting), (1, Rpc::NodeStageVolume, false));
    drivers.stage(NAME, staging("v")).await.expect("it joins the call in flight");
    assert_eq!(driver.count(Rpc::NodeStageVolume), 1);
    drivers.settled(&volume, None).await;
    assert!(drivers.in_flight().is_empty() && driver.held().staged.contains_key("v"));
    // A call after that is a call of its own, which the driver takes as done.
    drivers.stage(NAME, staging("v")).await.expect("it is staged already");
    assert_eq!(driver.count(Rpc::NodeStageVolume), 2);
}

#[tokio::test(start_paused = true)]
async fn pods_do_not_wait_for_each_other_and_the_volume_waits_for_all_pods() {
    let Stand { drivers, driver, .. } = stand().await;
    drivers.stage(NAME, staging("v")).await.unwrap();
    driver.fault(Rpc::NodePublishVolume, 1, Fault::Hang);
    let stuck = drivers.publish(NAME, publishing("v", "/pods/a"));
    tokio::task::yield_now().await;
    drivers.publish(NAME, publishing("v", "/pods/b")).await.expect("it does not wait for the other pod");
    // An unstage waits for both targets' calls, and another volume's calls for none.
    let unstage = drivers.unstage(NAME, unstaging("v"));
    drivers.stage(NAME, staging("w")).await.expect("another volume");
    assert!(drivers.in_flight().iter().any(|call| call.rpc == Rpc::NodeUnstageVolume && call.waiting));
    let error = stuck.await.expect_err("it hangs");
    assert_eq!((error.kind, error.progress()), (CsiErrorKind::DeadlineExceeded, Progress::Uncertain));
    let refused = unstage.await.expect_err("a pod has it");
    assert_eq!(refused.kind, CsiErrorKind::FailedPrecondition);
    drivers.unpublish(NAME, unpublishing("v", "/pods/b")).await.unwrap();
    drivers.unpublish(NAME, unpublishing("v", "/pods/a")).await.expect("also what was never there");
    drivers.unstage(NAME, unstaging("v")).await.unwrap();
    let broken = driver.broken_rules();
    assert_eq!(broken.len(), 1, "only the unstage that was meant: {broken:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_publish_makes_way_for_its_unpublish() {
    let Stand { drivers, driver, .. } = stand().await;
    drivers.stage(NAME, staging("v")).await.unwrap();
    driver.fault(Rpc::NodePublishVolume, 1, Fault::Hang);
    let publish = drivers.publish(NAME, publishing("v", "/pods/a"));
    tokio::task::yield_now().await;
    let unpublish = drivers.unpublish(NAME, unpublishing("v", "/pods/a"));
    let since = Instant::now();
    assert_eq!(drivers.cancel(&Volume::new(NAME, "v"), Some("/pods/other")), 0);
    // Both are of this target; the unpublish is asked for again.
    assert_eq!(drivers.cancel(&Volume::new(NAME, "v"), Some("/pods/a")), 2);
    let error = publish.await.expect_err("cancelled");
    assert_eq!((error.kind, error.progress()), (CsiErrorKind::Cancelled, Progress::Uncertain));
    assert_eq!(error.status_text(), "rpc error: code = Canceled desc = context canceled");
    assert!(unpublish.await.is_err());
    drivers.unpublish(NAME, unpublishing("v", "/pods/a")).await.expect("nothing is in its way");
    assert_eq!(since.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn only_the_driver_that_is_registered_is_asked() {
    let Stand { drivers, driver, plugins, metrics } = stand().await;
    let absent = drivers.stage("other", staging("v")).await.expect_err("there is none");
    assert_eq!(absent.progress(), Progress::NotBegun);
    assert_eq!(absent.status_text(), "driver name other not found in the list of registered CSI drivers");

    // The same socket takes its own place; another one of the same version does not.
    drivers.register(candidate("/a", &["1.0.0"])).await.expect("its own place");
    let refused = drivers.register(candidate("/b", &["1.0.0"])).await.expect_err("another driver");
    assert!(refused.to_string().contains("already registered with a higher supported version"), "{refused}");
    assert!(!drivers.deregister(NAME, "/b"), "not its driver");
    drivers.register(candidate("/b", &["1.1.0"])).await.expect("a newer one");
    assert_eq!(drivers.registered()[0].socket, "/b");

    // A driver that does not tell of the node is not registered.
    driver.fault(Rpc::NodeGetInfo, 1, Fault::Error(CsiErrorKind::Internal, "not yet".into()));
    let failed = drivers.register(candidate("/b", &["1.1.0"])).await.expect_err("not yet");
    assert_eq!(failed.to_string(), "rpc error: code = Internal desc = not yet");
    assert_eq!(drivers.registered(), []);
    drivers.register(candidate("/b", &["1.1.0"])).await.expect("now");
    assert!(drivers.deregister(NAME, "/b"));
    assert_eq!(metrics.counted(NAME, Rpc::NodeGetInfo, "Internal"), 1);
    assert_eq!(metrics.counted(NAME, Rpc::NodeGetInfo, "OK"), 4);
    drop(plugins);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_lacks_something_reaches_no_driver() {
    let Stand { drivers, driver, .. } = stand().await;
    let texts = [
        drivers.stage(NAME, staging("")).await.expect_err("no ID").status_text(),
        drivers.publish(NAME, publishing("v", "")).await.expect_err("no path").status_text(),
        drivers
            .unstage(NAME, NodeUnstageVolumeRequest { volume_id: "v".into(), ..Default::default() })
            .await
            .expect_err("no path")
            .status_text(),
    ];
    assert_eq!(texts, ["missing volume id", "missing target path", "missing staging target path"]);
    assert_eq!(driver.calls().iter().filter(|call| call.rpc != Rpc::NodeGetInfo).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_has_acted_and_a_repetition_finds_it_done() {
    let Stand { drivers, driver, .. } = stand().await;
    driver.fault(Rpc::NodeStageVolume, 1, Fault::LostReply);
    let error = drivers.stage(NAME, staging("v")).await.expect_err("no answer");
    assert_eq!(error.progress(), Progress::Uncertain);
    assert!(driver.held().staged.contains_key("v"));
    drivers.stage(NAME, staging("v")).await.expect("it is staged");
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_ends_at_upstreams_deadline() {
    let Stand { drivers, driver, .. } = stand().await;
    driver.fault(Rpc::NodeExpandVolume, 1, Fault::Hang);
    let since = Instant::now();
    let expand = NodeExpandVolumeRequest {
        volume_id: "v".into(),
        volume_path: "/pods/a".into(),
        ..Default::default()
    };
    drivers.expand(NAME, expand).await.expect_err("it hangs");
    assert_eq!(since.elapsed(), Deadlines::default().operation);
}
