//! Pods that are submitted to the kubelet's server (row 1.8): they run, over a restart, until they are withdrawn.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::Rpc;
use k8s_openapi::api::core::v1::PodStatus;
use messages::pod_sources::{SubmitPod, WhyRefused, WithdrawPod};
use supervision::Policy;
use testkit::node::{FakeNode, is_ready, settings};
use testkit::sandbox;

use crate::life::world;
use crate::pods::web;

const SOON: Duration = Duration::from_secs(10);

fn submission(name: &str) -> SubmitPod {
    SubmitPod { manifest: Arc::from(web(name).as_bytes()), tenant: Arc::from("jane") }
}

fn withdrawal(name: &str) -> WithdrawPod {
    WithdrawPod { namespace: Arc::from("default"), name: Arc::from(name) }
}

fn is_up(pods: &BTreeMap<String, Arc<PodStatus>>, name: &str) -> bool {
    pods.get(name).is_some_and(|status| is_ready(status))
}

#[test]
fn a_submitted_pod_runs_over_a_restart_until_it_is_withdrawn() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(71);
        world.manifest("file.yaml", &web("file"));
        let settings = kubelet::wiring::Settings { pod_submission: true, ..settings() };
        let node = FakeNode::start(sandbox, &world, &settings);
        node.until("the file's pod to be Ready", |pods| is_up(pods, "file")).await;
        let first = node.node.submit.ask(submission("web"), SOON).await.expect("an answer");
        assert!(first.expect("it is taken").is_new);
        let clash = node.node.submit.ask(submission("file"), SOON).await.expect("an answer");
        assert_eq!(clash.expect_err("a file has the name").why, WhyRefused::Conflict);
        node.until("the submitted pod to be Ready", |pods| is_up(pods, "web")).await;

        let node = node.restart(&settings, Policy::default()).await;
        node.until("both to be Ready again", |pods| is_up(pods, "web") && is_up(pods, "file")).await;
        sandbox.pass(Duration::from_secs(120)).await;
        let counts = world.runtime.counts();
        let of = |rpc: Rpc| counts.get(&rpc).copied().unwrap_or_default();
        assert_eq!((of(Rpc::RunPodSandbox), of(Rpc::StopContainer)), (2, 0), "nothing was touched");
        let again = node.node.submit.ask(submission("web"), SOON).await.expect("an answer");
        assert!(!again.expect("it is there").is_new);

        let gone = node.node.withdraw.ask(withdrawal("web"), SOON).await.expect("an answer");
        assert_eq!(gone, Ok(()));
        node.until("the file's pod alone to be there", |pods| pods.keys().eq(["file"])).await;
        node.until("its sandbox to be gone", |_| world.runtime.sandboxes().len() == 1).await;
        let node = node.restart(&settings, Policy::default()).await;
        node.until("the file's pod to be Ready still", |pods| is_up(pods, "file")).await;
        sandbox.pass(Duration::from_secs(60)).await;
        assert_eq!(node.by_name().await.len(), 1, "what was withdrawn does not come back");
        node.stop().await;
    });
}

#[test]
fn submitted_pods_end_with_a_kubelet_that_takes_none() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(72);
        let on = kubelet::wiring::Settings { pod_submission: true, ..settings() };
        let node = FakeNode::start(sandbox, &world, &on);
        let answer =
            async |node: &FakeNode| node.node.submit.ask(submission("web"), SOON).await.expect("an answer");
        sandbox.pass(Duration::from_secs(1)).await;
        assert!(answer(&node).await.is_ok());
        node.until("it to be Ready", |pods| is_up(pods, "web")).await;
        let node = node.restart(&settings(), Policy::default()).await;
        node.until_empty().await;
        node.until("it to be forgotten", BTreeMap::is_empty).await;
        assert_eq!(answer(&node).await.expect_err("it is off").why, WhyRefused::Off);
        let node = node.restart(&on, Policy::default()).await;
        node.until("it to be back", |pods| is_up(pods, "web")).await;
        node.stop().await;
    });
}
