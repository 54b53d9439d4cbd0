//! PURE: metrics on their way to a scraper: the registry that actors register their handles with, and the formats in which a
//! page of families is written: text, OpenMetrics and protobuf, compressed or not, whichever the scraper prefers.
//!
//! This crate has no effects and depends on none of our other crates. The words of the formats are those of Prometheus'
//! own library, with which the Go kubelet writes its pages, so that a scraper stores the same series of both.

mod accept;
mod number;
mod open_metrics;
mod protobuf;
mod registry;
mod shared;
mod text;

use accept::{Coding, Format};
pub use registry::{Described, Registry};
pub use shared::SharedPages;

use std::borrow::Borrow;
use std::io::Write;

use prometheus::proto::MetricFamily;

/// A page as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// `Content-Type`.
    pub content_type: String,
    /// `Content-Encoding`; `None` for a page that is not compressed.
    pub content_encoding: Option<&'static str>,
    /// The bytes.
    pub body: Vec<u8>,
}

/// Writes families, sorted by name, as the scraper prefers them: `accept` and `accept_encoding` are the headers of that name.
#[must_use]
pub fn page(
    families: impl IntoIterator<Item: Borrow<MetricFamily>>,
    accept: &str,
    accept_encoding: &str,
) -> Page {
    let (format, content_type) = Format::of(accept);
    written(families, format, content_type, Coding::of(accept_encoding))
}

/// Writes families one after another: those that are made while they are asked for exist one at a time.
fn written(
    families: impl IntoIterator<Item: Borrow<MetricFamily>>,
    format: Format,
    content_type: String,
    coding: Coding,
) -> Page {
    let body = match format {
        Format::Text => text::page(families),
        Format::OpenMetrics => open_metrics::page(families),
        Format::Protobuf => protobuf::page(families),
    };
    match coding {
        Coding::Gzip => Page { content_type, content_encoding: Some("gzip"), body: gzip(&body) },
        Coding::Identity => Page { content_type, content_encoding: None, body },
    }
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let written = packed.write_all(body).and_then(|()| packed.finish());
    written.expect("a vector takes everything")
}

#[cfg(test)]
mod tests;
