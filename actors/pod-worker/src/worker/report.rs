//! The reports and events of a worker.

use std::sync::Arc;
use std::time::Duration;

use messages::facts::WorkerReport;
use messages::pod_worker::PodReported;
use supervision::Ctx;
use tokio::time::Instant;

use super::{PodWorker, Timer};
use crate::texts::{self, Text};

/// Pause before a worker tells a refused report again.
const REPORT_AGAIN: Duration = Duration::from_secs(1);
/// A step that takes longer than this is named in the report.
pub(super) const BLOCKED_AFTER: Duration = Duration::from_secs(10);
/// The longest time between two updates of a lasting step's time in the report.
const BLOCKED_REPORT_MAX: Duration = Duration::from_secs(60);
/// For a step that lasts longer than this an event is recorded: ordinary grace periods are shorter.
const COMPLAIN_AFTER: Duration = Duration::from_secs(120);
/// How often the event about a network that is not ready is repeated.
const NETWORK_EVENT_INTERVAL: Duration = Duration::from_secs(60);

impl PodWorker {
    /// Tells the pool the report if it is new.
    pub(super) fn tell_report(&mut self, ctx: &mut Ctx<Self>) {
        let Some(pod) = self.pod.clone() else { return };
        let report = WorkerReport {
            pod,
            state: self.lifecycle.state(),
            last_look: self.last_look,
            released: self.lifecycle.released(),
            starting: self.hooked(),
            replaced: self.known.replaced.clone(),
            waiting: self.waiting.clone(),
            failed: self.lifecycle.failed().cloned(),
            deleted: self.lifecycle.deleted(),
            made_anew: self.made_anew,
            pulled_ms: self.pull_time.tenths_ms(),
            blocked_on: self.blocked_on.clone().or_else(|| self.problem.clone()),
        };
        if !self.report_refused && self.report.as_deref() == Some(&report) {
            return;
        }
        let report = Arc::new(report);
        self.report = Some(report.clone());
        // A refused report is told again: with the worker's next step, or a second from now.
        self.report_refused = self.deps.reports.tell(PodReported { uid: self.uid.clone(), report }).is_err();
        if self.report_refused {
            ctx.set_timer(Timer::Report, REPORT_AGAIN);
        }
    }

    /// Records an event about the pod, or about the container with this field path.
    pub(super) fn record(&self, text: Text, field_path: &str) {
        if let Some(pod) = &self.pod {
            self.deps.events.tell_or_count(text.about(pod, field_path));
        }
    }

    /// Puts the step that lasts longest into the report, and records an event once it lasts very long.
    pub(super) fn see_progress(&mut self, ctx: &mut Ctx<Self>) {
        let Some((step, lasts)) = self.progress.longest() else {
            if self.task.is_some() {
                ctx.set_timer(Timer::Progress, BLOCKED_AFTER);
            }
            return;
        };
        if lasts >= BLOCKED_AFTER {
            self.blocked_on = Some(format!("{step} ({}s)", lasts.as_secs()));
            self.tell_report(ctx);
        }
        if lasts >= COMPLAIN_AFTER && self.complained.as_ref() != Some(&step) {
            self.record(texts::blocked(&step, lasts), "");
            self.complained = Some(step);
        }
        ctx.set_timer(Timer::Progress, lasts.clamp(BLOCKED_AFTER, BLOCKED_REPORT_MAX));
    }

    /// A task has ended: if no step is under way, the report names none any more.
    pub(super) fn unblocked(&mut self, ctx: &mut Ctx<Self>) {
        self.complained = None;
        if self.progress.longest().is_none() {
            ctx.cancel_timer(&Timer::Progress);
            self.blocked_on = None;
        }
    }

    /// Records the event NetworkNotReady, unless the last one is recent.
    pub(super) fn say_network_not_ready(&mut self) {
        if self.network_said.is_some_and(|said| said.elapsed() < NETWORK_EVENT_INTERVAL) {
            return;
        }
        self.network_said = Some(Instant::now());
        let problem = self.health.as_ref().map(|health| health.problem.clone()).unwrap_or_default();
        self.record(texts::network_not_ready(&problem), "");
    }
}
