//! Volumes that the cluster's controller attaches to this node (row 10.2): what the Node has to report in use before such a
//! volume is touched, and what the Node says of it; and the drivers that are still to be taken out of the CSINode. This lies
//! beside the actor, so that work under way sees what the actor hears, and a new incarnation knows what is still to be told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_io::watch;
use futures::Stream;
use k8s_openapi::api::core::v1::Node;
use messages::PodUid;
use messages::facts::OtherVolumesObserved;

/// What pods want.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wanted {
    names: BTreeMap<PodUid, BTreeSet<String>>,
    undone: Undone,
}

/// What is undone, until a look at the directories has confirmed it. It outlives the incarnation that has undone it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Undone {
    /// Pods whose volumes are undone.
    pods: BTreeSet<PodUid>,
    /// Volumes that are undone of pods of which others are not yet.
    parts: BTreeSet<(PodUid, String)>,
}

/// What the Node says of volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Told {
    in_use: BTreeSet<String>,
    attached: BTreeSet<String>,
    /// Of those in use, the ones that the Node has to report no longer. That they are attached is not believed: the
    /// controller may be about to detach them.
    leaving: BTreeSet<String>,
    /// The names that NodeStatus was told, and that the Node has not had in use since: a write of them may be under way.
    unseen: BTreeSet<String>,
    /// Whether a Node has been heard of.
    is_heard: bool,
    /// What was told each time before a Node was heard of; of all else that it has in use the removal may be under way.
    always: Option<OtherVolumesObserved>,
}

/// What both tell.
fn common(one: &OtherVolumesObserved, other: &OtherVolumesObserved) -> OtherVolumesObserved {
    let both = |one: &BTreeSet<String>, other: &BTreeSet<String>| -> Arc<BTreeSet<String>> {
        Arc::new(one.intersection(other).cloned().collect())
    };
    OtherVolumesObserved {
        names: both(&one.names, &other.names),
        plugins: both(&one.plugins, &other.plugins),
        own: both(&one.own, &other.own),
    }
}

/// The attachable volumes that pods of this node want. Cheap to clone; clones are the same.
#[derive(Clone, Debug)]
pub struct Attachments {
    wanted: Arc<watch::Sender<Wanted>>,
    told: Arc<watch::Sender<Told>>,
    node: Arc<watch::Sender<Option<Arc<Node>>>>,
    /// Pods whose volumes are to be undone: nothing is awaited for them.
    ending: Arc<watch::Sender<BTreeSet<PodUid>>>,
    /// Drivers that are gone, and that the CSINode may still name.
    gone_drivers: Arc<watch::Sender<BTreeSet<String>>>,
}

impl Default for Attachments {
    fn default() -> Self {
        Self {
            wanted: Arc::new(watch::Sender::new(Wanted::default())),
            told: Arc::new(watch::Sender::new(Told::default())),
            node: Arc::new(watch::Sender::new(None)),
            ending: Arc::new(watch::Sender::new(BTreeSet::new())),
            gone_drivers: Arc::new(watch::Sender::new(BTreeSet::new())),
        }
    }
}

impl Attachments {
    /// The pod wants a volume by the name that Nodes report, also if it was undone before.
    pub(crate) fn want(&self, uid: &PodUid, name: &str) {
        self.wanted.send_if_modified(|wanted| {
            wanted.undone.pods.remove(uid);
            wanted.undone.parts.remove(&(uid.clone(), name.to_owned()));
            wanted.names.entry(uid.clone()).or_default().insert(name.to_owned())
        });
    }

    /// The pod is about to end: what waits for its volumes gives up.
    pub(crate) fn give_up(&self, uid: &PodUid) {
        self.ending.send_if_modified(|ending| ending.insert(uid.clone()));
    }

    /// The pod's volumes are undone, or wanted again.
    pub(crate) fn begin_anew(&self, uid: &PodUid) {
        self.ending.send_if_modified(|ending| ending.remove(uid));
    }

    /// The pod's volumes are undone: a look at the directories has to confirm it.
    pub(crate) fn undone(&self, uid: &PodUid) {
        self.wanted.send_if_modified(|wanted| {
            if wanted.names.contains_key(uid) {
                wanted.undone.pods.insert(uid.clone());
            }
            false
        });
    }

