//! Devices that pods of the node share: each has one piece of work at a time that concerns all of its pods, and its pods are known from the moment at which
//! they are about to use it. This lies beside the actor, so that a new incarnation knows it; after a restart of the kubelet the
//! disk and the mounts tell the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_io::{Keys, watch};
use messages::PodUid;
use pod_spec::quantity::Quantity;
use tokio::time::Instant;

/// A device that is mounted once for all pods of the node, by a name that begins with its kind's plugin and a slash.
pub(crate) type Device = String;

type Users = BTreeMap<Device, BTreeSet<PodUid>>;
/// A device that is mounted for the node, or for a pod.
type Begun = (Device, Option<PodUid>);
/// An SELinux label and the pods that want it.
type Label = (String, BTreeSet<PodUid>);

/// The devices of the node. Cheap to clone; clones are the same.
#[derive(Clone, Debug)]
pub struct Devices {
    turns: Keys,
    users: Arc<watch::Sender<Users>>,
    /// Devices that this process has mounted for the node.
    staged: Arc<watch::Sender<BTreeSet<Device>>>,
    /// What this process has begun, and was not there before: to mount a device for the node, or for a pod.
    begun: Arc<watch::Sender<BTreeSet<Begun>>>,
    /// Whether volumes of pods are shown anew from time to time.
    renewed: Arc<watch::Sender<BTreeMap<PodUid, BTreeMap<Device, bool>>>>,
    /// The SELinux labels of volumes, and the pods that want them so.
    labels: Arc<watch::Sender<BTreeMap<Device, Label>>>,
    /// What is known of the sizes of pods' PersistentVolumes, by the volume's name.
    sizes: Arc<watch::Sender<BTreeMap<PodUid, BTreeMap<String, Sized>>>>,
}

/// What is known of the size of a volume of a pod (row 10.25).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// Its size as it was told first, or as it was made since; `None` before it was looked at.
    pub size: Option<Quantity>,
    /// The driver does not expand it while it is in use: the node asks no more.
    pub in_use: bool,
    /// The last try has failed for sure.
    pub failed: bool,
}

/// When a volume that could not be made larger is tried again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    /// The delay after the last failure.
    pub delay: Duration,
    /// Its end.
    pub until: Instant,
}

/// What is known of the size of a volume, and when its next expansion is due.
#[derive(Clone, Debug, Default)]
struct Sized {
    known: Known,
    pause: Option<Pause>,
}

/// What was known of the SELinux label of a volume before a pod wanted one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Labelled {
    /// No pod had the volume.
    First,
    /// Pods had it with the same label, or the pod had it already.
    Agreed,
    /// Pods have it with this label.
    Otherwise(String),
}

impl Default for Devices {
    fn default() -> Self {
        Self {
            turns: Keys::default(),
            users: Arc::new(watch::Sender::new(Users::new())),
            staged: Arc::new(watch::Sender::new(BTreeSet::new())),
            begun: Arc::new(watch::Sender::new(BTreeSet::new())),
            renewed: Arc::new(watch::Sender::new(BTreeMap::new())),
            labels: Arc::new(watch::Sender::new(BTreeMap::new())),
            sizes: Arc::new(watch::Sender::new(BTreeMap::new())),
        }
    }
}

/// The right to work on a device, until it is dropped.
#[must_use = "the device is worked on for as long as this is kept"]
pub(crate) struct Turn {
    devices: Devices,
    device: Device,
    _held: bridge_io::Turn,
}

impl Devices {
    /// Waits for the turn to work on a device: turns come in the order in which they were asked for.
    pub(crate) async fn turn(&self, device: &str) -> Turn {
        let held = self.turns.turn(device.to_owned()).await;
        Turn { devices: self.clone(), device: device.to_owned(), _held: held }
    }

    /// The pod uses the device, until it leaves. A pod that is about to use it joins in its turn.
    pub(crate) fn join(&self, device: &str, uid: &PodUid) {
        self.users.send_modify(|users| {
            users.entry(device.to_owned()).or_default().insert(uid.clone());
        });
    }

    /// Whether a pod uses the device or is about to.
    pub(crate) fn is_used(&self, device: &str) -> bool {
        self.users.borrow().contains_key(device)
    }

