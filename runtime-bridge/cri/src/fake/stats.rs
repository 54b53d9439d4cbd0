//! The fake's statistics: a container uses CPU at a constant rate and a constant amount of memory while it runs.

use std::sync::Arc;

use tokio::time::Instant;

use super::containers::FakeContainer;
use super::node::{Node, State};
use super::sandboxes::labelled;
use crate::error::CriError;
use crate::rpc::Rpc;
use crate::wire::*;

/// The bytes that each container is reported to have written.
const WRITTEN_BYTES: u64 = 4096;

fn value(value: u64) -> Option<UInt64Value> {
    Some(UInt64Value { value })
}

impl State {
    pub(super) fn set_usage(&mut self, id: &str, cpu_millis: u64, memory_bytes: u64) {
        if let Some(container) = self.containers.get_mut(id) {
            container.behaviour.cpu_millis = cpu_millis;
            container.behaviour.memory_bytes = memory_bytes;
        }
    }

    fn container_stats(&self, container: &FakeContainer) -> ContainerStats {
        let timestamp = self.now_ns();
        let ran = container.started.map(|started| Instant::now().saturating_duration_since(started));
        let ran_ns = u64::try_from(ran.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX);
        let Behaved { cpu_millis, memory } = Behaved::of(container);
        ContainerStats {
            attributes: Some(ContainerAttributes {
                id: container.id.clone(),
                metadata: container.config.metadata.clone(),
                labels: container.config.labels.clone(),
                annotations: container.config.annotations.clone(),
            }),
            cpu: Some(CpuUsage {
                timestamp,
                usage_core_nano_seconds: value((ran_ns / 1000).saturating_mul(cpu_millis)),
                usage_nano_cores: value(cpu_millis * 1_000_000),
                psi: None,
            }),
            memory: Some(MemoryUsage {
                timestamp,
                working_set_bytes: value(memory),
                usage_bytes: value(memory),
                rss_bytes: value(memory),
                ..Default::default()
            }),
            writable_layer: Some(FilesystemUsage {
                timestamp,
                fs_id: Some(FilesystemIdentifier { mountpoint: self.image_directory.clone() }),
                used_bytes: value(WRITTEN_BYTES),
                inodes_used: value(1),
            }),
            ..Default::default()
        }
    }

    fn sandbox_stats(&self, id: &str) -> Result<PodSandboxStats, CriError> {
        let config = &self.sandbox(Rpc::PodSandboxStats, id)?.config;
        let inside = self.containers.values().filter(|container| container.sandbox_id == id);
        let running: Vec<&FakeContainer> = inside.filter(|container| container.is_running()).collect();
        let containers: Vec<ContainerStats> =
            running.iter().map(|container| self.container_stats(container)).collect();
        let timestamp = self.now_ns();
        let memory = running.iter().map(|container| container.behaviour.memory_bytes).sum();
        let nano_cores = running.iter().map(|container| container.behaviour.cpu_millis * 1_000_000).sum();
        let core_ns =
            containers.iter().filter_map(|stats| stats.cpu?.usage_core_nano_seconds).map(|ns| ns.value);
        Ok(PodSandboxStats {
            attributes: Some(PodSandboxAttributes {
                id: id.to_owned(),
                metadata: config.metadata.clone(),
                labels: config.labels.clone(),
                annotations: config.annotations.clone(),
            }),
            linux: Some(LinuxPodSandboxStats {
                cpu: Some(CpuUsage {
                    timestamp,
                    usage_core_nano_seconds: value(core_ns.sum()),
                    usage_nano_cores: value(nano_cores),
                    psi: None,
                }),
                memory: Some(MemoryUsage {
                    timestamp,
                    working_set_bytes: value(memory),
                    usage_bytes: value(memory),
                    rss_bytes: value(memory),
                    ..Default::default()
                }),
                process: Some(ProcessUsage { timestamp, process_count: value(running.len() as u64) }),
                containers,
                ..Default::default()
            }),
        })
    }
}

/// The present usage of a container: 0 when it does not run.
struct Behaved {
    cpu_millis: u64,
    memory: u64,
}

impl Behaved {
    fn of(container: &FakeContainer) -> Self {
        match container.is_running() {
            true => {
                Self { cpu_millis: container.behaviour.cpu_millis, memory: container.behaviour.memory_bytes }
            }
            false => Self { cpu_millis: 0, memory: 0 },
        }
    }
}

impl Node {
    pub(super) async fn container_stats(
        self: Arc<Self>,
        request: ContainerStatsRequest,
    ) -> Result<ContainerStatsResponse, CriError> {
        self.update(|state| {
            let id = &request.container_id;
            let container = state.containers.get(id);
            let container = container.ok_or_else(|| super::containers::absent(Rpc::ContainerStats, id))?;
            Ok(ContainerStatsResponse { stats: Some(state.container_stats(container)) })
        })
    }

    pub(super) async fn list_container_stats(
        self: Arc<Self>,
        request: ListContainerStatsRequest,
    ) -> Result<ListContainerStatsResponse, CriError> {
        let filter = request.filter.unwrap_or_default();
        let wanted = |container: &&FakeContainer| {
            (filter.id.is_empty() || filter.id == container.id)
                && (filter.pod_sandbox_id.is_empty() || filter.pod_sandbox_id == container.sandbox_id)
                && labelled(&container.config.labels, &filter.label_selector)
                && container.is_running()
        };
        let stats = self.update(|state| {
            let containers = state.containers.values().filter(wanted);
            containers.map(|container| state.container_stats(container)).collect()
        });
        Ok(ListContainerStatsResponse { stats })
    }

    pub(super) async fn pod_sandbox_stats(
        self: Arc<Self>,
        request: PodSandboxStatsRequest,
    ) -> Result<PodSandboxStatsResponse, CriError> {
        let stats = self.update(|state| state.sandbox_stats(&request.pod_sandbox_id))?;
        Ok(PodSandboxStatsResponse { stats: Some(stats) })
    }

    pub(super) async fn list_pod_sandbox_stats(
        self: Arc<Self>,
        request: ListPodSandboxStatsRequest,
    ) -> Result<ListPodSandboxStatsResponse, CriError> {
        let filter = request.filter.unwrap_or_default();
        let stats = self.update(|state| {
            let wanted = state.sandboxes.iter().filter(|(id, sandbox)| {
                (filter.id.is_empty() || filter.id == **id)
                    && labelled(&sandbox.config.labels, &filter.label_selector)
            });
            wanted.map(|(id, _)| state.sandbox_stats(id)).collect::<Result<_, _>>()
        })?;
        Ok(ListPodSandboxStatsResponse { stats })
    }

    pub(super) async fn list_metric_descriptors(
        self: Arc<Self>,
        _: ListMetricDescriptorsRequest,
    ) -> Result<ListMetricDescriptorsResponse, CriError> {
        Ok(ListMetricDescriptorsResponse::default())
    }

    pub(super) async fn list_pod_sandbox_metrics(
        self: Arc<Self>,
        _: ListPodSandboxMetricsRequest,
    ) -> Result<ListPodSandboxMetricsResponse, CriError> {
        Ok(ListPodSandboxMetricsResponse::default())
    }
}
