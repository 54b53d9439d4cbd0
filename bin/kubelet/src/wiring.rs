//! Who is there, who knows whom, and on which thread: with the headers of the actor crates this is the
//! architecture.

mod certificates;
mod heartbeat;
mod last_words;
mod parts;
mod quarantine;

use std::sync::Arc;
use std::time::Duration;

pub use certificate_manager::{Lost, Role};
use event_recorder::{EventMetrics, EventRecorder, EventRecorderDeps, PostTo};
use eviction_manager::{EvictionManager, EvictionManagerDeps, EvictionMetrics};
use garbage_collector::{GarbageCollector, GarbageCollectorDeps};
use image_manager::{ImageManager, ImageManagerDeps, ImageMetrics};
use log_manager::{LogManager, LogManagerDeps};
use messages::facts::{PressureObserved, Source};
use messages::pleg::ResendObserved;
use messages::pod_manager::ResendDesired;
use messages::quantity::Quantity;
use messages::resources::NodeResources;
use node_api::{Access, Answers, Containers, NodeApi, NodeApiDeps, Secured};
use object_cache::{ObjectCache, ObjectCacheDeps};
use pleg::{Pleg, PlegDeps, PlegMetrics};
use pod_manager::{PodManager, PodManagerConfig, PodManagerDeps, PodManagerMetrics};
use pod_sources::{PodSources, PodSourcesConfig, PodSourcesDeps};
use pod_worker::{PodWorkerDeps, PodWorkerMetrics, PodWorkerPool, PodWorkerPoolDeps};
use probe_manager::{ProbeLimits, ProbeManager, ProbeManagerDeps, ProbeMetrics};
use prometheus::Registry;
use resource_manager::{ResourceManager, ResourceManagerConfig, ResourceManagerDeps, ResourceMetrics};
use runtime_bridge::cri::{CriMetrics, Operations};
use runtime_bridge::kube::ApiClient;
use runtime_bridge::reviews::{ClusterReviews, Reviews};
use status_manager::{StatusManager, StatusManagerDeps, StatusMetrics};
use supervision::{Address, Tree, TreeCollector, Vitality};
use volume_manager::{VolumeManager, VolumeManagerDeps, VolumeMetrics};

pub use last_words::{LastWords, NOT_READY_WITHIN};
pub use parts::{Bridge, Cluster, Membership, Node, Places, ServerSettings, Settings};

/// Who asks whom, with a reply and a deadline. Asks only go down: a test proves that there is no circle.
pub const ASKS: &[(&str, &str)] = &[
    ("PodManager", "PodWorkerPool"),
    ("PodManager", "StatusManager"),
    ("PodManager", "Pleg"),
    ("PodWorker", "StatusManager"),
    ("PodWorker", "ImageManager"),
    ("PodWorker", "VolumeManager"),
    ("PodWorker", "ResourceManager"),
    ("PodWorker", "ObjectCache"),
    ("VolumeManager", "ObjectCache"),
    ("ImageManager", "ObjectCache"),
    ("StatusManager", "PodWorkerPool"),
    ("VolumeManager", "Pleg"),
    ("ResourceManager", "Pleg"),
    ("EvictionManager", "PodManager"),
    ("EvictionManager", "GarbageCollector"),
    ("EvictionManager", "ImageManager"),
    ("NodeApi", "PodManager"),
    ("NodeApi", "StatusManager"),
    ("NodeApi", "Pleg"),
    ("NodeApi", "EventRecorder"),
];

