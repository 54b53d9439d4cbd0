//! The actor: keeps the running containers, looks at the sizes of their logs at intervals, and rotates the logs that
//! are full.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler};
use bridge_io::clock::Clock;
use bridge_node::host::LogPlace;
use messages::config_manager::ResendConfiguration;
use messages::facts::{PodObserved, SeenPod};
use messages::log_manager::{self, LogRotation, LogRotationConfigured};
use messages::pleg::ResendObserved;
use messages::{PodRef, PodUid};
use pod_set::Followed;
use supervision::{Address, Ctx, Effect, Subsystem, blame};

use crate::execute::{self, Backends, Looked, RotationOutcome};
use crate::plan::{Need, Writer, Writers, writers};
use crate::queue::Queue;

/// At most so many problems are shown.
const PROBLEMS_SHOWN: usize = 5;
/// How long compressing one log may take, at low priority.
const LONG: Duration = Duration::from_secs(3600);

/// LogManager's settings, effects and address.
#[derive(Clone)]
pub struct LogManagerDeps {
    /// The runtime, and the files of logs.
    pub backends: Backends,
    /// Wall time, from which rotated files are named.
    pub clock: Arc<dyn Clock>,
    /// How logs are rotated.
    pub rotation: LogRotation,
    /// Pleg, asked for the runtime's pods after a restart.
    pub pleg: Address<ResendObserved>,
    /// ConfigManager, asked after a restart how logs are rotated.
    pub configuration: Address<ResendConfiguration>,
}

/// LogManager's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Look at the sizes of all logs.
    Look,
}

/// A rotated file that is to be compressed.
type RotatedFile = (LogPlace, String);

/// LogManager: keeps logs from growing without end.
pub struct LogManager {
    deps: LogManagerDeps,
    /// Those of each pod, by the container's ID.
    writers: BTreeMap<PodUid, Writers>,
    observed: Followed<SeenPod>,
    /// By the container's ID.
    turns: Queue<Arc<str>, (Writer, Need)>,
    compressions: Queue<RotatedFile, PodRef>,
    /// Rotated files that were far too large, since the last look: readers have until the next look to finish with
    /// them.
    oversized: BTreeMap<RotatedFile, PodRef>,
    /// Problems as last logged, by container ID.
    problems: BTreeMap<Arc<str>, String>,
    rotated: u64,
    compressed: u64,
}

impl LogManager {
    /// An incarnation that knows no log.
    pub fn new(deps: LogManagerDeps) -> Self {
        let workers = deps.rotation.workers;
        Self {
            deps,
            writers: BTreeMap::new(),
            observed: Followed::default(),
            turns: Queue::new(workers),
            compressions: Queue::new(workers),
            oversized: BTreeMap::new(),
            problems: BTreeMap::new(),
            rotated: 0,
            compressed: 0,
        }
    }

    /// Begins to follow Pleg's facts and to look at logs, if logs are rotated.
    fn begin(&self, ctx: &mut Ctx<Self>) {
        if self.deps.rotation.bytes_max.is_some() {
            self.deps.pleg.tell_level(ResendObserved { receiver: Self::NAME });
            ctx.set_timer(Timer::Look, self.deps.rotation.interval);
        }
    }

    fn look(&mut self, ctx: &mut Ctx<Self>) {
        let Some(bytes_max) = self.deps.rotation.bytes_max else { return };
        let watched = self.writers.iter().filter(|(uid, _)| !ctx.is_quarantined(uid));
        let all: Vec<Writer> = watched.flat_map(|(_, writers)| writers.values()).cloned().collect();
        if all.is_empty() {
            ctx.set_timer(Timer::Look, self.deps.rotation.interval);
            return;
        }
        let work = execute::look(self.deps.backends.clone(), all, bytes_max);
        ctx.effect("look at logs", None, work, Self::looked);
    }

