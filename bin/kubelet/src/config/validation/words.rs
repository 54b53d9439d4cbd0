//! How Go prints values in error texts.

/// A string as Go's `%q` prints it.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Whether `value` lies in `low..=high`, for rules that say `must be between`.
pub(super) fn within(value: impl Into<i64>, low: i64, high: i64) -> bool {
    (low..=high).contains(&value.into())
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn strings_are_quoted_as_go_quotes_them() {
        for (text, go) in [
            ("plain", r#""plain""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("line\nbreak\ttab", r#""line\nbreak\ttab""#),
            ("\u{1}\u{7f}", r#""\x01\x7f""#),
            ("grün", r#""grün""#),
        ] {
            assert_eq!(quoted(text), go);
        }
    }
}
