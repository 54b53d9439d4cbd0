//! The tree as Prometheus metrics, read from the actors' cells at every scrape.

use std::collections::BTreeMap;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, GaugeVec, IntCounterVec, IntGaugeVec, Opts};

use crate::tree::Tree;

/// Collects `understudy_actor_*`; children are added up under their type's name.
pub struct TreeCollector {
    tree: Tree,
    descs: Vec<Desc>,
}

struct Families {
    handled: IntCounterVec,
    restarts: IntCounterVec,
    pod_crashes: IntCounterVec,
    dropped: IntCounterVec,
    dead_letters: IntCounterVec,
    overdue: IntCounterVec,
    busy: CounterVec,
    depth: IntGaugeVec,
    actors: IntGaugeVec,
    bound: GaugeVec,
}

impl Families {
    fn new() -> prometheus::Result<Self> {
        let opts = |name: &str, help: &str| Opts::new(format!("understudy_actor_{name}"), help);
        let by = &["actor"];
        Ok(Self {
            handled: IntCounterVec::new(opts("handled_total", "Messages, effects and timers handled."), by)?,
            restarts: IntCounterVec::new(opts("restarts_total", "Restarts by supervision."), by)?,
            pod_crashes: IntCounterVec::new(
                opts("pod_crashes_total", "Crashes that were put down to pods."),
                by,
            )?,
            dropped: IntCounterVec::new(opts("dropped_total", "Messages dropped from a mailbox."), by)?,
            dead_letters: IntCounterVec::new(
                opts("dead_letters_total", "Messages refused by a mailbox."),
                by,
            )?,
            overdue: IntCounterVec::new(
                opts("overdue_effects_total", "Effects that passed their deadline."),
                by,
            )?,
            busy: CounterVec::new(opts("busy_seconds_total", "Seconds spent handling."), by)?,
            depth: IntGaugeVec::new(opts("mailbox_depth", "Messages waiting."), by)?,
            actors: IntGaugeVec::new(
                Opts::new("understudy_actors", "Actors by state."),
                &["actor", "state"],
            )?,
            bound: GaugeVec::new(opts("mailbox_bound", "Messages that may wait in one mailbox."), by)?,
        })
    }

    fn collectors(&self) -> [&dyn Collector; 10] {
        [
            &self.handled,
            &self.restarts,
            &self.pod_crashes,
            &self.dropped,
            &self.dead_letters,
            &self.overdue,
            &self.busy,
            &self.depth,
            &self.actors,
            &self.bound,
        ]
    }
}

impl TreeCollector {
    /// A collector to register in the one registry.
    pub fn new(tree: Tree) -> prometheus::Result<Self> {
        let descs = Families::new()?.collectors().iter().flat_map(|c| c.desc()).cloned().collect();
        Ok(Self { tree, descs })
    }
}

impl Collector for TreeCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Ok(families) = Families::new() else { return Vec::new() };
        let mut states: BTreeMap<(&str, String), i64> = BTreeMap::new();
        for report in self.tree.reports() {
            let by = &[report.kind];
            let counters = &report.counters;
            families.handled.with_label_values(by).inc_by(counters.handled);
            families.restarts.with_label_values(by).inc_by(report.restarts);
            families.pod_crashes.with_label_values(by).inc_by(report.pod_crashes);
            families.dropped.with_label_values(by).inc_by(counters.dropped);
            families.dead_letters.with_label_values(by).inc_by(counters.dead_letters);
            families.overdue.with_label_values(by).inc_by(report.effects_overdue);
            families.busy.with_label_values(by).inc_by(counters.busy_seconds);
            families.depth.with_label_values(by).add(report.mailbox_depth as i64);
            families.bound.with_label_values(by).set(report.mailbox_bound as f64);
            *states.entry((report.kind, format!("{:?}", report.state).to_lowercase())).or_default() += 1;
        }
        for ((kind, state), count) in states {
            families.actors.with_label_values(&[kind, state.as_str()]).set(count);
        }
        families.collectors().iter().flat_map(|collector| collector.collect()).collect()
    }
}
