//! The kubelet and the runtime that the suite uses.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

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
            outage: Duration::from_secs(number("UNDERSTUDY_OUTAGE_SECONDS").unwrap_or(60)),
        })
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

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    variable(name).map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}
