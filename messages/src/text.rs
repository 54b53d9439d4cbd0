//! How long a text about an error may be.

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
    fn a_text_is_cut_where_a_letter_ends() {
        let cut_to = |bytes_max| {
            let mut text = "aäb".to_owned();
            cut(&mut text, bytes_max);
            text
        };
        assert_eq!([4, 3, 2, 0].map(cut_to), ["aäb", "aä...", "a...", "..."]);
    }
}