/// Seats every actor, tells each whom it knows, and starts them. Nothing runs before all are seated, so that no
/// first message is lost.
///
/// # Errors
/// Only if a metric is defined twice: a mistake in the source.
pub fn wire(
    tree: &Tree,
    places: &Places,
    registry: &Registry,
    bridge: &Bridge,
    settings: &Settings,
) -> prometheus::Result<Node> {
    let place = &places.actors;
    let cri_metrics = CriMetrics::new()?;
    for collector in cri_metrics.collectors() {
        registry.register(collector)?;
    }
    registry.register(Box::new(TreeCollector::new(tree.clone())?))?;
    let operations = Operations::new(bridge.runtime.clone(), bridge.io.clone(), cri_metrics);

    let sources = tree.seat::<PodSources>(Vitality::Vital);
    let manager = tree.seat::<PodManager>(Vitality::Vital);
    let pool = tree.seat::<PodWorkerPool>(Vitality::Vital);
    let pleg = tree.seat::<Pleg>(Vitality::Vital);
    let status = tree.seat::<StatusManager>(Vitality::Vital);
    let probes = tree.seat::<ProbeManager>(Vitality::Degradable);
    let volumes = tree.seat::<VolumeManager>(Vitality::Degradable);
    let images = tree.seat::<ImageManager>(Vitality::Degradable);
    let resources = tree.seat::<ResourceManager>(Vitality::Degradable);
    let garbage = tree.seat::<GarbageCollector>(Vitality::Degradable);
    let eviction = tree.seat::<EvictionManager>(Vitality::Degradable);
    let logs = tree.seat::<LogManager>(Vitality::Degradable);
    let objects = tree.seat::<ObjectCache>(Vitality::Degradable);
    let events = tree.seat::<EventRecorder>(Vitality::Degradable);
    let api = tree.seat::<NodeApi>(Vitality::Degradable);
    let heartbeat = heartbeat::seat(tree, bridge, settings);

    let node = Node {
        pods: manager.address(),
        static_of: manager.address(),
        statuses: status.address(),
        workers: pool.address(),
        events: events.address(),
        record: events.address(),
        record_annotated: events.address(),
        api_pods: manager.address(),
        evict: pool.address(),
        collect: garbage.address(),
        remove_dead: garbage.address(),
        delete_images: images.address(),
        verdicts: probes.address(),
        volumes: volumes.address(),
        // The pool is told last: its workers ask for what VolumeManager has heard of by then.
        objects_changed: vec![volumes.address(), pool.address()],
        secrets: objects.address(),
        config_maps: objects.address(),
        runtime_classes: objects.address(),
        services: objects.address(),
        tokens: objects.address(),
        runtime_pods: pleg.address(),
        runtime_pod: pleg.address(),
        held_pods: pleg.address(),
        quarantined: status.address(),
        // Who admits pods knows the Node before who lists them.
        node_observers: vec![manager.address(), sources.address()],
        address_observers: vec![status.address(), pool.address()],
        last_words: heartbeat.as_ref().map(|heartbeat| heartbeat.last_words(bridge.clock.clone())),
        operations: operations.clone(),
    };
    quarantine::tell_of_quarantine(tree, status.address(), events.address());

    let deps = PodSourcesDeps {
        config: PodSourcesConfig {
            path: settings.static_pod_path.clone(),
            check: settings.file_check,
            url_check: settings.url_check,
            node: settings.node.clone(),
            restart_rules: settings.restart_rules,
        },
        files: bridge.files.clone(),
        url: bridge.url.clone(),
        api: cluster_api(bridge),
        node: heartbeat.as_ref().map(heartbeat::Heartbeat::node),
        clock: bridge.clock.clone(),
        manager: manager.address(),
        api_pods: manager.address(),
        events: events.address(),
    };
    let resend_sources = sources.address();
    sources.start(place, move || PodSources::new(deps.clone()));

    let metrics = PodManagerMetrics::new()?;
    metrics.register(registry)?;
    let deps = PodManagerDeps {
        config: PodManagerConfig { sources: sources_of(bridge, settings), node: settings.admission.clone() },
        observers: vec![
            objects.address(),
            pool.address(),
            probes.address(),
            volumes.address(),
            resources.address(),
            garbage.address(),
            eviction.address(),
        ],
        status_observer: status.address(),
        sources: resend_sources,
        workers: pool.address(),
        statuses: status.address(),
        held_pods: pleg.address(),
        observed: pleg.address(),
        pressure: eviction.address(),
        node: heartbeat.as_ref().map(heartbeat::Heartbeat::node),
        evict: pool.address(),
        mirrors: status.address(),
        api: cluster_api(bridge),
        events: events.address(),
        metrics,
    };
    let resend_desired = || manager.address::<ResendDesired>();
    let resend_observed = || pleg.address::<ResendObserved>();

    let pod_metrics = PodWorkerMetrics::new()?;
    pod_metrics.register(registry)?;
    let pool_deps = PodWorkerPoolDeps {
        worker: PodWorkerDeps {
            pleg: pleg.address(),
            mount: volumes.address(),
            unmount: volumes.address(),
            prepare_subpaths: volumes.address(),
            images: images.address(),
            secrets: objects.address(),
            config_maps: objects.address(),
            runtime_classes: objects.address(),
            services: objects.address(),
            status: status.address(),
            resend: pool.address(),
            reports: vec![
                pool.address(),
                manager.address(),
                status.address(),
                probes.address(),
                garbage.address(),
                eviction.address(),
            ],
            events: events.address(),
            operations: operations.clone(),
            dirs: bridge.dirs.clone(),
            ensure_cgroup: resources.address(),
            remove_cgroup: resources.address(),
            prober: bridge.prober.clone(),
            epoch: tokio::time::Instant::now(),
            clock: bridge.clock.clone(),
            resolv_conf: bridge.resolv_conf.clone(),
            config: Arc::new(settings.worker.clone()),
            metrics: pod_metrics,
            fault_point: settings.fault_point.clone(),
        },
        resend_desired: resend_desired(),
        resend_observed: resend_observed(),
        resend_verdicts: probes.address(),
        resend_node: heartbeat.as_ref().map(heartbeat::Heartbeat::node),
    };
    let resend_node = pool_deps.resend_node.clone();

    let metrics = PlegMetrics::new()?;
    metrics.register(registry)?;
    let pleg_deps = PlegDeps {
        config: settings.pleg.clone(),
        operations: operations.clone(),
        exits: bridge.exits.clone(),
        dirs: bridge.dirs.clone(),
        clock: bridge.clock.clone(),
        observers: vec![
            pool.address(),
            status.address(),
            probes.address(),
            garbage.address(),
            logs.address(),
        ],
        runtime_observers: vec![pool.address(), status.address(), manager.address()],
        runtime_watchers: heartbeat.iter().map(heartbeat::Heartbeat::runtime_watcher).collect(),
        events: events.address(),
        metrics,
    };

    let pressure_watchers: Vec<Address<PressureObserved>> = [manager.address()]
        .into_iter()
        .chain(heartbeat.iter().map(heartbeat::Heartbeat::pressure_watcher))
        .collect();
    let others_watchers: Vec<_> = heartbeat.iter().map(heartbeat::Heartbeat::volumes_watcher).collect();
    let certificates = certificates::start(
        tree,
        place,
        registry,
        bridge,
        settings,
        heartbeat.as_ref().map(heartbeat::Heartbeat::node),
    )?;
    let addresses = node.address_observers.iter().cloned().chain(certificates).collect();
    if let Some(heartbeat) = heartbeat {
        heartbeat.start(
            tree,
            &places.heartbeat,
            bridge,
            &heartbeat::Acquaintances {
                operations: operations.clone(),
                observers: node.node_observers.clone(),
                address_observers: addresses,
                observed: resend_observed(),
                pressure: eviction.address(),
                events: events.address(),
            },
        );
    }

    let metrics = StatusMetrics::new()?;
    metrics.register(registry)?;
    let status_deps = StatusManagerDeps {
        host_ips: settings.host_ips.clone(),
        ready_to_start_condition: settings.ready_to_start_condition,
        checkpoints: bridge.checkpoints.clone(),
        clock: bridge.clock.clone(),
        desired: resend_desired(),
        workers: pool.address(),
        observed: resend_observed(),
        touched: pleg.address(),
        verdicts: probes.address(),
        node: resend_node,
        api: cluster_api(bridge),
        events: events.address(),
        metrics,
    };

    let metrics = ProbeMetrics::new();
    let probe_registry = probe_registry(bridge)?;
    metrics.register(&probe_registry, registry)?;
    let probe_deps = ProbeManagerDeps {
        ways: probe_manager::Ways { operations: operations.clone(), prober: bridge.prober.clone() },
        checkpoints: bridge.checkpoints.clone(),
        clock: bridge.clock.clone(),
        kubelet_started: bridge.clock.now(),
        node_ip: Arc::from(settings.host_ips.first().map_or("127.0.0.1", String::as_str)),
        limits: ProbeLimits::default(),
        metrics,
        verdicts: vec![pool.address(), status.address()],
        events: events.address(),
        resend_desired: resend_desired(),
        resend_observed: resend_observed(),
        resend_reports: pool.address(),
    };

    let metrics = VolumeMetrics::new();
    metrics.register(registry)?;
    let volume_deps = VolumeManagerDeps {
        ways: volume_manager::Ways {
            mounts: bridge.mounts.clone(),
            pod_dirs: bridge.dirs.clone(),
            allocatable_memory_bytes: allocatable_memory_bytes(&settings.node_resources),
            objects: volume_manager::Objects {
                secrets: objects.address(),
                config_maps: objects.address(),
                tokens: objects.address(),
                in_cluster: bridge.cluster.is_some(),
                node: settings.node_resources.clone(),
            },
        },
        sweep: settings.sweep,
        others_watchers,
        events: events.address(),
        held_pods: pleg.address(),
        resend_desired: resend_desired(),
        metrics,
    };

    let metrics = ImageMetrics::new();
    metrics.register(registry)?;
    let image_deps = ImageManagerDeps {
        operations: operations.clone(),
        configs: bridge.docker_configs.clone(),
        records: bridge.pull_records.clone(),
        clock: bridge.clock.clone(),
        secrets: objects.address(),
        events: events.address(),
        settings: settings.images.clone(),
        metrics,
    };

    let metrics = ResourceMetrics::new()?;
    metrics.register(registry)?;
    let resource_deps = ResourceManagerDeps {
        config: ResourceManagerConfig { housekeeping: settings.sweep.every, ..settings.resources.clone() },
        cgroups: bridge.cgroups.clone(),
        held_pods: pleg.address(),
        resend_desired: resend_desired(),
        events: events.address(),
        metrics,
    };

    let containers = Containers {
        pods: manager.address(),
        static_of: manager.address(),
        status: status.address(),
        runtime_pods: pleg.address(),
        runtime_pod: pleg.address(),
        operations: operations.clone(),
        io: bridge.io.clone(),
        clock: bridge.clock.clone(),
        split_streams: settings.server.split_streams,
    };
    let object_deps = ObjectCacheDeps {
        api: bridge.cluster.as_ref().map(|cluster| cluster.api.clone()),
        clock: bridge.clock.clone(),
        observers: node.objects_changed.clone(),
        resend_desired: resend_desired(),
    };

    let metrics = EvictionMetrics::new()?;
    metrics.register(registry)?;
    let eviction_deps = EvictionManagerDeps {
        config: Arc::new(settings.eviction.clone()),
        ways: eviction_manager::Ways {
            stats: bridge.stats.clone(),
            operations: operations.clone(),
            dirs: bridge.dirs.clone(),
            cgroups: bridge.cgroups.clone(),
            containers: garbage.address(),
            images: images.address(),
        },
        observers: pressure_watchers,
        pressure: manager.address(),
        evict: pool.address(),
        manager: resend_desired(),
        pool: pool.address(),
        events: events.address(),
        annotated: events.address(),
        metrics,
    };

    let log_deps = LogManagerDeps {
        ways: log_manager::Ways { operations: operations.clone(), logs: bridge.logs.clone() },
        clock: bridge.clock.clone(),
        rotation: settings.logs,
        pleg: resend_observed(),
    };

    let garbage_deps = GarbageCollectorDeps {
        ways: garbage_collector::Ways { operations, dirs: bridge.dirs.clone() },
        clock: bridge.clock.clone(),
        policy: settings.garbage,
        manager: resend_desired(),
        pleg: resend_observed(),
        pool: pool.address(),
        touched: pleg.address(),
        events: events.address(),
    };

    let metrics = EventMetrics::new()?;
    metrics.register(registry)?;
    let event_deps = EventRecorderDeps {
        clock: bridge.clock.clone(),
        post: bridge
            .cluster
            .as_ref()
            .map(|cluster| PostTo { api: cluster.events.clone(), node: cluster.node_name.clone() }),
        metrics,
    };

    let api_deps = NodeApiDeps {
        config: settings.api.clone(),
        io: bridge.io.clone(),
        answers: Answers {
            tree: tree.clone(),
            registry: registry.clone(),
            probes: probe_registry,
            pods: manager.address(),
            statuses: status.address(),
            events: events.address(),
        },
        secured: secured(bridge, &settings.server, containers),
    };

    manager.start(place, move || PodManager::new(deps.clone()));
    pool.start(place, move || PodWorkerPool::new(pool_deps.clone()));
    pleg.start(place, move || Pleg::new(pleg_deps.clone()));
    status.start(place, move || StatusManager::new(status_deps.clone()));
    probes.start(place, move || ProbeManager::new(probe_deps.clone()));
    volumes.start(place, move || VolumeManager::new(volume_deps.clone()));
    images.start(place, move || ImageManager::new(image_deps.clone()));
    resources.start(place, move || ResourceManager::new(resource_deps.clone()));
    objects.start(place, move || ObjectCache::new(object_deps.clone()));
    garbage.start(place, move || GarbageCollector::new(garbage_deps.clone()));
    eviction.start(place, move || EvictionManager::new(eviction_deps.clone()));
    logs.start(place, move || LogManager::new(log_deps.clone()));
    events.start(place, move || EventRecorder::new(event_deps.clone()));
    api.start(place, move || NodeApi::new(api_deps.clone()));
    Ok(node)
}

