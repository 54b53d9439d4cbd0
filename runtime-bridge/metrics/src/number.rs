//! Numbers as Go's library writes them: they are values of the label `le`, which scrapers compare as text.

/// Exponents of numbers that are written without one.
const PLAIN: std::ops::Range<i32> = -4..6;

/// The shortest text that reads as `value`, with an exponent of at least two digits for what is small or large.
pub(crate) fn go(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if PLAIN.contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

/// The same for OpenMetrics, where a number always has a point or an exponent.
pub(crate) fn open_metrics(value: f64) -> String {
    let mut text = go(value);
    if value.is_finite() && !text.contains(['e', '.']) {
        text.push_str(".0");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_go_kubelet() {
        for (value, text, open) in [
            (0.0, "0", "0.0"),
            (1.0, "1", "1.0"),
            (0.005, "0.005", "0.005"),
            (0.0001, "0.0001", "0.0001"),
            (0.000_01, "1e-05", "1e-05"),
            (9.999_999_999_999_999e-5, "9.999999999999999e-05", "9.999999999999999e-05"),
            (604_800.0, "604800", "604800.0"),
            (999_999.5, "999999.5", "999999.5"),
            (2_592_000.0, "2.592e+06", "2.592e+06"),
            (1_795_407_921.0, "1.795407921e+09", "1.795407921e+09"),
            (18_446_744_073_709_551_615.0, "1.8446744073709552e+19", "1.8446744073709552e+19"),
            (-2.5, "-2.5", "-2.5"),
            (1e100, "1e+100", "1e+100"),
            (f64::INFINITY, "+Inf", "+Inf"),
            (f64::NEG_INFINITY, "-Inf", "-Inf"),
            (f64::NAN, "NaN", "NaN"),
        ] {
            assert_eq!((go(value).as_str(), open_metrics(value).as_str()), (text, open));
        }
    }
}
