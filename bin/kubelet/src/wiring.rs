//! All actors, their addresses of each other, and their threads: together with the headers of the actor crates this is
//! the architecture. Each subsystem is wired in a file of its own, named as its crate.

mod actors;
mod certificate_manager;
mod config_manager;
mod crowds;
mod event_recorder;
mod eviction_manager;
mod garbage_collector;
mod image_manager;
mod last_words;
mod levels;
mod log_manager;
mod node;
mod node_api;
mod node_status;
mod object_cache;
mod parts;
mod pleg;
mod pod_manager;
mod pod_sources;
mod pod_worker;
mod probe_manager;
mod quarantine;
mod resource_manager;
mod stats_provider;
mod status_manager;
mod traces;
mod volume_manager;

use std::sync::Arc;

use bridge_cri::{CriMetrics, Operations};
use bridge_csi::plugins::{PluginKind, PluginMetrics, PluginWatcher, Plugins};
use bridge_metrics::Registry;
use supervision::{Tree, TreeCollector};

use ::config_manager::Configuration;
use ::node_api::ApiMetrics;
use actors::{Actors, Seats};
pub use last_words::{LastWords, NOT_READY_WITHIN};
pub use node::Node;
pub use parts::{
    Bridge, Cluster, ConfigurationPorts, IdentityLost, ManagedCertificate, Membership, ObjectStrategy,
    Places, PluginPorts, ServerSettings, Settings,
};

/// The parts from which each subsystem's `wire` takes its actor's dependencies.
struct Wiring<'a> {
    tree: &'a Tree,
    places: &'a Places,
    registry: &'a Registry,
    /// The registries of the other pages, and NodeApi's metrics.
    api_metrics: ApiMetrics,
    bridge: &'a Bridge,
    settings: &'a Settings,
    operations: Arc<Operations>,
    plugins: Arc<dyn Plugins>,
    actors: Actors,
}

impl Wiring<'_> {
    /// The configuration in force, once it is another than that of the start: an incarnation begins with it, and ConfigManager
    /// tells it of later ones.
    fn changed(&self) -> impl Fn() -> Option<Arc<Configuration>> + Send + Sync + use<> {
        let source = self.bridge.configuration.source.clone();
        move || Some(source.in_force()).filter(|configuration| configuration.generation > 1)
    }
}

/// Seats every actor, gives each the addresses that it needs, and starts them. No actor runs before all are seated, so
/// that no first message is lost.
///
/// # Errors
/// A metric is defined twice, which would be a mistake in the source.
pub fn wire(
    tree: &Tree,
    places: &Places,
    registry: &Registry,
    bridge: &Bridge,
    settings: &Settings,
) -> prometheus::Result<Node> {
    let seats = Seats::take(tree, bridge, settings);
    registry.register(Box::new(TreeCollector::new(tree.clone())?))?;
    let wiring = Wiring {
        tree,
        places,
        registry,
        api_metrics: node_api::metrics(bridge, registry)?,
        bridge,
        settings,
        operations: operations(tree, bridge, registry)?,
        plugins: plugins(bridge, registry)?,
        actors: seats.actors(),
    };
    let (status, events) = (wiring.actors.status.address(), wiring.actors.events.address());
    quarantine::tell_of_quarantine(tree, &bridge.io, status, events);

    traces::wire(&wiring)?;
    pod_sources::wire(&wiring, seats.sources);
    if let Some(seat) = seats.certificates {
        certificate_manager::wire(&wiring, seat)?;
    }
    if let Some((status, lease)) = seats.node {
        node_status::wire(&wiring, status, lease)?;
    }
    let rejections = pod_manager::wire(&wiring, seats.manager)?;
    pod_worker::wire(&wiring, seats.pool)?;
    pleg::wire(&wiring, seats.pleg)?;
    status_manager::wire(&wiring, seats.status)?;
    probe_manager::wire(&wiring, seats.probes)?;
    volume_manager::wire(&wiring, seats.volumes, rejections)?;
    image_manager::wire(&wiring, seats.images)?;
    resource_manager::wire(&wiring, seats.resources)?;
    object_cache::wire(&wiring, seats.objects);
    garbage_collector::wire(&wiring, seats.garbage);
    eviction_manager::wire(&wiring, seats.eviction)?;
    log_manager::wire(&wiring, seats.logs);
    config_manager::wire(&wiring, seats.configuration)?;
    stats_provider::wire(&wiring, seats.stats);
    event_recorder::wire(&wiring, seats.events)?;
    node_api::wire(&wiring, seats.api)?;
    Ok(Node::of(&wiring))
}

/// The watch for plugins, of the kind that VolumeManager follows.
fn plugins(bridge: &Bridge, registry: &Registry) -> prometheus::Result<Arc<dyn Plugins>> {
    let metrics = PluginMetrics::new()?;
    for collector in metrics.collectors() {
        registry.register(collector)?;
    }
    let ports = &bridge.plugins;
    let (sockets, registrar) = (ports.sockets.clone(), ports.registrar.clone());
    Ok(Arc::new(PluginWatcher::start(&bridge.io, sockets, registrar, [PluginKind::Csi], metrics)))
}

/// The runtime's operations, with every call counted, and those of a pod noted in its history.
fn operations(tree: &Tree, bridge: &Bridge, registry: &Registry) -> prometheus::Result<Arc<Operations>> {
    let metrics = CriMetrics::new()?;
    for collector in metrics.collectors() {
        registry.register(collector)?;
    }
    let operations = Operations::new(bridge.runtime.clone(), bridge.io.clone(), metrics);
    Ok(Arc::new(operations.noted_in(tree.history().clone())))
}
