//! PURE: the token that a request brings along.

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HeaderValue, SEC_WEBSOCKET_PROTOCOL};

/// How browsers, which cannot set headers, send a token: as a WebSocket protocol.
const PROTOCOL_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Takes the bearer token out of a request's headers, so that nobody behind sees it. Only a token that is well-formed
/// counts as one.
pub fn take_token(headers: &mut HeaderMap) -> Option<String> {
    let from_protocol = take_protocol(headers);
    let header = headers.remove(AUTHORIZATION);
    let bearer = header.as_ref().and_then(|value| {
        let text = value.to_str().ok()?.trim();
        let (kind, token) = text.split_once(' ')?;
        kind.eq_ignore_ascii_case("bearer").then(|| token.trim_start())
    });
    let token = bearer.and_then(|rest| rest.split(' ').next()).filter(|token| !token.is_empty());
    token.map(str::to_owned).or(from_protocol)
}

fn take_protocol(headers: &mut HeaderMap) -> Option<String> {
    let mut token = None;
    let mut others = Vec::new();
    for value in headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
        for protocol in value.to_str().ok()?.split(',').map(str::trim) {
            match protocol.strip_prefix(PROTOCOL_PREFIX) {
                Some(encoded) if token.is_none() => token = Some(decode(encoded)?),
                Some(_) => return None,
                None => others.push(protocol.to_owned()),
            }
        }
    }
    // A client needs another protocol to speak: with the token's alone the request is none of a token's.
    let token = token.filter(|_| !others.is_empty())?;
    let rest = HeaderValue::from_str(&others.join(", ")).ok()?;
    headers.insert(SEC_WEBSOCKET_PROTOCOL, rest);
    Some(token)
}

/// Base64 with the alphabet of URLs and without padding, of UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut held) = (0u32, 0u32);
    for byte in text.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        held = (held << 6) | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from((held >> bits) & 0xff).expect("eight bits"));
            held &= (1 << bits) - 1;
        }
    }
    String::from_utf8(bytes).ok().filter(|token| bits < 6 && held == 0 && !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn the_header_gives_the_token_and_loses_it() {
        for (value, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc", Some("abc")),
            ("Bearer abc def", Some("abc")),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic abc", None),
            ("abc", None),
        ] {
            let mut headers = headers(&[("authorization", value)]);
            assert_eq!(take_token(&mut headers).as_deref(), token, "{value:?}");
            assert!(headers.is_empty(), "nobody behind sees it");
        }
    }

    #[test]
    fn a_websocket_protocol_may_be_a_token() {
        let protocol = "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.YWJj";
        let mut with = headers(&[("sec-websocket-protocol", protocol)]);
        assert_eq!(take_token(&mut with).as_deref(), Some("abc"));
        assert_eq!(with[SEC_WEBSOCKET_PROTOCOL], "v4.channel.k8s.io");
        for refused in [
            "base64url.bearer.authorization.k8s.io.YWJj",
            "x, base64url.bearer.authorization.k8s.io.YW=j",
            "x, base64url.bearer.authorization.k8s.io.",
            "x, base64url.bearer.authorization.k8s.io.YQ, base64url.bearer.authorization.k8s.io.YQ",
        ] {
            assert_eq!(take_token(&mut headers(&[("sec-websocket-protocol", refused)])), None, "{refused}");
        }
    }
}
