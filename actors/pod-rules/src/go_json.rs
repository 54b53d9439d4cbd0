//! JSON as Go's `json.Marshal` writes it, for hashes of it that other kubelets have written down.

/// A text as a JSON string: besides what JSON demands, Go escapes `<`, `>`, `&`, U+2028 and U+2029.
pub fn string(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                json.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_to_html_is_escaped_too() {
        assert_eq!(
            string("a<b>&\"\\\n\u{1}\u{2028}ü\u{7f}"),
            "\"a\\u003cb\\u003e\\u0026\\\"\\\\\\n\\u0001\\u2028ü\u{7f}\""
        );
    }
}
