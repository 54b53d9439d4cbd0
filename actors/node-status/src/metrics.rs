//! How long the node took to become ready, under upstream's names (row 22.1). What is not known has no series.

use bridge_metrics::Registry;
use jiff::Timestamp;
use prometheus::{Gauge, GaugeVec, Opts};

/// The metrics' handles, which outlive incarnations; clones count into the same metrics.
#[derive(Clone, Debug)]
pub struct NodeStatusMetrics {
    /// From the machine's start to the kubelet's.
    machine: GaugeVec,
    /// From the machine's start until the Node was ready.
    whole: GaugeVec,
    before: GaugeVec,
    registration: GaugeVec,
    after: GaugeVec,
    began: Timestamp,
    /// When the machine began, in seconds since the epoch.
    booted: Option<i64>,
    tried: Moment,
    registered: Moment,
    ready: Moment,
}

/// A moment that is noted once; it outlives incarnations like a metric.
#[derive(Clone, Debug)]
struct Moment(Gauge);

impl Moment {
    fn new() -> prometheus::Result<Self> {
        Gauge::new("moment", "Seconds since the epoch, 0 before.").map(Self)
    }

    fn seconds(&self) -> Option<f64> {
        Some(self.0.get()).filter(|seconds| *seconds != 0.0)
    }

    /// Notes it, and returns whether it had not been noted.
    fn note(&self, now: Timestamp) -> bool {
        let is_first = self.seconds().is_none();
        if is_first {
            self.0.set(now.as_duration().as_secs_f64());
        }
        is_first
    }
}

impl NodeStatusMetrics {
    /// New metrics of a kubelet that has just begun.
    ///
    /// # Errors
    /// A name is malformed, which does not happen.
    pub fn new(began: Timestamp) -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str| {
            GaugeVec::new(Opts::new(format!("kubelet_node_startup_{name}duration_seconds"), help), &[])
        };
        Ok(Self {
            machine: gauge("pre_kubelet_", "[ALPHA] Seconds from the machine's start to the kubelet's.")?,
            whole: gauge("", "[ALPHA] Seconds from the machine's start until a new Node was ready.")?,
            before: gauge(
                "pre_registration_",
                "[ALPHA] Seconds from the kubelet's start to its first attempt to register a new Node.",
            )?,
            registration: gauge(
                "registration_",
                "[ALPHA] Seconds from the first attempt to register a new Node to its success.",
            )?,
            after: gauge(
                "post_registration_",
                "[ALPHA] Seconds from the registration of a new Node until it was ready.",
            )?,
            began,
            booted: None,
            tried: Moment::new()?,
            registered: Moment::new()?,
            ready: Moment::new()?,
        })
    }

    /// The same on a machine that began in this second since the epoch, if that is known.
    #[must_use]
    pub fn with_boot(self, second: Option<i64>) -> Self {
        Self { booted: second, ..self }
    }

    /// When the machine began, in seconds since the epoch.
    #[allow(clippy::cast_precision_loss, reason = "a second of this century")]
    fn boot(&self) -> Option<f64> {
        self.booted.map(|second| second as f64)
    }

    /// Registers them.
    ///
    /// # Errors
    /// A metric of one of these names is registered already.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.machine.clone()))?;
        registry.register(Box::new(self.whole.clone()))?;
        registry.register(Box::new(self.before.clone()))?;
        registry.register(Box::new(self.registration.clone()))?;
        registry.register(Box::new(self.after.clone()))
    }

    /// The first attempt to register counts.
    pub(crate) fn tried(&self, now: Timestamp) {
        self.tried.note(now);
    }

    /// The Node was created, for the first time in this process. One that the cluster had already is not new.
    pub(crate) fn registered(&self, now: Timestamp) {
        if self.registered.note(now) {
            let began = Some(self.began.as_duration().as_secs_f64());
            set(&self.machine, self.boot(), began);
            set(&self.before, began, self.tried.seconds());
            set(&self.registration, self.tried.seconds(), self.registered.seconds());
        }
    }

    /// The API server knows that the Node is ready.
    pub(crate) fn ready(&self, now: Timestamp) {
        if self.registered.seconds().is_some() && self.ready.note(now) {
            set(&self.after, self.registered.seconds(), self.ready.seconds());
            set(&self.whole, self.boot(), self.ready.seconds());
        }
    }
}

fn set(gauge: &GaugeVec, from: Option<f64>, to: Option<f64>) {
    if let Some((from, to)) = from.zip(to) {
        gauge.with_label_values::<&str>(&[]).set(to - from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_new_node_is_measured_and_only_once() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let metrics = NodeStatusMetrics::new(at(100)).expect("well-formed");
        let registry = Registry::new();
        metrics.register(&registry).expect("distinct");
        metrics.tried(at(101));
        metrics.ready(at(102));
        assert_eq!(registry.gather().len(), 0, "the Node was there already");
        metrics.tried(at(103));
        metrics.registered(at(104));
        metrics.ready(at(109));
        metrics.registered(at(200));
        metrics.ready(at(300));
        let of = |metric: &prometheus::proto::MetricFamily| metric.get_metric()[0].get_gauge().get_value();
        let values: Vec<f64> = registry.gather().iter().map(of).collect();
        assert_eq!(values, [5.0, 1.0, 3.0], "after, before and during the registration");
        let metrics = NodeStatusMetrics::new(at(100)).expect("well-formed").with_boot(Some(60));
        let registry = Registry::new();
        metrics.register(&registry).expect("distinct");
        metrics.tried(at(103));
        metrics.registered(at(104));
        metrics.ready(at(109));
        let named = |family: &prometheus::proto::MetricFamily| (family.name().to_owned(), of(family));
        let values: std::collections::BTreeMap<String, f64> = registry.gather().iter().map(named).collect();
        assert_eq!(values["kubelet_node_startup_pre_kubelet_duration_seconds"], 40.0);
        assert_eq!(values["kubelet_node_startup_duration_seconds"], 49.0, "from the machine's start");
    }
}
