use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tonic::Status;

use super::target::Target;
use super::{
    FakeHealth, GrpcProbe, HttpProbe, ProbeError, ProbeReport, Prober, RequestError, Scheme, TcpProbe, grpc,
    words,
};

/// How a fake server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FakeAnswer {
    /// The port refuses connections.
    Refuse,
    /// Packets are lost: a connection never opens.
    Lost,
    /// A connection opens, and the server sends nothing.
    Hang,
    /// The server responds after a while; a redirect status leads to another host.
    Respond {
        /// The status code.
        status: u16,
        /// The body.
        body: String,
        /// The time until the response.
        after: Duration,
    },
    /// The server answers 200 over plain HTTP, and answers TLS in plain HTTP too.
    PlainOnly,
    /// The response begins, and its body breaks off for this reason.
    BreakOff(String),
    /// The server offers gRPC health checks of these services.
    Health(BTreeMap<String, FakeHealth>),
}

impl FakeAnswer {
    /// An immediate response without a body.
    pub fn status(status: u16) -> Self {
        Self::Respond { status, body: String::new(), after: Duration::ZERO }
    }
}

/// Probes of scripted servers, on the time of `tokio::time`. Ports without a script refuse connections. Clones share
/// their scripts.
#[derive(Debug, Clone, Default)]
pub struct FakeProber {
    servers: Arc<Mutex<BTreeMap<(String, u16), Server>>>,
}

#[derive(Debug, Default)]
struct Server {
    next: VecDeque<FakeAnswer>,
    then: Option<FakeAnswer>,
    probes: u64,
    last: Option<HttpProbe>,
}

impl FakeProber {
    /// A prober without servers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `host:port` answer so from now on.
    pub fn set(&self, host: &str, port: u16, answer: FakeAnswer) {
        let mut servers = self.locked();
        let server = servers.entry((host.to_owned(), port)).or_default();
        server.next.clear();
        server.then = Some(answer);
    }

    /// Scripts the next probes of `host:port`, one answer each; later probes are answered as before.
    pub fn push(&self, host: &str, port: u16, answers: impl IntoIterator<Item = FakeAnswer>) {
        self.locked().entry((host.to_owned(), port)).or_default().next.extend(answers);
    }

    /// The number of probes of `host:port`.
    pub fn probes(&self, host: &str, port: u16) -> u64 {
        self.locked().get(&(host.to_owned(), port)).map_or(0, |server| server.probes)
    }

    /// The last HTTP request to `host:port`.
    pub fn last_request(&self, host: &str, port: u16) -> Option<HttpProbe> {
        self.locked().get(&(host.to_owned(), port)).and_then(|server| server.last.clone())
    }

    fn answer_request(&self, request: &HttpProbe) -> FakeAnswer {
        let answer = self.answer(&request.host, request.port);
        let mut servers = self.locked();
        servers.entry((request.host.clone(), request.port)).or_default().last = Some(request.clone());
        answer
    }

    fn answer(&self, host: &str, port: u16) -> FakeAnswer {
        let mut servers = self.locked();
        let server = servers.entry((host.to_owned(), port)).or_default();
        server.probes += 1;
        server.next.pop_front().or_else(|| server.then.clone()).unwrap_or(FakeAnswer::Refuse)
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, u16), Server>> {
        self.servers.lock().expect("no code panics while it holds this lock")
    }
}

fn refused(host: &str, port: u16) -> String {
    format!("dial tcp {}: connect: connection refused", words::join_host_port(host, port))
}

async fn fetch(probe: HttpProbe, answer: FakeAnswer) -> Result<(u16, Result<String, String>), String> {
    let url = Target::of(&probe).url();
    let failure = |reason: &str| Err(words::get_failed(&url, reason));
    match answer {
        FakeAnswer::Refuse => failure(&refused(&probe.host, probe.port)),
        FakeAnswer::PlainOnly if probe.scheme == Scheme::Https => failure(words::NOT_TLS),
        FakeAnswer::PlainOnly => Ok((200, Ok(String::new()))),
        FakeAnswer::Respond { status, body, after } if after < probe.timeout => {
            tokio::time::sleep(after).await;
            Ok((status, Ok(body.chars().take(super::BODY_BYTES_MAX).collect())))
        }
        FakeAnswer::BreakOff(reason) => Ok((200, Err(reason))),
        FakeAnswer::Health(_) => failure("EOF"),
        FakeAnswer::Lost | FakeAnswer::Hang | FakeAnswer::Respond { .. } => {
            tokio::time::sleep(probe.timeout).await;
            failure(words::TIMED_OUT_BEFORE_HEADERS)
        }
    }
}

impl Prober for FakeProber {
    fn http_get(&self, probe: HttpProbe) -> BoxFuture<'static, Result<ProbeReport, ProbeError>> {
        let answer = self.answer_request(&probe);
        async move {
            match fetch(probe, answer).await {
                Ok((status, Ok(body))) => Ok(ProbeReport::of_response(status, body)),
                Ok((_, Err(reason))) => Err(ProbeError::Body(reason)),
                Err(reason) => Ok(ProbeReport::failure(reason)),
            }
        }
        .boxed()
    }

    fn request(&self, request: HttpProbe) -> BoxFuture<'static, Result<u16, RequestError>> {
        let answer = self.answer_request(&request);
        async move {
            let fetched = fetch(request, answer).await;
            fetched.map(|(status, _body)| status).map_err(RequestError::NoAnswer)
        }
        .boxed()
    }

    fn tcp(&self, probe: TcpProbe) -> BoxFuture<'static, Result<ProbeReport, ProbeError>> {
        let answer = self.answer(&probe.host, probe.port);
        async move {
            Ok(match answer {
                FakeAnswer::Refuse => ProbeReport::failure(refused(&probe.host, probe.port)),
                FakeAnswer::Lost => {
                    tokio::time::sleep(probe.timeout).await;
                    let address = words::join_host_port(&probe.host, probe.port);
                    ProbeReport::failure(words::dial_timed_out(&address))
                }
                _ => ProbeReport::success(""),
            })
        }
        .boxed()
    }

    fn grpc(&self, probe: GrpcProbe) -> BoxFuture<'static, Result<ProbeReport, ProbeError>> {
        let answer = self.answer(&probe.host, probe.port);
        async move {
            let FakeAnswer::Health(services) = answer else {
                tokio::time::sleep(probe.timeout).await;
                let address = words::join_host_port(&probe.host, probe.port);
                return Ok(ProbeReport::failure(words::health_not_connected(&address, probe.timeout)));
            };
            let refused = |status: Status| Ok(grpc::refused(&status, probe.timeout));
            match services.get(&probe.service) {
                Some(FakeHealth::Serving) => Ok(grpc::verdict(1)),
                Some(FakeHealth::NotServing) => Ok(grpc::verdict(2)),
                Some(FakeHealth::Silent) => {
                    tokio::time::sleep(probe.timeout).await;
                    refused(Status::deadline_exceeded(""))
                }
                Some(FakeHealth::Unimplemented) => {
                    refused(Status::unimplemented("unknown service grpc.health.v1.Health"))
                }
                None => refused(Status::not_found("unknown service")),
            }
        }
        .boxed()
    }
}
