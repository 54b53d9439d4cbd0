//! kubernetes-csi's hostpath driver and its node-driver-registrar, as processes: a driver that was not written with this
//! kubelet in mind.
//!
//! Nothing here builds them. They are looked for where `CSI_HOSTPATH` and `CSI_REGISTRAR` say, else as `hostpathplugin` and
//! `csi-node-driver-registrar` in the cache directory (`UNDERSTUDY_CACHE`, default `~/.cache/understudy/bin`). The test does
//! the work of the provisioner and the attacher through the driver's controller service, see [`controller`](crate::controller).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::controller::Controller;
use crate::programs::program;

/// The two programs.
#[derive(Clone, Debug)]
pub struct Programs {
    plugin: PathBuf,
    registrar: PathBuf,
}

impl Programs {
    /// The programs of this machine.
    ///
    /// # Errors
    /// Which one is missing, and where it was looked for.
    pub fn find() -> Result<Self, String> {
        Ok(Self {
            plugin: program("CSI_HOSTPATH", "hostpathplugin")?,
            registrar: program("CSI_REGISTRAR", "csi-node-driver-registrar")?,
        })
    }
}

/// The driver on one node. Dropping it ends both processes; what is mounted stays.
#[derive(Debug)]
pub struct Hostpath {
    programs: Programs,
    /// The name of the driver.
    pub name: String,
    node: String,
    directory: PathBuf,
    registry: PathBuf,
    plugin: Option<Child>,
    registrar: Option<Child>,
}

/// The most volumes that the driver says its node takes.
pub const VOLUMES_MAX: u32 = 7;

impl Hostpath {
    /// A driver of this name for the node, whose state lies in `directory`; nothing runs yet.
    #[must_use]
    pub fn new(programs: Programs, name: &str, node: &str, directory: &Path, registry: &Path) -> Self {
        Self {
            programs,
            name: name.to_owned(),
            node: node.to_owned(),
            directory: directory.to_owned(),
            registry: registry.to_owned(),
            plugin: None,
            registrar: None,
        }
    }

    /// Starts both programs, as far as they do not run.
    ///
    /// # Errors
    /// A message when one cannot be run.
    pub fn start(&mut self) -> Result<(), String> {
        if self.plugin.is_none() {
            let mut command = Command::new(&self.programs.plugin);
            command.args(["-v=3", "--enable-attach", "--check-volume-lifecycle"]);
            command.arg(format!("--attach-limit={VOLUMES_MAX}"));
            command.arg(format!("--drivername={}", self.name)).arg(format!("--nodeid={}", self.node));
            command.arg(format!("--endpoint=unix://{}", self.socket().display()));
            command.arg(format!("--statedir={}", self.directory.join("state").display()));
            self.plugin = Some(self.run(command, "plugin.log")?);
        }
        if self.registrar.is_none() {
            let mut command = Command::new(&self.programs.registrar);
            command.arg(format!("--csi-address={}", self.socket().display()));
            command.arg(format!("--kubelet-registration-path={}", self.socket().display()));
            command.arg(format!("--plugin-registration-path={}", self.registry.display()));
            // It gives up when the driver does not answer within this.
            command.arg("--timeout=60s");
            self.registrar = Some(self.run(command, "registrar.log")?);
        }
        Ok(())
    }

    fn run(&self, mut command: Command, log: &str) -> Result<Child, String> {
        let log = File::options().create(true).append(true).open(self.directory.join(log));
        let log = log.map_err(|error| format!("{}: {error}", self.directory.display()))?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        child.map_err(|error| format!("{command:?}: {error}"))
    }

    /// The driver's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.join("csi.sock")
    }

    /// Kills both programs: their sockets stay, and nothing answers there.
    pub fn kill(&mut self) {
        for mut child in self.registrar.take().into_iter().chain(self.plugin.take()) {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The driver's controller service.
    #[must_use]
    pub fn controller(&self) -> Controller {
        Controller::new(&self.socket())
    }

    /// The directory of the volume with this handle.
    #[must_use]
    pub fn data(&self, handle: &str) -> PathBuf {
        self.directory.join("state").join(handle)
    }

    /// How often a call, as `NodeStageVolume`, has reached the driver since it was made.
    #[must_use]
    pub fn count(&self, rpc: &str) -> usize {
        let suffix = format!("/{rpc}");
        self.log().lines().filter(|line| line.contains("GRPC call:") && line.ends_with(&suffix)).count()
    }

    /// What the driver has written.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("plugin.log")).unwrap_or_default()
    }
}

impl Drop for Hostpath {
    fn drop(&mut self) {
        self.kill();
    }
}
