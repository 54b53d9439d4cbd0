//! The process around the actors: starts a node from a loaded configuration, and runs it until its end.

use std::future::Future;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use actix_rt::{Arbiter, System};
use anyhow::{Context, anyhow};
use bridge_cri::{CriClient, Deadlines, Endpoints, PidfdWatcher, Runtime};
use bridge_csi::CsiConnector;
use bridge_csi::plugins::{RegistrarClient, SocketDirectory};
use bridge_http::manifest_url::{ManifestUrl, NetManifestUrl};
use bridge_http::probes::NetProber;
use bridge_io::clock::{Clock, SystemClock};
use bridge_io::{Io, IoRuntime, Lane, lasting};
use bridge_kube::RestMetrics;
use bridge_metrics::Registry;
use bridge_node::cgroups::{CgroupDriver, CgroupNames, CgroupVersion, SystemCgroups};
use bridge_node::checkpoint::DirCheckpoints;
use bridge_node::host::{
    ContainerFacts, DiskContainerLogs, DiskDockerConfigs, DiskPodDirs, DiskPullRecords, DiskStaticFiles,
    ExecCredentialPlugins, ExecFlexDrivers, KernelSettings, Layout, Machine, MachineFacts, PodDirs, RootLock,
    SharedLock, SystemDisks, ThisHost, ThisMachine, default_address, node_hostname, raise_open_files,
    set_oom_score_adj,
};
use bridge_node::iptables::{self, PacketTables, ProgramTables};
use bridge_node::mounts::SystemMounts;
use bridge_node::stats::SystemStats;
use image_manager::CredentialProviders;
use messages::config_manager::ReloadConfiguration;
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use resource_manager::capacity::MachineCapacity;
use supervision::{Address, Place, Tree, Vitality, Watchdog};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::validation::Host;
use crate::load::Loaded;
use crate::reload::{self, ConfigFiles, Start};
use crate::systemd::{NotifyState, notify, watchdog_interval};
use crate::telemetry::Verbosity;
use crate::wait::wait;
use crate::wiring::{self, Bridge, ConfigurationPorts, IdentityLost, Node, Places, PluginPorts, Settings};
use crate::{
    cgroups, cluster, credential_providers, identity, pod_cidr, process_metrics, serving, settings, start,
    telemetry, traces,
};

/// The threads for the kubelet's own calls; blocking calls have threads of their own.
const IO_THREADS: usize = 2;
/// The threads for the kubelet's clients: their connections, handshakes and requests.
const SERVER_THREADS: usize = 1;
/// The most containers whose processes are watched at once; each costs a file descriptor.
const EXITS_MAX: usize = 4096;
/// The largest resolver configuration that is read, bytes.
const RESOLV_CONF_BYTES_MAX: u64 = 64 * 1024;

/// A test's change of the subsystems' settings.
pub type ChangeSettings = Box<dyn FnOnce(&mut Settings)>;
/// A test's receiver of the supervision tree.
pub type TakeTree = Box<dyn FnOnce(&Tree)>;

/// What the process brings, and hooks for tests; the shipped binary sets none of these.
#[derive(Default)]
pub struct Hooks {
    /// The verbosity of the process' log.
    pub verbosity: Option<Verbosity>,
    /// Changes the subsystems' settings before the actors start.
    pub settings: Option<ChangeSettings>,
    /// Called once with the tree after every actor has started.
    pub started: Option<TakeTree>,
}

/// Runs the node, in a process whose log has this verbosity, until a signal or the failure of a vital subsystem ends it.
pub fn run(loaded: &Loaded, verbosity: Verbosity) -> ExitCode {
    run_with(loaded, Hooks { verbosity: Some(verbosity), ..Hooks::default() })
}

/// Does what [`run`] does, with a test's hooks.
pub fn run_with(loaded: &Loaded, hooks: Hooks) -> ExitCode {
    match start_and_wait(loaded, hooks) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(err = format!("{error:#}"), "command failed");
            ExitCode::FAILURE
        }
    }
}

