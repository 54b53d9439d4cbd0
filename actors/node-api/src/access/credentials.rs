//! PURE: the token that a request brings along.

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, CONNECTION, HeaderValue, SEC_WEBSOCKET_PROTOCOL, UPGRADE};

/// Before the token of a browser, which cannot set headers and sends its token as a WebSocket protocol.
const PROTOCOL_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";
/// A protocol with this in its name is meant to be a token; no real protocol has it.
const PROTOCOL_MARK: &[u8] = b"bearer";

/// The token in a request's headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PresentedCredentials {
    /// There is no token.
    Nothing,
    /// A token, decoded.
    Token(String),
    /// A token that cannot be read, or more than one token.
    Malformed,
}

/// Takes the bearer token out of a request's headers, and everything that looks like one, so that no handler passes it
/// on.
pub fn take_token(headers: &mut HeaderMap) -> PresentedCredentials {
    let from_protocol = take_protocol(headers);
    let header = headers.remove(AUTHORIZATION);
    let bearer = header.as_ref().and_then(|value| {
        let text = value.to_str().ok()?.trim();
        let (kind, token) = text.split_once(' ')?;
        kind.eq_ignore_ascii_case("bearer").then(|| token.trim_start())
    });
    let token = bearer.and_then(|rest| rest.split(' ').next()).filter(|token| !token.is_empty());
    token.map_or(from_protocol, |token| PresentedCredentials::Token(token.to_owned()))
}

fn has(headers: &HeaderMap, name: &axum::http::HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(word))
}

/// Removes the tokens from the WebSocket protocols that the request offers, and leaves the other protocols there.
fn take_protocol(headers: &mut HeaderMap) -> PresentedCredentials {
    let lines: Vec<HeaderValue> = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().cloned().collect();
    if lines.is_empty() {
        return PresentedCredentials::Nothing;
    }
    let offered = lines.iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    let (tokens, others): (Vec<_>, Vec<_>) = offered.map(<[u8]>::trim_ascii).partition(|one| {
        one.to_ascii_lowercase().windows(PROTOCOL_MARK.len()).any(|part| part == PROTOCOL_MARK)
    });
    let others: Vec<_> = others.into_iter().filter_map(|one| std::str::from_utf8(one).ok()).collect();
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    let is_other = others.iter().any(|one| !one.is_empty());
    if is_other && let Ok(rest) = HeaderValue::from_str(&others.join(", ")) {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, rest);
    }
    let is_websocket = has(headers, &CONNECTION, "upgrade") && has(headers, &UPGRADE, "websocket");
    let encoded =
        tokens.into_iter().filter_map(|one| std::str::from_utf8(one).ok()?.strip_prefix(PROTOCOL_PREFIX));
    let encoded: Vec<&str> = encoded.filter(|_| is_websocket).collect();
    match encoded[..] {
        [] | [""] => PresentedCredentials::Nothing,
        // A client needs another protocol to speak: if it offers nothing but the token, the token does not count.
        [one] if is_other => decode(one).map_or(PresentedCredentials::Malformed, PresentedCredentials::Token),
        _ => PresentedCredentials::Malformed,
    }
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
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn token(text: &str) -> PresentedCredentials {
        PresentedCredentials::Token(text.to_owned())
    }

    #[test]
    fn the_header_gives_the_token_and_loses_it() {
        for (value, expected) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc", Some("abc")),
            ("Bearer abc def", Some("abc")),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic abc", None),
            ("abc", None),
        ] {
            let mut headers = headers(&[("authorization", value), ("authorization", "Bearer second")]);
            assert_eq!(
                take_token(&mut headers),
                expected.map_or(PresentedCredentials::Nothing, token),
                "{value:?}"
            );
            assert!(headers.is_empty(), "nobody behind sees it");
        }
    }

    /// The token that a WebSocket request with these lines of protocols brings, and the protocols that are left of
    /// them.
    fn offered(lines: &[&'static str]) -> (PresentedCredentials, Option<String>) {
        let upgrade = [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];
        let lines = lines.iter().map(|line| ("sec-websocket-protocol", *line));
        let mut headers = headers(&upgrade.into_iter().chain(lines).collect::<Vec<_>>());
        let presented = take_token(&mut headers);
        assert!(headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().count() <= 1);
        let rest = headers.get(SEC_WEBSOCKET_PROTOCOL);
        (presented, rest.map(|value| value.to_str().unwrap().to_owned()))
    }

    #[test]
    fn a_websocket_protocol_may_be_a_token() {
        let left = |text: &str| Some(text.to_owned());
        let prefixed = "base64url.bearer.authorization.k8s.io.YWJj";
        let both = "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.YWJj";
        assert_eq!(offered(&[both]), (token("abc"), left("v4.channel.k8s.io")));
        assert_eq!(offered(&[prefixed, "a,b", "c"]), (token("abc"), left("a, b, c")));
        assert_eq!(
            offered(&[prefixed]),
            (PresentedCredentials::Malformed, None),
            "another protocol is needed"
        );
        let mut plain = headers(&[("sec-websocket-protocol", both)]);
        assert_eq!(take_token(&mut plain), PresentedCredentials::Nothing, "no WebSocket");
        assert_eq!(plain[SEC_WEBSOCKET_PROTOCOL], "v4.channel.k8s.io");
    }

    #[test]
    fn what_looks_like_a_token_goes_no_further() {
        for (line, is_malformed) in [
            ("x, base64url.bearer.authorization.k8s.io.YW=j", true),
            ("x, base64url.bearer.authorization.k8s.io.YWJj==", true),
            ("x, base64url.bearer.authorization.k8s.io.", false),
            ("base64url.bearer.authorization.k8s.io.YQ,x,base64url.bearer.authorization.k8s.io.YQ", true),
            ("x, Base64URL.Bearer.Authorization.K8s.io.YWJj", false),
            ("x,BASE64URL.BEARER.AUTHORIZATION.K8S.IO.YWJj", false),
            ("x ,\t base64.bearer.authorization.k8s.io.YWJj", false),
            ("\"base64url.bearer.authorization.k8s.io.YWJj\", x", false),
            ("base64url.bearer.authorization.k8s.io .YWJj, x", false),
            ("base64url . bearer . authorization.YWJj, x", false),
        ] {
            let expected =
                if is_malformed { PresentedCredentials::Malformed } else { PresentedCredentials::Nothing };
            assert_eq!(offered(&[line]), (expected, Some("x".to_owned())), "{line}");
        }
        let raw =
            HeaderValue::from_bytes(b"x, base64url.bearer.authorization.k8s.io.YW\xffJj, \xfe").unwrap();
        let mut headers = HeaderMap::from_iter([(SEC_WEBSOCKET_PROTOCOL, raw)]);
        assert_eq!(take_token(&mut headers), PresentedCredentials::Nothing);
        assert_eq!(headers[SEC_WEBSOCKET_PROTOCOL], "x", "what is no text goes no further either");
    }
}
