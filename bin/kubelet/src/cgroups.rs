//! The machine's cgroups at the start of the process: the driver that names them, the cgroups that others have to make,
//! and the warnings about their version.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use bridge_cri::wire::{self, RuntimeConfigRequest};
use bridge_cri::{CriError, CriErrorKind, Runtime};
use bridge_io::{Io, lasting};
use bridge_metrics::Registry;
use bridge_node::cgroups::{CgroupDriver, CgroupError, CgroupVersion, Cgroups};
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use prometheus::{IntGaugeVec, Opts};
use resource_manager::{ReservedFor, ResourceManagerConfig};

/// How often the runtime is asked, as upstream does: it may start together with the kubelet.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(2);

/// Upstream's warning about version 1.
const VERSION_1: &str = "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. \
     Please migrate to cgroup v2. More information at \
     https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1";

/// The runtime's answer about the cgroup driver.
#[derive(Debug, PartialEq, Eq)]
pub enum DriverAnswer {
    /// The runtime uses this driver.
    Driver(CgroupDriver),
    /// The runtime does not have the RPC (containerd before 2.0) or leaves the driver out: the configuration decides.
    Nothing {
        /// The runtime does not have the RPC; a later release of upstream will require it.
        outdated: bool,
    },
    /// The runtime does not answer.
    Silent(CriError),
    /// The runtime states a number that is no known driver.
    Unknown(i32),
}

/// Asks the runtime for the cgroup driver (row 14.2), a few times if it cannot be reached.
pub async fn ask_driver(runtime: &dyn Runtime) -> DriverAnswer {
    let mut attempt = 1;
    loop {
        match ask_once(runtime).await {
            // A runtime that hangs would delay the start by a minute.
            DriverAnswer::Silent(error)
                if attempt < ATTEMPTS && error.kind != CriErrorKind::DeadlineExceeded =>
            {
                attempt += 1;
                tokio::time::sleep(PAUSE).await;
            }
            told => return told,
        }
    }
}

async fn ask_once(runtime: &dyn Runtime) -> DriverAnswer {
    match runtime.runtime_config(RuntimeConfigRequest {}).await {
        Ok(config) => match config.linux.map(|linux| linux.cgroup_driver) {
            None => DriverAnswer::Nothing { outdated: false },
            Some(driver) => match wire::CgroupDriver::try_from(driver) {
                Ok(wire::CgroupDriver::Systemd) => DriverAnswer::Driver(CgroupDriver::Systemd),
                Ok(wire::CgroupDriver::Cgroupfs) => DriverAnswer::Driver(CgroupDriver::Cgroupfs),
                Err(_) => DriverAnswer::Unknown(driver),
            },
        },
        Err(error) if error.is_unimplemented() => DriverAnswer::Nothing { outdated: true },
        Err(error) => DriverAnswer::Silent(error),
    }
}

/// Waits until a runtime that was silent at the start answers with another driver than the assumed one; for ever if it
/// agrees. Another driver changes the name of every cgroup, so the process has to restart; no pod can have started
/// meanwhile.
pub async fn disagreement(runtime: Arc<dyn Runtime>, assumed: CgroupDriver) -> CgroupDriver {
    loop {
        tokio::time::sleep(PAUSE).await;
        match ask_once(&*runtime).await {
            DriverAnswer::Silent(_) => {}
            DriverAnswer::Driver(driver) if driver != assumed => return driver,
            _ => return std::future::pending().await,
        }
    }
}

/// Ends when a runtime that was silent at the start states another cgroup driver than was assumed.
pub fn watch_driver(
    io: &Io,
    runtime: &Arc<dyn Runtime>,
    assumed: Option<CgroupDriver>,
) -> impl Future<Output = CgroupDriver> + use<> {
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    if let Some(assumed) = assumed {
        let runtime = runtime.clone();
        let watch = move || {
            let (runtime, tell) = (runtime.clone(), tell.clone());
            async move {
                let driver = disagreement(runtime, assumed).await;
                let _ending = tell.send(driver).await;
            }
        };
        drop(io.spawn(lasting("watch the runtime's cgroup driver", watch)));
    }
    async move {
        match told.recv().await {
            Some(driver) => driver,
            None => std::future::pending().await,
        }
    }
}

