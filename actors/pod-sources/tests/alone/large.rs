//! Large pods of the API server (row 1.5).

use std::sync::atomic::{AtomicUsize, Ordering};

use bridge_io::NotRun;
use bridge_io::compute::{Compute, Piece};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Pod, Toleration};
use messages::facts::SourcePod;
use messages::pod_set::{PodLevel, PodSetUpdate};
use messages::{PodRef, PodUid};

use super::submission::Slow;
use super::*;

/// A version of a pod, which is small without bytes to fill it.
fn version(label: &str, bytes: usize) -> Pod {
    let mut pod = Pod::clone(&api_pod(1).pod);
    pod.metadata.labels = Some([("version".to_owned(), label.to_owned())].into());
    pod.metadata.annotations = Some([("filling".to_owned(), "x".repeat(bytes))].into());
    pod
}

const LARGE: usize = 80 << 10;

/// The pod is another version of itself.
fn renew(api: &FakeApi, label: &str, bytes: usize) {
    let new = version(label, bytes).metadata;
    let mut pod = api.get::<Pod>(new.namespace.as_deref(), new.name.as_deref().unwrap()).unwrap();
    (pod.metadata.labels, pod.metadata.annotations) = (new.labels, new.annotations);
    api.put(&pod);
}

fn uid() -> PodUid {
    PodRef::of(&version("", 0)).uid
}

fn label(pod: &SourcePod) -> String {
    pod.pod.metadata.labels.as_ref().unwrap()["version"].clone()
}

impl Neighbours {
    fn api_set(&self) -> PodSet<SourcePod> {
        let mut set = PodSet::default();
        for ApiPodsChanged(update) in self.api_pods.heard() {
            set.take(update);
        }
        set
    }

    /// The version that PodManager knows of.
    fn known(&self) -> Option<String> {
        self.api_set().get(&uid()).map(label)
    }

    /// Every version that PodManager has been told of by itself, in this order.
    fn versions(&self) -> Vec<String> {
        let of = |ApiPodsChanged(update): ApiPodsChanged| match update {
            PodSetUpdate::Pod { uid: of, level: PodLevel::Is(pod), .. } if of == uid() => Some(label(&pod)),
            _ => None,
        };
        self.api_pods.heard().into_iter().filter_map(of).collect()
    }

    fn follow(&self, stage: &Stage<'_>, compute: Arc<dyn Compute>) -> Supervised<PodSources> {
        let actor = stage.start(PodSourcesDeps { compute, ..self.deps(stage) }, PodSources::new);
        actor.address().tell(NodeObserved(None)).unwrap();
        actor
    }
}

#[test]
fn a_large_pod_is_judged_by_itself_and_no_version_is_overtaken() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.api.put(&version("1", LARGE));
        let _actor = near.follow(stage, Arc::new(Slow(Some(5 * SECOND))));
        stage.until("the small pod", || near.told(Source::Api) == Some(1)).await;
        assert!(near.api_set().is_unread(&uid()), "it is there, and waits to be judged");
        renew(&near.api, "2", LARGE);
        renew(&near.api, "3", 0);
        stage.until("the list is whole", || near.api_set().is_complete()).await;
        stage.pass(SECOND).await;
        assert_eq!(near.known(), None, "not even the small version is told before the large one is judged");
        stage.until("the newest version", || near.known().as_deref() == Some("3")).await;
        renew(&near.api, "4", LARGE);
        stage.pass(4 * SECOND).await;
        assert_eq!(near.known().as_deref(), Some("3"), "what was known goes on");
        stage.until("the next version", || near.known().as_deref() == Some("4")).await;
        assert_eq!(near.versions(), ["1", "3", "4"]);
    });
}

#[test]
fn a_large_pod_that_is_gone_is_judged_no_more() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.api.put(&version("1", LARGE));
        let _actor = near.follow(stage, Arc::new(Slow(Some(5 * SECOND))));
        stage.until("the pod is there", || near.api_set().is_unread(&uid())).await;
        let pod = version("", 0).metadata;
        assert!(near.api.delete::<Pod>(pod.namespace.as_deref(), pod.name.as_deref().unwrap(), Some(0)));
        stage.until("its end", || near.api_set().is_removed(&uid())).await;
        stage.pass(10 * SECOND).await;
        assert!(near.api_set().is_removed(&uid()) && near.versions().is_empty());
    });
}

/// Has no place for the first piece.
#[derive(Clone, Debug, Default)]
struct FullAtFirst(Arc<AtomicUsize>);

impl Compute for FullAtFirst {
    fn run(&self, _pod: &str, piece: Piece) -> BoxFuture<'static, Result<(), NotRun>> {
        let is_first = self.0.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            if is_first {
                return Err(NotRun::Busy { owner: "test" });
            }
            piece();
            Ok(())
        }
        .boxed()
    }

    fn for_namespace(&self, namespace: &str) -> Arc<dyn Compute> {
        assert_eq!(namespace, "default", "the pod's share of the places");
        Arc::new(self.clone())
    }
}

#[test]
fn a_large_pod_for_which_there_is_no_place_is_judged_a_second_later() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.api.put(&version("1", LARGE));
        let compute = Arc::new(FullAtFirst::default());
        let _actor = near.follow(stage, compute.clone());
        stage.until("the small pod", || near.told(Source::Api) == Some(1)).await;
        assert!(near.api_set().is_unread(&uid()));
        stage.until("the large one", || near.known().as_deref() == Some("1")).await;
        assert_eq!(compute.0.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_pod_beyond_the_room_of_its_namespace_is_asked_for_again_when_there_is_room() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        // Each takes a seventh of what a namespace may have of pods that may run already.
        for number in 1..=8 {
            let mut pod = Pod::clone(&api_pod(number).pod);
            let spec = pod.spec.as_mut().unwrap();
            spec.tolerations = Some(vec![Toleration::default(); 65_000]);
            near.api.put(&pod);
        }
        let actor = near.start(stage);
        actor.address().tell(NodeObserved(None)).unwrap();
        stage.until("all that there is room for", || near.told(Source::Api) == Some(8)).await;
        let lists = || near.api.count(Verb::List, "pods");
        stage.pass(120 * SECOND).await;
        assert_eq!((near.told(Source::Api), near.api_set().unread_uids().count(), lists()), (Some(8), 1, 1));
        let small = PodRef::of(&api_pod(0).pod).uid;
        let known =
            near.api_set().iter().find(|(uid, _)| **uid != small).map(|(_, pod)| pod.clone()).unwrap();
        let PodRef { namespace, name, .. } = PodRef::of(&known.pod);
        assert!(near.api.delete::<Pod>(Some(&*namespace), &name, Some(0)));
        stage.until("its end", || near.told(Source::Api) == Some(7)).await;
        stage.pass(50 * SECOND).await;
        assert_eq!(lists(), 1, "not at once");
        stage.until("the one that was left out", || near.told(Source::Api) == Some(8)).await;
        assert_eq!((near.api_set().unread_uids().count(), lists()), (0, 2));
        stage.pass(120 * SECOND).await;
        assert_eq!(lists(), 2, "once");
    });
}
