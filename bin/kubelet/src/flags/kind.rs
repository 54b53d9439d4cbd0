//! The types of flags: each parses its text as pflag and component-base do, and prints its value.

use std::collections::BTreeMap;

use crate::config::logging::VModuleItem;
use crate::config::validation::quoted;
use crate::config::{GoDuration, Quantity};

/// A type of flag.
pub(super) trait FlagKind {
    /// The type of the field that the flag sets.
    type Target;
    /// The type's name in `--help`; empty for booleans.
    const NAME: &'static str;
    /// The value of a flag that is given without one; `None` when a value must follow.
    const WITHOUT_VALUE: Option<&'static str> = None;

    /// Sets `target` from `text`. `first` is true at the flag's first use on the command line, when lists and maps drop
    /// the file's values.
    fn set(target: &mut Self::Target, text: &str, first: bool) -> Result<(), String>;

    /// The value in the form in which `--help` shows defaults.
    fn show(target: &Self::Target) -> String;
}

/// The sign, base and digits of an integer, written as a Go literal.
fn split_base(text: &str) -> (bool, u32, &str) {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let prefix = digits.get(..2).unwrap_or_default().to_ascii_lowercase();
    match prefix.as_str() {
        "0x" => (negative, 16, &digits[2..]),
        "0o" => (negative, 8, &digits[2..]),
        "0b" => (negative, 2, &digits[2..]),
        _ if digits.len() > 1 && digits.starts_with('0') => (negative, 8, &digits[1..]),
        _ => (negative, 10, digits),
    }
}

fn parse_int(text: &str, low: i64, high: i64) -> Result<i64, String> {
    let failed = |why: &str| format!("strconv.ParseInt: parsing {}: {why}", quoted(text));
    let (negative, base, digits) = split_base(text);
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(base)) {
        return Err(failed("invalid syntax"));
    }
    let magnitude = i128::from_str_radix(digits, base).map_err(|_| failed("value out of range"))?;
    let signed = if negative { -magnitude } else { magnitude };
    i64::try_from(signed)
        .ok()
        .filter(|value| (low..=high).contains(value))
        .ok_or_else(|| failed("value out of range"))
}

fn parse_uint31(text: &str) -> Result<u32, String> {
    let failed = |why: &str| format!("strconv.ParseUint: parsing {}: {why}", quoted(text));
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(failed("invalid syntax"));
    }
    text.parse::<i32>()
        .ok()
        .and_then(|value| u32::try_from(value).ok())
        .ok_or_else(|| failed("value out of range"))
}

pub(super) fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("strconv.ParseBool: parsing {}: invalid syntax", quoted(text))),
    }
}

/// One line of comma-separated values, which may be quoted.
fn parse_csv(text: &str) -> Result<Vec<String>, String> {
    let mut values = Vec::new();
    let mut value = String::new();
    let mut inside = false;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '"' if inside && rest.peek() == Some(&'"') => {
                rest.next();
                value.push('"');
            }
            '"' if inside => inside = false,
            '"' if value.is_empty() => inside = true,
            '"' => return Err("parse error on line 1: bare \" in non-quoted field".to_owned()),
            ',' if !inside => values.push(std::mem::take(&mut value)),
            other => value.push(other),
        }
    }
    if inside {
        return Err("parse error on line 1: extraneous or missing \" in quoted-field".to_owned());
    }
    values.push(value);
    Ok(values)
}

/// Splits `text` at commas and each pair at the first `separator`, trimming both halves.
fn pairs<'a>(text: &'a str, separator: char, shape: &str) -> Result<Vec<(&'a str, &'a str)>, String> {
    text.split(',')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let halves = pair.split_once(separator).map(|(key, value)| (key.trim(), value.trim()));
            halves.ok_or_else(|| format!("malformed pair, expect {shape}"))
        })
        .collect()
}

