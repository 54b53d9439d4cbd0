//! The cases. Each holds for every runtime, or returns why it does not apply.

use std::time::Duration;

use bridge_cri::fake::Fault;
use bridge_cri::wire::*;
use bridge_cri::{CriErrorKind, EnsureError, Ensured, Exited, Rpc, container_pid};
use futures::StreamExt;

use crate::subject::{Case, POD_UID_LABEL, Place, Subject, Verdict, uid_of};

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub const ALL: &[(&str, Case)] = &[$((stringify!($name), |subject| Box::pin($name(subject)))),*];
    };
}
cases!(
    the_version_is_the_kubelets,
    the_runtime_is_ready,
    a_sandbox_lives_and_is_stopped_and_removed_twice,
    a_pod_has_an_address,
    what_is_not_there_is_not_found,
    a_container_exits_with_its_code,
    a_container_that_ends_well_is_completed,
    a_restart_is_another_attempt_beside_the_first,
    a_held_name_is_recognised_and_adopted,
    lists_are_filtered,
    exec_sync_gives_output_and_exit_code,
    a_brief_exec_keeps_the_beginning,
    exec_sync_ends_at_its_timeout,
    sigterm_is_honoured_before_the_grace_is_over,
    a_stubborn_container_is_killed_when_the_grace_is_over,
    a_shorter_stop_ends_a_longer_one,
    resources_can_be_updated,
    usage_is_told_for_running_containers,
    logs_are_in_the_cri_format,
    a_log_is_begun_anew_and_goes_on_there,
    a_process_exit_is_seen_at_once,
    events_tell_of_starts_and_stops,
    images_are_known_by_name_and_id,
    the_same_ensure_at_the_same_time_makes_one,
    a_lost_reply_is_adopted,
    unknown_outcomes_end_in_one_sandbox,
);

const SLEEPER: &str = "trap 'exit 143' TERM; sleep 1000 & wait";

async fn the_version_is_the_kubelets(subject: &Subject) -> Verdict {
    let version = subject.operations.check_version().await.expect("a version we speak");
    assert!(!version.runtime_name.is_empty() && !version.runtime_version.is_empty(), "{version:?}");
    assert!(version.runtime_api_version.contains("v1"), "{version:?}");
    None
}

async fn status(subject: &Subject) -> StatusResponse {
    subject.operations.status(StatusRequest { verbose: true }).await.expect("a status")
}

