//! Credentials of the node's providers: when they are asked, for which pods their answers hold, and for which the image is then.

use std::path::PathBuf;

use bridge_node::host::{PluginError, PluginRun};
use image_manager::{CredentialProvider, CredentialProviders, TokenAttributes, TokenCache};
use k8s_openapi::api::core::v1::ServiceAccount;
use messages::object_cache::{ObjectError, Token};
use serde_json::{Value, json};

use super::*;

const PRIVATE: &str = "registry.test:5000/team/app:1";
const OTHER: &str = "registry.test:5000/team/other:1";
const API: &str = "credentialprovider.kubelet.k8s.io/v1";

fn provider(name: &str, tokens: Option<TokenCache>) -> CredentialProvider {
    let tokens = tokens.map(|cache| TokenAttributes {
        audience: Arc::from("registry"),
        cache,
        required: true,
        required_keys: vec!["need".to_owned()],
        optional_keys: Vec::new(),
    });
    CredentialProvider {
        name: name.to_owned(),
        program: PathBuf::from(format!("/plugins/{name}")),
        match_images: vec!["registry.test:5000".to_owned()],
        default_cache: 60 * SECOND,
        api_version: API.to_owned(),
        args: Arc::default(),
        env: Arc::default(),
        tokens,
    }
}

fn given(kind: &str, password: &str) -> Vec<u8> {
    let auth = json!({ "registry.test:5000": { "username": "me", "password": password } });
    let answer = json!({
        "kind": "CredentialProviderResponse", "apiVersion": API, "cacheKeyType": kind, "auth": auth
    });
    answer.to_string().into_bytes()
}

/// An answer that holds for the ask alone.
fn given_once(password: &str) -> Vec<u8> {
    let mut answer: Value = serde_json::from_slice(&given("Image", password)).unwrap();
    answer["cacheDuration"] = json!("0s");
    answer.to_string().into_bytes()
}

fn asked_of(run: &PluginRun) -> Value {
    serde_json::from_slice(run.input.expose()).unwrap()
}

impl Neighbours {
    fn start_with(&self, stage: &Stage<'_>, providers: Vec<CredentialProvider>) -> Supervised<ImageManager> {
        let mut deps = self.deps(stage);
        deps.settings.providers = CredentialProviders::new(&[], providers);
        for image in [PRIVATE, OTHER] {
            let credentials = Some(("me".to_owned(), "hush".to_owned()));
            stage.fakes.runtime.publish(image, RegistryImage { credentials, ..RegistryImage::default() });
        }
        stage.start(deps, ImageManager::new)
    }

    /// A pull of this image takes so long, and ends with this error if there is one.
    fn publish_private(&self, stage: &Stage<'_>, image: &str, takes: Duration, error: Option<&str>) {
        let credentials = Some(("me".to_owned(), "hush".to_owned()));
        let error = error.map(|why| (CriErrorKind::Other, why.to_owned()));
        let image_there = RegistryImage { credentials, takes, error, ..RegistryImage::default() };
        stage.fakes.runtime.publish(image, image_there);
    }

    /// No service account can be read.
    fn has_no_accounts(&self) {
        let away = || ObjectError { not_found: false, message: "the server is away".to_owned() };
        self.accounts.answer(move |_| Err(away()));
    }

    /// Asks and gives up, again and again, until the pull has begun and for a while after that.
    async fn ask_in_vain(&self, stage: &Stage<'_>, actor: &Supervised<ImageManager>, ask: &EnsureImage) {
        for _ in 0..5 {
            let gives_up = asked(actor, ask.clone());
            stage.pass(2 * SECOND).await;
            gives_up.abort();
            stage.pass(Duration::from_millis(10)).await;
            if pulls(stage) > 0 {
                // What the pull was given is what counts.
                self.has_no_accounts();
            }
        }
        assert_eq!((self.plugins.runs().len(), pulls(stage)), (1, 1));
    }

    /// Every service account exists, with the annotation that is needed, and has a token.
    fn has_accounts(&self) {
        self.accounts.answer(|ask| {
            let mut account = ServiceAccount::default();
            account.metadata.uid = Some(format!("uid of {}", ask.name));
            account.metadata.annotations = Some([("need".to_owned(), "this".to_owned())].into());
            Ok(Arc::new(account))
        });
        self.tokens.answer(|ask| {
            assert_eq!(
                (&*ask.audience, &*ask.account_uid),
                ("registry", &*format!("uid of {}", ask.service_account))
            );
            let text = Arc::from(format!("token of {}", ask.pod.uid));
            Ok(Token { text, expires: jiff::Timestamp::UNIX_EPOCH })
        });
    }
}

