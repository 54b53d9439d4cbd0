//! PURE: which requests can be passed on to the runtime's streaming server.

use axum::http::StatusCode;
use axum::http::header::{CONNECTION, HeaderMap, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use axum::response::{IntoResponse, Response};

/// Protocols that the kubelet would have to translate for the runtime.
const TRANSLATED: [&str; 2] = ["v5.channel.k8s.io", "SPDY/3.1+portforward.k8s.io"];

fn is_upgrade(headers: &HeaderMap) -> bool {
    let connection = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    connection.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case("upgrade"))
        && headers.contains_key(UPGRADE)
}

/// Whether a WebSocket request offers only protocols that the runtime does not know.
pub fn needs_translation(headers: &HeaderMap) -> bool {
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let offered: Vec<&str> = offered.flat_map(|value| value.split(',')).map(str::trim).collect();
    !offered.is_empty() && offered.iter().all(|one| TRANSLATED.contains(one))
}

/// The answer to a request that cannot be passed on, whatever its target.
pub fn refusal(headers: &HeaderMap) -> Option<Response> {
    if !is_upgrade(headers) {
        // Upstream's answer, which it gives after the request has reached the runtime's streaming server.
        return Some((StatusCode::INTERNAL_SERVER_ERROR, "Upgrade request required\n").into_response());
    }
    needs_translation(headers).then(|| {
        let text = format!(
            "not supported: WebSocket protocols {} are not translated for the runtime; use SPDY/3.1 or v4.channel.k8s.io\n",
            TRANSLATED.join(" and ")
        );
        (StatusCode::NOT_IMPLEMENTED, text).into_response()
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_upgrades_that_the_runtime_can_speak_go_on() {
        let headers = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
            pairs
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
                .collect()
        };
        let status = |pairs: &[_]| refusal(&headers(pairs)).map(|answer| answer.status().as_u16());
        assert_eq!(status(&[]), Some(500));
        assert_eq!(status(&[("upgrade", "SPDY/3.1")]), Some(500));
        let spdy = [("connection", "keep-alive, Upgrade"), ("upgrade", "SPDY/3.1")];
        assert_eq!(status(&spdy), None);
        let websocket = |protocols| {
            [("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-protocol", protocols)]
        };
        assert_eq!(status(&websocket("v5.channel.k8s.io")), Some(501));
        assert_eq!(status(&websocket("SPDY/3.1+portforward.k8s.io")), Some(501));
        assert_eq!(status(&websocket("v5.channel.k8s.io, v4.channel.k8s.io")), None);
    }
}
