//! Pods that are submitted to the kubelet's server (row 1.8).

use std::sync::atomic::{AtomicBool, Ordering};

use bridge_io::NotRun;
use bridge_io::compute::{Compute, Piece};
use bridge_node::checkpoint::CheckpointStore;
use futures::FutureExt;
use futures::future::BoxFuture;
use messages::pod_sources::{
    SUBMISSION_BYTES_MAX, SubmissionRefused, SubmitPod, SubmittedPod, WhyRefused, WithdrawPod,
};
use pod_sources::{Doubts, PodSecurity, SecurityLevel, StandardVersion, SubmissionPorts};
use serde_json::json;
use stage::ask;

use super::*;

/// Needs this long for each piece of computing; with nothing there, no piece ends.
#[derive(Debug)]
pub(super) struct Slow(pub(super) Option<Duration>);

impl Compute for Slow {
    fn run(&self, _pod: &str, piece: Piece) -> BoxFuture<'static, Result<(), NotRun>> {
        let needs = self.0;
        async move {
            match needs {
                Some(needs) => tokio::time::sleep(needs).await,
                None => std::future::pending().await,
            }
            piece();
            Ok(())
        }
        .boxed()
    }

    fn for_namespace(&self, _namespace: &str) -> Arc<dyn Compute> {
        Arc::new(Self(self.0))
    }
}

/// Panics over each manifest, as a rule does that has not thought of it, while that is set.
#[derive(Clone, Debug, Default)]
struct Panicking(Arc<AtomicBool>);

impl Compute for Panicking {
    fn run(&self, _pod: &str, piece: Piece) -> BoxFuture<'static, Result<(), NotRun>> {
        let panics = self.0.load(Ordering::Relaxed);
        async move {
            assert!(!panics, "a rule");
            piece();
            Ok(())
        }
        .boxed()
    }

    fn for_namespace(&self, _namespace: &str) -> Arc<dyn Compute> {
        Arc::new(self.clone())
    }
}

/// The name under which the manifest of the pod `web` is kept.
const KEPT: &str = "submitted-pods/default_web-node";

fn start(near: &Neighbours, stage: &Stage<'_>) -> Supervised<PodSources> {
    start_with(near, stage, stage.fakes.compute.clone())
}

fn start_with(near: &Neighbours, stage: &Stage<'_>, compute: Arc<dyn Compute>) -> Supervised<PodSources> {
    let ports = SubmissionPorts { kept: stage.fakes.checkpoints.clone(), compute, doubts: Doubts::default() };
    stage.start(PodSourcesDeps { submissions: Some(ports), ..near.deps(stage) }, PodSources::new)
}

async fn submit(actor: &Supervised<PodSources>, manifest: &str) -> Result<SubmittedPod, SubmissionRefused> {
    submit_for(actor, manifest, "jane").await
}

async fn submit_for(
    actor: &Supervised<PodSources>,
    manifest: &str,
    tenant: &str,
) -> Result<SubmittedPod, SubmissionRefused> {
    let submission = SubmitPod { manifest: Arc::from(manifest.as_bytes()), tenant: Arc::from(tenant) };
    ask(actor, submission, 10 * SECOND).await.unwrap()
}

async fn withdraw(actor: &Supervised<PodSources>, name: &str) -> Result<(), SubmissionRefused> {
    let ask_for = WithdrawPod { namespace: Arc::from("default"), name: Arc::from(name) };
    ask(actor, ask_for, 10 * SECOND).await.unwrap()
}

fn why<T: std::fmt::Debug>(answer: Result<T, SubmissionRefused>) -> WhyRefused {
    answer.unwrap_err().why
}

async fn until_read(near: &Neighbours, stage: &Stage<'_>) {
    stage.until("the kept manifests", || near.told(Source::Submission).is_some()).await;
}

async fn names_on_disk(stage: &Stage<'_>) -> Vec<String> {
    stage.fakes.checkpoints.list("submitted-pods/").await.unwrap()
}