fn condition(status: &StatusResponse, kind: &str) -> bool {
    let conditions = &status.status.as_ref().expect("conditions").conditions;
    conditions.iter().find(|condition| condition.r#type == kind).expect("the condition is told").status
}

async fn the_runtime_is_ready(subject: &Subject) -> Verdict {
    let status = status(subject).await;
    assert!(condition(&status, "RuntimeReady"), "{status:?}");
    condition(&status, "NetworkReady");
    None
}

async fn a_sandbox_lives_and_is_stopped_and_removed_twice(subject: &Subject) -> Verdict {
    let pod = subject.pod();
    let (uid, id) = (uid_of(&pod), subject.sandbox(&pod).await);
    let request = PodSandboxStatusRequest { pod_sandbox_id: id.clone(), verbose: true };
    let told = subject.operations.pod_sandbox_status(request.clone()).await.expect("it is there");
    let status = told.status.expect("a status");
    assert_eq!(status.state(), PodSandboxState::SandboxReady);
    assert_eq!((&status.metadata, &status.labels), (&pod.metadata, &pod.labels));
    assert!(status.created_at > 1_600_000_000_000_000_000, "nanoseconds: {}", status.created_at);
    for _ in 0..2 {
        subject.operations.stop_pod_sandbox(&uid, &id).await.expect("stopping twice is well");
    }
    let told = subject.operations.pod_sandbox_status(request.clone()).await.expect("it is still there");
    assert_eq!(told.status.expect("a status").state(), PodSandboxState::SandboxNotready);
    for _ in 0..2 {
        subject.operations.remove_pod_sandbox(&uid, &id).await.expect("removing twice is well");
    }
    let gone = subject.operations.pod_sandbox_status(request).await.expect_err("it is gone");
    assert!(gone.is_not_found(), "{gone:?}");
    None
}

async fn a_pod_has_an_address(subject: &Subject) -> Verdict {
    if !condition(&status(subject).await, "NetworkReady") {
        return Some("the runtime has no pod network".into());
    }
    let (first, second) = (subject.pod(), subject.pod());
    let mut addresses = Vec::new();
    for pod in [&first, &second] {
        let request = PodSandboxStatusRequest { pod_sandbox_id: subject.sandbox(pod).await, verbose: false };
        let told = subject.operations.pod_sandbox_status(request).await.expect("it is there");
        let address = told.status.and_then(|status| status.network).expect("a network").ip;
        assert!(address.parse::<std::net::IpAddr>().is_ok(), "{address:?}");
        addresses.push(address);
    }
    assert_ne!(addresses[0], addresses[1]);
    let mut hosted = subject.pod();
    let options = NamespaceOption { network: NamespaceMode::Node.into(), ..Default::default() };
    let security = LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
    hosted.linux.get_or_insert_default().security_context = Some(security);
    hosted.hostname.clear();
    let request = PodSandboxStatusRequest { pod_sandbox_id: subject.sandbox(&hosted).await, verbose: false };
    let told = subject.operations.pod_sandbox_status(request).await.expect("it is there");
    let network = told.status.and_then(|status| status.network).unwrap_or_default();
    assert_eq!(network.ip, "", "a pod in the host's network has no address of its own");
    None
}

async fn what_is_not_there_is_not_found(subject: &Subject) -> Verdict {
    let (operations, absent) = (&subject.operations, "0".repeat(64));
    let sandbox = PodSandboxStatusRequest { pod_sandbox_id: absent.clone(), verbose: false };
    let container = ContainerStatusRequest { container_id: absent.clone(), verbose: false };
    let exec = ExecSyncRequest { container_id: absent.clone(), cmd: vec!["true".into()], timeout: 1 };
    let errors = [
        operations.pod_sandbox_status(sandbox).await.err(),
        operations.container_status(container).await.err(),
        operations.exec_sync(exec).await.err(),
        operations.start_container("none", &absent).await.err(),
    ];
    for error in errors {
        assert!(error.as_ref().is_some_and(bridge_cri::CriError::is_not_found), "{error:?}");
    }
    operations.stop_container("none", &absent, 1).await.expect("what is gone is stopped");
    operations.remove_container("none", &absent).await.expect("what is gone is removed");
    operations.stop_pod_sandbox("none", &absent).await.expect("what is gone is stopped");
    operations.remove_pod_sandbox("none", &absent).await.expect("what is gone is removed");
    None
}

async fn a_container_exits_with_its_code(subject: &Subject) -> Verdict {
    let pod = subject.pod();
    let sandbox = subject.sandbox(&pod).await;
    let id = subject.created(&pod, &sandbox, subject.shell("main", 0, "sleep 0.3; exit 7")).await;
    let created = subject.status(&id).await;
    assert_eq!((created.state(), created.started_at), (ContainerState::ContainerCreated, 0));
    subject.operations.start_container(&uid_of(&pod), &id).await.expect("it starts");
    let ended = subject.exited(&id).await;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (7, "Error"));
    assert!(ended.created_at <= ended.started_at && ended.started_at < ended.finished_at, "{ended:?}");
    let again = subject.operations.start_container(&uid_of(&pod), &id).await;
    assert!(again.is_err(), "an exited container is not started again");
    None
}

async fn a_container_that_ends_well_is_completed(subject: &Subject) -> Verdict {
    let pod = subject.pod();
    let sandbox = subject.sandbox(&pod).await;
    let id = subject.started(&pod, &sandbox, subject.shell("main", 0, "exit 0")).await;
    let ended = subject.exited(&id).await;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (0, "Completed"));
    None
}

async fn a_restart_is_another_attempt_beside_the_first(subject: &Subject) -> Verdict {
    let pod = subject.pod();
    let sandbox = subject.sandbox(&pod).await;
    let first = subject.started(&pod, &sandbox, subject.shell("main", 0, "exit 7")).await;
    subject.exited(&first).await;
    let second = subject.started(&pod, &sandbox, subject.shell("main", 1, SLEEPER)).await;
    assert_ne!(first, second);
    assert_eq!(subject.status(&second).await.state(), ContainerState::ContainerRunning);
    assert_eq!(subject.status(&second).await.metadata.expect("metadata").attempt, 1);
    let mut both = vec![first.clone(), second];
    both.sort();
    let inside = ContainerFilter { pod_sandbox_id: sandbox, ..Default::default() };
    assert_eq!(subject.listed(inside).await, both);
    subject.operations.remove_container(&uid_of(&pod), &first).await.expect("the first can go");
    None
}

