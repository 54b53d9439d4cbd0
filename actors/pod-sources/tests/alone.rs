//! PodSources alone: manifests on a disk, a URL, the API server; PodManager is recorded.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::Arc;
use std::time::Duration;

use bridge_http::manifest_url::FakeManifestUrl;
use bridge_io::Io;
use bridge_kube::fake::{FakeApi, Fault, On, Verb};
use bridge_node::host::FakeStaticFiles;
use messages::event_recorder::RecordEvent;
use messages::facts::{NodeObserved, Source};
use messages::node_status::ResendNode;
use messages::pod_manager::{ApiPodsChanged, PodsChanged};
use messages::pod_sources::ResendPods;
use pod_set::PodSet;
use pod_sources::{PodSources, PodSourcesConfig, PodSourcesDeps};
use stage::{Neighbour, Stage, alone, api_pod};
use supervision::Supervised;

#[path = "alone/large.rs"]
mod large;
#[path = "alone/submission.rs"]
mod submission;

const SECOND: Duration = Duration::from_secs(1);
const MANIFESTS: &str = "/etc/kubernetes/manifests";

struct Neighbours {
    api: FakeApi,
    url: FakeManifestUrl,
    manager: Neighbour<PodsChanged>,
    api_pods: Neighbour<ApiPodsChanged>,
    node: Neighbour<ResendNode>,
    events: Neighbour<RecordEvent>,
}

impl Neighbours {
    /// A directory with one manifest, a URL with none, and an API server with one pod.
    fn new(stage: &Stage<'_>) -> Self {
        let api = FakeApi::new(stage.fakes.clock.clone());
        api.put(&*api_pod(0).pod);
        stage.fakes.disk.mkdir(MANIFESTS, 0o755);
        write(stage, "a");
        let url = FakeManifestUrl::new("http://manifests.example/pod");
        url.serve(&manifest("from-url"));
        Self {
            api,
            url,
            manager: Neighbour::new("PodManager"),
            api_pods: Neighbour::new("PodManager"),
            node: Neighbour::new("NodeStatus"),
            events: Neighbour::new("EventRecorder"),
        }
    }

    fn start(&self, stage: &Stage<'_>) -> Supervised<PodSources> {
        stage.start(self.deps(stage), PodSources::new)
    }

    fn deps(&self, stage: &Stage<'_>) -> PodSourcesDeps {
        PodSourcesDeps {
            config: PodSourcesConfig {
                path: Some(MANIFESTS.into()),
                check: 20 * SECOND,
                url_check: 20 * SECOND,
                node: "node".to_owned(),
                security: Default::default(),
                restart_rules: Default::default(),
            },
            files: Arc::new(FakeStaticFiles::new(stage.fakes.disk.clone())),
            url: Some(Arc::new(self.url.clone())),
            api: Some(Arc::new(self.api.client(&Io::current()))),
            submissions: None,
            node: Some(self.node.address()),
            compute: stage.fakes.compute.clone(),
            clock: stage.fakes.clock.clone(),
            manager: self.manager.address(),
            api_pods: self.api_pods.address(),
            events: self.events.address(),
        }
    }

    /// How many pods of a source PodManager knows of; nothing before it has been told.
    fn told(&self, source: Source) -> Option<usize> {
        if source == Source::Api {
            let mut set = PodSet::default();
            for ApiPodsChanged(update) in self.api_pods.heard() {
                set.take(update);
            }
            return set.is_known().then(|| set.len());
        }
        let of_source = |told: &PodsChanged| (told.source == source).then(|| told.pods.len());
        self.manager.heard().iter().rev().find_map(of_source)
    }
}

fn manifest(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  containers:\n  - name: web\n    image: \
         understudy.dev/demo:1\n"
    )
}

fn write(stage: &Stage<'_>, name: &str) {
    stage.fakes.disk.write(format!("{MANIFESTS}/{name}.yaml"), manifest(name), 0o644);
}

#[test]
fn every_source_is_told_and_the_api_servers_only_after_the_node() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        let files = || near.told(Source::File) == Some(1) && near.told(Source::Http) == Some(1);
        stage.until("the manifests", files).await;
        stage.pass(10 * SECOND).await;
        assert_eq!((near.told(Source::Api), near.api.count(Verb::List, "pods")), (None, 0));
        assert!(near.node.count() >= 5, "the Node is asked for each second");
        actor.address().tell(NodeObserved(None)).unwrap();
        stage.until("the API server's pods", || near.told(Source::Api) == Some(1)).await;
        let asked = near.node.count();
        write(stage, "b");
        stage.until("the new manifest, by its watch", || near.told(Source::File) == Some(2)).await;
        stage.pass(60 * SECOND).await;
        assert_eq!(near.node.count(), asked, "what is known is not asked for");
        assert_eq!(near.events.count(), 0);
    });
}

