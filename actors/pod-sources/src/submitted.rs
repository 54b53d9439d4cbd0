//! PURE: the pods that were submitted to the kubelet's server, by the names under which their manifests are kept, and which
//! further ones there is room for (row 1.8).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bridge_node::checkpoint::CheckpointError;
use bridge_node::host::{MANIFESTS_BYTES_MAX, MANIFESTS_MAX};
use k8s_openapi::api::core::v1::Pod;
use messages::facts::SourcePod;
use messages::pod_set::Generation;
use messages::pod_sources::{SubmissionRefused, WhyRefused};
use messages::{PodRef, PodUid};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::doubts::Doubts;
use crate::manifests::cut;
use crate::static_pod::CONFIG_SEEN_ANNOTATION;

/// What the names of all kept manifests begin with.
pub(crate) const PREFIX: &str = "submitted-pods/";

/// The longest part of a name behind [`PREFIX`], in bytes: that of a checkpoint has no more in one piece. A longer one is cut,
/// and has a hash.
const NAME_BYTES_MAX: usize = 200;
/// So many bytes are left of a name that is cut.
const CUT_NAME_BYTES: usize = 130;

/// At most so many submissions and withdrawals are under way: each holds a manifest. A further one is refused.
const UNDER_WAY_MAX: usize = 16;

/// So many pods are remembered that were withdrawn.
const WITHDRAWN_MAX: usize = 1024;

/// The most bytes of one pod as JSON: a manifest of a few bytes may have aliases that stand for many. The API server's store
/// takes 1.5 MiB.
pub(crate) const POD_BYTES_MAX: u64 = 1 << 20;

/// The field of a kept manifest that has its text.
const MANIFEST: &str = "manifest";
/// The field of a kept manifest that has the tenant. One without it counts for the tenant of no name.
const TENANT: &str = "tenant";

/// A tenant has at most so many of the pods, half of all.
const TENANT_PODS_MAX: usize = MANIFESTS_MAX / 2;
/// The pods of a tenant hold at most so many bytes, half of all.
const TENANT_BYTES_MAX: u64 = MANIFESTS_BYTES_MAX / 2;
/// A longer name of a tenant is kept as its hash.
const TENANT_NAME_BYTES_MAX: usize = 256;

/// A refusal of this kind, with a text of bounded length.
pub(crate) fn refused(why: WhyRefused, message: impl AsRef<str>) -> SubmissionRefused {
    SubmissionRefused { why, message: cut(message.as_ref()) }
}

/// The name under which the manifest of a pod is kept.
pub(crate) fn kept_name(namespace: &str, name: &str) -> String {
    // An underscore is in neither of the two.
    let full = format!("{namespace}_{name}");
    if full.len() <= NAME_BYTES_MAX {
        return format!("{PREFIX}{full}");
    }
    let begin: String = full.chars().take(CUT_NAME_BYTES).collect();
    format!("{PREFIX}{begin}_{}", hash(&full))
}

fn hash(text: &str) -> String {
    Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// The name of a tenant, or what stands for a long one.
pub(crate) fn short_tenant(tenant: &Arc<str>) -> Arc<str> {
    match tenant.len() <= TENANT_NAME_BYTES_MAX {
        true => tenant.clone(),
        false => hash(tenant).into(),
    }
}

/// What is kept of a manifest; `None` if it is no text.
pub(crate) fn kept_content(manifest: &[u8], tenant: &str) -> Option<Value> {
    std::str::from_utf8(manifest).ok().map(|text| json!({ MANIFEST: text, TENANT: tenant }))
}

/// The tenant of a kept manifest.
pub(crate) fn kept_tenant(content: &Value) -> Arc<str> {
    short_tenant(&Arc::<str>::from(content.get(TENANT).and_then(Value::as_str).unwrap_or_default()))
}

/// The text of a kept manifest; `None` if the content is another one.
pub(crate) fn kept_manifest(content: &Value) -> Option<&str> {
    content.get(MANIFEST).and_then(Value::as_str)
}

/// What a pod holds, but for the time at which it was seen, which is another one after each restart. Two pods are the same if
/// this is: a UID may be the author's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Its bytes as JSON.
    pub(crate) bytes: u64,
    /// The SHA-256 of them.
    digest: [u8; 32],
}

