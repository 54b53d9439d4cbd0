//! The client of a kubelet's ports, the read-only one and the authenticated one: one bounded answer per request, within a
//! deadline, or a stream.

mod address;
pub mod file;
mod lists;
pub mod tls;
mod token;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use pod_why::model::{EventList, Supervision};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use crate::view::text::neutralised;

pub use address::{Address, AddressError};
pub use lists::PodList;
pub use tls::Tls;
pub use token::Token;

/// The longest time of a request to the read-only port.
const DEADLINE: Duration = Duration::from_secs(5);
/// The same for the authenticated port, which may ask the API server about the caller before it answers.
const DEADLINE_SECURED: Duration = Duration::from_secs(15);
/// The longest wait for the beginning of a stream, and for the next part of one that does not follow a container.
pub const STREAM_DEADLINE: Duration = Duration::from_secs(30);
/// The most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// The most bytes of an error's text that are read.
const REFUSAL_BYTES_MAX: usize = 4 << 10;
/// The most characters of an error's text that are shown.
const SAID_MAX: usize = 512;

/// Why a request has no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The connection could not be opened.
    #[error("cannot connect to {server}: {error}")]
    Connect {
        /// The server that was asked.
        server: String,
        /// The operating system's error.
        error: std::io::Error,
    },
    /// No answer came in time.
    #[error("{server}{path}: no answer within {} s", within.as_secs())]
    Deadline {
        /// The server that was asked.
        server: String,
        /// The path of the request.
        path: &'static str,
        /// How long the answer was waited for.
        within: Duration,
    },
    /// The connection could not be secured.
    #[error("{server}: {reason}")]
    Unsecured {
        /// The server that was asked.
        server: String,
        /// The reason, and what helps.
        reason: String,
    },
    /// The connection broke, or the answer was not HTTP.
    #[error("{server}{path}: {reason}")]
    Broken {
        /// The server that was asked.
        server: String,
        /// The path of the request.
        path: &'static str,
        /// Hyper's error.
        reason: String,
    },
    /// The answer's status is no success.
    #[error("{path}: {status}{}{said}{}", if said.is_empty() { "" } else { ": " }, advice(*status))]
    Refused {
        /// The path of the request.
        path: &'static str,
        /// The answer's status.
        status: StatusCode,
        /// The first line of the answer's body.
        said: String,
    },
    /// The answer is longer than 16 MiB.
    #[error("{path}: the answer is longer than {} MiB", ANSWER_BYTES_MAX >> 20)]
    TooLong {
        /// The path of the request.
        path: &'static str,
    },
    /// The answer has not the form of a kubelet's.
    #[error("{path}: not understood: {reason}")]
    NotUnderstood {
        /// The path of the request.
        path: &'static str,
        /// The place in the answer, and the reason.
        reason: String,
    },
}

impl FetchError {
    /// Whether the server answered, even if not usefully.
    pub fn answered(&self) -> bool {
        !matches!(
            self,
            Self::Connect { .. } | Self::Deadline { .. } | Self::Broken { .. } | Self::Unsecured { .. }
        )
    }

    /// Whether the server is there, and the caller has to show other credentials or trust another authority.
    pub fn is_of_access(&self) -> bool {
        let unwelcome = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
        match self {
            Self::Unsecured { .. } => true,
            Self::Refused { status, .. } => unwelcome.contains(status),
            _ => false,
        }
    }
}

/// What helps against a refusal.
fn advice(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => {
            "; the kubelet does not know this caller: pass --token-file, --client-certificate and --client-key, or \
             --kubeconfig"
        }
        StatusCode::FORBIDDEN => "; docs/understudy.md lists the rights that each command needs",
        StatusCode::METHOD_NOT_ALLOWED => {
            "; `enableDebuggingHandlers` of the kubelet's configuration opens it"
        }
        _ => "",
    }
}

/// The answers of one round of requests.
#[derive(Debug)]
pub struct Answers {
    /// The answer of `/pods`.
    pub pods: Result<PodList, FetchError>,
    /// The answer of `/events`.
    pub events: Result<EventList, FetchError>,
    /// The answer of `/supervision`.
    pub supervision: Result<Supervision, FetchError>,
}