#[test]
fn a_submitted_pod_is_complete_is_told_and_is_on_the_disk_before_the_answer() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = start(&near, stage);
        until_read(&near, stage).await;
        assert_eq!(near.told(Source::Submission), Some(0), "none was there");
        let first = submit(&actor, &manifest("web")).await.unwrap();
        assert!(first.is_new);
        assert_eq!(names_on_disk(stage).await, [KEPT]);
        assert_eq!(near.told(Source::Submission), Some(1));
        let metadata = &first.pod.metadata;
        let (name, namespace) = (metadata.name.as_deref(), metadata.namespace.as_deref());
        assert_eq!((name, namespace), (Some("web-node"), Some("default")));
        let annotations = metadata.annotations.as_ref().unwrap();
        assert_eq!(annotations["kubernetes.io/config.source"], "submission");
        assert_eq!(Some(&annotations["kubernetes.io/config.hash"]), metadata.uid.as_ref());
        let spec = first.pod.spec.as_ref().unwrap();
        assert_eq!((spec.node_name.as_deref(), &spec.tolerations), (Some("node"), &None));
        assert_eq!(spec.restart_policy.as_deref(), Some("Always"), "defaults are filled in");
        stage.pass(SECOND).await;
        let saves = stage.fakes.checkpoints.saves();
        let again = submit(&actor, &manifest("web")).await.unwrap();
        assert_eq!((again.is_new, again.pod), (false, first.pod), "the same is there already");
        assert_eq!(stage.fakes.checkpoints.saves(), saves);
        let other = manifest("web").replace("demo:1", "demo:2");
        let refusal = submit(&actor, &other).await.unwrap_err();
        assert_eq!(refusal.why, WhyRefused::Conflict);
        assert!(refusal.message.contains("web-node_default"), "{}", refusal.message);
        assert_eq!(near.events.count(), 0);
    });
}

#[test]
fn submitted_pods_outlive_the_actor_and_the_kubelet() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = start(&near, stage);
        until_read(&near, stage).await;
        let uid = submit(&actor, &manifest("web")).await.unwrap().pod.metadata.uid.clone();
        near.manager.take();
        stage.crash::<PodSources>().await;
        until_read(&near, stage).await;
        let told = near.manager.heard().into_iter().rev().find(|told| told.source == Source::Submission);
        let told = told.unwrap();
        assert_eq!((told.pods.len(), &told.pods[0].pod.metadata.uid), (1, &uid), "the same pod");
        assert!(!submit(&actor, &manifest("web")).await.unwrap().is_new);
        assert_eq!(withdraw(&actor, "web").await, Ok(()));
        assert!(names_on_disk(stage).await.is_empty());
        stage.crash::<PodSources>().await;
        near.manager.take();
        until_read(&near, stage).await;
        assert_eq!(near.told(Source::Submission), Some(0));
    });
}

#[test]
fn a_pod_is_withdrawn_by_either_name_and_comes_back_as_a_new_one() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = start(&near, stage);
        until_read(&near, stage).await;
        assert_eq!(why(withdraw(&actor, "web").await), WhyRefused::NotFound);
        for name in ["web", "web-node"] {
            submit(&actor, &manifest("web")).await.unwrap();
            assert_eq!(withdraw(&actor, name).await, Ok(()), "{name}");
            assert_eq!((near.told(Source::Submission), names_on_disk(stage).await), (Some(0), Vec::new()));
            assert_eq!(why(withdraw(&actor, name).await), WhyRefused::NotFound, "{name}");
        }
        submit(&actor, &manifest("web")).await.unwrap();
        let told = near.manager.last().unwrap();
        assert!(told.source == Source::Submission && told.pods[0].made_anew.is_some(), "{told:?}");
    });
}