/// What `/metrics/probes` shows besides the probes.
fn probe_registry(bridge: &Bridge) -> prometheus::Result<Registry> {
    let registry = Registry::new();
    let help = "Start time of the process since unix epoch in seconds.";
    let started = prometheus::Gauge::new("process_start_time_seconds", help)?;
    started.set(Duration::from_millis(bridge.clock.now().as_millisecond().unsigned_abs()).as_secs_f64());
    registry.register(Box::new(started))?;
    Ok(registry)
}

/// The HTTPS server, if there is one.
fn secured(bridge: &Bridge, settings: &ServerSettings, containers: Containers) -> Option<Secured> {
    let reviews = bridge.cluster.as_ref().map(|cluster| {
        let reviews = ClusterReviews::new(&cluster.reviews, settings.ttls);
        Arc::new(reviews) as Arc<dyn Reviews>
    });
    let access = Access { config: Arc::new(settings.access.clone()), tls: bridge.serving.clone()?, reviews };
    Some(Secured { access, containers, offers: settings.offers.clone() })
}

/// The bound of tmpfs volumes without one of their own.
fn allocatable_memory_bytes(node: &NodeResources) -> u64 {
    let memory = node.allocatable.get("memory").copied().unwrap_or(Quantity::ZERO);
    u64::try_from(memory.units_rounded_up()).unwrap_or(0)
}

/// The sources that have to be heard before absence means removal.
fn sources_of(bridge: &Bridge, settings: &Settings) -> Vec<Source> {
    let file = settings.static_pod_path.iter().map(|_| Source::File);
    let url = bridge.url.iter().map(|_| Source::Http);
    file.chain(url).chain(bridge.cluster.iter().map(|_| Source::Api)).collect()
}

fn cluster_api(bridge: &Bridge) -> Option<ApiClient> {
    bridge.cluster.as_ref().map(|cluster| cluster.api.clone())
}
