//! PURE: the node, and each of its pods in a row with what it waits for.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;

use crate::model::{Event, Supervision};
use crate::node::NodeNow;
use crate::rows::{Row, row};
use crate::why::{Verdict, sentence, subjects};

/// The node and its pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// The node.
    pub node: NodeNow,
    /// Its pods, sorted by namespace and name.
    pub pods: Vec<PodLine>,
    /// Which answers of the kubelet are missing, and why.
    pub unread: Vec<String>,
}

/// A pod in a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodLine {
    /// Its columns.
    #[serde(flatten)]
    pub row: Row,
    /// How it is with it.
    pub verdict: Verdict,
    /// What it waits for.
    pub sentence: String,
}

impl Overview {
    /// What is known of the node and its pods. `unread` names the answers that are missing.
    pub fn of(
        pods: &[Pod],
        tree: &Supervision,
        events: Vec<Event>,
        unread: Vec<String>,
        now: Timestamp,
    ) -> Self {
        // Each pod is explained from its own events, so that many pods with many events take no longer together.
        let mut events_of: BTreeMap<String, Vec<Event>> = BTreeMap::new();
        for event in events {
            if let Some(uid) = event.pod_uid().map(str::to_owned) {
                events_of.entry(uid).or_default().push(event);
            }
        }
        let mut lines: Vec<PodLine> = Vec::new();
        for subject in subjects(pods, tree) {
            let events = events_of.get(&subject.uid).map(Vec::as_slice).unwrap_or_default();
            let (verdict, sentence) = sentence(&subject, tree, events, now);
            let row = match subject.pod {
                Some(pod) => row(pod, now),
                None => Row::leaving(&subject.namespace, &subject.name, &subject.uid),
            };
            lines.push(PodLine { row, verdict, sentence });
        }
        lines.sort_by_cached_key(|line| (line.row.namespace.clone(), line.row.name.clone()));
        Self { node: NodeNow::of(tree), pods: lines, unread }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::Actor;

    fn pod(name: &str, status: Value) -> Pod {
        let metadata = json!({ "namespace": "default", "name": name, "uid": format!("u-{name}") });
        let spec = json!({ "containers": [{ "name": "app" }] });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap()
    }

    fn event(uid: &str, message: &str) -> Event {
        let object = json!({ "pod": { "pod": { "uid": uid, "namespace": "default", "name": "x" } } });
        Event {
            object,
            event_type: "Warning".to_owned(),
            reason: "Strange".to_owned(),
            message: message.to_owned(),
            count: 1,
            last_seen: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn every_pod_has_a_row_and_a_sentence_from_its_own_events() {
        let pods = [pod("b", json!({ "phase": "Pending" })), pod("a", json!({ "phase": "Succeeded" }))];
        let worker = Actor {
            name: "PodWorker/u-gone".to_owned(),
            observed: json!({ "pod": "default/gone" }),
            ..Actor::default()
        };
        let tree = Supervision { actors: vec![worker], ..Supervision::default() };
        let events = vec![event("u-b", "hot"), event("u-a", "cold"), Event::default()];
        let told = Overview::of(&pods, &tree, events, vec!["none".to_owned()], Timestamp::UNIX_EPOCH);
        let lines: Vec<_> = told
            .pods
            .iter()
            .map(|line| (line.row.name.as_str(), line.verdict, line.row.status.as_str()))
            .collect();
        assert_eq!(
            lines,
            [
                ("a", Verdict::Succeeded, "Succeeded"),
                ("b", Verdict::Waits, "Pending"),
                ("gone", Verdict::Ends, "Terminating"),
            ]
        );
        assert!(told.pods[1].sentence.ends_with("0 s ago, is Strange: hot"), "{}", told.pods[1].sentence);
        let document = serde_json::to_value(&told).unwrap();
        assert_eq!(document["pods"][1]["uid"], "u-b", "a row's columns stand beside the sentence");
        assert_eq!(document["unread"], json!(["none"]));
    }
}
