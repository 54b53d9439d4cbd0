//! PURE: the mirror pods of static pods at the API server (rows 2.2 and 2.3): which to create, which to
//! delete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_kube::ApiError;
use bridge_pace::Backoff;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use messages::{PodRef, PodUid};
use pod_rules::annotations::{CONFIG_HASH, CONFIG_MIRROR, annotation};
use pod_rules::origin::{is_mirror, stands_for};
use pod_rules::versions::version;
use supervision::blame;

/// The pause before a failed step is tried again: while the Node is not at the API server yet, and after refusals.
const SOON: Duration = Duration::from_secs(1);
const AGAIN: Backoff = Backoff::doubling(Duration::from_secs(10), Duration::from_secs(80));

/// What to do about one mirror pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Create the mirror of this static pod.
    Create(Arc<Pod>),
    /// Delete this mirror, and create the one of this static pod at once.
    Replace(PodRef, Arc<Pod>),
    /// Delete the mirror of a static pod that is gone.
    Delete(PodRef),
}

impl Step {
    /// The UID of the static pod, or of the mirror for a deletion.
    pub fn uid(&self) -> PodUid {
        match self {
            Self::Create(pod) | Self::Replace(_, pod) => PodRef::of(pod).uid,
            Self::Delete(mirror) => mirror.uid.clone(),
        }
    }

    /// `<name>_<namespace>`, which mirror and static pod share.
    pub fn full_name(&self) -> String {
        match self {
            Self::Create(pod) => PodRef::of(pod).full_name(),
            Self::Replace(mirror, _) | Self::Delete(mirror) => mirror.full_name(),
        }
    }
}

/// Why a step about a mirror pod failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MirrorError {
    /// The API server refused the call or did not answer.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The Node, which has to own the mirror, is not there, has no UID or is being deleted.
    #[error("Node {0} is not there, has no UID or is being deleted")]
    NoNode(String),
    /// Another pod has the mirror's name.
    #[error("pod {0} is there already, and is no mirror of the static pod")]
    NameTaken(PodRef),
}

/// The mirrors at the API server, and the steps about them that are under way.
#[derive(Debug, Default)]
pub struct Mirrors {
    /// Mirrors by full name; `None` until the API server has been heard.
    known: Option<BTreeMap<String, Arc<Pod>>>,
    /// Full names with a step under way, or with a pause after a failed step.
    busy: BTreeSet<String>,
    /// The full names among `busy` that are in a pause.
    waiting: BTreeSet<String>,
    /// By full name, while a step about it is under way: the mirror that the watch told to be gone last.
    gone: BTreeMap<String, PodUid>,
    /// What went wrong with the last steps, by full name.
    troubles: BTreeMap<String, Trouble>,
}

#[derive(Debug, Default)]
struct Trouble {
    /// How often in a row the API server has refused.
    refusals: u32,
    /// The last error.
    said: String,
}

/// What a step that has failed asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The time after which the step is tried again.
    pub pause: Duration,
    /// Whether it failed otherwise than the last one, so that it is to be told.
    pub is_news: bool,
}

