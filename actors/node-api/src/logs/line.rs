//! PURE: lines of log files, in the format of the CRI or of Docker's JSON.

use jiff::Timestamp;
use serde::Deserialize;

use super::options::{LogOptions, Stream};

/// How a log is written; its first line shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `<time> <stream> <tags> <content>`.
    Cri,
    /// `{"log": …, "stream": …, "time": …}`.
    DockerJson,
}

/// A line as it was logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The time of the line.
    pub time: Timestamp,
    /// The same time with nine digits, in the zone in which it was written.
    pub stamp: String,
    /// The output to which the container wrote it.
    pub stream: Stream,
    /// The line's bytes, with the line end unless the line is partial.
    pub content: Vec<u8>,
}

/// The format of a line; `None` if the line has neither.
pub fn format_of(line: &[u8]) -> Option<Format> {
    [Format::Cri, Format::DockerJson].into_iter().find(|format| parse(*format, line).is_some())
}

/// Reads a line.
pub fn parse(format: Format, line: &[u8]) -> Option<Line> {
    match format {
        Format::Cri => cri(line),
        Format::DockerJson => docker(line),
    }
}

fn stream(name: &[u8]) -> Option<Stream> {
    match name {
        b"stdout" => Some(Stream::Stdout),
        b"stderr" => Some(Stream::Stderr),
        _ => None,
    }
}

fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|byte| *byte == b' ')?;
    Some((&text[..end], &text[end + 1..]))
}

fn cri(line: &[u8]) -> Option<Line> {
    let (time, rest) = word(line)?;
    let (name, rest) = word(rest)?;
    let (tags, content) = word(rest)?;
    let text = std::str::from_utf8(time).ok()?;
    // Only the first tag has a meaning; others are left for later versions.
    let partial = tags.split(|byte| *byte == b':').next() == Some(b"P");
    let content = if partial { content.strip_suffix(b"\n").unwrap_or(content) } else { content };
    Some(Line {
        time: text.parse().ok()?,
        stamp: nine_digits(text),
        stream: stream(name)?,
        content: content.to_vec(),
    })
}

#[derive(Deserialize)]
struct DockerLine {
    #[serde(default)]
    log: String,
    #[serde(default)]
    stream: String,
    time: String,
}

fn docker(line: &[u8]) -> Option<Line> {
    let line: DockerLine = serde_json::from_slice(line).ok()?;
    Some(Line {
        time: line.time.parse().ok()?,
        stamp: nine_digits(&line.time),
        stream: stream(line.stream.as_bytes())?,
        content: line.log.into_bytes(),
    })
}

/// A time of RFC 3339 with all nine digits of its nanoseconds, and `Z` for a zone without an offset.
fn nine_digits(time: &str) -> String {
    let zone_at = time.rfind(['Z', 'z', '+', '-']).filter(|at| *at > 10).unwrap_or(time.len());
    let (clock, zone) = time.split_at(zone_at);
    let (seconds, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let zone = if matches!(zone, "+00:00" | "-00:00" | "z") { "Z" } else { zone };
    let fraction = &fraction[..fraction.len().min(9)];
    format!("{seconds}.{fraction:0<9}{zone}")
}

/// Whether a log's reader wants more lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// More lines may be wanted.
    Yes,
    /// Everything that the request asked for has been written.
    No,
}

/// Turns lines of a log into the bytes that a request asked for.
#[derive(Clone, Debug)]
pub struct Writer {
    options: LogOptions,
    bytes_left: Option<u64>,
    /// Lines left to write of a tail; `None` when following or without a tail.
    lines_left: Option<u64>,
    at_line_start: bool,
}

impl Writer {
    /// A writer at the start of the log.
    pub fn new(options: LogOptions) -> Self {
        Self {
            bytes_left: options.limit_bytes,
            lines_left: options.tail_lines.filter(|_| !options.follow),
            at_line_start: true,
            options,
        }
    }

    /// Whether nothing more will be written.
    pub fn is_done(&self) -> bool {
        self.lines_left == Some(0) || self.bytes_left == Some(0)
    }

