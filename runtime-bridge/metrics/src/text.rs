//! Prometheus' text, version 0.0.4.

use std::borrow::Borrow;

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

use crate::number;
use crate::registry::kind;

/// The families as text.
pub(crate) fn page(families: impl IntoIterator<Item: Borrow<MetricFamily>>) -> Vec<u8> {
    let mut page = String::new();
    for family in families {
        let family: &MetricFamily = family.borrow();
        if family.get_metric().is_empty() {
            continue;
        }
        let name = family.name();
        page.extend(["# HELP ", name, " "]);
        escape(&mut page, family.help(), false);
        page.extend(["\n# TYPE ", name, " ", kind(family.get_field_type()), "\n"]);
        let style = Style { number: number::go, time: |milliseconds| milliseconds.to_string() };
        for metric in family.get_metric() {
            samples(&mut page, name, family.get_field_type(), metric, &style);
        }
    }
    page.into_bytes()
}

/// What differs between the two formats of text.
pub(crate) struct Style {
    /// A number.
    pub(crate) number: fn(f64) -> String,
    /// A time in milliseconds since the epoch.
    pub(crate) time: fn(i64) -> String,
}

/// The lines of one metric, in Go's order: buckets, sum and count.
pub(crate) fn samples(page: &mut String, name: &str, kind: MetricType, metric: &Metric, style: &Style) {
    let mut line = Line { page, name, metric, style };
    match kind {
        MetricType::COUNTER => line.value("", None, metric.get_counter().get_value()),
        MetricType::GAUGE => line.value("", None, metric.get_gauge().get_value()),
        MetricType::HISTOGRAM => {
            let histogram = metric.get_histogram();
            let mut bounded = true;
            for bucket in histogram.get_bucket() {
                bounded &= bucket.upper_bound().is_finite();
                let bound = (style.number)(bucket.upper_bound());
                line.count("_bucket", Some(("le", &bound)), bucket.cumulative_count());
            }
            if bounded {
                line.count("_bucket", Some(("le", "+Inf")), histogram.get_sample_count());
            }
            line.value("_sum", None, histogram.get_sample_sum());
            line.count("_count", None, histogram.get_sample_count());
        }
        MetricType::SUMMARY => {
            let summary = metric.get_summary();
            for quantile in summary.get_quantile() {
                let of = (style.number)(quantile.quantile());
                line.value("", Some(("quantile", &of)), quantile.value());
            }
            line.value("_sum", None, summary.sample_sum());
            line.count("_count", None, summary.sample_count());
        }
        // The library has no handles of this type.
        MetricType::UNTYPED => {}
    }
}

struct Line<'a> {
    page: &'a mut String,
    name: &'a str,
    metric: &'a Metric,
    style: &'a Style,
}

impl Line<'_> {
    fn value(&mut self, suffix: &str, more: Option<(&str, &str)>, value: f64) {
        let value = (self.style.number)(value);
        self.write(suffix, more, &value);
    }

    fn count(&mut self, suffix: &str, more: Option<(&str, &str)>, count: u64) {
        self.write(suffix, more, &count.to_string());
    }

    fn write(&mut self, suffix: &str, more: Option<(&str, &str)>, value: &str) {
        let Self { page, name, metric, style } = self;
        page.extend([name, suffix]);
        let labels = metric.get_label().iter().map(|label: &LabelPair| (label.name(), label.value()));
        let mut before = "{";
        for (name, value) in labels.chain(more) {
            page.extend([before, name, "=\""]);
            escape(page, value, true);
            page.push('"');
            before = ",";
        }
        if before == "," {
            page.push('}');
        }
        page.extend([" ", value]);
        // The library's handles have no times, which it shows as 0.
        if metric.timestamp_ms() != 0 {
            page.push(' ');
            page.push_str(&(style.time)(metric.timestamp_ms()));
        }
        page.push('\n');
    }
}

/// Adds a text in which line feeds and backslashes, and quotation marks where asked for, are escaped.
pub(crate) fn escape(page: &mut String, text: &str, quotation_marks: bool) {
    let special = |c: char| c == '\\' || c == '\n' || (quotation_marks && c == '"');
    let mut rest = text;
    while let Some(at) = rest.find(special) {
        let (before, from) = rest.split_at(at);
        page.push_str(before);
        page.push_str(match from.as_bytes()[0] {
            b'\n' => "\\n",
            b'"' => "\\\"",
            _ => "\\\\",
        });
        rest = &from[1..];
    }
    page.push_str(rest);
}
