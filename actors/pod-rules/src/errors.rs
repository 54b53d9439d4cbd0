//! Texts of errors: several in one as upstream's aggregate writes them, and how long one may be.

use std::collections::BTreeSet;
use std::fmt::Display;

pub use messages::text::cut;

/// Each error once, in brackets if there are more than one.
pub fn aggregate(errors: Vec<String>) -> String {
    let mut seen = BTreeSet::new();
    let mut distinct: Vec<String> = errors.into_iter().filter(|error| seen.insert(error.clone())).collect();
    match distinct.len() {
        0 | 1 => distinct.pop().unwrap_or_default(),
        _ => format!("[{}]", distinct.join(", ")),
    }
}

/// The most bytes of a text about an error that facts, statuses and events carry. Images, registries, runtimes and pods' authors can
/// make the text that a container's failure is told with megabytes long, and it stands once for each container.
pub const WORDS_BYTES_MAX: usize = 16 * 1024;

/// All errors in a row, behind what `text` says already, cut where they have more bytes than that: no more of them are written
/// than are kept.
pub fn listed<E: Display>(mut text: String, errors: impl IntoIterator<Item = E>, bytes_max: usize) -> String {
    for (index, error) in errors.into_iter().enumerate() {
        if text.len() > bytes_max {
            break;
        }
        text.push_str(if index == 0 { "" } else { "; " });
        text.push_str(&error.to_string());
    }
    cut(&mut text, bytes_max);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_put_together_as_upstream_does() {
        let errors = |all: &[&str]| aggregate(all.iter().map(|error| (*error).to_owned()).collect());
        assert_eq!(errors(&["a"]), "a");
        assert_eq!(errors(&["a", "a"]), "a");
        assert_eq!(errors(&["a", "b", "a"]), "[a, b]");
    }

    #[test]
    fn errors_in_a_row_end_where_they_are_too_long() {
        let errors = ["one", "two", "three"];
        assert_eq!(listed("a: ".to_owned(), errors, 100), "a: one; two; three");
        assert_eq!(listed(String::new(), [0; 0], 100), "");
        let mut written = 0;
        let many = std::iter::repeat_with(|| {
            written += 1;
            "1234567"
        });
        assert_eq!(listed(String::new(), many.take(1_000_000), 10), "1234567; 1...");
        assert!(written < 4, "{written}");
    }
}