    fn looked(&mut self, looked: Looked, ctx: &mut Ctx<Self>) {
        ctx.set_timer(Timer::Look, self.deps.rotation.interval);
        for (file, pod) in std::mem::take(&mut self.oversized) {
            self.compressions.put(pod.namespace.clone(), file, pod);
        }
        for (writer, problem) in looked.problems {
            blame::for_pod(&writer.pod.uid, || self.told(&writer, Err(problem)));
        }
        for (writer, need) in looked.needs {
            let pod = writer.pod.clone();
            // Of one that is left alone the next look finds it again.
            ctx.for_pod(&pod.uid, |_| {
                self.turns.put(pod.namespace.clone(), writer.container.clone(), (writer, need));
            });
        }
        self.go_on(ctx);
    }

    fn runs(&self, writer: &Writer) -> bool {
        self.writers.get(&writer.pod.uid).is_some_and(|all| all.contains_key(&writer.container))
    }

    /// Begins as many rotations and compressions as may be under way.
    fn go_on(&mut self, ctx: &mut Ctx<Self>) {
        while let Some((container, (writer, need))) = self.turns.next() {
            // If the container still runs, the next look finds its log again.
            if !self.runs(&writer) || ctx.is_quarantined(&writer.pod.uid) {
                self.turns.ended(&container);
                continue;
            }
            let files_max = self.deps.rotation.files_max;
            let now = self.deps.clock.now();
            let pod = Some(writer.pod.uid.clone());
            let work = execute::turn(self.deps.backends.clone(), writer.clone(), need, files_max, now);
            ctx.effect("rotate a log", pod, work, move |actor, turned, ctx| {
                actor.turned(&writer, need, turned, ctx);
            });
        }
        while let Some(((log, name), pod)) = self.compressions.next() {
            if ctx.is_quarantined(&pod.uid) {
                // The next rotation of the log finds the file again.
                self.compressions.ended(&(log, name));
                continue;
            }
            let work = execute::compress(self.deps.backends.clone(), log.clone(), name.clone());
            ctx.effect(
                Effect::within("compress a log", LONG),
                Some(pod.uid),
                work,
                move |actor, compressed, ctx| {
                    match compressed {
                        Ok(done) => actor.compressed += u64::from(done),
                        // The next rotation of the log tries again.
                        Err(error) => tracing::warn!(%error, "A log that was put aside stays as it is"),
                    }
                    actor.compressions.ended(&(log, name));
                    actor.go_on(ctx);
                },
            );
        }
    }

    fn turned(
        &mut self,
        writer: &Writer,
        need: Need,
        turned: Result<RotationOutcome, String>,
        ctx: &mut Ctx<Self>,
    ) {
        self.turns.ended(&writer.container);
        let pod = &writer.pod;
        match turned {
            Ok(RotationOutcome::Rotated { aside, compress }) => {
                self.rotated += 1;
                tracing::debug!(%pod, container = writer.log.container, aside, "A log was put aside");
                self.compressions.retain(|(log, name)| *log != writer.log || compress.contains(name));
                for name in compress {
                    self.compressions.put(pod.namespace.clone(), (writer.log.clone(), name), pod.clone());
                }
                if need == (Need::Rotate { oversized: true }) {
                    self.oversized.insert((writer.log.clone(), aside), pod.clone());
                }
                self.told(writer, Ok(()));
            }
            Ok(RotationOutcome::Reopened | RotationOutcome::Later) => self.told(writer, Ok(())),
            Err(problem) => self.told(writer, Err(problem)),
        }
        self.go_on(ctx);
    }

    /// Takes the running containers of a pod.
    fn see(&mut self, uid: &PodUid, now: Writers) {
        let before = self.writers.remove(uid).unwrap_or_default();
        for gone in before.keys().filter(|container| !now.contains_key(*container)) {
            self.problems.remove(gone);
        }
        if !now.is_empty() {
            self.writers.insert(uid.clone(), now);
        }
    }

    /// Logs a problem of a running container's log, if it is new.
    fn told(&mut self, writer: &Writer, outcome: Result<(), String>) {
        let Err(problem) = outcome else {
            self.problems.remove(&writer.container);
            return;
        };
        if !self.runs(writer) || self.problems.get(&writer.container) == Some(&problem) {
            return;
        }
        tracing::warn!(pod = %writer.pod, container = writer.log.container, problem, "A log cannot be rotated");
        self.problems.insert(writer.container.clone(), problem);
    }
}

