use std::io::Read;

use prometheus::core::Collector;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntGaugeVec, Opts};

use super::*;

/// A family of each type, by name.
pub(crate) fn families() -> Vec<MetricFamily> {
    let options = HistogramOpts::new("a_seconds", "How\\long.").buckets(vec![1.0, 2_592_000.0]);
    let seconds = Histogram::with_opts(options).unwrap();
    [0.25, 3.0].into_iter().for_each(|value| seconds.observe(value));
    let evictions = IntCounter::new("evictions", "Evictions.").unwrap();
    let pods = IntGaugeVec::new(Opts::new("pods", "Pods \"now\"."), &["name"]).unwrap();
    pods.with_label_values(&["a\"b\\c\nd"]).set(2_000_000);
    let starts = IntCounter::new("starts_total", "Starts.").unwrap();
    starts.inc_by(7);
    let empty = IntGaugeVec::new(Opts::new("t", "Never seen."), &["name"]).unwrap();
    let mut all: Vec<MetricFamily> = [&seconds as &dyn Collector, &evictions, &pods, &starts, &empty]
        .iter()
        .flat_map(|it| it.collect())
        .collect();
    all[2].mut_metric()[0].set_timestamp_ms(1_795_407_921_050);
    all
}

fn text_of(accept: &str) -> String {
    String::from_utf8(page(families(), accept, "").body).unwrap()
}

#[test]
fn text_is_that_of_prometheus_library() {
    let text = r#"# HELP a_seconds How\\long.
# TYPE a_seconds histogram
a_seconds_bucket{le="1"} 1
a_seconds_bucket{le="2.592e+06"} 2
a_seconds_bucket{le="+Inf"} 2
a_seconds_sum 3.25
a_seconds_count 2
# HELP evictions Evictions.
# TYPE evictions counter
evictions 0
# HELP pods Pods "now".
# TYPE pods gauge
pods{name="a\"b\\c\nd"} 2e+06 1795407921050
# HELP starts_total Starts.
# TYPE starts_total counter
starts_total 7
"#;
    assert_eq!(text_of(""), text);
}

#[test]
fn open_metrics_names_the_same_series() {
    let text = r#"# HELP a_seconds How\\long.
# TYPE a_seconds histogram
a_seconds_bucket{le="1.0"} 1
a_seconds_bucket{le="2.592e+06"} 2
a_seconds_bucket{le="+Inf"} 2
a_seconds_sum 3.25
a_seconds_count 2
# HELP evictions Evictions.
# TYPE evictions unknown
evictions 0.0
# HELP pods Pods \"now\".
# TYPE pods gauge
pods{name="a\"b\\c\nd"} 2e+06 1795407921.050
# HELP starts Starts.
# TYPE starts counter
starts_total 7.0
# EOF
"#;
    assert_eq!(text_of("application/openmetrics-text;version=1.0.0"), text);
}

#[test]
fn a_packed_page_is_the_same_page() {
    let packed = page(families(), "", "gzip");
    assert_eq!(packed.content_encoding, Some("gzip"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.body.as_slice()).read_to_string(&mut text).unwrap();
    assert_eq!(text, text_of(""));
}
