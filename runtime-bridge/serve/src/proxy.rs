//! Joins a caller's connection to the runtime's streaming server.
//!
//! The request goes on to the address that the runtime gave. Once both sides have switched protocols, bytes pass both
//! ways without being parsed: SPDY and the runtime's own WebSocket protocols alike.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONNECTION, HOST, HeaderMap};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bridge_io::Io;
use bridge_net::names;
use bridge_pace::panics;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::connection::Connection;
use super::moving;

/// How long the runtime's server may take to answer: it is on this machine, so it answers soon or never.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);
/// The most bytes of an answer that does not switch protocols.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;
/// The headers, besides `Sec-WebSocket-…`, by which a caller and the runtime agree on a protocol. No other header
/// passes: none that identifies the caller or its route, and none that the runtime addresses to the caller.
const NEGOTIATION: [&str; 5] =
    ["upgrade", "origin", "user-agent", "x-stream-protocol-version", "x-accepted-stream-protocol-versions"];

/// The address and path at which the runtime serves a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    authority: String,
    port: u16,
    host: String,
    path: String,
}

impl Target {
    /// The target of a URL that the runtime gave.
    ///
    /// # Errors
    /// The URL is none that can be reached; the text is for people.
    pub fn of(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error| format!("the runtime's URL {url:?}: {error}"))?;
        let wrong = |what: &str| format!("the runtime's URL {url:?}: {what}");
        if uri.scheme_str() != Some("http") {
            return Err(wrong("not supported: only http is"));
        }
        let authority = uri.authority().ok_or_else(|| wrong("no host"))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(80);
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { authority: authority.to_string(), port, host, path })
    }
}

fn failed(error: impl std::fmt::Display) -> Response {
    tracing::error!(%error, "Error while proxying request");
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response()
}

fn negotiates(name: &HeaderName) -> bool {
    name.as_str().starts_with("sec-websocket-") || NEGOTIATION.contains(&name.as_str())
}

/// The headers that pass between caller and runtime, in both directions.
fn passing(headers: &HeaderMap) -> HeaderMap {
    let passing = headers.iter().filter(|(name, _)| negotiates(name));
    let mut passing: HeaderMap = passing.map(|(name, value)| (name.clone(), value.clone())).collect();
    passing.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    passing
}

/// The headers of the request to the runtime.
fn onward(headers: &HeaderMap, authority: &str) -> Option<HeaderMap> {
    let mut onward = passing(headers);
    onward.insert(HOST, HeaderValue::from_str(authority).ok()?);
    Some(onward)
}

/// Lasts as long as a request, and as the stream into a container that becomes of it: an extension of the request.
#[derive(Clone)]
pub struct Lasting(pub Arc<dyn Any + Send + Sync>);

/// Answers a request with the answer of the runtime's server, and joins both connections when it switches protocols.
/// The request asks for an upgrade.
pub async fn proxied(io: &Io, connection: Connection, mut request: Request, target: Target) -> Response {
    let upgraded = hyper::upgrade::on(&mut request);
    let (method, headers) = (request.method().clone(), request.headers().clone());
    let answer = tokio::time::timeout(ANSWER_DEADLINE, asked(io, method, &headers, &target)).await;
    let mut answer = match answer {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return failed(error),
        Err(_) => return failed("the runtime's streaming server does not answer"),
    };
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return refused(answer).await;
    }
    let theirs = hyper::upgrade::on(&mut answer);
    let (ended, idle) = (connection.ended.clone(), connection.patience.streams());
    connection.patience.streaming(true);
    let lasting = request.extensions_mut().remove::<Lasting>();
    let stream = panics::caught(async move {
        let (_place, _lasting) = (connection.place, lasting);
        let (Ok(ours), Ok(theirs)) = (upgraded.await, theirs.await) else { return };
        if let Err(error) = moving::joined(TokioIo::new(ours), TokioIo::new(theirs), idle).await {
            tracing::debug!(%error, "A stream into a container ended");
        }
    });
    drop(io.spawn(ended.run_until_cancelled_owned(async move {
        if let Err(panic) = stream.await {
            tracing::error!(%panic, "A stream into a container ended before its end");
        }
    })));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = passing(answer.headers());
    response
}

async fn asked(
    io: &Io,
    method: Method,
    headers: &HeaderMap,
    target: &Target,
) -> Result<hyper::Response<hyper::body::Incoming>, String> {
    let stream = names::connect("streaming", &target.host, target.port).await;
    let stream = stream.map_err(|error| format!("error dialing backend: {error}"))?;
    let _ = stream.set_nodelay(true);
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // The connection's task ends when sender and upgrade are dropped.
    drop(io.spawn(connection.with_upgrades()));
    let mut request = hyper::Request::new(Empty::<axum::body::Bytes>::new());
    *request.method_mut() = method;
    *request.uri_mut() = target.path.parse().map_err(|error| format!("{error}"))?;
    *request.headers_mut() = onward(headers, &target.authority).ok_or("no such host")?;
    sender.send_request(request).await.map_err(|error| format!("error sending request: {error}"))
}

async fn refused(answer: hyper::Response<hyper::body::Incoming>) -> Response {
    let status = answer.status();
    let kind = answer.headers().get("content-type").cloned();
    let body = Limited::new(answer.into_body(), REFUSAL_BYTES_MAX).collect();
    let body = match tokio::time::timeout(ANSWER_DEADLINE, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) => return failed(error),
        Err(_) => return failed("the runtime's streaming server does not end its answer"),
    };
    let mut response = (status, body).into_response();
    if let Some(kind) = kind {
        response.headers_mut().insert("content-type", kind);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_an_address_and_a_path() {
        let target = Target::of("http://[::1]:1234/exec/abc?x=1").unwrap();
        assert_eq!((target.host.as_str(), target.port), ("::1", 1234));
        assert_eq!((target.authority.as_str(), target.path.as_str()), ("[::1]:1234", "/exec/abc?x=1"));
        for url in ["https://127.0.0.1/x", "/exec/abc", "", "http:///x"] {
            assert!(Target::of(url).is_err(), "{url}");
        }
    }

    #[test]
    fn nobody_behind_sees_who_asks() {
        let mut headers = HeaderMap::new();
        for name in [
            "authorization",
            "proxy-authorization",
            "cookie",
            "forwarded",
            "x-forwarded-for",
            "x-remote-user",
            "impersonate-user",
            "content-length",
            "transfer-encoding",
        ] {
            headers.insert(name, HeaderValue::from_static("secret"));
        }
        for version in ["v4.channel.k8s.io", "v3.channel.k8s.io"] {
            headers.append("x-stream-protocol-version", HeaderValue::from_static(version));
        }
        let onward = onward(&headers, "127.0.0.1:1").unwrap();
        assert!(onward.values().all(|value| value != "secret"), "{onward:?}");
        assert_eq!(
            (&onward["host"], &onward["connection"]),
            (&HeaderValue::from_static("127.0.0.1:1"), &HeaderValue::from_static("Upgrade"))
        );
        assert_eq!(onward.get_all("x-stream-protocol-version").iter().count(), 2);
    }
}
