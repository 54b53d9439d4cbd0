//! The floor: the same calls to the runtime as a kubelet makes, without a kubelet.

use std::time::Duration;

use bench::Samples;
use bridge_cri::Runtime;
use bridge_cri::wire::*;
use futures::future::try_join_all;
use serde::Serialize;
use tokio::time::Instant;

use crate::error::BenchError;
use crate::pods;
use crate::process::{RuntimeCpu, machine_busy_s, seconds};
use crate::runtime::Observer;
use crate::settings::Settings;

/// The floor's figures, seconds.
#[derive(Debug, Default, Serialize)]
pub struct Floor {
    /// One pod: until its container runs.
    pub start_s: Samples,
    /// One pod: until its sandbox is removed.
    pub delete_s: Samples,
    /// Pods at once: until all run.
    pub burst_start_s: Samples,
    /// Pods at once: until all are removed.
    pub burst_delete_s: Samples,
    /// CPU of the runtime for each burst of starts.
    pub burst_start_cpu: Vec<RuntimeCpu>,
    /// CPU of the runtime for each burst of deletions; the shims' own is lost with them.
    pub burst_delete_cpu: Vec<RuntimeCpu>,
    /// CPU of the whole machine for each burst of starts, others' work included.
    pub burst_start_machine_s: Vec<Option<f64>>,
    /// CPU of the runtime with those pods and no client, cores.
    pub idle: Option<IdleRuntime>,
    /// One pod, call by call.
    pub steps_s: Steps,
}

/// The runtime with pods and no kubelet, cores.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct IdleRuntime {
    /// containerd: it collects the sandboxes' statistics by itself from 2.x on.
    pub containerd_cores: f64,
    /// All shims.
    pub shims_cores: f64,
}

/// Single calls, seconds.
#[derive(Debug, Default, Serialize)]
pub struct Steps {
    run_pod_sandbox: Samples,
    create_container: Samples,
    start_container: Samples,
}

struct Started {
    sandbox: String,
    container: String,
    at: [Duration; 3],
}

/// Measures `rounds` single pods and one burst, and adds them to the figures.
pub async fn measure(
    settings: &Settings,
    observer: &Observer,
    rounds: usize,
    floor: &mut Floor,
) -> Result<(), BenchError> {
    for round in 0..rounds {
        single(settings, observer, &format!("floor-{round}"), floor).await?;
    }
    burst(settings, observer, floor).await
}

async fn single(
    settings: &Settings,
    observer: &Observer,
    name: &str,
    floor: &mut Floor,
) -> Result<(), BenchError> {
    prepare(settings, name)?;
    let begun = Instant::now();
    let pod = start(settings, observer, name).await?;
    floor.start_s.push(seconds(begun.elapsed()));
    let [sandbox, created, started] = pod.at;
    floor.steps_s.run_pod_sandbox.push(seconds(sandbox));
    floor.steps_s.create_container.push(seconds(created - sandbox));
    floor.steps_s.start_container.push(seconds(started - created));
    tokio::time::sleep(pods::SETTLE).await;
    let begun = Instant::now();
    observer.delete(&pod.sandbox, &pod.container).await?;
    floor.delete_s.push(seconds(begun.elapsed()));
    Ok(())
}

async fn burst(settings: &Settings, observer: &Observer, floor: &mut Floor) -> Result<(), BenchError> {
    let names: Vec<String> = (0..settings.pods).map(|pod| format!("floor-burst-{pod}")).collect();
    names.iter().try_for_each(|name| prepare(settings, name))?;
    let runtime = || RuntimeCpu::of(settings.containerd_pid, &settings.socket);

    let (before, busy, begun) = (runtime(), machine_busy_s(), Instant::now());
    let pods = try_join_all(names.iter().map(|name| start(settings, observer, name))).await?;
    floor.burst_start_s.push(seconds(begun.elapsed()));
    floor.burst_start_machine_s.push(machine_busy_s().zip(busy).map(|(after, before)| after - before));
    floor.burst_start_cpu.push(runtime().since(before));

    tokio::time::sleep(pods::SETTLE).await;
    if floor.idle.is_none() {
        tokio::time::sleep(pods::SETTLE_MANY).await;
        let (before, begun) = (runtime(), Instant::now());
        tokio::time::sleep(settings.idle).await;
        let (cpu, elapsed) = (runtime().since(before), seconds(begun.elapsed()));
        floor.idle = Some(IdleRuntime {
            containerd_cores: cpu.containerd.all_s() / elapsed,
            shims_cores: cpu.shims.all_s() / elapsed,
        });
    }
    let (before, begun) = (runtime(), Instant::now());
    try_join_all(pods.iter().map(|pod| observer.delete(&pod.sandbox, &pod.container))).await?;
    floor.burst_delete_s.push(seconds(begun.elapsed()));
    floor.burst_delete_cpu.push(runtime().since(before));
    Ok(())
}

fn files_of(settings: &Settings, name: &str) -> std::path::PathBuf {
    settings.work.join("floor").join(name)
}

/// The files that the container mounts; a kubelet's own work, so not part of the floor.
fn prepare(settings: &Settings, name: &str) -> Result<(), BenchError> {
    let dir = files_of(settings, name);
    std::fs::create_dir_all(&dir).map_err(BenchError::io("create", &dir))?;
    for file in ["etc-hosts", "termination-log"] {
        let file = dir.join(file);
        std::fs::write(&file, "127.0.0.1\tlocalhost\n").map_err(BenchError::io("write", &file))?;
    }
    Ok(())
}

async fn start(settings: &Settings, observer: &Observer, name: &str) -> Result<Started, BenchError> {
    let begun = Instant::now();
    let client = &observer.client;
    let logs = settings.work.join("logs");
    let sandbox_config = pods::sandbox_config(name, &settings.cgroup_parent, &logs);
    let run = RunPodSandboxRequest { config: Some(sandbox_config.clone()), runtime_handler: String::new() };
    let sandbox = client.run_pod_sandbox(run).await?.pod_sandbox_id;
    let sandbox_at = begun.elapsed();
    let create = CreateContainerRequest {
        pod_sandbox_id: sandbox.clone(),
        config: Some(pods::container_config(name, &files_of(settings, name))),
        sandbox_config: Some(sandbox_config),
    };
    let container = client.create_container(create).await?.container_id;
    let created_at = begun.elapsed();
    client.start_container(StartContainerRequest { container_id: container.clone() }).await?;
    let started_at = begun.elapsed();
    let request = ContainerStatusRequest { container_id: container.clone(), verbose: false };
    let status = client.container_status(request).await?.status.unwrap_or_default();
    if status.state() != ContainerState::ContainerRunning {
        return Err(BenchError::Wrong(format!("{name} is {:?} after its start", status.state())));
    }
    Ok(Started { sandbox, container, at: [sandbox_at, created_at, started_at] })
}
