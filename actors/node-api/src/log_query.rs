//! PURE: what a query of the machine's logs asks for, and why one is refused, in upstream's words (row 21.8).

use std::num::IntErrorKind;

use jiff::Timestamp;
use pod_spec::downward::go_quoted;
use regex_syntax::ast::parse::Parser;

use crate::streaming::query_pairs;

/// As upstream.
const SERVICES_MAX: usize = 4;
/// The longest pattern.
const PATTERN_BYTES_MAX: usize = 1024;
/// So much of a longer one is shown.
const SHOWN_CHARS: usize = 32;
/// As upstream, bytes.
const SERVICE_BYTES_MAX: usize = 256;
/// As upstream.
const TAIL_LINES_MAX: i64 = 100_000;
/// As journalctl reads times.
const TIME: &str = "%Y-%m-%d %H:%M:%S";

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogQuery {
    /// The services whose logs are asked for.
    pub services: Vec<String>,
    /// The files that are asked for.
    pub files: Vec<String>,
    /// Which lines are asked for.
    pub options: LineOptions,
}

/// Which lines of the logs are asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineOptions {
    since: Option<Time>,
    until: Option<Time>,
    tail_lines: Option<i64>,
    boot: Option<i64>,
    pattern: String,
}

/// A time, and how it was written.
#[derive(Clone, Debug, PartialEq)]
struct Time {
    at: Timestamp,
    text: String,
}

impl LogQuery {
    /// Reads the query of a URL; `None` if it has no parameter that asks for logs.
    ///
    /// # Errors
    /// The text of the values that cannot be read.
    pub fn parse(query: &str) -> Result<Option<Self>, String> {
        let pairs = query_pairs(query);
        let all = pairs.iter().filter(|(key, _)| key == "query");
        let all: Vec<&str> = all.map(|(_, value)| value.as_str()).collect();
        let first = |name: &str| {
            let value = pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
            value.filter(|value| !value.is_empty())
        };
        let mut problems = Vec::new();
        let mut asked = Self::default();
        for one in &all {
            if one.contains(['/', '\\']) {
                asked.files.push((*one).to_owned());
            } else if !one.trim().is_empty() {
                asked.services.push((*one).to_owned());
            }
        }
        if !all.is_empty() && asked.files.is_empty() && asked.services.is_empty() {
            problems.push(invalid("query", &json(&all), "query cannot be empty"));
        }
        let mut keep = |name: &str, problem: &str, value: &str| {
            problems.push(invalid(name, &go_quoted(value), problem));
        };
        for (name, kept) in [("sinceTime", &mut asked.options.since), ("untilTime", &mut asked.options.until)]
        {
            let Some(value) = first(name) else { continue };
            *kept = rfc3339(value).map(|at| Time { at, text: value.to_owned() });
            if kept.is_none() {
                keep(name, "invalid time format", value);
            }
        }
        for (name, kept) in [("boot", &mut asked.options.boot), ("tailLines", &mut asked.options.tail_lines)]
        {
            let Some(value) = first(name) else { continue };
            match number(value) {
                Ok(read) => *kept = Some(read),
                Err(problem) => keep(name, &problem, value),
            }
        }
        first("pattern").unwrap_or_default().clone_into(&mut asked.options.pattern);
        if !problems.is_empty() {
            return Err(aggregated(problems));
        }
        Ok(Some(asked).filter(|asked| *asked != Self::default()))
    }

    /// Whether the query can be answered. Whether its file is there is not looked at.
    ///
    /// # Errors
    /// The text of what does not fit.
    pub fn validate(&self) -> Result<(), String> {
        let mut problems = Vec::new();
        for service in &self.services {
            if let Some(problem) = unsafe_service(service) {
                problems.push(invalid("query", &go_quoted(service), &problem));
            }
        }
        let count = self.services.len();
        if count > SERVICES_MAX {
            problems.push(format!("query: Too many: {count}: must have at most {SERVICES_MAX} items"));
        }
        match (self.files.len(), count) {
            (0, 0) => problems.push("query: Required value: cannot be empty with options".to_owned()),
            (1.., 1..) => {
                let both = format!("{}, {}", listed(&self.files), listed(&self.services));
                problems.push(invalid("query", &go_quoted(&both), "cannot specify a file and service"));
            }
            (2.., 0) => problems.push(self.bad_files("cannot specify more than one file")),
            (1, 0) if self.options != LineOptions::default() => {
                problems.push(self.bad_files("cannot specify file with options"));
            }
            _ => {}
        }
        self.options.validate(&mut problems);
        if problems.is_empty() { Ok(()) } else { Err(aggregated(problems)) }
    }

    /// The text of a file that is not there, for this reason.
    pub fn no_file(&self, name: &str, why: &str) -> String {
        self.bad_files(&format!("statat {name}: {why}"))
    }

