//! The actor: one reading at a time for each depth, for all that wait for it.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler};
use bridge_node::stats::usage::Parts;
use jiff::Timestamp;
use messages::stats::{Families, Summary};
use messages::stats_provider::{self, GetSummary, GetUsageMetrics, MetricsPage};
use supervision::{Ctx, Reply, ReplyLater, Subsystem, reply_later};
use tokio::time::Instant;

use crate::cadvisor::{self, Machine};
use crate::execute::{self, Backends, Facts, Pass, Told};
use crate::images::SandboxImages;
use crate::rate::Rates;
use crate::resource;
use crate::summary::{self, Source};

/// How long figures are good.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// The most asks that wait for one reading; further ones are lost, and their askers say so.
const WAITING_MAX: usize = 4096;

/// StatsProvider's configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatsConfig {
    /// Cgroups of the system by the name that the summary has for them; `None` stands for that of the kubelet's process.
    pub systems: BTreeMap<String, Option<String>>,
    /// The machine.
    pub machine: Machine,
}

/// StatsProvider's configuration and sources.
#[derive(Clone)]
pub struct StatsProviderDeps {
    /// The node's name.
    pub node: Arc<str>,
    /// When the kubelet began.
    pub began: Timestamp,
    /// Configuration.
    pub config: Arc<StatsConfig>,
    /// Sources of figures.
    pub backends: Backends,
}

/// How deep a reading goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Depth {
    CpuAndMemory,
    Summary,
    Cadvisor,
}

impl Depth {
    fn parts(self) -> Parts {
        match self {
            Self::CpuAndMemory => Parts::default(),
            Self::Summary => Parts { processes: true, storage: true, details: false },
            Self::Cadvisor => Parts { processes: true, storage: false, details: true },
        }
    }
}

/// What is made of a reading.
enum Figures {
    /// The summary, and the page that is made of it when it is first asked for.
    Summary(Arc<Summary>, OnceCell<Families>),
    Page(Families),
}

type Made = Result<Figures, String>;

/// An ask that waits.
enum Waiting {
    Summary(Reply<Result<Arc<Summary>, String>>),
    Page(MetricsPage, Reply<Families>),
}

impl Waiting {
    fn is_wanted(&self) -> bool {
        match self {
            Self::Summary(reply) => reply.is_wanted(),
            Self::Page(_, reply) => reply.is_wanted(),
        }
    }

    fn answer(self, made: &Made, machine: &Machine) {
        let summary = match made {
            Ok(Figures::Summary(summary, _)) => Ok(summary),
            Ok(Figures::Page(_)) => Err("these figures are no summary".to_owned()),
            Err(why) => Err(why.clone()),
        };
        match self {
            Self::Summary(reply) => reply.send(summary.cloned()),
            Self::Page(MetricsPage::Resource, reply) => reply.send(match made {
                Ok(Figures::Summary(summary, page)) => {
                    page.get_or_init(|| resource::page(Some(summary))).clone()
                }
                _ => resource::page(None),
            }),
            Self::Page(MetricsPage::Cadvisor, reply) => match made {
                Ok(Figures::Page(page)) => reply.send(page.clone()),
                _ => reply.send(cadvisor::empty_page(machine)),
            },
        }
    }
}

/// The figures of one depth.
#[derive(Default)]
struct Kept {
    /// The last ones, and since when they are kept.
    last: Option<(Instant, Made)>,
    /// A reading is under way.
    reading: bool,
    waiting: Vec<Waiting>,
}

/// StatsProvider: tells what node, pods and containers use.
pub struct StatsProvider {
    deps: StatsProviderDeps,
    kept: BTreeMap<Depth, Kept>,
    rates: Rates,
    told: Option<Told>,
    /// The images of sandboxes, as the last page of all cgroups had them.
    images: SandboxImages,
    readings: u64,
    problem: Option<String>,
}

impl StatsProvider {
    /// An incarnation that has read nothing.
    pub fn new(deps: StatsProviderDeps) -> Self {
        Self {
            deps,
            kept: BTreeMap::new(),
            rates: Rates::default(),
            told: None,
            images: SandboxImages::new(),
            readings: 0,
            problem: None,
        }
    }

    /// Answers from what is kept, or when a reading has ended.
    fn ask(&mut self, depth: Depth, ask: Waiting, ctx: &mut Ctx<Self>) {
        let kept = self.kept.entry(depth).or_default();
        if let Some((at, made)) = &kept.last
            && at.elapsed() < FRESH_FOR
        {
            ask.answer(made, &self.deps.config.machine);
            return;
        }
        kept.waiting.retain(Waiting::is_wanted);
        if kept.waiting.len() < WAITING_MAX {
            kept.waiting.push(ask);
        }
        if !std::mem::replace(&mut kept.reading, true) {
            self.read(depth, ctx);
        }
    }

