//! The process around the actors: from a loaded configuration to a running node, and to its end.

use std::future::Future;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use actix_rt::{Arbiter, System};
use anyhow::{Context, anyhow};
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use prometheus::Registry;
use resource_manager::capacity::MachineCapacity;
use runtime_bridge::cgroups::{CgroupDriver, CgroupNames, SystemCgroups};
use runtime_bridge::checkpoint::DirCheckpoints;
use runtime_bridge::clock::{Clock, SystemClock};
use runtime_bridge::cri::{CriClient, Deadlines, Endpoints, PidfdWatcher, Runtime};
use runtime_bridge::host::{
    DiskPodDirs, DiskStaticFiles, Layout, Machine, PodDirs, RootLock, ThisMachine, default_address,
    node_hostname, raise_open_files, set_oom_score_adj,
};
use runtime_bridge::mounts::SystemMounts;
use runtime_bridge::probes::NetProber;
use runtime_bridge::{Io, IoRuntime};
use supervision::{Place, Tree, Watchdog};
use tokio::signal::unix::{SignalKind, signal};

use crate::config::Loaded;
use crate::wiring::{self, Bridge, Node};
use crate::{cgroups, settings};

/// Threads for sockets; blocking calls get more as they need them.
const IO_THREADS: usize = 2;
/// Containers whose exits are watched at once, a file descriptor each.
const EXITS_MAX: usize = 4096;
/// The largest resolver configuration worth reading.
const RESOLV_CONF_BYTES_MAX: u64 = 64 * 1024;

/// Runs the node until a signal or the failure of a vital subsystem ends it.
pub fn run(loaded: &Loaded) -> ExitCode {
    match start_and_wait(loaded) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(err = format!("{error:#}"), "command failed");
            ExitCode::FAILURE
        }
    }
}

fn start_and_wait(loaded: &Loaded) -> anyhow::Result<ExitCode> {
    let root = Path::new(&loaded.flags.root_dir);
    std::fs::create_dir_all(root).with_context(|| format!("--root-dir: create {}", root.display()))?;
    let _lock = RootLock::acquire(root)?;
    own_process(loaded);
    let io = Io::start(IO_THREADS).context("start the I/O runtime")?;
    let clock = Arc::new(SystemClock);
    let seed = loaded.understudy.supervision.seed.unwrap_or_else(|| clock.random_u64());
    let tree = Tree::new(settings::policy(&loaded.understudy, seed));
    let registry = Registry::new();
    let host_ip =
        loaded.flags.node_ip.split(',').find_map(|ip| ip.trim().parse().ok()).or_else(default_address);
    let settings = settings::settings(
        &loaded.config,
        &loaded.understudy,
        &node_name(loaded)?,
        host_ip,
        &machine(&io, loaded)?,
    )?;
    let runtime = runtime(loaded, &io.io())?;
    let told = {
        let runtime = runtime.clone();
        wait(&io, async move { cgroups::ask_driver(&*runtime).await })?
    };
    let configured = &loaded.config.cgroups.cgroup_driver;
    let (driver, unconfirmed) = cgroups::settle_driver(told, configured, &registry)?;
    let bridge = bridge(loaded, &io, clock, runtime, driver)?;
    wait(&io, cgroups::check(bridge.cgroups.clone(), settings.resources.clone()))??;
    ready_directories(&io, &*bridge.dirs)?;

    let system = System::new();
    system.block_on(async {
        let actors = Arbiter::new();
        let node = wiring::wire(&tree, &Place::On(actors.handle()), &registry, &bridge, &settings)
            .context("register metrics")?;
        tracing::info!(node = settings.node, seed, "Started kubelet");
        announce(&node);
        if let Some(event) = cgroups::version_event(bridge.cgroups.version()) {
            let _ = node.record.tell(event);
        }
        let wrong_driver = watch_driver(&bridge, unconfirmed.then_some(driver));
        let watchdog = watch(&tree, loaded)?;
        let code = until_the_end(&tree, wrong_driver).await?;
        tracing::info!("Stopping; containers go on running");
        notify(&[sd_notify::NotifyState::Stopping]);
        drop(watchdog);
        tree.stop_all();
        // What the actors still write (checkpoints) is on its way in the bridge, which is given time for it again when
        // the I/O runtime ends.
        tokio::time::sleep(Duration::from_millis(100)).await;
        actors.stop();
        Ok(code)
    })
}