    /// Whether another pod uses the device or is about to.
    pub(crate) fn is_used_by_another(&self, device: &str, uid: &PodUid) -> bool {
        self.users.borrow().get(device).is_some_and(|users| users.iter().any(|user| user != uid))
    }

    /// Whether the pod has volumes that are shown anew from time to time.
    pub(crate) fn renews_any(&self, uid: &PodUid) -> bool {
        self.renewed.borrow().get(uid).is_some_and(|volumes| volumes.values().any(|renews| *renews))
    }

    /// Whether a volume of the pod is shown anew from time to time; `None` if that is not known.
    pub(crate) fn renews(&self, uid: &PodUid, device: &str) -> Option<bool> {
        self.renewed.borrow().get(uid)?.get(device).copied()
    }

    /// Notes of one volume of the pod whether it is shown anew from time to time.
    pub(crate) fn set_renews(&self, uid: &PodUid, device: &str, renews: bool) {
        self.renewed.send_modify(|renewed| {
            renewed.entry(uid.clone()).or_default().insert(device.to_owned(), renews);
        });
    }

    /// Notes the SELinux label that the pod wants for the volume, until the pod leaves. Other pods may have it with another
    /// label: then that one is returned, and stays, and the pod is noted only if it `yields`.
    pub(crate) fn want_label(&self, volume: &str, uid: &PodUid, label: &str, yields: bool) -> Labelled {
        let mut found = Labelled::Agreed;
        self.labels.send_modify(|labels| {
            let (noted, pods) = labels.entry(volume.to_owned()).or_insert_with(|| {
                found = Labelled::First;
                (label.to_owned(), BTreeSet::new())
            });
            if !pods.contains(uid) && noted != label {
                found = Labelled::Otherwise(noted.clone());
            }
            if noted == label || yields {
                pods.insert(uid.clone());
            }
        });
        found
    }

    fn sized(&self, uid: &PodUid, name: &str) -> Sized {
        self.sizes.borrow().get(uid).and_then(|volumes| volumes.get(name)).cloned().unwrap_or_default()
    }

    fn set_sized(&self, uid: &PodUid, name: &str, change: impl FnOnce(&mut Sized)) {
        self.sizes.send_modify(|sizes| {
            change(sizes.entry(uid.clone()).or_default().entry(name.to_owned()).or_default());
        });
    }

    /// What is known of the size of a pod's PersistentVolume.
    pub(crate) fn expansion(&self, uid: &PodUid, name: &str) -> Known {
        self.sized(uid, name).known
    }

    /// Notes what is known of the size of a pod's PersistentVolume, until the pod leaves.
    pub(crate) fn set_expansion(&self, uid: &PodUid, name: &str, known: Known) {
        self.set_sized(uid, name, |sized| sized.known = known);
    }

    /// When a volume that could not be made larger is tried again.
    pub(crate) fn pause(&self, uid: &PodUid, name: &str) -> Option<Pause> {
        self.sized(uid, name).pause
    }

    /// Notes when a volume that could not be made larger is tried again; `None`: it could be.
    pub(crate) fn set_pause(&self, uid: &PodUid, name: &str, pause: Option<Pause>) {
        self.set_sized(uid, name, |sized| sized.pause = pause);
    }

    /// Notes that the device is being mounted, for the node or for a pod, and is not there yet.
    pub(crate) fn begin(&self, device: &str, uid: Option<&PodUid>) {
        self.begun.send_modify(|begun| {
            begun.insert((device.to_owned(), uid.cloned()));
        });
    }

    /// Whether this process has begun to mount the device, which was not there before; from then on it is not new any longer.
    pub(crate) fn has_begun(&self, device: &str, uid: Option<&PodUid>) -> bool {
        self.begun.borrow().contains(&(device.to_owned(), uid.cloned()))
    }

    /// Notes that the device is there, or that nothing of it is.
    pub(crate) fn finish(&self, device: &str, uid: Option<&PodUid>) {
        self.begun.send_if_modified(|begun| begun.remove(&(device.to_owned(), uid.cloned())));
    }

