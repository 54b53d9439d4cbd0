//! Directories of pods that are gone, and volumes of other kubelets' plugins.

use std::collections::BTreeSet;
use std::sync::Arc;

use bridge_node::host::OtherVolume;
use messages::PodUid;
use messages::event_recorder::EventObject;
use messages::facts::OtherVolumesObserved;
use supervision::Ctx;

use super::{MountAsker, Timer, UnmountAnswer, VolumeManager};
use crate::devices::Device;
use crate::operations::Kind;
use crate::orphans::{KeepReason, KnownPods, SweepPolicy};
use crate::sweep::{self, Looked};
use crate::{others, unmount};

impl VolumeManager {
    /// Looks for volumes of other kubelets' plugins, and tells the watchers of them.
    pub(super) fn look_for_others(&mut self, ctx: &mut Ctx<Self>) {
        if self.deps.others_watchers.is_empty() {
            // Without a cluster nothing is attached.
            return;
        }
        let look = unmount::found_volumes(self.deps.backends.clone(), None);
        let undone = self.deps.backends.attachments.to_confirm();
        ctx.effect("look for volumes of others", None, look, move |actor, found, ctx| match found {
            Ok(found) => {
                let gone = actor.left_unheard(&found);
                let (attachments, devices) = (&actor.deps.backends.attachments, &actor.deps.backends.devices);
                attachments.confirm(&undone, |uid| actor.asked_for.contains_key(uid));
                attachments.forget(&gone);
                let idle: BTreeSet<Device> = gone.iter().flat_map(|uid| devices.leave(uid)).collect();
                actor.found = Some(others::observed(&found));
                actor.tell_volumes(ctx);
                for device in idle {
                    actor.release(device, ctx);
                }
            }
            Err(error) => tracing::warn!(%error, "Cannot tell which volumes other kubelets have left"),
        });
    }

    /// The pods that want or use volumes and are gone, with all that was `found` of them: an earlier incarnation has undone
    /// them and did not hear of it.
    fn left_unheard(&self, found: &[OtherVolume]) -> BTreeSet<PodUid> {
        if !self.desired.is_complete() {
            return BTreeSet::new();
        }
        let is_busy = |uid: &PodUid| self.asked_for.contains_key(uid) || self.operations.contains_key(uid);
        let is_found = |uid: &PodUid| found.iter().any(|volume| volume.pod.as_deref() == Some(uid.as_str()));
        let mut pods = self.deps.backends.attachments.pods();
        pods.extend(self.deps.backends.devices.pods());
        pods.retain(|uid| self.desired.is_removed(uid) && !is_busy(uid) && !is_found(uid));
        pods
    }

    /// Tells the watchers which volumes are in use. Before the first look nothing is told: a volume of an earlier kubelet would
    /// be missing.
    pub(super) fn tell_volumes(&mut self, ctx: &mut Ctx<Self>) {
        let Some(found) = &self.found else { return };
        let own = Arc::new(self.deps.backends.attachments.to_tell(found));
        self.told_volumes.set(OtherVolumesObserved { own, ..found.clone() }, ctx);
    }

    /// Looks for orphaned directories, once every source has been heard.
    pub(super) fn sweep(&mut self, ctx: &mut Ctx<Self>) {
        if !self.desired.is_complete() {
            return ctx.set_timer(Timer::Sweep, self.deps.sweep.every);
        }
        let busy = self.asked_for.keys().chain(self.operations.keys());
        let known = self.desired.uids().chain(self.desired.unread_uids()).chain(busy).cloned().collect();
        let look = sweep::look(self.deps.backends.clone(), self.deps.held_pods.clone(), known);
        ctx.effect("look for orphans", None, look, |actor, looked, ctx| actor.looked(&looked, ctx));
    }

    fn looked(&mut self, looked: &Looked, ctx: &mut Ctx<Self>) {
        let uids = || self.desired.uids().chain(self.desired.unread_uids()).cloned().collect();
        let desired: Option<BTreeSet<PodUid>> = self.desired.is_complete().then(uids);
        let asked_for = self.asked_for.keys().chain(self.operations.keys()).cloned().collect();
        let known = KnownPods {
            desired: desired.as_ref(),
            in_runtime: looked.in_runtime.as_ref(),
            asked_for: &asked_for,
            mounts: &looked.mounts,
        };
        let pods_dir = self.deps.backends.pod_dirs.layout().pods();
        let verdicts = self.orphans.judge(&looked.unknown, &pods_dir, known, self.origin.elapsed());
        let waits = verdicts.values().any(|verdict| *verdict == Err(KeepReason::Recent));
        let SweepPolicy { every, quiet } = self.deps.sweep;
        ctx.set_timer(Timer::Sweep, if waits { quiet.min(every) } else { every });
        self.stuck.retain(|uid| looked.unknown.contains(uid));
        let orphans: Vec<PodUid> =
            verdicts.into_iter().filter(|(_, verdict)| verdict.is_ok()).map(|(uid, _)| uid).collect();
        self.deps.metrics.swept(orphans.len(), self.stuck.len());
        for uid in orphans {
            // The orphan of a quarantined pod is left out here, and found again by a later sweep.
            ctx.for_pod(&uid, |ctx| self.ask(uid.clone(), Kind::Unmount, MountAsker::Sweep, ctx));
        }
    }

    pub(super) fn swept(&mut self, uid: &PodUid, done: &UnmountAnswer) {
        match done {
            Ok(()) => tracing::info!(pod = %uid, "removed what was left of a pod that is gone"),
            Err(error) if self.stuck.insert(uid.clone()) => {
                let message = format!(
                    "orphaned pod {:?} found, but its directory cannot be removed: {}",
                    uid.as_str(),
                    error.message
                );
                self.tell_event(EventObject::Node, "FailedOrphanedPodCleanup", message);
            }
            Err(_) => {}
        }
    }
}