    fn bad_files(&self, problem: &str) -> String {
        invalid("query", &json(&self.files), problem)
    }

    /// The arguments of journalctl for these of the services.
    pub fn arguments(&self, services: &[&str]) -> Vec<String> {
        let options = &self.options;
        let mut arguments = ["--utc", "--no-pager", "--output=short-precise"].map(str::to_owned).to_vec();
        for (name, time) in [("since", &options.since), ("until", &options.until)] {
            arguments.extend(time.iter().map(|time| format!("--{name}={}", time.at.strftime(TIME))));
        }
        if let Some(lines) = options.tail_lines {
            arguments.extend(["--pager-end".to_owned(), format!("--lines={lines}")]);
        }
        arguments.extend(services.iter().map(|service| format!("--unit={service}")));
        if !options.pattern.is_empty() {
            arguments.push(format!("--grep={}", options.pattern));
        }
        if let Some(boot) = options.boot {
            arguments.extend(["--boot".to_owned(), boot.to_string()]);
        }
        arguments
    }
}

impl LineOptions {
    fn validate(&self, problems: &mut Vec<String>) {
        if let (Some(since), Some(until)) = (&self.since, &self.until)
            && since.at > until.at
        {
            problems.push(invalid("untilTime", &json(&until.text), "must be after `sinceTime`"));
        }
        if let Some(boot) = self.boot.filter(|boot| *boot > 0) {
            problems.push(invalid("boot", &boot.to_string(), "must be less than 1"));
        }
        if let Some(lines) = self.tail_lines.filter(|lines| !(0..=TAIL_LINES_MAX).contains(lines)) {
            let problem = format!("must be between 0 and {TAIL_LINES_MAX}, inclusive");
            problems.push(invalid("tailLines", &lines.to_string(), &problem));
        }
        // Reading it costs up to the square of its length.
        if self.pattern.len() > PATTERN_BYTES_MAX {
            let problem = format!("must have at most {PATTERN_BYTES_MAX} bytes");
            let beginning: String = self.pattern.chars().take(SHOWN_CHARS).collect();
            problems.push(invalid("pattern", &go_quoted(&beginning), &problem));
        } else if let Err(error) = Parser::new().parse(&as_written_here(&self.pattern)) {
            let problem = format!("error parsing regexp: {}", error.kind());
            problems.push(invalid("pattern", &go_quoted(&self.pattern), &problem));
        }
    }
}

/// Why a name is no service's.
fn unsafe_service(name: &str) -> Option<String> {
    if name.len() > SERVICE_BYTES_MAX {
        return Some(format!("length must be less than {SERVICE_BYTES_MAX}"));
    }
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte);
    (!name.bytes().all(is_safe)).then(|| "input contains unsupported characters".to_owned())
}

fn invalid(field: &str, value: &str, problem: &str) -> String {
    format!("{field}: Invalid value: {value}: {problem}")
}

/// Several problems as one text, each of them once.
fn aggregated(problems: Vec<String>) -> String {
    let mut told: Vec<String> = Vec::new();
    for problem in problems {
        if !told.contains(&problem) {
            told.push(problem);
        }
    }
    if told.len() == 1 { told.remove(0) } else { format!("[{}]", told.join(", ")) }
}

/// As Go prints a list.
fn listed(values: &[String]) -> String {
    format!("[{}]", values.join(" "))
}

/// As Go writes JSON, whose texts are safe in a page.
fn json(value: &impl serde::Serialize) -> String {
    let mut text = serde_json::to_string(value).unwrap_or_default();
    for letter in ['<', '>', '&', '\u{2028}', '\u{2029}'] {
        text = text.replace(letter, &format!("\\u{:04x}", u32::from(letter)));
    }
    text
}

/// A whole number as Go's `Atoi` reads it.
fn number(text: &str) -> Result<i64, String> {
    text.parse::<i64>().map_err(|error| {
        let why = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.Atoi: parsing {}: {why}", go_quoted(text))
    })
}

/// A time in the only form that RFC 3339 has.
fn rfc3339(text: &str) -> Option<Timestamp> {
    let (clock, rest) = text.split_at_checked("2006-01-02T15:04:05".len())?;
    let as_digits = |text: &str| -> String {
        text.chars().map(|letter| if letter.is_ascii_digit() { '0' } else { letter }).collect()
    };
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|letter: char| letter.is_ascii_digit()),
        None => rest,
    };
    let has_form = as_digits(clock) == "0000-00-00T00:00:00"
        && ["Z", "+00:00", "-00:00"].contains(&as_digits(zone).as_str())
        // A fraction has a digit at least.
        && !rest.starts_with(&format!(".{zone}"))
        && !clock.ends_with(":60");
    text.parse().ok().filter(|_| has_form)
}

