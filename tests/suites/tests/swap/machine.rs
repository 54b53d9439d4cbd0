//! One node of the cluster: directories, a cgroup and ports of its own, and either kubelet on it. Dropping it leaves
//! nothing behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;
use testkit::process::{KubeletCommand, KubeletProcess, Port, eventually, free_ports};

use crate::cgroups;
use crate::cluster::{Cluster, Watch};
use crate::cri::Cri;
use crate::environment::Environment;
use crate::state::ready;

/// Longest wait for effects that need no back-off, on a slow machine under load, too.
pub const SOON: Duration = Duration::from_secs(120);
/// Longest wait for the end of either kubelet when it is asked to end.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
/// Longest wait until the runtime has released everything that a node leaves behind.
const SWEPT_WITHIN: Duration = Duration::from_secs(60);
/// The directory of links to containers' logs, with any settings of a kubelet.
const LINKS: &str = "/var/log/containers";
/// The paths of the Go kubelet that no flag moves.
const FIXED: &str = "/var/lib/kubelet";

/// The two kubelets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kubelet {
    Go,
    Ours,
}

/// A node.
pub struct Machine {
    pub name: String,
    pub cluster: Cluster,
    pub cri: Cri,
    ours: PathBuf,
    go: PathBuf,
    healthz: Port,
    cgroup: String,
    dir: TempDir,
    process: Option<(Kubelet, KubeletProcess)>,
}

