//! The steps about mirror pods, and what comes of them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use messages::PodRef;
use pod_rules::origin::is_mirror;
use supervision::Ctx;

use super::{PodManager, Timer};
use crate::execute::{self, Done};
use crate::mirror::{MirrorError, Step};

/// Within this time the API server's watch tells of a mirror that was created. One of which it has told nothing by then is
/// gone again: it lived between two looks of the watch, or its end was told before the answer to its creation came.
const TOLD_WITHIN: Duration = Duration::from_secs(60);

impl PodManager {
    /// Does what is to be done about mirror pods now.
    pub(super) fn mirror(&mut self, ctx: &mut Ctx<Self>) {
        let Some(api) = self.deps.api.clone() else { return };
        let all = self.has_decided_all();
        let ending = self.known.names_of_statics();
        for step in self.mirrors.steps(self.told.statics(), all, |name| ending.contains(name)) {
            let work = execute::mirror(api.clone(), self.deps.config.node.name.clone(), step.clone());
            ctx.effect("mirror", Some(step.uid()), work, move |actor, outcome, ctx| {
                actor.mirrored(&step, outcome, ctx)
            });
        }
    }

    fn mirrored(&mut self, step: &Step, outcome: Result<Done, MirrorError>, ctx: &mut Ctx<Self>) {
        let name = step.full_name();
        match outcome {
            Ok(Done::Created(pod)) => {
                self.mirrors.created(*pod);
                ctx.set_timer(Timer::MirrorMade(name.clone()), TOLD_WITHIN);
            }
            Ok(Done::Deleted(mirror)) => self.mirrors.deleted(&mirror),
            Err(error) => {
                let failed = self.mirrors.failed(&name, &error);
                if failed.is_news {
                    tracing::warn!(%error, pod = name, "The static pod is not mirrored at the API server as it should be");
                }
                ctx.set_timer(Timer::Mirror(name), failed.pause);
                return;
            }
        }
        self.mirrors.done(&name);
        self.tell_mirrors(ctx);
        self.mirror(ctx);
    }

    /// From now on what the watch has told of this mirror holds, and no longer the answer to its creation.
    pub(super) fn see_made(&mut self, full_name: &str, ctx: &mut Ctx<Self>) {
        let is_it = |pod: &&Arc<Pod>| is_mirror(pod) && PodRef::of(pod).full_name() == full_name;
        let told = self.sources.of_api().map(|(_, pod)| &pod.pod).find(is_it).cloned();
        self.mirrors.settled(full_name, told);
        self.tell_mirrors(ctx);
        self.mirror(ctx);
    }
}
