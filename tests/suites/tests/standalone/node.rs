//! One kubelet with directories, ports and a cgroup of its own. Dropping it leaves nothing behind.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::process::{KubeletCommand, KubeletProcess, Port, eventually, free_ports};

use crate::cgroups;
use crate::cri::Cri;
use crate::environment::Environment;
use crate::pod::PodFile;
use crate::view::{Event, PodView};

/// Longest wait for answers and for effects without back-off, on a slow machine under load.
pub const SOON: Duration = Duration::from_secs(90);
/// Longest wait for effects with back-offs, retries and housekeeping of every minute.
pub const LATER: Duration = Duration::from_secs(240);
/// Longest wait for the end of a kubelet that is asked to end.
pub const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// Longest wait until the runtime has released everything that a node leaves behind.
const SWEPT_WITHIN: Duration = Duration::from_secs(30);

/// Differences from the usual node.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Fields that replace those of the KubeletConfiguration.
    pub kubelet: Value,
    /// Fields that replace those of the UnderstudyConfiguration.
    pub understudy: Value,
    /// The node's name; `None` for a name made of the case's.
    pub name: Option<String>,
    /// More flags and their values.
    pub flags: Vec<OsString>,
}

/// A node.
pub struct Node {
    pub environment: Arc<Environment>,
    pub cri: Cri,
    /// The namespace of all its pods, by which a clean-up finds them.
    pub namespace: String,
    pub read_only: Port,
    pub healthz: Port,
    /// HTTPS.
    pub server: Port,
    name: String,
    dir: TempDir,
    command: KubeletCommand,
    process: Mutex<Option<KubeletProcess>>,
    pods: AtomicU32,
}

impl Node {
    /// Prepares a node, starts its kubelet and waits until it is healthy; the error is for people.
    pub fn start(environment: &Arc<Environment>, case: &str, options: Options) -> Result<Self, String> {
        Self::prepare(environment, case, options).started()
    }

