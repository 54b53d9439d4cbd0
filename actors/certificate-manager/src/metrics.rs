//! CertificateManager's metrics, under upstream's names (row 22.1).

use std::time::Duration;

use bridge_metrics::Registry;
use bridge_tls::certificates::{Leaf, Purpose};
use jiff::Timestamp;
use prometheus::{Gauge, Histogram, HistogramOpts, IntCounter};

/// Upper bounds of buckets in seconds: one minute, hours, days, months, years.
const AGES: [f64; 10] = [
    60.0,
    3600.0,
    14_400.0,
    86_400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    124_416_000.0,
];

/// Handles of the metrics, which survive restarts of the actor.
#[derive(Clone, Debug)]
pub struct CertificateMetrics {
    client_failures: IntCounter,
    serving_failures: IntCounter,
    client_ttl: Gauge,
    serving_ttl: Gauge,
    serving_age: Histogram,
}

impl CertificateMetrics {
    /// Makes the handles.
    pub fn new() -> prometheus::Result<Self> {
        let ages = HistogramOpts::new(
            "kubelet_certificate_manager_server_rotation_seconds",
            "[ALPHA] Histogram of the number of seconds the previous certificate lived before being rotated.",
        );
        let renewal = "[ALPHA] Counter of certificate renewal errors.";
        let ttl = |name: &str, whose: &str| {
            let help = format!(
                "[ALPHA] Seconds until the kubelet's {whose} certificate ends (negative if it has, +Inf if there is none)."
            );
            let gauge = Gauge::new(name, help)?;
            gauge.set(f64::INFINITY);
            Ok::<_, prometheus::Error>(gauge)
        };
        Ok(Self {
            client_failures: IntCounter::new(
                "kubelet_certificate_manager_client_expiration_renew_errors",
                renewal,
            )?,
            serving_failures: IntCounter::new("kubelet_server_expiration_renew_errors", renewal)?,
            client_ttl: ttl("kubelet_certificate_manager_client_ttl_seconds", "client")?,
            serving_ttl: ttl("kubelet_certificate_manager_server_ttl_seconds", "serving")?,
            serving_age: Histogram::with_opts(ages.buckets(AGES.to_vec()))?,
        })
    }

    /// Registers the metrics of these purposes.
    pub fn register(&self, registry: &Registry, purposes: &[Purpose]) -> prometheus::Result<()> {
        for purpose in purposes {
            match purpose {
                Purpose::Client => {
                    registry.register(Box::new(self.client_failures.clone()))?;
                    registry.register(Box::new(self.client_ttl.clone()))?;
                }
                Purpose::Serving => {
                    registry.register(Box::new(self.serving_failures.clone()))?;
                    registry.register(Box::new(self.serving_ttl.clone()))?;
                    registry.register(Box::new(self.serving_age.clone()))?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn failed(&self, purpose: Purpose) {
        match purpose {
            Purpose::Client => self.client_failures.inc(),
            Purpose::Serving => self.serving_failures.inc(),
        }
    }

    pub(crate) fn rotated(&self, purpose: Purpose, old: &Leaf, now: Timestamp) {
        if purpose == Purpose::Serving {
            let age = Duration::try_from(now.duration_since(old.not_before)).unwrap_or_default();
            self.serving_age.observe(age.as_secs_f64());
        }
    }

    pub(crate) fn ends(&self, purpose: Purpose, leaf: Option<&Leaf>, now: Timestamp) {
        let left =
            leaf.map_or(f64::INFINITY, |leaf| leaf.not_after.duration_since(now).as_secs_f64().trunc());
        match purpose {
            Purpose::Client => self.client_ttl.set(left),
            Purpose::Serving => self.serving_ttl.set(left),
        }
    }
}
