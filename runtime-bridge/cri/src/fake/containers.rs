//! The fake's containers: created, started, stopped and removed. They exit when their script says so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::node::{Node, State};
use super::sandboxes::labelled;
use super::script::{Behaviour, Match, OnTerm};
use crate::error::{CriError, CriErrorKind};
use crate::rpc::Rpc;
use crate::wire::*;
use bridge_node::host::FakeDisk;

pub(super) struct FakeContainer {
    pub(super) id: String,
    pub(super) sandbox_id: String,
    pub(super) config: ContainerConfig,
    pub(super) behaviour: Behaviour,
    pub(super) started: Option<Instant>,
    pub(super) pid: u32,
    name: String,
    log_directory: String,
    image_id: String,
    created_at: i64,
    started_at: i64,
    finished_at: i64,
    state: ContainerState,
    exit_code: i32,
    reason: String,
    message: String,
    exit: Option<Exit>,
}

/// When and how a running container will end, unless something changes.
#[derive(Clone, Copy)]
struct Exit {
    at: Instant,
    code: i32,
    oom: bool,
}

impl FakeContainer {
    pub(super) fn is_running(&self) -> bool {
        self.state == ContainerState::ContainerRunning
    }

    fn exits_at(&self) -> Option<Instant> {
        self.exit.filter(|_| self.is_running()).map(|exit| exit.at)
    }

    /// Plans an exit, unless an earlier one is planned.
    fn plan(&mut self, exit: Exit) {
        if self.is_running() && self.exit.is_none_or(|known| exit.at < known.at) {
            self.exit = Some(exit);
        }
    }

    pub(super) fn kill_at(&mut self, at: Instant) {
        self.plan(Exit { at, code: 137, oom: false });
    }

    pub(super) fn status(&self) -> ContainerStatus {
        let linux = self.config.linux.as_ref();
        ContainerStatus {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state.into(),
            created_at: self.created_at,
            started_at: self.started_at,
            finished_at: self.finished_at,
            exit_code: self.exit_code,
            image: self.config.image.clone(),
            image_ref: self.image_id.clone(),
            reason: self.reason.clone(),
            message: self.message.clone(),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            mounts: self.config.mounts.clone(),
            log_path: self.log_path().display().to_string(),
            resources: Some(ContainerResources { linux: linux.and_then(|linux| linux.resources.clone()) }),
            image_id: self.image_id.clone(),
            user: Some(ContainerUser { linux: Some(LinuxContainerUser::default()) }),
            stop_signal: self.config.stop_signal,
        }
    }

    fn listed(&self) -> Container {
        Container {
            id: self.id.clone(),
            pod_sandbox_id: self.sandbox_id.clone(),
            metadata: self.config.metadata.clone(),
            image: self.config.image.clone(),
            image_ref: self.image_id.clone(),
            state: self.state.into(),
            created_at: self.created_at,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            image_id: self.image_id.clone(),
        }
    }

    fn log_path(&self) -> std::path::PathBuf {
        std::path::Path::new(&self.log_directory).join(&self.config.log_path)
    }

    /// Creates the log file; an existing one keeps its content.
    fn begin_log(&self) -> std::io::Result<()> {
        std::fs::File::options().append(true).create(true).open(self.log_path()).map(drop)
    }

    fn begin_log_on(&self, disk: &FakeDisk) {
        if disk.kind(self.log_path()).is_none() {
            disk.write(self.log_path(), Vec::new(), 0o640);
        }
    }

    fn write_log(&self, at_ns: i64) -> std::io::Result<()> {
        let path = self.log_path();
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let at = jiff::Timestamp::from_nanosecond(at_ns.into()).unwrap_or_default();
        let lines: String = self.behaviour.log.iter().map(|line| format!("{at} stdout F {line}\n")).collect();
        std::fs::write(path, lines)
    }
}

impl Match {
    fn fits(&self, config: &ContainerConfig) -> bool {
        match self {
            Match::Any => true,
            Match::Image(image) => config
                .image
                .as_ref()
                .is_some_and(|spec| [&spec.image, &spec.user_specified_image].contains(&image)),
            Match::Container(name) => config.metadata.as_ref().is_some_and(|metadata| metadata.name == *name),
            Match::Command(part) => {
                let words: Vec<&str> =
                    config.command.iter().chain(&config.args).map(String::as_str).collect();
                words.join(" ").contains(part)
            }
        }
    }
}

