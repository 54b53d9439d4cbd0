//! How the client behaves when the runtime behind its socket hangs, dies and comes back.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bridge_cri::fake::{FakeRuntime, Fault, RegistryImage, serve_fake};
use bridge_cri::wire::*;
use bridge_cri::{
    CriClient, CriErrorKind, CriMetrics, Deadlines, Endpoints, Operations, PullShare, Rpc, Runtime,
};
use bridge_io::Io;

use crate::subject::{temporary, wait_real_time as block_on};

pub const ALL: &[(&str, fn())] = &[
    ("a_frozen_runtime_is_a_deadline_exceeded", frozen),
    ("a_killed_and_restarted_runtime_is_reached_again", restarted),
    ("a_dropped_asker_does_not_cancel_a_mutating_call", dropped_asker),
    ("a_cancelled_pull_is_cancelled_at_the_runtime", cancelled_pull),
    ("a_message_over_the_limit_is_refused", too_large),
    ("images_may_be_served_elsewhere", other_image_endpoint),
];

fn client(io: &Io, socket: &std::path::Path, request: Duration) -> CriClient {
    let mut endpoints = Endpoints::new(format!("unix://{}", socket.display()));
    endpoints.deadlines = Deadlines::new(request);
    CriClient::new(io, &endpoints).expect("an endpoint")
}

fn image(name: &str) -> Option<ImageSpec> {
    Some(ImageSpec { image: name.into(), ..Default::default() })
}

/// A stopped process still accepts connections into its backlog and answers nothing.
fn frozen() {
    let (io, directory) = (Io::start(1).expect("an I/O runtime"), temporary());
    let socket = directory.path().join("cri.sock");
    let _listener = UnixListener::bind(&socket).expect("a socket");
    let client = client(&io.io(), &socket, Duration::from_millis(300));
    let started = Instant::now();
    let reads = [client.version(VersionRequest::default()), client.version(VersionRequest::default())];
    for answer in block_on(futures::future::join_all(reads)) {
        assert_eq!(answer.expect_err("nobody answers").kind, CriErrorKind::DeadlineExceeded);
    }
    let stop = StopContainerRequest { container_id: "a".into(), timeout: 1 };
    let error = block_on(client.stop_container(stop)).expect_err("nobody answers");
    assert!(error.outcome_unknown() && error.operation == Rpc::StopContainer, "{error}");
    assert!(started.elapsed() >= Duration::from_millis(1600), "the grace period is added");
    assert!(started.elapsed() < Duration::from_secs(20));
}

fn restarted() {
    let (io, directory) = (Io::start(1).expect("an I/O runtime"), temporary());
    let socket = directory.path().join("cri.sock");
    let fake = io.io().enter(|| FakeRuntime::new(1));
    let client = client(&io.io(), &socket, Duration::from_secs(5));
    for _ in 0..3 {
        let serving = serve_fake(&socket, fake.clone()).expect("a socket");
        let started = Instant::now();
        while let Err(error) = block_on(client.version(VersionRequest::default())) {
            assert_eq!(error.kind, CriErrorKind::Unavailable, "{error}");
            assert!(started.elapsed() < Duration::from_secs(10), "not reached again: {error}");
            std::thread::sleep(Duration::from_millis(20));
        }
        // One call is in flight when the runtime dies.
        fake.fault(Rpc::Status, 1, Fault::Hang);
        let before = fake.counts().get(&Rpc::Status).copied().unwrap_or(0);
        let asked = io.io().spawn(client.status(StatusRequest::default()));
        while fake.counts().get(&Rpc::Status).copied().unwrap_or(0) == before {
            std::thread::yield_now();
        }
        drop(serving);
        let error = block_on(asked).expect("no panic").expect_err("the connection broke");
        assert_eq!(error.kind, CriErrorKind::Unavailable, "{error}");
        let error = block_on(client.version(VersionRequest::default())).expect_err("nobody listens");
        assert_eq!(error.kind, CriErrorKind::Unavailable, "{error}");
    }
}

