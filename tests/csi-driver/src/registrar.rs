//! A registrar of drivers that a Go kubelet accepts, as a process: `csi-registrar` of `tests/env/go-kubelet`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::programs::program;

/// The program of this machine.
///
/// # Errors
/// There is none, and where it was looked for.
pub fn find() -> Result<PathBuf, String> {
    program("UNDERSTUDY_CSI_REGISTRAR", "csi-registrar")
}

/// A registered driver. Dropping it ends the process; the registration's socket goes with it.
#[derive(Debug)]
pub struct Registrar {
    child: Child,
    socket: PathBuf,
}

impl Registrar {
    /// Registers the driver that serves at `endpoint` with the kubelet that looks into `registry`, and with those after it.
    ///
    /// # Errors
    /// A message when the program cannot be run.
    pub fn start(program: &Path, registry: &Path, driver: &str, endpoint: &Path) -> Result<Self, String> {
        // The kernel takes no path of more than 107 bytes, and a test's directory may be deep.
        let socket = registry.join("reg.sock");
        let mut command = Command::new(program);
        command.arg(&socket).arg(driver).arg(endpoint);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        Ok(Self { child: child.map_err(|error| format!("{command:?}: {error}"))?, socket })
    }
}

impl Drop for Registrar {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}