pub(super) fn absent(rpc: Rpc, id: &str) -> CriError {
    let message = format!("an error occurred when try to find container {id:?}: not found");
    CriError::new(rpc, CriErrorKind::NotFound, message)
}

impl State {
    pub(super) fn new_pid(&mut self) -> u32 {
        self.pids += 1;
        self.pids
    }

    pub(super) fn container(&mut self, rpc: Rpc, id: &str) -> Result<&mut FakeContainer, CriError> {
        self.containers.get_mut(id).ok_or_else(|| absent(rpc, id))
    }

    /// When the next container exits, as planned now.
    pub(super) fn next_exit(&self) -> Option<Instant> {
        self.containers.values().filter_map(FakeContainer::exits_at).min()
    }

    /// Carries out the exits that are due, in the order of their times.
    pub(super) fn advance(&mut self, now: Instant) {
        let mut due: Vec<(Instant, String)> = self
            .containers
            .values()
            .filter_map(|container| Some((container.exits_at()?, container.id.clone())))
            .filter(|(at, _)| *at <= now)
            .collect();
        due.sort();
        for (at, id) in due {
            let at_ns = self.ns_of(at);
            let Some(container) = self.containers.get_mut(&id) else { continue };
            let Some(exit) = container.exit.take() else { continue };
            container.state = ContainerState::ContainerExited;
            container.finished_at = at_ns;
            container.exit_code = exit.code;
            let reason = if exit.code == 0 { "Completed" } else { "Error" };
            container.reason = if exit.oom { "OOMKilled" } else { reason }.to_owned();
            let sandbox_id = container.sandbox_id.clone();
            self.event(&sandbox_id, &id, ContainerEventType::ContainerStoppedEvent, at_ns);
        }
    }

    pub(super) fn exit_now(&mut self, id: &str, code: i32, oom: bool) -> bool {
        let now = Instant::now();
        let Some(container) = self.containers.get_mut(id).filter(|container| container.is_running()) else {
            return false;
        };
        container.exit = Some(Exit { at: now, code, oom });
        self.advance(now);
        true
    }

    fn behaviour(&self, config: &ContainerConfig) -> Behaviour {
        let attempt = config.metadata.as_ref().map_or(0, |metadata| metadata.attempt as usize);
        let script = self.behaviours.iter().rev().find(|(which, _)| which.fits(config));
        let played = script.and_then(|(_, script)| script.get(attempt).or(script.last()));
        played.cloned().unwrap_or_else(Behaviour::forever)
    }

    fn create_container(&mut self, request: CreateContainerRequest) -> Result<String, CriError> {
        let rpc = Rpc::CreateContainer;
        let refuse = |kind, message: String| Err(CriError::new(rpc, kind, message));
        let Some((config, metadata)) =
            request.config.as_ref().and_then(|config| Some((config, config.metadata.as_ref()?)))
        else {
            return refuse(
                CriErrorKind::InvalidArgument,
                "container config must include metadata".to_owned(),
            );
        };
        let sandbox = self.sandbox(rpc, &request.pod_sandbox_id)?;
        let pod = sandbox.config.metadata.clone().unwrap_or_default();
        let log_directory = sandbox.config.log_directory.clone();
        let name =
            format!("{}_{}_{}_{}_{}", metadata.name, pod.name, pod.namespace, pod.uid, metadata.attempt);
        if let Some(holder) = self.names.get(&name) {
            let message = format!(
                "failed to reserve container name {name:?}: name {name:?} is reserved for {holder:?}"
            );
            return refuse(CriErrorKind::Other, message);
        }
        let wanted = config.image.as_ref().map(|spec| spec.image.clone()).unwrap_or_default();
        let Some(image_id) = self.image(&wanted).map(|image| image.id.clone()) else {
            let message = format!("failed to resolve image {wanted:?}: not found");
            return refuse(CriErrorKind::NotFound, message);
        };
        if let Err(message) = self.mount_images(&config.mounts) {
            return refuse(CriErrorKind::Other, message);
        }
        let behaviour = self.behaviour(config);
        if let Some(message) = behaviour.create_error {
            return refuse(CriErrorKind::Other, message);
        }
        let container = FakeContainer {
            id: self.new_id(),
            sandbox_id: request.pod_sandbox_id,
            config: config.clone(),
            behaviour,
            started: None,
            pid: 0,
            name: name.clone(),
            log_directory,
            image_id,
            created_at: self.now_ns(),
            started_at: 0,
            finished_at: 0,
            state: ContainerState::ContainerCreated,
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            exit: None,
        };
        let (id, sandbox_id, at) = (container.id.clone(), container.sandbox_id.clone(), container.created_at);
        self.names.insert(name, id.clone());
        self.containers.insert(id.clone(), container);
        self.event(&sandbox_id, &id, ContainerEventType::ContainerCreatedEvent, at);
        Ok(id)
    }

