//! The programs and settings of the suite.

use std::net::{IpAddr, UdpSocket};
use std::path::PathBuf;

use csi_driver::programs::program;

/// Everything that the suite needs.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The kubelet under test.
    pub ours: PathBuf,
    /// The Go kubelet.
    pub go: PathBuf,
    pub kubectl: PathBuf,
    /// A registrar of CSI drivers that both kubelets accept.
    pub registrar: PathBuf,
    /// Path of the runtime's socket.
    pub socket: String,
    pub image: String,
    pub cgroup_parent: String,
    /// The directory of the control plane.
    pub plane: PathBuf,
    pub admin: PathBuf,
    pub authority: PathBuf,
    /// An address of this machine at which the API server reaches the kubelet.
    pub address: IpAddr,
}

impl Environment {
    /// The error says what is missing.
    pub fn find() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can run a kubelet".to_owned());
        }
        Ok(Self {
            ours: needed("UNDERSTUDY_KUBELET")?.into(),
            socket: needed("UNDERSTUDY_CRI_SOCKET")?,
            image: needed("UNDERSTUDY_TEST_IMAGE")?,
            cgroup_parent: needed("UNDERSTUDY_CGROUP_PARENT")?,
            plane: needed("UNDERSTUDY_CONTROL_PLANE_DIR")?.into(),
            admin: needed("UNDERSTUDY_ADMIN_KUBECONFIG")?.into(),
            authority: needed("UNDERSTUDY_CLUSTER_CA")?.into(),
            go: program("UNDERSTUDY_GO_KUBELET", "kubelet")?,
            kubectl: program("UNDERSTUDY_KUBECTL", "kubectl")?,
            registrar: csi_driver::registrar::find()?,
            address: own_address()?,
        })
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn needed(name: &str) -> Result<String, String> {
    variable(name).ok_or_else(|| format!("no kubelet, runtime or API server: {name} is not set"))
}

/// The address from which the machine would reach others; no packet is sent.
fn own_address() -> Result<IpAddr, String> {
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(|error| error.to_string())?;
    let address = socket.connect("203.0.113.1:9").and_then(|()| socket.local_addr());
    let address = address.map_err(|_| "the Go kubelet needs a default route")?;
    Ok(address.ip())
}