fn node_name(loaded: &Loaded) -> anyhow::Result<String> {
    let overridden = &loaded.flags.hostname_override;
    let raw = if overridden.is_empty() {
        std::fs::read_to_string("/proc/sys/kernel/hostname").context("read the machine's host name")?
    } else {
        overridden.clone()
    };
    Ok(node_hostname(&raw)?)
}

fn machine(io: &IoRuntime, loaded: &Loaded) -> anyhow::Result<MachineCapacity> {
    let machine = ThisMachine::new(io.io().enter(tokio::runtime::Handle::current));
    let facts = wait(io, machine.facts())??;
    let storage = match loaded.config.eviction.local_storage_capacity_isolation {
        true => Some(wait(io, machine.storage_bytes(Path::new(&loaded.flags.root_dir)))??),
        false => None,
    };
    Ok(MachineCapacity {
        cpus: facts.cpu_count,
        memory_bytes: facts.memory_bytes,
        storage_bytes: storage,
        huge_pages: facts.huge_pages,
        pids: facts.pids_max,
    })
}

/// The answer of something that runs on the I/O runtime, before there is any actor.
fn wait<T: Send + 'static>(
    io: &IoRuntime,
    work: impl Future<Output = T> + Send + 'static,
) -> anyhow::Result<T> {
    let (done, answer) = std::sync::mpsc::channel();
    drop(io.io().spawn(async move { done.send(work.await) }));
    answer.recv().map_err(|_| anyhow!("the I/O runtime ended"))
}

fn own_process(loaded: &Loaded) {
    let files = u64::try_from(loaded.config.cgroups.max_open_files).unwrap_or(0);
    if let Err(error) = raise_open_files(files) {
        tracing::warn!(%error, "Open files are limited more tightly than configured");
    }
    if let Err(error) = set_oom_score_adj(loaded.config.cgroups.oom_score_adj) {
        tracing::warn!(%error, "The kubelet is as likely to be killed in need of memory as its pods");
    }
}

fn runtime(loaded: &Loaded, io: &Io) -> anyhow::Result<Arc<dyn Runtime>> {
    let images = &loaded.config.images;
    let mut endpoints = Endpoints::new(images.container_runtime_endpoint.as_str());
    if !images.image_service_endpoint.is_empty() {
        endpoints.image = Some(images.image_service_endpoint.clone());
    }
    endpoints.deadlines = Deadlines::new(images.runtime_request_timeout.as_std());
    Ok(Arc::new(CriClient::new(io, &endpoints)?))
}

fn bridge(
    loaded: &Loaded,
    io: &IoRuntime,
    clock: Arc<SystemClock>,
    runtime: Arc<dyn Runtime>,
    driver: CgroupDriver,
) -> anyhow::Result<Bridge> {
    let io = io.io();
    let handle = io.enter(tokio::runtime::Handle::current);
    let layout = Layout::new(
        &loaded.flags.root_dir,
        &loaded.config.pods.pod_logs_dir,
        &loaded.understudy.legacy_log_symlink_dir,
    )?;
    let names = CgroupNames::new(driver, &loaded.config.cgroups.cgroup_root)?;
    Ok(Bridge {
        runtime,
        exits: Arc::new(PidfdWatcher::new(io.clone(), EXITS_MAX)),
        clock,
        checkpoints: Arc::new(DirCheckpoints::new(layout.data_dir("understudy"), handle.clone())),
        files: Arc::new(DiskStaticFiles::new(handle.clone())),
        dirs: Arc::new(DiskPodDirs::new(layout, handle.clone())),
        mounts: Arc::new(SystemMounts::new(handle.clone())),
        prober: Arc::new(NetProber::new(handle.clone())),
        cgroups: Arc::new(SystemCgroups::detect(names, handle)?),
        resolv_conf: resolv_conf(&io, &loaded.config.pods.resolv_conf),
        io,
    })
}

