//! PURE: the words of sentences: times, and the texts of others.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub use crate::text::said;

/// A time span for people, in its two largest units: `40 s`, `2 min 10 s`, `3 h 5 min`. A negative span is 0 s.
pub fn lasting(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let two = |large: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large} {unit}"),
        _ => format!("{large} {unit} {small} {small_unit}"),
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..600 => two(seconds / 60, "min", seconds % 60, "s"),
        600..7200 => format!("{} min", seconds / 60),
        7200..172_800 => two(seconds / 3600, "h", seconds / 60 % 60, "min"),
        _ => two(seconds / 86_400, "d", seconds / 3600 % 24, "h"),
    }
}

/// Seconds as the API has them, which may be more than a signed number holds.
pub fn signed(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// The seconds since a time of the API; none before it.
pub fn seconds_since(then: &Time, now: Timestamp) -> i64 {
    now.duration_since(then.0).as_secs().max(0)
}

/// The text in quotes and brackets behind a space; nothing if it is empty.
pub fn quoted(text: &str) -> String {
    match said(text) {
        text if text.is_empty() => text,
        text => format!(" (\"{text}\")"),
    }
}

/// The text behind a colon; nothing if it is empty.
pub fn after_colon(text: &str) -> String {
    match said(text) {
        text if text.is_empty() => text,
        text => format!(": {text}"),
    }
}

/// `1 time`, `2 times`.
pub fn plural(count: i64, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::SAID_MAX;

    #[test]
    fn spans_are_words_for_people() {
        for (seconds, text) in [
            (-3, "0 s"),
            (40, "40 s"),
            (130, "2 min 10 s"),
            (300, "5 min"),
            (1000, "16 min"),
            (7500, "2 h 5 min"),
            (180_000, "2 d 2 h"),
        ] {
            assert_eq!(lasting(seconds), text);
        }
        assert_eq!(signed(u64::MAX), i64::MAX);
    }

    #[test]
    fn texts_of_others_are_harmless_and_short() {
        assert_eq!(quoted(" a\x1b[2Jb\n"), " (\"a␛[2Jb\")");
        assert_eq!((quoted(""), after_colon("\n")), (String::new(), String::new()));
        assert_eq!(after_colon("x"), ": x");
        assert!(said(&"x".repeat(5000)).chars().count() <= SAID_MAX);
        assert_eq!((plural(1, "time"), plural(3, "time")), ("1 time".to_owned(), "3 times".to_owned()));
    }
}
