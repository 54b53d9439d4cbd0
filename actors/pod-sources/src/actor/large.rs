//! Large pods of the API server. They are judged beside the actors' thread, each pod by itself: one version at a time, then the
//! newest that has come meanwhile. So no version of a pod is overtaken, and no other pod waits.

use std::sync::Arc;
use std::time::Duration;

use bridge_io::NotRun;
use bridge_io::compute::computed;
use k8s_openapi::api::core::v1::Pod;
use messages::facts::SourcePod;
use messages::pod_set::PodSetUpdate;
use messages::{PodRef, PodUid};
use supervision::{Ctx, blame};

use super::{PodSources, Timer};
use crate::judge::{Verdict, is_large};

/// Pause before pods are judged again for which there was no place.
const JUDGE_AGAIN: Duration = Duration::from_secs(1);

/// A pod that is being judged.
#[derive(Debug)]
pub(super) struct UnderWay {
    /// What tells this judgement from an earlier one of the same pod, which counts no more.
    number: u64,
    version: Arc<Pod>,
    /// The newest version that has come meanwhile.
    next: Option<Pod>,
    /// There was no place: it is to be judged again.
    waits: bool,
}

impl PodSources {
    /// A pod of the API server is new or has changed. Returns the message that tells of it, if it brings anything new by now.
    pub(super) fn heard_version(&mut self, pod: Pod, ctx: &mut Ctx<Self>) -> Option<PodSetUpdate<SourcePod>> {
        let (uid, now) = (PodRef::of(&pod).uid, self.deps.clock.now());
        if ctx.is_quarantined(&uid) {
            self.judging.remove(&uid);
            return self.api_pods.leave_alone(pod, now);
        }
        if let Some(under_way) = self.judging.get_mut(&uid) {
            under_way.next = Some(pod);
            return None;
        }
        if !is_large(&pod) {
            return blame::for_pod(&uid, || self.api_pods.changed(pod, now));
        }
        self.judgements += 1;
        let (number, version) = (self.judgements, Arc::new(pod));
        self.judging.insert(uid.clone(), UnderWay { number, version, next: None, waits: false });
        self.judge_version(&uid, ctx);
        self.api_pods.awaits(&uid)
    }

    fn judge_version(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        let Some(under_way) = self.judging.get_mut(uid) else { return };
        under_way.waits = false;
        let (number, version) = (under_way.number, under_way.version.clone());
        let judge = self.api_pods.judge(uid, self.deps.clock.now());
        let namespace = version.metadata.namespace.as_deref().unwrap_or_default();
        let (compute, of) = (self.deps.compute.for_namespace(namespace), uid.clone());
        let judging =
            async move { computed(&compute, of.as_str(), move || judge.weighed(Pod::clone(&version))).await };
        let of = uid.clone();
        ctx.effect("judge a large pod", Some(uid.clone()), judging, move |actor: &mut Self, verdict, ctx| {
            actor.have_judged(&of, number, verdict, ctx);
        });
    }

    fn have_judged(
        &mut self,
        uid: &PodUid,
        number: u64,
        verdict: Result<Verdict, NotRun>,
        ctx: &mut Ctx<Self>,
    ) {
        // The pod may be gone, or left alone.
        let Some(under_way) = self.judging.get_mut(uid).filter(|it| it.number == number) else { return };
        let verdict = match verdict {
            Ok(verdict) => verdict,
            Err(error) => {
                tracing::warn!(%error, pod_uid = %uid, "A large pod is judged later");
                under_way.waits = true;
                return ctx.set_timer(Timer::Judge, JUDGE_AGAIN);
            }
        };
        let Some(UnderWay { version, next, .. }) = self.judging.remove(uid) else { return };
        let update = self.api_pods.judged(&version, verdict, self.deps.clock.now());
        self.tell_of_api(update, ctx);
        if let Some(next) = next {
            let update = self.heard_version(next, ctx);
            self.tell_of_api(update, ctx);
        }
    }

    /// Judges the pods for which there was no place.
    pub(super) fn judge_again(&mut self, ctx: &mut Ctx<Self>) {
        let waiting = self.judging.iter().filter(|(_, under_way)| under_way.waits);
        for uid in waiting.map(|(uid, _)| uid.clone()).collect::<Vec<_>>() {
            self.judge_version(&uid, ctx);
        }
    }
}