    /// This volume of the pod is undone, while others of it are not.
    pub(crate) fn undone_part(&self, uid: &PodUid, name: &str) {
        self.wanted.send_if_modified(|wanted| {
            if wanted.names.get(uid).is_some_and(|names| names.contains(name)) {
                wanted.undone.parts.insert((uid.clone(), name.to_owned()));
            }
            false
        });
    }

    /// What the next look confirms.
    pub(crate) fn to_confirm(&self) -> Undone {
        self.wanted.borrow().undone.clone()
    }

    /// A look has succeeded that began when this was undone: it is wanted no longer, but for what has been wanted again since,
    /// and for pods that are `kept`.
    pub(crate) fn confirm(&self, looked: &Undone, kept: impl Fn(&PodUid) -> bool) {
        self.wanted.send_if_modified(|wanted| {
            let Wanted { names, undone } = wanted;
            let mut changes = false;
            for uid in &looked.pods {
                if undone.pods.remove(uid) && !kept(uid) {
                    changes |= names.remove(uid).is_some();
                }
            }
            for part in &looked.parts {
                let (uid, name) = part;
                if undone.parts.remove(part)
                    && let Some(left) = names.get_mut(uid)
                {
                    changes |= left.remove(name);
                    if left.is_empty() {
                        names.remove(uid);
                    }
                }
            }
            changes
        });
    }

    /// These pods want no volume any longer.
    pub(crate) fn forget(&self, uids: &BTreeSet<PodUid>) {
        self.wanted.send_if_modified(|wanted| {
            let before = wanted.names.len();
            wanted.names.retain(|uid, _| !uids.contains(uid));
            wanted.names.len() != before
        });
    }

    /// Whether a pod wants a volume.
    pub(crate) fn wants(&self, uid: &PodUid) -> bool {
        self.wanted.borrow().names.contains_key(uid)
    }

    /// The pods that want volumes.
    pub(crate) fn pods(&self) -> BTreeSet<PodUid> {
        self.wanted.borrow().names.keys().cloned().collect()
    }

    /// The names of the volumes that pods want.
    fn names(&self) -> BTreeSet<String> {
        self.wanted.borrow().names.values().flatten().cloned().collect()
    }

    /// The names that the Node has to report in use since pods want them, beside what was `found` in directories. A name that
    /// the Node has to report no longer leaves it altogether before it is told anew: what the Node says of the volume until
    /// then is older than the wish. And a name that was told is told until the Node has it: else it could come into the Node by
    /// one write and leave it by the next while a pod that wants it again believes the Node as it was between them.
    pub(crate) fn to_tell(&self, found: &OtherVolumesObserved) -> BTreeSet<String> {
        let mut own = self.names();
        self.told.send_if_modified(|told| {
            let before = std::mem::take(&mut told.leaving);
            own.retain(|name| !before.contains(name) || found.has(name));
            own.extend(std::mem::take(&mut told.unseen).into_iter().filter(|name| !found.has(name)));
            let leaves = |name: &&String| !own.contains(*name) && !found.has(name);
            told.leaving = told.in_use.iter().filter(leaves).cloned().collect();
            // NodeStatus writes what was found if it is attached.
            let written = own.iter().chain(told.attached.iter().filter(|name| found.has(name)));
            told.unseen = written.filter(|name| !told.in_use.contains(*name)).cloned().collect();
            if !told.is_heard {
                let now = OtherVolumesObserved { own: Arc::new(own.clone()), ..found.clone() };
                told.always = Some(told.always.take().map_or(now.clone(), |always| common(&always, &now)));
            }
            told.leaving != before
        });
        own
    }

