//! Volumes that the cluster's controller attaches to this node (row 10.2): what the Node has to report in use before such a
//! volume is touched, and what the Node says of it. This lies beside the actor, so that work under way sees what the actor
//! hears.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_io::watch;
use futures::Stream;
use k8s_openapi::api::core::v1::Node;
use messages::PodUid;

type Wanted = BTreeMap<PodUid, BTreeSet<String>>;

/// What the Node says of volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Told {
    in_use: BTreeSet<String>,
    attached: BTreeSet<String>,
}

/// The attachable volumes that pods of this node want. Cheap to clone; clones are the same.
#[derive(Clone, Debug)]
pub struct Attachments {
    wanted: Arc<watch::Sender<Wanted>>,
    told: Arc<watch::Sender<Told>>,
    node: Arc<watch::Sender<Option<Arc<Node>>>>,
    /// Pods whose volumes are to be undone: nothing is awaited for them.
    ending: Arc<watch::Sender<BTreeSet<PodUid>>>,
}

impl Default for Attachments {
    fn default() -> Self {
        Self {
            wanted: Arc::new(watch::Sender::new(Wanted::new())),
            told: Arc::new(watch::Sender::new(Told::default())),
            node: Arc::new(watch::Sender::new(None)),
            ending: Arc::new(watch::Sender::new(BTreeSet::new())),
        }
    }
}

impl Attachments {
    /// The pod wants a volume by the name that Nodes report.
    pub(crate) fn want(&self, uid: &PodUid, name: &str) {
        self.wanted.send_if_modified(|wanted| wanted.entry(uid.clone()).or_default().insert(name.to_owned()));
    }

    /// The pod is about to end: what waits for its volumes gives up.
    pub(crate) fn give_up(&self, uid: &PodUid) {
        self.ending.send_if_modified(|ending| ending.insert(uid.clone()));
    }

    /// The pod's volumes are undone, or wanted again.
    pub(crate) fn begin_anew(&self, uid: &PodUid) {
        self.ending.send_if_modified(|ending| ending.remove(uid));
    }

    /// These pods want no volume any longer.
    pub(crate) fn forget(&self, uids: &BTreeSet<PodUid>) {
        self.wanted.send_if_modified(|wanted| {
            let before = wanted.len();
            wanted.retain(|uid, _| !uids.contains(uid));
            wanted.len() != before
        });
    }

    /// This pod wants this volume no longer.
    pub(crate) fn forget_one(&self, uid: &PodUid, name: &str) {
        self.wanted.send_if_modified(|wanted| {
            let Some(names) = wanted.get_mut(uid) else { return false };
            let left = names.remove(name);
            if names.is_empty() {
                wanted.remove(uid);
            }
            left
        });
    }

    /// Whether a pod wants a volume.
    pub(crate) fn wants(&self, uid: &PodUid) -> bool {
        self.wanted.borrow().contains_key(uid)
    }

    /// The names of the volumes that pods want.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.wanted.borrow().values().flatten().cloned().collect()
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
        let told = status.map_or_else(Told::default, |status| Told {
            in_use: status.volumes_in_use.iter().flatten().cloned().collect(),
            attached: status.volumes_attached.iter().flatten().map(|volume| volume.name.clone()).collect(),
        });
        replace(&self.told, told);
        replace(&self.node, node);
    }

    /// The Node, which may have to be awaited after a start; `None` if there is none by the end of the time.
    pub(crate) async fn node(&self, within: Duration) -> Option<Arc<Node>> {
        let mut node = self.node.subscribe();
        let there = tokio::time::timeout(within, node.wait_for(Option::is_some)).await.ok()?.ok()?;
        there.clone()
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
        let is_there = |told: &Told| told.in_use.contains(name) && told.attached.contains(name);
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
        } else if self.told.borrow().in_use.contains(name) {
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
        attachments.forget_one(&other, "b");
        assert_eq!(attachments.names(), ["a".to_owned()].into());
        attachments.forget(&[other].into());
        assert_eq!(attachments.names(), BTreeSet::new());
        assert_eq!(changes.next().now_or_never(), Some(Some(())));
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
