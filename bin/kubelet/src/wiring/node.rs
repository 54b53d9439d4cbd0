//! The handles of a running node.

use std::sync::Arc;

use bridge_cri::Operations;
use messages::config_manager::{GetConfiguration, ReloadConfiguration};
use messages::event_recorder::{GetEvents, RecordAnnotatedEvent, RecordEvent};
use messages::facts::{NodeAddressesObserved, NodeObserved};
use messages::garbage_collector::{CollectNow, RemoveDeadContainers};
use messages::image_manager::DeleteUnusedImages;
use messages::object_cache::{
    GetConfigMap, GetRuntimeClass, GetSecret, GetServiceAccount, GetServices, GetToken, PodObjectsChanged,
};
use messages::pleg::{GetHeldPods, GetRuntimePod, GetRuntimePods};
use messages::pod_manager::{ApiPodsChanged, GetPods, GetStaticOf};
use messages::pod_sources::{SubmitPod, WithdrawPod};
use messages::pod_worker::{EvictPod, GetWorkers};
use messages::probe_manager::GetVerdicts;
use messages::stats_provider::{GetSummary, GetUsageMetrics};
use messages::status_manager::GetPodStatuses;
use messages::supervision::PodsQuarantined;
use messages::volume_manager::{GetVolumeStats, GetVolumes};
use supervision::{Address, AskPort, Outside};

use super::{LastWords, Wiring, node_status, object_cache};

/// A running node: the ports and addresses by which the process and tests reach its actors.
pub struct Node {
    /// Asks for the desired pods.
    pub pods: AskPort<Outside, GetPods>,
    /// Asks for the static pod of a mirror pod.
    pub static_of: AskPort<Outside, GetStaticOf>,
    /// Submits a pod.
    pub submit: AskPort<Outside, SubmitPod>,
    /// Withdraws a submitted pod.
    pub withdraw: AskPort<Outside, WithdrawPod>,
    /// Asks for the statuses of pods.
    pub statuses: AskPort<Outside, GetPodStatuses>,
    /// Asks for the workers' reports.
    pub workers: AskPort<Outside, GetWorkers>,
    /// Asks for the recorded events.
    pub events: AskPort<Outside, GetEvents>,
    /// Records an event.
    pub record: Address<RecordEvent>,
    /// Records an event with annotations.
    pub record_annotated: Address<RecordAnnotatedEvent>,
    /// Has the configuration read anew.
    pub reload: Address<ReloadConfiguration>,
    /// Asks for the configuration in force.
    pub configuration: AskPort<Outside, GetConfiguration>,
    /// PodManager: the pods of the API server.
    pub api_pods: Address<ApiPodsChanged>,
    /// Ends pods for a reason of the node.
    pub evict: Address<EvictPod>,
    /// Starts a garbage collection now.
    pub collect: Address<CollectNow>,
    /// Asks for the removal of all dead containers.
    pub remove_dead: AskPort<Outside, RemoveDeadContainers>,
    /// Asks for the deletion of all unused images.
    pub delete_images: AskPort<Outside, DeleteUnusedImages>,
    /// Asks for the probes' verdicts.
    pub verdicts: AskPort<Outside, GetVerdicts>,
    /// Asks for the mounted volumes.
    pub volumes: AskPort<Outside, GetVolumes>,
    /// Asks for the figures of volumes.
    pub volume_stats: AskPort<Outside, GetVolumeStats>,
    /// Asks what node, pods and containers use.
    pub summary: AskPort<Outside, GetSummary>,
    /// Asks for pages of metrics about usage.
    pub usage: AskPort<Outside, GetUsageMetrics>,
    /// Receive changes of the objects that pods refer to.
    pub objects_changed: Vec<Address<PodObjectsChanged>>,
    /// Asks for a secret.
    pub secrets: AskPort<Outside, GetSecret>,
    /// Asks for a config map.
    pub config_maps: AskPort<Outside, GetConfigMap>,
    /// Asks for a runtime class.
    pub runtime_classes: AskPort<Outside, GetRuntimeClass>,
    /// Asks for the services.
    pub services: AskPort<Outside, GetServices>,
    /// Asks for a service account.
    pub accounts: AskPort<Outside, GetServiceAccount>,
    /// Asks for a token of a service account.
    pub tokens: AskPort<Outside, GetToken>,
    /// Asks for the pods in the runtime.
    pub runtime_pods: AskPort<Outside, GetRuntimePods>,
    /// Asks for one pod in the runtime.
    pub runtime_pod: AskPort<Outside, GetRuntimePod>,
    /// Asks for every pod of which the runtime holds a sandbox or container.
    pub held_pods: AskPort<Outside, GetHeldPods>,
    /// Receives quarantines.
    pub quarantined: Address<PodsQuarantined>,
    /// Receive the Node.
    pub node_observers: Vec<Address<NodeObserved>>,
    /// Receive the node's addresses.
    pub address_observers: Vec<Address<NodeAddressesObserved>>,
    /// Sets the Node not ready at a failure; present on a member of a cluster.
    pub last_words: Option<LastWords>,
    /// The calls to the runtime that the actors use.
    pub operations: Arc<Operations>,
}

impl Node {
    pub(super) fn of(wiring: &Wiring<'_>) -> Self {
        let actors = &wiring.actors;
        Self {
            pods: actors.manager.asked(),
            static_of: actors.manager.asked(),
            submit: actors.sources.asked(),
            withdraw: actors.sources.asked(),
            statuses: actors.status.asked(),
            workers: actors.pool.asked(),
            events: actors.events.asked(),
            record: actors.events.address(),
            record_annotated: actors.events.address(),
            reload: actors.configuration.address(),
            configuration: actors.configuration.asked(),
            api_pods: actors.manager.address(),
            evict: actors.pool.address(),
            collect: actors.garbage.address(),
            remove_dead: actors.garbage.asked(),
            delete_images: actors.images.asked(),
            verdicts: actors.probes.asked(),
            volumes: actors.volumes.asked(),
            volume_stats: actors.volumes.asked(),
            summary: actors.stats.asked(),
            usage: actors.stats.asked(),
            objects_changed: object_cache::observers(actors),
            secrets: actors.objects.asked(),
            config_maps: actors.objects.asked(),
            runtime_classes: actors.objects.asked(),
            services: actors.objects.asked(),
            accounts: actors.objects.asked(),
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
