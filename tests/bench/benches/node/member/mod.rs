//! A kubelet as a member of a cluster, given pods and watched through a real API server.

mod plane;
pub mod rows;

use std::path::Path;
use std::time::Duration;

use bench::Samples;
use bridge_kube::Select;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde::Serialize;
use tokio::time::Instant;

use crate::error::BenchError;
use crate::kubelet::Kubelet;
use crate::pods::{self, LABEL};
use crate::process::{Cpu, Memory, RuntimeCpu, seconds};
use crate::runtime::Observer;
use crate::scenario::progress;
use crate::settings::{Cluster, Settings};
use plane::{Asked, Plane, View, node_is_ready, pod_is_ready, shows_an_exit};

const NODE_WITHIN: Duration = Duration::from_secs(60);
const POD_WITHIN: Duration = Duration::from_secs(120);
const BURST_WITHIN: Duration = Duration::from_secs(300);
const STARTS: usize = 5;
const EXITS: usize = 5;
const KILLS: usize = 3;
/// A restarted kubelet has sent everything that it has to tell by then.
const SAID: Duration = Duration::from_secs(10);

/// A kubelet's figures. Seconds, unless the name says otherwise.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    /// The program's size, MB.
    pub binary_mb: Option<f64>,
    /// Start of the process until the Node, which was not there, is Ready.
    pub node_ready_s: Samples,
    /// Memory without pods.
    pub memory_empty: Option<Memory>,
    /// One pod: its creation until it is Ready.
    pub ready_s: Samples,
    /// One pod: its deletion until it is gone.
    pub gone_s: Samples,
    /// A container's process killed until the pod's status shows it.
    pub exit_written_s: Samples,
    /// Pods at once.
    pub burst: Option<Burst>,
    /// While all those pods run and nothing happens.
    pub idle: Option<Idle>,
    /// Requests while the kubelet is killed and started again with all those pods, several times.
    pub restarts: Option<Asked>,
    /// The same once more, with a pod that came meanwhile: from the start until that pod is Ready.
    pub restart_new_ready_s: Option<f64>,
    /// Number of containers that were replaced.
    pub replaced: Option<usize>,
    /// The API server away for a while: from its return until a new pod is Ready.
    pub outage_new_ready_s: Option<f64>,
    /// Requests of the node from the return until then.
    pub outage_asked: Option<Asked>,
    /// All those pods deleted at once.
    pub deleted: Option<Deleted>,
    /// Measurements without a figure, with their reasons.
    pub failures: Vec<String>,
}

/// Figures of pods created at once.
#[derive(Debug, Serialize)]
pub struct Burst {
    /// How many.
    pub pods: usize,
    /// First creation until all are Ready.
    pub ready_s: f64,
    /// CPU of the kubelet until then.
    pub kubelet_cpu: Cpu,
    /// CPU of the runtime until then.
    pub runtime_cpu: RuntimeCpu,
    /// The kubelet's memory after it.
    pub memory: Option<Memory>,
    /// Requests of the node.
    pub asked: Asked,
}

/// Figures while nothing happens.
#[derive(Debug, Serialize)]
pub struct Idle {
    /// CPU of the kubelet, cores.
    pub kubelet_cores: f64,
    /// CPU of containerd, cores.
    pub containerd_cores: f64,
    /// The kubelet's memory at the end.
    pub memory: Option<Memory>,
    /// Requests per pod and minute.
    pub requests_per_pod_minute: f64,
    /// Requests of the node.
    pub asked: Asked,
}

/// Figures of pods deleted at once.
#[derive(Debug, Serialize)]
pub struct Deleted {
    /// First deletion until the last is gone.
    pub gone_s: f64,
    /// CPU of the kubelet until then.
    pub kubelet_cpu: Cpu,
    /// The kubelet's memory after it.
    pub memory: Option<Memory>,
    /// Requests of the node.
    pub asked: Asked,
}

