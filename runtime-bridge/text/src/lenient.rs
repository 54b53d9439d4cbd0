//! What Go's reader of YAML takes and the parser used here refuses: lines within brackets or quotes that stand left of what
//! surrounds them or begin with a tab, a tab between a colon and its value, and a comment directly behind brackets or quotes.
//! Such a text is written anew so that it means the same to both: spaces in those places mean nothing.

use saphyr_parser::{Event, Parser, ScanError};

const TAB_AFTER_COLON: &str = "':' must be followed by a valid YAML whitespace";
const COMMENT: &str = "comments must be separated from other tokens by whitespace";
const IN_QUOTES: &str = "invalid indentation in quoted scalar";
const INDENTATION: [&str; 4] = [
    "invalid indentation",
    "invalid indentation in flow construct",
    "tabs disallowed within this context (block indentation)",
    "tab cannot be used as indentation",
];

/// The text without the cause of the parser's error; `None` if the text is wrong for Go's reader, too, or would have more than
/// `bytes_max` bytes.
pub(crate) fn repaired(text: &str, error: &ScanError, bytes_max: usize) -> Option<String> {
    let at = offset(text, error.marker().index());
    match error.info() {
        TAB_AFTER_COLON => space_after_colon(text, at),
        COMMENT => text.get(at..)?.starts_with('#').then(|| format!("{} {}", &text[..at], &text[at..])),
        // The place is that of the opening quote.
        IN_QUOTES => indented(text, at + 1, bytes_max),
        reason if INDENTATION.contains(&reason) => indented(text, at, bytes_max),
        _ => None,
    }
}

/// Where a character begins, in bytes, by its number.
fn offset(text: &str, index: usize) -> usize {
    text.char_indices().nth(index).map_or(text.len(), |(offset, _)| offset)
}

/// Puts a space for the first of the tabs that end at `value`.
fn space_after_colon(text: &str, value: usize) -> Option<String> {
    let colon = text.get(..value)?.trim_end_matches('\t').len();
    let rest = text.get(colon..)?.strip_prefix('\t')?;
    Some(format!("{} {rest}", &text[..colon]))
}

/// Indents the further lines of the brackets or quotes that are open at `at`, the outermost ones.
fn indented(text: &str, at: usize, bytes_max: usize) -> Option<String> {
    let opening = opening(text.get(..at)?)?;
    let line = text[..opening].rfind(['\n', '\r']).map_or(0, |end| end + 1);
    // What surrounds the opening bracket stands at most at its own column.
    let columns = text[line..opening].chars().count() + 2;
    let end = opening + closing(&text[opening..])?;
    // Each line grows by the columns before the bracket: a long line, and many after it, would become gigabytes.
    let lines = text[opening..end].matches(['\n', '\r']).count();
    if text.len().saturating_add(columns.saturating_mul(lines)) > bytes_max {
        return None;
    }
    let indent = " ".repeat(columns);
    let mut repaired = text[..opening].to_owned();
    let mut inside = text[opening..end].chars().peekable();
    while let Some(c) = inside.next() {
        repaired.push(c);
        if c == '\n' || (c == '\r' && inside.peek() != Some(&'\n')) {
            repaired.push_str(&indent);
        }
    }
    repaired.push_str(&text[end..]);
    Some(repaired)
}

/// Where the outermost brackets or quotes begin that a text leaves open.
fn opening(text: &str) -> Option<usize> {
    let mut open = Vec::new();
    let mut parser = Parser::new_from_str(text);
    let error = loop {
        match parser.next_event()? {
            Ok((Event::SequenceStart(..) | Event::MappingStart(..), span)) => open.push(span),
            Ok((Event::SequenceEnd | Event::MappingEnd, _)) => drop(open.pop()),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    for span in open {
        let (start, end) = (offset(text, span.start.index()), offset(text, span.end.index()));
        if without_properties(&text[start..end]).starts_with(['[', '{']) {
            return Some(start);
        }
    }
    // Of what surrounds an open quote the parser tells nothing.
    let is_quote = error.info() == "while scanning a quoted scalar, found unexpected end of stream";
    let quote = offset(text, error.marker().index());
    is_quote.then(|| opening(&text[..quote]).unwrap_or(quote))
}

/// A value's text without its anchor and tag.
fn without_properties(mut text: &str) -> &str {
    while text.starts_with(['&', '!']) {
        text = text.split_once(char::is_whitespace).map_or("", |(_, rest)| rest.trim_start());
    }
    text
}

/// Where the brackets or quotes end that a text begins with.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut parser = Parser::new_from_str(text);
    loop {
        let (event, span) = parser.next_event()?.ok()?;
        match event {
            Event::SequenceStart(..) | Event::MappingStart(..) => depth += 1,
            Event::SequenceEnd | Event::MappingEnd => depth -= 1,
            Event::Scalar(..) | Event::Alias(_) => {}
            _ => continue,
        }
        if depth == 0 {
            return Some(offset(text, span.end.index()));
        }
    }
}
