//! OpenMetrics, as text. Names of series are those of the other formats: a counter whose name does not end in `_total` is told
//! to be of unknown type, since the format would have it renamed. Times of creation (`_created`) are not told, as Prometheus'
//! library does not by default.

use std::borrow::Borrow;

use prometheus::proto::{MetricFamily, MetricType};

use crate::number;
use crate::registry::kind;
use crate::text::{Style, escape, samples};

/// The families as text, with the mark of its end.
pub(crate) fn page(families: impl IntoIterator<Item: Borrow<MetricFamily>>) -> Vec<u8> {
    let mut page = String::new();
    for family in families {
        let family: &MetricFamily = family.borrow();
        if family.get_metric().is_empty() {
            continue;
        }
        let name = family.name();
        let (shown, kind) = match (family.get_field_type(), name.strip_suffix("_total")) {
            (MetricType::COUNTER, Some(short)) => (short, "counter"),
            (MetricType::COUNTER, None) => (name, "unknown"),
            (other, _) => (name, kind(other)),
        };
        page.extend(["# HELP ", shown, " "]);
        escape(&mut page, family.help(), true);
        page.extend(["\n# TYPE ", shown, " ", kind, "\n"]);
        let style = Style { number: number::open_metrics, time: seconds };
        for metric in family.get_metric() {
            samples(&mut page, name, family.get_field_type(), metric, &style);
        }
    }
    page.push_str("# EOF\n");
    page.into_bytes()
}

/// A time in seconds, to the millisecond.
fn seconds(milliseconds: i64) -> String {
    let sign = if milliseconds < 0 { "-" } else { "" };
    let milliseconds = milliseconds.unsigned_abs();
    format!("{sign}{}.{:03}", milliseconds / 1000, milliseconds % 1000)
}
