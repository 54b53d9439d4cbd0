//! One request and its response, on a connection of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, REFERER, USER_AGENT};
use http::{Request, Response, Uri, Version};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::task::AbortOnDropHandle;

use super::socket::Socket;
use super::target::Target;
use super::{BODY_BYTES_MAX, Scheme, words};
use bridge_net::names;

/// The most bytes that a server may send over HTTP/2 before they are taken.
const WINDOW_BYTES: u32 = 64 * 1024;

/// A response with its body still on the way, and the connection that brings it.
pub(crate) struct Answer {
    pub(crate) response: Response<Incoming>,
    _connection: AbortOnDropHandle<()>,
}

/// The headers of a request.
#[derive(Debug)]
pub(crate) struct Say {
    /// All headers but `Host` and `Connection`.
    headers: HeaderMap,
    /// The header `Host` that the probe sets.
    pub(crate) host: Option<String>,
}

impl Say {
    /// The probe's headers completed with the defaults, or why they cannot be sent.
    pub(crate) fn new(given: &[(String, String)]) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        let mut host = None;
        for (name, value) in given {
            let header = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| format!("net/http: invalid header field name {name:?}"))?;
            let value = HeaderValue::from_bytes(value.as_bytes())
                .map_err(|_| format!("net/http: invalid header field value for {name:?}"))?;
            if header == HOST {
                // The first `Host` counts.
                host.get_or_insert_with(|| String::from_utf8_lossy(value.as_bytes()).into_owned());
            } else if header != CONNECTION {
                headers.append(header, value);
            }
        }
        for (header, default) in [(USER_AGENT, super::USER_AGENT), (ACCEPT, "*/*")] {
            match headers.get(&header) {
                None => drop(headers.insert(header, HeaderValue::from_static(default))),
                Some(value) if value.is_empty() => drop(headers.remove(header)),
                Some(_) => {}
            }
        }
        Ok(Self { headers, host: host.filter(|host| !host.is_empty()) })
    }

    pub(crate) fn refer_to(&mut self, url: &str) {
        if let Ok(url) = HeaderValue::from_str(url) {
            self.headers.insert(REFERER, url);
        }
    }

    pub(crate) fn forget_referer(&mut self) {
        self.headers.remove(REFERER);
    }
}

/// Opens the connection, sends the request and waits for the response's head. The error is worded as Go's.
pub(crate) async fn exchange(
    asker: &str,
    target: &Target,
    say: &Say,
    tls: &Arc<ClientConfig>,
) -> Result<Answer, String> {
    let stream = dial(asker, &target.host, target.port()).await?;
    let between = stream.between().unwrap_or_else(|| words::join_host_port(&target.host, target.port()));
    match target.scheme {
        Scheme::Http => send_http1(stream, target, say, &between).await,
        Scheme::Https => {
            let name = ServerName::try_from(target.host.clone())
                .map_err(|_| format!("tls: {:?} cannot be a server's name", target.host))?;
            let stream = tokio_rustls::TlsConnector::from(Arc::clone(tls))
                .connect(name, stream)
                .await
                .map_err(|error| handshake_failed(&error, &between))?;
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                send_http2(stream, target, say, &between).await
            } else {
                send_http1(stream, target, say, &between).await
            }
        }
    }
}

/// Opens a connection to the first address of `host` that accepts one.
pub(super) async fn dial(asker: &str, host: &str, port: u16) -> Result<Socket, String> {
    let found = names::resolve(asker, host).await.unwrap_or_default();
    let tries = found.into_iter().map(|ip| async move {
        let address = SocketAddr::new(ip, port);
        Socket::connect(address).await.map_err(|error| words::dial_failed(&address.to_string(), &error))
    });
    names::first_of(tries).await.map_err(|failed| failed.unwrap_or_else(|| words::no_such_host(host)))
}

async fn send_http1<S>(stream: S, target: &Target, say: &Say, between: &str) -> Result<Answer, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let failed = |error: hyper::Error| request_failed(&error, between);
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        // Header names are capitalised as Go does: some servers look for exactly that spelling.
        .title_case_headers(true)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    let connection = AbortOnDropHandle::new(tokio::spawn(async move {
        // The request gets the connection's error as well.
        let _ = connection.await;
    }));
    let uri: Uri = target.path_and_query.parse().map_err(|error| format!("invalid URL: {error}"))?;
    let mut request = request(uri, say);
    let host = say.host.clone().unwrap_or_else(|| target.authority());
    let host = HeaderValue::from_str(&host).map_err(|_| format!("http: invalid Host header {host:?}"))?;
    request.headers_mut().insert(HOST, host);
    request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    let response = sender.send_request(request).await.map_err(failed)?;
    Ok(Answer { response, _connection: connection })
}

async fn send_http2<S>(stream: S, target: &Target, say: &Say, between: &str) -> Result<Answer, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let failed = |error: hyper::Error| request_failed(&error, between);
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    let connection = AbortOnDropHandle::new(tokio::spawn(async move {
        let _ = connection.await;
    }));
    let authority = say.host.clone().unwrap_or_else(|| target.authority());
    let uri = Uri::builder()
        .scheme("https")
        .authority(authority)
        .path_and_query(target.path_and_query.as_str())
        .build()
        .map_err(|error| format!("invalid URL: {error}"))?;
    let mut request = request(uri, say);
    *request.version_mut() = Version::HTTP_2;
    let response = sender.send_request(request).await.map_err(failed)?;
    Ok(Answer { response, _connection: connection })
}

fn request(uri: Uri, say: &Say) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = uri;
    *request.headers_mut() = say.headers.clone();
    request
}

/// Reads the first [`BODY_BYTES_MAX`] bytes of the body; a longer body is cut without an error.
pub(crate) async fn read_body(body: &mut Incoming) -> Result<String, String> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match root_cause(&error) {
            Some(cause) if cause.kind() != std::io::ErrorKind::UnexpectedEof => words::system(cause),
            _ => "unexpected EOF".to_owned(),
        })?;
        if let Ok(data) = frame.into_data() {
            let room = BODY_BYTES_MAX - bytes.len();
            bytes.extend_from_slice(&data[..data.len().min(room)]);
            if bytes.len() == BODY_BYTES_MAX {
                break;
            }
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn request_failed(error: &hyper::Error, between: &str) -> String {
    if error.is_parse() {
        return "net/http: HTTP/1.x transport connection broken: malformed HTTP response".into();
    }
    match root_cause(error) {
        Some(cause) if cause.kind() != std::io::ErrorKind::UnexpectedEof => {
            format!("read tcp {between}: read: {}", words::system(cause))
        }
        Some(_) => "EOF".into(),
        // The connection closed before the response's head, or in the middle of it.
        None if error.is_incomplete_message() || error.is_canceled() || error.is_closed() => "EOF".into(),
        None => error.to_string(),
    }
}

/// The operating system's error at the root of the chain, if there is one.
fn root_cause(error: &hyper::Error) -> Option<&std::io::Error> {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            return Some(io);
        }
        source = cause.source();
    }
    None
}

fn handshake_failed(error: &std::io::Error, between: &str) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
            words::NOT_TLS.into()
        }
        Some(error) => format!("tls: {error}"),
        None if error.kind() == std::io::ErrorKind::UnexpectedEof => "EOF".into(),
        None => format!("read tcp {between}: read: {}", words::system(error)),
    }
}
