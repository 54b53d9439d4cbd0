//! The slices of the cgroup driver systemd. The kubelet asks systemd for them over D-Bus, so that systemd knows them
//! and their limits and keeps both over a `daemon-reload`.
//!
//! The D-Bus proxy is our own rather than the client of `cgroups-rs`: that client makes no unit without a process in
//! it, does not wait for systemd's jobs, and takes every error of the bus for "there is no such unit".

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use zbus::proxy::CacheProperties;
use zbus::zvariant::{OwnedObjectPath, Value};
use zbus::{Connection, connection};

use super::units::{self, Property, Setting};
use super::{CgroupError, CgroupValues, CgroupVersion};

/// systemd's private socket, for root alone: it exists before any bus does, and on machines without one.
const PRIVATE_SOCKET: &str = "/run/systemd/private";
/// How long systemd may take for one job, as upstream waits.
const DEADLINE: Duration = Duration::from_secs(30);
/// Calls about units that are under way at once; systemd works on one after the other.
const CALLS_MAX: usize = 16;
/// Jobs of one unit whose ends may be heard before systemd's answer tells which one is the caller's.
const ENDS_MAX: usize = 16;
/// A job replaces another one of the same unit.
const MODE: &str = "replace";
const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
const NO_SUCH_UNIT: &str = "org.freedesktop.systemd1.NoSuchUnit";

type Properties<'a> = [(&'a str, Value<'a>)];

