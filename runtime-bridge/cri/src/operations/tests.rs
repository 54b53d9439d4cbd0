//! The guarantees that actors rely on, tested against the fake on a paused clock.

use std::time::Duration;

use super::*;
use crate::Deadlines;
use crate::fake::{Behaviour, FakeRuntime, Fault, Match, RegistryImage};

const UID: &str = "uid-1";

fn fixture() -> (FakeRuntime, Operations) {
    let fake = FakeRuntime::new(1);
    fake.add_image("app", RegistryImage::default());
    let runtime: Arc<dyn Runtime> = Arc::new(fake.clone());
    (fake, Operations::new(runtime, Io::current(), CriMetrics::new().unwrap()))
}

fn sandbox(attempt: u32) -> PodSandboxConfig {
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: "pod".into(),
            uid: UID.into(),
            namespace: "default".into(),
            attempt,
        }),
        labels: [("io.kubernetes.pod.uid".to_owned(), UID.to_owned())].into(),
        ..Default::default()
    }
}

fn container(attempt: u32) -> ContainerConfig {
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: "main".into(), attempt }),
        image: Some(ImageSpec { image: "app".into(), ..Default::default() }),
        ..Default::default()
    }
}

async fn running(operations: &Operations) -> (String, String) {
    let pod = operations.ensure_sandbox(UID, 0, sandbox(0), String::new()).await.unwrap().into_id();
    let ensured = operations.ensure_container(UID, &pod, 0, container(0), sandbox(0)).await;
    let id = ensured.unwrap().into_id();
    operations.start_container(UID, &id).await.unwrap();
    (pod, id)
}

