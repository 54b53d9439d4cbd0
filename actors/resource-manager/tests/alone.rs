//! ResourceManager alone: the test asks it for pods' cgroups; the machine's cgroups are a fake.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_node::cgroups::{CgroupError, Cgroups};
use messages::PodUid;
use messages::event_recorder::RecordEvent;
use messages::pleg::GetHeldPods;
use messages::pod_manager::ResendDesired;
use messages::resource_manager::{EnsurePodCgroup, RemovePodCgroup};
use messages::runtime::HeldPod;
use pod_spec::resources::QosClass;
use resource_manager::{
    ProcessCgroups, ResourceManager, ResourceManagerConfig, ResourceManagerDeps, ResourceMetrics,
};
use stage::{Neighbour, Stage, alone, ask, desired, pod};
use supervision::Supervised;

const SECOND: Duration = Duration::from_secs(1);

struct Neighbours {
    pleg: Neighbour<GetHeldPods>,
    manager: Neighbour<ResendDesired>,
    events: Neighbour<RecordEvent>,
}

impl Neighbours {
    fn new() -> Self {
        Self {
            pleg: Neighbour::answering("Pleg", |_| Arc::new(BTreeMap::new())),
            manager: Neighbour::new("PodManager"),
            events: Neighbour::new("EventRecorder"),
        }
    }

    fn start(&self, stage: &Stage<'_>) -> Supervised<ResourceManager> {
        stage.start(self.deps(stage), ResourceManager::new)
    }

    fn deps(&self, stage: &Stage<'_>) -> ResourceManagerDeps {
        ResourceManagerDeps {
            config: ResourceManagerConfig::default(),
            cgroups: stage.fakes.cgroups.clone(),
            held_pods: self.pleg.asked(),
            resend_desired: self.manager.address(),
            events: self.events.address(),
            metrics: ResourceMetrics::new().unwrap(),
        }
    }
}

fn has_cgroup(stage: &Stage<'_>, uid: &PodUid) -> bool {
    let cgroups = &stage.fakes.cgroups;
    QosClass::ALL
        .into_iter()
        .any(|qos| cgroups.values(&cgroups.names().pod(qos, uid.as_str()).unwrap()).is_some())
}

async fn ensure(actor: &Supervised<ResourceManager>, number: usize) -> Result<(), String> {
    let there = ask(actor, EnsurePodCgroup { pod: pod(number) }, SECOND).await.unwrap();
    there.map(|_| ()).map_err(|failure| failure.message)
}

#[test]
fn a_pods_cgroup_is_made_and_removed_when_asked_for() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.until("the desired pods to be asked for", || near.manager.count() == 1).await;
        let pod = pod(0).pod_ref.clone();
        ensure(&actor, 0).await.unwrap();
        assert!(has_cgroup(stage, &pod.uid));
        let removed = ask(&actor, RemovePodCgroup { pod: pod.clone() }, SECOND).await;
        assert_eq!((removed, has_cgroup(stage, &pod.uid)), (Ok(Ok(())), false));
    });
}

#[test]
fn a_new_incarnation_asks_for_the_pods_and_writes_nothing_twice() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        actor.address().tell(desired(3)).unwrap();
        ensure(&actor, 0).await.unwrap();
        stage.pass(SECOND).await;
        let writes = stage.fakes.cgroups.writes();
        stage.crash::<ResourceManager>().await;
        stage.until("the desired pods to be asked for", || near.manager.count() == 2).await;
        actor.address().tell(desired(3)).unwrap();
        ensure(&actor, 0).await.unwrap();
        stage.pass(120 * SECOND).await;
        assert!(writes > 0);
        assert_eq!(stage.fakes.cgroups.writes(), writes, "every cgroup holds already what it shall");
        assert!(has_cgroup(stage, &pod(0).pod_ref.uid));
    });
}

