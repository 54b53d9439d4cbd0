//! The actor: remembers who writes logs, looks at their sizes now and then, and has those rotated that are full.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler};
use bridge_io::clock::Clock;
use bridge_node::host::LogPlace;
use messages::PodUid;
use messages::facts::PodObserved;
use messages::log_manager;
use messages::pleg::ResendObserved;
use pod_set::Looks;
use supervision::{Address, Ctx, Effect, Subsystem, blame};

use crate::execute::{self, Looked, Turned, Ways};
use crate::plan::{LogRotation, Need, Writer, writers};
use crate::queue::Queue;

/// Problems that are shown one by one.
const PROBLEMS_SHOWN: usize = 5;
/// How long compressing one log may take, at low priority.
const LONG: Duration = Duration::from_secs(3600);

/// What LogManager is given.
#[derive(Clone)]
pub struct LogManagerDeps {
    /// The runtime and the files.
    pub ways: Ways,
    /// Wall time: files are named after it.
    pub clock: Arc<dyn Clock>,
    /// How logs are rotated.
    pub rotation: LogRotation,
    /// Asked again after a restart.
    pub pleg: Address<ResendObserved>,
}

/// LogManager's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Look at the sizes.
    Look,
}

/// A file put aside, to be compressed.
type Aside = (LogPlace, String);

/// Keeps logs from growing without end.
pub struct LogManager {
    deps: LogManagerDeps,
    writers: BTreeMap<PodUid, Vec<Writer>>,
    looks: Looks,
    /// By the container's ID.
    turns: Queue<Arc<str>, (Writer, Need)>,
    compressions: Queue<Aside, PodUid>,
    /// Far too large, and put aside since the last look: who reads logs has until the next one to come to its end.
    oversized: BTreeMap<Aside, PodUid>,
    /// By the container's ID, as last told.
    problems: BTreeMap<Arc<str>, String>,
    rotated: u64,
    compressed: u64,
}

impl LogManager {
    /// An incarnation that knows of no log.
    pub fn new(deps: LogManagerDeps) -> Self {
        let workers = deps.rotation.workers;
        Self {
            deps,
            writers: BTreeMap::new(),
            looks: Looks::default(),
            turns: Queue::new(workers),
            compressions: Queue::new(workers),
            oversized: BTreeMap::new(),
            problems: BTreeMap::new(),
            rotated: 0,
            compressed: 0,
        }
    }

    fn look(&mut self, ctx: &mut Ctx<Self>) {
        let Some(bytes_max) = self.deps.rotation.bytes_max else { return };
        let watched = self.writers.iter().filter(|(uid, _)| !ctx.is_quarantined(uid));
        let all: Vec<Writer> = watched.flat_map(|(_, writers)| writers).cloned().collect();
        if all.is_empty() {
            ctx.set_timer(Timer::Look, self.deps.rotation.interval);
            return;
        }
        let work = execute::look(self.deps.ways.clone(), all, bytes_max);
        ctx.effect("look at logs", None, work, Self::looked);
    }

    fn looked(&mut self, looked: Looked, ctx: &mut Ctx<Self>) {
        ctx.set_timer(Timer::Look, self.deps.rotation.interval);
        for ((log, name), pod) in std::mem::take(&mut self.oversized) {
            self.compressions.put((log, name), pod);
        }
        for (writer, problem) in looked.problems {
            blame::for_pod(&writer.pod.uid, || self.told(&writer, Err(problem)));
        }
        for (writer, need) in looked.needs {
            self.turns.put(writer.container.clone(), (writer, need));
        }
        self.go_on(ctx);
    }

    fn runs(&self, writer: &Writer) -> bool {
        let of_pod = self.writers.get(&writer.pod.uid);
        of_pod.is_some_and(|all| all.iter().any(|one| one.container == writer.container))
    }