#[test]
fn what_is_wrong_is_refused_with_the_field_and_leaves_nothing() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = start(&near, stage);
        until_read(&near, stage).await;
        for (wrong, word) in [
            (manifest("Web_1"), "metadata.name"),
            (
                manifest("web").replace("image: ", "imagePullPolicy: Sometimes\n    image: "),
                "imagePullPolicy",
            ),
            (manifest("web").replace("kind: Pod", "kind: PodList"), "kind"),
            (manifest("web").replace("name: web\nspec", "nome: web\nspec"), "name is needed"),
            (manifest("web").replace("spec:", "spec:\n  serviceAccountName: mine"), "serviceaccounts"),
            ("kind: [".to_owned(), "/pods"),
            (String::new(), "empty"),
        ] {
            let refusal = submit(&actor, &wrong).await.unwrap_err();
            assert_eq!(refusal.why, WhyRefused::Invalid, "{}", refusal.message);
            assert!(refusal.message.contains(word), "{word}: {}", refusal.message);
        }
        stage.until("the other sources", || near.told(Source::Http) == Some(1)).await;
        let large = format!("{}# {}", manifest("web"), "x".repeat(SUBMISSION_BYTES_MAX));
        assert_eq!(why(submit(&actor, &large).await), WhyRefused::TooLarge);
        for name in ["a", "from-url"] {
            let refusal = submit(&actor, &manifest(name)).await.unwrap_err();
            assert_eq!(refusal.why, WhyRefused::Conflict, "another source has it: {}", refusal.message);
        }
        assert_eq!((near.told(Source::Submission), names_on_disk(stage).await), (Some(0), Vec::new()));
        let unknown = manifest("web").replace("spec:", "spec:\n  hostnetwork: true");
        assert!(submit(&actor, &unknown).await.unwrap().is_new, "as in a file");
        let told = near.events.last().unwrap();
        assert_eq!(&*told.reason, "IgnoredFields");
        assert!(told.message.contains("hostnetwork"), "{}", told.message);
    });
}

#[test]
fn a_manifest_over_which_a_check_panics_is_refused_and_ends_nothing_else() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let compute = Arc::new(Panicking::default());
        compute.0.store(true, Ordering::Relaxed);
        stage.fakes.checkpoints.save(KEPT, &json!({"manifest": manifest("web")})).await.unwrap();
        let actor = start_with(&near, stage, compute.clone());
        until_read(&near, stage).await;
        assert_eq!(near.told(Source::Submission), Some(0));
        for _ in 0..10 {
            let refusal = submit(&actor, &manifest("other")).await.unwrap_err();
            assert_eq!(refusal.why, WhyRefused::Invalid);
            assert!(refusal.message.starts_with("/pods: cannot be read: a rule at "), "{}", refusal.message);
        }
        let told = near.events.heard().iter().map(|told| told.message.to_string()).collect::<Vec<_>>();
        assert!(told.iter().any(|told| told.starts_with(KEPT)), "{told:?}");
        compute.0.store(false, Ordering::Relaxed);
        assert!(submit(&actor, &manifest("other")).await.unwrap().is_new);
        assert_eq!(stage.actor::<PodSources>().await.incarnation, 1);
    });
}

#[test]
fn a_uid_that_the_author_has_chosen_makes_no_two_pods_the_same() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = start(&near, stage);
        until_read(&near, stage).await;
        let chosen = |image: &str| {
            manifest("web")
                .replace("name: web\nspec", "name: web\n  uid: mine\nspec")
                .replace("demo:1", image)
        };
        let first = submit(&actor, &chosen("demo:1")).await.unwrap();
        assert_eq!((first.is_new, first.pod.metadata.uid.as_deref()), (true, Some("mine")));
        assert_eq!(why(submit(&actor, &chosen("demo:2")).await), WhyRefused::Conflict);
        stage.pass(SECOND).await;
        assert!(!submit(&actor, &chosen("demo:1")).await.unwrap().is_new, "but for the time it is the same");
        near.manager.take();
        stage.crash::<PodSources>().await;
        until_read(&near, stage).await;
        assert!(!submit(&actor, &chosen("demo:1")).await.unwrap().is_new);
        assert_eq!(why(submit(&actor, &chosen("demo:2")).await), WhyRefused::Conflict);
    });
}

