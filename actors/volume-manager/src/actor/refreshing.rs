//! Volumes whose content changes while their pods run, and what is learnt of volumes on the way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_pace::Backoff;
use messages::PodUid;
use messages::volume_manager::MountedVolumes;
use supervision::{Ctx, Effect, blame};

use super::texts::mount_event;
use super::{MountAsker, REFRESH, Timer, VolumeManager};
use crate::operations::Kind;
use crate::{execute, plan};

/// The delays after failures: as those of mounts, but never longer than a round.
const AGAIN: Backoff = Backoff::doubling(Duration::from_millis(500), REFRESH);
/// So far apart the refreshes of a round begin, or nearer if that is more than half a round: the files of a pod's volumes are in memory while they
/// are compared, and all pods' at once would be much.
const APART: Duration = Duration::from_millis(100);

impl VolumeManager {
    /// Refreshes the pod's volumes of objects, now or when the operation under way is over. No asker waits
    /// for it.
    pub(super) fn refresh(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        if !self.may_change(uid) {
            return;
        }
        if self.operations.contains_key(uid) {
            self.changed.insert(uid.clone());
        } else {
            self.ask(uid.clone(), Kind::Refresh, MountAsker::Sweep, ctx);
        }
    }

    /// Whether the content of the pod's volumes may change. A pod that has ended, is refused or has not begun shows none.
    fn may_change(&self, uid: &PodUid) -> bool {
        self.desired.get(uid).is_some_and(|desired| {
            let is_shown =
                self.mounted.contains_key(uid) || (desired.rejected.is_none() && plan::runs(&desired.pod));
            is_shown
                && (plan::shows_objects(&desired.pod)
                    || self.with_claims(uid, &desired.pod)
                    || self.may_grow(uid, &desired.pod))
        })
    }

    pub(super) fn begin_refresh(&mut self, uid: PodUid, ctx: &mut Ctx<Self>) {
        let Some(desired) = self.desired.get(&uid).cloned() else { return drop(self.ended(&uid, ctx)) };
        let with_claims = self.with_claims(&uid, &desired.pod);
        let backends = self.backends_of(&uid);
        let refresh = execute::refresh(backends, uid.clone(), desired.pod.clone(), with_claims);
        let refreshing = Effect::lasting("refresh volumes");
        ctx.effect(refreshing, Some(uid.clone()), refresh, move |actor, refreshed, ctx| {
            actor.count(&refreshed.timed);
            actor.name_volumes(&uid, refreshed.claimed);
            for error in &refreshed.errors {
                let failure = refreshed.failures.get(&error.volume);
                actor.record(&desired.pod_ref, mount_event(error, failure));
            }
            actor.refresh_again(&uid, refreshed.errors.is_empty(), ctx);
            if refreshed.errors.is_empty() && actor.mounted.contains_key(&uid) {
                actor.renewals_known.insert(uid.clone());
            }
            drop(actor.ended(&uid, ctx));
        });
    }

    /// What could not be refreshed is tried again, at first soon.
    fn refresh_again(&mut self, uid: &PodUid, is_well: bool, ctx: &mut Ctx<Self>) {
        if is_well || self.desired.get(uid).is_none() {
            self.refresh_delays.remove(uid);
            return;
        }
        let before = self.refresh_delays.get(uid).copied();
        let delay = before.map_or(AGAIN.first(), |before| AGAIN.following(before));
        self.refresh_delays.insert(uid.clone(), delay);
        ctx.set_timer(Timer::Again(uid.clone()), delay);
    }

    /// What an earlier kubelet has mounted is found by the names of PersistentVolumes; the volumes are known by their names in
    /// the pod.
    fn name_volumes(&mut self, uid: &PodUid, claimed: BTreeMap<String, String>) {
        let Some(mounted) = self.mounted.get_mut(uid) else { return };
        let known = &mounted.volumes.host_paths;
        let is_there = |path: &String| known.values().any(|known| known == path);
        let claimed: BTreeMap<String, String> = claimed
            .into_iter()
            .filter(|(name, path)| known.get(name) != Some(path) && is_there(path))
            .collect();
        if claimed.is_empty() {
            return;
        }
        let mut volumes = MountedVolumes::clone(&mounted.volumes);
        volumes.host_paths.retain(|_, known| !claimed.values().any(|path| path == known));
        volumes.host_paths.extend(claimed);
        mounted.volumes = Arc::new(volumes);
    }

    pub(super) fn refresh_all(&mut self, ctx: &mut Ctx<Self>) {
        ctx.set_timer(Timer::Refresh, REFRESH);
        let may_change = |uid: &&PodUid| blame::step(uid, || self.may_change(uid)).unwrap_or(false);
        let uids: Vec<PodUid> = self.desired.uids().filter(may_change).cloned().collect();
        let mut wait = Duration::ZERO;
        let apart = APART.min(REFRESH / 2 / u32::try_from(uids.len()).unwrap_or(u32::MAX).max(1));
        for uid in uids {
            // What has failed is tried again sooner.
            if !self.refresh_delays.contains_key(&uid) {
                ctx.set_timer(Timer::Again(uid), wait);
            }
            wait += apart;
        }
    }
}
