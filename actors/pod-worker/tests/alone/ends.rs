//! Orders to evict, and the end of a worker.

use stage::alone_under;
use supervision::{Policy, State};

use super::*;

#[test]
fn an_order_to_evict_outlives_the_pool_and_the_worker() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.until("the container to run", || runs(stage)).await;
        stage.fakes.runtime.fault(Rpc::StopContainer, 1000, Fault::Hang);
        let why = Rejection::new("Evicted", "memory is short");
        let uid = pod(0).pod_ref.uid.clone();
        actor.address().tell(EvictPod { uid: uid.clone(), grace_seconds: Some(0), why }).unwrap();
        stage.until("the stop", || calls(stage, Rpc::StopContainer) > 0).await;
        stage.crash::<PodWorkerPool>().await;
        tell_facts(&actor);
        stage.pass(5 * SECOND).await;
        near.reports.take();
        stage.tree.kill(&format!("PodWorker/{uid}")).unwrap();
        stage.pass(10 * SECOND).await;
        actor.address().tell(ResendReports { receiver: "StatusManager" }).unwrap();
        stage.pass(2 * SECOND).await;
        let mut followed: Followed<Arc<WorkerReport>> = Followed::default();
        near.reports.heard().into_iter().for_each(|told| drop(followed.take(told.0)));
        let report = followed.get(&uid).expect("the worker has reported");
        assert_eq!(report.failed.as_ref().map(|why| why.reason.as_str()), Some("Evicted"));
    });
}

#[test]
fn an_order_to_evict_wakes_a_worker_that_sleeps() {
    alone_under(Policy::default(), async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.until("the container to run", || runs(stage)).await;
        stage.expect_crashes();
        let uid = pod(0).pod_ref.uid.clone();
        let worker = format!("PodWorker/{uid}");
        // One crash more than there are restarts.
        for _ in 0..6 {
            stage.tree.kill(&worker).unwrap();
            stage.pass(3 * SECOND).await;
        }
        assert_eq!(stage.report(&worker).await.state, State::Dormant);
        let why = Rejection::new("Evicted", "memory is short");
        actor.address().tell(EvictPod { uid, grace_seconds: Some(1), why }).unwrap();
        stage.pass(20 * SECOND).await;
        assert!(calls(stage, Rpc::StopContainer) > 0 && !runs(stage), "it need not sleep on for minutes");
    });
}

#[test]
fn the_last_report_of_a_worker_reaches_a_follower_that_refused_it() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.until("the container to run", || runs(stage)).await;
        near.reports.refuse();
        actor.address().tell(desired_of(&[])).unwrap();
        stage.until("the volumes to be given back", || near.unmount.count() > 0).await;
        stage.pass(30 * SECOND).await;
        assert_ne!(near.report(), Some((WorkerState::Terminated, true)), "it is refused");
        near.reports.fall_silent();
        stage.until("the last report", || near.report() == Some((WorkerState::Terminated, true))).await;
    });
}

#[test]
fn a_worker_whose_last_report_is_lost_is_over_all_the_same() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.until("the container to run", || runs(stage)).await;
        stage.pass(SECOND).await;
        stage.inject::<PodWorkerPool>(ActorFault::Drop { message: "PodReported".to_owned(), count: 100 });
        actor.address().tell(desired_of(&[])).unwrap();
        stage.until("everything to be given back", || near.remove_cgroup.count() > 0).await;
        stage.pass(30 * SECOND).await;
        assert_eq!(near.report(), Some((WorkerState::Syncing, false)), "what came after is lost");
        stage.pass(120 * SECOND).await;
        assert_eq!(near.report(), Some((WorkerState::Terminated, true)));
        assert_eq!(stage.observed::<PodWorkerPool>().await["workers"], 0);
    });
}