/// A kubelet, and the caller's way to it.
#[derive(Clone, Debug)]
pub struct Server {
    address: Address,
    /// `None` for plain HTTP.
    tls: Option<Tls>,
    token: Option<Arc<Token>>,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// A connection of either kind.
trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// An answer whose body has not been read yet; the connection ends with it.
#[derive(Debug)]
pub struct Stream {
    server: String,
    path: &'static str,
    response: Response<Incoming>,
    _connection: AbortOnDropHandle<hyper::Result<()>>,
}

impl Stream {
    /// The next part of the body, or `None` at its end. With `within`, no part may take longer.
    ///
    /// # Errors
    /// The connection broke, or no part came in time.
    pub async fn part(&mut self, within: Option<Duration>) -> Result<Option<Bytes>, FetchError> {
        loop {
            let next = self.response.body_mut().frame();
            let frame = match within {
                None => next.await,
                Some(within) => match tokio::time::timeout(within, next).await {
                    Ok(frame) => frame,
                    Err(_) => {
                        let server = self.server.clone();
                        return Err(FetchError::Deadline { server, path: self.path, within });
                    }
                },
            };
            match frame {
                None => return Ok(None),
                // Trailers are none of the log.
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(error)) => {
                    let (server, reason) = (self.server.clone(), causes(&error));
                    return Err(FetchError::Broken { server, path: self.path, reason });
                }
            }
        }
    }
}

/// An error with its causes, in one line. What a server says of a client's certificate comes as such a cause.
fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(rustls::Error::AlertReceived(alert)) = alert_in(cause) {
            return tls::alerted(*alert);
        }
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    neutralised(&text)
}

fn alert_in<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let inner = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    inner.and_then(|inner| inner.downcast_ref()).or_else(|| cause.downcast_ref())
}

impl Server {
    /// The kubelet at this read-only port of the local machine.
    pub fn local(port: u16) -> Self {
        Self::plain(Address::local(port))
    }

    /// The kubelet at this read-only port.
    pub fn plain(address: Address) -> Self {
        Self { address, tls: None, token: None }
    }

    /// The kubelet at this authenticated port.
    pub fn secured(address: Address, tls: Tls, token: Option<Token>) -> Self {
        Self { address, tls: Some(tls), token: token.map(Arc::new) }
    }

    /// Whether this is the authenticated port.
    pub fn is_secured(&self) -> bool {
        self.tls.is_some()
    }

    /// Requests everything that is shown, at the same time.
    pub async fn ask(&self) -> Answers {
        let (pods, events, supervision) =
            tokio::join!(self.get("/pods"), self.get("/events"), self.get("/supervision"));
        Answers { pods, events, supervision }
    }

    /// Requests one path.
    ///
    /// # Errors
    /// The reason why there is no usable answer.
    pub async fn get<T: DeserializeOwned>(&self, path: &'static str) -> Result<T, FetchError> {
        self.get_with(path, "").await
    }

    /// Requests one path with this query, if it is not empty.
    ///
    /// # Errors
    /// The reason why there is no usable answer.
    pub async fn get_with<T: DeserializeOwned>(
        &self,
        path: &'static str,
        query: &str,
    ) -> Result<T, FetchError> {
        let mark = if query.is_empty() { "" } else { "?" };
        let target = format!("{path}{mark}{query}");
        let within = if self.is_secured() { DEADLINE_SECURED } else { DEADLINE };
        let body = match tokio::time::timeout(within, self.body(path, &target)).await {
            Ok(body) => body?,
            Err(_) => return Err(FetchError::Deadline { server: self.to_string(), path, within }),
        };
        let not_understood = |why: String| FetchError::NotUnderstood { path, reason: neutralised(&why) };
        if let Some(excess) = lists::excess(&body) {
            return Err(not_understood(excess));
        }
        serde_json::from_slice(&body).map_err(|error| not_understood(error.to_string()))
    }

    /// Requests a target whose body is read part by part. `path` names it in errors.
    ///
    /// # Errors
    /// The reason why there is no usable answer.
    pub async fn stream(&self, path: &'static str, target: &str) -> Result<Stream, FetchError> {
        let within = STREAM_DEADLINE;
        let opened = async {
            let stream = self.open(path, target).await?;
            if stream.response.status().is_success() { Ok(stream) } else { Err(refusal(stream).await) }
        };
        match tokio::time::timeout(within, opened).await {
            Ok(opened) => opened,
            Err(_) => Err(FetchError::Deadline { server: self.to_string(), path, within }),
        }
    }

