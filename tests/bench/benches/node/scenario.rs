//! The measurements of a kubelet, in their order.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bench::Samples;
use bridge_cri::wire::ContainerState;
use serde::Serialize;
use tokio::time::Instant;

use crate::error::BenchError;
use crate::http;
use crate::kubelet::Kubelet;
use crate::pods::{self, LABEL};
use crate::process::{Cpu, Memory, RuntimeCpu, seconds};
use crate::runtime::Observer;
use crate::scrape::{Scraped, scrape};
use crate::settings::Settings;

/// Period of looks at one pod.
const POLL: Duration = Duration::from_millis(3);
/// Period of looks at a full node: looking costs the kubelet and the runtime CPU, too.
const POLL_MANY: Duration = Duration::from_millis(20);
const POD_WITHIN: Duration = Duration::from_secs(45);
const STARTS: usize = 5;
const EXITS: usize = 5;

/// A kubelet's figures. Seconds, unless the name says otherwise.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    /// The program's size, MB.
    pub binary_mb: Option<f64>,
    /// Start of the process until `/healthz` is ok, without pods.
    pub healthy_s: Samples,
    /// Memory without pods.
    pub memory_empty: Option<Memory>,
    /// One pod: manifest there until the container started.
    pub started_s: Samples,
    /// One pod: manifest there until `/pods` shows it ready.
    pub ready_s: Samples,
    /// One pod: manifest removed until its sandbox is stopped.
    pub stopped_s: Samples,
    /// One pod: manifest removed until its sandbox is removed.
    pub gone_s: Samples,
    /// A container's process killed until `/pods` shows it.
    pub exit_seen_s: Samples,
    /// Pods at once.
    pub burst: Option<Burst>,
    /// While all those pods run and nothing happens.
    pub idle: Option<Idle>,
    /// Scrapes with all those pods, by the page's path.
    pub scraped: Option<BTreeMap<&'static str, Scraped>>,
    /// Memory after the scrapes.
    pub memory_scraped: Option<Memory>,
    /// The kubelet killed and started again with all those pods.
    pub killed: Option<Killed>,
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
    /// First manifest there until the last container started.
    pub started_s: f64,
    /// The same until `/pods` shows all ready.
    pub ready_s: Option<f64>,
    /// CPU of the kubelet until then.
    pub kubelet_cpu: Cpu,
    /// CPU of the runtime until then.
    pub runtime_cpu: RuntimeCpu,
    /// Calls to the runtime until then, by kind.
    pub calls: BTreeMap<String, f64>,
    /// The kubelet's memory after it.
    pub memory: Option<Memory>,
}

/// Figures while nothing happens.
#[derive(Debug, Serialize)]
pub struct Idle {
    /// CPU of the kubelet, cores.
    pub kubelet_cores: f64,
    /// CPU of containerd, cores.
    pub containerd_cores: f64,
    /// CPU of all shims, cores.
    pub shims_cores: f64,
    /// Calls to the runtime per second, by kind.
    pub calls_per_s: BTreeMap<String, f64>,
    /// The kubelet's memory at the end.
    pub memory: Option<Memory>,
}

/// Figures of a kubelet that was killed and started again.
#[derive(Debug, Serialize)]
pub struct Killed {
    /// Start of the process until `/healthz` is ok.
    pub healthy_s: f64,
    /// Until `/pods` shows all pods ready.
    pub ready_s: Option<f64>,
    /// From the start until the container of a pod that came meanwhile started.
    pub new_started_s: f64,
    /// From the start until `/pods` shows that pod ready.
    pub new_ready_s: Option<f64>,
    /// CPU of the kubelet until then.
    pub kubelet_cpu: Cpu,
    /// Number of containers that were replaced.
    pub replaced: usize,
    /// Restarts that `/pods` shows.
    pub restarts: u32,
}

/// Figures of pods deleted at once.
#[derive(Debug, Serialize)]
pub struct Deleted {
    /// First manifest removed until the last sandbox is stopped.
    pub stopped_s: f64,
    /// Until the last sandbox is removed.
    pub gone_s: Option<f64>,
    /// CPU of the kubelet until then.
    pub kubelet_cpu: Cpu,
    /// CPU of the runtime until then; the shims' own is lost with them.
    pub runtime_cpu: RuntimeCpu,
    /// Calls to the runtime until then, by kind.
    pub calls: BTreeMap<String, f64>,
    /// The kubelet's memory after it.
    pub memory: Option<Memory>,
}