impl Mirrors {
    /// Takes the API server's pods, and keeps the mirrors among them.
    pub fn heard<'a>(&mut self, pods: impl Iterator<Item = &'a Arc<Pod>>) {
        let mirrors = pods.filter(|pod| is_mirror(pod));
        let named = |pod: &Arc<Pod>| (PodRef::of(pod).full_name(), pod.clone());
        let now: BTreeMap<String, Arc<Pod>> = mirrors.map(named).collect();
        for (name, mirror) in self.known.iter().flatten().filter(|(name, _)| self.busy.contains(*name)) {
            let uid = PodRef::of(mirror).uid;
            if now.get(name).is_none_or(|there| PodRef::of(there).uid != uid) {
                self.gone.insert(name.clone(), uid);
            }
        }
        self.known = Some(now);
    }

    /// A mirror has changed, or what was one is none any more.
    pub fn changed(&mut self, before: Option<&Arc<Pod>>, now: Option<&Arc<Pod>>) {
        let Some(known) = &mut self.known else { return };
        let before = before.filter(|pod| is_mirror(pod)).map(|pod| PodRef::of(pod));
        if let Some(before) = before {
            // Another mirror may have its name by now.
            let name = before.full_name();
            if known.get(&name).is_some_and(|mirror| PodRef::of(mirror).uid == before.uid) {
                known.remove(&name);
            }
            let goes_on = now.is_some_and(|now| is_mirror(now) && PodRef::of(now).uid == before.uid);
            if !goes_on && self.busy.contains(&name) {
                self.gone.insert(name, before.uid);
            }
        }
        if let Some(now) = now.filter(|pod| is_mirror(pod)) {
            known.insert(PodRef::of(now).full_name(), now.clone());
        }
    }

    /// The mirrors of these static pods, by the UID of the static pod.
    pub fn of<'a>(&self, statics: impl Iterator<Item = &'a Arc<Pod>>) -> BTreeMap<PodUid, Arc<Pod>> {
        let known = self.known.as_ref();
        let mirror = |pod: &Arc<Pod>| {
            let pod_ref = PodRef::of(pod);
            let mirror = known?.get(&pod_ref.full_name())?;
            let is_its = blame::step(&pod_ref.uid, || stands_for(mirror, pod)).unwrap_or_default();
            is_its.then(|| (pod_ref.uid, mirror.clone()))
        };
        statics.filter_map(mirror).collect()
    }

    /// The full name of the mirror of this UID: that of its static pod, of whatever version.
    pub fn full_name(&self, mirror: &PodUid) -> Option<&str> {
        let known = self.known.iter().flatten();
        let is = |pod: &Pod| pod.metadata.uid.as_deref() == Some(mirror.as_str());
        known.into_iter().find(|(_, pod)| is(pod)).map(|(name, _)| name.as_str())
    }

    /// The steps that are due now; each counts as under way until [`Mirrors::done`]. A mirror without a
    /// static pod is deleted only when the statics are `all` of them, and not while the static pod of that
    /// full name is still `ending`.
    pub fn steps<'a>(
        &mut self,
        statics: impl Iterator<Item = &'a Arc<Pod>>,
        all: bool,
        ending: impl Fn(&str) -> bool,
    ) -> Vec<Step> {
        let Some(known) = &self.known else { return Vec::new() };
        let mut steps = Vec::new();
        let mut wanted = BTreeSet::new();
        for pod in statics {
            let pod_ref = PodRef::of(pod);
            let name = pod_ref.full_name();
            let step = blame::step(&pod_ref.uid, || match known.get(&name) {
                None => Some(Step::Create(pod.clone())),
                Some(mirror) if mirror.metadata.deletion_timestamp.is_some() || !stands_for(mirror, pod) => {
                    Some(Step::Replace(PodRef::of(mirror), pod.clone()))
                }
                Some(_) => None,
            });
            steps.extend(step.flatten());
            wanted.insert(name);
        }
        self.troubles.retain(|name, _| wanted.contains(name) || known.contains_key(name));
        let orphans = known.iter().filter(|(name, _)| all && !wanted.contains(*name) && !ending(name));
        steps.extend(orphans.map(|(_, mirror)| Step::Delete(PodRef::of(mirror))));
        steps.retain(|step| !self.busy.contains(&step.full_name()));
        self.busy.extend(steps.iter().map(Step::full_name));
        steps
    }

    /// Adds a mirror that was created, before the API server's list has it; unless the watch has told meanwhile that it is
    /// gone, or what it is by now.
    pub fn created(&mut self, pod: Pod) {
        let pod_ref = PodRef::of(&pod);
        let name = pod_ref.full_name();
        self.troubles.remove(&name);
        let Some(known) = &mut self.known else { return };
        let is_gone = self.gone.get(&name) == Some(&pod_ref.uid);
        let has_newer =
            known.get(&name).is_some_and(|there| version(&there.metadata) > version(&pod.metadata));
        if !is_gone && !has_newer {
            known.insert(name, Arc::new(pod));
        }
    }

    /// The watch has had time to tell of a mirror that was created: what it has told of the full name holds.
    pub fn settled(&mut self, full_name: &str, told: Option<Arc<Pod>>) {
        let Some(known) = &mut self.known else { return };
        match told {
            Some(mirror) => known.insert(full_name.to_owned(), mirror),
            None => known.remove(full_name),
        };
    }

    /// Removes a mirror that was deleted. The watch may have told of another one of its name meanwhile.
    pub fn deleted(&mut self, mirror: &PodRef) {
        let name = mirror.full_name();
        self.troubles.remove(&name);
        if let Some(known) = &mut self.known
            && known.get(&name).is_some_and(|there| PodRef::of(there).uid == mirror.uid)
        {
            known.remove(&name);
        }
    }

    /// The step of this full name has failed: no step about it begins before [`Mirrors::done`] or
    /// [`Mirrors::retry`].
    pub(crate) fn failed(&mut self, full_name: &str, error: &MirrorError) -> Failed {
        self.waiting.insert(full_name.to_owned());
        let trouble = self.troubles.entry(full_name.to_owned()).or_default();
        let said = error.to_string();
        let is_news = trouble.said != said;
        trouble.said = said;
        if matches!(error, MirrorError::NoNode(_)) {
            return Failed { pause: SOON, is_news };
        }
        trouble.refusals = trouble.refusals.saturating_add(1);
        Failed { pause: AGAIN.after(trouble.refusals), is_news }
    }

    /// The step of this full name, or the pause after it, is over.
    pub fn done(&mut self, full_name: &str) {
        self.busy.remove(full_name);
        self.waiting.remove(full_name);
        self.gone.remove(full_name);
    }

    /// Ends every pause. Returns the full names that were in one.
    pub fn retry(&mut self) -> BTreeSet<String> {
        let waiting = std::mem::take(&mut self.waiting);
        self.busy.retain(|name| !waiting.contains(name));
        self.gone.retain(|name, _| !waiting.contains(name));
        waiting
    }
}