struct Scenario<'a> {
    settings: &'a Settings,
    outage: Duration,
    observer: &'a Observer,
    plane: Plane,
    node: String,
    kubelet: Kubelet,
}

/// Measures a kubelet. Failures are in the figures' `failures`.
pub async fn measure(
    settings: &Settings,
    cluster: &Cluster,
    observer: &Observer,
    name: &str,
    program: &Path,
) -> Figures {
    let mut figures = Figures::default();
    if let Err(error) = measured(settings, cluster, observer, name, program, &mut figures).await {
        figures.failures.push(error.to_string());
    }
    figures
}

async fn measured(
    settings: &Settings,
    cluster: &Cluster,
    observer: &Observer,
    name: &str,
    program: &Path,
    figures: &mut Figures,
) -> Result<(), BenchError> {
    let plane = Plane::new(&cluster.dir, &cluster.script)?;
    let node = format!("bench-{name}");
    let kubeconfig = plane.script("node", &[&node])?;
    let mut kubelet = Kubelet::new(settings, &format!("{name}-member"), program)?;
    kubelet.join(&node, Path::new(&kubeconfig));
    let outage = cluster.outage;
    let mut scenario = Scenario { settings, outage, observer, plane, node, kubelet };
    if let Err((phase, error)) = scenario.run(figures).await {
        figures.failures.push(format!("{phase}: {error}"));
    }
    scenario.kubelet.kill();
    // Starting it again does no harm if it runs.
    scenario.plane.script("start", &[])?;
    scenario.plane.clear(&scenario.node).await?;
    observer.clear().await
}