/// A few bytes of YAML stand for many: what counts is what the pod holds.
#[test]
fn a_pod_that_aliases_make_large_is_refused_and_does_not_come_back() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let large = |name: &str| {
            let aliases = "    - *one\n".repeat(20);
            format!("{}    args:\n    - &one {}\n{aliases}", manifest(name), "x".repeat(64 << 10))
        };
        assert!(large("web").len() < SUBMISSION_BYTES_MAX / 4);
        let kept = json!({"manifest": large("kept")});
        stage.fakes.checkpoints.save("submitted-pods/default_kept-node", &kept).await.unwrap();
        let actor = start(&near, stage);
        until_read(&near, stage).await;
        assert_eq!(near.told(Source::Submission), Some(0));
        let told = near.events.heard().iter().map(|told| told.message.to_string()).collect::<Vec<_>>();
        let begin = "submitted-pods/default_kept-node: pod default/kept-node has ";
        assert!(told.iter().any(|told| told.starts_with(begin)), "{told:?}");
        let refusal = submit(&actor, &large("web")).await.unwrap_err();
        assert_eq!(refusal.why, WhyRefused::TooLarge, "{}", refusal.message);
        assert!(refusal.message.contains("pod default/web-node has 13"), "{}", refusal.message);
        assert!(refusal.message.ends_with("as JSON, at most 1048576 can be kept"), "{}", refusal.message);
        assert_eq!(names_on_disk(stage).await, ["submitted-pods/default_kept-node"]);
    });
}

#[test]
fn all_kept_manifests_are_read_however_long_that_takes() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        for number in 0..40 {
            let content = json!({"manifest": manifest(&format!("p{number}"))});
            let name = format!("submitted-pods/default_p{number}-node");
            stage.fakes.checkpoints.save(&name, &content).await.unwrap();
        }
        let _actor = start_with(&near, stage, Arc::new(Slow(Some(10 * SECOND))));
        stage.pass(450 * SECOND).await;
        assert_eq!(near.told(Source::Submission), Some(40));
        assert_eq!(stage.actor::<PodSources>().await.incarnation, 1, "no deadline has passed");
    });
}

#[test]
fn a_manifest_whose_reading_does_not_end_holds_up_no_incarnation() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        stage.fakes.checkpoints.save(KEPT, &json!({"manifest": manifest("web")})).await.unwrap();
        let _actor = start_with(&near, stage, Arc::new(Slow(None)));
        stage.pass(400 * SECOND).await;
        assert_eq!(near.told(Source::Submission), Some(0));
        let told = near.events.heard().iter().map(|told| told.message.to_string()).collect::<Vec<_>>();
        assert!(told.iter().any(|told| told.contains("was not read within 120s")), "{told:?}");
        assert_eq!(stage.actor::<PodSources>().await.incarnation, 1);
    });
}

/// Also over a restart, and those of before there were tenants are of one more.
#[test]
fn one_tenant_does_not_take_all_places() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        for number in 0..512 {
            let pod = format!("p{number}");
            let tenant = if number < 2 { json!({}) } else { json!({"tenant": "crowd"}) };
            let mut kept = json!({"manifest": manifest(&pod)});
            kept.as_object_mut().unwrap().extend(tenant.as_object().unwrap().clone());
            let name = format!("submitted-pods/default_{pod}-node");
            stage.fakes.checkpoints.save(&name, &kept).await.unwrap();
        }
        let actor = start(&near, stage);
        until_read(&near, stage).await;
        assert_eq!(near.told(Source::Submission), Some(512));
        for name in ["one", "two"] {
            assert!(submit_for(&actor, &manifest(name), "crowd").await.unwrap().is_new);
        }
        let refusal = submit_for(&actor, &manifest("three"), "crowd").await.unwrap_err();
        assert_eq!(refusal.why, WhyRefused::Full);
        assert!(refusal.message.contains("512 pods submitted by \"crowd\""), "{}", refusal.message);
        near.manager.take();
        stage.crash::<PodSources>().await;
        until_read(&near, stage).await;
        assert_eq!(why(submit_for(&actor, &manifest("three"), "crowd").await), WhyRefused::Full);
        assert!(submit_for(&actor, &manifest("three"), "jane").await.unwrap().is_new);
    });
}

