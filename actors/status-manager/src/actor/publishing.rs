//! What the API server is told of pods.

use messages::PodUid;
use supervision::{Ctx, blame};

use super::{StatusManager, Timer};
use crate::publish::{self, Outcome};

impl StatusManager {
    /// Starts the calls that tell the API server of a pod, if there is something new.
    pub(super) fn tell_api(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        if self.deps.api.is_none() {
            return;
        }
        match self.status_cache.publication(uid) {
            Some(publication) => {
                self.progress.seen(uid, publication.object.as_deref());
                self.publisher.told(uid, publication);
                if self.publisher.has_told(uid) {
                    self.progress.nothing_to_tell(uid);
                }
            }
            None => {
                self.progress.gone(uid);
                self.publisher.forget(uid);
            }
        }
        self.publish(ctx);
    }

    pub(super) fn publish(&mut self, ctx: &mut Ctx<Self>) {
        let Some(api) = &self.deps.api else { return };
        while let Some(call) = self.publisher.next() {
            let uid = call.pod.clone();
            let (of, call) = (uid.clone(), publish::call(&**api, call));
            let work = async move { blame::work_for_pod(&of, call).await };
            // The call for a quarantined pod says that it is quarantined, so it does not run under the pod's name,
            // which would hold it back.
            let name = Some(uid.clone()).filter(|uid| !ctx.is_quarantined(uid));
            ctx.effect("publish", name, work, move |actor, outcome, ctx| {
                blame::for_pod(&uid, || actor.published(&uid, outcome, ctx));
            });
        }
    }

    fn published(&mut self, uid: &PodUid, outcome: Outcome, ctx: &mut Ctx<Self>) {
        self.deps.metrics.published(&outcome);
        if let Outcome::Failed(error) = &outcome {
            // A server that is away is away for all pods, and may be for long, so only the first failure is a warning.
            match self.publisher.counts() {
                (_, 0) => tracing::warn!(%error, pod = %uid, "The API server has not been told of the pod"),
                _ => tracing::debug!(%error, pod = %uid, "The API server has not been told of the pod"),
            }
        }
        if let Outcome::Patched(pod) = &outcome
            && let Some(start) =
                self.progress.started(uid, pod, self.status_cache.pulled(uid), self.deps.clock.now())
        {
            self.deps.metrics.started(start);
        }
        let is_patched = matches!(outcome, Outcome::Patched(_));
        let again = self.publisher.done(uid, outcome);
        if self.publisher.has_told(uid)
            && let Some(after) = self.progress.nothing_to_tell(uid)
            && is_patched
        {
            self.deps.metrics.synced(after);
        }
        if let Some(after) = again {
            ctx.set_timer(Timer::Publish(uid.clone()), after);
        }
        self.publish(ctx);
    }
}
