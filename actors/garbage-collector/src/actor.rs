//! The actor: remembers the facts, and tidies up now and then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler};
use messages::PodUid;
use messages::facts::{DesiredPods, PodObserved, WorkerReport, WorkerReported};
use messages::garbage_collector::{self, CollectNow};
use messages::pleg::ResendObserved;
use messages::pod_manager::ResendDesired;
use messages::runtime::RuntimePod;
use runtime_bridge::cri::Operations;
use runtime_bridge::host::PodDirs;
use supervision::{Address, Ctx, Subsystem};

use crate::plan::garbage;

/// Upstream's period (row 19.12).
const PERIOD: Duration = Duration::from_secs(60);

/// What GarbageCollector is given.
#[derive(Clone)]
pub struct GarbageCollectorDeps {
    /// The runtime.
    pub operations: Operations,
    /// Log directories and links.
    pub dirs: Arc<dyn PodDirs>,
    /// Asked again after a restart.
    pub manager: Address<ResendDesired>,
    /// Likewise.
    pub pleg: Address<ResendObserved>,
}

/// GarbageCollector's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Tidy up.
    Collect,
}

/// Takes back what no pod needs.
pub struct GarbageCollector {
    deps: GarbageCollectorDeps,
    desired: Option<DesiredPods>,
    observed: BTreeMap<PodUid, Arc<RuntimePod>>,
    reports: BTreeMap<PodUid, Arc<WorkerReport>>,
    collecting: bool,
    removed: u64,
}

impl GarbageCollector {
    /// An incarnation that knows nothing, and so takes nothing.
    pub fn new(deps: GarbageCollectorDeps) -> Self {
        Self {
            deps,
            desired: None,
            observed: BTreeMap::new(),
            reports: BTreeMap::new(),
            collecting: false,
            removed: 0,
        }
    }

    fn collect(&mut self, ctx: &mut Ctx<Self>) {
        ctx.set_timer(Timer::Collect, PERIOD);
        let ready = self.desired.as_ref().is_some_and(|desired| desired.sources_ready);
        if !ready || self.collecting {
            return;
        }
        self.collecting = true;
        let garbage = garbage(&self.observed, &self.reports);
        let known = self.known();
        let running =
            self.observed.values().flat_map(|pod| &pod.containers).map(|c| c.id.to_string()).collect();
        let (operations, dirs) = (self.deps.operations.clone(), self.deps.dirs.clone());
        let work = async move {
            let mut removed = 0;
            for (uid, sandbox) in garbage.sandboxes {
                match operations.remove_pod_sandbox(uid.as_str(), &sandbox).await {
                    Ok(()) => removed += 1,
                    Err(error) => tracing::warn!(%error, pod = %uid, %sandbox, "Dead sandbox is not removed"),
                }
            }
            removed + tidy_logs(&*dirs, &known, running).await
        };
        ctx.effect("collect", None, work, |actor, removed, _| {
            actor.collecting = false;
            actor.removed += removed;
        });
    }

    /// Everybody whose logs may still be wanted.
    fn known(&self) -> BTreeSet<PodUid> {
        let desired = self.desired.iter().flat_map(|desired| desired.pods.keys());
        let working = self.reports.iter().filter(|(_, report)| !report.released).map(|(uid, _)| uid);
        desired.chain(self.observed.keys()).chain(working).cloned().collect()
    }
}

async fn tidy_logs(dirs: &dyn PodDirs, known: &BTreeSet<PodUid>, containers: BTreeSet<String>) -> u64 {
    let mut removed = 0;
    match dirs.list_pod_log_dirs().await {
        Ok(found) => {
            for dir in found.into_iter().filter(|dir| !known.contains(&PodUid::new(&dir.uid))) {
                match dirs.remove_pod_log_dir(&dir.namespace, &dir.name, &dir.uid).await {
                    Ok(()) => removed += 1,
                    Err(error) => tracing::warn!(%error, "Log directory of a gone pod is not removed"),
                }
            }
        }
        Err(error) => tracing::warn!(%error, "Log directories cannot be listed"),
    }
    match dirs.prune_legacy_links(containers).await {
        Ok(links) => removed + links as u64,
        Err(error) => {
            tracing::warn!(%error, "Links to lost logs are not removed");
            removed
        }
    }
}

impl Actor for GarbageCollector {
    type Context = Ctx<Self>;
}

impl Subsystem for GarbageCollector {
    const NAME: &'static str = garbage_collector::RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        let _ = self.deps.manager.tell(ResendDesired);
        let _ = self.deps.pleg.tell(ResendObserved);
        ctx.set_timer(Timer::Collect, PERIOD);
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Collect => self.collect(ctx),
        }
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({ "removed": self.removed, "pods": self.observed.len() })
    }
}

impl Handler<DesiredPods> for GarbageCollector {
    type Result = ();
    fn handle(&mut self, desired: DesiredPods, _ctx: &mut Ctx<Self>) {
        self.reports.retain(|uid, report| !report.released || desired.pods.contains_key(uid));
        self.desired = Some(desired);
    }
}

impl Handler<PodObserved> for GarbageCollector {
    type Result = ();
    fn handle(&mut self, observed: PodObserved, _ctx: &mut Ctx<Self>) {
        if observed.state.is_absent() {
            self.observed.remove(&observed.uid);
        } else {
            self.observed.insert(observed.uid, observed.state);
        }
    }
}

impl Handler<WorkerReported> for GarbageCollector {
    type Result = ();
    fn handle(&mut self, reported: WorkerReported, _ctx: &mut Ctx<Self>) {
        let wanted = self.desired.as_ref().is_some_and(|desired| desired.pods.contains_key(&reported.uid));
        if reported.report.released && !wanted {
            self.reports.remove(&reported.uid);
        } else {
            self.reports.insert(reported.uid, reported.report);
        }
    }
}

impl Handler<CollectNow> for GarbageCollector {
    type Result = ();
    fn handle(&mut self, _: CollectNow, ctx: &mut Ctx<Self>) {
        self.collect(ctx);
    }
}
