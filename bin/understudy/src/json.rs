//! PURE: documents as they are printed: whatever stands in them has no effects on a terminal, and their values stay the same.

use std::fmt::Write;

use serde::Serialize;

use crate::view::text::harmless;

/// A document over several lines.
///
/// # Errors
/// The value cannot be written as JSON.
pub fn pretty(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value).map(|text| escaped(&text))
}

/// A document in one line, without its end.
///
/// # Errors
/// The value cannot be written as JSON.
pub fn line(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value).map(|text| escaped(&text))
}

/// The document with escapes for what JSON lets stand as it is: DEL, the C1 controls, and characters that reorder, join or hide
/// others. They are nowhere but in its strings.
fn escaped(document: &str) -> String {
    let mut out = String::with_capacity(document.len());
    for char in document.chars() {
        if char < '\x7f' || harmless(char) == Some(char) {
            out.push(char);
            continue;
        }
        for unit in char.encode_utf16(&mut [0; 2]) {
            // Writing to a string does not fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_escaped_in_every_document() {
        let value = json!({ "a\u{9b}": ["\u{7f}\u{85}\\\u{202e}", "\u{200b}\u{feff}\u{e0041}", "é日😀\n"] });
        let expected = r#"{"a\u009b":["\u007f\u0085\\\u202e","\u200b\ufeff\udb40\udc41","é日😀\n"]}"#;
        assert_eq!(line(&value).unwrap(), expected);
        assert_eq!(pretty(&value).unwrap().replace(['\n', ' '], ""), expected);
    }

    proptest! {
        #[test]
        fn a_document_has_no_effects_and_says_the_same(key in any::<String>(), text in any::<String>()) {
            let mut value = json!({});
            value[&key] = json!([text]);
            for document in [line(&value).unwrap(), pretty(&value).unwrap()] {
                prop_assert!(document.chars().all(|char| char == '\n' || harmless(char) == Some(char)));
                prop_assert_eq!(serde_json::from_str::<Value>(&document).unwrap(), value.clone());
            }
        }
    }
}