/// A pattern in Go's grammar, with a backslash before what has a meaning in the grammar of the parser alone: braces that count
/// nothing, brackets and operators within classes, and quoted text.
fn as_written_here(pattern: &str) -> String {
    let mut written = String::with_capacity(pattern.len());
    let mut rest = pattern;
    let mut in_class = false;
    while let Some(letter) = rest.chars().next() {
        let mut taken = letter.len_utf8();
        match letter {
            '\\' if !in_class && rest.starts_with("\\Q") => {
                let quoted = rest[2..].split("\\E").next().unwrap_or_default();
                for letter in quoted.chars() {
                    if letter.is_ascii_punctuation() {
                        written.push('\\');
                    }
                    written.push(letter);
                }
                let end = 2 + quoted.len();
                taken = if rest[end..].starts_with("\\E") { end + 2 } else { end };
            }
            '\\' => {
                taken += rest[1..].chars().next().map_or(0, char::len_utf8);
                let names = rest.starts_with("\\p{") || rest.starts_with("\\P{") || rest.starts_with("\\x{");
                if let Some(end) = names.then(|| rest.find('}')).flatten() {
                    taken = end + 1;
                }
                written.push_str(&rest[..taken]);
            }
            '[' if !in_class => {
                in_class = true;
                written.push('[');
                if rest[taken..].starts_with('^') {
                    written.push('^');
                    taken += 1;
                }
                if rest[taken..].starts_with(']') {
                    written.push_str("\\]");
                    taken += 1;
                }
            }
            '[' => match rest.starts_with("[:").then(|| rest.find(":]")).flatten() {
                Some(end) => {
                    taken = end + 2;
                    written.push_str(&rest[..taken]);
                }
                None => written.push_str("\\["),
            },
            ']' => {
                in_class = false;
                written.push(']');
            }
            '&' | '~' if in_class => written.extend(['\\', letter]),
            '{' if in_class || !counts(rest) => written.push_str("\\{"),
            other => written.push(other),
        }
        rest = &rest[taken..];
    }
    written
}

