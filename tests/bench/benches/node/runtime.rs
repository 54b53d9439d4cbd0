//! The runtime seen from outside: the benchmark's pods in it.

use std::time::Duration;

use bridge_cri::wire::*;
use bridge_cri::{CriClient, Deadlines, Endpoints, Runtime, container_pid};
use bridge_io::Io;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::Instant;

use crate::error::BenchError;
use crate::pods::{GRACE_S, LABEL};
use crate::settings::Settings;

/// A container of the benchmark.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    /// Its id.
    pub id: String,
    /// When it started, nanoseconds since 1970 by the runtime's clock; zero before.
    pub started_ns: i64,
    /// Its process while it runs.
    pub pid: Option<u32>,
}

/// The observer.
#[derive(Clone)]
pub struct Observer {
    /// The connection, for calls without a kubelet.
    pub client: CriClient,
}

impl Observer {
    /// Connects with the first call.
    pub fn new(settings: &Settings) -> Result<Self, BenchError> {
        // Calls of a burst queue in the runtime.
        let deadlines = Deadlines::new(settings.burst_within() / 2);
        let endpoints = Endpoints { deadlines, ..Endpoints::new(settings.socket.display().to_string()) };
        Ok(Self { client: CriClient::new(&Io::current(), &endpoints)? })
    }

    /// Sandboxes of all pods, or of the one with this name.
    pub async fn sandboxes(&self, name: Option<&str>) -> Result<Vec<PodSandbox>, BenchError> {
        let filter = name.map(|name| PodSandboxFilter {
            label_selector: [(LABEL.to_owned(), name.to_owned())].into(),
            ..PodSandboxFilter::default()
        });
        Ok(self.client.list_pod_sandbox(ListPodSandboxRequest { filter }).await?.items)
    }

    /// Ids of all containers in this state.
    pub async fn containers(&self, state: ContainerState) -> Result<Vec<String>, BenchError> {
        let filter = ContainerFilter {
            state: Some(ContainerStateValue { state: state.into() }),
            ..ContainerFilter::default()
        };
        let list = self.client.list_containers(ListContainersRequest { filter: Some(filter) }).await?;
        Ok(list.containers.into_iter().map(|container| container.id).collect())
    }

    /// The newest container of the pod, by its sandbox.
    pub async fn container_of(&self, name: &str) -> Result<Option<Seen>, BenchError> {
        for sandbox in self.sandboxes(Some(name)).await? {
            let filter = ContainerFilter { pod_sandbox_id: sandbox.id, ..ContainerFilter::default() };
            let list = self.client.list_containers(ListContainersRequest { filter: Some(filter) }).await?;
            if let Some(newest) = list.containers.iter().max_by_key(|container| container.created_at) {
                return Ok(Some(self.status(&newest.id).await?));
            }
        }
        Ok(None)
    }

    async fn status(&self, id: &str) -> Result<Seen, BenchError> {
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: true };
        let answer = self.client.container_status(request).await?;
        let started_ns = answer.status.as_ref().map_or(0, |status| status.started_at);
        Ok(Seen { id: id.to_owned(), started_ns, pid: container_pid(&answer) })
    }

    /// All running containers, in the order of their ids.
    pub async fn running(&self) -> Result<Vec<Seen>, BenchError> {
        let mut seen = Vec::new();
        for id in self.containers(ContainerState::ContainerRunning).await? {
            seen.push(self.status(&id).await?);
        }
        seen.sort();
        Ok(seen)
    }

    /// Waits until so many containers run.
    pub async fn until_running(
        &self,
        count: usize,
        every: Duration,
        within: Duration,
    ) -> Result<(), BenchError> {
        let deadline = Instant::now() + within;
        loop {
            let running = self.containers(ContainerState::ContainerRunning).await?.len();
            if running >= count {
                return Ok(());
            }
            if Instant::now() > deadline {
                let seen = format!("{running} run");
                return Err(BenchError::Late { what: format!("{count} running containers"), within, seen });
            }
            tokio::time::sleep(every).await;
        }
    }

    /// Waits until no sandbox is ready and no container runs, and then until no sandbox is left. Returns both times
    /// since `since`, the second only if that happens within `gone_within`.
    pub async fn until_gone(
        &self,
        name: Option<&str>,
        since: Instant,
        every: Duration,
        stopped_within: Duration,
        gone_within: Duration,
    ) -> Result<(Duration, Option<Duration>), BenchError> {
        let mut stopped = None;
        loop {
            let sandboxes = self.sandboxes(name).await?;
            let ready =
                sandboxes.iter().filter(|sandbox| sandbox.state() == PodSandboxState::SandboxReady).count();
            let elapsed = since.elapsed();
            if ready == 0 && stopped.is_none() {
                stopped = Some(elapsed);
            }
            match stopped {
                Some(stopped) if sandboxes.is_empty() => return Ok((stopped, Some(elapsed))),
                Some(stopped) if elapsed > gone_within => return Ok((stopped, None)),
                None if elapsed > stopped_within => {
                    let seen = format!("{ready} sandboxes are ready");
                    let what = "stopped pods".to_owned();
                    return Err(BenchError::Late { what, within: stopped_within, seen });
                }
                _ => tokio::time::sleep(every).await,
            }
        }
    }

    /// Removes all pods, so that the next measurement starts with an empty runtime.
    pub async fn clear(&self) -> Result<(), BenchError> {
        let sandboxes = self.sandboxes(None).await?;
        let remove = |id: String| async move {
            let stop = StopPodSandboxRequest { pod_sandbox_id: id.clone() };
            self.client.stop_pod_sandbox(stop).await?;
            self.client.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: id }).await
        };
        let mut removals: FuturesUnordered<_> =
            sandboxes.into_iter().map(|sandbox| remove(sandbox.id)).collect();
        while let Some(removed) = removals.next().await {
            removed?;
        }
        Ok(())
    }

    /// Stops and removes a pod as a kubelet does, step by step.
    pub async fn delete(&self, sandbox: &str, container: &str) -> Result<(), BenchError> {
        let container_id = container.to_owned();
        let pod_sandbox_id = sandbox.to_owned();
        let stop = StopContainerRequest { container_id: container_id.clone(), timeout: GRACE_S };
        self.client.stop_container(stop).await?;
        self.client
            .stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() })
            .await?;
        self.client.remove_container(RemoveContainerRequest { container_id }).await?;
        self.client.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id }).await?;
        Ok(())
    }
}
