//! PURE: what a query for logs asks for (row 21.6).

use jiff::{SignedDuration, Timestamp};

/// One of a container's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Which part of a log to send, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Go on while the container runs.
    pub follow: bool,
    /// The log of the instance before the current one.
    pub previous: bool,
    /// Each line begins with its time.
    pub timestamps: bool,
    /// Send only so many of the last lines.
    pub tail_lines: Option<u64>,
    /// Send only so many bytes, times included.
    pub limit_bytes: Option<u64>,
    /// Send only lines from this time on.
    pub since: Option<Timestamp>,
    /// Send only lines of this output.
    pub stream: Option<Stream>,
}

/// Why a query is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A value that cannot be read: 400.
    Undecodable,
    /// Values that do not fit together: 422.
    Invalid,
    /// A choice of stream while the feature gate PodLogsQuerySplitStreams is off: 400.
    Gated(String),
}

impl Refused {
    /// Status code and text.
    pub fn answer(&self) -> (u16, String) {
        match self {
            Self::Undecodable => (400, r#"{"message": "Unable to decode query."}"#.to_owned()),
            Self::Invalid => (422, r#"{"message": "Invalid request."}"#.to_owned()),
            Self::Gated(stream) => (
                400,
                format!(
                    "unable to return the given log stream: {stream:?}. Please enable PodLogsQuerySplitStreams feature gate in kubelet"
                ),
            ),
        }
    }
}

/// A flag as upstream reads it: everything but `false` and `0` is true.
fn flag(text: Option<&str>) -> bool {
    text.is_some_and(|text| text != "0" && !text.eq_ignore_ascii_case("false"))
}

fn number(text: Option<&str>) -> Result<Option<i64>, Refused> {
    text.map(|text| text.parse().map_err(|_| Refused::Undecodable)).transpose()
}

fn at_least(number: Option<i64>, least: i64) -> Result<Option<u64>, Refused> {
    let checked = number.map(|number| u64::try_from(number).ok().filter(|_| number >= least));
    checked.map(|number| number.ok_or(Refused::Invalid)).transpose()
}

/// Reads the pairs of a query. `split_streams` is the feature gate PodLogsQuerySplitStreams.
///
/// # Errors
/// The query is one that upstream refuses too.
pub fn log_options(
    query: &[(String, String)],
    now: Timestamp,
    split_streams: bool,
) -> Result<LogOptions, Refused> {
    let first = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let tail = match first("tail").filter(|tail| !tail.is_empty()) {
        Some("all") => None,
        Some(tail) => Some(tail),
        None => first("tailLines"),
    };
    let tail_lines = number(tail)?;
    let limit_bytes = number(first("limitBytes"))?;
    let since_seconds = number(first("sinceSeconds"))?;
    let since_time: Option<Timestamp> = first("sinceTime")
        .filter(|time| !time.is_empty())
        .map(|time| time.parse().map_err(|_| Refused::Undecodable))
        .transpose()?;
    let stream = first("stream");
    let tail_lines = at_least(tail_lines, 0)?;
    let limit_bytes = at_least(limit_bytes, 1)?;
    let since = match (since_seconds, since_time) {
        (Some(_), Some(_)) => return Err(Refused::Invalid),
        (Some(seconds), None) if seconds < 1 => return Err(Refused::Invalid),
        // A time before the first that can be told apart means the whole log.
        (Some(seconds), None) => now.checked_sub(SignedDuration::from_secs(seconds)).ok(),
        (None, time) => time,
    };
    let wanted = match stream {
        None | Some("All") => None,
        Some("Stdout") => Some(Stream::Stdout),
        Some("Stderr") => Some(Stream::Stderr),
        Some(_) => return Err(Refused::Invalid),
    };
    if wanted.is_some() && tail_lines.is_some() {
        return Err(Refused::Invalid);
    }
    if let (Some(_), Some(name), false) = (wanted, stream, split_streams) {
        return Err(Refused::Gated(name.to_owned()));
    }
    Ok(LogOptions {
        follow: flag(first("follow")),
        previous: flag(first("previous")),
        timestamps: flag(first("timestamps")),
        tail_lines,
        limit_bytes,
        since,
        stream: wanted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<LogOptions, Refused> {
        let pairs: Vec<(String, String)> = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        log_options(&pairs, "2026-01-01T00:01:00Z".parse().unwrap(), query.contains("gate=on"))
    }

    #[test]
    fn every_option_is_read() {
        let all = read("follow=true&previous=1&timestamps=yes&tailLines=3&limitBytes=9&sinceSeconds=60");
        assert_eq!(
            all,
            Ok(LogOptions {
                follow: true,
                previous: true,
                timestamps: true,
                tail_lines: Some(3),
                limit_bytes: Some(9),
                since: Some("2026-01-01T00:00:00Z".parse().unwrap()),
                stream: None,
            })
        );
        assert_eq!(read(""), Ok(LogOptions::default()));
        assert_eq!(read("follow=false&previous=0&stream=All"), Ok(LogOptions::default()));
        assert_eq!(read("tail=7").unwrap().tail_lines, Some(7));
        assert_eq!(read("tail=all&tailLines=3").unwrap().tail_lines, None);
        assert_eq!(read("tailLines=0").unwrap().tail_lines, Some(0));
        assert_eq!(read("stream=Stderr&gate=on").unwrap().stream, Some(Stream::Stderr));
        assert!(read("sinceTime=2026-01-01T00:00:00Z").unwrap().since.is_some());
        assert_eq!(read("sinceSeconds=9223372036854775807").unwrap().since, None);
    }

    #[test]
    fn what_upstream_refuses_is_refused_alike() {
        for query in ["tailLines=x", "limitBytes=1.5", "sinceSeconds=", "sinceTime=yesterday"] {
            assert_eq!(read(query), Err(Refused::Undecodable), "{query}");
        }
        for query in [
            "tailLines=-1",
            "limitBytes=0",
            "sinceSeconds=0",
            "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
            "stream=stdout",
            "stream=Stdout&tailLines=1",
        ] {
            assert_eq!(read(query), Err(Refused::Invalid), "{query}");
        }
        let (code, text) = read("stream=Stdout").unwrap_err().answer();
        assert_eq!(code, 400);
        assert!(text.starts_with(r#"unable to return the given log stream: "Stdout". Please"#), "{text}");
    }
}
