//! The cases. Each holds for every driver here.

use std::path::Path;
use std::time::Duration;

use bridge_csi::fake::Fault;
use bridge_csi::rules::access::{Access, AccessMode};
use bridge_csi::rules::requests::{Expansion, Publishing, expand};
use bridge_csi::wire::NodeGetVolumeStatsRequest;
use bridge_csi::wire::node_service_capability::rpc::Type as Can;
use bridge_csi::{CsiErrorKind, Progress, Rpc, Volume};

use crate::subject::{Case, DEADLINE, NAME, Place, Subject};

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub const ALL: &[(&str, Case)] = &[$((stringify!($name), |subject| Box::pin($name(subject)))),*];
    };
}
cases!(
    a_driver_tells_of_the_node_and_again_when_it_changes,
    a_volume_comes_and_goes_and_each_step_may_be_repeated,
    pods_share_one_stage,
    a_pod_that_may_only_read_cannot_write,
    a_block_device_is_published_as_a_file,
    an_inline_volume_is_not_staged,
    what_contradicts_is_refused,
    an_error_is_told_with_its_code_and_words,
    a_call_that_hangs_ends_and_leaves_the_outcome_unknown,
    an_answer_that_is_lost_has_acted,
    an_answer_that_breaks_has_acted,
    a_call_that_acts_late_is_undone_by_its_unpublish,
    a_dropped_asker_does_not_undo_a_call,
    a_driver_that_dies_between_stage_and_publish_goes_on,
    a_volume_grows,
    figures_and_health_are_told,
);

fn mount() -> Access {
    Access::mount(AccessMode::ReadWriteOnce, "ext4")
}

async fn gone(subject: &Subject, volume: &str, pods: &[&str]) {
    for pod in pods {
        subject.unpublish(volume, pod).await.expect("it is unpublished");
        let target = subject.target(pod);
        assert!(!subject.is_there(&target), "{target} is still there");
        assert!(!Path::new(&target).exists(), "the driver removes what it made: {target}");
    }
    subject.unstage(volume).await.expect("it is unstaged");
    assert!(!subject.is_there(&subject.staging_path(volume)));
}

async fn a_driver_tells_of_the_node_and_again_when_it_changes(subject: &Subject) {
    subject.set_node("i-1", 5, &[("zone", "a")]);
    let told = subject.drivers.node_info(NAME).await.expect("an answer");
    assert_eq!((told.node_id.as_str(), told.volumes_max, told.topology["zone"].as_str()), ("i-1", 5, "a"));
    subject.set_node("i-2", 0, &[]);
    let told = subject.register().await;
    assert_eq!((told.node_id.as_str(), told.volumes_max, told.topology.len()), ("i-2", 0, 0));
    let able = subject.able().await;
    assert!(able.stage_unstage && able.expand && able.volume_stats && !able.volume_mount_group);
}

async fn a_volume_comes_and_goes_and_each_step_may_be_repeated(subject: &Subject) {
    for _ in 0..2 {
        subject.stage("v", mount()).await.expect("it is staged");
        assert!(subject.is_there(&subject.staging_path("v")));
    }
    for _ in 0..2 {
        subject.publish("v", "a", mount()).await.expect("it is published");
        assert!(subject.is_there(&subject.target("a")));
    }
    for _ in 0..2 {
        gone(subject, "v", &["a"]).await;
    }
    gone(subject, "never-there", &["nor-this"]).await;
    assert_eq!(subject.broken(), [""; 0]);
}

async fn pods_share_one_stage(subject: &Subject) {
    subject.stage("v", mount()).await.expect("it is staged");
    subject.publish("v", "a", mount()).await.expect("a first pod");
    subject.publish("v", "b", mount()).await.expect("a second pod");
    if subject.place == Place::Process {
        std::fs::write(format!("{}/file", subject.target("a")), "shared").expect("a pod writes");
        let read = std::fs::read_to_string(format!("{}/file", subject.target("b"))).expect("another reads");
        assert_eq!(read, "shared");
    }
    subject.unpublish("v", "a").await.expect("the first pod goes");
    assert!(subject.is_there(&subject.target("b")));
    gone(subject, "v", &["b"]).await;
    assert_eq!((subject.count(Rpc::NodeStageVolume), subject.broken().len()), (1, 0));
}

