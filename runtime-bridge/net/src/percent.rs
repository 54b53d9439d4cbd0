//! Percent-encoding of what may not stand in a URL as it is (RFC 3986, 2.1).

/// The text with every byte that is not `plain` escaped.
pub fn escaped(text: &str, plain: impl Fn(u8) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii() && plain(byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn what_is_not_plain_is_escaped_byte_by_byte() {
        assert_eq!(escaped("a b/\u{e4}%", |byte| byte.is_ascii_alphanumeric()), "a%20b%2F%C3%A4%25");
        assert_eq!(escaped("\u{e4}", |_| true), "%C3%A4", "a URL is ASCII");
    }
}