impl Held {
    /// What this pod holds. The work is for beside the actors' thread.
    pub(crate) fn by(pod: &Pod) -> Self {
        let mut pod = pod.clone();
        if let Some(annotations) = &mut pod.metadata.annotations {
            annotations.remove(CONFIG_SEEN_ANNOTATION);
        }
        let json = serde_json::to_vec(&pod).expect("a Pod has string keys only, hence is JSON");
        Self { bytes: json.len() as u64, digest: Sha256::digest(&json).into() }
    }
}

/// The kind of refusal of a manifest that could not be kept.
pub(crate) fn why_not_kept(error: &CheckpointError) -> WhyRefused {
    match error {
        CheckpointError::TooLarge { .. } => WhyRefused::TooLarge,
        CheckpointError::DiskFull { .. } => WhyRefused::Full,
        CheckpointError::Busy { .. } | CheckpointError::RuntimeGone { .. } => WhyRefused::Busy,
        CheckpointError::InvalidName { .. }
        | CheckpointError::Corrupt { .. }
        | CheckpointError::Io { .. } => WhyRefused::Failed,
    }
}

/// Whether a save that failed so may have left something on the disk.
pub(crate) fn may_be_kept(error: &CheckpointError) -> bool {
    matches!(error, CheckpointError::Io { .. } | CheckpointError::DiskFull { .. })
}

/// Why a kept manifest gives no pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    /// The manifest is wrong for this kubelet.
    Wrong,
    /// The manifest could not be read yet.
    Unread,
    /// A refused manifest may be there, since the disk has failed: it is to be removed.
    Doubtful,
}

/// What a pod counts for, and its tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// The tenant that has submitted it.
    pub(crate) tenant: Arc<str>,
    /// What the pod holds.
    pub(crate) held: Held,
}

#[derive(Debug)]
struct Kept {
    pod: SourcePod,
    size: Size,
}

/// The submitted pods.
#[derive(Debug, Default)]
pub(crate) struct Submitted {
    kept: BTreeMap<String, Kept>,
    /// Names of manifests on the disk that give no pod.
    without: BTreeMap<String, Without>,
    /// Names whose manifests are being written or removed, with the sizes of the pods that are written.
    changing: BTreeMap<String, Option<Size>>,
    under_way: usize,
    /// When a pod was withdrawn last. The pod may come back.
    withdrawn: BTreeMap<PodUid, Generation>,
    doubts: Doubts,
}

impl Submitted {
    /// No pods, but for the refused manifests that an earlier incarnation could not remove.
    pub(crate) fn after(doubts: Doubts) -> Self {
        let without = doubts.names().into_iter().map(|name| (name, Without::Doubtful)).collect();
        Self { without, doubts, ..Self::default() }
    }

    /// A submission or a withdrawal begins, unless there are too many.
    pub(crate) fn begin(&mut self) -> Result<(), SubmissionRefused> {
        if self.under_way >= UNDER_WAY_MAX {
            let text = format!("{UNDER_WAY_MAX} submissions and withdrawals of pods are under way");
            return Err(refused(WhyRefused::Busy, text));
        }
        self.under_way += 1;
        Ok(())
    }

