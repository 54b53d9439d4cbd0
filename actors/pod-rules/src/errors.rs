//! Texts of errors: several in one as upstream's aggregate writes them, and how long one may be.

use std::collections::BTreeSet;

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

/// Cuts a text that has more bytes than that behind a letter, and says so by three dots.
pub fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push_str("...");
    }
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
    fn a_text_is_cut_where_a_letter_ends() {
        let cut_to = |bytes_max| {
            let mut text = "aäb".to_owned();
            cut(&mut text, bytes_max);
            text
        };
        assert_eq!([4, 3, 2, 0].map(cut_to), ["aäb", "aä...", "a...", "..."]);
    }
}
