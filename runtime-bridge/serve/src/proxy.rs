//! Joins a caller's connection to the runtime's streaming server.
//!
//! The request goes on to the address that the runtime gave. Once both sides have switched protocols, bytes pass both
//! ways without being parsed: SPDY and the runtime's own WebSocket protocols alike. The two WebSocket protocols that no
//! runtime speaks are translated.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    CONNECTION, HOST, HeaderMap, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bridge_io::Io;
use bridge_net::names;
use bridge_net::roots::{self, Places};
use bridge_pace::panics;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::channels::{self, Channels};
use super::connection::Connection;
use super::websocket::{Handshake, offers};
use super::{moving, wrapping};

/// How long the runtime's server may take to answer: it is on this machine, so it answers soon or never.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);
/// The most bytes of an answer that does not switch protocols.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;
/// The headers, besides `Sec-WebSocket-…`, by which a caller and the runtime agree on a protocol. No other header
/// passes: none that identifies the caller or its route, and none that the runtime addresses to the caller.
const NEGOTIATION: [&str; 5] =
    ["upgrade", "origin", "user-agent", "x-stream-protocol-version", "x-accepted-stream-protocol-versions"];

/// The protocol of streams that the runtime's server speaks.
const SPDY: &str = "SPDY/3.1";
/// By this header a client offers the versions of what goes over the streams, and the server says which one it took.
const VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// How a caller and the runtime's server are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Bytes pass as they are: the runtime speaks whatever the caller speaks.
    Through,
    /// The caller speaks version 5 of the channels over a WebSocket, and the runtime has a stream for each of these.
    Channels(Channels),
    /// The caller speaks SPDY inside a WebSocket.
    Inside,
}

impl Way {
    /// The way of a request for exec or attach with these channels: they are translated if the caller offers version 5 of them.
    #[must_use]
    pub fn of_channels(headers: &HeaderMap, channels: Channels) -> Self {
        if offers(headers, |one| one == channels::CALLERS) { Self::Channels(channels) } else { Self::Through }
    }

    /// The way of a request for port-forward.
    #[must_use]
    pub fn of_ports(headers: &HeaderMap) -> Self {
        if offers(headers, |one| wrapping::inner(one).is_some()) { Self::Inside } else { Self::Through }
    }
}

/// The address and path at which the runtime serves a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    is_tls: bool,
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
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("not supported: only http and https are")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("no host"))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { is_tls, authority: authority.to_string(), port, host, path })
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

/// The request to the runtime's server, without its host, and what the caller says of its WebSocket if that is
/// translated.
///
/// # Errors
/// The text of a refusal.
fn onward(
    way: Way,
    method: &Method,
    headers: &HeaderMap,
) -> Result<(Method, HeaderMap, Option<Handshake>), &'static str> {
    if way == Way::Through {
        return Ok((method.clone(), passing(headers), None));
    }
    let asked = Handshake::of(method, headers)?;
    let offered = asked.offered.iter();
    let versions: Vec<&str> = match way {
        Way::Channels(_) => {
            offered.filter(|one| *one == channels::CALLERS).map(|_| channels::RUNTIMES).take(1).collect()
        }
        _ => offered.filter_map(|one| wrapping::inner(one)).collect(),
    };
    if versions.is_empty() {
        return Err("unable to upgrade: no protocol is offered that can be translated");
    }
    let mut onward = HeaderMap::new();
    onward.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    onward.insert(UPGRADE, HeaderValue::from_static(SPDY));
    for version in versions {
        let version = HeaderValue::from_str(version);
        onward.append(VERSION, version.map_err(|_| "unable to upgrade: a protocol's name is none")?);
    }
    Ok((Method::POST, onward, Some(asked)))
}

/// The headers of the answer to a caller, after the runtime's server has agreed with these.
///
/// # Errors
/// It has agreed to something else; the text is for people.
fn agreed(way: Way, asked: Option<&Handshake>, answer: &HeaderMap) -> Result<HeaderMap, String> {
    let Some(asked) = asked else { return Ok(passing(answer)) };
    let text = |name: &HeaderName| answer.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if text(&UPGRADE).is_none_or(|upgrade| !upgrade.eq_ignore_ascii_case(SPDY)) {
        return Err(format!("unable to upgrade: the runtime's streaming server does not speak {SPDY}"));
    }
    let chosen = text(&VERSION).filter(|chosen| !chosen.is_empty());
    let protocol = match way {
        Way::Channels(_) if chosen == Some(channels::RUNTIMES) => Some(channels::CALLERS.to_owned()),
        Way::Channels(_) => {
            let chosen = chosen.unwrap_or("no version");
            return Err(format!(
                "unable to upgrade: the runtime's streaming server speaks {chosen} and not {}",
                channels::RUNTIMES
            ));
        }
        _ => chosen.map(wrapping::outer).filter(|protocol| asked.offered.contains(protocol)),
    };
    let value = |text: &str| HeaderValue::from_str(text).map_err(|error| error.to_string());
    let mut headers = HeaderMap::new();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, value(&asked.accept)?);
    if let Some(protocol) = protocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, value(&protocol)?);
    }
    Ok(headers)
}

