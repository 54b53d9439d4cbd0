//! Directories of pods that are gone, and volumes of other kubelets' plugins.

use std::collections::BTreeSet;

use messages::PodUid;
use messages::event_recorder::EventObject;
use supervision::Ctx;

use super::{MountAsker, Timer, UnmountAnswer, VolumeManager};
use crate::operations::Kind;
use crate::orphans::KnownPods;
use crate::sweep::{self, Looked};
use crate::{execute, others};

impl VolumeManager {
    /// Looks for volumes of other kubelets' plugins, and tells the watchers at every look, also when nothing
    /// has changed.
    pub(super) fn look_for_others(&mut self, ctx: &mut Ctx<Self>) {
        if self.deps.others_watchers.is_empty() {
            return;
        }
        let look = execute::other_volumes(self.deps.backends.clone(), None);
        ctx.effect("look for volumes of others", None, look, |actor, found, _| match found {
            Ok(found) => {
                let observed = others::observed(&found);
                for watcher in &actor.deps.others_watchers {
                    // Lost: it is told again after the next look.
                    watcher.tell_level(observed.clone());
                }
            }
            Err(error) => tracing::warn!(%error, "Cannot tell which volumes other kubelets have left"),
        });
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
        ctx.set_timer(Timer::Sweep, self.deps.sweep.every);
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
            Ok(()) => tracing::info!(%uid, "removed what was left of a pod that is gone"),
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