/// The differences between the kubelets.
#[derive(Clone, Copy, Debug)]
pub struct Manners {
    /// How long to wait for the removal of stopped sandboxes: the Go kubelet leaves it to a collection once a minute.
    pub gone_within: Duration,
    /// How long to wait for a pod to be ready in `/pods`, the first time; a kubelet that fails this is measured by
    /// the runtime's state alone.
    pub ready_within: Duration,
}

struct Scenario<'a> {
    settings: &'a Settings,
    observer: &'a Observer,
    kubelet: Kubelet,
    manners: Manners,
    shows_ready: bool,
}

/// Measures a kubelet. Failures are in the figures' `failures`.
pub async fn measure(
    settings: &Settings,
    observer: &Observer,
    kubelet: Kubelet,
    manners: Manners,
) -> Figures {
    let mut figures = Figures::default();
    let mut scenario = Scenario { settings, observer, kubelet, manners, shows_ready: true };
    if let Err((phase, error)) = scenario.run(&mut figures).await {
        figures.failures.push(format!("{phase}: {error}"));
    }
    scenario.kubelet.kill();
    if let Err(error) = observer.clear().await {
        figures.failures.push(format!("clearing up: {error}"));
    }
    figures
}

type Phase<T> = Result<T, (&'static str, BenchError)>;

impl Scenario<'_> {
    async fn run(&mut self, figures: &mut Figures) -> Phase<()> {
        let named = |phase| move |error| (phase, error);
        progress("starts without pods");
        self.starts(figures).await.map_err(named("starts without pods"))?;
        progress("single pods");
        self.singles(figures).await.map_err(named("single pods"))?;
        if self.shows_ready {
            progress("exits");
            // A kubelet that fails here is measured all the same: one that does not see exits may see bursts.
            if let Err(error) = self.exits(figures).await {
                figures.failures.push(format!("exits: {error}"));
                self.afresh().await.map_err(named("after the exits"))?;
            }
        }
        self.observer.clear().await.map_err(named("clearing up"))?;
        progress("pods at once");
        let names: Vec<String> = (0..self.settings.pods).map(|pod| format!("burst-{pod}")).collect();
        figures.burst = Some(self.burst(&names).await.map_err(named("pods at once"))?);
        progress("idle");
        figures.idle = Some(self.idle().await.map_err(named("idle"))?);
        progress("scrapes");
        let idle_cores = figures.idle.as_ref().map_or(0.0, |idle| idle.kubelet_cores);
        match scrape(&mut self.kubelet, idle_cores).await {
            Ok(scraped) => figures.scraped = Some(scraped),
            Err(error) => figures.failures.push(format!("scrapes: {error}")),
        }
        figures.memory_scraped = self.kubelet.memory();
        progress("killed and started again");
        figures.killed = Some(self.killed(&names).await.map_err(named("killed and started again"))?);
        progress("all deleted at once");
        figures.deleted = Some(self.deleted(&names).await.map_err(named("all deleted at once"))?);
        Ok(())
    }

    async fn starts(&mut self, figures: &mut Figures) -> Result<(), BenchError> {
        for _ in 0..STARTS {
            self.kubelet.kill();
            let begun = self.kubelet.start()?;
            figures.healthy_s.push(seconds(self.kubelet.until_healthy(begun).await?));
        }
        tokio::time::sleep(pods::SETTLE_MANY).await;
        figures.memory_empty = self.kubelet.memory();
        Ok(())
    }

    /// Starts a new process with an empty runtime.
    async fn afresh(&mut self) -> Result<(), BenchError> {
        self.kubelet.kill();
        self.observer.clear().await?;
        let begun = self.kubelet.start()?;
        self.kubelet.until_healthy(begun).await.map(|_| ())
    }

    async fn singles(&mut self, figures: &mut Figures) -> Result<(), BenchError> {
        for round in 0..self.settings.rounds {
            let names = [format!("single-{round}")];
            let [name] = &names;
            self.kubelet.stage(&names)?;
            let wall = wall_ns();
            let begun = self.kubelet.add(&names)?;
            if self.shows_ready {
                match self.kubelet.until_ready(&names, begun, POLL, self.manners.ready_within).await {
                    Ok(ready) => figures.ready_s.push(seconds(ready)),
                    Err(BenchError::Late { what, within, seen }) if round == 0 => {
                        let late = BenchError::Late { what, within, seen };
                        figures.failures.push(format!("single pods, by /pods: {late}"));
                        self.shows_ready = false;
                    }
                    Err(error) => return Err(error),
                }
            }
            self.observer.until_running(1, POLL, POD_WITHIN).await?;
            let container = self.container_of(name).await?;
            figures.started_s.push(ns_to_s(container.started_ns - wall));
            tokio::time::sleep(pods::SETTLE).await;
            let begun = self.kubelet.remove(&names)?;
            let (stopped, gone) = self
                .observer
                .until_gone(Some(name), begun, POLL, POD_WITHIN, self.manners.gone_within)
                .await?;
            figures.stopped_s.push(seconds(stopped));
            if let Some(gone) = gone {
                figures.gone_s.push(seconds(gone));
            }
        }
        Ok(())
    }

    async fn container_of(&self, name: &str) -> Result<crate::runtime::Seen, BenchError> {
        let found = self.observer.container_of(name).await?;
        found.ok_or_else(|| BenchError::Wrong(format!("no sandbox with {LABEL}={name} has a container")))
    }

    async fn exits(&mut self, figures: &mut Figures) -> Result<(), BenchError> {
        for round in 0..EXITS {
            let names = [format!("exit-{round}")];
            let [name] = &names;
            self.kubelet.stage(&names)?;
            let begun = self.kubelet.add(&names)?;
            self.kubelet.until_ready(&names, begun, POLL, POD_WITHIN).await?;
            let pid = self.container_of(name).await?.pid;
            let pid = pid.and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?));
            let pid = pid.ok_or_else(|| BenchError::Wrong(format!("the runtime tells no pid of {name}")))?;
            rustix::process::kill_process(pid, rustix::process::Signal::KILL)
                .map_err(|error| BenchError::io("kill", "the container's process")(error.into()))?;
            let begun = Instant::now();
            loop {
                let pods = http::pods(self.kubelet.port).await.unwrap_or_default();
                if pods.iter().any(|pod| pod.label(LABEL) == Some(name) && pod.shows_an_exit()) {
                    figures.exit_seen_s.push(seconds(begun.elapsed()));
                    break;
                }
                if begun.elapsed() > POD_WITHIN {
                    let (what, seen) = ("an exit in /pods".to_owned(), "running".to_owned());
                    return Err(BenchError::Late { what, within: POD_WITHIN, seen });
                }
                tokio::time::sleep(POLL).await;
            }
            let begun = self.kubelet.remove(&names)?;
            self.observer.until_gone(Some(name), begun, POLL, POD_WITHIN, self.manners.gone_within).await?;
        }
        Ok(())
    }

    async fn burst(&mut self, names: &[String]) -> Result<Burst, BenchError> {
        self.kubelet.stage(names)?;
        let calls = self.calls().await;
        let (cpu, runtime, wall) = (self.kubelet.cpu(), self.runtime_cpu(), wall_ns());
        let begun = self.kubelet.add(names)?;
        // `/pods` is not asked before the last container runs: a hundred answers would cost more than the burst.
        self.observer.until_running(names.len(), POLL_MANY, self.settings.burst_within()).await?;
        let mut ready_s = None;
        if self.shows_ready {
            ready_s = Some(seconds(
                self.kubelet.until_ready(names, begun, POLL_MANY, self.settings.burst_within()).await?,
            ));
        }
        let (kubelet_cpu, runtime_cpu) = (self.kubelet.cpu().since(cpu), self.runtime_cpu().since(runtime));
        let memory = self.kubelet.memory();
        let calls = difference(&self.calls().await, &calls);
        let running = self.observer.running().await?;
        let last = running.iter().map(|seen| seen.started_ns).max().unwrap_or(wall);
        let (pods, started_s) = (names.len(), ns_to_s(last - wall));
        Ok(Burst { pods, started_s, ready_s, kubelet_cpu, runtime_cpu, calls, memory })
    }

    async fn idle(&mut self) -> Result<Idle, BenchError> {
        tokio::time::sleep(pods::SETTLE_MANY).await;
        let calls = self.calls().await;
        let (cpu, runtime, begun) = (self.kubelet.cpu(), self.runtime_cpu(), Instant::now());
        tokio::time::sleep(self.settings.idle).await;
        let (cpu, runtime) = (self.kubelet.cpu().since(cpu), self.runtime_cpu().since(runtime));
        let elapsed = seconds(begun.elapsed());
        self.kubelet.must_live()?;
        let memory = self.kubelet.memory();
        let calls = difference(&self.calls().await, &calls);
        let running = self.observer.containers(ContainerState::ContainerRunning).await?.len();
        if running != self.settings.pods {
            return Err(BenchError::Wrong(format!("{running} containers run after the idle time")));
        }
        Ok(Idle {
            kubelet_cores: cpu.own_s / elapsed,
            containerd_cores: runtime.containerd.all_s() / elapsed,
            shims_cores: runtime.shims.all_s() / elapsed,
            calls_per_s: calls.into_iter().map(|(kind, count)| (kind, count / elapsed)).collect(),
            memory,
        })
    }

    async fn killed(&mut self, names: &[String]) -> Result<Killed, BenchError> {
        let before = self.observer.running().await?;
        let new = ["after-kill".to_owned()];
        let [new_name] = &new;
        self.kubelet.stage(&new)?;
        self.kubelet.kill();
        self.kubelet.add(&new)?;
        let wall = wall_ns();
        let begun = self.kubelet.start()?;
        let healthy = self.kubelet.until_healthy(begun).await?;
        let (mut ready_s, mut new_ready_s) = (None, None);
        if self.shows_ready {
            let ready =
                self.kubelet.until_ready(names, begun, POLL_MANY, self.settings.burst_within()).await?;
            ready_s = Some(seconds(ready));
            let ready = self.kubelet.until_ready(&new, begun, POLL_MANY, POD_WITHIN).await?;
            new_ready_s = Some(seconds(ready));
        }
        self.observer.until_running(names.len() + 1, POLL_MANY, self.settings.burst_within()).await?;
        let kubelet_cpu = self.kubelet.cpu();
        let new_container = self.container_of(new_name).await?;
        // A kubelet that replaces pods it does not recognise has done so by then.
        tokio::time::sleep(pods::SETTLE_MANY).await;
        let after = self.observer.running().await?;
        let pods = http::pods(self.kubelet.port).await.unwrap_or_default();
        let begun = self.kubelet.remove(&new)?;
        self.observer.until_gone(Some(new_name), begun, POLL, POD_WITHIN, self.manners.gone_within).await?;
        Ok(Killed {
            healthy_s: seconds(healthy),
            ready_s,
            new_started_s: ns_to_s(new_container.started_ns - wall),
            new_ready_s,
            kubelet_cpu,
            replaced: before.iter().filter(|seen| !after.contains(seen)).count(),
            restarts: pods.iter().map(http::PodItem::restarts).sum(),
        })
    }

    async fn deleted(&mut self, names: &[String]) -> Result<Deleted, BenchError> {
        let calls = self.calls().await;
        let (cpu, runtime) = (self.kubelet.cpu(), self.runtime_cpu());
        let begun = self.kubelet.remove(names)?;
        let (stopped, gone) = self
            .observer
            .until_gone(
                None,
                begun,
                POLL_MANY,
                self.settings.burst_within(),
                self.manners.gone_within.max(Duration::from_secs(1)),
            )
            .await?;
        let (kubelet_cpu, runtime_cpu) = (self.kubelet.cpu().since(cpu), self.runtime_cpu().since(runtime));
        let memory = self.kubelet.memory();
        let calls = difference(&self.calls().await, &calls);
        let (stopped_s, gone_s) = (seconds(stopped), gone.map(seconds));
        Ok(Deleted { stopped_s, gone_s, kubelet_cpu, runtime_cpu, calls, memory })
    }

    fn runtime_cpu(&self) -> RuntimeCpu {
        RuntimeCpu::of(self.settings.containerd_pid, &self.settings.socket)
    }

    async fn calls(&self) -> BTreeMap<String, f64> {
        http::runtime_operations(self.kubelet.port).await.unwrap_or_default()
    }
}

fn difference(after: &BTreeMap<String, f64>, before: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let grown = after.iter().map(|(kind, count)| (kind.clone(), count - before.get(kind).unwrap_or(&0.0)));
    grown.filter(|(_, count)| *count > 0.0).collect()
}

fn wall_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

fn ns_to_s(ns: i64) -> f64 {
    ns as f64 / 1e9
}

/// Tells the user what is being measured.
pub fn progress(what: &str) {
    eprintln!("  {what}");
}