async fn a_held_name_is_recognised_and_adopted(subject: &Subject) -> Verdict {
    let pod = subject.pod();
    let sandbox = subject.sandbox(&pod).await;
    let run = RunPodSandboxRequest { config: Some(pod.clone()), runtime_handler: String::new() };
    let error = subject.runtime.run_pod_sandbox(run).await.expect_err("the name is held");
    assert!(error.is_name_reserved(), "{error:?}");
    let ensured = subject.operations.ensure_sandbox(&uid_of(&pod), 0, pod.clone(), String::new()).await;
    assert_eq!(ensured, Ok(Ensured::Adopted(sandbox.clone())));

    let config = subject.shell("main", 0, SLEEPER);
    let id = subject.created(&pod, &sandbox, config.clone()).await;
    let create = CreateContainerRequest {
        pod_sandbox_id: sandbox.clone(),
        config: Some(config.clone()),
        sandbox_config: Some(pod.clone()),
    };
    let error = subject.runtime.create_container(create).await.expect_err("the name is held");
    assert!(error.is_name_reserved(), "{error:?}");
    let ensured = subject.operations.ensure_container(&uid_of(&pod), &sandbox, 0, config, pod.clone()).await;
    assert_eq!(ensured, Ok(Ensured::Adopted(id)));
    None
}

async fn lists_are_filtered(subject: &Subject) -> Verdict {
    let (first, second) = (subject.pod(), subject.pod());
    let (here, there) = (subject.sandbox(&first).await, subject.sandbox(&second).await);
    let a = subject.started(&first, &here, subject.shell("a", 0, SLEEPER)).await;
    let b = subject.created(&first, &here, subject.shell("b", 0, SLEEPER)).await;
    let c = subject.created(&second, &there, subject.shell("a", 0, SLEEPER)).await;
    let inside = ContainerFilter { pod_sandbox_id: here.clone(), ..Default::default() };
    let mut both = vec![a.clone(), b.clone()];
    both.sort();
    assert_eq!(subject.listed(inside.clone()).await, both);
    let running = ContainerStateValue { state: ContainerState::ContainerRunning.into() };
    assert_eq!(
        subject.listed(ContainerFilter { state: Some(running), ..inside.clone() }).await,
        std::slice::from_ref(&a)
    );
    let named = [("io.kubernetes.container.name".to_owned(), "b".to_owned())].into();
    assert_eq!(subject.listed(ContainerFilter { label_selector: named, ..inside }).await, [b]);
    assert_eq!(subject.listed(ContainerFilter { id: c.clone(), ..Default::default() }).await, [c]);

    subject.operations.stop_pod_sandbox(&uid_of(&second), &there).await.expect("it stops");
    let sandboxes = async |filter: PodSandboxFilter| {
        let list = subject.operations.list_pod_sandbox(ListPodSandboxRequest { filter: Some(filter) }).await;
        let mut ids: Vec<String> = list.expect("a list").items.into_iter().map(|one| one.id).collect();
        ids.sort();
        ids
    };
    let own = PodSandboxFilter { label_selector: subject.case_labels(), ..Default::default() };
    let mut all = vec![here.clone(), there.clone()];
    all.sort();
    assert_eq!(sandboxes(own.clone()).await, all);
    let ready = Some(PodSandboxStateValue { state: PodSandboxState::SandboxReady.into() });
    assert_eq!(sandboxes(PodSandboxFilter { state: ready, ..own }).await, std::slice::from_ref(&here));
    assert_eq!(sandboxes(PodSandboxFilter { id: there.clone(), ..Default::default() }).await, [there]);
    let uid = [(POD_UID_LABEL.to_owned(), uid_of(&first))].into();
    assert_eq!(sandboxes(PodSandboxFilter { label_selector: uid, ..Default::default() }).await, [here]);
    None
}