impl Machine {
    /// Makes everything but a kubelet.
    pub fn new(environment: &Environment, scene: &str) -> Self {
        static MACHINES: AtomicU32 = AtomicU32::new(0);
        let number = MACHINES.fetch_add(1, Ordering::Relaxed);
        let name = format!("swap-{scene}-{}-{number}", std::process::id());
        let dir =
            tempfile::Builder::new().prefix("understudy-swap-").tempdir().expect("a temporary directory");
        let path = dir.path();
        for inner in ["manifests", "logs", "root", "certificates", "fixed", "gates"] {
            fs::create_dir(path.join(inner)).expect("an empty directory takes another");
        }
        let root = path.join("root");
        // Mounts that either kubelet makes in it are seen by the other, by the runtime and by its containers.
        run(Command::new("mount").arg("--bind").arg(&root).arg(&root));
        run(Command::new("mount").arg("--make-private").arg(&root));
        run(Command::new("mount").arg("--make-shared").arg(&root));
        let cgroup = format!("{}/{name}", environment.cgroup_parent);
        cgroups::make(&cgroup);
        let [healthz, server] = free_ports();
        let machine = Self {
            cluster: Cluster::with_namespace(environment, &name),
            cri: Cri::new(&environment.socket),
            ours: environment.ours.clone(),
            go: environment.go.clone(),
            healthz: Port::local(healthz),
            cgroup,
            process: None,
            name,
            dir,
        };
        machine.identity(environment);
        machine.configuration(environment, healthz, server);
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes the files that a node has after it has joined: a kubeconfig, and a certificate for its server.
    fn identity(&self, environment: &Environment) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../env/control-plane");
        run(Command::new(script).arg("node").arg(&environment.plane).arg(&self.name));
        let kubeconfig = environment.plane.join(format!("node-{}.kubeconfig", self.name));
        fs::copy(kubeconfig, self.path("kubelet.conf")).expect("the script has written it");
        let names = format!(
            "subjectAltName=DNS:{},IP:{}\nextendedKeyUsage=serverAuth\n",
            self.name, environment.address
        );
        fs::write(self.path("names"), names).expect("a file in a directory of ours");
        let [key, request] = ["tls.key", "tls.csr"].map(|name| self.path(name));
        run(Command::new("openssl")
            .args(["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj"])
            .arg(format!("/O=system:nodes/CN=system:node:{}", self.name))
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&request));
        run(Command::new("openssl")
            .args(["x509", "-req", "-days", "2", "-set_serial", "4711", "-in"])
            .arg(&request)
            .arg("-CA")
            .arg(environment.plane.join("pki/ca.crt"))
            .arg("-CAkey")
            .arg(environment.plane.join("pki/ca.key"))
            .arg("-extfile")
            .arg(self.path("names"))
            .arg("-out")
            .arg(self.path("tls.crt")));
    }

    /// Writes one configuration for both kubelets: that of kubeadm, with settings that separate the node from others on
    /// this machine.
    fn configuration(&self, environment: &Environment, healthz: u16, server: u16) {
        let config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": { "enabled": false },
                "webhook": { "cacheTTL": "0s", "enabled": true },
                "x509": { "clientCAFile": environment.authority },
            },
            "authorization": {
                "mode": "Webhook",
                "webhook": { "cacheAuthorizedTTL": "0s", "cacheUnauthorizedTTL": "0s" },
            },
            "cgroupDriver": "cgroupfs",
            "clusterDNS": ["10.96.0.10"],
            "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": format!("unix://{}", environment.socket),
            "cpuManagerReconcilePeriod": "0s",
            "crashLoopBackOff": {},
            "evictionPressureTransitionPeriod": "0s",
            "fileCheckFrequency": "0s",
            "healthzBindAddress": "127.0.0.1",
            "healthzPort": healthz,
            "httpCheckFrequency": "0s",
            "imageMaximumGCAge": "0s",
            "imageMinimumGCAge": "0s",
            "logging": {
                "flushFrequency": 0,
                "options": { "json": { "infoBufferSize": "0" }, "text": { "infoBufferSize": "0" } },
                "verbosity": 2,
            },
            "memorySwap": {},
            "nodeStatusReportFrequency": "0s",
            "nodeStatusUpdateFrequency": "0s",
            "rotateCertificates": true,
            "runtimeRequestTimeout": "0s",
            "shutdownGracePeriod": "0s",
            "shutdownGracePeriodCriticalPods": "0s",
            "staticPodPath": self.path("manifests"),
            "streamingConnectionIdleTimeout": "0s",
            "syncFrequency": "0s",
            "volumeStatsAggPeriod": "0s",
            // Separate from other nodes on the machine.
            "port": server,
            "podLogsDir": self.path("logs"),
            "cgroupRoot": self.cgroup,
            "tlsCertFile": self.path("tls.crt"),
            "tlsPrivateKeyFile": self.path("tls.key"),
            "makeIPTablesUtilChains": false,
            "failCgroupV1": false,
            "failSwapOn": false,
            "imageGCHighThresholdPercent": 100,
            "evictionHard": { "memory.available": "1Mi" },
        });
        // JSON is YAML.
        fs::write(self.path("config.yaml"), config.to_string()).expect("a file in a directory of ours");
        let arguments = format!("--node-ip={}", environment.address);
        fs::write(self.path("flags"), arguments).expect("a file in a directory of ours");
    }

    fn arguments(&self) -> Vec<String> {
        let path = |name: &str| self.path(name).display().to_string();
        vec![
            format!("--bootstrap-kubeconfig={}", path("bootstrap-kubelet.conf")),
            format!("--kubeconfig={}", path("kubelet.conf")),
            format!("--config={}", path("config.yaml")),
            format!("--root-dir={}", path("root")),
            format!("--cert-dir={}", path("certificates")),
            format!("--hostname-override={}", self.name),
            fs::read_to_string(self.path("flags")).expect("written at the beginning"),
        ]
    }

    /// Starts a kubelet while none runs, and waits until the node is ready.
    pub fn start(&mut self, kubelet: Kubelet) {
        assert!(self.process.is_none(), "a kubelet runs already");
        let mut arguments = self.arguments();
        let (program, before) = match kubelet {
            Kubelet::Ours => {
                // The kernel's settings are the machine's.
                let ours =
                    "apiVersion: understudy.dev/v1alpha1\nkind: UnderstudyConfiguration\nsysctlDir: \"\"\n";
                fs::write(self.path("understudy.yaml"), ours).expect("a file in a directory of ours");
                arguments.push(format!("--understudy-config={}", self.path("understudy.yaml").display()));
                (self.ours.clone(), Vec::new())
            }
            Kubelet::Go => {
                let _there_already = fs::create_dir_all(FIXED);
                let apart = format!(
                    "mount --make-private \"$(findmnt -n -o TARGET -T {FIXED})\" && mount --bind {} {FIXED} && exec \"$0\" \"$@\"",
                    self.path("fixed").display()
                );
                let go = self.go.display().to_string();
                let options = ["--mount", "--propagation", "unchanged", "sh", "-c"].map(str::to_owned);
                ("unshare".into(), [&options[..], &[apart, go]].concat())
            }
        };
        let command = KubeletCommand {
            program,
            arguments: before.into_iter().chain(arguments).map(Into::into).collect(),
            environment: Vec::new(),
            log: self.path("kubelet.log"),
        };
        let process = command.start().expect("the program can be run");
        self.process = Some((kubelet, process));
        eventually("the kubelet is healthy", SOON, || {
            self.assert_alive();
            self.healthz.text("/healthz").map(drop)
        });
        eventually("the node is ready", SOON, || {
            self.assert_alive();
            let node = self.cluster.get(&["node", &self.name])?;
            match ready(&node["status"]) {
                Some("True") => Ok(()),
                other => Err(format!("Ready is {other:?}")),
            }
        });
    }

    /// Ends the kubelet with SIGTERM.
    pub fn stop(&mut self) {
        let (kubelet, mut process) = self.process.take().expect("a kubelet runs");
        let ended = process.terminate(ENDS_WITHIN);
        ended.unwrap_or_else(|| panic!("{kubelet:?} has not ended:\n{}", self.log_tail()));
    }

    /// Replaces the running kubelet by the other one.
    pub fn swap(&mut self, to: Kubelet) {
        self.stop();
        self.start(to);
    }

    fn assert_alive(&mut self) {
        let (kubelet, process) = self.process.as_mut().expect("a kubelet was started");
        let (kubelet, ended) = (*kubelet, process.ended());
        if let Some(status) = ended {
            panic!("{kubelet:?} has ended by itself ({status}):\n{}", self.log_tail());
        }
    }

    /// Follows the node or the pods.
    pub fn watch(&self, what: &[&str], notes: &str) -> Watch {
        self.cluster.watch(what, &self.path(notes))
    }

    /// The directory of static pods.
    pub fn manifests(&self) -> PathBuf {
        self.path("manifests")
    }

    /// A directory of files by which the host tells pods what to do.
    pub fn gates(&self) -> PathBuf {
        self.path("gates")
    }

    /// The root directory of both kubelets.
    pub fn root(&self) -> PathBuf {
        self.path("root")
    }

    /// The directory of a pod, whether it exists or not.
    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.root().join("pods").join(uid)
    }

    /// The mounts of pods, as the machine sees them.
    pub fn mounts(&self) -> Vec<PathBuf> {
        mounts_below(&self.path("root/pods"))
    }

    fn log_tail(&self) -> String {
        let log = fs::read(self.path("kubelet.log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    fn clean_up(&mut self) -> Result<(), String> {
        self.process = None;
        for what in [["namespace", &self.cluster.namespace], ["node", &self.name]] {
            let _gone = self
                .cluster
                .kubectl(&[&["delete", "--wait=false", "--ignore-not-found"], &what[..]].concat());
        }
        let begun = Instant::now();
        while let Err(error) = self.cri.sweep(&self.cluster.namespace) {
            if begun.elapsed() > SWEPT_WITHIN {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        for mount in mounts_below(self.dir.path()).iter().rev() {
            let _gone = Command::new("umount").args(["-n", "-l"]).arg(mount).status();
        }
        for link in fs::read_dir(LINKS).into_iter().flatten().flatten() {
            if fs::read_link(link.path()).is_ok_and(|target| target.starts_with(self.dir.path())) {
                let _gone = fs::remove_file(link.path());
            }
        }
        cgroups::remove(&self.cgroup)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the last lines of the kubelets of {}:\n{}", self.name, self.log_tail());
        }
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubelet-logs");
        let _kept = fs::create_dir_all(&kept)
            .and_then(|()| fs::copy(self.path("kubelet.log"), kept.join(format!("{}.log", self.name))));
        if let Err(error) = self.clean_up() {
            eprintln!("taking away what the node {} left: {error}", self.name);
        }
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("every process has mounts");
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
    points.filter(|point| point.starts_with(dir)).collect()
}
