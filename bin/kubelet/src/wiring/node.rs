//! The ways into the node, running.

use std::sync::Arc;

use bridge_cri::Operations;
use messages::event_recorder::{GetEvents, RecordAnnotatedEvent, RecordEvent};
use messages::facts::{NodeAddressesObserved, NodeObserved};
use messages::garbage_collector::{CollectNow, RemoveDeadContainers};
use messages::image_manager::DeleteUnusedImages;
use messages::object_cache::{
    GetConfigMap, GetRuntimeClass, GetSecret, GetServices, GetToken, PodObjectsChanged,
};
use messages::pleg::{GetHeldPods, GetRuntimePod, GetRuntimePods};
use messages::pod_manager::{ApiPodsChanged, GetPods, GetStaticOf};
use messages::pod_worker::{EvictPod, GetWorkers};
use messages::probe_manager::GetVerdicts;
use messages::status_manager::GetPodStatuses;
use messages::supervision::PodQuarantined;
use messages::volume_manager::GetVolumes;
use supervision::{Address, AskPort, Outside};

use super::{LastWords, Wiring, node_status, object_cache};

/// The node, running.
pub struct Node {
    /// Pods as desired.
    pub pods: AskPort<Outside, GetPods>,
    /// Static pods by their mirrors.
    pub static_of: AskPort<Outside, GetStaticOf>,
    /// Pods as they are.
    pub statuses: AskPort<Outside, GetPodStatuses>,
    /// Workers' reports.
    pub workers: AskPort<Outside, GetWorkers>,
    /// Events.
    pub events: AskPort<Outside, GetEvents>,
    /// Takes events.
    pub record: Address<RecordEvent>,
    /// Takes events with annotations.
    pub record_annotated: Address<RecordAnnotatedEvent>,
    /// PodManager: the pods of the API server.
    pub api_pods: Address<ApiPodsChanged>,
    /// Ends pods for a reason of the node.
    pub evict: Address<EvictPod>,
    /// Has the garbage collected now.
    pub collect: Address<CollectNow>,
    /// Has all dead containers removed.
    pub remove_dead: AskPort<Outside, RemoveDeadContainers>,
    /// Has all unused images deleted.
    pub delete_images: AskPort<Outside, DeleteUnusedImages>,
    /// Probe verdicts.
    pub verdicts: AskPort<Outside, GetVerdicts>,
    /// Mounted volumes.
    pub volumes: AskPort<Outside, GetVolumes>,
    /// Takes news of what pods refer to.
    pub objects_changed: Vec<Address<PodObjectsChanged>>,
    /// Secrets.
    pub secrets: AskPort<Outside, GetSecret>,
    /// Config maps.
    pub config_maps: AskPort<Outside, GetConfigMap>,
    /// Runtime classes.
    pub runtime_classes: AskPort<Outside, GetRuntimeClass>,
    /// Services.
    pub services: AskPort<Outside, GetServices>,
    /// Tokens of service accounts.
    pub tokens: AskPort<Outside, GetToken>,
    /// What the runtime holds.
    pub runtime_pods: AskPort<Outside, GetRuntimePods>,
    /// What it holds of one pod.
    pub runtime_pod: AskPort<Outside, GetRuntimePod>,
    /// Pods of which it holds anything.
    pub held_pods: AskPort<Outside, GetHeldPods>,
    /// Takes quarantines.
    pub quarantined: Address<PodQuarantined>,
    /// Who is told of the Node.
    pub node_observers: Vec<Address<NodeObserved>>,
    /// Who is told of the node's addresses.
    pub address_observers: Vec<Address<NodeAddressesObserved>>,
    /// Has the Node written not ready, on a member of a cluster.
    pub last_words: Option<LastWords>,
    /// Calls to the runtime, as the actors make them.
    pub operations: Arc<Operations>,
}

impl Node {
    pub(super) fn of(wiring: &Wiring<'_>) -> Self {
        let actors = &wiring.actors;
        Self {
            pods: actors.manager.asked(),
            static_of: actors.manager.asked(),
            statuses: actors.status.asked(),
            workers: actors.pool.asked(),
            events: actors.events.asked(),
            record: actors.events.address(),
            record_annotated: actors.events.address(),
            api_pods: actors.manager.address(),
            evict: actors.pool.address(),
            collect: actors.garbage.address(),
            remove_dead: actors.garbage.asked(),
            delete_images: actors.images.asked(),
            verdicts: actors.probes.asked(),
            volumes: actors.volumes.asked(),
            objects_changed: object_cache::observers(actors),
            secrets: actors.objects.asked(),
            config_maps: actors.objects.asked(),
            runtime_classes: actors.objects.asked(),
            services: actors.objects.asked(),
            tokens: actors.objects.asked(),
            runtime_pods: actors.pleg.asked(),
            runtime_pod: actors.pleg.asked(),
            held_pods: actors.pleg.asked(),
            quarantined: actors.status.address(),
            node_observers: node_status::node_observers(actors),
            address_observers: node_status::address_observers(actors),
            last_words: node_status::last_words(wiring),
            operations: wiring.operations.clone(),
        }
    }
}
