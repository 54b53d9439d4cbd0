//! A kubelet under measurement: its files, its process, and the manifests that come and go.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::error::BenchError;
use crate::http;
use crate::pods;
use crate::process::{Cpu, Memory};
use crate::settings::Settings;

const POLL: Duration = Duration::from_millis(2);
const HEALTHY_WITHIN: Duration = Duration::from_secs(60);

/// A kubelet and its directories. Dropping it kills the process.
pub struct Kubelet {
    program: PathBuf,
    flags: Vec<String>,
    home: PathBuf,
    /// The read-only port.
    pub port: u16,
    health_port: u16,
    /// The process while it runs.
    child: Option<Child>,
}

impl Kubelet {
    /// Writes the configuration; `name` names the directories.
    pub fn new(settings: &Settings, name: &str, program: &std::path::Path) -> Result<Self, BenchError> {
        let home = settings.work.join(name);
        for dir in ["pods", "staged", "root", "pki", "logs"] {
            let dir = home.join(dir);
            std::fs::create_dir_all(&dir).map_err(BenchError::io("create", &dir))?;
        }
        let [port, health_port, https_port] = [free_port()?, free_port()?, free_port()?];
        let configuration = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "staticPodPath": home.join("pods"),
            "podLogsDir": home.join("logs"),
            "containerRuntimeEndpoint": format!("unix://{}", settings.socket.display()),
            "cgroupRoot": settings.cgroup_parent,
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": false,
            "failSwapOn": false,
            "makeIPTablesUtilChains": false,
            "address": "127.0.0.1",
            "port": https_port,
            "readOnlyPort": port,
            "healthzBindAddress": "127.0.0.1",
            "healthzPort": health_port,
            "maxPods": settings.pods + 10,
            "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
            "authorization": { "mode": "AlwaysAllow" },
            "clusterDNS": ["10.96.0.10"],
            "clusterDomain": "cluster.local",
            // A machine that builds is full and busy; eviction is not measured.
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {
                "memory.available": "50Mi",
                "nodefs.available": "1%",
                "nodefs.inodesFree": "1%",
                "imagefs.available": "1%",
                "imagefs.inodesFree": "1%",
            },
        });
        let file = home.join("config.json");
        std::fs::write(&file, configuration.to_string()).map_err(BenchError::io("write", &file))?;
        let flags = settings.kubelet_flags.clone();
        Ok(Self { program: program.to_owned(), flags, home, port, health_port, child: None })
    }

    /// Makes the kubelet a member of a cluster from its next start on.
    pub fn join(&mut self, node: &str, kubeconfig: &std::path::Path) {
        self.flags.push(format!("--kubeconfig={}", kubeconfig.display()));
        self.flags.push(format!("--hostname-override={node}"));
    }

    /// The kubelet's log file.
    pub fn log(&self) -> PathBuf {
        self.home.join("kubelet.log")
    }

    /// Starts the process and does not wait for it; returns the time of the start.
    pub fn start(&mut self) -> Result<Instant, BenchError> {
        let log = self.log();
        let out =
            File::options().create(true).append(true).open(&log).map_err(BenchError::io("open", &log))?;
        let err = out.try_clone().map_err(BenchError::io("open", &log))?;
        let begun = Instant::now();
        let child = Command::new(&self.program)
            .arg("--config")
            .arg(self.home.join("config.json"))
            .arg("--root-dir")
            .arg(self.home.join("root"))
            .arg("--cert-dir")
            .arg(self.home.join("pki"))
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(BenchError::io("start", &self.program))?;
        // For the script that cleans up after a benchmark was killed.
        let file = self.home.join("kubelet.pid");
        let written = std::fs::write(&file, child.id().to_string()).map_err(BenchError::io("write", &file));
        self.child = Some(child);
        written.map(|()| begun)
    }

    /// Waits until `/healthz` says ok.
    pub async fn until_healthy(&mut self, since: Instant) -> Result<Duration, BenchError> {
        while http::get(self.health_port, "/healthz").await.as_deref() != Some(b"ok") {
            self.must_live()?;
            if since.elapsed() > HEALTHY_WITHIN {
                let (what, seen) = ("/healthz".to_owned(), "no ok".to_owned());
                return Err(BenchError::Late { what, within: HEALTHY_WITHIN, seen });
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(since.elapsed())
    }

    /// The process ID, until it is killed.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The kubelet's CPU time so far.
    pub fn cpu(&self) -> Cpu {
        self.pid().and_then(Cpu::of).unwrap_or_default()
    }

    /// The kubelet's present memory.
    pub fn memory(&self) -> Option<Memory> {
        self.pid().and_then(Memory::of)
    }

    /// An error if the process has ended by itself.
    pub fn must_live(&mut self) -> Result<(), BenchError> {
        let log = self.log();
        match self.child.as_mut().map(Child::try_wait) {
            Some(Ok(Some(status))) => Err(BenchError::Ended { status, log }),
            _ => Ok(()),
        }
    }

    /// Sends SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended before.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Writes manifests beside the directory that the kubelet watches.
    pub fn stage(&self, names: &[String]) -> Result<(), BenchError> {
        for name in names {
            let file = self.home.join("staged").join(name);
            std::fs::write(&file, pods::manifest(name).to_string())
                .map_err(BenchError::io("write", &file))?;
        }
        Ok(())
    }

    /// Renames staged manifests into that directory; returns the time of the first rename.
    pub fn add(&self, names: &[String]) -> Result<Instant, BenchError> {
        let begun = Instant::now();
        for name in names {
            let file = self.manifest(name);
            let staged = self.home.join("staged").join(name);
            std::fs::rename(staged, &file).map_err(BenchError::io("rename", file))?;
        }
        Ok(begun)
    }

    /// Unlinks the manifests; returns the time of the first unlink.
    pub fn remove(&self, names: &[String]) -> Result<Instant, BenchError> {
        let begun = Instant::now();
        for name in names {
            let file = self.manifest(name);
            std::fs::remove_file(&file).map_err(BenchError::io("remove", file))?;
        }
        Ok(begun)
    }

    fn manifest(&self, name: &str) -> PathBuf {
        self.home.join("pods").join(format!("{name}.json"))
    }

    /// Waits until `/pods` shows all of them ready; returns the time since `since`.
    pub async fn until_ready(
        &mut self,
        names: &[String],
        since: Instant,
        every: Duration,
        within: Duration,
    ) -> Result<Duration, BenchError> {
        loop {
            let pods = http::pods(self.port).await;
            let elapsed = since.elapsed();
            let ready = |name: &String| {
                pods.iter().flatten().any(|pod| pod.label(pods::LABEL) == Some(name) && pod.is_ready())
            };
            let count = names.iter().filter(|name| ready(name)).count();
            if count == names.len() {
                return Ok(elapsed);
            }
            self.must_live()?;
            if elapsed > within {
                let first = pods.iter().flatten().find(|pod| !pod.is_ready()).map(http::PodItem::summary);
                let seen = format!("{count} ready; another is {}", first.as_deref().unwrap_or("not shown"));
                return Err(BenchError::Late { what: format!("{} ready pods", names.len()), within, seen });
            }
            tokio::time::sleep(every).await;
        }
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port on which no process listens just now.
fn free_port() -> Result<u16, BenchError> {
    let bound = std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(BenchError::io("bind a port of", "127.0.0.1"))
}
