//! Checks a server's health by gRPC, over HTTP/2 without TLS (row 7.5).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use http::{Request, Uri};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use tonic::{Code, Status};

use super::exchange::dial;
use super::socket::Socket;
use super::{GrpcProbe, ProbeError, ProbeReport, words};
use bridge_pace::Backoff;

/// The generated messages and services of `proto/health`.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, rustdoc::all)]
pub(super) mod wire {
    tonic::include_proto!("grpc.health.v1");
}

use wire::health_check_response::ServingStatus;
use wire::health_client::HealthClient;

/// The wait after the first failed connection; each further one multiplies it, as gRPC's own clients do.
const RETRY: Backoff = Backoff::growing(Duration::from_secs(1), Duration::from_secs(120), 160);
/// The type of the frame with which every HTTP/2 server begins, and where in a frame the type stands.
const SETTINGS: u8 = 4;
const FRAME_TYPE_AT: usize = 3;

/// The most bytes of a server's message, which in truth has two, and of what a server may send before it is read. The
/// author of a pod writes the server.
const ANSWER_BYTES_MAX: usize = 4096;
const WINDOW_BYTES: u32 = 16 * 1024;

/// A connection to a server that speaks HTTP/2.
struct Connected {
    sender: SendRequest<tonic::body::Body>,
    _connection: AbortOnDropHandle<()>,
}

pub(super) async fn check(probe: GrpcProbe) -> Result<ProbeReport, ProbeError> {
    let deadline = Instant::now() + probe.timeout;
    let address = words::join_host_port(&probe.host, probe.port);
    let Ok(connected) = timeout_at(deadline, connect(&probe)).await else {
        return Ok(ProbeReport::failure(words::health_not_connected(&address, probe.timeout)));
    };
    let uri: Uri = match format!("http://{address}").parse() {
        Ok(uri) => uri,
        Err(error) => {
            let reason = format!("error: failed to connect service at {address:?}: {error}");
            return Ok(ProbeReport::failure(reason));
        }
    };
    let sender = connected.sender.clone();
    let send = tower::service_fn(move |mut request: Request<tonic::body::Body>| {
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(super::USER_AGENT));
        let mut sender = sender.clone();
        async move { sender.send_request(request).await }
    });
    let mut client = HealthClient::with_origin(send, uri).max_decoding_message_size(ANSWER_BYTES_MAX);
    let mut request = tonic::Request::new(wire::HealthCheckRequest { service: probe.service });
    request.set_timeout(deadline.saturating_duration_since(Instant::now()));
    let answer = timeout_at(deadline, client.check(request)).await;
    Ok(match answer {
        Ok(Ok(answer)) => verdict(answer.into_inner().status),
        // A server that heeds the deadline says so at the same moment, in words of its own.
        Ok(Err(status)) if Instant::now() < deadline => refused(&status, probe.timeout),
        _ => refused(&Status::deadline_exceeded(""), probe.timeout),
    })
}

/// The report on an answer: only SERVING is a success.
pub(super) fn verdict(status: i32) -> ProbeReport {
    match ServingStatus::try_from(status) {
        Ok(ServingStatus::Serving) => ProbeReport::success("service healthy"),
        Ok(other) => ProbeReport::failure(words::health_bad(other.as_str_name())),
        Err(_) => ProbeReport::failure(words::health_bad(&status.to_string())),
    }
}

/// The report on an error in place of an answer.
pub(super) fn refused(status: &Status, timeout: Duration) -> ProbeReport {
    ProbeReport::failure(match status.code() {
        Code::Unimplemented => words::health_unimplemented(status.message()),
        Code::DeadlineExceeded => words::health_timed_out(timeout),
        code => words::health_failed(&code_name(code), status.message()),
    })
}

/// The name of a gRPC code as Go writes it.
fn code_name(code: Code) -> String {
    match code {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    }
}

/// Connects until a connection opens: a server may still be starting, and has until the probe's deadline.
async fn connect(probe: &GrpcProbe) -> Connected {
    let mut wait = RETRY.first();
    loop {
        if let Some(connected) = connect_once(probe).await {
            return connected;
        }
        tokio::time::sleep(wait).await;
        wait = RETRY.following(wait);
    }
}

/// `None` when the port refuses the connection, or the server does not speak HTTP/2.
async fn connect_once(probe: &GrpcProbe) -> Option<Connected> {
    let socket = dial(&probe.host, &probe.host, probe.port).await.ok()?;
    let (socket, greeting) = Greeted::new(socket);
    let mut http = Builder::new(TokioExecutor::new());
    http.initial_stream_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
    let (sender, connection) = http.handshake(TokioIo::new(socket)).await.ok()?;
    let connection = AbortOnDropHandle::new(tokio::spawn(async move {
        // The request gets the connection's error as well.
        let _ = connection.await;
    }));
    greeting.await.ok().filter(|proper| *proper)?;
    Some(Connected { sender, _connection: connection })
}

/// A connection that reports whether the server's first frame is SETTINGS, as HTTP/2 demands: until then the server is
/// not known to speak HTTP/2.
struct Greeted {
    socket: Socket,
    /// `None` once the report has been sent.
    tell: Option<oneshot::Sender<bool>>,
    bytes: usize,
}

impl Greeted {
    fn new(socket: Socket) -> (Self, oneshot::Receiver<bool>) {
        let (tell, greeting) = oneshot::channel();
        (Self { socket, tell: Some(tell), bytes: 0 }, greeting)
    }

    fn read(&mut self, new: &[u8]) {
        if let Some(kind) = FRAME_TYPE_AT.checked_sub(self.bytes).and_then(|at| new.get(at))
            && let Some(tell) = self.tell.take()
        {
            // The receiver is gone once the probe is over.
            let _ = tell.send(*kind == SETTINGS);
        }
        self.bytes = self.bytes.saturating_add(new.len());
    }
}

impl AsyncRead for Greeted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buf))?;
        self.read(&buf.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Greeted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_upstreams_words() {
        let timeout = Duration::from_secs(61);
        let output = |code, message: &str| refused(&Status::new(code, message), timeout).output;
        assert_eq!(
            output(Code::Unimplemented, "unknown service grpc.health.v1.Health"),
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): \
             unknown service grpc.health.v1.Health"
        );
        assert_eq!(output(Code::DeadlineExceeded, "x"), "timeout: health rpc did not complete within 1m1s");
        assert_eq!(
            output(Code::NotFound, "unknown service"),
            "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"
        );
        assert_eq!(
            output(Code::Cancelled, "x"),
            "error: health rpc probe failed: rpc error: code = Canceled desc = x"
        );
        for (status, told) in [(0, "UNKNOWN"), (2, "NOT_SERVING"), (3, "SERVICE_UNKNOWN"), (9, "9")] {
            let expected = format!("service unhealthy (responded with \"{told}\")");
            assert_eq!(verdict(status), ProbeReport::failure(expected));
        }
        assert_eq!(verdict(1), ProbeReport::success("service healthy"));
    }
}