impl Actor for LogManager {
    type Context = Ctx<Self>;
}

impl Subsystem for LogManager {
    const NAME: &'static str = log_manager::RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        if ctx.incarnation() > 1 {
            self.deps.configuration.tell_level(ResendConfiguration { receiver: Self::NAME });
        }
        self.begin(ctx);
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Look => self.look(ctx),
        }
    }

    fn on_release(&mut self, pod: &PodUid, _ctx: &mut Ctx<Self>) {
        let seen = self.observed.get(pod);
        self.see(pod, seen.map(|seen| writers(&seen.state)).unwrap_or_default());
    }

    fn observe(&self) -> serde_json::Value {
        let problems: Vec<&String> = self.problems.values().take(PROBLEMS_SHOWN).collect();
        serde_json::json!({
            "logs": self.writers.values().map(Writers::len).sum::<usize>(),
            "rotated": self.rotated,
            "compressed": self.compressed,
            "waiting": self.turns.len() + self.compressions.len() + self.oversized.len(),
            "problems": problems,
        })
    }
}

impl Handler<PodObserved> for LogManager {
    type Result = ();
    fn handle(&mut self, observed: PodObserved, ctx: &mut Ctx<Self>) {
        if self.deps.rotation.bytes_max.is_none() {
            return;
        }
        let Some(changed) = self.observed.hear(observed.0) else {
            return self.deps.pleg.tell_level(ResendObserved { receiver: Self::NAME });
        };
        for (uid, seen) in changed {
            ctx.for_pod(&uid, |_| self.see(&uid, writers(&seen.state)));
        }
    }
}

impl Handler<LogRotationConfigured> for LogManager {
    type Result = ();
    fn handle(&mut self, configured: LogRotationConfigured, ctx: &mut Ctx<Self>) {
        let rotation = configured.settings;
        if self.deps.rotation == rotation {
            return;
        }
        let was_on = self.deps.rotation.bytes_max.is_some();
        self.deps.rotation = rotation;
        self.turns.set_workers(rotation.workers);
        self.compressions.set_workers(rotation.workers);
        if was_on {
            // Without rotation the look ends there.
            ctx.set_timer(Timer::Look, rotation.interval);
        } else {
            self.begin(ctx);
        }
    }
}

#[cfg(test)]
mod tests {
    use bridge_node::host::FakeContainerLogs;
    use stage::{Fakes, Neighbour, pod};

    use super::*;

    fn crowd(kind: &str) -> Writers {
        let pod = pod(0).pod_ref.clone();
        let writer = |number: usize| {
            let container: Arc<str> = Arc::from(format!("{kind}{number:05}"));
            let log = LogPlace {
                root: "/var/log/pods".into(),
                pod: "pod".to_owned(),
                container: container.to_string(),
                file: "0.log".to_owned(),
            };
            (container.clone(), Writer { container, pod: pod.clone(), log })
        };
        (0..20_000).map(writer).collect()
    }

    #[tokio::test]
    async fn what_is_known_of_a_pod_takes_work_by_the_number_of_its_containers() {
        let fakes = Fakes::new();
        let mut manager = LogManager::new(LogManagerDeps {
            backends: Backends {
                runtime: fakes.operations.clone(),
                logs: Arc::new(FakeContainerLogs::new(fakes.disk.clone())),
            },
            clock: fakes.clock.clone(),
            rotation: LogRotation::default(),
            pleg: Neighbour::new("Pleg").address(),
            configuration: Neighbour::new("ConfigManager").address(),
        });
        let (uid, old) = (&pod(0).pod_ref.uid, crowd("old"));
        let begun = tokio::time::Instant::now();
        manager.see(uid, old.clone());
        for writer in old.values() {
            manager.told(writer, Err("the disk fails".to_owned()));
        }
        assert_eq!(manager.problems.len(), old.len());
        manager.see(uid, crowd("new"));
        let took = begun.elapsed();
        assert!(took.as_secs() < 5, "{took:?}");
        assert_eq!((manager.problems.len(), manager.runs(&old["old00000"])), (0, false));
    }
}