#[test]
fn a_manifest_that_is_removed_and_made_anew_at_once_is_told_as_made_anew() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let _actor = near.start(stage);
        write(stage, "b");
        stage.until("the manifests", || near.told(Source::File) == Some(2)).await;
        stage.pass(SECOND).await;
        near.manager.take();
        stage.fakes.disk.remove(format!("{MANIFESTS}/b.yaml"));
        write(stage, "b");
        stage.until("news", || near.told(Source::File).is_some()).await;
        let told = near.manager.heard().pop().unwrap();
        let anew: Vec<bool> = told.pods.iter().map(|pod| pod.made_anew.is_some()).collect();
        assert_eq!(anew, [false, true]);
        near.manager.take();
        stage.pass(600 * SECOND).await;
        let again: Vec<_> =
            near.manager.heard().into_iter().filter(|one| one.source == Source::File).collect();
        assert!(again.len() > 5 && again.iter().all(|one| *one == told), "once, however often it is told");
    });
}

#[test]
fn a_new_incarnation_reads_every_source_again() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        actor.address().tell(NodeObserved(None)).unwrap();
        stage.until("the API server's pods", || near.told(Source::Api) == Some(1)).await;
        stage.until("the manifests", || near.told(Source::File) == Some(1)).await;
        let uid = |near: &Neighbours| {
            let heard = near.manager.heard();
            let of_file = heard.iter().rev().find(|told| told.source == Source::File).unwrap();
            of_file.pods[0].pod.metadata.uid.clone().unwrap()
        };
        let before = uid(&near);
        near.manager.take();
        near.api_pods.take();
        near.node.take();
        stage.crash::<PodSources>().await;
        let files = || near.told(Source::File) == Some(1) && near.told(Source::Http) == Some(1);
        stage.until("the manifests again", files).await;
        assert_eq!(uid(&near), before, "the same pod");
        assert_eq!(near.told(Source::Api), None);
        stage.until("the Node to be asked for", || near.node.count() > 0).await;
        actor.address().tell(NodeObserved(None)).unwrap();
        stage.until("the API server's pods again", || near.told(Source::Api) == Some(1)).await;
    });
}

#[test]
fn a_manager_whose_mailbox_was_full_is_told_everything_when_it_asks() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.manager.refuse();
        near.api_pods.refuse();
        let actor = near.start(stage);
        actor.address().tell(NodeObserved(None)).unwrap();
        let refused = || near.manager.refused().len() == 2 && near.api_pods.refused().len() == 1;
        stage.until("all sources", refused).await;
        near.manager.fall_silent();
        near.api_pods.fall_silent();
        actor.address().tell(ResendPods).unwrap();
        stage.until("all sources again", || near.manager.count() == 2 && near.api_pods.count() == 1).await;
        let told = [Source::File, Source::Http, Source::Api].map(|source| near.told(source));
        assert_eq!(told, [Some(1); 3]);
    });
}

#[test]
fn a_manager_that_had_no_room_is_told_everything_when_it_has() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.manager.refuse();
        let actor = near.start(stage);
        actor.address().tell(NodeObserved(None)).unwrap();
        stage.until("the pods", || near.manager.refused().len() == 2 && near.api_pods.count() > 0).await;
        near.manager.fall_silent();
        stage.until("the API server's pods", || near.told(Source::Api) == Some(1)).await;
        near.api_pods.refuse();
        let mut another = (*api_pod(1).pod).clone();
        another.metadata.uid = None;
        near.api.put(&another);
        let is_refused = || near.api_pods.refused().iter().any(|told| told.0.pod().is_some());
        stage.until("another pod", is_refused).await;
        near.api_pods.fall_silent();
        let files = || near.told(Source::File) == Some(1) && near.told(Source::Http) == Some(1);
        stage.until("the manifests", files).await;
        stage.until("both pods", || near.told(Source::Api) == Some(2)).await;
    });
}

#[test]
fn a_disk_and_a_url_that_fail_are_told_of_once_and_take_no_pod_away() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        let files = || near.told(Source::File) == Some(1) && near.told(Source::Http) == Some(1);
        stage.until("the manifests", files).await;
        stage.fakes.disk.fail("read", MANIFESTS, 3, "Input/output error");
        near.url.fail("503 Service Unavailable");
        stage.until("both events", || near.events.count() == 2).await;
        stage.pass(50 * SECOND).await;
        assert_eq!((near.events.count(), files()), (2, true));
        drop(actor);
    });
}

#[test]
fn a_server_that_answers_429_for_30_s_is_asked_again_when_it_said() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.api.fault(On::call(Verb::List, "pods"), 1, Fault::too_many(30));
        let actor = near.start(stage);
        actor.address().tell(NodeObserved(None)).unwrap();
        stage.pass(29 * SECOND).await;
        assert_eq!((near.api.count(Verb::List, "pods"), near.told(Source::Api)), (1, None));
        assert_eq!(near.told(Source::File), Some(1), "other sources are heard meanwhile");
        stage.pass(5 * SECOND).await;
        assert_eq!((near.api.count(Verb::List, "pods"), near.told(Source::Api)), (2, Some(1)));
    });
}
