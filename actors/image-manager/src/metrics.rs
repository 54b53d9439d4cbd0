//! Upstream's metrics of images (row 22.1).

use std::time::Duration;

use bridge_metrics::Registry;
use bridge_node::host::RecordKind;
use messages::image_manager::PullPolicy;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts};

use crate::collection::Reason;
use crate::credentials::providers::CredentialProviders;
use crate::records::Checked;

const PULL_SECONDS: [f64; 18] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0,
    2700.0, 3600.0,
];
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Lower bounds of image sizes in bytes, exclusive, with the metric's label; the largest first.
const SIZES: [(u64, &str); 12] = [
    (100 * GIB, "GT100GB"),
    (60 * GIB, "60GB-100GB"),
    (40 * GIB, "40GB-60GB"),
    (30 * GIB, "30GB-40GB"),
    (20 * GIB, "20GB-30GB"),
    (10 * GIB, "10GB-20GB"),
    (5 * GIB, "5GB-10GB"),
    (GIB, "1GB-5GB"),
    (500 * MIB, "500MB-1GB"),
    (100 * MIB, "100MB-500MB"),
    (10 * MIB, "10MB-100MB"),
    (0, "0-10MB"),
];

/// The metrics' handles; clones count into the same metrics.
#[derive(Clone, Debug)]
pub struct ImageMetrics {
    pull_seconds: HistogramVec,
    requests: IntCounterVec,
    checks: IntCounterVec,
    collected: IntCounterVec,
    intents: IntGauge,
    records: IntGauge,
    plugin_seconds: HistogramVec,
    plugin_errors: IntCounterVec,
    providers: IntGaugeVec,
}

impl ImageMetrics {
    /// New metrics, all empty.
    pub fn new() -> Self {
        let pull_seconds = HistogramOpts::new(
            "kubelet_image_pull_duration_seconds",
            "[ALPHA] Duration in seconds to pull an image.",
        )
        .buckets(PULL_SECONDS.to_vec());
        let requests = Opts::new(
            "kubelet_image_manager_ensure_image_requests_total",
            "[ALPHA] Number of ensure-image requests processed by the kubelet.",
        );
        let checks = Opts::new(
            "kubelet_imagemanager_image_mustpull_checks_total",
            "[ALPHA] Counter for how many times kubelet checked whether credentials need to be re-verified to access an image",
        );
        let collected = Opts::new(
            "kubelet_image_garbage_collected_total",
            "[ALPHA] Number of unused images that the kubelet has deleted, by the reason.",
        );
        let plugin_seconds = HistogramOpts::new(
            "kubelet_credential_provider_plugin_duration",
            "[ALPHA] Duration of execution in seconds for credential provider plugin.",
        );
        let plugin_errors = Opts::new(
            "kubelet_credential_provider_plugin_errors_total",
            "[ALPHA] Number of errors from credential provider plugin.",
        );
        let providers = Opts::new(
            "kubelet_credential_provider_config_info",
            "[ALPHA] The hash of the credential providers' configuration, as a label.",
        );
        let gauge = |name: &str, help: &str| IntGauge::new(name, help).expect("the name is a constant");
        Self {
            collected: IntCounterVec::new(collected, &["reason"]).expect("name and label are constants"),
            checks: IntCounterVec::new(checks, &["result"]).expect("name and label are constants"),
            intents: gauge(
                "kubelet_imagemanager_ondisk_pullintents",
                "[ALPHA] Number of ImagePullIntents stored on disk.",
            ),
            records: gauge(
                "kubelet_imagemanager_ondisk_pulledrecords",
                "[ALPHA] Number of ImagePulledRecords stored on disk.",
            ),
            plugin_seconds: HistogramVec::new(plugin_seconds, &["plugin_name"])
                .expect("name and label are constants"),
            plugin_errors: IntCounterVec::new(plugin_errors, &["plugin_name"])
                .expect("name and label are constants"),
            providers: IntGaugeVec::new(providers, &["hash"]).expect("name and label are constants"),
            pull_seconds: HistogramVec::new(pull_seconds, &["image_size_in_bytes"])
                .expect("name and label are constants"),
            requests: IntCounterVec::new(requests, &["pull_policy", "present_locally", "pull_required"])
                .expect("name and labels are constants"),
        }
    }