type Phase<T> = Result<T, (&'static str, BenchError)>;

impl Scenario<'_> {
    async fn run(&mut self, figures: &mut Figures) -> Phase<()> {
        let named = |phase| move |error| (phase, error);
        progress("starts without pods");
        self.starts(figures).await.map_err(named("starts without pods"))?;
        let mut pods = self.pods().await.map_err(named("the node's pods"))?;
        progress("single pods");
        self.singles(&mut pods, figures).await.map_err(named("single pods"))?;
        progress("exits");
        self.exits(&mut pods, figures).await.map_err(named("exits"))?;
        progress("pods at once");
        let names: Vec<String> = (0..self.settings.pods).map(|pod| format!("burst-{pod}")).collect();
        figures.burst = Some(self.burst(&mut pods, &names).await.map_err(named("pods at once"))?);
        progress("idle");
        figures.idle = Some(self.idle().await.map_err(named("idle"))?);
        progress("killed and started again");
        self.restarts(&mut pods, figures).await.map_err(named("killed and started again"))?;
        progress("the API server away");
        drop(pods);
        self.outage(figures).await.map_err(named("the API server away"))?;
        let mut pods = self.pods().await.map_err(named("the node's pods"))?;
        progress("all deleted at once");
        figures.deleted = Some(self.deleted(&mut pods, &names).await.map_err(named("all deleted at once"))?);
        Ok(())
    }

    async fn pods(&self) -> Result<View<Pod>, BenchError> {
        View::open(&self.plane, Select::pods_of(&self.node)).await
    }

    async fn until_node_ready(&mut self, since: Instant) -> Result<Duration, BenchError> {
        let mut nodes = View::<Node>::open(&self.plane, Select::named(None, &self.node)).await?;
        let ready = nodes.until("a Ready node", since, NODE_WITHIN, |all| all.values().any(node_is_ready));
        let ready = ready.await;
        self.kubelet.must_live()?;
        ready
    }

    async fn starts(&mut self, figures: &mut Figures) -> Result<(), BenchError> {
        for _ in 0..STARTS {
            self.kubelet.kill();
            self.plane.forget(&self.node).await?;
            let mut nodes = View::<Node>::open(&self.plane, Select::named(None, &self.node)).await?;
            let begun = self.kubelet.start()?;
            let ready =
                nodes.until("a Ready node", begun, NODE_WITHIN, |all| all.values().any(node_is_ready));
            figures.node_ready_s.push(seconds(ready.await?));
        }
        tokio::time::sleep(pods::SETTLE_MANY).await;
        self.kubelet.must_live()?;
        figures.memory_empty = self.kubelet.memory();
        Ok(())
    }

    async fn create(&self, name: &str) -> Result<(), BenchError> {
        self.plane.create(pods::bound(name, &self.node)).await
    }

    async fn until_ready(
        &mut self,
        pods: &mut View<Pod>,
        names: &[String],
        since: Instant,
        within: Duration,
    ) -> Result<Duration, BenchError> {
        let ready = |name: &String, all: &std::collections::BTreeMap<String, Pod>| {
            all.get(name).is_some_and(pod_is_ready)
        };
        let what = format!("{} ready pods", names.len());
        let done = pods.until(&what, since, within, |all| names.iter().all(|name| ready(name, all))).await;
        self.kubelet.must_live()?;
        done
    }

    async fn until_gone(
        &mut self,
        pods: &mut View<Pod>,
        names: &[String],
        since: Instant,
    ) -> Result<Duration, BenchError> {
        let what = format!("{} deleted pods", names.len());
        let gone =
            pods.until(&what, since, BURST_WITHIN, |all| !names.iter().any(|name| all.contains_key(name)));
        let gone = gone.await;
        self.kubelet.must_live()?;
        gone
    }

    async fn singles(&mut self, pods: &mut View<Pod>, figures: &mut Figures) -> Result<(), BenchError> {
        for round in 0..self.settings.rounds {
            let names = [format!("single-{round}")];
            let [name] = &names;
            let begun = Instant::now();
            self.create(name).await?;
            let ready = self.until_ready(pods, &names, begun, POD_WITHIN).await?;
            figures.ready_s.push(seconds(ready));
            tokio::time::sleep(pods::SETTLE).await;
            let begun = Instant::now();
            self.plane.delete(name).await?;
            figures.gone_s.push(seconds(self.until_gone(pods, &names, begun).await?));
        }
        Ok(())
    }

    async fn exits(&mut self, pods: &mut View<Pod>, figures: &mut Figures) -> Result<(), BenchError> {
        for round in 0..EXITS {
            let names = [format!("exit-{round}")];
            let [name] = &names;
            self.create(name).await?;
            self.until_ready(pods, &names, Instant::now(), POD_WITHIN).await?;
            let container = self.observer.container_of(name).await?;
            let pid = container.and_then(|container| container.pid);
            let pid = pid.and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?));
            let pid =
                pid.ok_or_else(|| BenchError::Wrong(format!("no process is known of {LABEL}={name}")))?;
            let begun = Instant::now();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL)
                .map_err(|error| BenchError::io("kill", "the container's process")(error.into()))?;
            let seen = pods.until("an exit in the status", begun, POD_WITHIN, |all| {
                all.get(name).is_some_and(shows_an_exit)
            });
            figures.exit_written_s.push(seconds(seen.await?));
            self.plane.delete(name).await?;
            self.until_gone(pods, &names, Instant::now()).await?;
        }
        Ok(())
    }

    async fn burst(&mut self, pods: &mut View<Pod>, names: &[String]) -> Result<Burst, BenchError> {
        let mark = self.plane.mark();
        let (cpu, runtime, begun) = (self.kubelet.cpu(), self.runtime_cpu(), Instant::now());
        try_join_all(names.iter().map(|name| self.create(name))).await?;
        let ready = self.until_ready(pods, names, begun, BURST_WITHIN).await?;
        let (kubelet_cpu, runtime_cpu) = (self.kubelet.cpu().since(cpu), self.runtime_cpu().since(runtime));
        let memory = self.kubelet.memory();
        let asked = self.plane.asked_since(mark, &self.node)?;
        let pods = names.len();
        Ok(Burst { pods, ready_s: seconds(ready), kubelet_cpu, runtime_cpu, memory, asked })
    }

    async fn idle(&mut self) -> Result<Idle, BenchError> {
        tokio::time::sleep(pods::SETTLE_MANY).await;
        let mark = self.plane.mark();
        let (cpu, runtime, begun) = (self.kubelet.cpu(), self.runtime_cpu(), Instant::now());
        tokio::time::sleep(self.settings.idle).await;
        let (cpu, runtime) = (self.kubelet.cpu().since(cpu), self.runtime_cpu().since(runtime));
        let elapsed = seconds(begun.elapsed());
        self.kubelet.must_live()?;
        let asked = self.plane.asked_since(mark, &self.node)?;
        Ok(Idle {
            kubelet_cores: cpu.own_s / elapsed,
            containerd_cores: runtime.containerd.all_s() / elapsed,
            memory: self.kubelet.memory(),
            requests_per_pod_minute: asked.count() as f64 / self.settings.pods as f64 * 60.0 / elapsed,
            asked,
        })
    }

    /// Restarts the kubelet several times while nothing else happens, then once with a new pod.
    async fn restarts(&mut self, pods: &mut View<Pod>, figures: &mut Figures) -> Result<(), BenchError> {
        let before = self.observer.running().await?;
        let mark = self.plane.mark();
        for _ in 0..KILLS {
            self.kubelet.kill();
            let begun = self.kubelet.start()?;
            self.until_node_ready(begun).await?;
            tokio::time::sleep(SAID).await;
        }
        figures.restarts = Some(self.plane.asked_since(mark, &self.node)?);

        let new = ["after-kill".to_owned()];
        let [new_name] = &new;
        self.kubelet.kill();
        self.create(new_name).await?;
        let begun = self.kubelet.start()?;
        let ready = self.until_ready(pods, &new, begun, POD_WITHIN).await?;
        figures.restart_new_ready_s = Some(seconds(ready));
        tokio::time::sleep(SAID).await;
        let after = self.observer.running().await?;
        figures.replaced = Some(before.iter().filter(|seen| !after.contains(seen)).count());
        self.plane.delete(new_name).await?;
        self.until_gone(pods, &new, Instant::now()).await?;
        Ok(())
    }

    async fn outage(&mut self, figures: &mut Figures) -> Result<(), BenchError> {
        self.plane.script("stop", &[])?;
        tokio::time::sleep(self.outage).await;
        let mark = self.plane.mark();
        self.plane.script("start", &[])?;
        let begun = Instant::now();
        // The benchmark's own client was cut off, too: a new one has no waits left over from the outage.
        let new = ["after-outage".to_owned()];
        let [new_name] = &new;
        self.create(new_name).await?;
        let mut pods = self.pods().await?;
        let ready = self.until_ready(&mut pods, &new, begun, POD_WITHIN).await?;
        figures.outage_new_ready_s = Some(seconds(ready));
        figures.outage_asked = Some(self.plane.asked_since(mark, &self.node)?);
        self.plane.delete(new_name).await?;
        self.until_gone(&mut pods, &new, Instant::now()).await?;
        Ok(())
    }

    async fn deleted(&mut self, pods: &mut View<Pod>, names: &[String]) -> Result<Deleted, BenchError> {
        let mark = self.plane.mark();
        let (cpu, begun) = (self.kubelet.cpu(), Instant::now());
        try_join_all(names.iter().map(|name| self.plane.delete(name))).await?;
        let gone = self.until_gone(pods, names, begun).await?;
        let kubelet_cpu = self.kubelet.cpu().since(cpu);
        let asked = self.plane.asked_since(mark, &self.node)?;
        Ok(Deleted { gone_s: seconds(gone), kubelet_cpu, memory: self.kubelet.memory(), asked })
    }

    fn runtime_cpu(&self) -> RuntimeCpu {
        RuntimeCpu::of(self.settings.containerd_pid, &self.settings.socket)
    }
}