fn joined<'a, V: std::fmt::Display + 'a>(
    map: impl IntoIterator<Item = (&'a String, V)>,
    separator: char,
) -> String {
    let pairs: Vec<String> = map.into_iter().map(|(key, value)| format!("{key}{separator}{value}")).collect();
    pairs.join(",")
}

/// A boolean: `--flag`, `--flag=false`.
pub(super) struct Bool;
impl FlagKind for Bool {
    type Target = bool;
    const NAME: &'static str = "";
    const WITHOUT_VALUE: Option<&'static str> = Some("true");
    fn set(target: &mut bool, text: &str, _first: bool) -> Result<(), String> {
        parse_bool(text).map(|value| *target = value)
    }
    fn show(target: &bool) -> String {
        target.to_string()
    }
}

/// A boolean that can also be unset; `--help` shows an unset one as empty.
pub(super) struct OptionalBool;
impl FlagKind for OptionalBool {
    type Target = Option<bool>;
    const NAME: &'static str = "";
    const WITHOUT_VALUE: Option<&'static str> = Some("true");
    fn set(target: &mut Option<bool>, text: &str, _first: bool) -> Result<(), String> {
        parse_bool(text).map(|value| *target = Some(value))
    }
    fn show(target: &Option<bool>) -> String {
        target.map_or_else(String::new, |value| value.to_string())
    }
}

/// A 32-bit integer.
pub(super) struct Int32;
impl FlagKind for Int32 {
    type Target = i32;
    const NAME: &'static str = "int32";
    fn set(target: &mut i32, text: &str, _first: bool) -> Result<(), String> {
        let value = parse_int(text, i32::MIN.into(), i32::MAX.into())?;
        *target = i32::try_from(value).map_err(|error| error.to_string())?;
        Ok(())
    }
    fn show(target: &i32) -> String {
        target.to_string()
    }
}

/// A 64-bit integer.
pub(super) struct Int64;
impl FlagKind for Int64 {
    type Target = i64;
    const NAME: &'static str = "int";
    fn set(target: &mut i64, text: &str, _first: bool) -> Result<(), String> {
        parse_int(text, i64::MIN, i64::MAX).map(|value| *target = value)
    }
    fn show(target: &i64) -> String {
        target.to_string()
    }
}

/// A text.
pub(super) struct Str;
impl FlagKind for Str {
    type Target = String;
    const NAME: &'static str = "string";
    fn set(target: &mut String, text: &str, _first: bool) -> Result<(), String> {
        text.clone_into(target);
        Ok(())
    }
    fn show(target: &String) -> String {
        target.clone()
    }
}

/// An IP address; an empty text leaves the value as it is.
pub(super) struct Ip;
impl FlagKind for Ip {
    type Target = String;
    const NAME: &'static str = "ip";
    fn set(target: &mut String, text: &str, _first: bool) -> Result<(), String> {
        if text.is_empty() {
            return Ok(());
        }
        // Upstream still accepts IPv4 octets with leading zeros, and reads them as decimal.
        let without_zeros = |octet: &str| match octet.trim_start_matches('0') {
            "" if !octet.is_empty() => "0".to_owned(),
            trimmed => trimmed.to_owned(),
        };
        let v4: Vec<String> = text.split('.').map(without_zeros).collect();
        let is_ip =
            text.parse::<std::net::IpAddr>().is_ok() || v4.join(".").parse::<std::net::Ipv4Addr>().is_ok();
        if !is_ip {
            return Err(format!("{} is not a valid IP address", quoted(text)));
        }
        text.clone_into(target);
        Ok(())
    }
    fn show(target: &String) -> String {
        target.clone()
    }
}

/// A duration in Go's form.
pub(super) struct Duration;
impl FlagKind for Duration {
    type Target = GoDuration;
    const NAME: &'static str = "duration";
    fn set(target: &mut GoDuration, text: &str, _first: bool) -> Result<(), String> {
        GoDuration::parse(text).map(|value| *target = value)
    }
    fn show(target: &GoDuration) -> String {
        target.to_string()
    }
}

/// A list, comma-separated or repeated.
pub(super) struct Strings;
impl FlagKind for Strings {
    type Target = Vec<String>;
    const NAME: &'static str = "strings";
    fn set(target: &mut Vec<String>, text: &str, first: bool) -> Result<(), String> {
        let values = if text.is_empty() { Vec::new() } else { parse_csv(text)? };
        if first {
            target.clear();
        }
        target.extend(values);
        Ok(())
    }
    fn show(target: &Vec<String>) -> String {
        format!("[{}]", target.join(","))
    }
}

/// A map: `key=value,…`, repeatable.
pub(super) struct KeyValues;
impl FlagKind for KeyValues {
    type Target = BTreeMap<String, String>;
    const NAME: &'static str = "mapStringString";
    fn set(target: &mut Self::Target, text: &str, first: bool) -> Result<(), String> {
        let values = pairs(text, '=', "string=string")?;
        if first {
            target.clear();
        }
        target.extend(values.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())));
        Ok(())
    }
    fn show(target: &Self::Target) -> String {
        joined(target, '=')
    }
}

/// A map: one `key=value` per use; commas belong to the value.
pub(super) struct OneKeyValue;
impl FlagKind for OneKeyValue {
    type Target = BTreeMap<String, String>;
    const NAME: &'static str = "mapStringString";
    fn set(target: &mut Self::Target, text: &str, first: bool) -> Result<(), String> {
        let (key, value) =
            text.split_once('=').ok_or_else(|| "malformed pair, expect string=string".to_owned())?;
        if first {
            target.clear();
        }
        target.insert(key.trim().to_owned(), value.trim().to_owned());
        Ok(())
    }
    fn show(target: &Self::Target) -> String {
        joined(target, '=')
    }
}