#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1",
    gen_blocking = false
)]
trait Manager {
    fn subscribe(&self) -> zbus::Result<()>;
    fn start_transient_unit(
        &self,
        name: &str,
        mode: &str,
        properties: &Properties<'_>,
        others: &[(&str, &Properties<'_>)],
    ) -> zbus::Result<OwnedObjectPath>;
    fn set_unit_properties(&self, name: &str, runtime: bool, properties: &Properties<'_>)
    -> zbus::Result<()>;
    fn stop_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn reset_failed_unit(&self, name: &str) -> zbus::Result<()>;
    #[zbus(property)]
    fn version(&self) -> zbus::Result<String>;
    #[zbus(signal)]
    fn job_removed(&self, id: u32, job: OwnedObjectPath, unit: String, result: String) -> zbus::Result<()>;
}

/// Opens a connection to systemd.
pub(super) type Connect = Arc<dyn Fn() -> BoxFuture<'static, zbus::Result<Connection>> + Send + Sync>;

/// A connection to systemd.
#[derive(Clone)]
struct Reached {
    manager: ManagerProxy<'static>,
    version: u32,
    jobs: Arc<Jobs>,
    /// Hears the ends of jobs for as long as the connection is used.
    _listener: Arc<AbortOnDropHandle<()>>,
}

/// Jobs that callers wait for. One listener for each connection takes every end of a job at once: systemd tells the ends of all
/// jobs of the machine, and a connection reads nothing more, no answers either, while a listener leaves them lying.
#[derive(Default)]
struct Jobs(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    units: Vec<(String, mpsc::Sender<JobEnd>)>,
    closed: bool,
}

/// Which job has ended, and how.
type JobEnd = (OwnedObjectPath, String);

impl Jobs {
    fn locked(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ends of this unit's jobs from now on; to be called before the job is asked for.
    fn of(&self, unit: &str) -> mpsc::Receiver<JobEnd> {
        let (tell, ends) = mpsc::channel(ENDS_MAX);
        let mut waiting = self.locked();
        waiting.units.retain(|(_, waiter)| !waiter.is_closed());
        if !waiting.closed {
            waiting.units.push((unit.to_owned(), tell));
        }
        ends
    }

    /// Tells those that wait until the connection ends.
    async fn listen(self: Arc<Self>, mut ends: JobRemovedStream) {
        while let Some(end) = ends.next().await {
            let Ok(end) = end.args() else { continue };
            for (_, tell) in self.locked().units.iter().filter(|(unit, _)| *unit == end.unit) {
                // One that does not take them waits no longer.
                let _ = tell.try_send((end.job.clone(), end.result.clone()));
            }
        }
        *self.locked() = Waiting { units: Vec::new(), closed: true };
    }
}

/// The units of this machine's systemd.
pub(super) struct Slices {
    version: CgroupVersion,
    connect: Connect,
    reached: tokio::sync::Mutex<Option<Reached>>,
    calls: Semaphore,
    /// What each unit was last told. A unit is told again when it shall hold something else, or was not there.
    told: Mutex<BTreeMap<String, Vec<Property>>>,
}

impl std::fmt::Debug for Slices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slices").field("version", &self.version).finish_non_exhaustive()
    }
}

/// Why systemd did not carry out a request.
enum Refusal {
    /// systemd answered with this D-Bus error: its name and its text.
    Error(String, String),
    /// The job ended with another result than `done`, or not in time.
    Job(String),
    /// There was no answer.
    Lost(String),
}

impl Refusal {
    fn told(self, operation: &'static str, unit: &str) -> CgroupError {
        match self {
            Self::Lost(reason) => CgroupError::NoSystemd { reason },
            Self::Error(name, text) => CgroupError::Unit {
                operation,
                unit: unit.to_owned(),
                reason: if text.is_empty() { name } else { text },
            },
            Self::Job(reason) => CgroupError::Unit { operation, unit: unit.to_owned(), reason },
        }
    }
}

impl From<zbus::Error> for Refusal {
    fn from(error: zbus::Error) -> Self {
        match error {
            zbus::Error::MethodError(name, text, _) => {
                Self::Error(name.to_string(), text.unwrap_or_default())
            }
            zbus::Error::FDO(error) => {
                Self::Error("org.freedesktop.DBus.Error".to_owned(), error.to_string())
            }
            other => Self::Lost(other.to_string()),
        }
    }
}

/// Connects to the system bus, or to systemd's private socket where there is no bus.
async fn system() -> zbus::Result<Connection> {
    let on_bus = match connection::Builder::system() {
        Ok(builder) => builder.build().await,
        Err(error) => Err(error),
    };
    let Err(no_bus) = on_bus else { return on_bus };
    let socket = match tokio::net::UnixStream::connect(PathBuf::from(PRIVATE_SOCKET)).await {
        Ok(socket) => socket,
        // The missing bus is the unusual part, so its error is returned.
        Err(_) => return Err(no_bus),
    };
    connection::Builder::unix_stream(socket).p2p().build().await
}

fn given(properties: &[Property]) -> Vec<(&str, Value<'_>)> {
    let value = |setting: &Setting| match setting {
        Setting::Flag(flag) => Value::from(*flag),
        Setting::Number(number) => Value::from(*number),
        Setting::Text(text) => Value::from(text.clone()),
        Setting::Texts(texts) => Value::from(texts.clone()),
    };
    properties.iter().map(|(name, setting)| (*name, value(setting))).collect()
}

impl Slices {
    /// The slices of this machine's systemd. Nothing is connected yet.
    pub(super) fn of_this_machine(version: CgroupVersion) -> Self {
        Self::over(version, Arc::new(|| Box::pin(system())))
    }

    /// The slices of the systemd at the other end of such a connection.
    pub(super) fn over(version: CgroupVersion, connect: Connect) -> Self {
        let (reached, calls) = (tokio::sync::Mutex::default(), Semaphore::new(CALLS_MAX));
        Self { version, connect, reached, calls, told: Mutex::default() }
    }

    async fn reach(&self) -> Result<Reached, Refusal> {
        let mut held = self.reached.lock().await;
        if let Some(reached) = &*held {
            return Ok(reached.clone());
        }
        let lost = |error: zbus::Error| Refusal::Lost(error.to_string());
        let connection = (self.connect)().await.map_err(lost)?;
        let manager = ManagerProxy::builder(&connection).cache_properties(CacheProperties::No);
        let manager = manager.build().await.map_err(lost)?;
        // Without a subscription, systemd does not report the ends of its jobs.
        manager.subscribe().await.map_err(lost)?;
        let (jobs, ends) = (Arc::new(Jobs::default()), manager.receive_job_removed().await.map_err(lost)?);
        let listener = Arc::new(AbortOnDropHandle::new(tokio::spawn(jobs.clone().listen(ends))));
        let version = manager.version().await.map_or(0, |text| units::version_number(&text));
        Ok(held.insert(Reached { manager, version, jobs, _listener: listener }).clone())
    }

    async fn reached_in_time(&self) -> Result<Reached, Refusal> {
        let late = || Refusal::Lost(format!("no answer within {} s", DEADLINE.as_secs()));
        timeout(DEADLINE, self.reach()).await.map_err(|_| late())?
    }

    /// Makes a call, and repeats it on a new connection if the present one has lost systemd.
    async fn call<T>(
        &self,
        work: impl Fn(Reached) -> BoxFuture<'static, Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let _call = self.calls.acquire().await.map_err(|error| Refusal::Lost(error.to_string()))?;
        let mut outcome = in_time(work(self.reached_in_time().await?)).await;
        if let Err(Refusal::Lost(_)) = outcome {
            *self.reached.lock().await = None;
            outcome = in_time(work(self.reached_in_time().await?)).await;
        }
        outcome
    }

    /// Makes the slice of this cgroup with these values. `is_there` says whether the cgroup's directories exist.
    pub(super) async fn ensure(
        &self,
        cgroup: &str,
        values: &CgroupValues,
        is_there: bool,
    ) -> Result<(), CgroupError> {
        let (unit, _) = units::unit(cgroup);
        let made_with = units::made_with(cgroup, self.version);
        if !is_there || self.told(unit).is_none() {
            let started = self.call(|reached| Box::pin(start(reached, unit.to_owned(), made_with.clone())));
            started.await.map_err(|refusal| refusal.told("start", unit))?;
            self.forget(unit);
        }
        self.set(unit, values).await
    }

    /// Sets the values of a slice that others have made.
    pub(super) async fn update(&self, cgroup: &str, values: &CgroupValues) -> Result<(), CgroupError> {
        self.set(units::unit(cgroup).0, values).await
    }

    async fn set(&self, unit: &str, values: &CgroupValues) -> Result<(), CgroupError> {
        let told = self.told(unit);
        let set = self.call(|reached| {
            let limits = units::limits(values, self.version, reached.version);
            let is_news = told.as_ref() != Some(&limits) && !limits.is_empty();
            Box::pin(set(reached, unit.to_owned(), limits, is_news))
        });
        let limits = set.await.map_err(|refusal| refusal.told("set properties of", unit))?;
        self.locked().insert(unit.to_owned(), limits);
        Ok(())
    }

    /// Stops the slice of this cgroup, which ends every process below it. Succeeds for a slice that systemd does not
    /// know.
    pub(super) async fn stop(&self, cgroup: &str) -> Result<(), CgroupError> {
        let (unit, _) = units::unit(cgroup);
        self.forget(unit);
        let stopped = self.call(|reached| Box::pin(stop(reached, unit.to_owned())));
        stopped.await.map_err(|refusal| refusal.told("stop", unit))
    }

    fn told(&self, unit: &str) -> Option<Vec<Property>> {
        self.locked().get(unit).cloned()
    }

    fn forget(&self, unit: &str) {
        self.locked().remove(unit);
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<Property>>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The work's result, or the error that it takes too long.
async fn in_time<T>(work: BoxFuture<'static, Result<T, Refusal>>) -> Result<T, Refusal> {
    let late = || Refusal::Job(format!("systemd has not done it within {} s", DEADLINE.as_secs()));
    timeout(DEADLINE, work).await.map_err(|_| late())?
}

async fn set(
    reached: Reached,
    unit: String,
    limits: Vec<Property>,
    is_news: bool,
) -> Result<Vec<Property>, Refusal> {
    if is_news {
        reached.manager.set_unit_properties(&unit, true, &given(&limits)).await?;
    }
    Ok(limits)
}

async fn start(reached: Reached, unit: String, properties: Vec<Property>) -> Result<(), Refusal> {
    let mut ends = reached.jobs.of(&unit);
    let job = reached.manager.start_transient_unit(&unit, MODE, &given(&properties), &[]).await;
    let result = match job.map_err(Refusal::from) {
        Ok(job) => ended(&mut ends, &job).await?,
        // The unit exists already, made by the runtime or an earlier kubelet.
        Err(Refusal::Error(name, _)) if name == UNIT_EXISTS => return Ok(()),
        Err(refusal) => return Err(refusal),
    };
    if result != "done" {
        let _ = reached.manager.reset_failed_unit(&unit).await;
        return Err(Refusal::Job(format!("the job ended with {result:?}")));
    }
    Ok(())
}

async fn stop(reached: Reached, unit: String) -> Result<(), Refusal> {
    let mut ends = reached.jobs.of(&unit);
    match reached.manager.stop_unit(&unit, MODE).await.map_err(Refusal::from) {
        Ok(job) => {
            let result = ended(&mut ends, &job).await?;
            if result != "done" {
                tracing::warn!(unit, result, "systemd has not stopped a slice; going on");
            }
        }
        Err(Refusal::Error(name, _)) if name == NO_SUCH_UNIT => return Ok(()),
        Err(refusal) => return Err(refusal),
    }
    // A failed unit stays known to systemd until it is reset.
    let _ = reached.manager.reset_failed_unit(&unit).await;
    Ok(())
}

/// How a job ended.
async fn ended(ends: &mut mpsc::Receiver<JobEnd>, job: &OwnedObjectPath) -> Result<String, Refusal> {
    while let Some((ended, result)) = ends.recv().await {
        if ended == *job {
            return Ok(result);
        }
    }
    Err(Refusal::Lost("the connection has ended".to_owned()))
}