/// The ask of a pod that runs as this service account.
fn ask_as(account: &str, pod: &str, image: &str, policy: PullPolicy) -> EnsureImage {
    let mut ask = ask_in("team", pod, image);
    (ask.service_account, ask.policy) = (Arc::from(account), policy);
    ask
}

#[test]
fn a_provider_opens_an_image_and_is_asked_again_when_its_answer_ends() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.plugins.install("/plugins/one", SECOND, |_| Ok(given("Registry", "hush")));
        let actor = near.start_with(stage, vec![provider("one", None)]);
        asked(&actor, ask(PRIVATE, &[])).await.unwrap().unwrap().unwrap();
        let request = json!({
            "kind": "CredentialProviderRequest", "apiVersion": API, "image": "registry.test:5000/team/app"
        });
        assert_eq!(near.plugins.runs().iter().map(asked_of).collect::<Vec<_>>(), [request]);
        asked(&actor, ask(OTHER, &[])).await.unwrap().unwrap().unwrap();
        asked(&actor, ask(PRIVATE, &[])).await.unwrap().unwrap().unwrap();
        assert_eq!(near.plugins.runs().len(), 1, "its answer holds for the registry");
        stage.crash::<ImageManager>().await;
        asked(&actor, EnsureImage { policy: PullPolicy::Always, ..ask(PRIVATE, &[]) })
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(near.plugins.runs().len(), 1, "also for the next incarnation");
        stage.pass(61 * SECOND).await;
        asked(&actor, EnsureImage { policy: PullPolicy::Always, ..ask(PRIVATE, &[]) })
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(near.plugins.runs().len(), 2);
        asked(&actor, ask(IMAGE, &[])).await.unwrap().unwrap().unwrap();
        assert_eq!(near.plugins.runs().len(), 2, "it is for one registry");
    });
}

#[test]
fn several_providers_are_asked_and_one_that_fails_is_passed_over() {
    alone(async |stage| {
        let near = Neighbours::new();
        let failed = || PluginError::Failed { status: "exit status 1".to_owned(), said: 4 };
        near.plugins.install("/plugins/broken", SECOND, move |_| Err(failed()));
        near.plugins.install("/plugins/hangs", 600 * SECOND, |_| Ok(given("Image", "hush")));
        near.plugins.install("/plugins/nonsense", SECOND, |_| Ok(b"hush".to_vec()));
        near.plugins.install("/plugins/wrong", SECOND, |_| Ok(given("Image", "guessed")));
        near.plugins.install("/plugins/right", 2 * SECOND, |_| Ok(given("Image", "hush")));
        let names = ["broken", "hangs", "nonsense", "wrong", "right"];
        let providers = names.map(|name| provider(name, None)).into();
        let actor = near.start_with(stage, providers);
        asked(&actor, ask(PRIVATE, &[])).await.unwrap().unwrap().unwrap();
        assert_eq!((near.plugins.runs().len(), pulls(stage)), (5, 2), "the wrong one is tried first");
        assert!(!format!("{:?}", near.events.heard()).contains("hush"));
    });
}

#[test]
fn a_run_is_shared_by_all_of_a_namespace_that_wait_and_joined_after_a_crash() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.plugins.install("/plugins/one", 20 * SECOND, |_| Ok(given("Image", "hush")));
        let actor = near.start_with(stage, vec![provider("one", None)]);
        let first = asked(&actor, ask(PRIVATE, &[]));
        stage.until("the run", || near.plugins.runs().len() == 1).await;
        stage.crash::<ImageManager>().await;
        assert_eq!(first.await.unwrap(), Err(AskError::Lost));
        let askers = ["a", "b"].map(|pod| asked(&actor, ask_in("default", pod, PRIVATE)));
        for asker in askers {
            asker.await.unwrap().unwrap().unwrap();
        }
        assert_eq!(near.plugins.runs().len(), 1);
    });
}

#[test]
fn a_pod_that_waits_out_a_failure_asks_no_provider() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.plugins.install("/plugins/one", SECOND, |_| Ok(given_once("guessed")));
        let actor = near.start_with(stage, vec![provider("one", None)]);
        for reason in ["ErrImagePull", "ImagePullBackOff", "ImagePullBackOff"] {
            let refused = asked(&actor, ask(PRIVATE, &[])).await.unwrap().unwrap().unwrap_err();
            assert_eq!(refused.reason, reason);
        }
        assert_eq!(near.plugins.runs().len(), 1);
    });
}

