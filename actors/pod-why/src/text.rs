//! PURE: text that is safe to print on a terminal, and its width.

use unicode_width::UnicodeWidthChar;

/// The most characters of a text that are used: no line is longer.
const CHARS_MAX: usize = 2048;
/// The most columns that a text of others takes in a sentence.
pub const SAID_MAX: usize = 240;

/// The text without effects on a terminal: control characters become pictures, line breaks become spaces, and
/// characters that reorder, join or hide others are left out.
pub fn neutralised(text: &str) -> String {
    text.chars().take(CHARS_MAX).filter_map(harmless).collect()
}

/// The character without effects on a terminal; `None` for one that is left out.
pub fn harmless(char: char) -> Option<char> {
    match char {
        '\t' | '\n' | '\r' | '\u{2028}' | '\u{2029}' => Some(' '),
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(char)),
        '\x7f' => Some('␡'),
        // C1 controls, which some terminals take for escape sequences.
        '\u{80}'..='\u{9f}' => Some('\u{fffd}'),
        // Zero-width and directional characters, joiners, variation selectors, tags.
        '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' => None,
        '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}' => None,
        _ => Some(char),
    }
}

fn columns(char: char) -> usize {
    char.width().unwrap_or(0)
}

/// The number of terminal columns that a harmless text takes.
pub fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// The text in at most `room` columns; a cut text ends in a mark.
pub fn fitted(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let Some(room) = room.checked_sub(1) else { return String::new() };
    let mut used = 0;
    let mut kept: String = text
        .chars()
        .take_while(|char| {
            used += columns(*char);
            used <= room
        })
        .collect();
    kept.push('…');
    kept
}

/// A text of others, harmless and short.
pub fn said(text: &str) -> String {
    fitted(neutralised(text).trim(), SAID_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escape_sequences_are_shown_not_obeyed() {
        assert_eq!(neutralised("a\x1b[2J\x1b]0;t\x07b\u{9b}1m\x7f"), "a␛[2J␛]0;t␇b\u{fffd}1m␡");
        assert_eq!(neutralised("one\r\ntwo\tthree"), "one  two three");
        assert_eq!(neutralised("ab\u{202e}cd\u{200b}"), "abcd");
    }

    #[test]
    fn wide_characters_are_not_cut_in_half() {
        assert_eq!(fitted("日本語", 6), "日本語");
        assert_eq!(fitted("日本語", 5), "日本…");
        assert_eq!(fitted("日本語", 4), "日…");
        assert_eq!(fitted("abc", 0), "");
        // A combining accent stays with its letter.
        assert_eq!(fitted("e\u{301}e\u{301}", 2), "e\u{301}e\u{301}");
    }

    proptest! {
        #[test]
        fn nothing_is_ever_wider_than_its_room(text in any::<String>(), room in 0usize..40) {
            let safe = neutralised(&text);
            prop_assert!(!safe.chars().any(char::is_control));
            prop_assert!(width(&fitted(&safe, room)) <= room);
        }
    }
}
