use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::StatusCode;
use http::header::LOCATION;
use rustls::ClientConfig;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::exchange::{Say, dial, exchange, read_body};
use super::target::{Target, is_absolute};
use super::{
    GrpcProbe, HttpProbe, ProbeError, ProbeReport, Prober, RequestError, Scheme, TcpProbe, grpc, words,
};
use bridge_io::NotRun;

/// The most requests of one probe: the first, and one per redirect.
const REQUESTS_MAX: usize = 10;

/// Probes over this machine's network, without a proxy.
#[derive(Debug, Clone)]
pub struct NetProber {
    io: Handle,
    tls: Arc<ClientConfig>,
}

impl NetProber {
    /// A prober with its sockets on `io`, which has I/O and time enabled.
    pub fn new(io: Handle) -> Self {
        Self { io, tls: bridge_net::unverified::config() }
    }

    fn run<T: Send + 'static, E: From<NotRun> + Send + 'static>(
        &self,
        probe: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, E>> {
        let running = AbortOnDropHandle::new(self.io.spawn(bridge_pace::panics::caught(probe)));
        bridge_io::joined(running).boxed()
    }
}

impl Prober for NetProber {
    fn http_get(&self, probe: HttpProbe) -> BoxFuture<'static, Result<ProbeReport, ProbeError>> {
        let tls = Arc::clone(&self.tls);
        self.run(async move { http_get(&probe, &tls).await })
    }

    fn request(&self, request: HttpProbe) -> BoxFuture<'static, Result<u16, RequestError>> {
        let tls = Arc::clone(&self.tls);
        self.run(async move {
            // The body is read so that the server can finish sending it, and is not used.
            let answered = fetch(&request, &tls).await;
            answered.map(|(status, _body)| status).map_err(RequestError::NoAnswer)
        })
    }

    fn tcp(&self, probe: TcpProbe) -> BoxFuture<'static, Result<ProbeReport, ProbeError>> {
        self.run(tcp(probe))
    }

    fn grpc(&self, probe: GrpcProbe) -> BoxFuture<'static, Result<ProbeReport, ProbeError>> {
        self.run(grpc::check(probe))
    }
}

async fn tcp(probe: TcpProbe) -> Result<ProbeReport, ProbeError> {
    let address = words::join_host_port(&probe.host, probe.port);
    Ok(match tokio::time::timeout(probe.timeout, dial(&probe.asker, &probe.host, probe.port)).await {
        Ok(Ok(_opened)) => ProbeReport::success(""),
        Ok(Err(reason)) => ProbeReport::failure(reason),
        Err(_) => ProbeReport::failure(words::dial_timed_out(&address)),
    })
}

async fn http_get(probe: &HttpProbe, tls: &Arc<ClientConfig>) -> Result<ProbeReport, ProbeError> {
    match fetch(probe, tls).await {
        Ok((status, Ok(body))) => Ok(ProbeReport::of_response(status, body)),
        Ok((_, Err(reason))) => Err(ProbeError::Body(reason)),
        Err(reason) => Ok(ProbeReport::failure(reason)),
    }
}

/// The final status, and the body or why it could not be read. The error says why no response came.
async fn fetch(probe: &HttpProbe, tls: &Arc<ClientConfig>) -> Result<(u16, Result<String, String>), String> {
    let deadline = Instant::now() + probe.timeout;
    let mut target = Target::of(probe);
    let first_host = target.host.clone();
    let failure = |url: &str, reason: &str| Err(words::get_failed(url, reason));
    let mut say = match Say::new(&probe.headers) {
        Ok(say) => say,
        Err(reason) => return failure(&target.url(), &reason),
    };
    let own_host = say.host.clone();
    for request in 1.. {
        let url = target.url();
        let mut answer = match timeout_at(deadline, exchange(&probe.asker, &target, &say, tls)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(reason)) => return failure(&url, &reason),
            Err(_) => return failure(&url, words::TIMED_OUT_BEFORE_HEADERS),
        };
        let status = answer.response.status();
        if let Some(location) = location(&answer.response) {
            let next = match target.follow(&location) {
                Ok(next) => next,
                Err(reason) => return failure(&location, &reason),
            };
            if next.host == first_host {
                if request >= REQUESTS_MAX {
                    return failure(&location, &format!("stopped after {REQUESTS_MAX} redirects"));
                }
                // The probe's own header `Host` stays, as in Go, until a redirect names another host.
                say.host = own_host.clone().filter(|_| !is_absolute(&location));
                match (target.scheme, next.scheme) {
                    (Scheme::Https, Scheme::Http) => say.forget_referer(),
                    _ => say.refer_to(&url),
                }
                target = next;
                continue;
            }
        }
        let body = timeout_at(deadline, read_body(answer.response.body_mut())).await;
        let body = body.unwrap_or_else(|_| Err(words::TIMED_OUT_IN_BODY.into()));
        return Ok((status.as_u16(), body));
    }
    unreachable!("each request returns, or is followed by another up to the last")
}

/// The address that a redirect names; `None` for another response, and for a redirect without an address.
pub(crate) fn location<B>(response: &http::Response<B>) -> Option<String> {
    let redirect = matches!(
        response.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let location = response.headers().get(LOCATION).filter(|_| redirect)?;
    Some(String::from_utf8_lossy(location.as_bytes()).into_owned()).filter(|location| !location.is_empty())
}
