//! Traces of pods: what was done for a pod arrives at the collector as spans of one trace (row 23.7).

use std::collections::BTreeSet;
use std::time::Duration;

use bridge_traces::{ExportError, FakeAnswer, Sampling, trace_id};
use kubelet::wiring::Settings;
use supervision::Policy;
use testkit::node::{FakeNode, is_ready, settings};
use testkit::sandbox;

use crate::life::world;
use crate::pods::web;

fn telling(pods_per_million: u32) -> Settings {
    Settings { trace_sampling: Sampling::per_million(pods_per_million), ..settings() }
}

#[test]
fn a_pods_way_arrives_as_spans_of_one_trace() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(191);
        world.manifest("web.yaml", &web("web"));
        let node = FakeNode::start(sandbox, &world, &telling(1_000_000));
        node.until("web to be Ready", |pods| pods.get("web").is_some_and(|pod| is_ready(pod))).await;
        let uid = node.statuses().await.into_keys().next().expect("the pod has a status").to_string();
        // The names of pods are asked for when their steps are sent.
        sandbox.pass(Duration::from_secs(10)).await;
        world.remove_manifest("web.yaml");
        node.until_empty().await;
        sandbox.pass(Duration::from_secs(10)).await;
        let spans = world.traces.spans();
        let traces: BTreeSet<_> = spans.iter().map(|span| span.trace_id.clone()).collect();
        assert_eq!(traces, [trace_id(&uid).to_vec()].into(), "one pod is one trace");
        let roots: Vec<_> = spans.iter().filter(|span| span.parent_span_id.is_empty()).collect();
        let [root] = &roots[..] else { panic!("{} spans are part of no other", roots.len()) };
        assert!(spans.iter().all(|span| span.span_id == root.span_id || span.parent_span_id == root.span_id));
        let ids: BTreeSet<_> = spans.iter().map(|span| &span.span_id).collect();
        assert_eq!(ids.len(), spans.len());
        let calls = spans.iter().filter(|span| span.attribute("understudy.kind") == Some("call"));
        let calls: BTreeSet<&str> = calls.map(|span| span.name.as_str()).collect();
        for call in ["RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer"] {
            assert!(calls.contains(call), "{call} is not among {calls:?}");
        }
        let by: BTreeSet<_> = spans.iter().filter_map(|span| span.attribute("understudy.actor")).collect();
        assert!(["PodWorker", "StatusManager", "runtime"].iter().all(|one| by.contains(one)), "{by:?}");
        for span in &spans {
            assert_eq!(span.attribute("k8s.pod.uid"), Some(uid.as_str()));
            assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
        }
        let named = spans.iter().find(|span| span.name == "StartContainer").expect("it was seen above");
        assert_eq!(named.attribute("k8s.pod.name"), Some("web-node"));
        assert_eq!(named.attribute("k8s.namespace.name"), Some("default"));
        node.stop().await;
    });
}

#[test]
fn without_a_share_of_pods_no_collector_is_asked() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(192);
        world.manifest("web.yaml", &web("web"));
        let node = FakeNode::start(sandbox, &world, &telling(0));
        node.until("web to be Ready", |pods| pods.get("web").is_some_and(|pod| is_ready(pod))).await;
        sandbox.pass(Duration::from_secs(30)).await;
        assert_eq!(world.traces.calls(), 0);
        node.stop().await;
    });
}

#[test]
fn a_collector_that_is_away_or_silent_holds_up_no_pod() {
    let away = FakeAnswer::Fails(ExportError::Away("connection refused".to_owned()));
    for answer in [away, FakeAnswer::Silent] {
        sandbox(Policy::default(), async |sandbox| {
            let world = world(193);
            world.traces.answer(answer.clone());
            let node = FakeNode::start(sandbox, &world, &telling(1_000_000));
            for round in 0..3 {
                let (file, name) = (format!("web-{round}.yaml"), format!("web-{round}"));
                world.manifest(&file, &web(&name));
                node.until("the pod to be Ready", |pods| pods.get(&name).is_some_and(|pod| is_ready(pod)))
                    .await;
                world.remove_manifest(&file);
                node.until_empty().await;
            }
            sandbox.pass(Duration::from_secs(10)).await;
            assert!(world.traces.calls() > 0 && world.traces.spans().is_empty());
            node.stop().await;
        });
    }
}
