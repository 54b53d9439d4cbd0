//! Kubernetes resource quantities, exactly: `100m`, `1.5Gi`, `2e3`.
//!
//! The value is held as a whole number of nano-units, the finest that Kubernetes keeps. What is finer is rounded away
//! from zero, what is larger than 2^63-1 units is capped there, both as Kubernetes does, so that every quantity fits
//! an `i128` and no arithmetic here can lose anything or grow without bound.

use std::cmp::Ordering;
use std::fmt;

/// Nano-units in one unit.
const NANOS_PER_UNIT: i128 = 1_000_000_000;
/// The largest magnitude a quantity may have, in nano-units: 2^63-1 units.
const NANOS_MAX: i128 = i64::MAX as i128 * NANOS_PER_UNIT;
/// Whole-number digits beyond which any decimal value is above the cap.
const WHOLE_DIGITS_MAX: i64 = 20;

/// The family of suffixes that a quantity was written with; kept because it decides how the quantity is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `n u m k M G T P E`, powers of 1000.
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`, powers of 1024.
    BinarySi,
    /// `1e3`, powers of ten.
    DecimalExponent,
}

/// One quantity: an exact count of nano-units and the family of suffixes it was written with.
///
/// Equality and order compare the value alone: `1` equals `1000m`.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// The error of a text that is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$', found {text:?}"
)]
pub struct QuantityError {
    /// The text, cut off after 64 characters.
    pub text: String,
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

/// How a suffix scales the number before it.
enum Scale {
    Ten(i64),
    Two(u32),
}

fn scale_of(suffix: &str) -> Option<(Scale, Format)> {
    let decimal = |power| Some((Scale::Ten(power), Format::DecimalSi));
    let binary = |power| Some((Scale::Two(power), Format::BinarySi));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            // An exponent that no i64 holds is refused, as Kubernetes refuses it.
            Some((Scale::Ten(exponent.parse().ok()?), Format::DecimalExponent))
        }
    }
}

impl Quantity {
    /// Zero, written without a suffix.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// A whole number of units, written in powers of 1000.
    pub fn decimal(units: u64) -> Self {
        Self { nanos: (i128::from(units) * NANOS_PER_UNIT).min(NANOS_MAX), format: Format::DecimalSi }
    }

    /// A whole number of units (bytes), written in powers of 1024.
    pub fn binary(units: u64) -> Self {
        Self { format: Format::BinarySi, ..Self::decimal(units) }
    }

    /// Reads a quantity. Its size never fails: values are capped.
    ///
    /// # Errors
    /// [`QuantityError`] when the text is not of Kubernetes' form.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        Self::read(text).ok_or_else(|| QuantityError { text: text.chars().take(64).collect() })
    }

    fn read(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let whole_len = unsigned.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = unsigned.split_at(whole_len);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count()),
            None => ("", rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (scale, mut format) = scale_of(suffix)?;
        let magnitude = match scale {
            Scale::Ten(power) => decimal_nanos(whole, fraction, power),
            Scale::Two(power) => binary_nanos(whole, fraction, power),
        };
        if format == Format::BinarySi && magnitude > 0 && magnitude < NANOS_PER_UNIT {
            format = Format::DecimalSi;
        }
        let magnitude = magnitude.min(NANOS_MAX);
        Some(Self { nanos: if negative { -magnitude } else { magnitude }, format })
    }

    /// The sign: -1, 0 or 1.
    pub fn signum(self) -> i32 {
        match self.nanos.cmp(&0) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }

    /// The value in whole units, rounded away from zero.
    pub fn units_rounded_up(self) -> i64 {
        i64::try_from(rounded_up(self.nanos, NANOS_PER_UNIT) / NANOS_PER_UNIT)
            .expect("a quantity is capped at i64's range")
    }

    /// The value in thousandths of a unit, rounded away from zero (at most 2^63-1 units, hence wider than an `i64`).
    pub fn millis_rounded_up(self) -> i128 {
        rounded_up(self.nanos, NANOS_PER_UNIT / 1000) / (NANOS_PER_UNIT / 1000)
    }

    /// Whether the value is a whole number of units.
    pub fn is_whole(self) -> bool {
        self.nanos % NANOS_PER_UNIT == 0
    }

    /// The sum, capped at 2^63-1 units, in the format of `self` unless `self` is zero.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let format = if self.nanos == 0 { other.format } else { self.format };
        Self { nanos: (self.nanos + other.nanos).clamp(-NANOS_MAX, NANOS_MAX), format }
    }

    /// The difference, capped as the sum is, in the format of `self` unless `self` is zero. It may be negative.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.plus(Self { nanos: -other.nanos, ..other })
    }

    /// The value rounded away from zero to thousandths: what the API server stores of a resource amount.
    #[must_use]
    pub fn rounded_up_to_milli(self) -> Self {
        Self {
            nanos: rounded_up(self.nanos, NANOS_PER_UNIT / 1000).clamp(-NANOS_MAX, NANOS_MAX),
            format: self.format,
        }
    }
}

/// `nanos` rounded away from zero to a multiple of `step`.
fn rounded_up(nanos: i128, step: i128) -> i128 {
    match nanos % step {
        0 => nanos,
        rest if rest > 0 => nanos - rest + step,
        rest => nanos - rest - step,
    }
}

/// Nano-units of `whole.fraction * 10^power`, rounded up; more than the cap means "above the cap".
fn decimal_nanos(whole: &str, fraction: &str, power: i64) -> i128 {
    let digits = || whole.bytes().chain(fraction.bytes());
    let leading_zeros = digits().take_while(|digit| *digit == b'0').count();
    if leading_zeros == whole.len() + fraction.len() {
        return 0;
    }
    // Where the decimal point stands, counted in digits from the first significant one.
    let point = (whole.len() as i64 - leading_zeros as i64).saturating_add(power);
    if point > WHOLE_DIGITS_MAX {
        return i128::MAX;
    }
    let kept = point.saturating_add(9);
    if kept <= 0 {
        return 1;
    }
    let kept = usize::try_from(kept).expect("at most 29");
    let mut significant = digits().skip(leading_zeros);
    let nanos = (0..kept)
        .fold(0_i128, |sum, _| sum * 10 + significant.next().map_or(0, |digit| i128::from(digit - b'0')));
    if significant.any(|digit| digit != b'0') { nanos + 1 } else { nanos }
}

/// Nano-units of `whole.fraction * 2^power`, rounded up; more than the cap means "above the cap".
fn binary_nanos(whole: &str, fraction: &str, power: u32) -> i128 {
    let unit = NANOS_PER_UNIT << power;
    let mut units: i128 = 0;
    for digit in whole.bytes() {
        units = units * 10 + i128::from(digit - b'0');
        if units > i128::from(i64::MAX) {
            return i128::MAX;
        }
    }
    // Horner's scheme from the last digit: nested floors are the floor of the whole, and any remainder on the way
    // means that the exact value is not a whole number of nano-units.
    let (mut part, mut inexact) = (0_i128, false);
    for digit in fraction.bytes().rev() {
        let tenfold = i128::from(digit - b'0') * unit + part;
        inexact |= tenfold % 10 != 0;
        part = tenfold / 10;
    }
    units.checked_mul(unit).map_or(i128::MAX, |nanos| nanos.saturating_add(part + i128::from(inexact)))
}

impl fmt::Display for Quantity {
    /// Kubernetes' canonical form: no fraction, the largest suffix that keeps the value exact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let small = self.nanos.abs() < 1024 * NANOS_PER_UNIT;
        if self.format == Format::BinarySi && !small && self.is_whole() {
            return write_binary(f, self.nanos / NANOS_PER_UNIT);
        }
        let (mut number, mut power) = (self.nanos, -9_i32);
        if number == 0 {
            power = 0;
        }
        while number != 0 && number % 1000 == 0 && power < 18 {
            number /= 1000;
            power += 3;
        }
        let suffix = match (self.format, power) {
            (_, 0) => "",
            (Format::DecimalExponent, _) => return write!(f, "{number}e{power}"),
            (_, -9) => "n",
            (_, -6) => "u",
            (_, -3) => "m",
            (_, 3) => "k",
            (_, 6) => "M",
            (_, 9) => "G",
            (_, 12) => "T",
            (_, 15) => "P",
            _ => "E",
        };
        write!(f, "{number}{suffix}")
    }
}

fn write_binary(f: &mut fmt::Formatter<'_>, mut number: i128) -> fmt::Result {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut power = 0;
    while number % 1024 == 0 && power + 1 < SUFFIXES.len() {
        number /= 1024;
        power += 1;
    }
    write!(f, "{number}{}", SUFFIXES[power])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(text: &str) -> String {
        Quantity::parse(text).unwrap().to_string()
    }

    #[test]
    fn writes_the_canonical_form() {
        for (text, expected) in [
            ("0", "0"),
            ("0Mi", "0"),
            ("-0", "0"),
            ("1.5", "1500m"),
            ("1.5Gi", "1536Mi"),
            ("0.1Ki", "102400m"),
            ("0.5Ki", "512"),
            ("1024Ki", "1Mi"),
            ("1000k", "1M"),
            ("100m", "100m"),
            ("+1.", "1"),
            (".5", "500m"),
            ("0.1n", "1n"),
            ("-0.1n", "-1n"),
            ("1e3", "1e3"),
            ("100E2", "10e3"),
            ("1E", "1E"),
            ("5e-1", "500e-3"),
            ("1e9223372036854775807", "9223372036854775807"),
            ("1e-9223372036854775808", "1e-9"),
            ("8Ei", "9223372036854775807"),
            ("9223372036854775808", "9223372036854775807"),
            ("-99999999999999999999999999", "-9223372036854775807"),
            ("0.000000000000000000001Ei", "1152922n"),
        ] {
            assert_eq!(canonical(text), expected, "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_quantity() {
        for text in [
            "",
            "-",
            ".",
            "Ki",
            "1ki",
            "1KI",
            "1 Gi",
            " 1",
            "1.2.3",
            "1e",
            "1e1.5",
            "0x10",
            "1Zi",
            "é",
            "-é",
            "1e99999999999999999999",
        ] {
            assert!(Quantity::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn compares_by_value_and_adds() {
        let q = |text| Quantity::parse(text).unwrap();
        assert_eq!(q("1"), q("1000m"));
        assert!(q("1Gi") > q("1G"));
        assert_eq!(q("1Gi").plus(q("1Mi")).to_string(), "1025Mi");
        assert_eq!(Quantity::ZERO.plus(q("1Mi")).to_string(), "1Mi");
        assert_eq!(q("4").minus(q("500m")).to_string(), "3500m");
        assert_eq!(q("1Gi").minus(q("2Gi")).to_string(), "-1Gi");
        assert_eq!((Quantity::decimal(4), Quantity::binary(1 << 30)), (q("4"), q("1Gi")));
        assert_eq!(Quantity::binary(1 << 30).to_string(), "1Gi");
        assert_eq!(Quantity::decimal(u64::MAX).to_string(), "9223372036854775807");
        assert_eq!(q("0.0001").rounded_up_to_milli().to_string(), "1m");
        assert_eq!(q("-1.2").units_rounded_up(), -2);
        assert_eq!(q("1.2").units_rounded_up(), 2);
        assert!(!q("1.2").is_whole());
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC*") {
            let _ = Quantity::parse(&text);
        }

        #[test]
        fn canonical_form_is_a_fixed_point(text in "[+-]?[0-9]{0,25}(\\.[0-9]{0,25})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e-?[0-9]{1,3})?") {
            if let Ok(quantity) = Quantity::parse(&text) {
                let written = quantity.to_string();
                let again = Quantity::parse(&written).unwrap();
                prop_assert_eq!(quantity.nanos, again.nanos, "{}", written);
                prop_assert_eq!(written, again.to_string());
            }
        }

        #[test]
        fn agrees_with_integer_arithmetic(number in -1_000_000_i64..1_000_000, power in 0_u32..4) {
            let text = format!("{number}{}", ["", "Ki", "Mi", "Gi"][power as usize]);
            let expected = i128::from(number) * 1024_i128.pow(power) * NANOS_PER_UNIT;
            prop_assert_eq!(Quantity::parse(&text).unwrap().nanos, expected);
        }
    }
}
