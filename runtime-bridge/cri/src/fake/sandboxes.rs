//! The fake's sandboxes.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::about::unimplemented;
use super::node::{Node, State};
use crate::error::{CriError, CriErrorKind};
use crate::rpc::Rpc;
use crate::wire::*;

/// The addresses of the pod network 10.244.0.0/16 that sandboxes are given.
const ADDRESSES: std::ops::Range<u16> = 2..u16::MAX;

pub(super) struct FakeSandbox {
    id: String,
    pub(super) config: PodSandboxConfig,
    handler: String,
    ready: bool,
    created_at: i64,
    address: Option<u16>,
    dual_stack: bool,
    pid: u32,
}

/// Whether an object with these labels matches a selector.
pub(super) fn labelled(labels: &BTreeMap<String, String>, selector: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

impl FakeSandbox {
    fn state(&self) -> PodSandboxState {
        if self.ready { PodSandboxState::SandboxReady } else { PodSandboxState::SandboxNotready }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    pub(super) fn listed(&self) -> PodSandbox {
        PodSandbox {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state().into(),
            created_at: self.created_at,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            runtime_handler: self.handler.clone(),
        }
    }

    fn namespaces(&self) -> NamespaceOption {
        let security = self.config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
        security.and_then(|security| security.namespace_options.clone()).unwrap_or_default()
    }

    pub(super) fn status(&self) -> PodSandboxStatus {
        let ip = self.address.map(|host| format!("10.244.{}.{}", host >> 8, host & 0xff)).unwrap_or_default();
        let second = self
            .address
            .filter(|_| self.dual_stack)
            .map(|host| PodIp { ip: format!("fd00:10:244::{host:x}") });
        PodSandboxStatus {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state().into(),
            created_at: self.created_at,
            network: Some(PodSandboxNetworkStatus { ip, additional_ips: second.into_iter().collect() }),
            linux: Some(LinuxPodSandboxStatus {
                namespaces: Some(Namespace { options: Some(self.namespaces()) }),
            }),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            runtime_handler: self.handler.clone(),
        }
    }

    /// The name by which containerd reserves it; only one sandbox can hold a name.
    fn name(&self) -> String {
        self.config.metadata.as_ref().map(sandbox_name).unwrap_or_default()
    }
}

fn sandbox_name(metadata: &PodSandboxMetadata) -> String {
    format!("{}_{}_{}_{}", metadata.name, metadata.namespace, metadata.uid, metadata.attempt)
}

fn absent(rpc: Rpc, id: &str) -> CriError {
    let message = format!("an error occurred when try to find sandbox: sandbox {id:?}: not found");
    CriError::new(rpc, CriErrorKind::NotFound, message)
}

impl State {
    /// The sandbox of this ID, or the error that there is none.
    pub(super) fn sandbox(&self, rpc: Rpc, id: &str) -> Result<&FakeSandbox, CriError> {
        self.sandboxes.get(id).ok_or_else(|| absent(rpc, id))
    }

    fn run_pod_sandbox(&mut self, request: RunPodSandboxRequest) -> Result<String, CriError> {
        let rpc = Rpc::RunPodSandbox;
        let refuse = |kind, message: String| Err(CriError::new(rpc, kind, message));
        let Some((config, metadata)) =
            request.config.as_ref().and_then(|config| Some((config, config.metadata.as_ref()?)))
        else {
            return refuse(CriErrorKind::InvalidArgument, "sandbox config must include metadata".to_owned());
        };
        let handler = request.runtime_handler;
        if !handler.is_empty() && !self.handlers.iter().any(|known| known.name == handler) {
            let message = format!("failed to get sandbox runtime: no runtime for {handler:?} is configured");
            return refuse(CriErrorKind::Other, message);
        }
        let name = sandbox_name(metadata);
        if let Some(holder) = self.names.get(&name) {
            let message =
                format!("failed to reserve sandbox name {name:?}: name {name:?} is reserved for {holder:?}");
            return refuse(CriErrorKind::Other, message);
        }
        let network = self.conditions.iter().all(|known| known.r#type != "NetworkReady" || known.status);
        let mut sandbox = FakeSandbox {
            id: self.new_id(),
            config: config.clone(),
            handler,
            ready: true,
            created_at: self.now_ns(),
            address: None,
            dual_stack: self.dual_stack,
            pid: self.new_pid(),
        };
        if sandbox.namespaces().network() != NamespaceMode::Node {
            let free = ADDRESSES.into_iter().find(|host| !self.addresses.contains(host));
            let Some(free) = free.filter(|_| network) else {
                let message = format!(
                    "failed to setup network for sandbox {:?}: cni plugin not initialized",
                    sandbox.id
                );
                return refuse(CriErrorKind::Other, message);
            };
            self.addresses.insert(free);
            sandbox.address = Some(free);
        }
        let (id, at) = (sandbox.id.clone(), sandbox.created_at);
        self.names.insert(name, id.clone());
        self.sandboxes.insert(id.clone(), sandbox);
        self.event(&id, &id, ContainerEventType::ContainerCreatedEvent, at);
        self.event(&id, &id, ContainerEventType::ContainerStartedEvent, at);
        Ok(id)
    }

    /// Kills the sandbox's containers and frees its address; returns whether it was ready.
    pub(super) fn end_sandbox(&mut self, id: &str) -> bool {
        let Some(sandbox) = self.sandboxes.get_mut(id).filter(|sandbox| sandbox.ready) else { return false };
        sandbox.ready = false;
        if let Some(address) = sandbox.address.take() {
            self.addresses.remove(&address);
        }
        let now = Instant::now();
        for container in self.containers.values_mut().filter(|container| container.sandbox_id == id) {
            container.kill_at(now);
        }
        self.advance(now);
        let at = self.ns_of(now);
        self.event(id, id, ContainerEventType::ContainerStoppedEvent, at);
        true
    }

    pub(super) fn remove_pod_sandbox(&mut self, id: &str) {
        self.end_sandbox(id);
        let inside: Vec<String> = self
            .containers
            .iter()
            .filter(|(_, container)| container.sandbox_id == id)
            .map(|(id, _)| id.clone())
            .collect();
        for container in inside {
            self.remove_container(&container);
        }
        if let Some(sandbox) = self.sandboxes.remove(id) {
            self.names.remove(&sandbox.name());
            let at = self.now_ns();
            self.event(id, id, ContainerEventType::ContainerDeletedEvent, at);
        }
    }
}

impl Node {
    pub(super) async fn run_pod_sandbox(
        self: Arc<Self>,
        request: RunPodSandboxRequest,
    ) -> Result<RunPodSandboxResponse, CriError> {
        self.update(|state| state.run_pod_sandbox(request))
            .map(|pod_sandbox_id| RunPodSandboxResponse { pod_sandbox_id })
    }

    pub(super) async fn stop_pod_sandbox(
        self: Arc<Self>,
        request: StopPodSandboxRequest,
    ) -> Result<StopPodSandboxResponse, CriError> {
        self.update(|state| state.end_sandbox(&request.pod_sandbox_id));
        Ok(StopPodSandboxResponse {})
    }

    pub(super) async fn remove_pod_sandbox(
        self: Arc<Self>,
        request: RemovePodSandboxRequest,
    ) -> Result<RemovePodSandboxResponse, CriError> {
        self.update(|state| state.remove_pod_sandbox(&request.pod_sandbox_id));
        Ok(RemovePodSandboxResponse {})
    }

    pub(super) async fn pod_sandbox_status(
        self: Arc<Self>,
        request: PodSandboxStatusRequest,
    ) -> Result<PodSandboxStatusResponse, CriError> {
        self.update(|state| {
            let id = request.pod_sandbox_id;
            let sandbox = state.sandbox(Rpc::PodSandboxStatus, &id)?;
            let mut info = BTreeMap::new();
            if request.verbose {
                let pid = if sandbox.ready { sandbox.pid } else { 0 };
                let details = serde_json::json!({ "pid": pid, "image": "registry.k8s.io/pause:3.10" });
                info.insert("info".to_owned(), details.to_string());
            }
            let inside = state.containers.values().filter(|container| container.sandbox_id == id);
            Ok(PodSandboxStatusResponse {
                status: state.tells_statuses.then(|| sandbox.status()),
                info,
                containers_statuses: inside
                    .filter(|_| state.events.on)
                    .map(super::containers::FakeContainer::status)
                    .collect(),
                timestamp: if state.events.on { state.now_ns() } else { 0 },
            })
        })
    }

    pub(super) async fn list_pod_sandbox(
        self: Arc<Self>,
        request: ListPodSandboxRequest,
    ) -> Result<ListPodSandboxResponse, CriError> {
        let filter = request.filter.unwrap_or_default();
        let wanted = |sandbox: &FakeSandbox| {
            (filter.id.is_empty() || filter.id == sandbox.id)
                && filter.state.is_none_or(|wanted| wanted.state() == sandbox.state())
                && labelled(&sandbox.config.labels, &filter.label_selector)
        };
        let listed = |state: &mut State| {
            state.sandboxes.values().filter(|sandbox| wanted(sandbox)).map(FakeSandbox::listed).collect()
        };
        self.fitting(Rpc::ListPodSandbox, ListPodSandboxResponse { items: self.update(listed) })
    }

    pub(super) async fn update_pod_sandbox_resources(
        self: Arc<Self>,
        request: UpdatePodSandboxResourcesRequest,
    ) -> Result<UpdatePodSandboxResourcesResponse, CriError> {
        self.update(|state| {
            let id = request.pod_sandbox_id;
            let found = state.sandboxes.get_mut(&id);
            let sandbox = found.ok_or_else(|| absent(Rpc::UpdatePodSandboxResources, &id))?;
            let linux = sandbox.config.linux.get_or_insert_default();
            linux.overhead = request.overhead;
            linux.resources = request.resources;
            Ok(UpdatePodSandboxResourcesResponse {})
        })
    }

    pub(super) async fn port_forward(
        self: Arc<Self>,
        request: PortForwardRequest,
    ) -> Result<PortForwardResponse, CriError> {
        self.update(|state| {
            state.sandbox(Rpc::PortForward, &request.pod_sandbox_id)?;
            let address = state.streaming_address.clone().ok_or_else(|| unimplemented(Rpc::PortForward))?;
            Ok(PortForwardResponse { url: format!("{address}/portforward/{}", request.pod_sandbox_id) })
        })
    }
}
