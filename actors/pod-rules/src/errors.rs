//! Several errors in one text, as upstream's aggregate writes them.

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
}
