//! What VolumeManager is asked and told.

use std::collections::BTreeMap;

use actix::MessageResult;
use messages::facts::DesiredPods;
use messages::object_cache::PodObjectsChanged;
use messages::volume_manager::{GetVolumes, MountVolumes, PrepareSubpaths, UnmountVolumes, VolumeError};
use supervision::{Ctx, Effect, ReplyLater, reply_later};

use super::{Asker, MountAnswer, UnmountAnswer, VolumeManager};
use crate::operations::Kind;
use crate::{execute, plan};

type SubpathsAnswer = Result<BTreeMap<usize, String>, VolumeError>;

impl actix::Handler<DesiredPods> for VolumeManager {
    type Result = ();

    fn handle(&mut self, desired: DesiredPods, ctx: &mut Ctx<Self>) {
        let before = self.desired.replace(desired.clone());
        self.forget_ended(ctx);
        // A fresh incarnation has missed changes.
        let Some(before) = before else { return self.refresh_all(ctx) };
        // What a pod shows of itself is in its metadata.
        for (uid, pod) in desired.pods.iter() {
            let now = &pod.pod.metadata;
            let is_other = match before.pods.get(uid) {
                Some(before) => {
                    let then = &before.pod.metadata;
                    then.labels != now.labels || then.annotations != now.annotations
                }
                // An earlier kubelet has mounted for it, and nobody will ask for that again.
                None => plan::was_started(&pod.pod),
            };
            if is_other {
                self.refresh(uid, ctx);
            }
        }
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
        self.ask(uid, Kind::Mount, Asker::Mount(reply), ctx);
        later
    }
}

impl actix::Handler<UnmountVolumes> for VolumeManager {
    type Result = ReplyLater<UnmountAnswer>;

    fn handle(&mut self, ask: UnmountVolumes, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        self.ask(ask.pod.uid, Kind::Unmount, Asker::Unmount(reply), ctx);
        later
    }
}

impl actix::Handler<PrepareSubpaths> for VolumeManager {
    type Result = ReplyLater<SubpathsAnswer>;

    /// Beside the pod's other operations: a worker asks for one thing at a time. Should it come down to it, an unmount
    /// that finds a part mounted fails and is asked for again.
    fn handle(&mut self, ask: PrepareSubpaths, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        let uid = ask.pod.uid.clone();
        if self.asked_for.contains_key(&uid) {
            let prepare = execute::prepare_subpaths(self.deps.ways.clone(), ask);
            ctx.effect(Effect::lasting("prepare subpaths"), Some(uid), prepare, |_, answer, _| {
                reply.send(answer)
            });
        } else {
            // Said by an incarnation that has not been asked for the pod's volumes, or has undone them.
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