#[test]
fn processes_of_a_pod_that_nobody_knows_live_while_pleg_does_not_answer() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.pleg.lose_answers();
        let orphan = pod(9).pod_ref.uid.clone();
        stage.fakes.cgroups.add_pod(QosClass::BestEffort, orphan.as_str()).unwrap();
        stage.fakes.cgroups.add_pid(orphan.as_str(), 42);
        let actor = near.start(stage);
        actor.address().tell(desired(1)).unwrap();
        stage.pass(300 * SECOND).await;
        assert!(near.pleg.count() >= 2, "Pleg is asked again each minute");
        assert!(has_cgroup(stage, &orphan), "the runtime may have it");
        // At first the runtime has the pod, and later it has not.
        let (uid, pod_ref) = (orphan.clone(), pod(9).pod_ref.clone());
        near.pleg.answer(move |_| {
            Arc::new([(uid.clone(), HeldPod { pod: pod_ref.clone(), source: None })].into())
        });
        stage.pass(300 * SECOND).await;
        assert!(has_cgroup(stage, &orphan));
        near.pleg.answer(|_| Arc::new(BTreeMap::new()));
        stage.until("the orphan to go", || !has_cgroup(stage, &orphan)).await;
    });
}

#[test]
fn cgroups_that_refuse_everything_are_told_of_and_asked_again() {
    alone(async |stage| {
        let near = Neighbours::new();
        let broken = CgroupError::Missing { cgroup: "/kubepods".to_owned(), paths: Vec::new() };
        stage.fakes.cgroups.set_broken(Some(broken));
        let actor = near.start(stage);
        stage.until("the node's event", || near.events.count() > 0).await;
        near.events.take();
        assert!(ensure(&actor, 0).await.unwrap_err().contains("/kubepods"));
        let reasons: Vec<_> = near.events.take().iter().map(|event| event.reason.to_string()).collect();
        assert_eq!(reasons, ["FailedCreatePodContainer"]);
        stage.fakes.cgroups.set_broken(None);
        ensure(&actor, 0).await.unwrap();
        stage.pass(61 * SECOND).await;
        let unenforced = stage.observed::<ResourceManager>().await["unenforced"].clone();
        assert_eq!(unenforced, serde_json::json!([]), "the node's own cgroups hold a minute later");
    });
}

#[test]
fn processes_of_the_system_and_the_kubelet_are_moved_every_minute() {
    alone(async |stage| {
        let near = Neighbours::new();
        let cgroups = stage.fakes.cgroups.clone();
        cgroups.add_root_pid(40);
        let mut deps = near.deps(stage);
        deps.config.processes = ProcessCgroups {
            kubelet: Some("/kubelet".to_owned()),
            system: Some("/system".to_owned()),
            oom_score_adj: -999,
        };
        let _actor = stage.start(deps, ResourceManager::new);
        stage.until("the first move", || cgroups.own().is_some()).await;
        assert_eq!(cgroups.own(), Some((Some("/kubelet".to_owned()), -999)));
        assert_eq!(cgroups.gathered("/system"), BTreeSet::from([40]));
        cgroups.add_root_pid(41);
        stage.pass(61 * SECOND).await;
        assert_eq!(cgroups.gathered("/system"), BTreeSet::from([40, 41]));

        cgroups.add_root_pid(42);
        cgroups.set_broken(Some(CgroupError::NotMounted));
        stage.pass(60 * SECOND).await;
        let misplaced = stage.observed::<ResourceManager>().await["misplaced"].clone();
        let why = "no cgroup hierarchy is mounted";
        let both =
            [format!("systemCgroups \"/system\": {why}"), format!("kubeletCgroups \"/kubelet\": {why}")];
        assert_eq!(misplaced, serde_json::json!(both));
        cgroups.set_broken(None);
        stage.pass(60 * SECOND).await;
        assert_eq!(cgroups.gathered("/system"), BTreeSet::from([40, 41, 42]), "a failure is tried again");
        assert_eq!(stage.observed::<ResourceManager>().await["misplaced"], serde_json::json!([]));
    });
}

#[test]
fn a_kubelet_without_a_cgroup_of_its_own_keeps_its_score_and_moves_nothing() {
    alone(async |stage| {
        let near = Neighbours::new();
        let cgroups = stage.fakes.cgroups.clone();
        cgroups.add_root_pid(40);
        let mut deps = near.deps(stage);
        deps.config.per_qos = false;
        deps.config.processes.oom_score_adj = -998;
        let _actor = stage.start(deps, ResourceManager::new);
        stage.until("the score", || cgroups.own() == Some((None, -998))).await;
        stage.pass(601 * SECOND).await;
        assert_eq!(cgroups.gathered("/"), BTreeSet::new());
    });
}