    /// A submission or a withdrawal that has begun is over.
    pub(crate) fn end(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// Whether a pod of this size may be kept under this name; then its manifest counts as being written. The pod that is
    /// there already, if it is the same.
    pub(crate) fn admit(
        &mut self,
        name: &str,
        pod: &Pod,
        size: Size,
    ) -> Result<Option<Arc<Pod>>, SubmissionRefused> {
        let full_name = || PodRef::of(pod).full_name();
        self.not_changing(name, full_name)?;
        if let Some(known) = self.kept.get(name) {
            if known.size.held == size.held {
                return Ok(Some(known.pod.pod.clone()));
            }
            let text = format!("pod {} was submitted with another content", full_name());
            return Err(refused(WhyRefused::Conflict, text));
        }
        let uid = PodRef::of(pod).uid;
        if self.kept.values().any(|kept| PodRef::of(&kept.pod.pod).uid == uid) {
            let text = format!("the UID of pod {} is that of another submitted pod", full_name());
            return Err(refused(WhyRefused::Conflict, text));
        }
        let names: BTreeSet<&String> =
            self.kept.keys().chain(self.without.keys()).chain(self.changing.keys()).collect();
        if names.len() >= MANIFESTS_MAX && !self.without.contains_key(name) {
            return Err(refused(
                WhyRefused::Full,
                format!("{MANIFESTS_MAX} submitted pods are there already"),
            ));
        }
        if self.bytes().saturating_add(size.held.bytes) > MANIFESTS_BYTES_MAX {
            let text = format!("all submitted pods would have more than {MANIFESTS_BYTES_MAX} bytes as JSON");
            return Err(refused(WhyRefused::Full, text));
        }
        self.has_share_left(&size)?;
        self.changing.insert(name.to_owned(), Some(size));
        Ok(None)
    }

    /// Whether the tenant has at most half of everything, with a pod of this size.
    fn has_share_left(&self, size: &Size) -> Result<(), SubmissionRefused> {
        let tenant = &size.tenant;
        let own = || self.sizes().filter(move |one| one.tenant == *tenant);
        if own().count() >= TENANT_PODS_MAX {
            let text = format!(
                "{TENANT_PODS_MAX} pods submitted by {tenant:?} are there already, half of the {MANIFESTS_MAX} for all"
            );
            return Err(refused(WhyRefused::Full, text));
        }
        if own().map(|one| one.held.bytes).sum::<u64>().saturating_add(size.held.bytes) > TENANT_BYTES_MAX {
            let text = format!(
                "the pods submitted by {tenant:?} would have more than {TENANT_BYTES_MAX} bytes as JSON, half of those \
                 for all"
            );
            return Err(refused(WhyRefused::Full, text));
        }
        Ok(())
    }

    /// The sizes of all pods, with those that are being written.
    fn sizes(&self) -> impl Iterator<Item = &Size> {
        self.kept.values().map(|kept| &kept.size).chain(self.changing.values().flatten())
    }

    /// How many bytes all pods hold, with those that are being written.
    pub(crate) fn bytes(&self) -> u64 {
        self.sizes().map(|size| size.held.bytes).sum()
    }

    /// The manifest of a pod is on the disk.
    pub(crate) fn put(&mut self, name: &str, mut pod: SourcePod) -> Arc<Pod> {
        let size = self.changing.remove(name).flatten().unwrap_or_default();
        self.without.remove(name);
        self.doubts.remove(name);
        pod.made_anew = self.withdrawn.get(&PodRef::of(&pod.pod).uid).copied();
        let whole = pod.pod.clone();
        self.kept.insert(name.to_owned(), Kept { pod, size });
        whole
    }

    /// The manifest of a pod was found on the disk.
    pub(crate) fn found(&mut self, name: &str, pod: SourcePod, size: Size) {
        if !self.changing.contains_key(name) {
            self.without.remove(name);
            self.kept.insert(name.to_owned(), Kept { pod, size });
        }
    }

    /// The manifest of this name, which was written or removed, could not be; with `in_doubt` it is refused and may be on the disk.
    pub(crate) fn gave_up(&mut self, name: &str, in_doubt: bool) {
        self.changing.remove(name);
        if in_doubt {
            self.doubted(name);
            self.without.insert(name.to_owned(), Without::Doubtful);
        }
    }

    /// The manifest of this name is refused and may be on the disk, from which it is about to be removed.
    pub(crate) fn doubted(&self, name: &str) {
        self.doubts.insert(name);
    }

    /// The names of the refused manifests that may be on the disk.
    pub(crate) fn doubtful(&self) -> BTreeSet<String> {
        self.doubts.names()
    }

    /// A kept manifest is wrong.
    pub(crate) fn wrong(&mut self, name: &str) {
        self.without.insert(name.to_owned(), Without::Wrong);
    }

    /// A kept manifest cannot be read now. Whether that is new.
    pub(crate) fn unread(&mut self, name: &str) -> bool {
        self.without.insert(name.to_owned(), Without::Unread) != Some(Without::Unread)
    }

    /// Whether refused manifests may be on the disk.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.without.values().any(|why| *why == Without::Doubtful)
    }

    /// The refused manifests that may be on the disk and are not being changed, some at a time: they count as being removed.
    pub(crate) fn forget_doubtful(&mut self) -> Vec<String> {
        let doubtful = self.without.iter().filter(|(_, why)| **why == Without::Doubtful);
        let names = doubtful.map(|(name, _)| name).filter(|name| !self.changing.contains_key(*name));
        let names: Vec<String> = names.take(UNDER_WAY_MAX).cloned().collect();
        self.changing.extend(names.iter().map(|name| (name.clone(), None)));
        names
    }

    /// There is no manifest of this name any more: one that was to be read again, or that was refused.
    pub(crate) fn vanished(&mut self, name: &str) {
        self.changing.remove(name);
        self.without.remove(name);
        self.doubts.remove(name);
    }