/// The driver to use, and whether the runtime still has to confirm it.
///
/// # Errors
/// The runtime states an unknown driver.
pub fn settle_driver(
    told: DriverAnswer,
    configured: &str,
    registry: &Registry,
) -> anyhow::Result<(CgroupDriver, bool)> {
    let configured = match configured {
        "systemd" => CgroupDriver::Systemd,
        _ => CgroupDriver::Cgroupfs,
    };
    match told {
        DriverAnswer::Driver(driver) => {
            tracing::info!(
                cgroupDriver = driver.as_str(),
                "Using cgroup driver setting received from the CRI runtime"
            );
            Ok((driver, false))
        }
        DriverAnswer::Nothing { outdated } => {
            if outdated {
                losing_support(registry).context("register a metric")?;
            }
            Ok((configured, false))
        }
        DriverAnswer::Silent(error) => {
            tracing::warn!(
                %error,
                cgroupDriver = configured.as_str(),
                "The CRI runtime does not tell its cgroup driver; the configured one is taken until it does"
            );
            Ok((configured, true))
        }
        DriverAnswer::Unknown(driver) => Err(anyhow!("runtime returned an unknown cgroup driver {driver}")),
    }
}

/// The directory that exists while systemd is the machine's init system.
pub const SYSTEMD_RUNS: &str = "/run/systemd/system";

/// Refuses the driver systemd on a machine without systemd, where the runtime could make no slice for its containers.
///
/// # Errors
/// The driver is systemd's and the directory `runs` does not exist.
pub fn require_systemd(driver: CgroupDriver, runs: &Path) -> anyhow::Result<()> {
    match driver {
        CgroupDriver::Systemd if !runs.is_dir() => Err(anyhow!(
            "cgroup driver \"systemd\" (cgroupDriver, or the container runtime's own): systemd not running on this \
             host, cannot use systemd cgroups manager"
        )),
        _ => Ok(()),
    }
}

fn losing_support(registry: &Registry) -> prometheus::Result<()> {
    tracing::info!(
        "CRI implementation should be updated to support RuntimeConfig. Falling back to using cgroupDriver from \
         kubelet config."
    );
    let gauge = IntGaugeVec::new(
        Opts::new(
            "kubelet_cri_losing_support",
            "[ALPHA] the Kubernetes version that the currently running CRI implementation will lose support on if not \
             upgraded.",
        ),
        &["version"],
    )?;
    gauge.with_label_values(&["1.37.0"]).set(1);
    registry.register(Box::new(gauge))
}

/// Checks that the cgroups exist which the configuration names and others have to make.
///
/// # Errors
/// The first missing cgroup, with its paths.
pub async fn check(cgroups: Arc<dyn Cgroups>, config: ResourceManagerConfig) -> anyhow::Result<()> {
    if !config.per_qos {
        return Ok(());
    }
    let names = cgroups.names();
    match cgroups.check(&names.root()).await {
        // Missing controllers are handed down when the first cgroup is made, if possible.
        Err(error @ CgroupError::MissingControllers { .. }) => tracing::warn!(%error, "cgroupRoot"),
        checked => checked.context("invalid configuration: cgroupRoot (--cgroup-root)")?,
    }
    for reserved in &config.reserved {
        let field = match reserved.reserved_for {
            ReservedFor::System => "systemReservedCgroup",
            ReservedFor::Kube => "kubeReservedCgroup",
        };
        let cgroup = names.configured(field, &reserved.name)?;
        let missing = || format!("invalid configuration: {field} {:?}", reserved.name);
        cgroups.check(&cgroup).await.with_context(missing)?;
    }
    Ok(())
}

/// The warning about the version as an event of the node; `None` for version 2.
pub fn version_event(version: CgroupVersion) -> Option<RecordEvent> {
    if version == CgroupVersion::V2 {
        if !Path::new("/sys/fs/cgroup/cpu.stat").exists() {
            tracing::warn!(
                "cgroup v2 is being used on a kernel, which doesn't support root `cpu.stat`.Kubelet will continue, \
                 but may experience instability or wrong behavior"
            );
        }
        return None;
    }
    tracing::warn!("{VERSION_1}");
    Some(RecordEvent {
        object: EventObject::Node,
        event_type: EventType::Warning,
        reason: Arc::from("CgroupV1"),
        message: Arc::from(VERSION_1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_of_systemd_needs_systemd() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let none = dir.path().join("none");
        for (driver, runs, well) in [
            (CgroupDriver::Systemd, dir.path(), true),
            (CgroupDriver::Systemd, none.as_path(), false),
            (CgroupDriver::Cgroupfs, none.as_path(), true),
        ] {
            assert_eq!(require_systemd(driver, runs).is_ok(), well, "{driver:?} {}", runs.display());
        }
        let error = require_systemd(CgroupDriver::Systemd, &none).expect_err("there is none").to_string();
        assert!(
            error.ends_with("systemd not running on this host, cannot use systemd cgroups manager"),
            "{error}"
        );
    }
}
