//! Images with several names: which pods may use them, and how many names there may be.

use bridge_cri::fake::Fault as CallFault;

use super::*;

const OPEN: &str = "understudy.dev/tool:1";
const PRIVATE: &str = "registry.test/mine:1";
const RECORDS: &str = "/var/lib/kubelet/image_manager/pulled";
const INTENTS: &str = "/var/lib/kubelet/image_manager/pulling";

/// An image that has the same content by whatever name, with the credentials of `registry.test`.
fn private() -> RegistryImage {
    let credentials = Some(("me".to_owned(), "hush".to_owned()));
    RegistryImage { credentials, content: Some("content".to_owned()), ..RegistryImage::default() }
}

/// Every secret is one for `registry.test`.
fn give_secrets(near: &Neighbours) {
    let login = serde_json::json!({ "username": "me", "password": "hush" });
    let config = serde_json::json!({ "auths": { "registry.test": login } }).to_string();
    near.secrets.answer(move |_| {
        let content = ByteString(config.clone().into_bytes());
        let data = BTreeMap::from([(".dockerconfigjson".to_owned(), content)]);
        let type_ = Some("kubernetes.io/dockerconfigjson".to_owned());
        Ok(Arc::new(Secret { data: Some(data), type_, ..Secret::default() }))
    });
}

fn with_secret(mut ask: EnsureImage) -> EnsureImage {
    ask.pull_secrets = Arc::from([Arc::from("key")]);
    ask
}

async fn answer(actor: &Supervised<ImageManager>, ask: EnsureImage) -> Result<(), ImageError> {
    asked(actor, ask).await.unwrap().unwrap().map(|_| ())
}

fn files(stage: &Stage<'_>, directory: &str) -> usize {
    stage.fakes.disk.files_below(directory).len()
}

#[test]
fn a_preloaded_image_stays_open_when_a_pod_pulls_it_with_a_secret() {
    alone(async |stage| {
        let near = Neighbours::new();
        give_secrets(&near);
        stage.fakes.runtime.add_image(OPEN, private());
        stage.fakes.runtime.publish(OPEN, private());
        stage.fakes.runtime.publish(PRIVATE, private());
        let actor = near.start(stage);
        answer(&actor, with_secret(ask_in("tenant", "a", PRIVATE))).await.unwrap();
        assert_eq!((pulls(stage), files(stage, RECORDS)), (1, 0), "by another name");
        let mut again = ask_in("tenant", "b", OPEN);
        again.policy = PullPolicy::Always;
        answer(&actor, again).await.unwrap_err();
        answer(&actor, ask_in("other", "c", OPEN)).await.unwrap();
        assert_eq!(files(stage, RECORDS), 0);

        // A pull whose answer is lost leaves it open, too.
        stage.fakes.runtime.publish("registry.test/lost:1", private());
        stage.fakes.runtime.fault(Rpc::PullImage, 1, CallFault::BrokenConnection);
        answer(&actor, with_secret(ask_in("tenant", "d", "registry.test/lost:1"))).await.unwrap_err();
        assert_eq!(files(stage, INTENTS), 1);
        answer(&actor, ask_in("other", "e", OPEN)).await.unwrap();
        stage.crash::<ImageManager>().await;
        answer(&actor, ask_in("other", "g", OPEN)).await.unwrap();
        stage.pass(310 * SECOND).await;
        answer(&actor, ask_in("other", "f", OPEN)).await.unwrap();
        assert_eq!((files(stage, INTENTS), files(stage, RECORDS)), (0, 0));
    });
}

#[test]
fn an_image_that_a_secret_has_opened_stays_closed_to_others_by_all_its_names() {
    alone(async |stage| {
        let near = Neighbours::new();
        give_secrets(&near);
        let second = "registry.test/mine:2";
        let own = "public.test/same:1";
        stage.fakes.runtime.publish(PRIVATE, private());
        stage.fakes.runtime.publish(second, private());
        stage.fakes.runtime.publish(own, RegistryImage { credentials: None, ..private() });
        let actor = near.start(stage);
        answer(&actor, with_secret(ask_in("tenant", "a", PRIVATE))).await.unwrap();
        answer(&actor, with_secret(ask_in("tenant", "b", second))).await.unwrap();
        assert_eq!((pulls(stage), files(stage, RECORDS)), (2, 1));
        answer(&actor, ask_in("other", "c", own)).await.unwrap();
        for incarnation in 2..4 {
            for name in [PRIVATE, second] {
                let pod = format!("{name}{incarnation}");
                let refused = answer(&actor, ask_in("other", &pod, name)).await.unwrap_err();
                assert_eq!(refused.reason, "ErrImagePull", "{name}");
            }
            stage.crash::<ImageManager>().await;
        }
        answer(&actor, with_secret(ask_in("tenant", "d", PRIVATE))).await.unwrap();
    });
}