    /// The pod uses this device no longer; others of its devices stay its own.
    pub(crate) fn leave_one(&self, device: &str, uid: &PodUid) {
        self.users.send_modify(|users| {
            if let Some(pods) = users.get_mut(device)
                && pods.remove(uid)
                && pods.is_empty()
            {
                users.remove(device);
            }
        });
    }

    /// The pods that use devices.
    pub(crate) fn pods(&self) -> BTreeSet<PodUid> {
        self.users.borrow().values().flatten().cloned().collect()
    }

    /// The pod uses no device any longer; returns those that it used.
    pub(crate) fn leave(&self, uid: &PodUid) -> Vec<Device> {
        let mut left = Vec::new();
        self.renewed.send_if_modified(|renewed| renewed.remove(uid).is_some());
        self.sizes.send_if_modified(|sizes| sizes.remove(uid).is_some());
        self.labels.send_modify(|labels| {
            labels.retain(|_, (_, pods)| !(pods.remove(uid) && pods.is_empty()));
        });
        self.begun.send_modify(|begun| begun.retain(|(_, pod)| pod.as_ref() != Some(uid)));
        self.users.send_modify(|users| {
            for (device, users) in users.iter_mut() {
                if users.remove(uid) {
                    left.push(device.clone());
                }
            }
            users.retain(|_, users| !users.is_empty());
        });
        left
    }
}

impl Turn {
    /// The pod is about to use the device, until it leaves.
    pub fn joined_by(&self, uid: &PodUid) {
        self.devices.join(&self.device, uid);
    }

    /// Whether this process has mounted the device for the node.
    pub fn is_staged(&self) -> bool {
        self.devices.staged.borrow().contains(&self.device)
    }

    /// Notes whether the device is mounted for the node.
    pub fn set_staged(&self, is_staged: bool) {
        self.devices.staged.send_modify(|staged| {
            if is_staged {
                staged.insert(self.device.clone());
            } else {
                staged.remove(&self.device);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_device_has_one_piece_of_work_at_a_time_and_nothing_is_left_of_it() {
        let devices = Devices::default();
        let first = devices.turn("a").now_or_never().expect("it is free");
        assert!(devices.turn("b").now_or_never().is_some(), "another device is another's");
        let mut second = Box::pin(devices.turn("a"));
        assert!(second.as_mut().now_or_never().is_none());
        first.set_staged(true);
        drop(first);
        let second = second.now_or_never().expect("its turn has come");
        assert!(second.is_staged());
        second.set_staged(false);
        drop(second);
        assert!(devices.staged.borrow().is_empty());
    }

    #[test]
    fn the_label_of_a_volume_is_that_of_its_first_pod_until_all_have_left() {
        let (devices, one, other) = (Devices::default(), PodUid::new("1"), PodUid::new("2"));
        let want = |uid, label, yields| devices.want_label("v", uid, label, yields);
        assert_eq!(want(&one, "a", false), Labelled::First);
        assert_eq!(want(&one, "a", false), Labelled::Agreed);
        let otherwise = Labelled::Otherwise("a".to_owned());
        assert_eq!(
            [want(&other, "b", false), want(&other, "b", false)],
            [otherwise.clone(), otherwise.clone()]
        );
        assert_eq!([want(&other, "b", true), want(&other, "b", true)], [otherwise, Labelled::Agreed]);
        devices.leave(&one);
        assert_eq!(want(&one, "b", false), Labelled::Otherwise("a".to_owned()), "the other has it still");
        devices.leave(&other);
        assert_eq!(want(&other, "b", false), Labelled::First);
        devices.leave(&other);
        assert!(devices.labels.borrow().is_empty());
    }

    #[test]
    fn a_device_is_used_until_its_last_pod_leaves() {
        let (devices, one, other) = (Devices::default(), PodUid::new("1"), PodUid::new("2"));
        for uid in [&one, &other] {
            devices.turn("a").now_or_never().expect("it is free").joined_by(uid);
        }
        assert_eq!(devices.leave(&one), ["a"]);
        assert!(devices.is_used("a"));
        assert_eq!(devices.leave(&one), Vec::<Device>::new());
        assert_eq!(devices.leave(&other), ["a"]);
        assert!(!devices.is_used("a") && devices.users.borrow().is_empty());
    }
}