async fn a_pod_that_may_only_read_cannot_write(subject: &Subject) {
    subject.stage("v", mount()).await.expect("it is staged");
    let publishing = Publishing {
        volume_id: "v".into(),
        staging_path: subject.staging_path("v"),
        target_path: subject.target("a"),
        access: mount(),
        readonly: true,
        ..Default::default()
    };
    subject.publish_with(publishing).await.expect("it is published");
    assert!(subject.held().published[&subject.target("a")].readonly);
    if subject.place == Place::Process {
        let written = std::fs::write(format!("{}/file", subject.target("a")), "");
        assert_eq!(written.expect_err("read-only").kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }
    gone(subject, "v", &["a"]).await;
}

async fn a_block_device_is_published_as_a_file(subject: &Subject) {
    let block = || Access::block(AccessMode::ReadWriteOnce);
    subject.stage("disk", block()).await.expect("it is staged");
    subject.publish("disk", "a", block()).await.expect("it is published");
    if subject.place == Place::Process {
        use std::os::unix::fs::FileTypeExt;
        let kind = std::fs::metadata(subject.target("a")).expect("it is there").file_type();
        assert!(kind.is_block_device(), "{kind:?}");
    }
    assert!(subject.held().published[&subject.target("a")].is_block);
    gone(subject, "disk", &["a"]).await;
}

async fn an_inline_volume_is_not_staged(subject: &Subject) {
    let publishing = Publishing {
        volume_id: "csi-inline".into(),
        target_path: subject.target("a"),
        staging_path: "/not/told".into(),
        access: mount(),
        attributes: [("csi.storage.k8s.io/ephemeral".to_owned(), "true".to_owned())].into(),
        inline: true,
        ..Default::default()
    };
    subject.publish_with(publishing).await.expect("it is published");
    assert!(subject.is_there(&subject.target("a")));
    subject.unpublish("csi-inline", "a").await.expect("it is unpublished");
    assert_eq!((subject.count(Rpc::NodeStageVolume), subject.broken().len()), (0, 0));
}

async fn what_contradicts_is_refused(subject: &Subject) {
    let early = subject.publish("v", "a", mount()).await.expect_err("it is not staged");
    assert_eq!((early.kind, early.progress()), (CsiErrorKind::FailedPrecondition, Progress::Finished));
    subject.stage("v", mount()).await.expect("it is staged");
    let other = subject.stage("v", Access::mount(AccessMode::ReadOnlyMany, "xfs")).await;
    assert_eq!(other.expect_err("it is staged otherwise").kind, CsiErrorKind::AlreadyExists);
    subject.publish("v", "a", mount()).await.expect("it is published");
    let in_use = subject.unstage("v").await.expect_err("a pod has it");
    assert_eq!(in_use.kind, CsiErrorKind::FailedPrecondition);
    assert_eq!(subject.broken().len(), 2, "the driver noticed: {:?}", subject.broken());
    gone(subject, "v", &["a"]).await;
}

async fn an_error_is_told_with_its_code_and_words(subject: &Subject) {
    use CsiErrorKind::{Aborted, Internal, InvalidArgument, ResourceExhausted, Unauthenticated};
    for (kind, progress) in [
        (Internal, Progress::Finished),
        (InvalidArgument, Progress::Finished),
        (Unauthenticated, Progress::Finished),
        (Aborted, Progress::Uncertain),
        (ResourceExhausted, Progress::Uncertain),
    ] {
        subject.fault(Rpc::NodeStageVolume, 1, Fault::Error(kind, "no disk today".into()));
        let error = subject.stage("v", mount()).await.expect_err("by order");
        assert_eq!((error.kind, error.progress()), (kind, progress));
        assert_eq!(error.status_text(), format!("rpc error: code = {kind:?} desc = no disk today"));
    }
    assert!(subject.held().staged.is_empty());
}

async fn a_call_that_hangs_ends_and_leaves_the_outcome_unknown(subject: &Subject) {
    subject.fault(Rpc::NodeStageVolume, 1, Fault::Hang);
    let since = tokio::time::Instant::now();
    let error = subject.stage("v", mount()).await.expect_err("it hangs");
    assert_eq!((error.kind, error.progress()), (CsiErrorKind::DeadlineExceeded, Progress::Uncertain));
    assert_eq!(error.message, "context deadline exceeded");
    assert!(since.elapsed() >= DEADLINE, "{:?}", since.elapsed());
    gone(subject, "v", &[]).await;
}

async fn an_answer_that_is_lost_has_acted(subject: &Subject) {
    subject.fault(Rpc::NodeStageVolume, 1, Fault::LostReply);
    let error = subject.stage("v", mount()).await.expect_err("no answer");
    assert_eq!(error.progress(), Progress::Uncertain);
    assert!(subject.is_there(&subject.staging_path("v")));
    subject.stage("v", mount()).await.expect("it is done already");
    gone(subject, "v", &[]).await;
}

async fn an_answer_that_breaks_has_acted(subject: &Subject) {
    subject.stage("v", mount()).await.expect("it is staged");
    subject.fault(Rpc::NodePublishVolume, 1, Fault::BrokenConnection);
    let error = subject.publish("v", "a", mount()).await.expect_err("no answer");
    assert_eq!((error.kind, error.progress()), (CsiErrorKind::Unavailable, Progress::Uncertain));
    assert!(subject.is_there(&subject.target("a")));
    gone(subject, "v", &["a"]).await;
}

async fn a_call_that_acts_late_is_undone_by_its_unpublish(subject: &Subject) {
    subject.stage("v", mount()).await.expect("it is staged");
    let late = DEADLINE + Duration::from_millis(500);
    subject.fault(Rpc::NodePublishVolume, 1, Fault::ActsLate(late));
    let error = subject.publish("v", "a", mount()).await.expect_err("it is late");
    assert_eq!(error.progress(), Progress::Uncertain);
    while !subject.is_there(&subject.target("a")) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    gone(subject, "v", &["a"]).await;
}

async fn a_dropped_asker_does_not_undo_a_call(subject: &Subject) {
    subject.fault(Rpc::NodeStageVolume, 1, Fault::Latency(Duration::from_millis(300)));
    let able = subject.able().await;
    let staging = bridge_csi::rules::requests::Staging {
        volume_id: "v".into(),
        path: subject.staging_path("v"),
        access: mount(),
        ..Default::default()
    };
    drop(subject.drivers.stage(NAME, bridge_csi::rules::requests::stage(&staging, &able)));
    assert_eq!(subject.drivers.in_flight().len(), 1);
    subject.drivers.settled(&Volume::new(NAME, "v"), None).await;
    assert!(subject.is_there(&subject.staging_path("v")));
    gone(subject, "v", &[]).await;
}

async fn a_driver_that_dies_between_stage_and_publish_goes_on(subject: &Subject) {
    subject.stage("v", mount()).await.expect("it is staged");
    subject.dies_and_comes_back();
    // The first call may meet the broken connection, and no later one does.
    let mut asked = subject.drivers.node_info(NAME).await;
    if let Err(error) = &asked {
        assert_eq!(error.kind, CsiErrorKind::Unavailable, "{error}");
        asked = subject.drivers.node_info(NAME).await;
    }
    asked.expect("it is back");
    subject.publish("v", "a", mount()).await.expect("it is still staged");
    subject.dies_and_comes_back();
    let _broken = subject.drivers.node_info(NAME).await;
    gone(subject, "v", &["a"]).await;
}

async fn a_volume_grows(subject: &Subject) {
    let (gib, block) = (1_i64 << 30, || Access::block(AccessMode::ReadWriteOnce));
    subject.stage("disk", block()).await.expect("it is staged");
    subject.publish("disk", "a", block()).await.expect("it is published");
    subject.limit(3 * gib);
    let able = subject.able().await;
    let expansion = |bytes| Expansion {
        volume_id: "disk".into(),
        path: subject.target("a"),
        staging_path: subject.staging_path("disk"),
        access: block(),
        bytes,
        ..Default::default()
    };
    let bytes = subject.drivers.expand(NAME, expand(&expansion(2 * gib), &able)).await.expect("it grows");
    assert_eq!(bytes, 2 * gib);
    if subject.place == Place::Process {
        use std::io::{Seek, SeekFrom};
        let mut device = std::fs::File::open(subject.target("a")).expect("it is there");
        assert_eq!(device.seek(SeekFrom::End(0)).expect("its end"), (2 * gib).unsigned_abs());
    }
    let error = subject.drivers.expand(NAME, expand(&expansion(4 * gib), &able)).await;
    let error = error.expect_err("beyond the limit");
    assert!(error.is_infeasible() && error.kind == CsiErrorKind::OutOfRange, "{error}");
    gone(subject, "disk", &["a"]).await;
}

async fn figures_and_health_are_told(subject: &Subject) {
    subject.stage("v", mount()).await.expect("it is staged");
    subject.publish("v", "a", mount()).await.expect("it is published");
    let request = || NodeGetVolumeStatsRequest {
        volume_id: "v".into(),
        volume_path: subject.target("a"),
        ..Default::default()
    };
    let figures = subject.drivers.volume_figures(NAME, request(), false).await.expect("figures");
    assert!(figures.capacity_bytes > 0 && figures.inodes > 0 && figures.health.is_none(), "{figures:?}");
    subject.can(&[Can::StageUnstageVolume, Can::GetVolumeStats, Can::VolumeCondition]);
    subject.ill("worn out");
    let with_health = subject.able().await.volume_condition;
    let figures = subject.drivers.volume_figures(NAME, request(), with_health).await.expect("figures");
    let health = figures.health.expect("it tells of health");
    assert_eq!((health.is_abnormal, health.message.as_str()), (true, "worn out"));
    gone(subject, "v", &["a"]).await;
}