async fn to_run(subject: &Subject, script: &str, timeout: i64) -> ExecSyncRequest {
    let pod = subject.pod();
    let sandbox = subject.sandbox(&pod).await;
    let container_id = subject.started(&pod, &sandbox, subject.shell("main", 0, SLEEPER)).await;
    let cmd = ["/bin/busybox", "sh", "-c", script].map(String::from).into();
    ExecSyncRequest { container_id, cmd, timeout }
}

async fn exec_sync_gives_output_and_exit_code(subject: &Subject) -> Verdict {
    let request = to_run(subject, "echo out; echo err >&2; exit 3", 10).await;
    let ran = subject.operations.exec_sync(request).await.expect("it runs");
    assert_eq!((ran.exit_code, &ran.stdout[..], &ran.stderr[..]), (3, &b"out\n"[..], &b"err\n"[..]));
    None
}

async fn a_brief_exec_keeps_the_beginning(subject: &Subject) -> Verdict {
    let request = to_run(subject, "seq 100000; exit 4", 10).await;
    let ran = subject.operations.exec_briefly(request).await.expect("it runs");
    assert_eq!((ran.exit_code, ran.stdout.len()), (4, bridge_cri::OUTPUT_KEPT_MAX));
    assert!(ran.stdout.starts_with(b"1\n2\n3\n"));
    None
}

async fn exec_sync_ends_at_its_timeout(subject: &Subject) -> Verdict {
    let started = tokio::time::Instant::now();
    let request = to_run(subject, "sleep 30", 1).await;
    let error = subject.operations.exec_sync(request).await.expect_err("it takes too long");
    assert_eq!(error.kind, CriErrorKind::DeadlineExceeded, "{error:?}");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    None
}

async fn sigterm_is_honoured_before_the_grace_is_over(subject: &Subject) -> Verdict {
    let pod = subject.pod();
    let sandbox = subject.sandbox(&pod).await;
    let id = subject.started(&pod, &sandbox, ready_shell(subject, SLEEPER)).await;
    await_ready(subject, &id).await;
    let started = tokio::time::Instant::now();
    subject.operations.stop_container(&uid_of(&pod), &id, 30).await.expect("it stops");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert_eq!(subject.exited(&id).await.exit_code, 143);
    None
}

/// A shell that creates a file once its trap is set.
fn ready_shell(subject: &Subject, script: &str) -> ContainerConfig {
    let (trap, rest) = script.split_once(';').expect("a trap and the rest");
    subject.shell("main", 0, &format!("{trap}; : > /ready;{rest}"))
}

async fn await_ready(subject: &Subject, id: &str) {
    for _ in 0..500 {
        let cmd = ["/bin/busybox", "test", "-e", "/ready"].map(String::from).into();
        let request = ExecSyncRequest { container_id: id.to_owned(), cmd, timeout: 10 };
        if subject.operations.exec_sync(request).await.expect("it runs").exit_code == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the container's shell did not get ready");
}

const STUBBORN: &str = "trap '' TERM; while :; do sleep 1; done";

async fn a_stubborn_container_is_killed_when_the_grace_is_over(subject: &Subject) -> Verdict {
    let pod = subject.pod();
    let sandbox = subject.sandbox(&pod).await;
    let id = subject.started(&pod, &sandbox, ready_shell(subject, STUBBORN)).await;
    await_ready(subject, &id).await;
    let started = tokio::time::Instant::now();
    subject.operations.stop_container(&uid_of(&pod), &id, 1).await.expect("it stops");
    assert!(started.elapsed() >= Duration::from_millis(990), "{:?}", started.elapsed());
    let ended = subject.exited(&id).await;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (137, "Error"));
    None
}

async fn a_shorter_stop_ends_a_longer_one(subject: &Subject) -> Verdict {
    let pod = subject.pod();
    let sandbox = subject.sandbox(&pod).await;
    let id = subject.started(&pod, &sandbox, ready_shell(subject, STUBBORN)).await;
    await_ready(subject, &id).await;
    let uid = uid_of(&pod);
    let started = tokio::time::Instant::now();
    let long = subject.operations.stop_container(&uid, &id, 100);
    subject.operations.stop_container(&uid, &id, 0).await.expect("it stops");
    assert!(started.elapsed() < Duration::from_secs(50), "{:?}", started.elapsed());
    assert_eq!(subject.exited(&id).await.exit_code, 137);
    // The longer call ends too; containerd may answer that the container is gone.
    let ended = tokio::time::timeout(Duration::from_secs(50), long).await;
    assert!(ended.is_ok(), "the longer stop went on");
    subject.operations.settled(&uid).await;
    None
}

