//! ImageManager alone: workers that ask, a runtime with a registry behind it, and secrets from ObjectCache.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::fake::RegistryImage;
use bridge_cri::{CriErrorKind, Rpc};
use bridge_metrics::Registry;
use bridge_node::host::{FakeCredentialPlugins, FakeDockerConfigs, FakePullRecords};
use bridge_node::stats::FakeStats;
use image_manager::{
    ImageHistory, ImageManager, ImageManagerDeps, ImageMetrics, ImageSettings, KeptAnswers, Verification,
};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use messages::PodUid;
use messages::config_manager::ResendConfiguration;
use messages::event_recorder::RecordEvent;
use messages::image_manager::{
    DeleteUnusedImages, EnsureImage, ImageError, ImageRules, ImagesConfigured, PresentImage, PullPolicy,
};
use messages::object_cache::{GetSecret, GetServiceAccount, GetToken};
use messages::supervision::Fault;
use stage::{IMAGE, Neighbour, Stage, alone, pod};
use supervision::{AskError, Supervised};

#[path = "alone/collecting.rs"]
mod collecting;
#[path = "alone/providing.rs"]
mod providing;
#[path = "alone/sharing.rs"]
mod sharing;

const SECOND: Duration = Duration::from_secs(1);
const ABSENT: &str = "understudy.dev/absent:1";

type Answer = Result<Result<Arc<PresentImage>, ImageError>, AskError>;

struct Neighbours {
    secrets: Neighbour<GetSecret>,
    accounts: Neighbour<GetServiceAccount>,
    tokens: Neighbour<GetToken>,
    plugins: FakeCredentialPlugins,
    events: Neighbour<RecordEvent>,
    configuration: Neighbour<ResendConfiguration>,
    stats: FakeStats,
}

impl Neighbours {
    fn new() -> Self {
        Self {
            secrets: Neighbour::new("ObjectCache"),
            accounts: Neighbour::new("ObjectCache"),
            tokens: Neighbour::new("ObjectCache"),
            plugins: FakeCredentialPlugins::default(),
            events: Neighbour::new("EventRecorder"),
            configuration: Neighbour::new("ConfigManager"),
            stats: FakeStats::default(),
        }
    }

    fn start(&self, stage: &Stage<'_>) -> Supervised<ImageManager> {
        stage.start(self.deps(stage), ImageManager::new)
    }

    fn deps(&self, stage: &Stage<'_>) -> ImageManagerDeps {
        let fakes = &stage.fakes;
        ImageManagerDeps {
            images: fakes.operations.clone(),
            runtime: fakes.operations.clone(),
            usage: fakes.operations.clone(),
            stats: Arc::new(self.stats.clone()),
            configs: Arc::new(FakeDockerConfigs::new(fakes.disk.clone())),
            plugins: Arc::new(self.plugins.clone()),
            records: Arc::new(FakePullRecords::new(fakes.disk.clone())),
            clock: fakes.clock.clone(),
            secrets: self.secrets.asked(),
            accounts: self.accounts.asked(),
            tokens: self.tokens.asked(),
            compute: fakes.compute.clone(),
            events: self.events.address(),
            configuration: self.configuration.address(),
            settings: ImageSettings::default(),
            history: ImageHistory::default(),
            answers: KeptAnswers::default(),
            metrics: ImageMetrics::new(),
        }
    }

    fn reasons(&self) -> Vec<String> {
        self.events.heard().iter().map(|event| event.reason.to_string()).collect()
    }
}

fn ask(image: &str, secrets: &[&str]) -> EnsureImage {
    EnsureImage {
        pod: pod(0).pod_ref.clone(),
        container: Arc::from("web"),
        field_path: Arc::from("spec.containers{web}"),
        image: Arc::from(image),
        policy: PullPolicy::IfNotPresent,
        pull_secrets: secrets.iter().map(|name| Arc::from(*name)).collect(),
        service_account: Arc::default(),
        annotations: Arc::default(),
        sandbox_config: Arc::default(),
        runtime_handler: Arc::default(),
    }
}

/// The ask of another pod, in the namespace.
fn ask_in(namespace: &str, pod: &str, image: &str) -> EnsureImage {
    let mut ask = ask(image, &[]);
    ask.pod.namespace = Arc::from(namespace);
    ask.pod.uid = PodUid::new(pod);
    ask
}

fn publish(stage: &Stage<'_>, image: &str, takes: Duration) {
    stage.fakes.runtime.publish(image, RegistryImage { takes, ..RegistryImage::default() });
}

