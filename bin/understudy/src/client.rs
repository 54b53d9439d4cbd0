//! The client of the kubelet's read-only port: one bounded answer per request, within a deadline.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper_util::rt::TokioIo;
use pod_why::model::{EventList, PodList, Supervision};
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

use crate::view::text::neutralised;

/// The longest time of a request.
const DEADLINE: Duration = Duration::from_secs(5);
/// The most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The address of a kubelet: `http://host[:port]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    host: String,
    port: u16,
}

/// Why a server's address cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    /// The text is no URL.
    #[error("{0:?} is no URL such as http://127.0.0.1:10255")]
    Malformed(String),
    /// The scheme is not plain HTTP.
    #[error("{url:?}: the read-only port speaks plain HTTP, so the URL must begin with http://")]
    NotHttp {
        /// The URL as given.
        url: String,
    },
    /// The URL has more than host and port.
    #[error("{url:?}: only a host and a port are allowed")]
    TooMuch {
        /// The URL as given.
        url: String,
    },
}

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
    #[error("{server}{path}: no answer within {} s", DEADLINE.as_secs())]
    Deadline {
        /// The server that was asked.
        server: String,
        /// The path of the request.
        path: &'static str,
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
    #[error("{path}: {status}{}{said}", if said.is_empty() { "" } else { ": " })]
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
        !matches!(self, Self::Connect { .. } | Self::Deadline { .. } | Self::Broken { .. })
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
        // A malformed port is an error; only an absent one has a default.
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
    /// The kubelet at this port of the local machine.
    pub fn local(port: u16) -> Self {
        Self { host: "127.0.0.1".to_owned(), port }
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
        let body = match tokio::time::timeout(DEADLINE, self.body(path, query)).await {
            Ok(body) => body?,
            Err(_) => return Err(FetchError::Deadline { server: self.to_string(), path }),
        };
        serde_json::from_slice(&body)
            .map_err(|error| FetchError::NotUnderstood { path, reason: error.to_string() })
    }

    async fn body(&self, path: &'static str, query: &str) -> Result<Bytes, FetchError> {
        let mark = if query.is_empty() { "" } else { "?" };
        let uri: Uri = format!("{path}{mark}{query}").parse().map_err(|error: http::uri::InvalidUri| {
            FetchError::Broken { server: self.to_string(), path, reason: error.to_string() }
        })?;
        let broken = |error: hyper::Error| FetchError::Broken {
            server: self.to_string(),
            path,
            reason: error.to_string(),
        };
        // The brackets of an IPv6 address belong to the URL, not to the address.
        let host = self.host.trim_matches(['[', ']']);
        let stream = TcpStream::connect((host, self.port))
            .await
            .map_err(|error| FetchError::Connect { server: self.to_string(), error })?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // The connection ends with this request, also when the deadline cuts it short.
        let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
        let request = Request::get(uri)
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