async fn resources_can_be_updated(subject: &Subject) -> Verdict {
    let pod = subject.pod();
    let sandbox = subject.sandbox(&pod).await;
    let id = subject.started(&pod, &sandbox, subject.shell("main", 0, SLEEPER)).await;
    let linux = LinuxContainerResources { cpu_shares: 512, ..Default::default() };
    let request = UpdateContainerResourcesRequest {
        container_id: id.clone(),
        linux: Some(linux),
        ..Default::default()
    };
    subject.operations.update_container_resources(&uid_of(&pod), request).await.expect("it is updated");
    let told = subject.status(&id).await.resources.and_then(|resources| resources.linux);
    match told {
        Some(told) => assert_eq!(told.cpu_shares, 512),
        None => return Some("updated, but the runtime does not tell resources (containerd 1.6)".into()),
    }
    None
}

async fn usage_is_told_for_running_containers(subject: &Subject) -> Verdict {
    let pod = subject.pod();
    let sandbox = subject.sandbox(&pod).await;
    let id = subject.started(&pod, &sandbox, subject.shell("main", 0, SLEEPER)).await;
    let one = subject.operations.container_stats(ContainerStatsRequest { container_id: id.clone() }).await;
    let one = one.expect("usage").stats.expect("stats");
    assert_eq!(one.attributes.expect("attributes").id, id);
    assert!(one.cpu.expect("CPU").timestamp > 0);
    assert!(one.memory.and_then(|memory| memory.working_set_bytes).expect("memory").value > 0);
    let filter = ContainerStatsFilter { pod_sandbox_id: sandbox, ..Default::default() };
    let list =
        subject.operations.list_container_stats(ListContainerStatsRequest { filter: Some(filter) }).await;
    let listed: Vec<String> =
        list.expect("a list").stats.into_iter().filter_map(|stats| Some(stats.attributes?.id)).collect();
    assert_eq!(listed, [id]);
    None
}