fn asked(actor: &Supervised<ImageManager>, ask: EnsureImage) -> tokio::task::JoinHandle<Answer> {
    tokio::spawn(stage::ask(actor, ask, 600 * SECOND))
}

fn pulls(stage: &Stage<'_>) -> u64 {
    stage.fakes.runtime.counts().get(&Rpc::PullImage).copied().unwrap_or(0)
}

#[test]
fn an_image_that_is_there_is_given_and_one_that_is_not_is_pulled_once_for_all_askers() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        asked(&actor, ask(IMAGE, &[])).await.unwrap().unwrap().unwrap();
        assert_eq!((pulls(stage), near.reasons()), (0, vec!["Pulled".to_owned()]));
        near.events.take();
        let takes = 5 * SECOND;
        stage.fakes.runtime.publish(ABSENT, RegistryImage { takes, ..RegistryImage::default() });
        let askers = [asked(&actor, ask(ABSENT, &[])), asked(&actor, ask(ABSENT, &[]))];
        for asker in askers {
            asker.await.unwrap().unwrap().unwrap();
        }
        assert_eq!(pulls(stage), 1);
        assert_eq!(near.reasons().iter().filter(|reason| *reason == "Pulled").count(), 2, "each is told");
    });
}

/// What ConfigManager tells of a node with the defaults and so many pulls beside each other.
fn configured(parallel: usize) -> ImagesConfigured {
    let settings = ImageRules {
        pulls_per_second: 5.0,
        burst: 10,
        parallel,
        high_percent: 85,
        low_percent: 80,
        min_age: 120 * SECOND,
        max_age: None,
    };
    ImagesConfigured { settings }
}

#[test]
fn more_pulls_run_beside_each_other_as_soon_as_the_configuration_says_so() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        actor.address().tell(configured(1)).unwrap();
        for image in ["understudy.dev/slow-a:1", "understudy.dev/slow-b:1"] {
            publish(stage, image, 60 * SECOND);
            drop(asked(&actor, ask_in("default", image, image)));
        }
        stage.until("the first pull", || pulls(stage) == 1).await;
        stage.pass(5 * SECOND).await;
        assert_eq!(pulls(stage), 1, "the second one waits");
        actor.address().tell(configured(2)).unwrap();
        stage.until("the second pull", || pulls(stage) == 2).await;
    });
}

#[test]
fn a_new_incarnation_asks_for_the_configuration_that_has_changed_since_the_start() {
    alone(async |stage| {
        let near = Neighbours::new();
        let _actor = near.start(stage);
        stage.pass(SECOND).await;
        assert_eq!(near.configuration.count(), 0, "the first one has that of the start");
        stage.crash::<ImageManager>().await;
        stage.until("ConfigManager to be asked", || near.configuration.count() == 1).await;
    });
}

#[test]
fn a_pull_carries_the_handler_and_pods_of_two_handlers_share_none() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        publish(stage, ABSENT, 5 * SECOND);
        let of = |handler: &str| EnsureImage { runtime_handler: Arc::from(handler), ..ask(ABSENT, &[]) };
        let askers = ["", "other", "other"].map(|handler| asked(&actor, of(handler)));
        for asker in askers {
            asker.await.unwrap().unwrap().unwrap();
        }
        let pulls = stage.fakes.runtime.pulls().into_iter().filter_map(|pull| pull.image);
        let mut handlers: Vec<_> = pulls.map(|image| image.runtime_handler).collect();
        handlers.sort();
        assert_eq!(handlers, ["", "other"]);
    });
}

#[test]
fn a_new_incarnation_joins_the_pull_that_is_under_way() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let takes = 30 * SECOND;
        stage.fakes.runtime.publish(ABSENT, RegistryImage { takes, ..RegistryImage::default() });
        let first = asked(&actor, ask(ABSENT, &[]));
        stage.until("the pull", || pulls(stage) == 1).await;
        stage.crash::<ImageManager>().await;
        assert_eq!(first.await.unwrap(), Err(AskError::Lost), "its asker learns that it must ask again");
        asked(&actor, ask(ABSENT, &[])).await.unwrap().unwrap().unwrap();
        assert_eq!(pulls(stage), 1, "the runtime was asked once");
    });
}

