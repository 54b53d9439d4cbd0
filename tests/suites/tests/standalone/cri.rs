//! A client of the runtime beside the kubelet: reads its state, and changes it behind the kubelet's back.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::wire::*;
use bridge_cri::{CriClient, CriError, Endpoints, Runtime, container_pid};
use bridge_io::{Io, IoRuntime};
use serde_json::Value;
use testkit::process::eventually;

pub const NAMESPACE_LABEL: &str = "io.kubernetes.pod.namespace";
pub const UID_LABEL: &str = "io.kubernetes.pod.uid";
pub const POD_NAME_LABEL: &str = "io.kubernetes.pod.name";
pub const CONTAINER_NAME_LABEL: &str = "io.kubernetes.container.name";

/// How long what was called for may take to be seen.
const SETTLED: Duration = Duration::from_secs(90);

/// Blocking calls to the runtime.
pub struct Cri {
    client: CriClient,
    _io: Arc<IoRuntime>,
}

impl Cri {
    pub fn new(socket: &str) -> Self {
        let io = Io::start(1).expect("an I/O runtime");
        let client = CriClient::new(&io.io(), &Endpoints::new(socket)).expect("a socket's path");
        Self { client, _io: Arc::new(io) }
    }

    /// The sandboxes with this label, in whatever state.
    pub fn sandboxes(&self, label: &str, value: &str) -> Vec<PodSandbox> {
        let filter = PodSandboxFilter { label_selector: labels(label, value), ..Default::default() };
        let request = ListPodSandboxRequest { filter: Some(filter) };
        block_on(self.client.list_pod_sandbox(request)).expect("a list of sandboxes").items
    }

    /// The containers with this label, in whatever state.
    pub fn containers(&self, label: &str, value: &str) -> Vec<Container> {
        let filter = ContainerFilter { label_selector: labels(label, value), ..Default::default() };
        let request = ListContainersRequest { filter: Some(filter) };
        block_on(self.client.list_containers(request)).expect("a list of containers").containers
    }

    /// The running containers with this label.
    pub fn running(&self, label: &str, value: &str) -> Vec<Container> {
        let all = self.containers(label, value);
        all.into_iter().filter(|c| c.state() == ContainerState::ContainerRunning).collect()
    }

    /// Whether the runtime's default handler makes mounts read-only with all that is mounted below them.
    pub fn makes_recursive_read_only(&self) -> bool {
        let status = block_on(self.client.status(StatusRequest { verbose: false })).expect("a status");
        let default = status.runtime_handlers.iter().find(|handler| handler.name.is_empty());
        default.and_then(|handler| handler.features).is_some_and(|has| has.recursive_read_only_mounts)
    }

    /// Whether the runtime mounts images and parts of them as volumes: containerd does from 2.2 on.
    pub fn mounts_images(&self) -> bool {
        let told = block_on(self.client.version(VersionRequest::default())).expect("a version");
        let version = told.runtime_version.trim_start_matches('v');
        let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        (parts.next(), parts.next()) >= (Some(2), Some(2))
    }

    /// A container's status; `None` if it does not exist.
    pub fn status(&self, id: &str) -> Option<ContainerStatus> {
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        block_on(self.client.container_status(request)).ok()?.status
    }

    /// The process ID of a running container's first process.
    pub fn pid(&self, id: &str) -> u32 {
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: true };
        let status = block_on(self.client.container_status(request)).expect("the container is there");
        container_pid(&status).expect("a running container has a process")
    }

    /// The runtime's own record of the configuration with which a container was created.
    pub fn config(&self, id: &str) -> Value {
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: true };
        let status = block_on(self.client.container_status(request)).expect("the container is there");
        let info: Value = serde_json::from_str(&status.info["info"]).expect("containerd tells in JSON");
        info["config"].clone()
    }

    pub fn sandbox_status(&self, id: &str) -> PodSandboxStatus {
        let request = PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
        let told = block_on(self.client.pod_sandbox_status(request)).expect("the sandbox is there");
        told.status.expect("a status")
    }

    /// Removes a container, running or not.
    #[track_caller]
    pub fn remove_container(&self, id: &str) {
        let request = RemoveContainerRequest { container_id: id.to_owned() };
        let removed = block_on(self.client.remove_container(request));
        settles("the container is removed", removed, || self.status(id).is_none());
    }

    /// Stops a sandbox with all that runs in it.
    #[track_caller]
    pub fn stop_sandbox(&self, id: &str) {
        let request = StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        let stopped = block_on(self.client.stop_pod_sandbox(request));
        settles("the sandbox is stopped", stopped, || {
            self.seek_sandbox(id).is_none_or(|sandbox| sandbox.state() == PodSandboxState::SandboxNotready)
        });
    }

    /// Removes a sandbox.
    #[track_caller]
    pub fn remove_sandbox(&self, id: &str) {
        let request = RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        let removed = block_on(self.client.remove_pod_sandbox(request));
        settles("the sandbox is removed", removed, || self.seek_sandbox(id).is_none());
    }

    fn seek_sandbox(&self, id: &str) -> Option<PodSandbox> {
        let filter = PodSandboxFilter { id: id.to_owned(), ..Default::default() };
        let request = ListPodSandboxRequest { filter: Some(filter) };
        block_on(self.client.list_pod_sandbox(request)).expect("a list of sandboxes").items.pop()
    }

    /// Removes every pod of a namespace; the error is for people.
    pub fn sweep(&self, namespace: &str) -> Result<(), String> {
        let filter =
            PodSandboxFilter { label_selector: labels(NAMESPACE_LABEL, namespace), ..Default::default() };
        let request = ListPodSandboxRequest { filter: Some(filter) };
        let list = block_on(self.client.list_pod_sandbox(request)).map_err(|error| error.to_string())?;
        for sandbox in list.items {
            let id = sandbox.id;
            let stop = StopPodSandboxRequest { pod_sandbox_id: id.clone() };
            block_on(self.client.stop_pod_sandbox(stop)).map_err(|error| error.to_string())?;
            let remove = RemovePodSandboxRequest { pod_sandbox_id: id };
            block_on(self.client.remove_pod_sandbox(remove)).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

fn labels(label: &str, value: &str) -> BTreeMap<String, String> {
    [(label.to_owned(), value.to_owned())].into()
}

/// Waits as an actor's thread does: without I/O of its own.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    tokio.block_on(future)
}

/// The kubelet may do at the same moment what a test does behind its back, and the runtime may then refuse the slower of
/// the two calls. What counts is that it is done.
#[track_caller]
fn settles(what: &str, called: Result<impl Sized, CriError>, done: impl Fn() -> bool) {
    if let Err(error) = called {
        eventually(what, SETTLED, || if done() { Ok(()) } else { Err(error.to_string()) });
    }
}