fn start_and_wait(loaded: &Loaded, hooks: Hooks) -> anyhow::Result<ExitCode> {
    let fed_every = watchdog_interval()?;
    let io = Io::start(IO_THREADS).context("start the I/O runtime")?;
    let server = Io::start_named("server", SERVER_THREADS).context("start the servers' runtime")?;
    let host = may_start(&io, loaded)?;
    let providers = providers(loaded)?;
    let shared_lock = shared_lock(loaded)?;
    let _lock = RootLock::acquire(Path::new(&loaded.flags.root_dir)).context("--root-dir")?;
    own_process(loaded);
    let clock = Arc::new(SystemClock);
    let seed = loaded.understudy.supervision.seed.unwrap_or_else(|| clock.random_u64());
    let tree = Tree::new(settings::policy(&loaded.understudy, &loaded.config, seed));
    ping_io(&tree, io.io());
    let registry = Registry::new();
    let host_ip = host_ip(loaded);
    let (facts, capacity) = machine(&io, loaded)?;
    let mut settings = settings::settings(
        &loaded.config,
        &loaded.understudy,
        settings::garbage(&loaded.flags),
        &node_name(loaded)?,
        host_ip,
        &capacity,
    )?;
    settings.images.providers = providers;
    let runtime = runtime(loaded, &io.io())?;
    settings.admission = settings::admission(loaded, &settings, &facts)?;
    settings.stats = settings::stats(loaded, &facts);
    settings.membership = cluster::membership(loaded, &settings, facts)?;
    let (driver, unconfirmed) = driver(&io, runtime.clone(), loaded, &registry)?;
    serving::tell_of_process(&mut settings.server.offers, loaded, hooks.verbosity.as_ref());
    let node = settings.node.clone();
    let started = Start { loaded: loaded.clone(), node, host_ip, machine: capacity, host, driver };
    let files = ConfigFiles::new(&io.io(), started, hooks.verbosity)?;
    let calls = process_figures(loaded, &settings, &registry)?;
    if settings.resources.per_qos {
        cgroups::require_systemd(driver, Path::new(cgroups::SYSTEMD_RUNS))?;
    }
    let bridge = bridge(loaded, &io, server.io(), clock, (runtime, driver), &calls, files)?;
    wait(&io.io(), cgroups::check(bridge.cgroups.clone(), settings.resources.clone()))??;
    rules_of_machine(&mut settings, loaded, bridge.cgroups.version());
    if let Some(change) = hooks.settings {
        change(&mut settings);
    }
    kernel_settings(loaded)?;
    ready_directories(&io, &*bridge.dirs)?;

    let system = System::new();
    system.block_on(async {
        let signals = Signals::catch()?;
        let hang_ups = signal(SignalKind::hangup()).context("catch SIGHUP")?;
        let contended = contention(shared_lock.as_ref(), loaded)?;
        let actors = Arbiter::new();
        let heartbeat = bridge.cluster.as_ref().map(|_| Arbiter::new());
        let places = Places {
            actors: Place::On(actors.handle()),
            heartbeat: Place::On(heartbeat.as_ref().unwrap_or(&actors).handle()),
        };
        tell_pod_cidr(&bridge, loaded);
        keep_chains(&bridge, loaded);
        let node = wiring::wire(&tree, &places, &registry, &bridge, &settings).context("register metrics")?;
        tracing::info!(node = settings.node, seed, "Started kubelet");
        announce(&node);
        if let Some(event) = cgroups::version_event(bridge.cgroups.version()) {
            node.record.tell_or_count(event);
        }
        let wrong_driver = cgroups::watch_driver(&bridge.io, &bridge.runtime, unconfirmed.then_some(driver));
        if let Some(started) = hooks.started {
            started(&tree);
        }
        tokio::task::spawn_local(reload_at(hang_ups, node.reload.clone()));
        let watchdog = watch(&tree, loaded, fed_every)?;
        let code = until_the_end(&tree, &node, signals, wrong_driver, contended, &bridge.lost).await;
        tracing::info!("Stopping; containers go on running");
        notify(&[NotifyState::Stopping]);
        drop(watchdog);
        tree.stop_all();
        // The actors' last writes (checkpoints) are under way in the bridge, which gets more time when the I/O runtime
        // ends.
        tokio::time::sleep(Duration::from_millis(100)).await;
        actors.stop();
        if let Some(heartbeat) = heartbeat {
            heartbeat.stop();
        }
        Ok(code)
    })
}