async fn logs_are_in_the_cri_format(subject: &Subject) -> Verdict {
    let pod = subject.pod();
    let sandbox = subject.sandbox(&pod).await;
    let id = subject.started(&pod, &sandbox, subject.shell("main", 0, "echo hello; sleep 1000")).await;
    let told = subject.status(&id).await.log_path;
    let path = std::path::Path::new(&pod.log_directory).join("main/0.log");
    assert_eq!(std::path::Path::new(&told), path);
    for _ in 0..500 {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if let Some(line) = text.lines().next() {
            let (at, rest) = line.split_once(' ').expect("a time first");
            assert!(at.contains('T') && rest == "stdout F hello", "{line}");
            return None;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no line in {}", path.display());
}

async fn a_log_is_begun_anew_and_goes_on_there(subject: &Subject) -> Verdict {
    let pod = subject.pod();
    let sandbox = subject.sandbox(&pod).await;
    let counts = "n=0; while true; do echo line-$n; n=$((n+1)); sleep 0.01; done";
    let id = subject.started(&pod, &sandbox, subject.shell("main", 0, counts)).await;
    let path = std::path::Path::new(&pod.log_directory).join("main/0.log");
    let numbers = |path: &std::path::Path| -> Vec<u64> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let number = |line: &str| line.rsplit_once("line-").and_then(|(_, number)| number.parse().ok());
        text.split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
            .filter_map(|line| number(line.trim_end()))
            .collect()
    };
    let is_real = subject.place == Place::Real;
    let grown = async |path: &std::path::Path| {
        for _ in 0..500 {
            if path.exists() && (!is_real || numbers(path).len() >= 3) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("nothing in {}", path.display());
    };
    let reopen = async |id: &str| subject.operations.reopen_container_log("reopened", id).await;
    grown(&path).await;
    // The process goes on writing to the file that it has open.
    let before = std::fs::read(&path).expect("a log");
    reopen(&id).await.expect("it is reopened");
    assert!(std::fs::read(&path).expect("a log").starts_with(&before), "nothing is lost");
    let aside = path.with_file_name("0.log.20260102-150405");
    std::fs::rename(&path, &aside).expect("it is put aside");
    assert!(!path.exists());
    reopen(&id).await.expect("it is reopened");
    grown(&path).await;
    if is_real {
        // Output on its way to the earlier file has arrived when that file no longer grows.
        let settled = async || {
            for _ in 0..500 {
                let (earlier, later) = (numbers(&aside), numbers(&path));
                let all: Vec<u64> = earlier.iter().chain(&later).copied().collect();
                if all.len() as u64 == all.last().map_or(0, |last| last + 1) && all.is_sorted() {
                    return true;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            false
        };
        assert!(settled().await, "lines are lost: {:?} {:?}", numbers(&aside), numbers(&path));
    }
    subject.operations.stop_container("reopened", &id, 0).await.expect("it stops");
    assert!(reopen(&id).await.is_err(), "what does not run has no log to begin");
    assert!(reopen("0123456789abcdef").await.is_err(), "nor has what is not there");
    None
}

async fn a_process_exit_is_seen_at_once(subject: &Subject) -> Verdict {
    let pod = subject.pod();
    let sandbox = subject.sandbox(&pod).await;
    let id = subject.started(&pod, &sandbox, subject.shell("main", 0, "sleep 0.5; exit 7")).await;
    let verbose = ContainerStatusRequest { container_id: id.clone(), verbose: true };
    let told = subject.operations.container_status(verbose).await.expect("it is there");
    let Some(pid) = container_pid(&told) else {
        panic!("no pid of a running container in {:?}", told.info);
    };
    let mut exits = subject.exits.exits();
    subject.exits.watch(&id, pid).expect("a watch");
    let seen = tokio::time::timeout(Duration::from_secs(30), exits.next()).await.expect("the exit is seen");
    assert_eq!(seen, Some(Exited { container_id: id.clone(), pid }));
    let ended =
        subject.operations.status_after_exit(&id).await.expect("it is there").status.expect("a status");
    assert_eq!((ended.state(), ended.exit_code), (ContainerState::ContainerExited, 7));
    // For a process that has ended before it is watched, the end is told at once.
    subject.exits.watch(&id, pid).expect("a watch");
    let gone = tokio::time::timeout(Duration::from_secs(5), exits.next()).await.expect("told at once");
    assert_eq!(gone, Some(Exited { container_id: id, pid }));
    None
}

async fn events_tell_of_starts_and_stops(subject: &Subject) -> Verdict {
    let mut events = match subject.operations.get_container_events().await {
        Ok(events) => events,
        Err(error) => {
            assert!(error.is_unimplemented(), "{error:?}");
            return Some(format!("the runtime has no event stream: {error}"));
        }
    };
    let pod = subject.pod();
    let sandbox = subject.sandbox(&pod).await;
    let id = subject.started(&pod, &sandbox, subject.shell("main", 0, "exit 7")).await;
    let mut kinds = Vec::new();
    let told = async {
        while let Some(event) = events.next().await {
            let event = event.expect("the stream goes on");
            if event.container_id == id {
                kinds.push(event.container_event_type());
            }
            if kinds.last() == Some(&ContainerEventType::ContainerStoppedEvent) {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), told).await.expect("the stop is told");
    let all = [
        ContainerEventType::ContainerCreatedEvent,
        ContainerEventType::ContainerStartedEvent,
        ContainerEventType::ContainerStoppedEvent,
    ];
    assert_eq!(kinds, all);
    None
}

async fn images_are_known_by_name_and_id(subject: &Subject) -> Verdict {
    let named = async |image: &str| {
        let image = Some(ImageSpec { image: image.to_owned(), ..Default::default() });
        let told = subject.operations.image_status(ImageStatusRequest { image, verbose: false }).await;
        told.expect("an answer").image
    };
    let image = named(&subject.image).await.expect("the test image");
    assert!(image.id.starts_with("sha256:") && image.size > 0, "{image:?}");
    assert_eq!(named(&image.id).await.map(|found| found.id), Some(image.id.clone()));
    assert_eq!(named("localhost/understudy/absent:none").await, None);
    let list = subject.operations.list_images(ListImagesRequest::default()).await.expect("a list");
    assert!(list.images.iter().any(|listed| listed.id == image.id), "{list:?}");
    let info = subject.operations.image_fs_info(ImageFsInfoRequest {}).await.expect("an answer");
    let id = info.image_filesystems.first().and_then(|usage| usage.fs_id.clone()).expect("a file system");
    assert!(id.mountpoint.starts_with('/'), "{id:?}");
    None
}

async fn the_same_ensure_at_the_same_time_makes_one(subject: &Subject) -> Verdict {
    let pod = subject.pod();
    let uid = uid_of(&pod);
    let ensure = || subject.operations.ensure_sandbox(&uid, 0, pod.clone(), String::new());
    let (first, second) = (ensure(), ensure());
    assert_eq!(subject.operations.in_flight(&uid).len(), 1);
    drop(first);
    subject.operations.settled(&uid).await;
    assert!(subject.operations.in_flight(&uid).is_empty());
    // The sandbox is created, or adopted if a busy machine let the answer come too late: there is one in both cases.
    let id = second.await.expect("the sandbox runs").into_id();
    let filter = PodSandboxFilter { label_selector: subject.case_labels(), ..Default::default() };
    let list = subject.operations.list_pod_sandbox(ListPodSandboxRequest { filter: Some(filter) }).await;
    let ids: Vec<String> = list.expect("a list").items.into_iter().map(|sandbox| sandbox.id).collect();
    assert_eq!(ids, [id]);
    None
}

async fn a_lost_reply_is_adopted(subject: &Subject) -> Verdict {
    let Some(fake) = &subject.fake else {
        return Some("a real runtime cannot be told to lose a reply".into());
    };
    let pod = subject.pod();
    let uid = uid_of(&pod);
    for fault in [Fault::LostReply, Fault::BrokenConnection] {
        fake.fault(Rpc::RunPodSandbox, 1, fault.clone());
        let ensured = subject.operations.ensure_sandbox(&uid, 0, pod.clone(), String::new()).await;
        let Ok(Ensured::Adopted(sandbox)) = ensured else { panic!("{fault:?}: {ensured:?}") };
        fake.fault(Rpc::CreateContainer, 1, fault.clone());
        let config = subject.shell("main", 0, SLEEPER);
        let ensured = subject.operations.ensure_container(&uid, &sandbox, 0, config, pod.clone()).await;
        assert!(matches!(ensured, Ok(Ensured::Adopted(_))), "{fault:?}: {ensured:?}");
        assert_eq!((fake.sandboxes().len(), fake.containers().len()), (1, 1));
        subject.operations.remove_pod_sandbox(&uid, &sandbox).await.expect("it is removed");
    }
    None
}

/// Deadlines that cut off the creation of a sandbox at any point: whatever the runtime did, one ready sandbox remains.
async fn unknown_outcomes_end_in_one_sandbox(subject: &Subject) -> Verdict {
    if subject.place == Place::Fake {
        return Some("needs a socket between asker and runtime".into());
    }
    for first_ms in [5, 20, 40, 80, 120, 160] {
        let pod = subject.pod();
        let uid = uid_of(&pod);
        if let Some(fake) = &subject.fake {
            fake.fault(Rpc::RunPodSandbox, 1, Fault::Latency(Duration::from_millis(60)));
        }
        let mut attempt = 0;
        let mut deadline_ms = first_ms;
        let id = loop {
            let hurried = subject.hurried(Duration::from_millis(deadline_ms));
            let mut config = pod.clone();
            config.metadata.get_or_insert_default().attempt = attempt;
            match hurried.ensure_sandbox(&uid, attempt, config, String::new()).await {
                Ok(ensured) => break ensured.into_id(),
                Err(EnsureError::RaiseAttempt { .. }) => attempt += 1,
                Err(EnsureError::NotLooked { .. }) => {}
                Err(error) => panic!("deadline {deadline_ms} ms: {error}"),
            }
            deadline_ms *= 10;
            assert!(attempt < 8, "the attempt goes on rising");
        };
        let ready = Some(PodSandboxStateValue { state: PodSandboxState::SandboxReady.into() });
        let label_selector = [(POD_UID_LABEL.to_owned(), uid)].into();
        let filter = PodSandboxFilter { label_selector, state: ready, ..Default::default() };
        let list = subject.operations.list_pod_sandbox(ListPodSandboxRequest { filter: Some(filter) }).await;
        let ids: Vec<String> = list.expect("a list").items.into_iter().map(|sandbox| sandbox.id).collect();
        assert_eq!(ids, [id], "first deadline {first_ms} ms");
    }
    None
}
