//! The layer that actors use: the registered drivers; reads pass through, mutating calls run in tasks of their own, every
//! call is counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;

use crate::driver::{Connect, Driver, Reply};
use crate::error::{CsiError, CsiErrorKind};
use crate::in_flight::{InFlight, InFlightCalls, Same, Subject, Volume};
use crate::metrics::CsiMetrics;
use crate::rpc::Rpc;
use crate::rules::capabilities::Capabilities;
use crate::rules::csi_node::NodeInfo;
use crate::rules::figures::{Figures, NoFigures};
use crate::rules::versions::{Version, admit};
use crate::wire::*;
use bridge_io::Io;

/// A driver that asks to be registered, as the registration tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The driver's name.
    pub name: String,
    /// The socket of its services.
    pub endpoint: String,
    /// The versions of CSI that it speaks.
    pub versions: Vec<String>,
    /// The socket of the registration, by which two drivers of one name are told apart.
    pub socket: String,
}

/// A registered driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The driver's name.
    pub name: String,
    /// The socket of its services.
    pub endpoint: String,
    /// The highest version of CSI that both sides speak.
    pub version: Version,
    /// The socket of the registration.
    pub socket: String,
}

/// Why a driver was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Its versions are not spoken here, or another driver has its name. In upstream's words.
    #[error("{0}")]
    Refused(String),
    /// It did not tell of the node.
    #[error("{}", .0.status_text())]
    NodeInfo(CsiError),
}

#[derive(Clone)]
struct Known {
    about: Registered,
    driver: Arc<dyn Driver>,
}

/// The CSI drivers of the node, for actors. Cheap to clone; clones share drivers and calls in flight.
///
/// Mutating calls run to their own deadline in a task of the bridge even when the returned future is dropped (or never
/// polled). Calls about a volume as a whole exclude all others of the volume, those about a target only others of that
/// target; a call that has to wait waits its turn, and one that is the same as the last one before it joins that one.
#[derive(Clone)]
pub struct Drivers {
    connect: Arc<dyn Connect>,
    known: Arc<Mutex<BTreeMap<String, Known>>>,
    in_flight: Arc<InFlightCalls>,
    metrics: CsiMetrics,
}

impl Drivers {
    /// No drivers yet. Calls run on `io` and are counted in `metrics`.
    #[must_use]
    pub fn new(connect: Arc<dyn Connect>, io: Io, metrics: CsiMetrics) -> Self {
        Self { connect, known: Arc::default(), in_flight: InFlightCalls::new(io), metrics }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn driver(&self, name: &str, rpc: Rpc) -> Result<Arc<dyn Driver>, CsiError> {
        let known = self.lock().get(name).map(|known| Arc::clone(&known.driver));
        known.ok_or_else(|| CsiError::not_registered(name, rpc))
    }

    /// A call of the driver of this name at the time when the call begins, counted and timed.
    fn observed<T: Send + 'static>(
        &self,
        name: &str,
        rpc: Rpc,
        call: impl FnOnce(&dyn Driver) -> Reply<T> + Send + 'static,
    ) -> Reply<T> {
        let (drivers, name) = (self.clone(), name.to_owned());
        async move {
            let driver = drivers.driver(&name, rpc)?;
            let started = Instant::now();
            let answer = call(&*driver).await;
            drivers.metrics.observe(&name, rpc, started.elapsed(), answer.as_ref().err());
            answer
        }
        .boxed()
    }