#[test]
fn an_image_that_a_service_account_opened_is_for_its_pods_alone() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.has_accounts();
        near.plugins.install("/plugins/one", SECOND, |_| Ok(given("Image", "hush")));
        let actor = near.start_with(stage, vec![provider("one", Some(TokenCache::ServiceAccount))]);
        let answer = async |ask: EnsureImage| asked(&actor, ask).await.unwrap().unwrap();
        answer(ask_as("robot", "a", PRIVATE, PullPolicy::IfNotPresent)).await.unwrap();
        let request = asked_of(&near.plugins.runs()[0]);
        assert_eq!(request["serviceAccountToken"], "token of a");
        assert_eq!(request["serviceAccountAnnotations"], json!({ "need": "this" }));
        let before = pulls(stage);
        answer(ask_as("robot", "b", PRIVATE, PullPolicy::Never)).await.unwrap();
        assert_eq!((near.plugins.runs().len(), pulls(stage)), (1, before), "the answer holds for its pods");
        for account in ["stranger", ""] {
            let refused = answer(ask_as(account, "c", PRIVATE, PullPolicy::Never)).await.unwrap_err();
            assert_eq!(refused.reason, "ErrImageNeverPull", "{account}");
        }
        assert_eq!(near.plugins.runs().len(), 2, "a pod without an account gets nothing");
        let refused = answer(ask_as("", "d", PRIVATE, PullPolicy::IfNotPresent)).await.unwrap_err();
        assert_eq!(refused.reason, "ErrImagePull");
    });
}

#[test]
fn with_the_cache_of_tokens_each_pod_asks_for_itself() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.has_accounts();
        near.plugins.install("/plugins/one", SECOND, |_| Ok(given("Global", "hush")));
        let actor = near.start_with(stage, vec![provider("one", Some(TokenCache::Token))]);
        for (pod, runs) in [("a", 1), ("a", 1), ("b", 2)] {
            let ask = ask_as("robot", pod, PRIVATE, PullPolicy::Always);
            asked(&actor, ask).await.unwrap().unwrap().unwrap();
            assert_eq!(near.plugins.runs().len(), runs, "{pod}");
        }
    });
}

#[test]
fn a_service_account_that_cannot_be_had_leaves_its_provider_out() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.has_accounts();
        near.plugins.install("/plugins/one", SECOND, |_| Ok(given("Image", "hush")));
        let actor = near.start_with(stage, vec![provider("one", Some(TokenCache::Token))]);
        near.accounts.answer(|_| Ok(Arc::default()));
        let answer = async |pod: &str| {
            let ask = ask_as("robot", pod, PRIVATE, PullPolicy::IfNotPresent);
            asked(&actor, ask).await.unwrap().unwrap()
        };
        assert_eq!(answer("a").await.unwrap_err().reason, "ErrImagePull", "an annotation is missing");
        let gone = || ObjectError { not_found: true, message: "not found".to_owned() };
        near.accounts.answer(move |_| Err(gone()));
        assert_eq!(answer("b").await.unwrap_err().reason, "ErrImagePull");
        assert_eq!(near.plugins.runs().len(), 0);
        near.has_accounts();
        answer("c").await.unwrap();
    });
}

#[test]
fn a_pod_that_asks_again_during_its_pull_joins_it_with_what_was_given_before() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.has_accounts();
        near.plugins.install("/plugins/one", SECOND, |_| Ok(given_once("hush")));
        let actor = near.start_with(stage, vec![provider("one", Some(TokenCache::Token))]);
        near.publish_private(stage, PRIVATE, 60 * SECOND, None);
        let ask = ask_as("robot", "a", PRIVATE, PullPolicy::IfNotPresent);
        near.ask_in_vain(stage, &actor, &ask).await;
        asked(&actor, ask).await.unwrap().unwrap().unwrap();
        assert_eq!((near.plugins.runs().len(), pulls(stage)), (1, 1));
        assert_eq!(near.reasons(), ["Pulling", "Pulled"]);
    });
}