    /// The kept manifests that could not be read, and are not being changed.
    pub(crate) fn to_read(&self) -> Vec<String> {
        let unread = self.without.iter().filter(|(_, why)| **why == Without::Unread);
        unread.map(|(name, _)| name).filter(|name| !self.changing.contains_key(*name)).cloned().collect()
    }

    /// Whether a manifest of this name still waits to be read.
    pub(crate) fn waits(&self, name: &str) -> bool {
        self.without.get(name) == Some(&Without::Unread) && !self.changing.contains_key(name)
    }

    /// A pod is to be withdrawn: of the names under which it may be kept the first that is there, whose manifest counts as
    /// being removed.
    pub(crate) fn withdraw(&mut self, names: &[String], pod: &str) -> Result<String, SubmissionRefused> {
        let is_there = |name: &&String| {
            let maps = self.kept.contains_key(*name) || self.without.contains_key(*name);
            maps || self.changing.contains_key(*name)
        };
        let Some(name) = names.iter().find(is_there).cloned() else {
            return Err(refused(WhyRefused::NotFound, format!("pod {pod} was not submitted")));
        };
        self.not_changing(&name, || pod.to_owned())?;
        self.changing.insert(name.clone(), None);
        Ok(name)
    }

    /// The manifest of this name was removed.
    pub(crate) fn remove(&mut self, name: &str, when: Generation) {
        self.vanished(name);
        let Some(kept) = self.kept.remove(name) else { return };
        self.withdrawn.insert(PodRef::of(&kept.pod.pod).uid, when);
        if self.withdrawn.len() > WITHDRAWN_MAX {
            let oldest = self.withdrawn.iter().min_by_key(|(_, when)| **when).map(|(uid, _)| uid.clone());
            oldest.map(|uid| self.withdrawn.remove(&uid));
        }
    }

    /// All pods.
    pub(crate) fn pods(&self) -> Vec<SourcePod> {
        self.kept.values().map(|kept| kept.pod.clone()).collect()
    }

    /// The number of manifests on the disk that give no pod.
    pub(crate) fn without_pod(&self) -> usize {
        self.without.len()
    }