/// A map: `key=value,…`, where the value may be missing; no use drops earlier values.
pub(super) struct Labels;
impl FlagKind for Labels {
    type Target = BTreeMap<String, String>;
    const NAME: &'static str = "mapStringString";
    fn set(target: &mut Self::Target, text: &str, _first: bool) -> Result<(), String> {
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            target.insert(key.trim().to_owned(), value.trim().to_owned());
        }
        Ok(())
    }
    fn show(target: &Self::Target) -> String {
        joined(target, '=')
    }
}

/// Thresholds: `signal<threshold,…`, repeatable.
pub(super) struct Thresholds;
impl FlagKind for Thresholds {
    type Target = BTreeMap<String, String>;
    const NAME: &'static str = "mapStringString";
    fn set(target: &mut Self::Target, text: &str, first: bool) -> Result<(), String> {
        let values = pairs(text, '<', "string<string")?;
        if first {
            target.clear();
        }
        target.extend(values.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())));
        Ok(())
    }
    fn show(target: &Self::Target) -> String {
        joined(target, '<')
    }
}

/// Feature gates: `gate=bool,…`, repeatable.
pub(super) struct Gates;
impl FlagKind for Gates {
    type Target = BTreeMap<String, bool>;
    const NAME: &'static str = "mapStringBool";
    fn set(target: &mut Self::Target, text: &str, first: bool) -> Result<(), String> {
        if first {
            target.clear();
        }
        for (key, value) in pairs(text, '=', "string=bool")? {
            let parsed = parse_bool(value)
                .map_err(|error| format!("invalid value of {key}: {value}, err: {error}"))?;
            target.insert(key.to_owned(), parsed);
        }
        Ok(())
    }
    fn show(target: &Self::Target) -> String {
        joined(target, '=')
    }
}

/// Headers: `header:value,…`, repeatable; a repeated header keeps all its values.
pub(super) struct Headers;
impl FlagKind for Headers {
    type Target = BTreeMap<String, Vec<String>>;
    const NAME: &'static str = "colonSeparatedMultimapStringString";
    fn set(target: &mut Self::Target, text: &str, first: bool) -> Result<(), String> {
        let values = pairs(text, ':', "string:string")?;
        if first {
            target.clear();
        }
        for (key, value) in values {
            target.entry(key.to_owned()).or_default().push(value.to_owned());
        }
        Ok(())
    }
    fn show(target: &Self::Target) -> String {
        joined(target.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value))), ':')
    }
}

/// A quantity of bytes.
pub(super) struct Bytes;
impl FlagKind for Bytes {
    type Target = Quantity;
    const NAME: &'static str = "quantity";
    fn set(target: &mut Quantity, text: &str, _first: bool) -> Result<(), String> {
        Quantity::parse(text).map(|value| *target = value)
    }
    fn show(target: &Quantity) -> String {
        target.to_string()
    }
}

/// A V level.
pub(super) struct Level;
impl FlagKind for Level {
    type Target = u32;
    const NAME: &'static str = "Level";
    fn set(target: &mut u32, text: &str, _first: bool) -> Result<(), String> {
        parse_uint31(text).map(|value| *target = value)
    }
    fn show(target: &u32) -> String {
        if *target == 0 { String::new() } else { target.to_string() }
    }
}

/// V levels of files: `pattern=N,…`, added to those of the file.
pub(super) struct VModule;
impl FlagKind for VModule {
    type Target = Vec<VModuleItem>;
    const NAME: &'static str = "pattern=N,...";
    fn set(target: &mut Self::Target, text: &str, _first: bool) -> Result<(), String> {
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (pattern, level) = match part.split('=').collect::<Vec<_>>()[..] {
                [pattern, level] if !pattern.is_empty() && !level.is_empty() => (pattern, level),
                _ => return Err(format!("{} does not have the pattern=N format", quoted(part))),
            };
            let verbosity = parse_uint31(level)
                .map_err(|error| format!("parsing verbosity in {}: {error}", quoted(part)))?;
            target.push(VModuleItem { file_pattern: pattern.to_owned(), verbosity });
        }
        Ok(())
    }
    fn show(target: &Self::Target) -> String {
        let items: Vec<String> =
            target.iter().map(|item| format!("{}={}", item.file_pattern, item.verbosity)).collect();
        items.join(",")
    }
}
