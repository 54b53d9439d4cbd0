//! The messages that StatsProvider receives.

use std::sync::Arc;

use crate::stats::{Families, Summary};
use crate::{delivery, receives};

/// Asks what node, pods and containers use now. The figures may be a second old: one reading answers everything that is asked
/// meanwhile. The answer is the reason for people if there are no figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetSummary {
    /// CPU, memory and swap are enough.
    pub only_cpu_and_memory: bool,
}
delivery!(GetSummary => Result<Arc<Summary>, String>: Query, Reject);

/// A page of metrics about usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetricsPage {
    /// `/metrics/resource`
    Resource,
    /// `/metrics/cadvisor`
    Cadvisor,
}

/// Asks for a page of metrics about usage. A page always comes: one without figures tells so by its own error metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetUsageMetrics(pub MetricsPage);
delivery!(GetUsageMetrics => Families: Query, Reject);

receives!("StatsProvider": GetSummary, GetUsageMetrics);
