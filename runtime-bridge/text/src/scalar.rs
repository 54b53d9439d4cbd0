//! The meaning of a plain YAML scalar. Kubernetes reads YAML 1.1, in which `yes` is true and `0644` is octal; manifests
//! and configuration rely on this, and a YAML 1.2 reading would silently yield other modes and flags.

use crate::node::{Node, Number};

/// The value of an unquoted, untagged scalar.
pub(crate) fn resolve(text: &str) -> Node {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Node::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Node::Bool(true, text.to_owned());
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Node::Bool(false, text.to_owned());
        }
        _ => {}
    }
    number(text).map_or_else(|| Node::String(text.to_owned()), Node::Number)
}

/// The number that a plain scalar denotes, or `None`.
pub(crate) fn number(text: &str) -> Option<Number> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return None;
    }
    let plain = if text.contains('_') { text.replace('_', "") } else { text.to_owned() };
    if let Some(number) = integer(&plain) {
        return Some(number);
    }
    let value: f64 = if is_float(&plain) { plain.parse().ok()? } else { return None };
    Some(Number::Float(value, plain))
}

fn integer(text: &str) -> Option<Number> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        return 0_i64.checked_sub_unsigned(magnitude).map(Number::Int);
    }
    Some(i64::try_from(magnitude).map_or(Number::Unsigned(magnitude), Number::Int))
}

/// Whether the text matches `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
fn is_float(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_ok = match mantissa.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && digits(fraction),
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => !mantissa.is_empty() && digits(mantissa),
    };
    mantissa_ok
        && exponent.is_none_or(|exponent| {
            let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            !exponent.is_empty() && digits(exponent)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_yaml_1_1() {
        for (text, expected) in [
            ("yes", Node::Bool(true, "yes".into())),
            ("Off", Node::Bool(false, "Off".into())),
            ("~", Node::Null),
            ("0644", Node::Number(Number::Int(0o644))),
            ("0o644", Node::Number(Number::Int(0o644))),
            ("0x1F", Node::Number(Number::Int(31))),
            ("-12", Node::Number(Number::Int(-12))),
            ("1_000", Node::Number(Number::Int(1000))),
            ("-9223372036854775808", Node::Number(Number::Int(i64::MIN))),
            ("18446744073709551615", Node::Number(Number::Unsigned(u64::MAX))),
            ("0.1", Node::Number(Number::Float(0.1, "0.1".into()))),
            ("1e3", Node::Number(Number::Float(1000.0, "1e3".into()))),
            ("100m", Node::String("100m".into())),
            ("1.2.3", Node::String("1.2.3".into())),
            ("-", Node::String("-".into())),
            (".", Node::String(".".into())),
            ("--1", Node::String("--1".into())),
            ("0x", Node::String("0x".into())),
            ("2001-01-01", Node::String("2001-01-01".into())),
            ("nginx:latest", Node::String("nginx:latest".into())),
        ] {
            assert_eq!(resolve(text), expected, "{text}");
        }
    }
}