/// The mirror pod to create for a static pod; none while the Node has no UID or is being deleted, because the
/// mirror would not be deleted together with the Node.
pub fn mirror_of(pod: &Pod, node: &Node) -> Option<Pod> {
    let uid = node.metadata.uid.clone().filter(|uid| !uid.is_empty())?;
    if node.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let mut mirror = pod.clone();
    mirror.status = None;
    let hash = annotation(pod, CONFIG_HASH).unwrap_or_default().to_owned();
    let metadata = &mut mirror.metadata;
    metadata.uid = None;
    metadata.annotations.get_or_insert_default().insert(CONFIG_MIRROR.to_owned(), hash);
    metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.metadata.name.clone().unwrap_or_default(),
        uid,
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    Some(mirror)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(json: serde_json::Value) -> Arc<Pod> {
        Arc::new(serde_json::from_value(json).unwrap())
    }

    fn fixed(name: &str, hash: &str) -> Arc<Pod> {
        pod(json!({ "metadata": {
            "name": name, "namespace": "ns", "uid": hash, "annotations": { CONFIG_HASH: hash }
        } }))
    }

    fn mirror(name: &str, hash: &str) -> Arc<Pod> {
        pod(json!({ "metadata": {
            "name": name, "namespace": "ns", "uid": format!("m-{hash}"), "annotations": { CONFIG_MIRROR: hash }
        } }))
    }

    fn heard(pods: &[Arc<Pod>]) -> Mirrors {
        let mut mirrors = Mirrors::default();
        mirrors.heard(pods.iter());
        mirrors
    }

    #[test]
    fn nothing_is_done_before_the_server_has_been_heard() {
        assert_eq!(Mirrors::default().steps([fixed("a", "1")].iter(), true, |_| false), []);
    }

    #[test]
    fn every_static_pod_gets_its_mirror_once() {
        let mut mirrors = heard(&[mirror("a", "1")]);
        let statics = [fixed("a", "1"), fixed("b", "2")];
        assert_eq!(mirrors.steps(statics.iter(), true, |_| false), [Step::Create(statics[1].clone())]);
        assert_eq!(mirrors.steps(statics.iter(), true, |_| false), [], "that is being done");
        mirrors.created((*mirror("b", "2")).clone());
        mirrors.done("b_ns");
        assert_eq!(mirrors.steps(statics.iter(), true, |_| false), []);
        let of: Vec<_> = mirrors.of(statics.iter()).into_keys().map(|uid| uid.to_string()).collect();
        assert_eq!(of, ["1", "2"]);
        assert_eq!(mirrors.full_name(&PodUid::new("m-2")), Some("b_ns"));
        assert_eq!(mirrors.full_name(&PodUid::new("2")), None);
    }

    #[test]
    fn a_step_that_failed_is_done_again() {
        let mut mirrors = heard(&[]);
        let statics = [fixed("a", "1")];
        assert_eq!(mirrors.steps(statics.iter(), true, |_| false).len(), 1);
        mirrors.done("a_ns");
        assert_eq!(mirrors.steps(statics.iter(), true, |_| false).len(), 1);
        let refused = MirrorError::NameTaken(PodRef::of(&statics[0]));
        let failed = mirrors.failed("a_ns", &refused);
        assert_eq!(failed, Failed { pause: Duration::from_secs(10), is_news: true });
        assert_eq!(mirrors.steps(statics.iter(), true, |_| false), []);
        assert_eq!(mirrors.retry(), ["a_ns".to_owned()].into());
        assert_eq!(mirrors.steps(statics.iter(), true, |_| false).len(), 1);
        assert!(mirrors.retry().is_empty(), "it is being done");
        assert_eq!(mirrors.steps(statics.iter(), true, |_| false), []);
    }

    #[test]
    fn waiting_for_the_node_lengthens_no_pause_after_a_refusal() {
        let mut mirrors = heard(&[]);
        let no_node = MirrorError::NoNode("node".to_owned());
        let refused = MirrorError::NameTaken(PodRef::of(&fixed("a", "1")));
        let mut pause = |error| mirrors.failed("a_ns", error).pause.as_secs();
        assert_eq!([(); 5].map(|()| pause(&no_node)), [1; 5]);
        assert_eq!([(); 5].map(|()| pause(&refused)), [10, 20, 40, 80, 80]);
    }

    #[test]
    fn a_mirror_of_another_version_or_one_that_is_being_deleted_is_replaced() {
        let mut going = (*mirror("b", "2")).clone();
        going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-05-01T12:00:00Z")).unwrap();
        let mut mirrors = heard(&[mirror("a", "0"), Arc::new(going.clone())]);
        let statics = [fixed("a", "1"), fixed("b", "2")];
        assert!(!mirrors.of(statics.iter()).contains_key(&PodUid::new("1")));
        assert_eq!(
            mirrors.steps(statics.iter(), true, |_| false),
            [
                Step::Replace(PodRef::of(&mirror("a", "0")), statics[0].clone()),
                Step::Replace(PodRef::of(&going), statics[1].clone())
            ]
        );
    }

    #[test]
    fn a_mirror_without_its_pod_goes_when_all_is_known_and_the_pod_has_ended() {
        let mut mirrors = heard(&[mirror("a", "1"), mirror("b", "2")]);
        assert_eq!(mirrors.steps([].iter(), false, |_| false), []);
        let steps = mirrors.steps([].iter(), true, |name| name == "a_ns");
        assert_eq!(steps, [Step::Delete(PodRef::of(&mirror("b", "2")))]);
    }

    #[test]
    fn an_answer_that_comes_later_than_the_watch_brings_no_mirror_back() {
        let at = |version: &str| {
            let mut pod = (*mirror("a", "1")).clone();
            pod.metadata.resource_version = Some(version.to_owned());
            Arc::new(pod)
        };
        let statics = [fixed("a", "1")];
        let create = [Step::Create(statics[0].clone())];
        for is_list in [false, true] {
            let mut mirrors = heard(&[]);
            assert_eq!(mirrors.steps(statics.iter(), true, |_| false), create);
            mirrors.changed(None, Some(&at("5")));
            if is_list {
                mirrors.heard([].iter());
            } else {
                mirrors.changed(Some(&at("5")), None);
            }
            mirrors.created((*at("5")).clone());
            mirrors.done("a_ns");
            assert_eq!(mirrors.steps(statics.iter(), true, |_| false), create, "it was deleted meanwhile");
            mirrors.changed(None, Some(&at("10")));
            mirrors.created((*at("9")).clone());
            mirrors.done("a_ns");
            let now = mirrors.of(statics.iter()).remove(&PodUid::new("1")).unwrap();
            assert_eq!(now.metadata.resource_version.as_deref(), Some("10"), "it was changed meanwhile");
        }
    }

    #[test]
    fn a_mirror_of_which_the_watch_tells_nothing_is_made_again() {
        let mut mirrors = heard(&[]);
        let statics = [fixed("a", "1")];
        let create = [Step::Create(statics[0].clone())];
        assert_eq!(mirrors.steps(statics.iter(), true, |_| false), create);
        mirrors.created((*mirror("a", "1")).clone());
        mirrors.done("a_ns");
        mirrors.settled("a_ns", Some(mirror("a", "1")));
        assert_eq!(mirrors.steps(statics.iter(), true, |_| false), []);
        mirrors.settled("a_ns", None);
        assert_eq!(mirrors.steps(statics.iter(), true, |_| false), create);
    }

    #[test]
    fn the_end_of_a_mirror_is_none_of_another_of_its_name() {
        let [old, new] = [mirror("a", "1"), mirror("a", "2")];
        let mut mirrors = heard(std::slice::from_ref(&old));
        assert_eq!(mirrors.steps([].iter(), true, |_| false), [Step::Delete(PodRef::of(&old))]);
        mirrors.changed(Some(&old), None);
        mirrors.changed(None, Some(&new));
        mirrors.deleted(&PodRef::of(&old));
        mirrors.done("a_ns");
        assert_eq!(mirrors.steps([].iter(), true, |_| false), [Step::Delete(PodRef::of(&new))]);
    }

    #[test]
    fn a_mirror_belongs_to_the_node() {
        let node: Node =
            serde_json::from_value(json!({ "metadata": { "name": "n", "uid": "node-uid" } })).unwrap();
        let made = mirror_of(&fixed("a", "1"), &node).unwrap();
        let annotations = made.metadata.annotations.unwrap();
        assert_eq!((&*annotations[CONFIG_MIRROR], &*annotations[CONFIG_HASH]), ("1", "1"));
        assert_eq!(made.metadata.uid, None);
        let owner = made.metadata.owner_references.unwrap().remove(0);
        assert_eq!(
            (&*owner.kind, &*owner.name, &*owner.uid, owner.controller),
            ("Node", "n", "node-uid", Some(true))
        );
        assert_eq!(mirror_of(&fixed("a", "1"), &Node::default()), None);
    }
}