fn dropped_asker() {
    let (io, directory) = (Io::start(1).expect("an I/O runtime"), temporary());
    let fake = io.io().enter(|| FakeRuntime::new(1));
    let serving = serve_fake(&directory.path().join("cri.sock"), fake.clone()).expect("a socket");
    let client = client(&io.io(), serving.path(), Duration::from_secs(5));
    fake.fault(Rpc::RunPodSandbox, 1, Fault::Latency(Duration::from_millis(200)));
    let metadata = PodSandboxMetadata { name: "a".into(), uid: "u".into(), ..Default::default() };
    let config = PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
    let run = client.run_pod_sandbox(RunPodSandboxRequest { config: Some(config), ..Default::default() });
    let asker = io.io().spawn(run);
    wait_until(|| fake.counts().contains_key(&Rpc::RunPodSandbox));
    asker.abort();
    wait_until(|| fake.sandboxes().len() == 1);
}

fn cancelled_pull() {
    let (io, directory) = (Io::start(1).expect("an I/O runtime"), temporary());
    let fake = io.io().enter(|| FakeRuntime::new(1));
    let slow = RegistryImage { takes: Duration::from_secs(2), ..Default::default() };
    fake.publish("big", slow);
    let serving = serve_fake(&directory.path().join("cri.sock"), fake.clone()).expect("a socket");
    let client = client(&io.io(), serving.path(), Duration::from_secs(5));
    let metrics = CriMetrics::new().expect("well-formed names");
    let operations = Operations::new(Arc::new(client.clone()), io.io(), metrics);
    let share = PullShare::of(["nobody"]);
    let pull = operations.pull_image(PullImageRequest { image: image("big"), ..Default::default() }, share);
    wait_until(|| fake.counts().contains_key(&Rpc::PullImage));
    assert_eq!(operations.cancel_pull("big", share), 1);
    assert!(block_on(pull).expect_err("cancelled").outcome_unknown());
    // Well past the time the pull would have taken, the runtime has no such image.
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(3) {
        let status = ImageStatusRequest { image: image("big"), verbose: false };
        assert!(block_on(client.image_status(status)).expect("an answer").image.is_none());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn too_large() {
    let (io, directory) = (Io::start(1).expect("an I/O runtime"), temporary());
    let fake = io.io().enter(|| FakeRuntime::new(1));
    let serving = serve_fake(&directory.path().join("cri.sock"), fake.clone()).expect("a socket");
    let client = client(&io.io(), serving.path(), Duration::from_secs(20));
    let run = |bytes: usize| {
        let metadata = PodSandboxMetadata { name: "a".into(), uid: bytes.to_string(), ..Default::default() };
        let annotations = [("filler".to_owned(), "x".repeat(bytes))].into();
        let config = PodSandboxConfig { metadata: Some(metadata), annotations, ..Default::default() };
        block_on(client.run_pod_sandbox(RunPodSandboxRequest { config: Some(config), ..Default::default() }))
    };
    run(15 << 20).expect("15 MiB pass");
    let error = run(17 << 20).expect_err("17 MiB do not");
    assert_eq!(error.kind, CriErrorKind::ResourceExhausted, "{error}");
    assert_eq!(fake.sandboxes().len(), 1);
}

fn other_image_endpoint() {
    let (io, directory) = (Io::start(1).expect("an I/O runtime"), temporary());
    let (pods, images) = io.io().enter(|| (FakeRuntime::new(1), FakeRuntime::new(2)));
    let pods = serve_fake(&directory.path().join("pods.sock"), pods).expect("a socket");
    images.add_image("app", RegistryImage::default());
    let images = serve_fake(&directory.path().join("images.sock"), images).expect("a socket");
    let mut endpoints = Endpoints::new(pods.path().display().to_string());
    endpoints.image = Some(format!("unix://{}", images.path().display()));
    let client = CriClient::new(&io.io(), &endpoints).expect("endpoints");
    assert_eq!(block_on(client.list_images(ListImagesRequest::default())).expect("a list").images.len(), 1);
    assert!(
        block_on(client.list_pod_sandbox(ListPodSandboxRequest::default())).expect("a list").items.is_empty()
    );
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(10), "it did not happen within 10 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}