/// Registers the process's own figures, and those of its calls to the API server.
fn process_figures(loaded: &Loaded, settings: &Settings, registry: &Registry) -> anyhow::Result<RestMetrics> {
    loaded.gates.register(registry).context("register a metric")?;
    process_metrics::register(registry, &settings.node).context("register a metric")?;
    let calls = RestMetrics::new().context("register a metric")?;
    calls.register(registry).context("register a metric")?;
    Ok(calls)
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

/// Checks, before any change is made, whether this configuration may start on this machine; gives the facts about it.
fn may_start(io: &IoRuntime, loaded: &Loaded) -> anyhow::Result<start::HostFacts> {
    let machine = ThisMachine::new(io.io().enter(tokio::runtime::Handle::current));
    let facts = wait(&io.io(), machine.start_facts())??;
    if facts.is_swap_on() {
        tracing::info!(swaps = facts.swaps.trim(), "Swap is on");
    }
    let host_facts = start::HostFacts { facts, cgroup_v2: Host::probe().cgroup_v2 };
    let verdict = start::check(loaded, &host_facts);
    for warning in verdict.warnings {
        tracing::warn!("{warning}");
    }
    if verdict.refusals.is_empty() {
        return Ok(host_facts);
    }
    let refusals: Vec<String> = verdict.refusals.iter().map(ToString::to_string).collect();
    Err(anyhow!("the kubelet does not start with this configuration: {}", refusals.join("; ")))
}

fn host_ip(loaded: &Loaded) -> Option<IpAddr> {
    loaded.flags.node_ip.split(',').find_map(|ip| ip.trim().parse().ok()).or_else(default_address)
}

fn providers(loaded: &Loaded) -> anyhow::Result<CredentialProviders> {
    credential_providers::load(&loaded.flags, &loaded.gates).context("failed to register CRI auth plugins")
}

/// The cgroup driver, and whether the runtime has not confirmed it.
fn driver(
    io: &IoRuntime,
    runtime: Arc<dyn Runtime>,
    loaded: &Loaded,
    registry: &Registry,
) -> anyhow::Result<(CgroupDriver, bool)> {
    let told = wait(&io.io(), async move { cgroups::ask_driver(&*runtime).await })?;
    cgroups::settle_driver(told, &loaded.config.cgroups.cgroup_driver, registry)
}

/// What the machine allows of containers.
fn rules_of_machine(settings: &mut Settings, loaded: &Loaded, cgroups: CgroupVersion) {
    let facts = ContainerFacts::of_this_machine(cgroups);
    settings.volumes.selinux = settings::selinux(loaded, &facts);
    settings.worker.rules = Arc::new(settings::node_rules(loaded, cgroups, facts));
}

/// The machine's facts and its capacity.
fn machine(io: &IoRuntime, loaded: &Loaded) -> anyhow::Result<(MachineFacts, MachineCapacity)> {
    let machine = ThisMachine::new(io.io().enter(tokio::runtime::Handle::current));
    let facts = wait(&io.io(), machine.facts())??;
    let storage = match loaded.config.eviction.local_storage_capacity_isolation {
        true => Some(wait(&io.io(), machine.storage_bytes(Path::new(&loaded.flags.root_dir)))??),
        false => None,
    };
    let capacity = MachineCapacity {
        cpus: facts.cpu_count,
        memory_bytes: facts.memory_bytes,
        storage_bytes: storage,
        huge_pages: facts.huge_pages.clone(),
        pids: facts.pids_max,
    };
    Ok((facts, capacity))
}

/// Takes the lock on `--lock-file` once no other process has it (row 19.14).
fn shared_lock(loaded: &Loaded) -> anyhow::Result<Option<SharedLock>> {
    let path = loaded.flags.lock_file.as_str();
    if path.is_empty() {
        return Ok(None);
    }
    tracing::info!(path, "Acquiring file lock");
    let lock = SharedLock::acquire(Path::new(path));
    lock.map(Some).with_context(|| format!("unable to acquire file lock on {path:?} (--lock-file)"))
}

/// Ends when another process wants the lock, if the kubelet shall end then.
fn contention(
    lock: Option<&SharedLock>,
    loaded: &Loaded,
) -> anyhow::Result<impl Future<Output = ()> + use<>> {
    let watched = lock.filter(|_| loaded.flags.exit_on_lock_contention);
    let contended = watched.map(SharedLock::contention).transpose().context("--exit-on-lock-contention")?;
    Ok(async move {
        match contended {
            Some(contended) => contended.await,
            None => std::future::pending().await,
        }
    })
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

/// Gives the kernel the settings that a node needs (row 14.11), or demands them.
fn kernel_settings(loaded: &Loaded) -> anyhow::Result<()> {
    let dir = loaded.understudy.sysctl_dir.as_str();
    if dir.is_empty() {
        return Ok(());
    }
    let settings = KernelSettings::at(dir);
    match loaded.config.cgroups.protect_kernel_defaults {
        true => settings.demand().context("protectKernelDefaults (--protect-kernel-defaults)"),
        false => settings.set().context("set the kernel's settings, as a node needs them (sysctlDir)"),
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
    server: Io,
    clock: Arc<SystemClock>,
    (runtime, driver): (Arc<dyn Runtime>, CgroupDriver),
    calls: &RestMetrics,
    configuration: ConfigFiles,
) -> anyhow::Result<Bridge> {
    let io = io.io();
    let handle = io.enter(tokio::runtime::Handle::current);
    let layout = Layout::new(
        &loaded.flags.root_dir,
        &loaded.config.pods.pod_logs_dir,
        &loaded.understudy.legacy_log_symlink_dir,
    )?;
    let names = CgroupNames::new(driver, &loaded.config.cgroups.cgroup_root)?;
    let working = std::env::current_dir().ok();
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let node = node_name(loaded)?;
    let issued = serving::issued(loaded, &io, &*clock)?;
    let pair = issued.as_ref().map(|(_, pair)| pair.clone());
    let (cluster, certificates) = match identity::wanted(loaded, &node, &io, clock.clone(), &calls.programs) {
        Some(wanted) => {
            let identified = wait(&io, wanted.identify())??;
            let cluster = cluster::cluster(loaded, &node, &io, &identified, calls)?;
            let certificates = cluster::certificates(&cluster, identified, issued);
            (Some(cluster), certificates)
        }
        None => (None, Vec::new()),
    };
    let docker_configs =
        DiskDockerConfigs::new(layout.root(), working.as_deref(), home.as_deref(), handle.clone());
    let pull_records = DiskPullRecords::new(layout.root(), handle.clone());
    let stats = SystemStats::detect(names.clone(), layout.root(), handle.clone())?;
    let plugins_registry = layout.data_dir("plugins_registry");
    let sockets = Arc::new(bridge_serve::System::new(server.clone()));
    Ok(Bridge {
        server,
        configuration: ConfigurationPorts {
            source: Arc::new(configuration),
            files: Arc::new(DiskStaticFiles::for_owner(messages::config_manager::RECEIVER, handle.clone())),
            watched: reload::watched(&loaded.flags),
        },
        listeners: sockets.clone(),
        proxy: sockets,
        runtime,
        usage: Arc::new(stats.usage(clock.clone())),
        stats: Arc::new(stats),
        docker_configs: Arc::new(docker_configs),
        credential_plugins: Arc::new(ExecCredentialPlugins::new(handle.clone())),
        pull_records: Arc::new(pull_records),
        exits: Arc::new(PidfdWatcher::new(io.clone(), EXITS_MAX)),
        clock: clock.clone(),
        compute: Arc::new(Lane::new("pods' computing", handle.clone())),
        checkpoints: Arc::new(DirCheckpoints::new(layout.data_dir("understudy"), handle.clone())),
        files: Arc::new(DiskStaticFiles::new(handle.clone())),
        url: settings::manifest_url(&loaded.config)?
            .map(|address| Arc::new(NetManifestUrl::new(handle.clone(), address)) as Arc<dyn ManifestUrl>),
        logs: Arc::new(DiskContainerLogs::new(handle.clone())),
        dirs: Arc::new(DiskPodDirs::new(layout, handle.clone())),
        mounts: Arc::new(SystemMounts::new(handle.clone())),
        flex_drivers: Arc::new(ExecFlexDrivers::new(&loaded.config.node.volume_plugin_dir, handle.clone())),
        network_disks: Arc::new(SystemDisks::new(handle.clone())),
        prober: Arc::new(NetProber::new(handle.clone())),
        cgroups: Arc::new(SystemCgroups::detect(names, handle.clone())?),
        resolv_conf: resolv_conf(&io, &loaded.config.pods.resolv_conf),
        plugins: PluginPorts {
            sockets: Arc::new(SocketDirectory::new(Lane::new("Plugins", handle.clone()), plugins_registry)),
            registrar: Arc::new(RegistrarClient::new(io.clone())),
            drivers: Arc::new(CsiConnector::new(io.clone(), bridge_csi::Deadlines::default())),
        },
        addresses: Arc::new(ThisHost::new(handle)),
        cluster,
        serving: serving::tls(loaded, &node, &io, clock.clone(), pair)?,
        certificates,
        traces: traces::collector(&loaded.config, &io),
        lost: IdentityLost::default(),
        io,
    })
}

fn resolv_conf(io: &Io, path: &str) -> Option<pod_worker::ReadResolvConf> {
    if path.is_empty() {
        return None;
    }
    let (io, path) = (io.for_owner(messages::pod_worker::RECEIVER), path.to_owned());
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
    for warning in wait(&io.io(), dirs.ensure_data_dirs())?? {
        tracing::warn!("{warning}");
    }
    Ok(())
}

/// Without an API server the configuration states the addresses of pods (row 12.3). The runtime is told once, as soon
/// as it answers.
fn tell_pod_cidr(bridge: &Bridge, loaded: &Loaded) {
    let cidr = loaded.config.pods.pod_cidr.clone();
    if cidr.is_empty() || bridge.cluster.is_some() {
        return;
    }
    let runtime = bridge.runtime.clone();
    let tell = move || pod_cidr::tell(runtime.clone(), cidr.clone());
    drop(bridge.io.spawn(lasting("tell the runtime the addresses of pods", tell)));
}

/// Keeps the chains by which other programs know that a kubelet is here (row 12.4).
fn keep_chains(bridge: &Bridge, loaded: &Loaded) {
    if !loaded.config.cgroups.make_iptables_util_chains {
        return;
    }
    let handle = bridge.io.enter(tokio::runtime::Handle::current);
    let families = ProgramTables::both(&handle).map(|tables| Arc::new(tables) as Arc<dyn PacketTables>);
    let keep = move || iptables::keep(families.to_vec());
    drop(bridge.io.spawn(lasting("keep the chains of iptables", keep)));
}

fn announce(node: &Node) {
    let started = RecordEvent {
        object: EventObject::Node,
        event_type: EventType::Normal,
        reason: Arc::from("Starting"),
        message: Arc::from("Starting kubelet."),
    };
    node.record.tell_or_count(started);
    notify(&[NotifyState::Ready]);
}

/// Watches the I/O runtime like an actor's thread: without it no effect reaches the outside world. The servers' runtime is not
/// watched: clients may keep it busy, and that is no reason to end the process.
fn ping_io(tree: &Tree, io: Io) {
    tree.watch("IoRuntime", Vitality::Vital, move |answer| drop(io.spawn(async move { answer.give() })));
}

/// Watches the actors' threads, and sends systemd signs of life as often as it asks for them.
fn watch(tree: &Tree, loaded: &Loaded, fed_every: Option<Duration>) -> anyhow::Result<Watchdog> {
    let mut policy = settings::watchdog(&loaded.understudy);
    policy.beat = fed_every.map_or(policy.beat, |interval| policy.beat.min(interval));
    let feed = move || {
        if fed_every.is_some() {
            notify(&[NotifyState::Watchdog]);
        }
    };
    let give_up = |failure: supervision::Failure| {
        tracing::error!(subsystem = failure.actor, reason = failure.reason, "A thread is blocked for good");
        // The main thread may be the blocked one, so the process ends at once.
        telemetry::flush();
        std::process::exit(1);
    };
    Watchdog::start(tree.clone(), policy, feed, give_up).context("start the watchdog")
}

/// The signals that end the kubelet.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn catch() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("catch SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("catch SIGINT")?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Has the configuration read anew at each signal (row 30.8).
async fn reload_at(mut hang_ups: Signal, reload: Address<ReloadConfiguration>) {
    while hang_ups.recv().await.is_some() {
        // An order that waits already stands for this one, too.
        reload.tell_or_count(ReloadConfiguration);
    }
}

/// Waits for the end of the node; returns the exit code.
async fn until_the_end(
    tree: &Tree,
    node: &Node,
    mut signals: Signals,
    wrong_driver: impl Future<Output = CgroupDriver>,
    contended: impl Future<Output = ()>,
    lost: &IdentityLost,
) -> ExitCode {
    let mut lost = lost.subscribe();
    tokio::select! {
        biased;
        failure = tree.failed() => {
            tracing::error!(subsystem = failure.actor, reason = failure.reason, "A vital subsystem has failed; the kubelet exits");
            if let Some(last_words) = &node.last_words {
                last_words.not_ready(&failure).await;
            }
            ExitCode::FAILURE
        }
        driver = wrong_driver => {
            tracing::error!(
                cgroupDriver = driver.as_str(),
                "The CRI runtime has another cgroup driver than was assumed while it was silent; the kubelet exits to start anew with it"
            );
            ExitCode::FAILURE
        }
        Ok(why) = lost.wait_for(Option::is_some) => {
            // systemd restarts the kubelet; by then there may be a bootstrap kubeconfig to request a new certificate
            // with.
            tracing::error!("{}", why.as_deref().unwrap_or_default());
            ExitCode::FAILURE
        }
        () = contended => {
            tracing::info!("Another process wants the lock file (--exit-on-lock-contention); the kubelet exits");
            ExitCode::SUCCESS
        }
        () = signals.next() => end_at_second(signals),
    }
}

/// Ends the process in good order after a first signal, and at once after a second one (row 23.10). A task listens for
/// the second signal while the actors end, and a thread of its own while this thread waits for work on the I/O runtime.
fn end_at_second(signals: Signals) -> ExitCode {
    tokio::task::spawn_local(exit_at_next(signals));
    let last = std::thread::Builder::new().name("second-signal".to_owned()).spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(async {
            exit_at_next(Signals::catch()?).await;
            anyhow::Ok(())
        })
    });
    if let Err(error) = last {
        tracing::warn!(%error, "A second signal may have to wait for the first");
    }
    ExitCode::SUCCESS
}

async fn exit_at_next(mut signals: Signals) {
    signals.next().await;
    telemetry::flush();
    std::process::exit(1);
}