#[test]
fn a_pull_that_fails_counts_once_for_a_pod_that_has_asked_again_during_it() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.has_accounts();
        near.plugins.install("/plugins/one", SECOND, |_| Ok(given_once("hush")));
        let actor = near.start_with(stage, vec![provider("one", Some(TokenCache::Token))]);
        near.publish_private(stage, PRIVATE, 60 * SECOND, Some("denied"));
        let ask = ask_as("robot", "a", PRIVATE, PullPolicy::IfNotPresent);
        near.ask_in_vain(stage, &actor, &ask).await;
        let failed = asked(&actor, ask.clone()).await.unwrap().unwrap().unwrap_err();
        assert_eq!(
            (failed.reason.as_str(), near.reasons()),
            ("ErrImagePull", vec!["Pulling".to_owned(), "Failed".to_owned()])
        );
        let waits = asked(&actor, ask).await.unwrap().unwrap().unwrap_err();
        let millis = waits.retry_after_ms.unwrap();
        assert_eq!(waits.reason, "ImagePullBackOff");
        assert!((9_000..=10_000).contains(&millis), "the first wait is one of ten seconds: {millis} ms");
        assert_eq!((near.plugins.runs().len(), pulls(stage)), (1, 1));
    });
}

#[test]
fn a_provider_that_is_asked_while_the_pod_gives_up_and_asks_again_runs_once() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.plugins.install("/plugins/one", 20 * SECOND, |_| Ok(given_once("hush")));
        let actor = near.start_with(stage, vec![provider("one", None)]);
        for _ in 0..5 {
            let gives_up = asked(&actor, ask(PRIVATE, &[]));
            stage.pass(SECOND).await;
            gives_up.abort();
        }
        asked(&actor, ask(PRIVATE, &[])).await.unwrap().unwrap().unwrap();
        assert_eq!((near.plugins.runs().len(), pulls(stage)), (1, 1));
        assert_eq!(near.reasons(), ["Pulling", "Pulled"]);
    });
}

/// Askers of so many images of one namespace, each of a repository of its own, that need the provider.
fn crowd(
    near: &Neighbours,
    stage: &Stage<'_>,
    actor: &Supervised<ImageManager>,
    count: usize,
) -> Vec<tokio::task::JoinHandle<Answer>> {
    let one = |number: usize| {
        let image = format!("registry.test:5000/team/app{number}:1");
        near.publish_private(stage, &image, Duration::ZERO, None);
        asked(actor, ask_in("team", &format!("pod{number}"), &image))
    };
    (0..count).map(one).collect()
}

#[test]
fn an_answer_for_a_registry_serves_the_asks_that_wait_for_their_turn() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.plugins.install("/plugins/one", 50 * SECOND, |_| Ok(given("Registry", "hush")));
        let actor = near.start_with(stage, vec![provider("one", None)]);
        let began = tokio::time::Instant::now();
        for asker in crowd(&near, stage, &actor, 10) {
            asker.await.unwrap().unwrap().unwrap();
        }
        assert_eq!(near.plugins.runs().len(), 4, "as many as a namespace runs at once");
        assert!(began.elapsed() < 60 * SECOND, "{:?}", began.elapsed());
    });
}

#[test]
fn an_ask_for_an_image_that_a_crowd_of_another_namespace_waits_for_has_a_turn_of_its_own() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.plugins.install("/plugins/one", 50 * SECOND, |_| Ok(given("Image", "hush")));
        let actor = near.start_with(stage, vec![provider("one", None)]);
        let askers = crowd(&near, stage, &actor, 9);
        stage.until("the runs of the crowd", || near.plugins.runs().len() == 4).await;
        let began = tokio::time::Instant::now();
        let last = "registry.test:5000/team/app8:1";
        asked(&actor, ask_in("quiet", "quiet", last)).await.unwrap().unwrap().unwrap();
        assert!(began.elapsed() < 60 * SECOND, "{:?}", began.elapsed());
        for asker in askers {
            asker.await.unwrap().unwrap().unwrap();
        }
        assert_eq!(near.plugins.runs().len(), 9, "its answer serves the crowd, too");
    });
}

#[test]
fn an_image_whose_provider_had_no_turn_is_not_pulled_without_credentials() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.plugins.install("/plugins/one", 58 * SECOND, |_| Ok(given("Image", "hush")));
        let actor = near.start_with(stage, vec![provider("one", None)]);
        let mut refused = 0;
        for asker in crowd(&near, stage, &actor, 20) {
            if let Err(error) = asker.await.unwrap().unwrap() {
                assert_eq!(error.reason, "ErrImagePull");
                let why = "credential provider \"one\" could not be asked: plugin /plugins/one: no turn within 180 s";
                assert!(error.message.starts_with(why), "{}", error.message);
                refused += 1;
            }
        }
        // Four run at once, and four times within three minutes there is a turn.
        assert_eq!((refused, near.plugins.runs().len(), pulls(stage)), (4, 16, 16));
    });
}