#[test]
fn a_disk_that_is_full_refuses_the_pod() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = start(&near, stage);
        until_read(&near, stage).await;
        stage.fakes.checkpoints.set_disk_full(true);
        assert_eq!(why(submit(&actor, &manifest("web")).await), WhyRefused::Full);
        assert_eq!(near.told(Source::Submission), Some(0));
        stage.fakes.checkpoints.set_disk_full(false);
        assert!(submit(&actor, &manifest("web")).await.unwrap().is_new);
    });
}

#[test]
fn what_was_refused_and_may_be_on_the_disk_is_removed_until_it_is_gone() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = start(&near, stage);
        until_read(&near, stage).await;
        stage.fakes.checkpoints.set_failing(true);
        assert_eq!(why(submit(&actor, &manifest("web")).await), WhyRefused::Failed);
        stage.pass(90 * SECOND).await;
        stage.fakes.checkpoints.set_failing(false);
        assert_eq!(names_on_disk(stage).await, [KEPT], "the save has had its effect");
        stage.pass(30 * SECOND).await;
        assert!(names_on_disk(stage).await.is_empty());
        near.manager.take();
        stage.crash::<PodSources>().await;
        until_read(&near, stage).await;
        assert_eq!(near.told(Source::Submission), Some(0), "what was refused does not come back");
        assert!(submit(&actor, &manifest("web")).await.unwrap().is_new);
    });
}

#[test]
fn what_was_refused_and_may_be_on_the_disk_is_not_run_after_a_crash() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = start(&near, stage);
        until_read(&near, stage).await;
        stage.fakes.checkpoints.set_failing(true);
        assert_eq!(why(submit(&actor, &manifest("web")).await), WhyRefused::Failed);
        stage.fakes.checkpoints.set_failing(false);
        assert_eq!(names_on_disk(stage).await, [KEPT]);
        near.manager.take();
        stage.crash::<PodSources>().await;
        until_read(&near, stage).await;
        assert_eq!(near.told(Source::Submission), Some(0));
        stage.pass(60 * SECOND).await;
        assert_eq!((near.told(Source::Submission), names_on_disk(stage).await), (Some(0), Vec::new()));
        assert!(submit(&actor, &manifest("web")).await.unwrap().is_new);
        near.manager.take();
        stage.crash::<PodSources>().await;
        until_read(&near, stage).await;
        assert_eq!(near.told(Source::Submission), Some(1), "it is no longer in doubt");
    });
}

#[test]
fn a_removal_of_which_the_disk_says_nothing_ends_no_incarnation_and_is_done_later() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = start(&near, stage);
        until_read(&near, stage).await;
        stage.fakes.checkpoints.set_failing(true);
        stage.fakes.checkpoints.set_hanging(KEPT, true);
        let submission =
            SubmitPod { manifest: manifest("web").into_bytes().into(), tenant: Arc::from("jane") };
        assert!(
            ask(&actor, submission, 10 * SECOND).await.is_err(),
            "it is not known yet what is on the disk"
        );
        stage.pass(700 * SECOND).await;
        assert_eq!(stage.actor::<PodSources>().await.incarnation, 1, "no deadline has passed");
        stage.fakes.checkpoints.set_failing(false);
        stage.fakes.checkpoints.set_hanging(KEPT, false);
        stage.pass(200 * SECOND).await;
        assert!(names_on_disk(stage).await.is_empty());
        assert_eq!(near.told(Source::Submission), Some(0));
    });
}