#[test]
fn what_an_image_and_its_registry_say_has_bounds() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let long = RegistryImage { username: "u".repeat(1 << 20), ..RegistryImage::default() };
        stage.fakes.runtime.publish(ABSENT, long);
        let present = asked(&actor, ask(ABSENT, &[])).await.unwrap().unwrap().unwrap();
        assert!(present.username.len() < 300, "{}", present.username.len());

        // Each prefix of the name has a credential of its own, and the registry refuses each.
        let parts = ["a"; 80];
        let prefixes = (1..=parts.len()).map(|end| format!("evil.test/{}", parts[..end].join("/")));
        let login = |prefix: &String| serde_json::json!({ "username": prefix, "password": "p" });
        let auths: BTreeMap<String, _> = prefixes.map(|prefix| (prefix.clone(), login(&prefix))).collect();
        let config = serde_json::json!({ "auths": auths }).to_string();
        near.secrets.answer(move |_| {
            let data =
                BTreeMap::from([(".dockerconfigjson".to_owned(), ByteString(config.clone().into_bytes()))]);
            let type_ = Some("kubernetes.io/dockerconfigjson".to_owned());
            Ok(Arc::new(Secret { data: Some(data), type_, ..Secret::default() }))
        });
        let name = format!("evil.test/{}:1", parts.join("/"));
        let why = (CriErrorKind::Other, "denied".to_owned());
        stage.fakes.runtime.publish(&name, RegistryImage { error: Some(why), ..RegistryImage::default() });
        let before = pulls(stage);
        asked(&actor, ask(&name, &["login"])).await.unwrap().unwrap().unwrap_err();
        assert_eq!(pulls(stage) - before, 64);
    });
}

#[test]
fn a_pull_under_way_goes_on_while_its_asker_waits_for_a_place() {
    alone(async |stage| {
        let near = Neighbours::new();
        let mut deps = near.deps(stage);
        deps.settings.limits.parallel = 1;
        let actor = stage.start(deps, ImageManager::new);
        let other = "understudy.dev/other:1";
        publish(stage, ABSENT, 100 * SECOND);
        publish(stage, other, 60 * SECOND);
        let first = asked(&actor, ask(ABSENT, &[]));
        stage.until("the pull", || pulls(stage) == 1).await;
        stage.crash::<ImageManager>().await;
        assert_eq!(first.await.unwrap(), Err(AskError::Lost));
        let before = asked(&actor, ask(other, &[]));
        stage.until("the only place to be taken", || pulls(stage) == 2).await;
        let again = asked(&actor, ask(ABSENT, &[]));
        before.await.unwrap().unwrap().unwrap();
        again.await.unwrap().unwrap().unwrap();
        assert_eq!(pulls(stage), 2, "the runtime was asked once for each");
    });
}

#[test]
fn the_secrets_of_a_pod_are_read_once_for_all_its_containers() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.secrets.answer(|_| Ok(Arc::default()));
        let actor = near.start(stage);
        let askers: Vec<_> = (0..300).map(|_| asked(&actor, ask(IMAGE, &["key", "other"]))).collect();
        for asker in askers {
            asker.await.unwrap().unwrap().unwrap();
        }
        let reads = near.secrets.take().len();
        assert!(reads < 20, "asks that come meanwhile share a read: {reads}");
        asked(&actor, ask(IMAGE, &["key", "third"])).await.unwrap().unwrap().unwrap();
        assert_eq!(near.secrets.heard().len(), 2, "they are read anew for an ask that comes later");
    });
}

#[test]
fn secrets_that_object_cache_does_not_give_are_told_of_and_done_without() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.fakes.runtime.publish(ABSENT, RegistryImage::default());
        near.secrets.refuse();
        asked(&actor, ask(ABSENT, &["key"])).await.unwrap().unwrap().unwrap();
        assert!(!near.secrets.refused().is_empty(), "it was asked for");
        assert!(
            near.reasons().contains(&"FailedToRetrieveImagePullSecret".to_owned()),
            "{:?}",
            near.reasons()
        );
    });
}

#[test]
fn a_registry_that_fails_is_left_alone_for_a_while() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let error = Some((CriErrorKind::Other, "manifest unknown".to_owned()));
        stage.fakes.runtime.publish(ABSENT, RegistryImage { error, ..RegistryImage::default() });
        let failed = asked(&actor, ask(ABSENT, &[])).await.unwrap().unwrap().unwrap_err();
        assert_eq!(failed.reason, "ErrImagePull");
        let again = asked(&actor, ask(ABSENT, &[])).await.unwrap().unwrap().unwrap_err();
        assert_eq!((again.reason.as_str(), pulls(stage)), ("ImagePullBackOff", 1));
        stage.pass(Duration::from_millis(again.retry_after_ms.unwrap())).await;
        stage.fakes.runtime.publish(ABSENT, RegistryImage::default());
        asked(&actor, ask(ABSENT, &[])).await.unwrap().unwrap().unwrap();
        assert_eq!(pulls(stage), 2);
    });
}