    /// Begins as much as may be under way.
    fn go_on(&mut self, ctx: &mut Ctx<Self>) {
        while let Some((container, (writer, need))) = self.turns.next() {
            // The next look finds it again.
            if !self.runs(&writer) || ctx.is_quarantined(&writer.pod.uid) {
                self.turns.ended(&container);
                continue;
            }
            let files_max = self.deps.rotation.files_max;
            let now = self.deps.clock.now();
            let pod = Some(writer.pod.uid.clone());
            let work = execute::turn(self.deps.ways.clone(), writer.clone(), need, files_max, now);
            ctx.effect("rotate a log", pod, work, move |actor, turned, ctx| {
                actor.turned(&writer, need, turned, ctx);
            });
        }
        while let Some(((log, name), pod)) = self.compressions.next() {
            if ctx.is_quarantined(&pod) {
                // The next turn of its log finds it again.
                self.compressions.ended(&(log, name));
                continue;
            }
            let work = execute::compress(self.deps.ways.clone(), log.clone(), name.clone());
            ctx.effect(
                Effect::within("compress a log", LONG),
                Some(pod),
                work,
                move |actor, compressed, ctx| {
                    match compressed {
                        Ok(done) => actor.compressed += u64::from(done),
                        // It is tried again when the next one is put aside.
                        Err(error) => tracing::warn!(%error, "A log that was put aside stays as it is"),
                    }
                    actor.compressions.ended(&(log, name));
                    actor.go_on(ctx);
                },
            );
        }
    }

    fn turned(&mut self, writer: &Writer, need: Need, turned: Result<Turned, String>, ctx: &mut Ctx<Self>) {
        self.turns.ended(&writer.container);
        let pod = &writer.pod.uid;
        match turned {
            Ok(Turned::Rotated { aside, compress }) => {
                self.rotated += 1;
                tracing::debug!(pod = %writer.pod, container = writer.log.container, aside, "A log was put aside");
                self.compressions.retain(|(log, name)| *log != writer.log || compress.contains(name));
                for name in compress {
                    self.compressions.put((writer.log.clone(), name), pod.clone());
                }
                if need == (Need::Rotate { oversized: true }) {
                    self.oversized.insert((writer.log.clone(), aside), pod.clone());
                }
                self.told(writer, Ok(()));
            }
            Ok(Turned::Reopened | Turned::Later) => self.told(writer, Ok(())),
            Err(problem) => self.told(writer, Err(problem)),
        }
        self.go_on(ctx);
    }

    /// What is wrong with a running container's log is said when it is something new.
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
        if self.deps.rotation.bytes_max.is_none() {
            return;
        }
        ctx.tell_until_taken(&self.deps.pleg, ResendObserved);
        ctx.set_timer(Timer::Look, self.deps.rotation.interval);
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Look => self.look(ctx),
        }
    }

    fn observe(&self) -> serde_json::Value {
        let problems: Vec<&String> = self.problems.values().take(PROBLEMS_SHOWN).collect();
        serde_json::json!({
            "logs": self.writers.values().map(Vec::len).sum::<usize>(),
            "rotated": self.rotated,
            "compressed": self.compressed,
            "waiting": self.turns.len() + self.compressions.len() + self.oversized.len(),
            "problems": problems,
        })
    }
}

impl Handler<PodObserved> for LogManager {
    type Result = ();
    fn handle(&mut self, observed: PodObserved, _ctx: &mut Ctx<Self>) {
        if self.deps.rotation.bytes_max.is_none() {
            return;
        }
        if !self.looks.is_newest(&observed.uid, observed.look) {
            return;
        }
        let writers = writers(&observed.state);
        let known = self.writers.get(&observed.uid);
        let ended = known
            .into_iter()
            .flatten()
            .filter(|one| writers.iter().all(|now| now.container != one.container));
        for one in ended {
            self.problems.remove(&one.container);
        }
        if writers.is_empty() {
            self.writers.remove(&observed.uid);
        } else {
            self.writers.insert(observed.uid, writers);
        }
    }
}
