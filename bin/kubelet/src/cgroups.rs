//! The machine's cgroups at the start of the process: who names them, whether those are there that others make, and what
//! there is to say about their version.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use bridge_cri::wire::{self, RuntimeConfigRequest};
use bridge_cri::{CriError, CriErrorKind, Runtime};
use bridge_node::cgroups::{CgroupDriver, CgroupError, CgroupVersion, Cgroups};
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use prometheus::{IntGaugeVec, Opts, Registry};
use resource_manager::{ReservedFor, ResourceManagerConfig};

/// Upstream's: a runtime that starts together with the kubelet gets a little time.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(2);

/// What upstream says of version 1.
const VERSION_1: &str = "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. \
     Please migrate to cgroup v2. More information at \
     https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1";

/// What the runtime answers about the cgroup driver.
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    /// This one.
    Driver(CgroupDriver),
    /// It knows no such question, as containerd before 2.0, or says nothing: the configuration decides.
    Nothing {
        /// It does not have the RPC, and upstream's next version will not do without it.
        outdated: bool,
    },
    /// It does not answer.
    Silent(CriError),
    /// A driver that nobody knows.
    Unknown(i32),
}

/// Asks the runtime for the cgroup driver (row 14.2), a few times if it cannot be reached.
pub async fn ask_driver(runtime: &dyn Runtime) -> Told {
    let mut attempt = 1;
    loop {
        match ask_once(runtime).await {
            // One that hangs would keep the node from starting for a minute.
            Told::Silent(error) if attempt < ATTEMPTS && error.kind != CriErrorKind::DeadlineExceeded => {
                attempt += 1;
                tokio::time::sleep(PAUSE).await;
            }
            told => return told,
        }
    }
}

async fn ask_once(runtime: &dyn Runtime) -> Told {
    match runtime.runtime_config(RuntimeConfigRequest {}).await {
        Ok(config) => match config.linux.map(|linux| linux.cgroup_driver) {
            None => Told::Nothing { outdated: false },
            Some(driver) => match wire::CgroupDriver::try_from(driver) {
                Ok(wire::CgroupDriver::Systemd) => Told::Driver(CgroupDriver::Systemd),
                Ok(wire::CgroupDriver::Cgroupfs) => Told::Driver(CgroupDriver::Cgroupfs),
                Err(_) => Told::Unknown(driver),
            },
        },
        Err(error) if error.is_unimplemented() => Told::Nothing { outdated: true },
        Err(error) => Told::Silent(error),
    }
}

/// Waits until a runtime that was silent at the start answers with another driver than the assumed one; for ever if it
/// agrees. Every cgroup has another name then, so that the process has to start anew; no pod can have started meanwhile.
pub async fn disagreement(runtime: Arc<dyn Runtime>, assumed: CgroupDriver) -> CgroupDriver {
    loop {
        tokio::time::sleep(PAUSE).await;
        match ask_once(&*runtime).await {
            Told::Silent(_) => {}
            Told::Driver(driver) if driver != assumed => return driver,
            _ => return std::future::pending().await,
        }
    }
}

/// The driver to go by, and whether the runtime has yet to confirm it.
///
/// # Errors
/// The runtime named a driver that nobody knows.
pub fn settle_driver(
    told: Told,
    configured: &str,
    registry: &Registry,
) -> anyhow::Result<(CgroupDriver, bool)> {
    let configured = match configured {
        "systemd" => CgroupDriver::Systemd,
        _ => CgroupDriver::Cgroupfs,
    };
    match told {
        Told::Driver(driver) => {
            tracing::info!(
                cgroupDriver = driver.as_str(),
                "Using cgroup driver setting received from the CRI runtime"
            );
            Ok((driver, false))
        }
        Told::Nothing { outdated } => {
            if outdated {
                losing_support(registry).context("register a metric")?;
            }
            Ok((configured, false))
        }
        Told::Silent(error) => {
            tracing::warn!(
                %error,
                cgroupDriver = configured.as_str(),
                "The CRI runtime does not tell its cgroup driver; the configured one is taken until it does"
            );
            Ok((configured, true))
        }
        Told::Unknown(driver) => Err(anyhow!("runtime returned an unknown cgroup driver {driver}")),
    }
}

/// There while systemd is what the machine was started with.
pub const SYSTEMD_RUNS: &str = "/run/systemd/system";

/// Slices are systemd's: on a machine without it the runtime would find none for its containers.
///
/// # Errors
/// The driver is systemd's and there is no `runs`.
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
            "the Kubernetes version that the currently running CRI implementation will lose support on if not \
             upgraded.",
        ),
        &["version"],
    )?;
    gauge.with_label_values(&["1.37.0"]).set(1);
    registry.register(Box::new(gauge))
}

/// Whether the cgroups are there that the configuration names and that others make.
///
/// # Errors
/// The first one that is missing, with its paths.
pub async fn check(cgroups: Arc<dyn Cgroups>, config: ResourceManagerConfig) -> anyhow::Result<()> {
    if !config.per_qos {
        return Ok(());
    }
    let names = cgroups.names();
    match cgroups.check(&names.root()).await {
        // They are handed down to it when the first cgroup is made, if it can be done at all.
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

/// What there is to say about the version, as an event of the node's.
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
