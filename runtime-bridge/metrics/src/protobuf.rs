//! Messages of the package `io.prometheus.client`: field names and numbers as published, of what the kubelet tells.

use std::borrow::Borrow;

use prometheus::proto as told;
use prost::Message;

/// The families, each behind its length.
pub(crate) fn page(families: impl IntoIterator<Item: Borrow<told::MetricFamily>>) -> Vec<u8> {
    let mut page = Vec::new();
    for told in families {
        let told: &told::MetricFamily = told.borrow();
        if !told.get_metric().is_empty() {
            family(told).encode_length_delimited(&mut page).expect("a vector grows");
        }
    }
    page
}

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    help: Option<String>,
    /// 0 counter, 1 gauge, 2 summary, 3 untyped, 4 histogram.
    #[prost(int32, optional, tag = "3")]
    r#type: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Number>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Number>,
    #[prost(message, optional, tag = "4")]
    summary: Option<Summary>,
    #[prost(int64, optional, tag = "6")]
    timestamp_ms: Option<i64>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    value: Option<String>,
}

/// `Gauge` and `Counter`, which begin with the same field.
#[derive(Clone, Copy, PartialEq, Message)]
struct Number {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(uint64, optional, tag = "1")]
    sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    sample_sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    quantile: Vec<Quantile>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Quantile {
    #[prost(double, optional, tag = "1")]
    quantile: Option<f64>,
    #[prost(double, optional, tag = "2")]
    value: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    sample_sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, optional, tag = "1")]
    cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    upper_bound: Option<f64>,
}

fn family(told: &told::MetricFamily) -> MetricFamily {
    let kind = told.get_field_type();
    MetricFamily {
        name: Some(told.name().to_owned()),
        help: Some(told.help().to_owned()),
        r#type: Some(match kind {
            told::MetricType::COUNTER => 0,
            told::MetricType::GAUGE => 1,
            told::MetricType::SUMMARY => 2,
            told::MetricType::UNTYPED => 3,
            told::MetricType::HISTOGRAM => 4,
        }),
        metric: told.get_metric().iter().map(|told| metric(told, kind)).collect(),
    }
}

fn metric(told: &told::Metric, kind: told::MetricType) -> Metric {
    let label = |label: &told::LabelPair| LabelPair {
        name: Some(label.name().to_owned()),
        value: Some(label.value().to_owned()),
    };
    let time = told.timestamp_ms();
    let made = Metric {
        label: told.get_label().iter().map(label).collect(),
        timestamp_ms: (time != 0).then_some(time),
        ..Metric::default()
    };
    let number = |value| Some(Number { value: Some(value) });
    match kind {
        told::MetricType::COUNTER => Metric { counter: number(told.get_counter().get_value()), ..made },
        told::MetricType::GAUGE => Metric { gauge: number(told.get_gauge().get_value()), ..made },
        told::MetricType::SUMMARY => Metric { summary: Some(summary(told.get_summary())), ..made },
        told::MetricType::HISTOGRAM => Metric { histogram: Some(histogram(told.get_histogram())), ..made },
        told::MetricType::UNTYPED => made,
    }
}

fn summary(told: &told::Summary) -> Summary {
    let quantile = |it: &told::Quantile| Quantile { quantile: Some(it.quantile()), value: Some(it.value()) };
    Summary {
        sample_count: Some(told.sample_count()),
        sample_sum: Some(told.sample_sum()),
        quantile: told.get_quantile().iter().map(quantile).collect(),
    }
}

fn histogram(told: &told::Histogram) -> Histogram {
    let bucket = |it: &told::Bucket| Bucket {
        cumulative_count: Some(it.cumulative_count()),
        upper_bound: Some(it.upper_bound()),
    };
    Histogram {
        sample_count: Some(told.get_sample_count()),
        sample_sum: Some(told.get_sample_sum()),
        bucket: told.get_bucket().iter().map(bucket).collect(),
    }
}

#[cfg(test)]
mod tests;
