//! The events of the supervision tree: every start, crash, restart and escalation.

use messages::PodUid;
use serde::Serialize;

use crate::cell::Crash;
use crate::panics::PanicReport;

/// One event of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SupervisionEvent {
    /// The actor's name in the tree.
    pub actor: String,
    /// Milliseconds since the tree was made.
    pub at_ms: u64,
    /// What happened.
    #[serde(flatten)]
    pub what: EventKind,
}

/// The kinds of events. Log, `/supervision` and the tree's observers show them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "event")]
pub enum EventKind {
    /// An incarnation has started and takes messages.
    Started {
        /// The number of the incarnation, from 1.
        incarnation: u64,
    },
    /// An incarnation died.
    Crashed(Crash),
    /// The backoff is over; the next incarnation starts.
    Restarted {
        /// Milliseconds between crash and start.
        down_ms: u64,
    },
    /// A degradable actor or a child is above its restart limit: it sleeps until the next try.
    Dormant {
        /// Seconds until the next try.
        retry_seconds: u64,
    },
    /// More children than are borne are above their restart limit, but for one cause, or a few: no failure of their parent,
    /// whose event this is.
    ChildrenDormant {
        /// So many.
        dormant: usize,
        /// How the last one crashed.
        reason: String,
    },
    /// Of those no more are left than are borne.
    ChildrenAwake,
    /// Above the restart limit and vital: the process shall end.
    Failed,
    /// The actor has ended normally.
    Stopped,
    /// A poison pod is quarantined in this subsystem.
    Quarantined {
        /// The pod.
        pod: PodUid,
        /// The panic that reached the limit.
        panic: PanicReport,
        /// Length of the quarantine.
        seconds: u64,
    },
    /// A quarantine is over: the pod's messages are handled again.
    Released {
        /// The pod.
        pod: PodUid,
    },
    /// An effect has passed its deadline: the effect is dropped, and the incarnation ends.
    EffectOverdue {
        /// The effect's name.
        effect: &'static str,
        /// The pod on whose behalf the effect ran.
        #[serde(skip_serializing_if = "Option::is_none")]
        pod: Option<PodUid>,
        /// The deadline in seconds.
        seconds: u64,
    },
    /// The actor's thread has not answered the watchdog.
    ThreadBlocked {
        /// Seconds of silence so far.
        seconds: u64,
        /// The message type being handled, of this actor or of another one on its thread.
        handling: String,
    },
}

/// Why the process has to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The name of the subsystem that failed.
    pub actor: String,
    /// For people: why the subsystem failed.
    pub reason: String,
}

/// Writes the event to the log.
pub(crate) fn trace(event: &SupervisionEvent) {
    let actor = event.actor.as_str();
    match &event.what {
        EventKind::Started { incarnation } => tracing::debug!(actor, incarnation, "Actor started"),
        EventKind::Crashed(crash) => tracing::error!(
            actor,
            incarnation = crash.incarnation,
            handling = crash.handling,
            reason = crash.reason,
            place = crash.place.as_deref().unwrap_or(""),
            pod = crash.pod.as_ref().map_or("", PodUid::as_str),
            "Actor crashed"
        ),
        EventKind::Restarted { down_ms } => tracing::warn!(actor, down_ms, "Actor restarted"),
        EventKind::Dormant { retry_seconds } => {
            tracing::error!(actor, retry_seconds, "Actor is above its restart limit and goes dormant");
        }
        EventKind::ChildrenDormant { dormant, reason } => {
            tracing::error!(
                actor,
                dormant,
                reason,
                "Many of the actor's children are above their restart limit"
            );
        }
        EventKind::ChildrenAwake => tracing::info!(actor, "The actor's children are well but for a few"),
        EventKind::Failed => tracing::error!(actor, "Vital actor is above its restart limit"),
        EventKind::Stopped => tracing::debug!(actor, "Actor stopped"),
        EventKind::Quarantined { pod, panic, seconds } => {
            tracing::error!(actor, %pod, %panic, seconds, "Pod quarantined in this subsystem");
        }
        EventKind::Released { pod } => tracing::info!(actor, %pod, "Pod released from quarantine"),
        EventKind::EffectOverdue { effect, pod, seconds } => {
            let pod = pod.as_ref().map_or("", PodUid::as_str);
            tracing::error!(actor, effect, pod, seconds, "An effect has not ended in its time");
        }
        EventKind::ThreadBlocked { seconds, handling } => {
            tracing::error!(actor, seconds, handling, "The actor's thread has not come back");
        }
    }
}