#[test]
fn a_runtime_that_is_away_is_said_to_be_the_reason() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.fakes.runtime.set_down(true);
        let failed = asked(&actor, ask(IMAGE, &[])).await.unwrap().unwrap().unwrap_err();
        assert_eq!(
            (failed.reason.as_str(), near.reasons()),
            ("ImageInspectError", vec!["InspectFailed".to_owned()])
        );
        stage.fakes.runtime.set_down(false);
        asked(&actor, ask(IMAGE, &[])).await.unwrap().unwrap().unwrap();
    });
}

#[test]
fn an_empty_bucket_fails_the_pod_that_emptied_it_and_others_take_turns_at_tokens() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let asks = |namespace: &str, pods: u32, images: u32| -> Vec<_> {
            let ask_one = |number: u32| {
                let image = format!("understudy.dev/{namespace}:{number}");
                publish(stage, &image, Duration::ZERO);
                asked(&actor, ask_in(namespace, &format!("{namespace}{}", number % pods), &image))
            };
            (0..images).map(ask_one).collect()
        };
        let mut refused = 0;
        for asker in asks("greedy", 1, 30) {
            if let Err(error) = asker.await.unwrap().unwrap() {
                let said = (error.reason.as_str(), error.message.as_str());
                assert_eq!(said, ("ErrImagePull", "pull QPS exceeded"));
                refused += 1;
            }
        }
        assert_eq!(refused, 20, "it fails as on a node of its own");
        let began = tokio::time::Instant::now();
        let crowd = asks("crowd", 30, 30);
        for quiet in asks("quiet", 1, 2) {
            quiet.await.unwrap().unwrap().unwrap();
        }
        assert!(began.elapsed() < SECOND, "it has its turns soon: {:?}", began.elapsed());
        for asker in crowd {
            asker.await.unwrap().unwrap().unwrap();
        }
        let took = began.elapsed();
        assert!((6 * SECOND..7 * SECOND).contains(&took), "the rate holds: {took:?}");
    });
}

#[test]
fn a_namespace_with_all_places_makes_room_for_one_that_waits() {
    alone(async |stage| {
        let near = Neighbours::new();
        let mut deps = near.deps(stage);
        deps.settings.limits.parallel = 3;
        let actor = stage.start(deps, ImageManager::new);
        let mut slow = Vec::new();
        for number in 0..3 {
            let image = format!("understudy.dev/slow:{number}");
            publish(stage, &image, 300 * SECOND);
            slow.push(asked(&actor, ask_in("crowd", &format!("crowd{number}"), &image)));
        }
        stage.until("all places are taken", || pulls(stage) == 3).await;
        publish(stage, ABSENT, SECOND);
        let began = tokio::time::Instant::now();
        asked(&actor, ask_in("quiet", "quiet", ABSENT)).await.unwrap().unwrap().unwrap();
        assert!(began.elapsed() < 70 * SECOND, "{:?}", began.elapsed());
        for asker in slow {
            asker.await.unwrap().unwrap().unwrap();
        }
        assert_eq!(pulls(stage), 5, "one gave way and was pulled again");
    });
}

#[test]
fn a_panic_at_the_end_of_a_pull_counts_against_a_pod_that_waits_for_it() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        publish(stage, ABSENT, 5 * SECOND);
        // The pull is the first asker's, and each is answered on its own behalf.
        for (poisoned, incarnation) in [("first", 2), ("second", 3)] {
            let image = format!("understudy.dev/absent:{incarnation}");
            publish(stage, &image, 5 * SECOND);
            let askers = ["first", "second"].map(|pod| asked(&actor, ask_in("default", pod, &image)));
            stage.pass(SECOND).await;
            let pod = PodUid::new(poisoned);
            stage.inject::<ImageManager>(Fault::PoisonPod { pod: pod.clone(), times: 1 });
            stage.until_incarnation::<ImageManager>(incarnation).await;
            let crash = stage.actor::<ImageManager>().await.last_crash.unwrap();
            assert_eq!((crash.handling.as_str(), crash.pod), ("pull image", Some(pod)));
            for asker in askers {
                let _ = asker.await;
            }
        }
        asked(&actor, ask_in("default", "third", ABSENT)).await.unwrap().unwrap().unwrap();
    });
}
