//! The causes of looks: the runtime's events, and the ends of processes. Their content is not taken for the pod's
//! state.

use std::sync::Arc;
use std::time::Duration;

use bridge_cri::{CriError, Exited, wire};
use messages::PodUid;
use messages::facts::SeenPod;
use messages::runtime::ContainerState;
use supervision::Ctx;

use super::{BETWEEN_CALLS, BETWEEN_RELISTS, HEARD_BY, Pleg, Timer};
use crate::observe;

impl Pleg {
    pub(super) fn subscribe(&mut self, ctx: &mut Ctx<Self>) {
        let subscription = self.deps.runtime.get_container_events();
        ctx.effect("subscribe", None, subscription, |actor, answer, ctx| match answer {
            Ok(events) => {
                actor.events = true;
                actor.deps.metrics.subscribed.inc();
                ctx.stream("events", events, Self::event, |actor, ctx| {
                    actor.events = false;
                    ctx.set_timer(Timer::Subscribe, Duration::from_secs(5));
                });
                // The stream has no events from before its beginning.
                actor.relist(ctx);
            }
            Err(error) if error.is_unimplemented() => {
                tracing::debug!("The runtime has no container events; process exits are watched instead");
            }
            Err(error) => {
                actor.deps.metrics.not_subscribed.inc();
                tracing::warn!(%error, "Container events cannot be had for now");
                ctx.set_timer(Timer::Subscribe, Duration::from_secs(30));
            }
        });
    }

    fn event(&mut self, event: Result<wire::ContainerEventResponse, CriError>, ctx: &mut Ctx<Self>) {
        let Ok(event) = event else { return };
        if let Some(at) = observe::time(event.created_at) {
            let late = self.deps.clock.now().duration_since(at).as_secs_f64();
            self.deps.metrics.event_seconds.observe(late.max(0.0));
        }
        let id = event.container_id.as_str();
        let named = event.pod_sandbox_status.as_ref().and_then(|status| observe::pod_of(&status.labels));
        let Some(uid) = named.map(|pod| pod.uid).or_else(|| self.pod_with(id)) else {
            return self.event_of_unknown(ctx);
        };
        // A quarantined pod is looked at when it is let in.
        ctx.for_pod(&uid, |ctx| self.event_of(&uid, &event, ctx));
    }

    /// A container of a pod that Pleg does not know: a relist finds the pod. Others than the kubelet may have the runtime tell of
    /// as many as they like.
    fn event_of_unknown(&mut self, ctx: &mut Ctx<Self>) {
        if self.relisting.is_some() {
            self.relist_again = true;
            return;
        }
        if self.failures > 0 {
            // The timer is set for a relist after the pause of those that fail.
            return;
        }
        match self.relist_ended.and_then(|ended| BETWEEN_RELISTS.checked_sub(ended.elapsed())) {
            Some(rest) => ctx.set_timer(Timer::Relist, rest),
            None => self.relist(ctx),
        }
    }

    fn event_of(&mut self, uid: &PodUid, event: &wire::ContainerEventResponse, ctx: &mut Ctx<Self>) {
        let (id, kind) = (event.container_id.as_str(), event.container_event_type());
        // At the beginning of a stream the runtime may tell of earlier events: a look that began after the event has
        // found its effect.
        let is_found = self
            .looking
            .get(uid)
            .is_some_and(|began| observe::time(event.created_at).is_some_and(|at| at <= *began));
        if is_found || !self.is_news(uid, id, kind) {
            return;
        }
        match kind {
            wire::ContainerEventType::ContainerStoppedEvent => {
                ctx.set_timer(Timer::Soon(uid.clone()), BETWEEN_CALLS)
            }
            // A call of ours is most likely the cause, and its caller asks for a look at its end.
            _ => ctx.set_timer(Timer::Look(uid.clone()), HEARD_BY),
        }
    }

    /// While a call of ours is under way for the pod, its caller asks for a look when the call has ended.
    pub(super) fn look_soon(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        if self.deps.runtime.in_flight(uid.as_str()).is_empty() {
            self.want(uid, ctx);
            self.begin_soon(ctx);
        } else {
            ctx.set_timer(Timer::Look(uid.clone()), HEARD_BY);
        }
    }

    /// Queues a look that no actor has asked for; a pod of many containers rests before it. Where an actor has asked for a look
    /// that is still to come, it does not wait.
    pub(super) fn want(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        let rest = self.rests.left(uid, self.containers(uid), self.begun.elapsed());
        match rest.filter(|_| !self.schedule.is_asked(uid)) {
            Some(rest) => ctx.set_timer(Timer::Look(uid.clone()), rest),
            None => self.schedule.want(uid),
        }
    }

    /// How many containers the pod has, as far as Pleg knows.
    pub(super) fn containers(&self, uid: &PodUid) -> usize {
        self.told.get(uid).map_or(0, |pod| pod.state.containers.len())
    }

    /// The pause is over after which a pod is looked at again whose container runs without a process.
    pub(super) fn look_at_undead(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        let Some(pause) = self.undead.again(uid) else { return };
        // The look sets the timer again at its end, unless it fails.
        ctx.set_timer(Timer::Undead(uid.clone()), pause);
        self.want(uid, ctx);
        self.begin_soon(ctx);
    }

    fn is_news(&self, uid: &PodUid, id: &str, event: wire::ContainerEventType) -> bool {
        use wire::ContainerEventType as Event;
        let Some(pod) = self.told.get(uid) else { return event != Event::ContainerDeletedEvent };
        let container = pod.state.containers.iter().find(|c| &*c.id == id).map(|c| c.state);
        let sandbox = pod.state.sandboxes.iter().find(|s| &*s.id == id).map(|s| s.ready);
        match event {
            Event::ContainerCreatedEvent => container.is_none() && sandbox.is_none(),
            Event::ContainerStartedEvent => {
                matches!(container, None | Some(ContainerState::Created)) && sandbox != Some(true)
            }
            Event::ContainerStoppedEvent => {
                container != Some(ContainerState::Exited) && sandbox != Some(false)
            }
            Event::ContainerDeletedEvent => container.is_some() || sandbox.is_some(),
        }
    }

    fn pod_with(&self, id: &str) -> Option<PodUid> {
        let has = |pod: &SeenPod| {
            pod.state.containers.iter().any(|c| &*c.id == id)
                || pod.state.sandboxes.iter().any(|s| &*s.id == id)
        };
        self.told.pods().find(|(_, pod)| has(pod)).map(|(uid, _)| uid.clone())
    }

    pub(super) fn exited(&mut self, exited: Exited, ctx: &mut Ctx<Self>) {
        let Some(uid) = self.pod_with(&exited.container_id) else { return };
        ctx.for_pod(&uid, |ctx| self.exited_of(uid.clone(), exited, ctx));
    }

    fn exited_of(&mut self, uid: PodUid, exited: Exited, ctx: &mut Ctx<Self>) {
        let known = self.told.get(&uid).map(|pod| &pod.state.containers).into_iter().flatten();
        let mut known = known.filter(|container| *container.id == exited.container_id);
        if known.any(|container| container.state == ContainerState::Exited) {
            return;
        }
        if self.undead.has(&uid, &exited.container_id) {
            // The pod is looked at again after a pause, however often the watcher says so.
            return;
        }
        self.schedule.ended(&uid, Arc::from(exited.container_id));
        if self.events {
            // The process ends before the runtime notices; the runtime's event tells when it has.
            ctx.set_timer(Timer::Look(uid), HEARD_BY);
        } else {
            ctx.set_timer(Timer::Soon(uid), BETWEEN_CALLS);
        }
    }
}
