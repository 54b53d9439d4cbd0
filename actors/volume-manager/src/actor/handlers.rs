//! The handlers of VolumeManager's messages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use actix::MessageResult;
use k8s_openapi::api::core::v1::Pod;
use messages::PodUid;
use messages::facts::{DesiredPod, DesiredPodsChanged, NodeResourcesConfigured};
use messages::object_cache::PodObjectsChanged;
use messages::pod_manager::ResendDesired;
use messages::volume_manager::{GetVolumes, MountVolumes, PrepareSubpaths, UnmountVolumes, VolumeError};
use pod_set::Taken;
use supervision::{Ctx, Effect, ReplyLater, Subsystem, reply_later};

use super::{MountAnswer, MountAsker, Timer, UnmountAnswer, VolumeManager};
use crate::operations::Kind;
use crate::{plan, subpaths};

/// The first look for directories of pods that are gone comes so soon after every source has been heard.
const FIRST_LOOK: Duration = Duration::from_secs(2);

type SubpathsAnswer = Result<BTreeMap<usize, String>, VolumeError>;

impl VolumeManager {
    /// Whether the volumes behind the pod's claims, once they are mounted, are looked at, too: one is shown anew from time to
    /// time, or it is not known of volumes of an earlier run whether they are.
    pub(super) fn with_claims(&self, uid: &PodUid, pod: &Pod) -> bool {
        let is_known = self.renewals_known.contains(uid);
        let has_them = self.mounted.contains_key(uid) || plan::runs(pod);
        has_them && plan::may_renew(pod) && (!is_known || self.deps.backends.devices.renews_any(uid))
    }

    /// Whether the pod has volumes that may have to grow: a claim tells so.
    pub(super) fn may_grow(&self, uid: &PodUid, pod: &Pod) -> bool {
        let has_them = self.mounted.contains_key(uid) || plan::runs(pod);
        has_them && self.deps.backends.claim_statuses.is_some() && plan::has_claims(pod)
    }

    /// The pod is another than it was before, if it was desired.
    fn note_desired(&mut self, uid: &PodUid, before: Option<&DesiredPod>, ctx: &mut Ctx<Self>) {
        self.forget_ended(uid, ctx);
        let Some(desired) = self.desired.get(uid) else { return };
        let is_other = match before {
            // What a pod shows of itself is in its metadata.
            Some(before) => {
                let (then, now) = (&before.pod.metadata, &desired.pod.metadata);
                then.labels != now.labels || then.annotations != now.annotations
            }
            // An earlier kubelet has mounted for the pod, and its worker will not ask for that again.
            None => plan::was_started(&desired.pod),
        };
        if is_other {
            self.refresh(uid, ctx);
        }
    }
}

impl actix::Handler<DesiredPodsChanged> for VolumeManager {
    type Result = ();

    fn handle(&mut self, DesiredPodsChanged(update): DesiredPodsChanged, ctx: &mut Ctx<Self>) {
        match self.desired.take(update) {
            Taken::Nothing => {}
            Taken::Pod(uid, before) => self.note_desired(&uid, before.as_deref(), ctx),
            Taken::All(before) => {
                let uids: BTreeSet<PodUid> = self.desired.uids().chain(&self.ended).cloned().collect();
                for uid in &uids {
                    ctx.for_pod(uid, |ctx| self.note_desired(uid, before.get(uid).map(AsRef::as_ref), ctx));
                }
                if !before.is_complete() && self.desired.is_complete() {
                    // What earlier kubelets have left of pods that are gone can be told now.
                    ctx.set_timer(Timer::Sweep, FIRST_LOOK);
                }
                if !before.is_known() {
                    // A fresh incarnation has missed changes.
                    self.refresh_all(ctx);
                }
            }
            Taken::Missed => self.deps.resend_desired.tell_level(ResendDesired { receiver: Self::NAME }),
        }
    }
}

impl actix::Handler<NodeResourcesConfigured> for VolumeManager {
    type Result = ();

    /// Volumes that are set up from now on, or shown anew, have the new amounts.
    fn handle(&mut self, configured: NodeResourcesConfigured, _ctx: &mut Ctx<Self>) {
        self.deps.backends.objects.node = configured.settings;
    }
}

impl actix::Handler<PodObjectsChanged> for VolumeManager {
    type Result = ();

    fn handle(&mut self, changed: PodObjectsChanged, ctx: &mut Ctx<Self>) {
        self.backoff.forget(&changed.uid);
        self.refresh(&changed.uid, ctx);
    }
}

impl actix::Handler<MountVolumes> for VolumeManager {
    type Result = ReplyLater<MountAnswer>;

    fn handle(&mut self, ask: MountVolumes, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        let uid = ask.pod.pod_ref.uid.clone();
        self.asked_for.insert(uid.clone(), ask.pod);
        self.ask(uid, Kind::Mount, MountAsker::Mount(reply), ctx);
        later
    }
}

impl actix::Handler<UnmountVolumes> for VolumeManager {
    type Result = ReplyLater<UnmountAnswer>;

    fn handle(&mut self, ask: UnmountVolumes, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        self.deps.backends.attachments.give_up(&ask.pod.uid);
        self.ask(ask.pod.uid, Kind::Unmount, MountAsker::Unmount(reply), ctx);
        later
    }
}

impl actix::Handler<PrepareSubpaths> for VolumeManager {
    type Result = ReplyLater<SubpathsAnswer>;

    /// Runs beside the pod's other operations: a worker asks for one thing at a time. If an unmount finds a
    /// part mounted meanwhile, it fails and its asker asks again.
    fn handle(&mut self, ask: PrepareSubpaths, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        let uid = ask.pod.uid.clone();
        if self.asked_for.contains_key(&uid) {
            let prepare = subpaths::prepare_subpaths(self.backends_of(&uid), ask);
            ctx.effect(Effect::lasting("prepare subpaths"), Some(uid), prepare, |_, answer, _| {
                reply.send(answer)
            });
        } else {
            // This incarnation has not been asked for the pod's volumes, or has undone them.
            let message = "the pod's volumes are not mounted".to_owned();
            reply.send(Err(VolumeError { volume: String::new(), message }));
        }
        later
    }
}

impl actix::Handler<GetVolumes> for VolumeManager {
    type Result = MessageResult<GetVolumes>;

    fn handle(&mut self, _: GetVolumes, _: &mut Ctx<Self>) -> Self::Result {
        MessageResult(
            self.mounted.iter().map(|(uid, mounted)| (uid.clone(), mounted.volumes.clone())).collect(),
        )
    }
}
