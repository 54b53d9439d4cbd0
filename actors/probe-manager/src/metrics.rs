//! Upstream's metrics of probes (row 22.4), and Understudy's own of lateness.

use std::time::Duration;

use bridge_metrics::Registry;
use messages::PodRef;
use messages::facts::ProbeKind;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts};

use crate::texts::kind_name;

const RESULTS: [&str; 3] = ["successful", "failed", "unknown"];
const LATENESS_SECONDS: [f64; 10] = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// Handles of the metrics; clones count into the same metrics.
#[derive(Clone, Debug)]
pub struct ProbeMetrics {
    total: IntCounterVec,
    seconds: HistogramVec,
    lateness: Histogram,
    probes: IntGaugeVec,
}

impl ProbeMetrics {
    /// Fresh metrics, all empty.
    pub fn new() -> Self {
        let constant = "name and labels are constants";
        let total = Opts::new(
            "prober_probe_total",
            "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
        );
        let seconds = HistogramOpts::new(
            "prober_probe_duration_seconds",
            "[ALPHA] Duration in seconds for a probe response.",
        );
        let lateness = HistogramOpts::new(
            "understudy_probe_lateness_seconds",
            "How long after it was due a probe began. A late probe is not a failed one.",
        )
        .buckets(LATENESS_SECONDS.to_vec());
        let probes = Opts::new("understudy_probes", "Probes in flight, and probes that are due and wait.");
        Self {
            total: IntCounterVec::new(
                total,
                &["probe_type", "result", "container", "pod", "namespace", "pod_uid"],
            )
            .expect(constant),
            seconds: HistogramVec::new(seconds, &["probe_type", "container", "pod", "namespace"])
                .expect(constant),
            lateness: Histogram::with_opts(lateness).expect(constant),
            probes: IntGaugeVec::new(probes, &["state"]).expect(constant),
        }
    }

    /// Registers upstream's metrics with the registry of `/metrics/probes`, and Understudy's own with that of
    /// `/metrics`.
    ///
    /// # Errors
    /// A metric of one of these names is registered already.
    pub fn register(&self, probes: &Registry, ours: &Registry) -> prometheus::Result<()> {
        probes.register(Box::new(self.total.clone()))?;
        probes.register(Box::new(self.seconds.clone()))?;
        ours.register(Box::new(self.lateness.clone()))?;
        ours.register(Box::new(self.probes.clone()))
    }

    /// An incarnation begins, which may never hear of pods that the one before has counted for: the series begin anew, as with a new
    /// process.
    pub(crate) fn begin(&self) {
        self.total.reset();
        self.seconds.reset();
        self.traffic(0, 0);
    }

    /// Counts a probe that begins so long after it was due.
    pub(crate) fn began(&self, late_by: Duration) {
        self.lateness.observe(late_by.as_secs_f64());
    }

    /// Sets the numbers of probes in flight and waiting.
    pub(crate) fn traffic(&self, in_flight: usize, waiting: usize) {
        for (state, count) in [("in_flight", in_flight), ("waiting", waiting)] {
            self.probes.with_label_values(&[state]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Counts the answer that a container gave after `took`.
    pub(crate) fn answered(
        &self,
        pod: &PodRef,
        container: &str,
        kind: ProbeKind,
        passed: bool,
        took: Duration,
    ) {
        let result = if passed { "successful" } else { "failed" };
        let kind = kind_name(kind);
        self.total
            .with_label_values(&[kind, result, container, &*pod.name, &*pod.namespace, pod.uid.as_str()])
            .inc();
        if passed {
            let labels = [kind, container, &*pod.name, &*pod.namespace];
            self.seconds.with_label_values(&labels).observe(took.as_secs_f64());
        }
    }

    /// Removes the series of a probe that no longer exists.
    pub(crate) fn forget(&self, pod: &PodRef, container: &str, kind: ProbeKind) {
        let kind = kind_name(kind);
        // Removing a series that does not exist is no error.
        for result in RESULTS {
            let labels = [kind, result, container, &*pod.name, &*pod.namespace, pod.uid.as_str()];
            let _ = self.total.remove_label_values(&labels);
        }
        let _ = self.seconds.remove_label_values(&[kind, container, &*pod.name, &*pod.namespace]);
    }
}

impl Default for ProbeMetrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use messages::PodUid;

    use super::*;

    #[test]
    fn series_begin_with_an_answer_and_end_with_the_probe() {
        let (metrics, probes, ours) = (ProbeMetrics::new(), Registry::new(), Registry::new());
        metrics.register(&probes, &ours).expect("the registries are empty");
        let pod = PodRef { uid: PodUid::new("u"), namespace: "ns".into(), name: "p".into() };
        metrics.answered(&pod, "c", ProbeKind::Liveness, true, Duration::from_millis(3));
        metrics.answered(&pod, "c", ProbeKind::Liveness, false, Duration::from_millis(3));
        let series = || -> usize { probes.gather().iter().map(|family| family.get_metric().len()).sum() };
        assert_eq!(series(), 3);
        metrics.forget(&pod, "c", ProbeKind::Liveness);
        assert_eq!(series(), 0);
        metrics.answered(&pod, "c", ProbeKind::Liveness, true, Duration::from_millis(3));
        metrics.begin();
        assert_eq!(series(), 0, "an incarnation may never hear of the pod");
    }
}