    fn not_changing(&self, name: &str, pod: impl FnOnce() -> String) -> Result<(), SubmissionRefused> {
        match self.changing.contains_key(name) {
            true => Err(refused(WhyRefused::Busy, format!("pod {} is just being changed", pod()))),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifests::runnable;

    fn pod(name: &str, image: &str) -> Pod {
        let value = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "default", "uid": format!("uid-{name}"),
                "annotations": {CONFIG_SEEN_ANNOTATION: image},
            },
            "spec": {"containers": [{"name": "web", "image": image}]},
        });
        serde_json::from_value(value).unwrap()
    }

    fn name(pod: &str) -> String {
        kept_name("default", pod)
    }

    fn size(tenant: &str, bytes: u64) -> Size {
        Size { tenant: Arc::from(tenant), held: Held { bytes, ..Held::default() } }
    }

    fn keep(submitted: &mut Submitted, pod_name: &str) {
        keep_for(submitted, pod_name, "jane");
    }

    fn keep_for(submitted: &mut Submitted, pod_name: &str, tenant: &str) {
        let pod = pod(pod_name, "one");
        assert_eq!(submitted.admit(&name(pod_name), &pod, size(tenant, 10)), Ok(None));
        submitted.put(&name(pod_name), runnable(pod));
    }

    fn why<T: std::fmt::Debug>(result: Result<T, SubmissionRefused>) -> WhyRefused {
        result.unwrap_err().why
    }

    #[test]
    fn names_are_told_apart_and_short_enough() {
        assert_eq!(kept_name("default", "web-n1"), "submitted-pods/default_web-n1");
        let long = |last: &str| kept_name(&"n".repeat(63), &format!("{}{last}", "p".repeat(250)));
        for name in [long("a"), long("b"), kept_name("a", &"b".repeat(198)), kept_name("a", &"b".repeat(199))]
        {
            assert!(name.len() <= PREFIX.len() + NAME_BYTES_MAX, "{name}");
        }
        assert_ne!(long("a"), long("b"));
    }

    #[test]
    fn what_is_kept_is_the_text() {
        let content = kept_content(b"kind: Pod\n", "jane").unwrap();
        assert_eq!(kept_manifest(&content), Some("kind: Pod\n"));
        assert_eq!(&*kept_tenant(&content), "jane");
        assert_eq!(
            &*kept_tenant(&json!({MANIFEST: "kind: Pod"})),
            "",
            "as it was kept before there were tenants"
        );
        let long = short_tenant(&Arc::<str>::from("j".repeat(TENANT_NAME_BYTES_MAX + 1)));
        assert_eq!((long.len(), &short_tenant(&long)), (32, &long));
        assert_eq!(kept_content(b"\xff", "jane"), None);
        assert_eq!(kept_manifest(&json!(["kind: Pod"])), None);
    }

    #[test]
    fn the_same_pod_again_is_the_one_that_is_there_and_another_of_its_name_is_refused() {
        let mut submitted = Submitted::default();
        keep(&mut submitted, "a");
        let mut again = pod("a", "one");
        let later = Some([(CONFIG_SEEN_ANNOTATION.to_owned(), "later".to_owned())].into());
        again.metadata.annotations = later;
        let of = |pod: &Pod| Size { tenant: Arc::from("jane"), held: Held::by(pod) };
        submitted.found(&name("a"), runnable(pod("a", "one")), of(&pod("a", "one")));
        let known = submitted.admit(&name("a"), &again, of(&again)).unwrap().unwrap();
        assert_eq!(known, submitted.pods()[0].pod);
        let other = pod("a", "two");
        assert_eq!(other.metadata.uid, again.metadata.uid, "the author has chosen it");
        let refusal = submitted.admit(&name("a"), &other, of(&other)).unwrap_err();
        assert_eq!(refusal.why, WhyRefused::Conflict);
        assert_eq!(refusal.message, "pod a_default was submitted with another content");
        let mut twin = pod("b", "one");
        twin.metadata.uid = Some("uid-a".to_owned());
        assert_eq!(
            why(submitted.admit(&name("b"), &twin, of(&twin))),
            WhyRefused::Conflict,
            "its UID is taken"
        );
    }

    #[test]
    fn a_pod_is_changed_by_one_at_a_time() {
        let mut submitted = Submitted::default();
        assert_eq!(submitted.admit(&name("a"), &pod("a", "one"), size("jane", 10)), Ok(None));
        assert_eq!(why(submitted.admit(&name("a"), &pod("a", "one"), size("jane", 10))), WhyRefused::Busy);
        assert_eq!(why(submitted.withdraw(&[name("a")], "default/a")), WhyRefused::Busy);
        submitted.gave_up(&name("a"), false);
        assert_eq!(why(submitted.withdraw(&[name("a")], "default/a")), WhyRefused::NotFound);
        assert_eq!(submitted.admit(&name("a"), &pod("a", "one"), size("jane", 10)), Ok(None));
        for _ in 0..UNDER_WAY_MAX {
            submitted.begin().unwrap();
        }
        assert_eq!(why(submitted.begin()), WhyRefused::Busy);
        submitted.end();
        assert_eq!(submitted.begin(), Ok(()));
    }

    #[test]
    fn pods_and_their_bytes_are_bounded_with_those_that_are_being_written() {
        let mut submitted = Submitted::default();
        for number in 0..MANIFESTS_MAX {
            keep_for(&mut submitted, &format!("p{number}"), ["jane", "joe"][number % 2]);
        }
        assert_eq!(
            why(submitted.admit(&name("more"), &pod("more", "one"), size("jane", 1))),
            WhyRefused::Full
        );
        submitted.withdraw(&[name("p0")], "default/p0").unwrap();
        submitted.remove(&name("p0"), Generation { incarnation: 1, number: 1 });
        assert_eq!(submitted.admit(&name("more"), &pod("more", "one"), size("jane", 1)), Ok(None));

        let mut submitted = Submitted::default();
        for (one, bytes) in [("a", TENANT_BYTES_MAX), ("b", TENANT_BYTES_MAX - 5)] {
            assert_eq!(submitted.admit(&name(one), &pod(one, "one"), size(one, bytes)), Ok(None));
        }
        assert_eq!(why(submitted.admit(&name("c"), &pod("c", "one"), size("jane", 6))), WhyRefused::Full);
        assert_eq!(submitted.admit(&name("c"), &pod("c", "one"), size("jane", 5)), Ok(None));
    }

    #[test]
    fn a_tenant_has_at_most_half_of_the_pods_and_of_their_bytes() {
        let mut submitted = Submitted::default();
        for number in 0..MANIFESTS_MAX / 2 {
            keep_for(&mut submitted, &format!("p{number}"), "crowd");
        }
        let refusal = submitted.admit(&name("more"), &pod("more", "one"), size("crowd", 1)).unwrap_err();
        assert_eq!(refusal.why, WhyRefused::Full);
        let words = "512 pods submitted by \"crowd\" are there already, half of the 1024 for all";
        assert_eq!(refusal.message, words);
        let known = submitted.admit(&name("p0"), &pod("p0", "one"), size("crowd", 10));
        assert!(known.unwrap().is_some(), "what is there may be submitted again");
        keep_for(&mut submitted, "other", "jane");
        submitted.withdraw(&[name("p0")], "default/p0").unwrap();
        assert_eq!(
            why(submitted.admit(&name("more"), &pod("more", "one"), size("crowd", 1))),
            WhyRefused::Full
        );
        submitted.remove(&name("p0"), Generation { incarnation: 1, number: 1 });
        assert_eq!(submitted.admit(&name("more"), &pod("more", "one"), size("crowd", 1)), Ok(None));

        let mut submitted = Submitted::default();
        submitted.found(&name("a"), runnable(pod("a", "one")), size("crowd", MANIFESTS_BYTES_MAX / 2 - 5));
        let refusal = submitted.admit(&name("b"), &pod("b", "one"), size("crowd", 6)).unwrap_err();
        assert_eq!(refusal.why, WhyRefused::Full);
        assert!(
            refusal.message.contains("\"crowd\" would have more than 33554432 bytes"),
            "{}",
            refusal.message
        );
        assert_eq!(submitted.admit(&name("b"), &pod("b", "one"), size("jane", 6)), Ok(None));
    }

    #[test]
    fn a_pod_that_comes_back_is_made_anew() {
        let when = |number| Generation { incarnation: 1, number };
        let mut submitted = Submitted::default();
        keep(&mut submitted, "a");
        assert_eq!(submitted.pods()[0].made_anew, None);
        let names = [name("other"), name("a")];
        assert_eq!(submitted.withdraw(&names, "default/a"), Ok(name("a")));
        submitted.remove(&name("a"), when(7));
        assert!(submitted.pods().is_empty());
        keep(&mut submitted, "a");
        assert_eq!(submitted.pods()[0].made_anew, Some(when(7)));
        for number in 8..1_100 {
            let name_of = format!("p{number}");
            keep(&mut submitted, &name_of);
            submitted.withdraw(&[name(&name_of)], "default/p").unwrap();
            submitted.remove(&name(&name_of), when(number));
        }
        assert_eq!(submitted.withdrawn.len(), WITHDRAWN_MAX);
        assert!(!submitted.withdrawn.contains_key(&PodUid::new("uid-a")), "the oldest are forgotten");
    }

    #[test]
    fn a_manifest_without_a_pod_takes_its_place_and_can_be_withdrawn_or_replaced() {
        let mut submitted = Submitted::default();
        submitted.wrong(&name("a"));
        assert!(submitted.unread(&name("b")) && !submitted.unread(&name("b")), "told once");
        submitted.gave_up(&name("c"), true);
        assert_eq!(submitted.to_read(), [name("b")]);
        assert_eq!((submitted.without_pod(), submitted.pods().len()), (3, 0));
        assert_eq!(submitted.withdraw(&[name("a")], "default/a"), Ok(name("a")));
        submitted.remove(&name("a"), Generation { incarnation: 1, number: 1 });
        assert_eq!(submitted.admit(&name("b"), &pod("b", "one"), size("jane", 10)), Ok(None));
        assert!(submitted.to_read().is_empty() && !submitted.waits(&name("b")), "it is being written");
        submitted.found(&name("b"), runnable(pod("b", "old")), size("jane", 10));
        submitted.put(&name("b"), runnable(pod("b", "one")));
        assert_eq!(submitted.pods()[0].pod.as_ref(), &pod("b", "one"), "what was read before is older");
        assert_eq!((submitted.is_in_doubt(), submitted.forget_doubtful()), (true, vec![name("c")]));
        assert!(submitted.forget_doubtful().is_empty(), "it is being removed");
        assert_eq!(why(submitted.admit(&name("c"), &pod("c", "one"), size("jane", 10))), WhyRefused::Busy);
        submitted.gave_up(&name("c"), true);
        assert_eq!(submitted.forget_doubtful(), [name("c")], "and again");
        submitted.vanished(&name("c"));
        assert_eq!((submitted.without_pod(), submitted.is_in_doubt()), (0, false));
        assert_eq!(submitted.admit(&name("c"), &pod("c", "one"), size("jane", 10)), Ok(None));
    }
}
