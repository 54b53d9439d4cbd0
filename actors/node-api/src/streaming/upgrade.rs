//! PURE: which requests can be passed on to the runtime's streaming server.

use axum::http::StatusCode;
use axum::http::header::{CONNECTION, HeaderMap, UPGRADE};
use axum::response::{IntoResponse, Response};

fn is_upgrade(headers: &HeaderMap) -> bool {
    let connection = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    connection.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case("upgrade"))
        && headers.contains_key(UPGRADE)
}

/// The answer to a request that cannot be passed on, whatever its target.
pub fn refusal(headers: &HeaderMap) -> Option<Response> {
    // Upstream's answer, which it gives after the request has reached the runtime's streaming server.
    (!is_upgrade(headers))
        .then(|| (StatusCode::INTERNAL_SERVER_ERROR, "Upgrade request required\n").into_response())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_upgrades_go_on() {
        let headers = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
            pairs
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
                .collect()
        };
        let status = |pairs: &[_]| refusal(&headers(pairs)).map(|answer| answer.status().as_u16());
        assert_eq!(status(&[]), Some(500));
        assert_eq!(status(&[("upgrade", "SPDY/3.1")]), Some(500));
        assert_eq!(status(&[("connection", "keep-alive, Upgrade"), ("upgrade", "SPDY/3.1")]), None);
    }
}