    /// Starts the kubelet of a node that has been prepared, and waits until it is healthy and both its ports for tests answer;
    /// the error is for people.
    pub fn started(self) -> Result<Self, String> {
        let node = self;
        node.start_kubelet();
        let begun = Instant::now();
        let answers = || node.healthz.text("/healthz").and_then(|_| node.read_only.text("/metrics"));
        while let Err(error) = answers() {
            if let Some(status) = node.lock().as_mut().and_then(KubeletProcess::ended) {
                return Err(format!("the kubelet has ended ({status}):\n{}", node.log_tail()));
            }
            if begun.elapsed() > SOON {
                return Err(format!("the kubelet is not healthy: {error}\n{}", node.log_tail()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(node)
    }

    /// As [`Self::start`], for a case with a node of its own.
    ///
    /// # Panics
    /// When the kubelet does not become healthy.
    pub fn alone(environment: &Arc<Environment>, case: &str, options: Options) -> Self {
        Self::start(environment, case, options).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Makes directories, ports and configuration, without the kubelet's process.
    pub fn prepare(environment: &Arc<Environment>, case: &str, options: Options) -> Self {
        static NODES: AtomicU32 = AtomicU32::new(0);
        let number = NODES.fetch_add(1, Ordering::Relaxed);
        let name = options.name.unwrap_or_else(|| format!("{case}-{}-{number}", std::process::id()));
        let dir = tempfile::Builder::new().prefix("understudy-").tempdir().expect("a temporary directory");
        let path = dir.path().to_owned();
        for inner in ["manifests", "logs", "links", "gates", "root", "certificates"] {
            fs::create_dir(path.join(inner)).expect("an empty directory takes another");
        }
        let resolv_conf = "nameserver 192.0.2.53\nsearch node.example\noptions timeout:1\n";
        fs::write(path.join("resolv.conf"), resolv_conf).expect("a file in a directory of ours");
        let cgroup = format!("{}/{name}", environment.cgroup_parent);
        cgroups::make(&cgroup);
        let [read_only, healthz, server] = free_ports();
        let mut kubelet = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "staticPodPath": path.join("manifests"),
            "podLogsDir": path.join("logs"),
            "containerRuntimeEndpoint": format!("unix://{}", environment.socket),
            "resolvConf": path.join("resolv.conf"),
            "clusterDNS": ["192.0.2.10"],
            "clusterDomain": "cluster.local",
            "cgroupRoot": cgroup,
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": false,
            "failSwapOn": false,
            "makeIPTablesUtilChains": false,
            "address": "127.0.0.1",
            "port": server,
            "readOnlyPort": read_only,
            "healthzBindAddress": "127.0.0.1",
            "healthzPort": healthz,
            // A kubelet without any way to authenticate callers does not start.
            "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
            "authorization": {"mode": "AlwaysAllow"},
            "imageGCHighThresholdPercent": 100,
            // A machine that builds is full and busy: the only threshold is one that is never passed.
            "evictionHard": {"pid.available": "1"},
        });
        let mut understudy = json!({
            "apiVersion": "understudy.dev/v1alpha1",
            "kind": "UnderstudyConfiguration",
            "legacyLogSymlinkDir": path.join("links"),
            // The kernel's settings are the machine's.
            "sysctlDir": "",
        });
        overlay(&mut kubelet, options.kubelet);
        overlay(&mut understudy, options.understudy);
        // JSON is YAML.
        fs::write(path.join("kubelet.yaml"), kubelet.to_string()).expect("a configuration file");
        fs::write(path.join("understudy.yaml"), understudy.to_string()).expect("a configuration file");
        let address = kubelet["address"].as_str().and_then(|text| text.parse().ok());
        let address = address.expect("a configured address");
        let mut command = command(&environment.kubelet, &path, &path.join("root"));
        command.arguments.extend(options.flags);
        Self {
            environment: Arc::clone(environment),
            cri: Cri::new(&environment.socket),
            namespace: name.clone(),
            read_only: Port(SocketAddr::new(address, read_only)),
            healthz: Port::local(healthz),
            server: Port(SocketAddr::new(address, server)),
            name,
            dir,
            command,
            process: Mutex::new(None),
            pods: AtomicU32::new(0),
        }
    }

    // ---- the kubelet's process ----

    fn lock(&self) -> MutexGuard<'_, Option<KubeletProcess>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a variable to the environment of kubelets that are started from now on.
    pub fn set_variable(&mut self, name: &str, value: &std::ffi::OsStr) {
        self.command.environment.push((name.into(), value.to_owned()));
    }

    /// The exit status of a kubelet that ends by itself or has been asked to.
    ///
    /// # Panics
    /// It has not ended soon.
    pub fn kubelet_ends(&self) -> ExitStatus {
        let mut process = self.lock().take().expect("a kubelet runs");
        process.wait(SOON).unwrap_or_else(|| panic!("not ended within {SOON:?}:\n{}", self.log_tail()))
    }

    /// The command that starts the kubelet.
    pub fn command_mut(&mut self) -> &mut KubeletCommand {
        &mut self.command
    }

    /// Runs the script before each start, in the shell that then becomes the kubelet, with mounts of its own.
    pub fn after(&mut self, script: &str) {
        let script = format!("{script}\nexec \"$0\" \"$@\"");
        let program = std::mem::replace(&mut self.command.program, "unshare".into());
        let shell = ["--mount", "--propagation", "slave", "sh", "-ec", &script].map(Into::into);
        let arguments = std::mem::take(&mut self.command.arguments);
        self.command.arguments = shell.into_iter().chain([program.into()]).chain(arguments).collect();
    }

    /// Starts the kubelet, which must not run.
    pub fn start_kubelet(&self) {
        self.start_mortal(&[]);
    }

    /// Starts the kubelet with these additional variables.
    pub fn start_mortal(&self, environment: &[(OsString, OsString)]) {
        let mut process = self.lock();
        assert!(process.is_none(), "a kubelet runs already");
        let mut command = self.command.clone();
        command.environment.extend(environment.iter().cloned());
        *process = Some(command.start().expect("the kubelet's binary can be run"));
    }

    /// Sends the kubelet a signal.
    pub fn signal_kubelet(&self, signal: Signal) {
        self.lock().as_mut().expect("a kubelet runs").signal(signal);
    }

    /// Whether a kubelet that was to die has died; then another one may be started.
    pub fn has_died(&self) -> bool {
        let mut process = self.lock();
        let ended = process.as_mut().and_then(KubeletProcess::ended).is_some();
        if ended {
            *process = None;
        }
        ended
    }

    /// Starts the kubelet and waits until it has taken in the pods.
    pub fn start_kubelet_again(&self) {
        self.start_kubelet();
        eventually("the kubelet lists its pods", SOON, || self.pods().map(drop));
    }

    /// Waits until the statuses that `/pods` shows have been checkpointed, so that the next kubelet knows them.
    pub fn written_down(&self) {
        eventually("all statuses are written down", SOON, || {
            let tree = self.read_only.json("/supervision")?;
            let actors = tree["actors"].as_array().into_iter().flatten();
            let status = actors.into_iter().find(|actor| actor["kind"] == "StatusManager");
            let observed = &status.ok_or("no StatusManager in the tree")?["observed"];
            if observed["checkpointsUnderWay"] == 0 && observed["checkpointsFailed"] == 0 {
                Ok(())
            } else {
                Err(observed.to_string())
            }
        });
    }

    /// Ends the kubelet with SIGKILL.
    pub fn kill_kubelet(&self) {
        self.lock().take().expect("a kubelet runs").kill();
    }

    /// Ends the kubelet with SIGTERM; returns its exit status.
    ///
    /// # Panics
    /// It has not ended within 10 s.
    pub fn terminate_kubelet(&self) -> ExitStatus {
        let mut process = self.lock().take().expect("a kubelet runs");
        let ended = process.terminate(ENDS_WITHIN);
        ended.unwrap_or_else(|| panic!("not ended {ENDS_WITHIN:?} after SIGTERM:\n{}", self.log_tail()))
    }

    /// The time that the kubelet's threads have run, nanoseconds, by their names: those of one name together.
    pub fn busy_ns(&self) -> BTreeMap<String, u64> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.kubelet_pid())).expect("the kubelet runs");
        let mut busy = BTreeMap::new();
        for thread in threads {
            let file = |name: &str| {
                thread.as_ref().ok().and_then(|it| fs::read_to_string(it.path().join(name)).ok())
            };
            // A thread may end meanwhile.
            let (Some(name), Some(times)) = (file("comm"), file("schedstat")) else { continue };
            let ran =
                times.split(' ').next().and_then(|ran| ran.parse::<u64>().ok()).expect("proc(5) says so");
            *busy.entry(name.trim_end().to_owned()).or_default() += ran;
        }
        busy
    }