    fn read(&mut self, depth: Depth, ctx: &mut Ctx<Self>) {
        self.readings += 1;
        let pass = Pass {
            parts: depth.parts(),
            systems: self.deps.config.systems.clone(),
            left_alone: ctx.quarantined(),
            told: self.told.clone(),
            images: if depth == Depth::Cadvisor { self.images.clone() } else { SandboxImages::new() },
        };
        let work = execute::read(self.deps.backends.clone(), pass);
        ctx.effect("read usage", None, work, move |actor, facts, ctx| actor.have_read(depth, facts, ctx));
    }

    fn have_read(&mut self, depth: Depth, facts: Result<Facts, String>, ctx: &mut Ctx<Self>) {
        self.note(facts.as_ref().map_or_else(|why| Some(why.clone()), |facts| facts.problem.clone()));
        match facts {
            Ok(facts) => self.make(depth, facts, ctx),
            Err(why) => self.have_made(depth, Err(why)),
        }
    }

    fn have_made(&mut self, depth: Depth, made: Made) {
        let kept = self.kept.entry(depth).or_default();
        kept.reading = false;
        let waiting = std::mem::take(&mut kept.waiting);
        for ask in waiting {
            ask.answer(&made, &self.deps.config.machine);
        }
        // A failure is no figure: the next ask tries again.
        kept.last = made.is_ok().then_some((Instant::now(), made));
    }

    /// Makes the figures of one pass. The page of all cgroups has many thousand values, so a task of the bridge makes it.
    fn make(&mut self, depth: Depth, facts: Facts, ctx: &mut Ctx<Self>) {
        let Facts { pods, reading, images, told, volumes, problem: _ } = facts;
        if told.is_some() {
            self.told.clone_from(&told);
        }
        let of_pods = reading.pods.values().flat_map(|pod| pod.group.iter().chain(pod.containers.values()));
        let groups = reading.pod_groups.iter().chain(reading.systems.values()).chain(of_pods);
        self.rates.see(groups.chain([&reading.root]), reading.at);
        if depth == Depth::Cadvisor {
            self.images.clone_from(&images);
            let machine = self.deps.config.machine.clone();
            let page = execute::page(&self.deps.backends.io, pods, reading, images, machine);
            ctx.effect("make a page", None, page, move |actor, page, _| {
                actor.have_made(depth, page.map(Figures::Page));
            });
            return;
        }
        let source = Source {
            reading: &reading,
            told: told.as_ref().map(|(_, told)| &**told),
            volumes: volumes.as_ref(),
            rates: &self.rates,
            only_cpu_and_memory: depth == Depth::CpuAndMemory,
        };
        let node = summary::node(source, &self.deps.node, self.deps.began);
        let pods = pods.iter().filter_map(|pod| ctx.for_pod(pod.uid(), |_| summary::pod(source, pod)));
        let summary = Arc::new(Summary { node, pods: pods.collect() });
        self.have_made(depth, Ok(Figures::Summary(summary, OnceCell::new())));
    }

    /// Logs a problem if it is new.
    fn note(&mut self, problem: Option<String>) {
        if let Some(problem) = problem.as_ref().filter(|new| self.problem.as_ref() != Some(*new)) {
            tracing::warn!(problem, "Figures are missing");
        }
        self.problem = problem;
    }
}

impl Actor for StatsProvider {
    type Context = Ctx<Self>;
}

impl Subsystem for StatsProvider {
    const NAME: &'static str = stats_provider::RECEIVER;
    // StatsProvider never acts by itself.
    type Timer = ();

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({
            "readings": self.readings,
            "waiting": self.kept.values().map(|kept| kept.waiting.len()).sum::<usize>(),
            "rates": self.rates.len(),
            "problem": self.problem,
        })
    }
}

impl Handler<GetSummary> for StatsProvider {
    type Result = ReplyLater<Result<Arc<Summary>, String>>;
    fn handle(&mut self, ask: GetSummary, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        let depth = if ask.only_cpu_and_memory { Depth::CpuAndMemory } else { Depth::Summary };
        self.ask(depth, Waiting::Summary(reply), ctx);
        later
    }
}

impl Handler<GetUsageMetrics> for StatsProvider {
    type Result = ReplyLater<Families>;
    fn handle(&mut self, GetUsageMetrics(page): GetUsageMetrics, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        let depth = match page {
            MetricsPage::Resource => Depth::CpuAndMemory,
            MetricsPage::Cadvisor => Depth::Cadvisor,
        };
        self.ask(depth, Waiting::Page(page, reply), ctx);
        later
    }
}