    /// An item for each change of what pods want.
    pub(crate) fn changes(&self) -> impl Stream<Item = ()> + Send + 'static {
        let changes = self.wanted.subscribe();
        futures::stream::unfold(changes, |mut changes| async move {
            changes.changed().await.ok()?;
            Some(((), changes))
        })
    }

    /// Takes what the Node says; `None`: there is none.
    pub(crate) fn learn(&self, node: Option<Arc<Node>>) {
        let status = node.as_ref().and_then(|node| node.status.as_ref());
        let in_use: BTreeSet<String> =
            status.iter().flat_map(|status| status.volumes_in_use.iter().flatten()).cloned().collect();
        let attached = status.iter().flat_map(|status| status.volumes_attached.iter().flatten());
        let attached: BTreeSet<String> = attached.map(|volume| volume.name.clone()).collect();
        self.told.send_if_modified(|before| {
            let always = before.always.clone();
            let leaving = match &always {
                Some(always) if node.is_some() => {
                    let may_leave = |name: &&String| !always.own.contains(*name) && !always.has(name);
                    in_use.iter().filter(may_leave).cloned().collect()
                }
                _ => before.leaving.intersection(&in_use).cloned().collect(),
            };
            let unseen = before.unseen.difference(&in_use).cloned().collect();
            let is_heard = before.is_heard || node.is_some();
            let always = always.filter(|_| !is_heard);
            let told = Told { in_use, attached, leaving, unseen, is_heard, always };
            let differs = *before != told;
            *before = told;
            differs
        });
        replace(&self.node, node);
    }

    /// The driver is gone, and the CSINode may still name it.
    pub(crate) fn driver_is_gone(&self, driver: &str) {
        self.gone_drivers.send_modify(|gone| {
            gone.insert(driver.to_owned());
        });
    }

    /// The CSINode does not name the driver, or the driver has come back.
    pub(crate) fn driver_is_settled(&self, driver: &str) {
        self.gone_drivers.send_if_modified(|gone| gone.remove(driver));
    }

    /// The drivers that are gone, and that the CSINode may still name.
    pub(crate) fn gone_drivers(&self) -> BTreeSet<String> {
        self.gone_drivers.borrow().clone()
    }

    /// The Node, which may have to be awaited after a start; `None` if there is none by the end of the time.
    pub(crate) async fn node(&self, within: Duration) -> Option<Arc<Node>> {
        let mut node = self.node.subscribe();
        let there = tokio::time::timeout(within, node.wait_for(Option::is_some)).await.ok()?.ok()?;
        there.clone()
    }

    /// The path of the device that the Node reports for the volume; empty if it reports none.
    pub(crate) fn device_path(&self, name: &str) -> String {
        let node = self.node.borrow();
        let status = node.as_ref().and_then(|node| node.status.as_ref());
        let mut attached = status.into_iter().flat_map(|status| status.volumes_attached.iter().flatten());
        let found = attached.find(|volume| volume.name == name);
        found.map(|volume| volume.device_path.clone()).unwrap_or_default()
    }

    /// Waits until the Node reports the volume in use and attached.
    ///
    /// # Errors
    /// Upstream's words for what is missing when the time is over, or the pod is to end.
    pub(crate) async fn attached(
        &self,
        uid: &PodUid,
        name: &str,
        within: Duration,
    ) -> Result<(), &'static str> {
        let (mut told, mut ending) = (self.told.subscribe(), self.ending.subscribe());
        let is_in_use = |told: &Told| told.in_use.contains(name) && !told.leaving.contains(name);
        let is_there = |told: &Told| is_in_use(told) && told.attached.contains(name);
        let waited = async {
            tokio::select! {
                biased;
                told = told.wait_for(is_there) => told.is_ok(),
                _ = ending.wait_for(|ending| ending.contains(uid)) => false,
            }
        };
        let waited = tokio::time::timeout(within, waited).await.unwrap_or(false);
        if waited {
            Ok(())
        } else if is_in_use(&self.told.borrow()) {
            Err("Volume not attached according to node status")
        } else {
            Err("Volume has not been added to the list of VolumesInUse in the node's volume status")
        }
    }
}

