//! PURE: a log as it is written out: harmless on a terminal, or a document for each line.

use std::io::{Result, Write};

use jiff::Timestamp;
use serde::Serialize;

use crate::json;
use crate::view::text::harmless;

/// The most bytes of a line in one document; a longer line takes several.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Text without effects on a terminal, made of parts that may end within a character.
#[derive(Debug, Default)]
pub struct Harmless {
    /// The beginning of a character.
    begun: Vec<u8>,
}

impl Harmless {
    /// The next part: line breaks and tabs stay, other control characters become pictures.
    pub fn text(&mut self, part: &[u8]) -> String {
        self.begun.extend_from_slice(part);
        let bytes = std::mem::take(&mut self.begun);
        let mut rest = bytes.as_slice();
        let mut out = String::new();
        loop {
            let error = match std::str::from_utf8(rest) {
                Ok(text) => {
                    out.extend(text.chars().filter_map(shown));
                    return out;
                }
                Err(error) => error,
            };
            let (valid, after) = rest.split_at(error.valid_up_to());
            out.extend(std::str::from_utf8(valid).unwrap_or_default().chars().filter_map(shown));
            let Some(wrong) = error.error_len() else {
                self.begun = after.to_vec();
                return out;
            };
            out.push(char::REPLACEMENT_CHARACTER);
            rest = after.get(wrong..).unwrap_or_default();
        }
    }

    /// What is left at the end.
    pub fn end(&mut self) -> String {
        let begun = std::mem::take(&mut self.begun);
        if begun.is_empty() { String::new() } else { char::REPLACEMENT_CHARACTER.to_string() }
    }
}

fn shown(char: char) -> Option<char> {
    match char {
        '\n' | '\t' => Some(char),
        // It would let a line write over itself.
        '\r' => None,
        _ => harmless(char),
    }
}

/// A line of a log, or a part of a very long one.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Line<'a> {
    /// When it was written; `None` in the later parts of a line.
    time: Option<&'a str>,
    /// The text.
    line: &'a str,
    /// Whether the line goes on in the next document.
    partial: bool,
}

/// Documents, one for each line of a log whose lines begin with their time.
#[derive(Debug, Default)]
pub struct Documents {
    /// The line so far.
    begun: Vec<u8>,
    /// Whether an earlier part of the line has been written.
    within: bool,
}

impl Documents {
    /// Writes the documents of the lines that this part ends.
    ///
    /// # Errors
    /// The output's.
    pub fn write(&mut self, mut part: &[u8], out: &mut impl Write) -> Result<()> {
        while !part.is_empty() {
            let room = LINE_BYTES_MAX - self.begun.len();
            let end = part.iter().take(room).position(|byte| *byte == b'\n');
            let (taken, rest) = part.split_at(end.unwrap_or(room.min(part.len())));
            self.begun.extend_from_slice(taken);
            part = rest;
            if end.is_some() {
                part = part.get(1..).unwrap_or_default();
                self.put(false, out)?;
            } else if self.begun.len() >= LINE_BYTES_MAX {
                self.put(true, out)?;
            }
        }
        Ok(())
    }

    /// Writes the document of a last line without an end.
    ///
    /// # Errors
    /// The output's.
    pub fn end(&mut self, out: &mut impl Write) -> Result<()> {
        if self.begun.is_empty() { Ok(()) } else { self.put(false, out) }
    }

    fn put(&mut self, partial: bool, out: &mut impl Write) -> Result<()> {
        let text = String::from_utf8_lossy(&self.begun);
        let timed = text.split_once(' ').filter(|(time, _)| time.parse::<Timestamp>().is_ok());
        let (time, line) = match timed {
            Some((time, line)) if !self.within => (Some(time), line),
            _ => (None, text.as_ref()),
        };
        writeln!(out, "{}", json::line(&Line { time, line, partial })?)?;
        self.within = partial;
        self.begun.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_terminal_a_log_has_no_effects() {
        let mut harmless = Harmless::default();
        assert_eq!(harmless.text(b"a\tb\r\n\x1b[2Jc\xffd"), "a\tb\n␛[2Jc\u{fffd}d");
        let (one, other) = "é日".as_bytes().split_at(3);
        assert_eq!((harmless.text(one), harmless.text(other)), ("é".to_owned(), "日".to_owned()));
        // A C1 control, cut in half.
        assert_eq!(
            (harmless.text(b"\xc2"), harmless.text(b"\x9bm")),
            (String::new(), "\u{fffd}m".to_owned())
        );
        assert_eq!(harmless.text(b"x\xe6"), "x");
        assert_eq!((harmless.end(), harmless.end()), ("\u{fffd}".to_owned(), String::new()));
    }

    fn documents(parts: &[&[u8]]) -> Vec<serde_json::Value> {
        let (mut documents, mut out) = (Documents::default(), Vec::new());
        for part in parts {
            documents.write(part, &mut out).unwrap();
        }
        documents.end(&mut out).unwrap();
        let lines = out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    #[test]
    fn each_line_is_a_document() {
        let written = documents(&[
            b"2026-01-01T00:00:00.5Z one\n2026-01-01T00:00:01Z \x1b",
            b"[2J two",
            b"\n\n2026-01-01T00:00:02Z last",
        ]);
        let line = |time: Option<&str>, line: &str| serde_json::json!({ "time": time, "line": line, "partial": false });
        let expected = [
            line(Some("2026-01-01T00:00:00.5Z"), "one"),
            line(Some("2026-01-01T00:00:01Z"), "\u{1b}[2J two"),
            line(None, ""),
            line(Some("2026-01-01T00:00:02Z"), "last"),
        ];
        assert_eq!(written, expected);
    }

    #[test]
    fn a_document_has_no_effects_on_a_terminal() {
        let (mut documents, mut out) = (Documents::default(), Vec::new());
        documents
            .write("2026-01-01T00:00:00Z \u{9b}2J\u{7f}\u{202e}\u{200b}\n".as_bytes(), &mut out)
            .unwrap();
        let expected =
            r#"{"time":"2026-01-01T00:00:00Z","line":"\u009b2J\u007f\u202e\u200b","partial":false}"#;
        assert_eq!(String::from_utf8(out).unwrap(), format!("{expected}\n"));
    }

    #[test]
    fn a_very_long_line_takes_several_documents() {
        let text = "x".repeat(LINE_BYTES_MAX);
        let long = format!("2026-01-01T00:00:00Z {text}\nnext\n").into_bytes();
        let written = documents(&[&long]);
        let partial: Vec<bool> = written.iter().map(|line| line["partial"] == true).collect();
        assert_eq!(partial, [true, false, false]);
        assert_eq!((written[0]["time"].is_null(), written[1]["time"].is_null()), (false, true));
        let length = |line: &serde_json::Value| line["line"].as_str().unwrap().len();
        assert_eq!(length(&written[0]) + length(&written[1]), LINE_BYTES_MAX);
        assert_eq!(written[2]["line"], "next");
    }
}