fn count(fake: &FakeRuntime, rpc: Rpc) -> u64 {
    fake.counts().get(&rpc).copied().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_adopted_and_makes_no_second_sandbox() {
    let (fake, operations) = fixture();
    for fault in [Fault::LostReply, Fault::BrokenConnection] {
        fake.fault(Rpc::RunPodSandbox, 1, fault.clone());
        fake.fault(Rpc::CreateContainer, 1, fault);
        let ensured = operations.ensure_sandbox(UID, 0, sandbox(0), String::new()).await.unwrap();
        assert!(matches!(ensured, Ensured::Adopted(_)), "{ensured:?}");
        let pod = ensured.into_id();
        let made = operations.ensure_container(UID, &pod, 0, container(0), sandbox(0)).await.unwrap();
        assert!(matches!(made, Ensured::Adopted(_)), "{made:?}");
        assert_eq!((fake.sandboxes().len(), fake.containers().len()), (1, 1));
        operations.remove_pod_sandbox(UID, &pod).await.unwrap();
    }
    assert_eq!(count(&fake, Rpc::RunPodSandbox), 2);
}

#[tokio::test(start_paused = true)]
async fn what_appears_only_after_the_deadline_is_adopted() {
    let (fake, operations) = fixture();
    let late = Deadlines::default().of(Rpc::RunPodSandbox) + Duration::from_millis(300);
    fake.fault(Rpc::RunPodSandbox, 1, Fault::ActsLate(late));
    let ensured = operations.ensure_sandbox(UID, 0, sandbox(0), String::new()).await.unwrap();
    assert!(matches!(ensured, Ensured::Adopted(_)), "{ensured:?}");
    assert_eq!(fake.sandboxes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_outlives_its_asker_and_the_next_asker_joins_it() {
    let (fake, operations) = fixture();
    fake.fault(Rpc::RunPodSandbox, 1, Fault::Latency(Duration::from_secs(10)));
    drop(operations.ensure_sandbox(UID, 0, sandbox(0), String::new()));
    let flying = operations.in_flight(UID);
    assert_eq!(flying.len(), 1);
    assert!(flying[0].rpc == Rpc::RunPodSandbox && !flying[0].waiting, "{flying:?}");
    let joined = operations.ensure_sandbox(UID, 0, sandbox(0), String::new()).await.unwrap();
    assert!(matches!(joined, Ensured::Created(_)), "{joined:?}");
    assert_eq!(count(&fake, Rpc::RunPodSandbox), 1);
    assert!(operations.in_flight(UID).is_empty());
}

#[tokio::test(start_paused = true)]
async fn settled_waits_for_the_calls_of_its_pod_alone() {
    let (fake, operations) = fixture();
    let (_, id) = running(&operations).await;
    fake.behave(Match::Any, vec![Behaviour::stubborn()]);
    fake.fault(Rpc::StopContainer, 1, Fault::Latency(Duration::from_secs(5)));
    drop(operations.stop_container(UID, &id, 30));
    let started = Instant::now();
    operations.settled("another").await;
    assert_eq!(started.elapsed(), Duration::ZERO);
    operations.settled(UID).await;
    assert!(started.elapsed() >= Duration::from_secs(5));
    assert_eq!(fake.containers()[0].state(), ContainerState::ContainerExited);
}

#[tokio::test(start_paused = true)]
async fn one_mutating_call_at_a_time_touches_a_container_and_the_same_ones_join() {
    let (fake, operations) = fixture();
    let (_, id) = running(&operations).await;
    fake.fault(Rpc::StopContainer, 9, Fault::Latency(Duration::from_secs(1)));
    fake.fault(Rpc::RemoveContainer, 9, Fault::Latency(Duration::from_secs(1)));
    let (a, b, c, d) = tokio::join!(
        operations.stop_container(UID, &id, 2),
        operations.stop_container(UID, &id, 2),
        operations.remove_container(UID, &id),
        operations.remove_container(UID, &id),
    );
    assert_eq!([a, b, c, d], [Ok(()), Ok(()), Ok(()), Ok(())]);
    assert_eq!((count(&fake, Rpc::StopContainer), count(&fake, Rpc::RemoveContainer)), (1, 1));
    assert_eq!(fake.most_at_once(), 1);
}

#[tokio::test(start_paused = true)]
async fn updates_are_applied_in_order_and_an_older_equal_one_is_not_joined() {
    let (fake, operations) = fixture();
    let (_, id) = running(&operations).await;
    let update = |shares| UpdateContainerResourcesRequest {
        container_id: id.clone(),
        linux: Some(LinuxContainerResources { cpu_shares: shares, ..Default::default() }),
        ..Default::default()
    };
    let (a, b, c) = tokio::join!(
        operations.update_container_resources(UID, update(10)),
        operations.update_container_resources(UID, update(20)),
        operations.update_container_resources(UID, update(10)),
    );
    assert_eq!([a, b, c], [Ok(()), Ok(()), Ok(())]);
    assert_eq!(count(&fake, Rpc::UpdateContainerResources), 3);
    let resources = fake.containers()[0].resources.clone().unwrap().linux.unwrap();
    assert_eq!(resources.cpu_shares, 10);
}

#[tokio::test(start_paused = true)]
async fn a_shorter_stop_does_not_wait_for_a_longer_one() {
    let (fake, operations) = fixture();
    fake.behave(Match::Any, vec![Behaviour::stubborn()]);
    let (_, id) = running(&operations).await;
    let started = Instant::now();
    let long = operations.stop_container(UID, &id, 600);
    tokio::task::yield_now().await;
    operations.stop_container(UID, &id, 1).await.unwrap();
    long.await.unwrap();
    assert_eq!(started.elapsed(), Duration::from_secs(1));
    assert_eq!(fake.containers()[0].exit_code, 137);
}

#[tokio::test(start_paused = true)]
async fn a_name_held_by_nothing_usable_raises_the_attempt() {
    let (fake, operations) = fixture();
    fake.reserve_name("pod_default_uid-1_0");
    let held = operations.ensure_sandbox(UID, 0, sandbox(0), String::new()).await.unwrap_err();
    assert!(matches!(&held, EnsureError::RaiseAttempt { unusable: None, .. }), "{held}");
    let pod = operations.ensure_sandbox(UID, 1, sandbox(1), String::new()).await.unwrap().into_id();
    operations.stop_pod_sandbox(UID, &pod).await.unwrap();
    let dead = operations.ensure_sandbox(UID, 1, sandbox(1), String::new()).await.unwrap_err();
    assert!(matches!(&dead, EnsureError::RaiseAttempt { unusable: Some(id), .. } if *id == pod), "{dead}");
}

#[tokio::test(start_paused = true)]
async fn a_container_that_exited_is_not_adopted_and_a_running_one_is() {
    let (fake, operations) = fixture();
    let (pod, id) = running(&operations).await;
    let again = operations.ensure_container(UID, &pod, 0, container(0), sandbox(0)).await;
    assert_eq!(again, Ok(Ensured::Adopted(id.clone())));
    assert!(fake.exit_container(&id, 1, false));
    let again = operations.ensure_container(UID, &pod, 0, container(0), sandbox(0)).await.unwrap_err();
    assert!(
        matches!(&again, EnsureError::RaiseAttempt { unusable: Some(dead), .. } if *dead == id),
        "{again}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_cannot_be_asked_leaves_the_attempt_as_it_is() {
    let (fake, operations) = fixture();
    fake.fault(Rpc::RunPodSandbox, 1, Fault::BrokenConnection);
    fake.fault(Rpc::ListPodSandbox, 9, Fault::Error(CriErrorKind::Unavailable, "restarting".into()));
    let error = operations.ensure_sandbox(UID, 0, sandbox(0), String::new()).await.unwrap_err();
    assert!(matches!(&error, EnsureError::NotLooked { .. }), "{error}");
    fake.clear_faults();
    let adopted = operations.ensure_sandbox(UID, 0, sandbox(0), String::new()).await.unwrap();
    assert!(matches!(adopted, Ensured::Adopted(_)), "{adopted:?}");
    assert_eq!(fake.sandboxes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_neither_looked_at_nor_adopted() {
    let (fake, operations) = fixture();
    fake.set_condition("NetworkReady", false, "NetworkPluginNotReady", "cni plugin not initialized");
    let error = operations.ensure_sandbox(UID, 0, sandbox(0), String::new()).await.unwrap_err();
    assert!(matches!(&error, EnsureError::Failed(_)), "{error}");
    assert_eq!(count(&fake, Rpc::ListPodSandbox), 0);
    let error = operations.ensure_sandbox(UID, 1, sandbox(0), String::new()).await.unwrap_err();
    assert_eq!(error.cri().kind, CriErrorKind::InvalidArgument);
}

#[tokio::test(start_paused = true)]
async fn pulls_join_within_their_share_and_are_cancelled_with_it_alone() {
    let (fake, operations) = fixture();
    let slow = RegistryImage { takes: Duration::from_secs(3600), ..Default::default() };
    fake.publish("big", slow);
    let pull = |user: &str, pod: &str| {
        let annotations = [("pod".to_owned(), pod.to_owned())].into();
        let request = PullImageRequest {
            image: Some(ImageSpec { image: "big".into(), annotations, ..Default::default() }),
            auth: Some(AuthConfig { username: user.into(), ..Default::default() }),
            ..Default::default()
        };
        operations.pull_image(request, PullShare::of([user]))
    };
    let (first, second, other) = (pull("one", "a"), pull("one", "b"), pull("other", "a"));
    // Only a pull that has begun can prove which call is cancelled.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(count(&fake, Rpc::PullImage), 2, "one for each share, side by side");
    assert_eq!(operations.pulls_in_flight().len(), 2);
    assert_eq!(operations.cancel_pull("big", PullShare::of(["one"])), 1);
    let third = pull("one", "a");
    for cancelled in [first.await, second.await] {
        assert!(cancelled.unwrap_err().outcome_unknown());
    }
    assert!(other.await.is_ok() && third.await.is_ok());
    assert_eq!(count(&fake, Rpc::PullImage), 3);
    assert_eq!(operations.cancel_pull("big", PullShare::of(["one"])), 0);
}

#[test]
fn a_share_tells_its_parts_apart_and_shows_none() {
    assert_ne!(PullShare::of(["ab", "c"]), PullShare::of(["a", "bc"]));
    assert_ne!(PullShare::of(["a"]), PullShare::of(["a", ""]));
    assert_eq!(PullShare::of(["a", "b"]), PullShare::of(["a", "b"]));
    assert_eq!(format!("{:?}", PullShare::of(["hush"])), "PullShare(…)");
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_bounded() {
    let (fake, operations) = fixture();
    let (_, id) = running(&operations).await;
    fake.fault(Rpc::UpdateContainerResources, 1, Fault::Hang);
    let update = |shares| {
        let linux = LinuxContainerResources { cpu_shares: shares, ..Default::default() };
        let container_id = id.clone();
        let request =
            UpdateContainerResourcesRequest { container_id, linux: Some(linux), ..Default::default() };
        operations.update_container_resources(UID, request)
    };
    let queued: Vec<_> = (0..16).map(update).collect();
    assert_eq!(operations.in_flight(UID).iter().filter(|flight| flight.waiting).count(), 15);
    assert_eq!(update(99).await.unwrap_err().kind, CriErrorKind::ResourceExhausted);
    let ended = futures::future::join_all(queued).await;
    assert_eq!(ended.iter().filter(|one| one.is_ok()).count(), 15);
}

#[tokio::test(start_paused = true)]
async fn every_call_is_counted() {
    let (fake, operations) = fixture();
    fake.fault(Rpc::Status, 1, Fault::Hang);
    assert!(operations.status(StatusRequest::default()).await.is_err());
    assert!(operations.status(StatusRequest::default()).await.is_ok());
    running(&operations).await;
    assert_eq!(operations.calls.metrics.counted(Rpc::Status), (2, 1));
    assert_eq!(operations.calls.metrics.counted(Rpc::StartContainer), (1, 0));
    let registry = prometheus::Registry::new();
    for collector in operations.calls.metrics.collectors() {
        registry.register(collector).unwrap();
    }
    let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    for line in [
        "kubelet_runtime_operations_total{operation_type=\"status\"} 2",
        "kubelet_runtime_operations_errors_total{operation_type=\"status\"} 1",
        "kubelet_runtime_operations_duration_seconds_count{operation_type=\"run_podsandbox\"} 1",
        "kubelet_run_podsandbox_duration_seconds_count{runtime_handler=\"\"} 1",
    ] {
        assert!(text.contains(line), "{line} not in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn checkpoints_hold_up_no_stop_and_end() {
    let (fake, operations) = fixture();
    let (_, id) = running(&operations).await;
    fake.fault(Rpc::CheckpointContainer, 20, Fault::Hang);
    let started = Instant::now();
    let ask = |timeout| {
        let request = CheckpointContainerRequest { container_id: id.clone(), timeout, ..Default::default() };
        operations.checkpoint_container(request)
    };
    let asked: Vec<_> = (1..=16).map(ask).collect();
    operations.stop_container(UID, &id, 1).await.unwrap();
    operations.settled(UID).await;
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    drop(asked);
    // They end one after the other.
    tokio::time::sleep(Duration::from_secs(16 * 121)).await;
    let longest = ask(i64::MAX).await.unwrap_err();
    assert!(longest.outcome_unknown(), "{longest}");
    assert!(started.elapsed() <= Duration::from_secs(2 * 3600), "{:?}", started.elapsed());
}
