//! What a scraper prefers: the format of a page, and its compression.

/// The format of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text, version 0.0.4.
    Text,
    /// OpenMetrics, as text.
    OpenMetrics,
    /// Messages of `io.prometheus.client`, each behind its length.
    Protobuf,
}

/// The ways to write names beyond letters, digits, underscores and colons. No family has such a name, so that the answer only
/// says what was asked for.
const ESCAPING: [&str; 4] = ["allow-utf-8", "underscores", "dots", "values"];

impl Format {
    /// The format that is preferred among those that can be had, and the content type that names it. Without a preference it is
    /// text.
    #[must_use]
    pub fn of(accept: &str) -> (Self, String) {
        let mut escaping = "underscores";
        for range in ranges(accept) {
            if let Some(known) = ESCAPING.into_iter().find(|known| range.parameter("escaping") == *known) {
                escaping = known;
            }
            if let Some((format, name)) = offered(&range) {
                return (format, format!("{name}; escaping={escaping}"));
            }
        }
        (Self::Text, format!("{TEXT}; escaping={escaping}"))
    }
}

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const PROTOBUF: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

fn offered(range: &Range<'_>) -> Option<(Format, String)> {
    let version = range.parameter("version");
    match range.name.to_ascii_lowercase().as_str() {
        "text/plain" if ["", "0.0.4"].contains(&version) => Some((Format::Text, TEXT.to_owned())),
        "application/openmetrics-text" if ["", "0.0.1", "1.0.0"].contains(&version) => {
            let version = if version == "1.0.0" { version } else { "0.0.1" };
            let name = format!("application/openmetrics-text; version={version}; charset=utf-8");
            Some((Format::OpenMetrics, name))
        }
        "application/vnd.google.protobuf"
            if range.parameter("proto") == "io.prometheus.client.MetricFamily"
                && range.parameter("encoding") == "delimited" =>
        {
            Some((Format::Protobuf, PROTOBUF.to_owned()))
        }
        _ => None,
    }
}

/// How a page is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Not at all.
    Identity,
    /// By gzip.
    Gzip,
}

impl Coding {
    /// The coding with the highest weight; of two with the same, the one that costs less.
    #[must_use]
    pub fn of(accept_encoding: &str) -> Self {
        let weight = |coding: &str| {
            let of = |range: &Range<'_>| range.name == "*" || range.name.eq_ignore_ascii_case(coding);
            ranges(accept_encoding).iter().find(|range| of(range)).map_or(0, |range| range.weight)
        };
        if weight("gzip") > weight("identity") { Self::Gzip } else { Self::Identity }
    }
}

/// An element of a header that weighs alternatives.
#[derive(Debug)]
struct Range<'a> {
    name: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    /// Thousandths.
    weight: u32,
}

impl Range<'_> {
    fn parameter(&self, name: &str) -> &str {
        self.parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }
}

/// The elements with a weight above 0, the preferred one first; of two with the same weight, the one that stands first.
fn ranges(header: &str) -> Vec<Range<'_>> {
    let mut ranges: Vec<Range<'_>> =
        header.split(',').map(range).filter(|range| !range.name.is_empty() && range.weight > 0).collect();
    ranges.sort_by_key(|range| std::cmp::Reverse(range.weight));
    ranges
}

fn range(text: &str) -> Range<'_> {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let parameters: Vec<(&str, &str)> = parts
        .filter_map(|part| part.split_once('='))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect();
    let weight = parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case("q"));
    let weight = weight.map_or(1000, |(_, value)| thousandths(value));
    let parameters = parameters.into_iter().map(|(key, value)| (key, value.trim_matches('"'))).collect();
    Range { name, parameters, weight }
}

/// A weight between 0 and 1 in thousandths; 0 for what is none.
fn thousandths(text: &str) -> u32 {
    match text.parse::<f64>() {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is at most 1000")]
        Ok(weight) if (0.0..=1.0).contains(&weight) => (weight * 1000.0).round() as u32,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: &str = "application/openmetrics-text";
    const PROTO: &str =
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

    #[test]
    fn the_preferred_format_that_can_be_had_is_taken() {
        let text = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
        let open = "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8";
        let old = "application/openmetrics-text; version=0.0.1; charset=utf-8; escaping=underscores";
        let proto = format!("{PROTOBUF}; escaping=underscores");
        for (accept, content_type) in [
            (String::new(), text),
            ("*/*".to_owned(), text),
            ("nonsense;;=,;q".to_owned(), text),
            ("text/plain;version=1.0.0".to_owned(), text),
            (OPEN.to_owned(), old),
            (format!("{OPEN};version=2.0.0"), text),
            (format!("{OPEN};version=1.0.0;escaping=allow-utf-8"), open),
            (format!("{OPEN};version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.5"), text),
            (format!("{OPEN};q=0"), text),
            (format!("{OPEN};q=7"), text),
            (format!("{PROTO};q=0.9,{OPEN};version=1.0.0;q=0.8"), proto.as_str()),
            (format!("{PROTO},{OPEN};version=1.0.0"), proto.as_str()),
            (format!("{};q=0.9,{OPEN}", PROTO.replace("delimited", "text")), old),
            // What Prometheus 3 sends.
            (
                format!(
                    "{OPEN};version=1.0.0;escaping=allow-utf-8;q=0.5,{OPEN};version=0.0.1;q=0.4,\
                     text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
                ),
                open,
            ),
        ] {
            assert_eq!(Format::of(&accept).1, content_type, "{accept}");
        }
    }

    #[test]
    fn a_page_is_compressed_for_those_that_ask() {
        use Coding::{Gzip, Identity};
        for (header, coding) in [
            ("", Identity),
            ("gzip", Gzip),
            ("GZIP;q=0.1", Gzip),
            ("gzip;q=0", Identity),
            ("deflate, br, zstd", Identity),
            ("deflate, gzip;q=0.5", Gzip),
            ("gzip;q=0.5, identity", Identity),
            ("identity;q=0.5, gzip", Gzip),
            ("*", Identity),
        ] {
            assert_eq!(Coding::of(header), coding, "{header}");
        }
    }
}