    /// Registers the metrics with a registry.
    ///
    /// # Errors
    /// A metric of one of these names is registered already.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.pull_seconds.clone()))?;
        registry.register(Box::new(self.checks.clone()))?;
        registry.register(Box::new(self.collected.clone()))?;
        registry.register(Box::new(self.intents.clone()))?;
        registry.register(Box::new(self.records.clone()))?;
        registry.register(Box::new(self.plugin_seconds.clone()))?;
        registry.register(Box::new(self.plugin_errors.clone()))?;
        registry.register(Box::new(self.providers.clone()))?;
        registry.register(Box::new(self.requests.clone()))
    }

    /// Shows which configuration of credential providers is in force.
    pub fn configured(&self, providers: &CredentialProviders) {
        if let Some(hash) = &providers.hash {
            self.providers.with_label_values(&[hash.as_str()]).set(1);
        }
    }

    /// Observes a run of a credential provider's plugin, with the wait for its turn.
    pub(crate) fn plugin_ran(&self, provider: &str, took: Duration, succeeded: bool) {
        self.plugin_seconds.with_label_values(&[provider]).observe(took.as_secs_f64());
        if !succeeded {
            self.plugin_errors.with_label_values(&[provider]).inc();
        }
    }

    /// Counts a check whether a pod may use an image that is on the node.
    pub(crate) fn checked(&self, checked: Checked) {
        self.checks.with_label_values(&[checked.label()]).inc();
    }

    /// Counts an unused image that was deleted for this reason.
    pub(crate) fn collected(&self, reason: Reason) {
        self.collected.with_label_values(&[reason.label()]).inc();
    }

    /// Sets how many records of a kind are on disk.
    pub(crate) fn on_disk(&self, kind: RecordKind, count: usize) {
        let gauge = match kind {
            RecordKind::Pulling => &self.intents,
            RecordKind::Pulled => &self.records,
        };
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Observes that an asker got its image of `bytes` by a pull after `waited`.
    pub(crate) fn pulled(&self, bytes: u64, waited: Duration) {
        self.pull_seconds.with_label_values(&[size_bucket(bytes)]).observe(waited.as_secs_f64());
    }

    /// Counts a decided ask. `None` stands for a value that was not determined.
    pub(crate) fn asked(&self, policy: PullPolicy, present: Option<bool>, pull_required: Option<bool>) {
        let policy = match policy {
            PullPolicy::Always => "always",
            PullPolicy::IfNotPresent => "ifnotpresent",
            PullPolicy::Never => "never",
        };
        self.requests.with_label_values(&[policy, word(present), word(pull_required)]).inc();
    }
}

impl Default for ImageMetrics {
    fn default() -> Self {
        Self::new()
    }
}

fn word(known: Option<bool>) -> &'static str {
    match known {
        Some(true) => "true",
        Some(false) => "false",
        None => "unknown",
    }
}

fn size_bucket(bytes: u64) -> &'static str {
    SIZES.iter().find(|(lower, _)| bytes > *lower).map_or("N/A", |(_, label)| label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fall_into_upstreams_buckets() {
        for (bytes, label) in [
            (0, "N/A"),
            (1, "0-10MB"),
            (10 * MIB, "0-10MB"),
            (10 * MIB + 1, "10MB-100MB"),
            (GIB + 1, "1GB-5GB"),
            (u64::MAX, "GT100GB"),
        ] {
            assert_eq!(size_bucket(bytes), label, "{bytes}");
        }
    }

    #[test]
    fn the_names_are_taken_once() {
        let (metrics, registry) = (ImageMetrics::new(), Registry::new());
        metrics.asked(PullPolicy::IfNotPresent, Some(false), Some(true));
        metrics.pulled(5, Duration::from_secs(2));
        metrics.register(&registry).expect("the registry is empty");
        assert_eq!(registry.gather().len(), 4);
        assert!(metrics.register(&registry).is_err());
    }
}
