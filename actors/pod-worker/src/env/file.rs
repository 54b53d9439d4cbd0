//! Files of variables (row 11.6): a strict subset of a POSIX shell's syntax, with one `NAME='value'` per
//! line.
//!
//! A value is in single quotes and may span lines; no character in it is special. Empty lines, lines that
//! begin with `#`, and a comment after the closing quote are ignored. A variable with a blank after its `=`
//! is empty, as in a shell.

use std::collections::{BTreeMap, BTreeSet};

/// The longest line, in bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;
const BLANKS: [char; 2] = [' ', '\t'];

/// Why a file of variables cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvFileError {
    /// A line does not have the form `NAME='value'`.
    #[error("invalid environment variable format at line {line}: {problem}")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// The rule that the line breaks.
        problem: &'static str,
    },
    /// A value has no closing quote.
    #[error("invalid environment variable format starting at line {line}: unclosed single quote")]
    Unclosed {
        /// The number of the line on which the value begins, from 1.
        line: usize,
    },
    /// A line exceeds the longest allowed length.
    #[error("line {line} is too long")]
    TooLong {
        /// The number of the line, from 1.
        line: usize,
    },
}

/// The wanted variables of a file: those before its first malformed line, which is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvVariables {
    values: BTreeMap<String, String>,
    malformed: Option<EnvFileError>,
}

impl EnvVariables {
    /// Reads the file once for all the variables that are wanted of it. Of those with one name the first counts.
    pub fn parse(text: &str, wanted: &BTreeSet<String>) -> Self {
        let mut found = Self::default();
        found.malformed = found.read(text, wanted).err();
        found
    }

    /// The value of a wanted variable; empty if the file does not have it.
    ///
    /// # Errors
    /// The file's first malformed line, if the variable does not come before it.
    pub fn value(&self, name: &str) -> Result<&str, &EnvFileError> {
        match (self.values.get(name), &self.malformed) {
            (Some(value), _) => Ok(value),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(""),
        }
    }

    fn read(&mut self, text: &str, wanted: &BTreeSet<String>) -> Result<(), EnvFileError> {
        let mut lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).zip(1..);
        while let Some((line, number)) = lines.next() {
            short_enough(line, number)?;
            let line = line.trim_start_matches(BLANKS);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |problem| EnvFileError::Line { line: number, problem };
            let (name, value) = line.split_once('=').ok_or_else(|| wrong("missing '='"))?;
            let trimmed = name.trim_end_matches(BLANKS);
            if trimmed.is_empty() {
                return Err(wrong("empty variable name"));
            }
            if trimmed != name {
                return Err(wrong("whitespace before '=' is not allowed"));
            }
            let (mut content, mut at) = (String::new(), number);
            if !value.starts_with(BLANKS) {
                let quoted = value.strip_prefix('\'');
                let mut rest = quoted.ok_or_else(|| wrong("value must be enclosed in single quotes"))?;
                let after = loop {
                    if let Some((last, after)) = rest.split_once('\'') {
                        content.push_str(last);
                        break after;
                    }
                    content.push_str(rest);
                    content.push('\n');
                    (rest, at) = lines.next().ok_or(EnvFileError::Unclosed { line: number })?;
                    short_enough(rest, at)?;
                };
                let after = after.trim_start_matches(BLANKS);
                if !after.is_empty() && !after.starts_with('#') {
                    let problem = "unexpected content after closing quote";
                    return Err(EnvFileError::Line { line: at, problem });
                }
            }
            if wanted.contains(name) {
                self.values.entry(name.to_owned()).or_insert(content);
            }
        }
        Ok(())
    }
}

fn short_enough(line: &str, number: usize) -> Result<(), EnvFileError> {
    if line.len() < LINE_BYTES_MAX { Ok(()) } else { Err(EnvFileError::TooLong { line: number }) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value_in(text: &str, key: &str) -> Result<String, EnvFileError> {
        let found = EnvVariables::parse(text, &BTreeSet::from([key.to_owned()]));
        found.value(key).map(str::to_owned).map_err(Clone::clone)
    }

    #[test]
    fn values_are_found() {
        for (text, key, expected) in [
            ("  A='1'\n\t\tB='2'\nC='3'\n", "B", "2"),
            ("# A='0'\n\nA='1'\n  # more\n", "A", "1"),
            ("A='1'\n", "B", ""),
            ("", "A", ""),
            ("A='a#b=c$D${E}\"\\n'", "A", "a#b=c$D${E}\"\\n"),
            ("A='  x  ' # comment\n", "A", "  x  "),
            ("A='one\n  two\n\n# three'\nB='4'", "A", "one\n  two\n\n# three"),
            ("A='one\ntwo'\nB='4'", "B", "4"),
            ("A= 'x'\nB='2'", "A", ""),
            ("A= 'x'\nB='2'", "B", "2"),
            ("A=''\n", "A", ""),
            ("A='1'\r\nB='2'\r\n", "B", "2"),
            // Of two with one name the first counts, and the lines after the variable do not.
            ("A='1'\nA='2'", "A", "1"),
            ("A= \nA='2'", "A", ""),
            ("A='1'\nnonsense", "A", "1"),
        ] {
            assert_eq!(value_in(text, key), Ok(expected.to_owned()), "{text:?} {key}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, line, problem) in [
            ("\nnonsense\n", 2, "missing '='"),
            ("='1'", 1, "empty variable name"),
            (" ='1'", 1, "empty variable name"),
            ("A ='1'", 1, "whitespace before '=' is not allowed"),
            ("A=1", 1, "value must be enclosed in single quotes"),
            ("A=\"1\"", 1, "value must be enclosed in single quotes"),
            ("A=", 1, "value must be enclosed in single quotes"),
            ("A='1'x", 1, "unexpected content after closing quote"),
            ("A='1\n2'x", 2, "unexpected content after closing quote"),
        ] {
            assert_eq!(value_in(text, "KEY"), Err(EnvFileError::Line { line, problem }), "{text:?}");
        }
        assert_eq!(value_in("\nA='1\n2\n", "A"), Err(EnvFileError::Unclosed { line: 2 }));
        let long = format!("\nA='{}'", "x".repeat(LINE_BYTES_MAX));
        assert_eq!(value_in(&long, "A"), Err(EnvFileError::TooLong { line: 2 }));
    }

    proptest! {
        #[test]
        fn any_value_without_a_quote_comes_back(value in "[^'\r]{0,200}") {
            let text = format!("X='y'\nKEY='{value}'\n");
            prop_assert_eq!(value_in(&text, "KEY"), Ok(value));
        }

        #[test]
        fn no_text_is_too_much(text in "\\PC{0,60}|[A-Z='#\n \t]{0,60}") {
            let _ = value_in(&text, "A");
        }
    }
}