/// Lasts as long as a request, and as the stream into a container that becomes of it: an extension of the request.
#[derive(Clone)]
pub struct Lasting(pub Arc<dyn Any + Send + Sync>);

/// Answers a request with the answer of the runtime's server, and joins both connections when it switches protocols.
/// The request asks for an upgrade.
pub async fn proxied(
    io: &Io,
    authorities: &Places,
    connection: Connection,
    mut request: Request,
    target: Target,
    way: Way,
) -> Response {
    let upgraded = hyper::upgrade::on(&mut request);
    let (method, headers, handshake) = match onward(way, request.method(), request.headers()) {
        Ok(onward) => onward,
        Err(text) => return (StatusCode::BAD_REQUEST, format!("{text}\n")).into_response(),
    };
    let asked = asked(io, authorities, method, headers, &target);
    let mut answer = match tokio::time::timeout(ANSWER_DEADLINE, asked).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return failed(error),
        Err(_) => return failed("the runtime's streaming server does not answer"),
    };
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return refused(answer).await;
    }
    let headers = match agreed(way, handshake.as_ref(), answer.headers()) {
        Ok(headers) => headers,
        Err(error) => return failed(error),
    };
    let theirs = hyper::upgrade::on(&mut answer);
    let (ended, idle) = (connection.ended.clone(), connection.patience.streams());
    connection.patience.streaming(true);
    let lasting = request.extensions_mut().remove::<Lasting>();
    let stream = panics::caught(async move {
        let (_place, _lasting) = (connection.place, lasting);
        let (Ok(ours), Ok(theirs)) = (upgraded.await, theirs.await) else { return };
        let (ours, theirs) = (TokioIo::new(ours), TokioIo::new(theirs));
        let done = match way {
            Way::Through => moving::joined(ours, theirs, idle).await,
            Way::Channels(open) => {
                moving::watched(ours, theirs, idle, |one, other| channels::talk(one, other, open)).await
            }
            Way::Inside => moving::watched(ours, theirs, idle, wrapping::talk).await,
        };
        if let Err(error) = done {
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
    *response.headers_mut() = headers;
    response
}

/// A connection to the runtime's server, with TLS or without.
trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Wire for S {}

/// Connects to the runtime's server. Over https its certificate must be good for its host, and signed by an authority
/// that this machine trusts, as upstream demands it.
async fn connected(io: &Io, authorities: &Places, target: &Target) -> Result<Box<dyn Wire>, String> {
    let stream = names::connect("streaming", &target.host, target.port).await;
    let stream = stream.map_err(|error| error.to_string())?;
    let _ = stream.set_nodelay(true);
    if !target.is_tls {
        return Ok(Box::new(stream));
    }
    let places = authorities.clone();
    let trusted = io.blocking(move || roots::config(&places)).await.map_err(|error| error.to_string())??;
    let mut config = ClientConfig::clone(&trusted);
    // What follows is an upgrade of HTTP/1.1.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = ServerName::try_from(target.host.clone()).map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    Ok(Box::new(stream.map_err(|error| error.to_string())?))
}

async fn asked(
    io: &Io,
    authorities: &Places,
    method: Method,
    mut headers: HeaderMap,
    target: &Target,
) -> Result<hyper::Response<hyper::body::Incoming>, String> {
    let stream = connected(io, authorities, target).await;
    let stream = stream.map_err(|error| format!("error dialing backend: {error}"))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // The connection's task ends when sender and upgrade are dropped.
    drop(io.spawn(connection.with_upgrades()));
    headers.insert(HOST, HeaderValue::from_str(&target.authority).map_err(|_| "no such host")?);
    let mut request = hyper::Request::new(Empty::<axum::body::Bytes>::new());
    *request.method_mut() = method;
    *request.uri_mut() = target.path.parse().map_err(|error| format!("{error}"))?;
    *request.headers_mut() = headers;
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
        assert!(!target.is_tls);
        let target = Target::of("https://runtime/x").unwrap();
        assert!(target.is_tls && target.port == 443, "{target:?}");
        for url in ["ftp://127.0.0.1/x", "/exec/abc", "", "http:///x"] {
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
        let (method, onward, asked) = onward(Way::Through, &Method::PUT, &headers).unwrap();
        assert_eq!((method, asked), (Method::PUT, None));
        assert!(onward.values().all(|value| value != "secret"), "{onward:?}");
        assert_eq!(onward["connection"], "Upgrade");
        assert_eq!(onward.get_all("x-stream-protocol-version").iter().count(), 2);
    }

    fn websocket(protocols: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", protocols),
            ("user-agent", "secret"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn what_is_translated_is_asked_for_as_the_runtime_speaks_it() {
        let channels = Way::Channels(Channels::default());
        for (way, protocols, versions) in [
            (channels, "v5.channel.k8s.io, v4.channel.k8s.io", &["v4.channel.k8s.io"][..]),
            (Way::Inside, "SPDY/3.1+a.k8s.io, x, SPDY/3.1+b.k8s.io", &["a.k8s.io", "b.k8s.io"][..]),
        ] {
            let (method, onward, asked) = onward(way, &Method::GET, &websocket(protocols)).unwrap();
            assert_eq!((method, &onward["upgrade"]), (Method::POST, &HeaderValue::from_static(SPDY)));
            let asked_for: Vec<_> = onward.get_all(VERSION).iter().collect();
            assert_eq!(asked_for, versions);
            assert_eq!(onward.len(), 2 + versions.len(), "and nothing else goes on: {onward:?}");
            assert!(asked.is_some());
        }
        for (way, protocols) in [(channels, "v4.channel.k8s.io"), (Way::Inside, "v5.channel.k8s.io")] {
            assert!(onward(way, &Method::GET, &websocket(protocols)).is_err(), "{protocols}");
        }
        assert!(onward(channels, &Method::POST, &websocket("v5.channel.k8s.io")).is_err());
    }

    #[test]
    fn only_websockets_that_no_runtime_speaks_are_translated() {
        let all = Channels { stdin: true, ..Channels::default() };
        let ways = |upgrade: &'static str, protocols: &'static str| {
            let mut headers = websocket(protocols);
            headers.insert(UPGRADE, HeaderValue::from_static(upgrade));
            (Way::of_channels(&headers, all), Way::of_ports(&headers))
        };
        let (five, inside) = (Way::Channels(all), Way::Inside);
        assert_eq!(ways("WebSocket", "v4.channel.k8s.io, v5.channel.k8s.io"), (five, Way::Through));
        assert_eq!(ways("websocket", "SPDY/3.1+portforward.k8s.io"), (Way::Through, inside));
        assert_eq!(ways("websocket", "v4.channel.k8s.io"), (Way::Through, Way::Through));
        assert_eq!(ways("SPDY/3.1", "v5.channel.k8s.io"), (Way::Through, Way::Through));
    }

    #[test]
    fn a_caller_hears_of_its_own_protocol() {
        let answered = |way, upgrade: &'static str, version: &'static str| {
            let asked = Handshake::of(&Method::GET, &websocket("v5.channel.k8s.io, SPDY/3.1+a.k8s.io"));
            let mut answer = HeaderMap::new();
            answer.insert(UPGRADE, HeaderValue::from_static(upgrade));
            answer.insert(VERSION, HeaderValue::from_static(version));
            answer.insert("set-cookie", HeaderValue::from_static("a=b"));
            agreed(way, Some(&asked.unwrap()), &answer)
        };
        let channels = Way::Channels(Channels::default());
        let headers = answered(channels, "spdy/3.1", "v4.channel.k8s.io").unwrap();
        assert_eq!(headers["sec-websocket-protocol"], "v5.channel.k8s.io");
        assert_eq!(headers["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(headers["upgrade"], "websocket");
        assert_eq!(headers.len(), 4, "and of nothing else: {headers:?}");
        let headers = answered(Way::Inside, SPDY, "a.k8s.io").unwrap();
        assert_eq!(headers["sec-websocket-protocol"], "SPDY/3.1+a.k8s.io");
        let headers = answered(Way::Inside, SPDY, "other.k8s.io").unwrap();
        assert!(!headers.contains_key("sec-websocket-protocol"), "it was not offered");
        assert!(answered(channels, "websocket", "v4.channel.k8s.io").is_err());
        assert!(answered(channels, SPDY, "v3.channel.k8s.io").unwrap_err().contains("v3.channel.k8s.io"));
    }
}