/// Whether the brace at the beginning says how often something is repeated.
fn counts(text: &str) -> bool {
    let Some((count, _)) = text[1..].split_once('}') else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match count.split_once(',') {
        Some((least, most)) => is_number(least) && (most.is_empty() || is_number(most)),
        None => is_number(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> LogQuery {
        LogQuery::parse(query).unwrap().unwrap()
    }

    #[test]
    fn a_query_asks_for_services_files_and_lines() {
        let asked = read(
            "query=kubelet&query=+&query=a%5Cb&query=/x.log&query=sshd&tailLines=%2B5&boot=-1&pattern=e+r",
        );
        assert_eq!(asked.services, ["kubelet", "sshd"]);
        assert_eq!(asked.files, ["a\\b", "/x.log"]);
        let lines = LineOptions {
            tail_lines: Some(5),
            boot: Some(-1),
            pattern: "e r".to_owned(),
            ..LineOptions::default()
        };
        assert_eq!(asked.options, lines);
        assert_eq!(read("tailLines=0&tailLines=x").options.tail_lines, Some(0), "the first value counts");
        for none in ["", "tail=5", "unit=a", "tailLines=", "since=now&until=now&output=cat&grep=x"] {
            assert_eq!(LogQuery::parse(none), Ok(None), "{none}: not a query");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_in_upstreams_words() {
        let far = "99999999999999999999";
        let too_far = format!(
            r#"tailLines: Invalid value: "{far}": strconv.Atoi: parsing "{far}": value out of range"#
        );
        for (query, text) in [
            ("query=", r#"query: Invalid value: [""]: query cannot be empty"#),
            ("query=+&query=%09", r#"query: Invalid value: [" ","\t"]: query cannot be empty"#),
            ("boot=x", r#"boot: Invalid value: "x": strconv.Atoi: parsing "x": invalid syntax"#),
            ("tailLines=99999999999999999999", too_far.as_str()),
            ("sinceTime=yesterday", r#"sinceTime: Invalid value: "yesterday": invalid time format"#),
            (
                "untilTime=2026-01-01&boot=1.5",
                "[untilTime: Invalid value: \"2026-01-01\": invalid time format, boot: Invalid value: \"1.5\": \
                 strconv.Atoi: parsing \"1.5\": invalid syntax]",
            ),
        ] {
            assert_eq!(LogQuery::parse(query).unwrap_err(), text, "{query}");
        }
    }

    #[test]
    fn times_have_the_form_of_rfc_3339() {
        for time in ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.25+02:00", "2026-01-02T03:04:05-07:30"] {
            assert!(rfc3339(time).is_some(), "{time}");
        }
        for other in [
            "2026-01-02 03:04:05Z",
            "2026-01-02T03:04:05",
            "2026-01-02T03:04:05z",
            "2026-01-02T03:04:05.Z",
            "2026-01-02T03:04:05+0200",
            "2026-01-02T03:04:60Z",
            "2026-13-02T03:04:05Z",
            "2026-01-02T03:04:05Z[UTC]",
            "2026-01-02T03:04:0é",
            "",
        ] {
            assert_eq!(rfc3339(other), None, "{other}");
        }
    }

    #[test]
    fn what_does_not_fit_is_told_in_upstreams_words() {
        let name = "x".repeat(257);
        let long = format!("query={name}");
        let too_long = format!(r#"query: Invalid value: "{name}": length must be less than 256"#);
        for (query, text) in [
            ("tailLines=5", "query: Required value: cannot be empty with options"),
            ("query=a*", r#"query: Invalid value: "a*": input contains unsupported characters"#),
            (long.as_str(), too_long.as_str()),
            ("query=a&query=b&query=c&query=d&query=e", "query: Too many: 5: must have at most 4 items"),
            ("query=a&query=b/c", r#"query: Invalid value: "[b/c], [a]": cannot specify a file and service"#),
            (
                "query=a/<&query=b/c",
                r#"query: Invalid value: ["a/\u003c","b/c"]: cannot specify more than one file"#,
            ),
            ("query=a/b&boot=0", r#"query: Invalid value: ["a/b"]: cannot specify file with options"#),
            ("query=a&tailLines=-1", "tailLines: Invalid value: -1: must be between 0 and 100000, inclusive"),
            (
                "query=a&tailLines=100001",
                "tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive",
            ),
            ("query=a&boot=1", "boot: Invalid value: 1: must be less than 1"),
            (
                "query=a&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z",
                "untilTime: Invalid value: \"2026-01-01T00:00:00Z\": must be after `sinceTime`",
            ),
            ("query=a&pattern=(", "pattern: Invalid value: \"(\": error parsing regexp: unclosed group"),
            (
                "query=a*&query=a*&boot=2",
                "[query: Invalid value: \"a*\": input contains unsupported characters, boot: Invalid value: 2: must be \
                 less than 1]",
            ),
        ] {
            assert_eq!(read(query).validate().unwrap_err(), text, "{query}");
        }
        let long = read(&format!("query=a&pattern={}", "[".repeat(PATTERN_BYTES_MAX + 1))).validate();
        let text =
            format!("pattern: Invalid value: \"{}\": must have at most 1024 bytes", "[".repeat(SHOWN_CHARS));
        assert_eq!(long.unwrap_err(), text);
        let file = read("query=/a.log");
        assert_eq!(file.validate(), Ok(()));
        let missing = r#"query: Invalid value: ["/a.log"]: statat /a.log: no such file or directory"#;
        assert_eq!(file.no_file("/a.log", "no such file or directory"), missing);
        let most = "query=a&query=b-c&query=d_e.f&query=g@h:1&sinceTime=2026-01-01T00:00:00Z\
                    &untilTime=2026-01-01T00:00:00Z&boot=0&tailLines=100000&pattern=x";
        assert_eq!(read(most).validate(), Ok(()));
    }

    #[test]
    fn patterns_are_those_of_go() {
        for pattern in [
            r#"{"level":"error"#,
            "a{",
            "a{,5}",
            "a{2}b{2,}c{2,3}",
            "[[]x[]]",
            "[^]a]",
            "[a&&b~~{]",
            "[[:alpha:]_]",
            r"\Q[(\E+",
            r"\Q(",
            r"\x{1F600}\p{Greek}\pN",
            "(?i)(?P<name>x|y)*?",
            r"\.\-\{",
            "",
        ] {
            let parsed = Parser::new().parse(&as_written_here(pattern));
            assert!(parsed.is_ok(), "{pattern}: {parsed:?}");
        }
        for pattern in ["(", ")", "[a", "*", "a**(", "a\\", "(?=x)", "a{3,2}", "[z-a]"] {
            let parsed = Parser::new().parse(&as_written_here(pattern));
            assert!(parsed.is_err(), "{pattern}: {parsed:?}");
        }
    }

    #[test]
    fn journalctl_is_asked_as_upstream_asks_it() {
        let always = ["--utc", "--no-pager", "--output=short-precise"];
        assert_eq!(read("query=a").arguments(&["a"]), [&always[..], &["--unit=a"]].concat());
        let all = read(
            "query=a&query=b&sinceTime=2026-01-02T03:04:05%2B01:00&untilTime=2026-01-02T03:04:05.5Z&tailLines=7\
             &boot=-2&pattern=x%20y",
        );
        let more = [
            "--since=2026-01-02 02:04:05",
            "--until=2026-01-02 03:04:05",
            "--pager-end",
            "--lines=7",
            "--unit=b",
            "--grep=x y",
            "--boot",
            "-2",
        ];
        assert_eq!(all.arguments(&["b"]), [&always[..], &more].concat());
    }
}
