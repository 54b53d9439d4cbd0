//! The runtime, the control plane and kubectl that the suite uses.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::environment::{Environment, Missing};

/// The runtime and control plane that the suite runs against.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The kubelet and its runtime.
    pub runtime: Arc<Environment>,
    /// The directory of the control plane.
    pub plane: PathBuf,
    /// The kubeconfig of the administrator.
    pub admin: PathBuf,
    /// The address by which the API server reaches the node.
    pub ip: IpAddr,
    kubectl: Option<PathBuf>,
}

impl Setting {
    pub fn from_variables() -> Result<Self, Missing> {
        let missing = |reason: String| Missing { reason, fails: required() };
        let runtime = Environment::from_variables().map_err(|absent| missing(absent.reason))?;
        let needed = |name: &str| {
            variable(name)
                .ok_or_else(|| missing(format!("no API server: {name} is not set")))
                .map(PathBuf::from)
        };
        Ok(Self {
            runtime: Arc::new(runtime),
            plane: needed("UNDERSTUDY_CONTROL_PLANE_DIR")?,
            admin: needed("UNDERSTUDY_ADMIN_KUBECONFIG")?,
            ip: address().ok_or_else(|| missing("no address but that of the loopback device".to_owned()))?,
            kubectl: find_kubectl(),
        })
    }

    pub fn kubectl(&self) -> Result<&Path, Missing> {
        self.kubectl.as_deref().ok_or_else(|| Missing {
            reason: "no kubectl: neither KUBECTL nor one in PATH nor in the cache directory; \
                     tests/env/kube-apiserver builds one"
                .to_owned(),
            // kubectl is built together with kube-apiserver; with another kube-apiserver it need not be there.
            fails: false,
        })
    }

    /// Runs `tests/env/control-plane VERB DIR …` and returns its output.
    pub fn control_plane(&self, verb: &str, arguments: &[&str]) -> String {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../env/control-plane");
        let mut command = Command::new(script);
        let output = command.arg(verb).arg(&self.plane).args(arguments).output().expect("the script runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "control-plane {verb}: {said}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

fn required() -> bool {
    variable("CI").is_some() && variable("UNDERSTUDY_REQUIRE_CLUSTER").as_deref() == Some("1")
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn find_kubectl() -> Option<PathBuf> {
    if let Some(named) = variable("KUBECTL") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let cache = variable("UNDERSTUDY_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache/understudy/bin")));
    // The cache's kubectl comes first: it has the API server's version.
    let places = cache.into_iter().chain(std::env::split_paths(&path).collect::<Vec<_>>());
    places.map(|dir| dir.join("kubectl")).find(|file| file.is_file())
}

/// The address from which this machine would reach others; no packet is sent.
fn address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // An address of the block for documentation (RFC 5737): it is routed like any other.
    socket.connect((Ipv4Addr::new(203, 0, 113, 1), 9)).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}