    /// The process ID of the kubelet.
    pub fn kubelet_pid(&self) -> u32 {
        self.lock().as_ref().expect("a kubelet runs").id()
    }

    /// # Panics
    /// The kubelet has ended without being asked to.
    pub fn assert_alive(&self) {
        let ended = self.lock().as_mut().and_then(KubeletProcess::ended);
        if let Some(status) = ended {
            panic!("the kubelet has ended by itself ({status}):\n{}", self.log_tail());
        }
    }

    /// Another kubelet with the same configuration and this root directory.
    pub fn other_kubelet(&self, root: &Path) -> KubeletCommand {
        let other = command(&self.environment.kubelet, self.dir.path(), root);
        KubeletCommand { log: self.dir.path().join("other.log"), ..other }
    }

    /// The kubelet's log.
    pub fn log(&self) -> String {
        let log = fs::read(&self.command.log).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// The kubelet's last lines.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    // ---- directories ----

    /// The file of `--config`.
    pub fn configuration(&self) -> PathBuf {
        self.dir.path().join("kubelet.yaml")
    }

    /// The static pods' directory.
    pub fn manifests(&self) -> PathBuf {
        self.dir.path().join("manifests")
    }

    /// `podLogsDir`.
    pub fn logs(&self) -> PathBuf {
        self.dir.path().join("logs")
    }

    /// `legacyLogSymlinkDir`.
    pub fn links(&self) -> PathBuf {
        self.dir.path().join("links")
    }

    /// The kubelet's root directory.
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// A directory of files by which the host and pods communicate.
    pub fn gates(&self) -> PathBuf {
        self.dir.path().join("gates")
    }

    /// The path of a file for the tests' own notes.
    pub fn notes(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The cgroup above all its pods.
    pub fn cgroup(&self) -> String {
        format!("{}/{}", self.environment.cgroup_parent, self.name)
    }

    // ---- pods ----

    /// Writes a manifest of a pod with a name of its own.
    pub fn pod(&self, name: &str, spec: Value) -> PodFile<'_> {
        let number = self.pods.fetch_add(1, Ordering::Relaxed);
        let pod = PodFile::new(self, format!("{name}-{number}"));
        pod.write(spec);
        pod
    }

    /// The pods that `/pods` lists.
    pub fn pods(&self) -> Result<Vec<PodView>, String> {
        self.assert_alive();
        let list = self.read_only.json("/pods")?;
        assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("PodList"), &json!("v1")));
        let items = list["items"].as_array().ok_or_else(|| format!("no items in {list}"))?;
        Ok(items.iter().cloned().map(PodView).collect())
    }

    /// The events that `/events` lists.
    pub fn events(&self) -> Result<Vec<Event>, String> {
        self.assert_alive();
        let list = self.read_only.json("/events")?;
        let events = list["events"].as_array().ok_or_else(|| format!("no events in {list}"))?;
        Ok(events.iter().map(Event::of).collect())
    }

    /// An event about the manifest in the file of this name whose message has all of these words.
    pub fn manifest_event(&self, file: &str, words: &[&str]) -> Result<Event, String> {
        let about: Vec<Event> = self
            .events()?
            .into_iter()
            .filter(|event| event.manifest.ends_with(&format!("/{file}")))
            .collect();
        let found = about.iter().find(|event| words.iter().all(|words| event.message.contains(words)));
        found.cloned().ok_or_else(|| format!("no event about {file} with {words:?} among {about:?}"))
    }

    /// The text that the read-only port answers with.
    pub fn told(&self, path: &str) -> Result<String, String> {
        self.read_only.text(path)
    }

    /// The sum of a metric over its labels.
    pub fn metric(&self, name: &str) -> Result<f64, String> {
        let text = self.read_only.text("/metrics")?;
        let samples = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            if !rest.starts_with(['{', ' ']) {
                return None;
            }
            rest.rsplit(' ').next()?.parse::<f64>().ok()
        });
        let samples: Vec<f64> = samples.collect();
        if samples.is_empty() { Err(format!("no metric {name}")) } else { Ok(samples.iter().sum()) }
    }

    fn clean_up(&mut self) -> Result<(), String> {
        let process = self.lock().take();
        drop(process);
        // A runtime that is still busy with the kubelet's last call refuses to remove the pod.
        let begun = Instant::now();
        while let Err(error) = self.cri.sweep(&self.namespace) {
            if begun.elapsed() > SWEPT_WITHIN {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        unmount_below(self.dir.path());
        cgroups::remove(&self.cgroup())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A failure with this line is never taken for one of chance.
            if let Some(status) = self.lock().as_mut().and_then(KubeletProcess::ended) {
                eprintln!("KUBELET ENDED by itself ({status}): {}", self.name);
            }
            eprintln!("the last lines of the kubelet of {}:\n{}", self.name, self.log_tail());
        }
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubelet-logs");
        let _kept = fs::create_dir_all(&kept)
            .and_then(|()| fs::copy(&self.command.log, kept.join(format!("{}.log", self.name))));
        if let Err(error) = self.clean_up() {
            eprintln!("taking away what the node {} left: {error}", self.name);
        }
    }
}

fn command(program: &Path, dir: &Path, root: &Path) -> KubeletCommand {
    let argument = |name: &str, value: &Path| [name.into(), value.as_os_str().to_owned()];
    let arguments = [
        argument("--config", &dir.join("kubelet.yaml")),
        argument("--understudy-config", &dir.join("understudy.yaml")),
        argument("--root-dir", root),
        argument("--cert-dir", &dir.join("certificates")),
    ];
    KubeletCommand {
        program: program.to_owned(),
        arguments: arguments.into_iter().flatten().collect(),
        environment: Vec::new(),
        log: dir.join("kubelet.log"),
    }
}

/// Replaces fields of `under` by those of `over`.
fn overlay(under: &mut Value, over: Value) {
    if let (Value::Object(under), Value::Object(over)) = (under, over) {
        under.extend(over);
    }
}

/// A kubelet that was killed leaves its pods' volumes mounted.
fn unmount_below(dir: &Path) {
    for mount in mounts_below(dir).iter().rev() {
        let _gone = Command::new("umount").args(["-n", "-l"]).arg(mount).status();
    }
}

/// The mounts below a directory, in the order in which they were made.
pub fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("every process has mounts");
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
    points.filter(|point| point.starts_with(dir)).collect()
}