    /// Whether the images among the mounts can be mounted. A containerd before 2.1 takes them for directories without a name.
    fn mount_images(&self, mounts: &[Mount]) -> Result<(), String> {
        for mount in mounts {
            match &mount.image {
                _ if !mount.host_path.is_empty() => {}
                Some(image) if self.mounts_images => {
                    if self.image(&image.image).is_none() {
                        let image = &image.image;
                        return Err(format!(
                            "failed to mount image volume: ImageVolumeMountFailed: failed to resolve image {image:?}: not found"
                        ));
                    }
                }
                _ => {
                    let why = "failed to mkdir \"\": mkdir : no such file or directory";
                    return Err(format!("failed to generate spec: {why}"));
                }
            }
        }
        Ok(())
    }

    fn start_container(&mut self, id: &str) -> Result<(), CriError> {
        let rpc = Rpc::StartContainer;
        let refuse = |message: String| Err(CriError::new(rpc, CriErrorKind::Other, message));
        let (now, at_ns, pid, writes_logs) =
            (Instant::now(), self.now_ns(), self.new_pid(), self.writes_logs);
        let log_disk = self.log_disk.clone();
        let sandbox_id = self.container(rpc, id)?.sandbox_id.clone();
        let sandbox_ready = self.sandboxes.get(&sandbox_id).is_some_and(|sandbox| sandbox.is_ready());
        let container = self.container(rpc, id)?;
        if container.state != ContainerState::ContainerCreated {
            return refuse(format!(
                "failed to set starting state for container {id:?}: container is not in created state"
            ));
        }
        if !sandbox_ready {
            return refuse(format!("sandbox container {sandbox_id:?} is not running"));
        }
        if let Some(message) = container.behaviour.start_error.clone() {
            container.state = ContainerState::ContainerExited;
            container.finished_at = at_ns;
            container.exit_code = 128;
            container.reason = "StartError".to_owned();
            container.message.clone_from(&message);
            return refuse(message);
        }
        container.state = ContainerState::ContainerRunning;
        container.started = Some(now);
        container.started_at = at_ns;
        container.pid = pid;
        if let Some(runs_for) = container.behaviour.runs_for {
            let (code, oom) = (container.behaviour.exit_code, container.behaviour.oom);
            container.plan(Exit { at: now + runs_for, code, oom });
        }
        if writes_logs && let Err(error) = container.write_log(at_ns) {
            return refuse(format!("write log of container {id:?}: {error}"));
        }
        if let Some(disk) = log_disk {
            container.begin_log_on(&disk);
        }
        self.event(&sandbox_id, id, ContainerEventType::ContainerStartedEvent, at_ns);
        self.advance(now);
        Ok(())
    }

    /// Plans the stop signal for now and SIGKILL for the end of the grace period.
    fn signal(&mut self, id: &str, grace: Duration) -> Result<(), CriError> {
        let now = Instant::now();
        let container = self.container(Rpc::StopContainer, id)?;
        if grace > Duration::ZERO
            && let OnTerm::Exits { after, code } = container.behaviour.on_term
        {
            container.plan(Exit { at: now + after, code, oom: false });
        }
        container.kill_at(now + grace);
        self.advance(now);
        Ok(())
    }

    pub(super) fn remove_container(&mut self, id: &str) {
        let now = Instant::now();
        if let Some(container) = self.containers.get_mut(id) {
            container.kill_at(now);
            self.advance(now);
        }
        if let Some(container) = self.containers.remove(id) {
            self.names.remove(&container.name);
            let at = self.now_ns();
            self.event(&container.sandbox_id, id, ContainerEventType::ContainerDeletedEvent, at);
        }
    }
}