    async fn body(&self, path: &'static str, target: &str) -> Result<Bytes, FetchError> {
        let stream = self.open(path, target).await?;
        if !stream.response.status().is_success() {
            return Err(refusal(stream).await);
        }
        let Stream { response, _connection, .. } = stream;
        match Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(FetchError::TooLong { path }),
            Err(error) => Err(FetchError::Broken { server: self.to_string(), path, reason: causes(&*error) }),
        }
    }

    /// Sends the request, and waits for the head of its answer.
    async fn open(&self, path: &'static str, target: &str) -> Result<Stream, FetchError> {
        let uri: Uri = target.parse().map_err(|error: http::uri::InvalidUri| FetchError::Broken {
            server: self.to_string(),
            path,
            reason: error.to_string(),
        })?;
        let broken = |error: hyper::Error| FetchError::Broken {
            server: self.to_string(),
            path,
            reason: causes(&error),
        };
        let io = TokioIo::new(self.connect().await?);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.map_err(broken)?;
        // The connection ends with this request, also when the deadline cuts it short.
        let connection = AbortOnDropHandle::new(tokio::spawn(connection));
        let mut request = Request::get(uri)
            .header(header::HOST, self.address.authority())
            .header(header::ACCEPT, "application/json, text/plain")
            .body(Empty::<Bytes>::new())
            .expect("a path and a checked authority make a request");
        if let (Some(token), Some(_)) = (&self.token, &self.tls) {
            request.headers_mut().insert(header::AUTHORIZATION, token.header());
        }
        let response = sender.send_request(request).await.map_err(broken)?;
        Ok(Stream { server: self.to_string(), path, response, _connection: connection })
    }

    async fn connect(&self) -> Result<Box<dyn Duplex>, FetchError> {
        let stream = TcpStream::connect((self.address.host(), self.address.port()))
            .await
            .map_err(|error| FetchError::Connect { server: self.to_string(), error })?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let secured = TlsConnector::from(tls.config.clone()).connect(tls.name.clone(), stream);
        // A connection's TLS is larger than all the rest of a request.
        match Box::pin(secured).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => {
                let reason = neutralised(&tls.explained(&error));
                Err(FetchError::Unsecured { server: self.to_string(), reason })
            }
        }
    }
}

/// The refusal, with the first line of its text.
async fn refusal(mut stream: Stream) -> FetchError {
    let (path, status) = (stream.path, stream.response.status());
    let mut body = Vec::new();
    // The status is told even if its text does not come.
    while body.len() < REFUSAL_BYTES_MAX
        && let Ok(Some(part)) = stream.part(Some(DEADLINE)).await
    {
        body.extend_from_slice(&part[..part.len().min(REFUSAL_BYTES_MAX - body.len())]);
    }
    let text = String::from_utf8_lossy(&body);
    let first: String = text.lines().next().unwrap_or_default().chars().take(SAID_MAX).collect();
    FetchError::Refused { path, status, said: neutralised(&first) }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that answers one request with these bytes and closes.
    async fn answering(answer: Vec<u8>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server::local(listener.local_addr().unwrap().port());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(&answer).await;
        });
        server
    }

    #[tokio::test]
    async fn answers_are_read() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n{\"items\":[]}".to_vec();
        let list: PodList = answering(answer).await.get("/pods").await.unwrap();
        assert!(list.items.is_none_or(|items| items.is_empty()));
    }

    #[tokio::test]
    async fn an_answer_that_would_take_much_more_than_its_text_is_not_built() {
        let answer = |body: &str| format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{body}").into_bytes();
        let pods = format!(r#"{{"items":[{}{{}}]}}"#, "{},".repeat(5000));
        let error = answering(answer(&pods)).await.get::<PodList>("/pods").await.unwrap_err();
        assert!(
            error.to_string().starts_with("/pods: not understood: it lists more than 4096 pods"),
            "{error}"
        );
        assert!(error.answered());
        let events = format!(r#"{{"events":[{}{{}}]}}"#, "{},".repeat(1 << 19));
        let error = answering(answer(&events)).await.get::<EventList>("/events").await.unwrap_err();
        assert!(error.to_string().contains("nests 524291 objects and lists"), "{error}");
    }

    #[tokio::test]
    async fn a_refusal_says_why() {
        let answer =
            b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 21\r\n\r\nPodManager: \x1b[2Jdead\n"
                .to_vec();
        let error = answering(answer).await.get::<PodList>("/pods").await.unwrap_err();
        assert_eq!(error.to_string(), "/pods: 503 Service Unavailable: PodManager: ␛[2Jdead");
        assert!(error.answered());
    }

    #[tokio::test]
    async fn an_endless_answer_is_cut_short() {
        let mut answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_vec();
        answer.resize(answer.len() + ANSWER_BYTES_MAX + 1, b' ');
        let error = answering(answer).await.get::<PodList>("/pods").await.unwrap_err();
        assert!(matches!(error, FetchError::TooLong { path: "/pods" }), "{error}");
    }

    #[tokio::test]
    async fn nobody_there_is_said() {
        // The port was bound and is closed again, so it refuses connections.
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let error = Server::local(port).get::<PodList>("/pods").await.unwrap_err();
        assert!(matches!(error, FetchError::Connect { .. }), "{error}");
        assert!(!error.answered());
    }
}
