//! The ways into the node, running.

use bridge_cri::Operations;
use messages::event_recorder::{GetEvents, RecordAnnotatedEvent, RecordEvent};
use messages::facts::{NodeAddressesObserved, NodeObserved};
use messages::garbage_collector::{CollectNow, RemoveDeadContainers};
use messages::image_manager::DeleteUnusedImages;
use messages::object_cache::{
    GetConfigMap, GetRuntimeClass, GetSecret, GetServices, GetToken, PodObjectsChanged,
};
use messages::pleg::{GetHeldPods, GetRuntimePod, GetRuntimePods};
use messages::pod_manager::{GetPods, GetStaticOf};
use messages::pod_worker::{EvictPod, GetWorkers};
use messages::probe_manager::GetVerdicts;
use messages::status_manager::GetPodStatuses;
use messages::supervision::PodQuarantined;
use messages::volume_manager::GetVolumes;
use supervision::Address;

use super::{LastWords, Wiring, node_status, object_cache};

/// The node, running.
pub struct Node {
    /// Pods as desired.
    pub pods: Address<GetPods>,
    /// Static pods by their mirrors.
    pub static_of: Address<GetStaticOf>,
    /// Pods as they are.
    pub statuses: Address<GetPodStatuses>,
    /// Workers' reports.
    pub workers: Address<GetWorkers>,
    /// Events.
    pub events: Address<GetEvents>,
    /// Takes events.
    pub record: Address<RecordEvent>,
    /// Takes events with annotations.
    pub record_annotated: Address<RecordAnnotatedEvent>,
    /// Ends pods for a reason of the node.
    pub evict: Address<EvictPod>,
    /// Has the garbage collected now.
    pub collect: Address<CollectNow>,
    /// Has all dead containers removed.
    pub remove_dead: Address<RemoveDeadContainers>,
    /// Has all unused images deleted.
    pub delete_images: Address<DeleteUnusedImages>,
    /// Probe verdicts.
    pub verdicts: Address<GetVerdicts>,
    /// Mounted volumes.
    pub volumes: Address<GetVolumes>,
    /// Takes news of what pods refer to.
    pub objects_changed: Vec<Address<PodObjectsChanged>>,
    /// Secrets.
    pub secrets: Address<GetSecret>,
    /// Config maps.
    pub config_maps: Address<GetConfigMap>,
    /// Runtime classes.
    pub runtime_classes: Address<GetRuntimeClass>,
    /// Services.
    pub services: Address<GetServices>,
    /// Tokens of service accounts.
    pub tokens: Address<GetToken>,
    /// What the runtime holds.
    pub runtime_pods: Address<GetRuntimePods>,
    /// What it holds of one pod.
    pub runtime_pod: Address<GetRuntimePod>,
    /// Pods of which it holds anything.
    pub held_pods: Address<GetHeldPods>,
    /// Takes quarantines.
    pub quarantined: Address<PodQuarantined>,
    /// Who is told of the Node.
    pub node_observers: Vec<Address<NodeObserved>>,
    /// Who is told of the node's addresses.
    pub address_observers: Vec<Address<NodeAddressesObserved>>,
    /// Has the Node written not ready, on a member of a cluster.
    pub last_words: Option<LastWords>,
    /// Calls to the runtime, as the actors make them.
    pub operations: Operations,
}

impl Node {
    pub(super) fn of(wiring: &Wiring<'_>) -> Self {
        let actors = &wiring.actors;
        Self {
            pods: actors.manager.address(),
            static_of: actors.manager.address(),
            statuses: actors.status.address(),
            workers: actors.pool.address(),
            events: actors.events.address(),
            record: actors.events.address(),
            record_annotated: actors.events.address(),
            evict: actors.pool.address(),
            collect: actors.garbage.address(),
            remove_dead: actors.garbage.address(),
            delete_images: actors.images.address(),
            verdicts: actors.probes.address(),
            volumes: actors.volumes.address(),
            objects_changed: object_cache::observers(actors),
            secrets: actors.objects.address(),
            config_maps: actors.objects.address(),
            runtime_classes: actors.objects.address(),
            services: actors.objects.address(),
            tokens: actors.objects.address(),
            runtime_pods: actors.pleg.address(),
            runtime_pod: actors.pleg.address(),
            held_pods: actors.pleg.address(),
            quarantined: actors.status.address(),
            node_observers: node_status::node_observers(actors),
            address_observers: node_status::address_observers(actors),
            last_words: node_status::last_words(wiring),
            operations: wiring.operations.clone(),
        }
    }
}