#[test]
fn a_preloaded_image_stays_open_by_its_name_where_no_answer_holds_the_list() {
    alone(async |stage| {
        let near = Neighbours::new();
        give_secrets(&near);
        let too_large = CallFault::Error(CriErrorKind::ResourceExhausted, "message is too large".to_owned());
        stage.fakes.runtime.fault(Rpc::ListImages, 1000, too_large);
        let fresh = "registry.test/fresh:1";
        let other_content = RegistryImage { content: Some("other".to_owned()), ..private() };
        stage.fakes.runtime.publish(fresh, other_content);
        stage.fakes.runtime.add_image(PRIVATE, private());
        stage.fakes.runtime.publish(PRIVATE, private());
        let actor = near.start(stage);
        for (image, opened) in [(PRIVATE, true), (fresh, false)] {
            for pod in ["a", "b"] {
                let mut always = with_secret(ask_in("tenant", &format!("{pod} of {image}"), image));
                always.policy = PullPolicy::Always;
                answer(&actor, always).await.unwrap();
                let other = answer(&actor, ask_in("other", &format!("{pod} beside {image}"), image)).await;
                assert_eq!(other.is_ok(), opened, "{pod} {image} {other:?}");
            }
        }
        assert_eq!((pulls(stage), files(stage, RECORDS)), (4 + 2, 1), "two pulls were refused");
    });
}

#[test]
fn an_image_that_is_deleted_while_a_pull_brings_it_again_is_no_longer_open() {
    alone(async |stage| {
        let near = Neighbours::new();
        give_secrets(&near);
        stage.fakes.runtime.add_image(OPEN, private());
        stage.fakes.runtime.publish(PRIVATE, RegistryImage { takes: 60 * SECOND, ..private() });
        let actor = near.start(stage);
        stage.pass(130 * SECOND).await;
        let pulling = asked(&actor, with_secret(ask_in("tenant", "a", PRIVATE)));
        stage.until("the pull", || pulls(stage) == 1).await;
        assert_eq!(stage::ask(&actor, DeleteUnusedImages, 60 * SECOND).await, Ok(2), "by its other name");
        pulling.await.unwrap().unwrap().unwrap();
        assert_eq!(files(stage, RECORDS), 1);
        answer(&actor, ask_in("other", "b", PRIVATE)).await.unwrap_err();
    });
}

#[test]
fn pulls_that_begin_together_share_a_list_and_one_that_begins_after_a_pull_has_a_new_one() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.pass(SECOND).await;
        let lists = || stage.fakes.runtime.counts().get(&Rpc::ListImages).copied().unwrap_or(0);
        let before = lists();
        for number in 0..3 {
            let image = format!("understudy.dev/slow:{number}");
            publish(stage, &image, 60 * SECOND);
            drop(asked(&actor, ask_in("crowd", &format!("crowd{number}"), &image)));
        }
        stage.until("the pulls", || pulls(stage) == 3).await;
        assert_eq!(lists() - before, 1);
        for (number, listed) in [(1, 1), (2, 2)] {
            let image = format!("understudy.dev/quick:{number}");
            publish(stage, &image, Duration::ZERO);
            answer(&actor, ask_in("quiet", &format!("quiet{number}"), &image)).await.unwrap();
            assert_eq!(lists() - before, listed, "{image}");
        }
        // A pull that has failed brings no image.
        for (number, listed, later) in [(1, 3, SECOND), (2, 3, 5 * SECOND), (3, 4, SECOND)] {
            let absent = format!("understudy.dev/missing:{number}");
            answer(&actor, ask_in("quiet", &format!("missing{number}"), &absent)).await.unwrap_err();
            assert_eq!(lists() - before, listed, "{absent}");
            stage.pass(later).await;
        }
    });
}