/// A sender's value, whose receivers wake only when it differs.
fn replace<T: PartialEq>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|before| {
        let differs = *before != value;
        *before = value;
        differs
    });
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};

    use super::*;

    fn node(status: serde_json::Value) -> Option<Arc<Node>> {
        let node = serde_json::json!({"metadata": {}, "status": status});
        Some(Arc::new(serde_json::from_value(node).expect("a Node")))
    }

    /// A Node that has the volume attached, and perhaps in use.
    fn learn(attachments: &Attachments, name: &str, is_in_use: bool) {
        let names: Vec<&str> = is_in_use.then_some(name).into_iter().collect();
        let attached = serde_json::json!([{"name": name, "devicePath": ""}]);
        attachments.learn(node(serde_json::json!({"volumesInUse": names, "volumesAttached": attached})));
    }

    fn found(names: &[&str]) -> OtherVolumesObserved {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        OtherVolumesObserved { names: Arc::new(names), ..OtherVolumesObserved::default() }
    }

    #[test]
    fn a_volume_is_wanted_while_a_pod_wants_it_and_each_change_is_told_once() {
        let attachments = Attachments::default();
        let mut changes = Box::pin(attachments.changes());
        let (one, other) = (PodUid::new("1"), PodUid::new("2"));
        attachments.want(&one, "a");
        attachments.want(&other, "a");
        assert_eq!(changes.next().now_or_never(), Some(Some(())));
        attachments.want(&other, "a");
        attachments.forget(&[PodUid::new("3")].into());
        assert_eq!(changes.next().now_or_never(), None, "nothing has changed");
        attachments.forget(&[one].into());
        assert_eq!(attachments.names(), ["a".to_owned()].into());
        attachments.want(&other, "b");
        attachments.undone_part(&other, "b");
        attachments.confirm(&attachments.to_confirm(), |_| true);
        assert_eq!(attachments.names(), ["a".to_owned()].into());
        attachments.forget(&[other].into());
        assert_eq!(attachments.names(), BTreeSet::new());
        assert_eq!(changes.next().now_or_never(), Some(Some(())));
    }

    #[test]
    fn what_is_undone_is_wanted_until_a_look_has_confirmed_it() {
        let attachments = Attachments::default();
        let (one, other) = (PodUid::new("1"), PodUid::new("2"));
        attachments.undone(&one);
        assert_eq!(attachments.to_confirm(), Undone::default(), "it has wanted nothing");
        attachments.want(&one, "a");
        attachments.want(&other, "b");
        for uid in [&one, &other] {
            attachments.undone(uid);
        }
        let looked = attachments.to_confirm();
        assert_eq!(attachments.pods(), [one.clone(), other.clone()].into());
        // A mount that began after the look did.
        attachments.want(&other, "b");
        attachments.confirm(&looked, |_| false);
        assert_eq!(attachments.pods(), [other.clone()].into());
        attachments.undone(&other);
        attachments.confirm(&attachments.to_confirm(), |uid| *uid == other);
        assert_eq!(attachments.pods(), [other].into(), "a worker has asked for it meanwhile");
        assert_eq!(attachments.to_confirm(), Undone::default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_leaves_the_node_before_it_is_told_anew_and_is_not_believed_until_then() {
        let attachments = Attachments::default();
        let (uid, name, within) = (PodUid::new("1"), "kubernetes.io/csi/d^1", Duration::from_secs(5));
        let in_use = |is_in_use: bool| learn(&attachments, name, is_in_use);
        let tells = |names: &[&str]| attachments.to_tell(&found(names)).contains(name);
        in_use(true);
        assert!(!tells(&[name]), "it was found, and no pod wants it");
        attachments.want(&uid, name);
        assert!(tells(&[name]) && tells(&[]), "it never had to leave");
        assert_eq!(attachments.attached(&uid, name, within).await, Ok(()));
        attachments.forget(&[uid.clone()].into());
        assert!(!tells(&[]));
        attachments.want(&uid, name);
        assert!(!tells(&[]), "the Node may be written without it");
        let missing = attachments.attached(&uid, name, within).await;
        assert_eq!(
            missing,
            Err("Volume has not been added to the list of VolumesInUse in the node's volume status")
        );
        in_use(false);
        assert!(tells(&[]));
        in_use(true);
        assert!(tells(&[]));
        assert_eq!(attachments.attached(&uid, name, within).await, Ok(()));
        attachments.forget(&[uid.clone()].into());
        assert!(!tells(&[]));
        attachments.want(&uid, name);
        assert!(tells(&[name]), "what is found again stays in use");
        assert_eq!(attachments.attached(&uid, name, within).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_comes_and_goes_while_the_node_is_written_is_told_until_the_node_has_it() {
        let (uid, name, within) = (PodUid::new("1"), "kubernetes.io/csi/d^1", Duration::from_secs(5));
        for is_found in [false, true] {
            let attachments = Attachments::default();
            let tells = |names: &[&str]| attachments.to_tell(&found(names)).contains(name);
            learn(&attachments, name, false);
            if is_found {
                assert!(!tells(&[name]), "it is told as what was found");
            } else {
                attachments.want(&uid, name);
                assert!(tells(&[]));
                attachments.forget(&[uid.clone()].into());
            }
            // NodeStatus is writing the name: without it in the next message it would write the Node once more.
            assert!(tells(&[]) && tells(&[]));
            attachments.want(&uid, name);
            assert!(tells(&[]));
            attachments.attached(&uid, name, within).await.unwrap_err();
            learn(&attachments, name, true);
            assert_eq!(attachments.attached(&uid, name, within).await, Ok(()), "no write takes it away");
            attachments.forget(&[uid.clone()].into());
            assert!(!tells(&[]), "the Node has had it");
            learn(&attachments, name, false);
            assert!(!tells(&[]));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_node_has_that_was_told_of_nothing_is_believed_only_if_it_was_always_told() {
        let (uid, name, within) = (PodUid::new("1"), "kubernetes.io/csi/d^1", Duration::from_secs(5));
        let attachments = Attachments::default();
        let tells = |names: &[&str]| attachments.to_tell(&found(names)).contains(name);
        assert!(!tells(&[]));
        attachments.want(&uid, name);
        assert!(tells(&[]));
        attachments.learn(None);
        // As an earlier kubelet has left it; NodeStatus may be taking the name out after the first message.
        learn(&attachments, name, true);
        assert!(attachments.attached(&uid, name, within).await.is_err() && !tells(&[]));
        learn(&attachments, name, false);
        assert!(tells(&[]));
        learn(&attachments, name, true);
        assert_eq!(attachments.attached(&uid, name, within).await, Ok(()));

        let attachments = Attachments::default();
        attachments.to_tell(&found(&[name]));
        attachments.want(&uid, name);
        attachments.to_tell(&found(&[name]));
        learn(&attachments, name, true);
        assert_eq!(attachments.attached(&uid, name, within).await, Ok(()), "it never had to leave");
    }

    #[tokio::test(start_paused = true)]
    async fn a_volume_is_awaited_until_the_node_has_it_in_use_and_attached() {
        let attachments = Attachments::default();
        let (uid, name, within) = (PodUid::new("1"), "kubernetes.io/csi/d^1", Duration::from_secs(5));
        let attached = serde_json::json!([{"name": name, "devicePath": ""}]);
        attachments.learn(node(serde_json::json!({"volumesAttached": attached.clone()})));
        let missing = attachments.attached(&uid, name, within).await;
        assert_eq!(
            missing,
            Err("Volume has not been added to the list of VolumesInUse in the node's volume status")
        );
        attachments.learn(node(serde_json::json!({"volumesInUse": [name]})));
        let missing = attachments.attached(&uid, name, within).await;
        assert_eq!(missing, Err("Volume not attached according to node status"));
        let mut waiting = Box::pin(attachments.attached(&uid, name, within));
        assert!(futures::poll!(&mut waiting).is_pending());
        attachments.learn(node(serde_json::json!({"volumesInUse": [name], "volumesAttached": attached})));
        assert_eq!(waiting.await, Ok(()));
        let mut waiting = Box::pin(attachments.attached(&uid, "another", within));
        assert!(futures::poll!(&mut waiting).is_pending());
        attachments.give_up(&uid);
        assert!(futures::poll!(&mut waiting).is_ready(), "nothing is awaited for a pod that ends");
        attachments.begin_anew(&uid);
        assert!(futures::poll!(Box::pin(attachments.attached(&uid, "another", within))).is_pending());
    }
}
