//! Asking the kubelet's read-only port: one bounded answer per request, within a deadline.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

use crate::model::{EventList, PodList, Supervision};
use crate::view::text::neutralised;

/// A request is answered by then or has failed.
const DEADLINE: Duration = Duration::from_secs(5);
/// The most that is read of an answer.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Where a kubelet answers: `http://host[:port]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    host: String,
    port: u16,
}

/// A server's address that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    /// Not a URL.
    #[error("{0:?} is no URL such as http://127.0.0.1:10255")]
    Malformed(String),
    /// Something else than plain HTTP.
    #[error("{url:?}: the read-only port speaks plain HTTP, so the URL must begin with http://")]
    NotHttp {
        /// As given.
        url: String,
    },
    /// More than host and port.
    #[error("{url:?}: only a host and a port are allowed")]
    TooMuch {
        /// As given.
        url: String,
    },
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No connection.
    #[error("cannot connect to {server}: {error}")]
    Connect {
        /// To whom.
        server: String,
        /// The operating system's.
        error: std::io::Error,
    },
    /// No answer in time.
    #[error("{server}{path}: no answer within {} s", DEADLINE.as_secs())]
    Deadline {
        /// By whom.
        server: String,
        /// To what.
        path: &'static str,
    },
    /// The connection broke, or what came was not HTTP.
    #[error("{server}{path}: {reason}")]
    Broken {
        /// By whom.
        server: String,
        /// To what.
        path: &'static str,
        /// Hyper's words.
        reason: String,
    },
    /// The answer is no success.
    #[error("{path}: {status}{}{said}", if said.is_empty() { "" } else { ": " })]
    Refused {
        /// To what.
        path: &'static str,
        /// Its status.
        status: StatusCode,
        /// The first line of its body.
        said: String,
    },
    /// The answer is longer than 16 MiB.
    #[error("{path}: the answer is longer than {} MiB", ANSWER_BYTES_MAX >> 20)]
    TooLong {
        /// To what.
        path: &'static str,
    },
    /// The answer is not what a kubelet says.
    #[error("{path}: not understood: {reason}")]
    NotUnderstood {
        /// To what.
        path: &'static str,
        /// Where it fails.
        reason: String,
    },
}

impl FetchError {
    /// Somebody answered, if not well.
    pub fn answered(&self) -> bool {
        !matches!(self, Self::Connect { .. } | Self::Deadline { .. } | Self::Broken { .. })
    }
}

/// The answers of one round.
#[derive(Debug)]
pub struct Answers {
    /// `/pods`.
    pub pods: Result<PodList, FetchError>,
    /// `/events`.
    pub events: Result<EventList, FetchError>,
    /// `/supervision`.
    pub supervision: Result<Supervision, FetchError>,
}

impl FromStr for Server {
    type Err = ServerError;

    fn from_str(text: &str) -> Result<Self, ServerError> {
        let url = || text.to_owned();
        let malformed = || ServerError::Malformed(url());
        let uri: Uri = text.parse().map_err(|_| malformed())?;
        match uri.scheme_str() {
            Some("http") => {}
            Some(_) => return Err(ServerError::NotHttp { url: url() }),
            None => return Err(malformed()),
        }
        let authority = uri.authority().ok_or_else(malformed)?;
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() || authority.as_str().contains('@') {
            return Err(ServerError::TooMuch { url: url() });
        }
        // A port that is none is not the absent port.
        let port = match (authority.port_u16(), authority.as_str().strip_prefix(authority.host())) {
            (Some(port), _) => port,
            (None, Some("")) => 80,
            (None, _) => return Err(malformed()),
        };
        match authority.host() {
            "" => Err(malformed()),
            host => Ok(Self { host: host.to_owned(), port }),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}", self.host, self.port)
    }
}

impl Server {
    /// A server on this machine.
    pub fn local(port: u16) -> Self {
        Self { host: "127.0.0.1".to_owned(), port }
    }

    /// Asks for everything that is shown, at once.
    pub async fn ask(&self) -> Answers {
        let (pods, events, supervision) =
            tokio::join!(self.get("/pods"), self.get("/events"), self.get("/supervision"));
        Answers { pods, events, supervision }
    }

    /// Asks for one path.
    ///
    /// # Errors
    /// What kept the answer away, or made it useless.
    pub async fn get<T: DeserializeOwned>(&self, path: &'static str) -> Result<T, FetchError> {
        let body = match tokio::time::timeout(DEADLINE, self.body(path)).await {
            Ok(body) => body?,
            Err(_) => return Err(FetchError::Deadline { server: self.to_string(), path }),
        };
        serde_json::from_slice(&body)
            .map_err(|error| FetchError::NotUnderstood { path, reason: error.to_string() })
    }

    async fn body(&self, path: &'static str) -> Result<Bytes, FetchError> {
        let broken = |error: hyper::Error| FetchError::Broken {
            server: self.to_string(),
            path,
            reason: error.to_string(),
        };
        // Brackets belong to the URL, not to the address.
        let host = self.host.trim_matches(['[', ']']);
        let stream = TcpStream::connect((host, self.port))
            .await
            .map_err(|error| FetchError::Connect { server: self.to_string(), error })?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // Ends with this request, also when the deadline cuts it short.
        let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
        let request = Request::get(path)
            .header(header::HOST, format!("{}:{}", self.host, self.port))
            .header(header::ACCEPT, "application/json")
            .body(Empty::<Bytes>::new())
            .expect("a path and a checked authority make a request");
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        let body = match Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => return Err(FetchError::TooLong { path }),
            Err(error) => {
                return Err(FetchError::Broken { server: self.to_string(), path, reason: error.to_string() });
            }
        };
        if status.is_success() {
            return Ok(body);
        }
        let start = String::from_utf8_lossy(&body[..body.len().min(512)]);
        Err(FetchError::Refused { path, status, said: neutralised(start.lines().next().unwrap_or_default()) })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn servers_are_hosts_and_ports() {
        let shown = |text: &str| text.parse::<Server>().map(|server| server.to_string());
        assert_eq!(shown("http://127.0.0.1:10255"), Ok("http://127.0.0.1:10255".to_owned()));
        assert_eq!(shown("http://[::1]:10255/"), Ok("http://[::1]:10255".to_owned()));
        assert_eq!(shown("http://node"), Ok("http://node:80".to_owned()));
        let https = "https://node:10250".to_owned();
        assert_eq!(shown(&https), Err(ServerError::NotHttp { url: https.clone() }));
        for much in ["http://node/pods", "http://me@node", "http://node/?x"] {
            assert_eq!(shown(much), Err(ServerError::TooMuch { url: much.to_owned() }));
        }
        for wrong in ["", "node", "node:10255", "http://", "http://node:99999", "http://no de", "/pods"] {
            assert!(shown(wrong).is_err(), "{wrong}");
        }
    }

    /// Answers one request with these bytes and closes.
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
        // Bound and dropped: nobody listens there.
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let error = Server::local(port).get::<PodList>("/pods").await.unwrap_err();
        assert!(matches!(error, FetchError::Connect { .. }), "{error}");
        assert!(!error.answered());
    }
}