impl Node {
    pub(super) async fn create_container(
        self: Arc<Self>,
        request: CreateContainerRequest,
    ) -> Result<CreateContainerResponse, CriError> {
        self.update(|state| state.create_container(request))
            .map(|container_id| CreateContainerResponse { container_id })
    }

    pub(super) async fn start_container(
        self: Arc<Self>,
        request: StartContainerRequest,
    ) -> Result<StartContainerResponse, CriError> {
        self.update(|state| state.start_container(&request.container_id)).map(|()| StartContainerResponse {})
    }

    pub(super) async fn stop_container(
        self: Arc<Self>,
        request: StopContainerRequest,
    ) -> Result<StopContainerResponse, CriError> {
        let grace = Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0));
        let id = request.container_id;
        let found = self.update(|state| state.signal(&id, grace));
        // A container that is gone counts as stopped.
        if found.is_ok() {
            self.wait_for(|state| {
                state.containers.get(&id).is_none_or(|container| !container.is_running()).then_some(())
            })
            .await;
        }
        Ok(StopContainerResponse {})
    }

    pub(super) async fn remove_container(
        self: Arc<Self>,
        request: RemoveContainerRequest,
    ) -> Result<RemoveContainerResponse, CriError> {
        self.update(|state| state.remove_container(&request.container_id));
        Ok(RemoveContainerResponse {})
    }

    pub(super) async fn list_containers(
        self: Arc<Self>,
        request: ListContainersRequest,
    ) -> Result<ListContainersResponse, CriError> {
        let filter = request.filter.unwrap_or_default();
        let wanted = |container: &FakeContainer| {
            (filter.id.is_empty() || filter.id == container.id)
                && (filter.pod_sandbox_id.is_empty() || filter.pod_sandbox_id == container.sandbox_id)
                && filter.state.is_none_or(|wanted| wanted.state() == container.state)
                && labelled(&container.config.labels, &filter.label_selector)
        };
        let listed = |state: &mut State| {
            state
                .containers
                .values()
                .filter(|container| wanted(container))
                .map(FakeContainer::listed)
                .collect()
        };
        self.fitting(Rpc::ListContainers, ListContainersResponse { containers: self.update(listed) })
    }

    pub(super) async fn container_status(
        self: Arc<Self>,
        request: ContainerStatusRequest,
    ) -> Result<ContainerStatusResponse, CriError> {
        self.update(|state| {
            let (tells_pids, tells_statuses) = (state.tells_pids, state.tells_statuses);
            let container = state.container(Rpc::ContainerStatus, &request.container_id)?;
            let mut info = BTreeMap::new();
            if request.verbose && tells_pids {
                let pid = if container.is_running() { container.pid } else { 0 };
                let verbose = serde_json::json!({ "sandboxID": container.sandbox_id, "pid": pid });
                info.insert("info".to_owned(), verbose.to_string());
            }
            let status = tells_statuses.then(|| container.status());
            Ok(ContainerStatusResponse { status, info })
        })
    }

    pub(super) async fn update_container_resources(
        self: Arc<Self>,
        request: UpdateContainerResourcesRequest,
    ) -> Result<UpdateContainerResourcesResponse, CriError> {
        self.update(|state| {
            let container = state.container(Rpc::UpdateContainerResources, &request.container_id)?;
            if container.state == ContainerState::ContainerExited {
                let message = "container is not in created or running state";
                return Err(CriError::new(Rpc::UpdateContainerResources, CriErrorKind::Other, message));
            }
            container.config.linux.get_or_insert_default().resources = request.linux;
            Ok(UpdateContainerResourcesResponse {})
        })
    }

    pub(super) async fn reopen_container_log(
        self: Arc<Self>,
        request: ReopenContainerLogRequest,
    ) -> Result<ReopenContainerLogResponse, CriError> {
        let rpc = Rpc::ReopenContainerLog;
        self.update(|state| {
            let (writes, disk) = (state.writes_logs, state.log_disk.clone());
            let container = state.container(rpc, &request.container_id)?;
            let failed = |message: String| CriError::new(rpc, CriErrorKind::Other, message);
            if !container.is_running() {
                return Err(failed("container is not running".to_owned()));
            }
            if writes {
                container.begin_log().map_err(|error| failed(format!("reopen log: {error}")))?;
            }
            if let Some(disk) = disk {
                container.begin_log_on(&disk);
            }
            Ok(ReopenContainerLogResponse {})
        })
    }
}