    /// Adds to `out` as much of the line as the request asked for.
    pub fn write(&mut self, line: &Line, out: &mut Vec<u8>) -> More {
        let old = self.options.since.is_some_and(|since| line.time < since);
        let other = self.options.stream.is_some_and(|stream| stream != line.stream);
        if !old && !other {
            let from = out.len();
            if self.options.timestamps && self.at_line_start {
                out.extend_from_slice(line.stamp.as_bytes());
                out.push(b' ');
            }
            out.extend_from_slice(&line.content);
            if let Some(left) = &mut self.bytes_left {
                let most = usize::try_from(*left).unwrap_or(usize::MAX);
                out.truncate(from.saturating_add(most));
                *left -= (out.len() - from) as u64;
            }
        }
        if let Some(left) = &mut self.lines_left {
            *left = left.saturating_sub(1);
        }
        self.at_line_start = line.content.last().is_none_or(|byte| *byte == b'\n');
        if self.is_done() { More::No } else { More::Yes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2016-10-06T00:17:09.669794202Z stdout P one \n\
        2016-10-06T00:17:10.5Z stdout F two\n\
        2016-10-06T02:17:11+02:00 stderr F three\n\
        2016-10-06T00:17:12.000000001Z stdout F:x \n";

    fn shown(log: &str, options: LogOptions) -> String {
        let mut writer = Writer::new(options);
        let mut out = Vec::new();
        let format = format_of(log.as_bytes().split_inclusive(|b| *b == b'\n').next().unwrap()).unwrap();
        for line in log.as_bytes().split_inclusive(|byte| *byte == b'\n') {
            let Some(line) = parse(format, line) else { continue };
            if writer.write(&line, &mut out) == More::No {
                break;
            }
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn partial_lines_are_joined() {
        assert_eq!(shown(LOG, LogOptions::default()), "one two\nthree\n\n");
    }

    #[test]
    fn a_line_has_one_time_with_nine_digits_in_its_own_zone() {
        let options = LogOptions { timestamps: true, ..LogOptions::default() };
        assert_eq!(
            shown(LOG, options),
            "2016-10-06T00:17:09.669794202Z one two\n2016-10-06T02:17:11.000000000+02:00 three\n\
             2016-10-06T00:17:12.000000001Z \n"
        );
    }

    #[test]
    fn since_streams_and_limits_choose() {
        let since = LogOptions { since: "2016-10-06T00:17:11Z".parse().ok(), ..LogOptions::default() };
        assert_eq!(shown(LOG, since), "three\n\n", "the very moment counts, in whatever zone");
        let errors = LogOptions { stream: Some(Stream::Stderr), ..LogOptions::default() };
        assert_eq!(shown(LOG, errors), "three\n");
        for (limit, text) in [(1, "o"), (4, "one "), (8, "one two\n"), (99, "one two\nthree\n\n")] {
            let options = LogOptions { limit_bytes: Some(limit), ..LogOptions::default() };
            assert_eq!(shown(LOG, options), text, "{limit}");
        }
        let tail = LogOptions { tail_lines: Some(2), ..LogOptions::default() };
        assert_eq!(shown(LOG, tail), "one two\n", "records are counted, not line ends");
    }

    #[test]
    fn docker_writes_json() {
        let log = "{\"log\":\"a\\n\",\"stream\":\"stdout\",\"time\":\"2016-10-20T18:39:20.57606443Z\"}\n\
            nonsense\n{\"log\":\"b\\n\",\"stream\":\"stderr\",\"time\":\"2016-10-20T18:39:21Z\"}\n";
        assert_eq!(shown(log, LogOptions::default()), "a\nb\n");
    }

    #[test]
    fn what_is_no_log_has_no_format() {
        for line in
            ["", "\n", "x y z", "2016-10-06T00:17:09Z stdin F x", "2016-10-06T00:17:09Z stdout F", "{}"]
        {
            assert_eq!(format_of(line.as_bytes()), None, "{line:?}");
        }
    }
}
