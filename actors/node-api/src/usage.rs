//! PURE: what is asked of `/stats/summary`, and StatsProvider's pages as metric families (rows 22.2, 22.3, 22.6).

use std::sync::Arc;

use messages::stats::{Family, FamilyKind, Sample};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

use crate::streaming::query_pairs;

/// Whether CPU and memory are enough: the parameter is given exactly once, in the query or in a form, and is `true`.
pub fn is_short(query: &str, form: &str) -> bool {
    let pairs = query_pairs(query).into_iter().chain(query_pairs(form));
    let mut given = pairs.filter(|(name, _)| name == "only_cpu_and_memory").map(|(_, value)| value);
    given.next().is_some_and(|value| value == "true") && given.next().is_none()
}

/// A page in the form of the registries' ones, each value with its time. A family is made when it is asked for.
pub fn families(families: &[Family]) -> impl Iterator<Item = MetricFamily> + '_ {
    families.iter().map(family)
}

/// A family in the form of the registries' ones.
pub(crate) fn family(family: &Family) -> MetricFamily {
    let mut made = MetricFamily::default();
    made.set_name(family.name.to_owned());
    made.set_help(family.help.to_string());
    made.set_field_type(match family.kind {
        FamilyKind::Counter => MetricType::COUNTER,
        FamilyKind::Gauge => MetricType::GAUGE,
    });
    made.set_metric(family.samples.iter().map(|sample| metric(sample, family.kind)).collect());
    made
}

fn metric(sample: &Sample, kind: FamilyKind) -> Metric {
    let label = |(name, value): &(&'static str, Arc<str>)| {
        let mut label = LabelPair::default();
        label.set_name((*name).to_owned());
        label.set_value(value.to_string());
        label
    };
    let mut made = Metric::default();
    made.set_label(sample.labels.iter().map(label).collect());
    match kind {
        FamilyKind::Counter => {
            let mut counter = Counter::default();
            counter.set_value(sample.value);
            made.set_counter(counter);
        }
        FamilyKind::Gauge => {
            let mut gauge = Gauge::default();
            gauge.set_value(sample.value);
            made.set_gauge(gauge);
        }
    }
    if let Some(at) = sample.at {
        made.set_timestamp_ms(at.as_millisecond());
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_single_true_makes_it_short() {
        for (query, form, short) in [
            ("only_cpu_and_memory=true", "", true),
            ("", "only_cpu_and_memory=true", true),
            ("x=1&only_cpu_and_memory=true", "", true),
            ("only_cpu_and_memory=1", "", false),
            ("only_cpu_and_memory=true&only_cpu_and_memory=true", "", false),
            ("only_cpu_and_memory=true", "only_cpu_and_memory=true", false),
            ("", "", false),
        ] {
            assert_eq!(is_short(query, form), short, "{query} {form}");
        }
    }
}
