//! The registry: Prometheus' own, which also remembers what has been registered. A family without series is on no page, so
//! that the pages alone do not tell which families there are.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::Collector;
use prometheus::proto::{MetricFamily, MetricType};

/// A family that may have series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Described {
    /// The name.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// The names of the labels, sorted.
    pub labels: Vec<String>,
    /// The help text.
    pub help: String,
}

/// The handles of metrics. Clones are the same registry.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    inner: prometheus::Registry,
    described: Arc<Mutex<Vec<Described>>>,
}

impl Registry {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the families of a handle.
    ///
    /// # Errors
    /// There is one of such a name already.
    pub fn register(&self, collector: Box<dyn Collector>) -> prometheus::Result<()> {
        let families = collector.collect();
        let of = |desc: &&prometheus::core::Desc| {
            let family = families.iter().find(|family| family.name() == desc.fq_name);
            let constant = desc.const_label_pairs.iter().map(|label| label.name().to_owned());
            let mut labels: Vec<String> = desc.variable_labels.iter().cloned().chain(constant).collect();
            labels.sort();
            Described {
                name: desc.fq_name.clone(),
                kind: family.map_or("untyped", |family| kind(family.get_field_type())),
                labels,
                help: desc.help.clone(),
            }
        };
        let described: Vec<Described> = collector.desc().iter().map(of).collect();
        self.inner.register(collector)?;
        described.into_iter().for_each(|one| self.describe(one));
        Ok(())
    }

    /// Remembers a family whose series another part of the kubelet adds to the page.
    pub fn describe(&self, family: Described) {
        self.described.lock().unwrap_or_else(PoisonError::into_inner).push(family);
    }

    /// The families that have series now, by name.
    #[must_use]
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.inner.gather()
    }

    /// All families, by name.
    #[must_use]
    pub fn described(&self) -> Vec<Described> {
        let mut all = self.described.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.sort();
        all
    }
}

/// The word for a type of family.
pub(crate) fn kind(kind: MetricType) -> &'static str {
    match kind {
        MetricType::COUNTER => "counter",
        MetricType::GAUGE => "gauge",
        MetricType::HISTOGRAM => "histogram",
        MetricType::SUMMARY => "summary",
        MetricType::UNTYPED => "untyped",
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{HistogramOpts, HistogramVec, IntCounter};

    use super::*;

    #[test]
    fn families_without_series_are_known_too() {
        let registry = Registry::new();
        let seconds = HistogramVec::new(HistogramOpts::new("b_seconds", "B."), &["z", "a"]).unwrap();
        registry.register(Box::new(seconds.clone())).unwrap();
        registry.register(Box::new(IntCounter::new("a_total", "A.").unwrap())).unwrap();
        assert!(registry.register(Box::new(seconds)).is_err(), "a name is taken once");
        assert_eq!(registry.gather().len(), 1);
        let all: Vec<_> = registry.described().into_iter().map(|it| (it.name, it.kind, it.labels)).collect();
        let labels = vec!["a".to_owned(), "z".to_owned()];
        assert_eq!(
            all,
            [("a_total".to_owned(), "counter", vec![]), ("b_seconds".to_owned(), "histogram", labels)]
        );
    }
}