fn resolv_conf(io: &Io, path: &str) -> Option<pod_worker::ReadResolvConf> {
    if path.is_empty() {
        return None;
    }
    let (io, path) = (io.clone(), path.to_owned());
    Some(Arc::new(move || {
        let path = path.clone();
        let read = io.blocking(move || read_small(Path::new(&path)));
        Box::pin(async move { read.await.map_err(|error| error.to_string())? })
    }))
}

fn read_small(path: &Path) -> Result<String, String> {
    use std::io::Read;
    let shown = path.display();
    let file = std::fs::File::open(path).map_err(|error| format!("open {shown}: {error}"))?;
    let mut text = String::new();
    let read = file.take(RESOLV_CONF_BYTES_MAX).read_to_string(&mut text);
    read.map(|_| text).map_err(|error| format!("read {shown}: {error}"))
}

fn ready_directories(io: &IoRuntime, dirs: &dyn PodDirs) -> anyhow::Result<()> {
    for warning in wait(io, dirs.ensure_data_dirs())?? {
        tracing::warn!("{warning}");
    }
    Ok(())
}

fn announce(node: &Node) {
    let started = RecordEvent {
        object: EventObject::Node,
        event_type: EventType::Normal,
        reason: Arc::from("Starting"),
        message: Arc::from("Starting kubelet."),
    };
    let _ = node.record.tell(started);
    notify(&[sd_notify::NotifyState::Ready]);
}

/// Tells systemd, if it started us; without it nothing happens.
fn notify(states: &[sd_notify::NotifyState]) {
    if let Err(error) = sd_notify::notify(false, states) {
        tracing::warn!(%error, "systemd cannot be told");
    }
}

fn watch(tree: &Tree, loaded: &Loaded) -> anyhow::Result<Watchdog> {
    let feed = || notify(&[sd_notify::NotifyState::Watchdog]);
    let give_up = |failure: supervision::Failure| {
        tracing::error!(subsystem = failure.actor, reason = failure.reason, "A thread is blocked for good");
        // The main thread may be the blocked one: nothing but the end is left.
        std::process::exit(1);
    };
    Watchdog::start(tree.clone(), settings::watchdog(&loaded.understudy), feed, give_up)
        .context("start the watchdog")
}

/// Ends when the runtime, which was silent at the start, answers that cgroups are called otherwise than was assumed.
fn watch_driver(
    bridge: &Bridge,
    assumed: Option<CgroupDriver>,
) -> impl Future<Output = CgroupDriver> + use<> {
    let (tell, told) = tokio::sync::oneshot::channel();
    if let Some(assumed) = assumed {
        let runtime = bridge.runtime.clone();
        drop(bridge.io.spawn(async move { tell.send(cgroups::disagreement(runtime, assumed).await) }));
    }
    async {
        match told.await {
            Ok(driver) => driver,
            Err(_) => std::future::pending().await,
        }
    }
}

/// The exit code, once there is one.
async fn until_the_end(
    tree: &Tree,
    wrong_driver: impl Future<Output = CgroupDriver>,
) -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate()).context("catch SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("catch SIGINT")?;
    tokio::select! {
        biased;
        failure = tree.failed() => {
            tracing::error!(subsystem = failure.actor, reason = failure.reason, "A vital subsystem has failed; the kubelet exits");
            Ok(ExitCode::FAILURE)
        }
        driver = wrong_driver => {
            tracing::error!(
                cgroupDriver = driver.as_str(),
                "The CRI runtime has another cgroup driver than was assumed while it was silent; the kubelet exits to start anew with it"
            );
            Ok(ExitCode::FAILURE)
        }
        _ = terminate.recv() => Ok(end_at_second(terminate)),
        _ = interrupt.recv() => Ok(end_at_second(interrupt)),
    }
}

/// The first signal ends the process in good order, a second one at once (row 23.10).
fn end_at_second(mut again: tokio::signal::unix::Signal) -> ExitCode {
    tokio::task::spawn_local(async move {
        again.recv().await;
        std::process::exit(1);
    });
    ExitCode::SUCCESS
}