#[test]
fn an_image_that_went_and_was_pulled_again_is_no_longer_open() {
    alone(async |stage| {
        let near = Neighbours::new();
        give_secrets(&near);
        stage.fakes.runtime.add_image(OPEN, private());
        stage.fakes.runtime.publish(PRIVATE, private());
        let actor = near.start(stage);
        stage.pass(130 * SECOND).await;
        assert_eq!(stage::ask(&actor, DeleteUnusedImages, 60 * SECOND).await, Ok(2));
        answer(&actor, with_secret(ask_in("tenant", "a", PRIVATE))).await.unwrap();
        assert_eq!(files(stage, RECORDS), 1);
        answer(&actor, ask_in("other", "b", PRIVATE)).await.unwrap_err();
    });
}

#[test]
fn a_namespace_that_fills_the_node_with_names_is_refused_new_ones_and_others_are_not() {
    alone(async |stage| {
        let near = Neighbours::new();
        for number in 0..10_000 {
            let content = Some(format!("content {}", number % 10));
            let image = RegistryImage { content, ..RegistryImage::default() };
            stage.fakes.runtime.add_image(&format!("evil.test/app:{number}"), image);
        }
        let actor = near.start(stage);
        let mut asks = Vec::new();
        for number in 0..100 {
            let image = format!("evil.test/more:{number}");
            publish(stage, &image, Duration::ZERO);
            asks.push(asked(&actor, ask_in("crowd", &format!("crowd{number}"), &image)));
        }
        for ask in asks {
            ask.await.unwrap().unwrap().unwrap();
        }
        publish(stage, ABSENT, Duration::ZERO);
        let refused = answer(&actor, ask_in("crowd", "crowd", ABSENT)).await.unwrap_err();
        assert_eq!(refused.reason, "ErrImagePull");
        assert!(refused.message.contains("names") && refused.message.contains("\"crowd\""), "{refused:?}");
        let mut again = ask_in("crowd", "again", "evil.test/more:1");
        again.policy = PullPolicy::Always;
        answer(&actor, again).await.unwrap();
        answer(&actor, ask_in("quiet", "quiet", ABSENT)).await.unwrap();
        answer(&actor, ask_in("crowd", "later", ABSENT)).await.unwrap();
    });
}

#[test]
fn a_record_of_an_image_with_an_endless_name_is_passed_over_and_hides_no_other() {
    alone(async |stage| {
        let near = Neighbours::new();
        let (deps, registry) = (near.deps(stage), Registry::new());
        deps.metrics.register(&registry).unwrap();
        stage.fakes.disk.mkdir(RECORDS, 0o700);
        for (file, image_ref) in [("sha256-00", "x".repeat(5000)), ("sha256-01", "sha256:1".to_owned())] {
            let record = serde_json::json!({
                "kind": "ImagePulledRecord", "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "lastUpdatedTime": null, "imageRef": image_ref
            });
            stage.fakes.disk.write(format!("{RECORDS}/{file}"), record.to_string(), 0o600);
        }
        let _actor = stage.start(deps, ImageManager::new);
        stage.pass(SECOND).await;
        let page = String::from_utf8(bridge_metrics::page(registry.gather(), "", "").body).unwrap();
        assert!(page.contains("\nkubelet_imagemanager_ondisk_pulledrecords 1\n"), "{page}");
    });
}

#[test]
fn an_image_that_the_policy_opens_to_all_counts_as_checked() {
    for (verification, counted) in [(Verification::NeverVerify, true), (Verification::Off, false)] {
        alone(async |stage| {
            let near = Neighbours::new();
            let (mut deps, registry) = (near.deps(stage), Registry::new());
            deps.metrics.register(&registry).unwrap();
            deps.settings.verification = verification.clone();
            let actor = stage.start(deps, ImageManager::new);
            answer(&actor, ask(IMAGE, &[])).await.unwrap();
            let page = String::from_utf8(bridge_metrics::page(registry.gather(), "", "").body).unwrap();
            let line =
                "kubelet_imagemanager_image_mustpull_checks_total{result=\"credentialPolicyAllowed\"} 1\n";
            assert_eq!(page.contains(line), counted, "{verification:?}: {page}");
        });
    }
}