    /// Registers a driver: it has to speak a version that is spoken here, and to tell of the node. A driver that asks again
    /// from the same socket takes its own place; another driver of that name is refused unless its version is higher.
    ///
    /// # Errors
    /// [`RegisterError`]; the driver is not registered then.
    pub fn register(&self, candidate: Candidate) -> BoxFuture<'static, Result<NodeInfo, RegisterError>> {
        let drivers = self.clone();
        async move {
            let name = candidate.name.clone();
            {
                let mut known = drivers.lock();
                let other = known.get(&name).filter(|known| known.about.socket != candidate.socket);
                let version = admit(&name, &candidate.versions, other.map(|other| &other.about.version));
                let version = version.map_err(RegisterError::Refused)?;
                let driver = drivers.connect.connect(&name, &candidate.endpoint);
                let about = Registered {
                    name: name.clone(),
                    endpoint: candidate.endpoint,
                    version,
                    socket: candidate.socket.clone(),
                };
                known.insert(name.clone(), Known { about, driver });
            }
            let told = drivers.node_info(&name).await;
            told.map_err(|error| {
                drivers.deregister(&name, &candidate.socket);
                RegisterError::NodeInfo(error)
            })
        }
        .boxed()
    }

    /// Forgets the driver that was registered from this socket; false if there is none. Calls in flight run on.
    pub fn deregister(&self, driver: &str, socket: &str) -> bool {
        let mut known = self.lock();
        let is = known.get(driver).is_some_and(|known| known.about.socket == socket);
        if is {
            known.remove(driver);
        }
        is
    }

    /// The registered drivers, by name.
    #[must_use]
    pub fn registered(&self) -> Vec<Registered> {
        self.lock().values().map(|known| known.about.clone()).collect()
    }

    /// `NodeGetInfo`: also asked again later, since a node's limit may change.
    ///
    /// # Errors
    /// The driver's answer, or that no answer came in time.
    pub fn node_info(&self, driver: &str) -> Reply<NodeInfo> {
        let asked =
            self.observed(driver, Rpc::NodeGetInfo, |driver| driver.node_get_info(NodeGetInfoRequest {}));
        async move {
            let told = asked.await?;
            let topology = told.accessible_topology.map(|topology| topology.segments).unwrap_or_default();
            Ok(NodeInfo { node_id: told.node_id, volumes_max: told.max_volumes_per_node, topology })
        }
        .boxed()
    }

    /// `NodeGetCapabilities`: asked before each operation, as upstream does, since a driver may be replaced behind its socket.
    ///
    /// # Errors
    /// The driver's answer, or that no answer came in time.
    pub fn capabilities(&self, driver: &str) -> Reply<Capabilities> {
        let rpc = Rpc::NodeGetCapabilities;
        let asked =
            self.observed(driver, rpc, |driver| driver.node_get_capabilities(NodeGetCapabilitiesRequest {}));
        async move { Ok(Capabilities::of(&asked.await?)) }.boxed()
    }

    /// The mutating calls that have not ended.
    #[must_use]
    pub fn in_flight(&self) -> Vec<InFlight> {
        self.in_flight.list(|_| true)
    }

    /// Ends when no mutating call is in flight for which one about this target, `None`: about the volume as a whole, would have
    /// to wait; at once when there is none.
    #[must_use]
    pub fn settled(&self, volume: &Volume, target: Option<&str>) -> BoxFuture<'static, ()> {
        Arc::clone(&self.in_flight).settled(volume.clone(), target.map(str::to_owned)).boxed()
    }

    /// Cancels the volume's calls at this target, `None`: those about the volume as a whole; returns their number. The
    /// driver is told, and may act all the same: what follows is an undo by the driver.
    pub fn cancel(&self, volume: &Volume, target: Option<&str>) -> usize {
        self.in_flight.cancel(volume, target)
    }

    /// Puts a mutating call in flight now; the returned future only waits for it.
    fn submit<T: Send + 'static>(
        &self,
        subject: Subject,
        call: impl FnOnce(&dyn Driver) -> Reply<T> + Send + 'static,
        bytes: impl FnOnce(T) -> i64 + Send + 'static,
    ) -> Reply<i64> {
        let (drivers, driver, rpc) = (self.clone(), subject.volume.driver.clone(), subject.rpc);
        self.in_flight.submit(subject, move || {
            async move { drivers.observed(&driver, rpc, call).await.map(bytes) }.boxed()
        })
    }

    /// Refuses, in upstream's words, a request without a handle or a path.
    fn lacking<T: Send + 'static>(
        driver: &str,
        rpc: Rpc,
        volume_id: &str,
        path: (&str, &str),
    ) -> Option<Reply<T>> {
        let what = if volume_id.is_empty() {
            "missing volume id"
        } else if path.1.is_empty() {
            path.0
        } else {
            return None;
        };
        Some(std::future::ready(Err(CsiError::new(driver, rpc, CsiErrorKind::Refused, what))).boxed())
    }

    /// `NodeStageVolume`.
    ///
    /// # Errors
    /// The driver's answer, or that no answer came in time.
    pub fn stage(&self, driver: &str, request: NodeStageVolumeRequest) -> Reply<()> {
        let rpc = Rpc::NodeStageVolume;
        let path = ("missing staging target path", request.staging_target_path.as_str());
        if let Some(refused) = Self::lacking(driver, rpc, &request.volume_id, path) {
            return refused;
        }
        let volume = Volume::new(driver, &request.volume_id);
        let subject = Subject { volume, rpc, target: None, same: Same::of(&request) };
        self.submit(subject, |driver| driver.node_stage_volume(request), |_| 0)
            .map(|ended| ended.map(drop))
            .boxed()
    }

    /// `NodeUnstageVolume`.
    ///
    /// # Errors
    /// The driver's answer, or that no answer came in time.
    pub fn unstage(&self, driver: &str, request: NodeUnstageVolumeRequest) -> Reply<()> {
        let rpc = Rpc::NodeUnstageVolume;
        let path = ("missing staging target path", request.staging_target_path.as_str());
        if let Some(refused) = Self::lacking(driver, rpc, &request.volume_id, path) {
            return refused;
        }
        let volume = Volume::new(driver, &request.volume_id);
        let subject = Subject { volume, rpc, target: None, same: Same::of(&request) };
        self.submit(subject, |driver| driver.node_unstage_volume(request), |_| 0)
            .map(|ended| ended.map(drop))
            .boxed()
    }

    /// `NodePublishVolume`.
    ///
    /// # Errors
    /// The driver's answer, or that no answer came in time.
    pub fn publish(&self, driver: &str, request: NodePublishVolumeRequest) -> Reply<()> {
        let rpc = Rpc::NodePublishVolume;
        let path = ("missing target path", request.target_path.as_str());
        if let Some(refused) = Self::lacking(driver, rpc, &request.volume_id, path) {
            return refused;
        }
        let volume = Volume::new(driver, &request.volume_id);
        let target = Some(request.target_path.clone());
        let subject = Subject { volume, rpc, target, same: Same::of(&request) };
        self.submit(subject, |driver| driver.node_publish_volume(request), |_| 0)
            .map(|ended| ended.map(drop))
            .boxed()
    }

    /// `NodeUnpublishVolume`.
    ///
    /// # Errors
    /// The driver's answer, or that no answer came in time.
    pub fn unpublish(&self, driver: &str, request: NodeUnpublishVolumeRequest) -> Reply<()> {
        let rpc = Rpc::NodeUnpublishVolume;
        let path = ("missing target path", request.target_path.as_str());
        if let Some(refused) = Self::lacking(driver, rpc, &request.volume_id, path) {
            return refused;
        }
        let volume = Volume::new(driver, &request.volume_id);
        let target = Some(request.target_path.clone());
        let subject = Subject { volume, rpc, target, same: Same::of(&request) };
        self.submit(subject, |driver| driver.node_unpublish_volume(request), |_| 0)
            .map(|ended| ended.map(drop))
            .boxed()
    }

    /// `NodeExpandVolume`; returns the volume's new size in bytes, 0 if the driver does not tell it.
    ///
    /// # Errors
    /// The driver's answer, or that no answer came in time.
    pub fn expand(&self, driver: &str, request: NodeExpandVolumeRequest) -> Reply<i64> {
        let rpc = Rpc::NodeExpandVolume;
        let path = ("missing volume path", request.volume_path.as_str());
        if let Some(refused) = Self::lacking(driver, rpc, &request.volume_id, path) {
            return refused;
        }
        let volume = Volume::new(driver, &request.volume_id);
        let subject = Subject { volume, rpc, target: None, same: Same::of(&request) };
        self.submit(subject, |driver| driver.node_expand_volume(request), |told| told.capacity_bytes)
    }

    /// `NodeGetVolumeStats`; dropping it cancels it. `with_health`: the driver tells of health too
    /// ([`Capabilities::volume_condition`]), and need tell no figures then.
    ///
    /// # Errors
    /// The driver's answer, that no answer came in time, or that it has no figures.
    pub fn volume_figures(
        &self,
        driver: &str,
        request: NodeGetVolumeStatsRequest,
        with_health: bool,
    ) -> Reply<Figures> {
        let rpc = Rpc::NodeGetVolumeStats;
        let path = ("missing target path", request.volume_path.as_str());
        if let Some(refused) = Self::lacking(driver, rpc, &request.volume_id, path) {
            return refused;
        }
        let name = driver.to_owned();
        let asked = self.observed(driver, rpc, |driver| driver.node_get_volume_stats(request));
        async move {
            let told = asked.await?;
            Figures::of(&told, with_health).map_err(|error: NoFigures| {
                CsiError::new(name, rpc, CsiErrorKind::Refused, error.to_string())
            })
        }
        .boxed()
    }
}

#[cfg(test)]
#[cfg(feature = "fake")]
mod tests;
