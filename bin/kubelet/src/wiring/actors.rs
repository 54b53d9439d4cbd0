//! The seats of all actors, and their addresses.

use certificate_manager::CertificateManager;
use config_manager::ConfigManager;
use event_recorder::EventRecorder;
use eviction_manager::EvictionManager;
use garbage_collector::GarbageCollector;
use image_manager::ImageManager;
use log_manager::LogManager;
use messages::node_status::ResendNode;
use node_api::NodeApi;
use node_status::{Lease, NodeStatus};
use object_cache::ObjectCache;
use pleg::Pleg;
use pod_manager::PodManager;
use pod_sources::PodSources;
use pod_worker::PodWorkerPool;
use probe_manager::ProbeManager;
use resource_manager::ResourceManager;
use stats_provider::StatsProvider;
use status_manager::StatusManager;
use supervision::{Address, Seated, Supervised, Tree, Vitality};
use volume_manager::VolumeManager;

use super::{Bridge, Settings};

/// The actors' seats. The `wire` of each subsystem is given its actor's seat, and starts the actor.
pub(super) struct Seats {
    pub(super) sources: Seated<PodSources>,
    pub(super) manager: Seated<PodManager>,
    pub(super) pool: Seated<PodWorkerPool>,
    pub(super) pleg: Seated<Pleg>,
    pub(super) status: Seated<StatusManager>,
    pub(super) probes: Seated<ProbeManager>,
    pub(super) volumes: Seated<VolumeManager>,
    pub(super) images: Seated<ImageManager>,
    pub(super) resources: Seated<ResourceManager>,
    pub(super) garbage: Seated<GarbageCollector>,
    pub(super) eviction: Seated<EvictionManager>,
    pub(super) logs: Seated<LogManager>,
    pub(super) configuration: Seated<ConfigManager>,
    pub(super) stats: Seated<StatsProvider>,
    pub(super) objects: Seated<ObjectCache>,
    pub(super) events: Seated<EventRecorder>,
    pub(super) api: Seated<NodeApi>,
    /// Present on a member of a cluster.
    pub(super) node: Option<(Seated<NodeStatus>, Seated<Lease>)>,
    /// Present where the cluster signs certificates of the node.
    pub(super) certificates: Option<Seated<CertificateManager>>,
}

impl Seats {
    pub(super) fn take(tree: &Tree, bridge: &Bridge, settings: &Settings) -> Self {
        let is_member = bridge.cluster.is_some() && settings.membership.is_some();
        let heartbeat = || (tree.seat(Vitality::Vital), tree.seat(Vitality::Vital));
        Self {
            sources: tree.seat(Vitality::Vital),
            manager: tree.seat(Vitality::Vital),
            pool: tree.seat(Vitality::Vital),
            pleg: tree.seat(Vitality::Vital),
            status: tree.seat(Vitality::Vital),
            probes: tree.seat(Vitality::Degradable),
            volumes: tree.seat(Vitality::Degradable),
            images: tree.seat(Vitality::Degradable),
            resources: tree.seat(Vitality::Degradable),
            garbage: tree.seat(Vitality::Degradable),
            eviction: tree.seat(Vitality::Degradable),
            logs: tree.seat(Vitality::Degradable),
            configuration: tree.seat(Vitality::Degradable),
            stats: tree.seat(Vitality::Degradable),
            objects: tree.seat(Vitality::Degradable),
            events: tree.seat(Vitality::Degradable),
            api: tree.seat(Vitality::Degradable),
            node: is_member.then(heartbeat),
            certificates: (!bridge.certificates.is_empty()).then(|| tree.seat(Vitality::Degradable)),
        }
    }

    /// The actors' addresses.
    pub(super) fn actors(&self) -> Actors {
        Actors {
            sources: self.sources.handle(),
            manager: self.manager.handle(),
            pool: self.pool.handle(),
            pleg: self.pleg.handle(),
            status: self.status.handle(),
            probes: self.probes.handle(),
            volumes: self.volumes.handle(),
            images: self.images.handle(),
            resources: self.resources.handle(),
            garbage: self.garbage.handle(),
            eviction: self.eviction.handle(),
            logs: self.logs.handle(),
            configuration: self.configuration.handle(),
            stats: self.stats.handle(),
            objects: self.objects.handle(),
            events: self.events.handle(),
            node: self.node.as_ref().map(|(status, _)| status.handle()),
            certificates: self.certificates.as_ref().map(Seated::handle),
        }
    }
}

/// The actors' addresses, of which each `wire` takes those that its own actor may use.
pub(super) struct Actors {
    pub(super) sources: Supervised<PodSources>,
    pub(super) manager: Supervised<PodManager>,
    pub(super) pool: Supervised<PodWorkerPool>,
    pub(super) pleg: Supervised<Pleg>,
    pub(super) status: Supervised<StatusManager>,
    pub(super) probes: Supervised<ProbeManager>,
    pub(super) volumes: Supervised<VolumeManager>,
    pub(super) images: Supervised<ImageManager>,
    pub(super) resources: Supervised<ResourceManager>,
    pub(super) garbage: Supervised<GarbageCollector>,
    pub(super) eviction: Supervised<EvictionManager>,
    pub(super) logs: Supervised<LogManager>,
    pub(super) configuration: Supervised<ConfigManager>,
    pub(super) stats: Supervised<StatsProvider>,
    pub(super) objects: Supervised<ObjectCache>,
    pub(super) events: Supervised<EventRecorder>,
    pub(super) node: Option<Supervised<NodeStatus>>,
    pub(super) certificates: Option<Supervised<CertificateManager>>,
}

impl Actors {
    /// The address for asking NodeStatus to send the Node again; `None` without an API server.
    pub(super) fn resend_node(&self) -> Option<Address<ResendNode>> {
        self.node.as_ref().map(Supervised::address)
    }
}
