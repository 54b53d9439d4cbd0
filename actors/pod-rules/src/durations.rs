//! Durations as Go writes and reads them (`metav1.Duration`).

use std::fmt;
use std::time::Duration;

const MICROSECOND: i128 = 1_000;
const MILLISECOND: i128 = 1_000_000;
const SECOND: i128 = 1_000_000_000;
const MINUTE: i128 = 60 * SECOND;
const HOUR: i128 = 60 * MINUTE;

/// A signed duration in nanoseconds, read and printed in Go's form: `1m30s`, `100ms`, `0s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct GoDuration {
    nanoseconds: i64,
}

impl GoDuration {
    /// Zero, printed `0s`.
    pub const ZERO: Self = Self { nanoseconds: 0 };

    /// A duration of whole seconds.
    pub const fn from_secs(seconds: i64) -> Self {
        Self { nanoseconds: seconds * SECOND as i64 }
    }

    /// A duration of whole milliseconds.
    pub const fn from_millis(milliseconds: i64) -> Self {
        Self { nanoseconds: milliseconds * MILLISECOND as i64 }
    }

    /// A duration of whole minutes.
    pub const fn from_mins(minutes: i64) -> Self {
        Self { nanoseconds: minutes * MINUTE as i64 }
    }

    /// A duration of nanoseconds.
    pub const fn from_nanos(nanoseconds: i64) -> Self {
        Self { nanoseconds }
    }

    /// The duration in nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.nanoseconds
    }

    /// The duration in whole milliseconds; one that is too long for Go becomes the longest that Go has.
    pub fn whole_millis(duration: Duration) -> Self {
        let milliseconds = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Self { nanoseconds: milliseconds.saturating_mul(MILLISECOND as i64) }
    }

    /// The duration as the standard library's type; a negative one becomes zero.
    pub fn as_std(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.nanoseconds).unwrap_or(0))
    }

    /// Reads Go's form: an optional sign, then numbers each with a unit of ns, us, µs, ms, s, m or h; or a bare `0`.
    ///
    /// # Errors
    /// Go's own error text, which quotes the input.
    pub fn parse(text: &str) -> Result<Self, String> {
        let invalid = || format!("time: invalid duration {text:?}");
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total: i128 = 0;
        while !rest.is_empty() {
            let (whole, after_whole) = split_digits(rest);
            let (fraction, after_number) = match after_whole.strip_prefix('.') {
                Some(after_point) => split_digits(after_point),
                None => ("", after_whole),
            };
            if whole.is_empty() && fraction.is_empty() {
                return Err(invalid());
            }
            let unit_end =
                after_number.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after_number.len());
            let (unit, after_unit) = after_number.split_at(unit_end);
            if unit.is_empty() {
                return Err(format!("time: missing unit in duration {text:?}"));
            }
            let scale = unit_nanoseconds(unit)
                .ok_or_else(|| format!("time: unknown unit {unit:?} in duration {text:?}"))?;
            total += scaled(whole, fraction, scale).ok_or_else(invalid)?;
            if total > i128::from(i64::MAX) + i128::from(negative) {
                return Err(invalid());
            }
            rest = after_unit;
        }
        let signed = if negative { -total } else { total };
        i64::try_from(signed).map(Self::from_nanos).map_err(|_| invalid())
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn unit_nanoseconds(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => return None,
    })
}

/// `whole.fraction` times `scale`, in nanoseconds.
fn scaled(whole: &str, fraction: &str, scale: i128) -> Option<i128> {
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()?.into() };
    // Go keeps the digits that fit into 63 bits; more cannot change the result.
    let fits = |digits: &usize| fraction[..*digits].parse::<i64>().is_ok();
    let digits = Some(fraction.len().min(19)).filter(fits).unwrap_or(fraction.len().min(18));
    let kept = &fraction[..digits];
    let part: u64 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
    let divisor = 10_f64.powi(i32::try_from(kept.len()).ok()?);
    // Go multiplies in floating point, and so does this function; otherwise "0.3333333333333333333h" would
    // not be 20 minutes.
    whole.checked_mul(scale)?.checked_add((part as f64 * (scale as f64 / divisor)) as i128)
}

impl fmt::Display for GoDuration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.nanoseconds < 0 { "-" } else { "" };
        let total = i128::from(self.nanoseconds).abs();
        if total == 0 {
            return out.write_str("0s");
        }
        if total < SECOND {
            let (scale, unit) = match total {
                n if n < MICROSECOND => (1, "ns"),
                n if n < MILLISECOND => (MICROSECOND, "µs"),
                _ => (MILLISECOND, "ms"),
            };
            return write!(out, "{sign}{}{unit}", decimal(total, scale));
        }
        let (hours, minutes) = (total / HOUR, total % HOUR / MINUTE);
        let seconds = decimal(total % MINUTE, SECOND);
        if hours > 0 {
            write!(out, "{sign}{hours}h{minutes}m{seconds}s")
        } else if minutes > 0 {
            write!(out, "{sign}{minutes}m{seconds}s")
        } else {
            write!(out, "{sign}{seconds}s")
        }
    }
}

/// `value / scale` with no trailing zeros after the point.
fn decimal(value: i128, scale: i128) -> String {
    let (whole, part) = (value / scale, value % scale);
    if part == 0 {
        return whole.to_string();
    }
    let width = scale.ilog10() as usize;
    let fraction = format!("{part:0width$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whole_milliseconds_are_printed_for_people() {
        for (micros, text) in [(999, "0s"), (7_000, "7ms"), (1_234_999, "1.234s"), (62_050_000, "1m2.05s")] {
            assert_eq!(GoDuration::whole_millis(Duration::from_micros(micros)).to_string(), text);
        }
    }

    #[test]
    fn prints_as_go_prints() {
        for (nanoseconds, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (3_300_000_000, "3.3s"),
            (90_000_000_000, "1m30s"),
            (245_000_000_000, "4m5s"),
            (245_001_000_000, "4m5.001s"),
            (18_367_001_000_000, "5h6m7.001s"),
            (4 * 3_600_000_000_000, "4h0m0s"),
            (480_000_000_001, "8m0.000000001s"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(GoDuration::from_nanos(nanoseconds).to_string(), text);
        }
    }

    #[test]
    fn reads_what_go_reads_and_refuses_the_rest() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("+5s", 5_000_000_000),
            ("-1.5h", -5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("1h1s1h", 7_201_000_000_000),
            ("10us", 10_000),
            ("0.3333333333333333333h", 1_200_000_000_000),
        ] {
            assert_eq!(GoDuration::parse(text).map(GoDuration::as_nanos), Ok(nanoseconds), "{text}");
        }
        for (text, why) in [
            ("", "time: invalid duration \"\""),
            ("3", "time: missing unit in duration \"3\""),
            ("-", "time: invalid duration \"-\""),
            ("s", "time: invalid duration \"s\""),
            ("1d", "time: unknown unit \"d\" in duration \"1d\""),
            ("9223372036854775808ns", "time: invalid duration \"9223372036854775808ns\""),
        ] {
            assert_eq!(GoDuration::parse(text), Err(why.to_owned()));
        }
    }

    proptest! {
        #[test]
        fn reading_what_was_printed_gives_the_same(nanoseconds in any::<i64>()) {
            let duration = GoDuration::from_nanos(nanoseconds);
            prop_assert_eq!(GoDuration::parse(&duration.to_string()), Ok(duration));
        }
    }
}
