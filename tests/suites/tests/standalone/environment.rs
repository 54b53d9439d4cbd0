//! The kubelet and the runtime that the suite uses.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use testkit::process::values;

/// The programs and settings that the suite runs with.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The kubelet's binary.
    pub kubelet: PathBuf,
    /// Path of the runtime's socket.
    pub socket: String,
    /// An image that the runtime holds.
    pub image: String,
    /// The cgroup above everything that is started here.
    pub cgroup_parent: String,
    /// The private containerd's directory.
    pub containerd: PathBuf,
    /// Pods that a killed kubelet finds again.
    pub pods: usize,
    /// How long the runtime is away.
    pub outage: Duration,
}

/// Why the suite cannot run.
#[derive(Clone, Debug)]
pub struct Missing {
    pub reason: String,
    pub fails: bool,
}

impl Environment {
    pub fn from_variables() -> Result<Self, Missing> {
        let required = variable("UNDERSTUDY_REQUIRE_RUNTIME").as_deref() == Some("1");
        let needed = |name: &str| {
            variable(name).ok_or_else(|| Missing {
                reason: format!("no kubelet or no runtime: {name} is not set"),
                fails: required && variable("CI").is_some(),
            })
        };
        Ok(Self {
            kubelet: needed("UNDERSTUDY_KUBELET")?.into(),
            socket: needed("UNDERSTUDY_CRI_SOCKET")?,
            image: needed("UNDERSTUDY_TEST_IMAGE")?,
            cgroup_parent: needed("UNDERSTUDY_CGROUP_PARENT")?,
            containerd: needed("UNDERSTUDY_CONTAINERD_DIR")?.into(),
            pods: number("UNDERSTUDY_TEST_PODS").unwrap_or(50),
            outage: Duration::from_secs(number("UNDERSTUDY_OUTAGE_SECONDS").unwrap_or(35)),
        })
    }

    /// The same with another runtime, by the file that says what belongs to it.
    fn on(&self, file: &Path) -> Self {
        let names = ["UNDERSTUDY_CRI_SOCKET", "UNDERSTUDY_CGROUP_PARENT", "UNDERSTUDY_CONTAINERD_DIR"];
        let [socket, cgroup_parent, containerd] = values(file, names);
        Self { socket, cgroup_parent, containerd: containerd.into(), ..self.clone() }
    }

    /// The same environment with this test's binary as the kubelet, which dies on order.
    pub fn mortal(&self) -> std::sync::Arc<Self> {
        let kubelet = std::env::current_exe().expect("this binary has a path");
        std::sync::Arc::new(Self { kubelet, ..self.clone() })
    }

    /// Runs `tests/env/containerd` with this verb: `pause`, `resume`, `kill`, `start`.
    pub fn containerd(&self, verb: &str) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../env/containerd");
        let status = Command::new(script).arg(verb).arg(&self.containerd).status().expect("the script runs");
        assert!(status.success(), "{script} {verb}: {status}");
    }

    /// The process ID of the private containerd.
    pub fn containerd_pid(&self) -> u32 {
        let file = self.containerd.join("containerd.pid");
        let text = std::fs::read_to_string(&file).expect("a containerd of tests/env/containerd");
        text.trim().parse().expect("a process ID")
    }
}

/// Runtimes that cases of their own nodes take in turns, one case at a time on each.
#[derive(Debug)]
pub struct Runtimes {
    /// How many there are.
    pub number: usize,
    free: Mutex<Vec<Arc<Environment>>>,
}

impl Runtimes {
    /// The first one, and those of `UNDERSTUDY_MORE_RUNTIMES`: files of `NAME=value` lines, separated by blanks.
    pub fn with(first: &Arc<Environment>) -> Self {
        let files = variable("UNDERSTUDY_MORE_RUNTIMES").unwrap_or_default();
        let further = files.split_whitespace().map(|file| Arc::new(first.on(Path::new(file))));
        let free: Vec<_> = std::iter::once(Arc::clone(first)).chain(further).collect();
        Self { number: free.len(), free: Mutex::new(free) }
    }

    /// One on which nothing runs. There are as many cases at a time as runtimes.
    pub fn lend(self: Arc<Self>) -> Lent {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Lent { environment: free.expect("as many cases run as there are runtimes"), of: self }
    }
}

/// A runtime while a case runs on it.
#[derive(Debug)]
pub struct Lent {
    environment: Arc<Environment>,
    of: Arc<Runtimes>,
}

impl Deref for Lent {
    type Target = Arc<Environment>;

    fn deref(&self) -> &Self::Target {
        &self.environment
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut free = self.of.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(Arc::clone(&self.environment));
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    variable(name).map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}