#[test]
fn a_damaged_manifest_is_told_and_stops_no_other() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let kept = &stage.fakes.checkpoints;
        for name in ["one", "two"] {
            let content = json!({"manifest": manifest(name)});
            kept.save(&format!("submitted-pods/default_{name}-node"), &content).await.unwrap();
        }
        kept.corrupt(KEPT, "its checksum does not match");
        kept.save("submitted-pods/default_old-node", &json!({"manifest": "kind: Pod"})).await.unwrap();
        kept.save("submitted-pods/default_odd-node", &json!(7)).await.unwrap();
        let actor = start(&near, stage);
        until_read(&near, stage).await;
        assert_eq!(near.told(Source::Submission), Some(2));
        let told: Vec<String> = near.events.heard().iter().map(|told| told.message.to_string()).collect();
        for name in [KEPT, "submitted-pods/default_old-node", "submitted-pods/default_odd-node"] {
            assert!(told.iter().any(|told| told.contains(name)), "{name}: {told:?}");
        }
        assert_eq!(told.len(), 3, "{told:?}");
        assert_eq!(stage.observed::<PodSources>().await["submission"]["withoutPod"], 2);
        // What is there and gives no pod can be replaced or withdrawn; what was damaged is gone.
        assert!(submit(&actor, &manifest("old")).await.unwrap().is_new);
        assert_eq!(withdraw(&actor, "odd").await, Ok(()));
        assert_eq!(why(withdraw(&actor, "web").await), WhyRefused::NotFound);
        assert_eq!(near.told(Source::Submission), Some(3));
    });
}

/// The same standard for pods of every source that is not the API server (row 17.7).
#[test]
fn a_pod_that_violates_the_standard_is_refused_whatever_its_source() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let hostile = |name: &str| manifest(name).replace("spec:", "spec:\n  hostPID: true");
        stage.fakes.disk.write(format!("{MANIFESTS}/b.yaml"), hostile("b"), 0o644);
        near.url.serve(&hostile("from-url"));
        let kept = json!({"manifest": hostile("kept")});
        stage.fakes.checkpoints.save("submitted-pods/default_kept-node", &kept).await.unwrap();
        let (kept, compute) = (stage.fakes.checkpoints.clone(), stage.fakes.compute.clone());
        let ports = SubmissionPorts { kept, compute, doubts: Doubts::default() };
        let mut deps = PodSourcesDeps { submissions: Some(ports), ..near.deps(stage) };
        deps.config.security =
            PodSecurity { level: SecurityLevel::Baseline, version: StandardVersion::Minor(30) };
        let actor = stage.start(deps, PodSources::new);
        until_read(&near, stage).await;
        stage.until("all refusals", || near.events.count() == 3).await;
        assert_eq!(
            [Source::File, Source::Http, Source::Submission].map(|one| near.told(one)),
            [Some(1), None, Some(0)]
        );
        let violation = "violates PodSecurity \"baseline:v1.30\": host namespaces (hostPID=true)";
        let told: Vec<String> = near.events.heard().iter().map(|told| told.message.to_string()).collect();
        for (origin, pod) in [
            ("/etc/kubernetes/manifests/b.yaml", "pod default/b-node"),
            ("http://manifests.example/pod", "pod default/from-url-node"),
            ("submitted-pods/default_kept-node", "pods \"kept-node\" is forbidden"),
        ] {
            let begin = format!("{origin}: {pod}: {violation}");
            assert!(told.iter().any(|told| told.starts_with(&begin)), "{begin}: {told:?}");
        }
        let refusal = submit(&actor, &hostile("web")).await.unwrap_err();
        assert_eq!(refusal.why, WhyRefused::Forbidden);
        assert_eq!(refusal.message, format!("pods \"web-node\" is forbidden: {violation}"));
        let wrong = hostile("web").replace("image: ", "imagePullPolicy: Sometimes\n    image: ");
        assert_eq!(why(submit(&actor, &wrong).await), WhyRefused::Invalid, "what is wrong comes first");
        assert!(submit(&actor, &manifest("web")).await.unwrap().is_new);
    });
}

#[test]
fn without_the_switch_nothing_is_taken_or_read() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        stage.fakes.checkpoints.save(KEPT, &json!({"manifest": manifest("web")})).await.unwrap();
        let actor = near.start(stage);
        stage.until("the manifests", || near.told(Source::File) == Some(1)).await;
        assert_eq!(why(submit(&actor, &manifest("other")).await), WhyRefused::Off);
        assert_eq!(why(withdraw(&actor, "web").await), WhyRefused::Off);
        stage.pass(60 * SECOND).await;
        assert_eq!(near.told(Source::Submission), None);
        assert_eq!(names_on_disk(stage).await, [KEPT], "it is there for a kubelet with the switch");
    });
}
