//! What workers report of their pods.

use std::sync::Arc;

use actix::Handler;
use messages::PodUid;
use messages::facts::{WorkerReport, WorkerReported};
use messages::pod_worker::{GetWorkers, ResendReports};
use pod_set::Ends;
use supervision::{Ctx, Subsystem, blame};

use super::{ASK_AGAIN, ASK_DEADLINE, PodManager, Timer, WorkersAnswer};

impl PodManager {
    /// Takes the report of a pod's worker. Whether it changes a fact that other pods may wait for.
    pub(super) fn take_report(&mut self, uid: &PodUid, report: Arc<WorkerReport>) -> bool {
        let is_news = self.known.report(uid.clone(), report);
        if is_news {
            self.decisions.settle(uid, self.told.get(uid).map(|desired| &desired.pod), &self.known);
        }
        is_news
    }

    /// Takes over what has been told of a pod's worker while the pod was left alone: also that there is none any more.
    pub(super) fn catch_up(&mut self, uid: &PodUid) {
        let over = || self.known.report_of(uid).filter(|_| self.reports.is_removed(uid)).map(Ends::over);
        if let Some(report) = self.reports.get(uid).cloned().or_else(over) {
            self.take_report(uid, report);
        }
    }

    pub(super) fn ask_workers(&self, ctx: &mut Ctx<Self>) {
        let asked = self.deps.workers.ask(GetWorkers, ASK_DEADLINE);
        ctx.effect("ask workers", None, asked, Self::heard_workers);
    }

    fn heard_workers(&mut self, answer: WorkersAnswer, ctx: &mut Ctx<Self>) {
        let Ok(reports) = answer else {
            ctx.set_timer(Timer::AskWorkers, ASK_AGAIN);
            return;
        };
        for (uid, report) in reports {
            blame::step(&uid.clone(), || self.known.report_if_unknown(uid, report));
        }
        self.heard.workers = true;
        self.decide(ctx);
    }
}

impl Handler<WorkerReported> for PodManager {
    type Result = ();
    fn handle(&mut self, WorkerReported(update): WorkerReported, ctx: &mut Ctx<Self>) {
        let Some(changed) = self.reports.hear(update) else {
            return self.deps.reports.tell_level(ResendReports { receiver: Self::NAME });
        };
        let mut news = false;
        for (uid, report) in changed {
            news |= ctx.for_pod(&uid, |_| self.take_report(&uid, report)).unwrap_or(false);
        }
        if news {
            self.count_pods_soon(ctx);
            if self.waiting > 0 { self.decide(ctx) } else { self.mirror(ctx) }
        }
    }
}
