//! The GET over this machine's network, without a proxy.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rustls::ClientConfig;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::{BODY_BYTES_MAX, ManifestAddress, ManifestUrl, ManifestUrlError, TIMEOUT};
use crate::probes::exchange::{Say, exchange};
use crate::probes::target::Target;
use crate::probes::{Scheme, location, words};
use bridge_io::{Lane, NotRun};
use bridge_net::roots::{self, Places};

/// The most requests of one GET: the first, and one per redirect.
const REQUESTS_MAX: usize = 10;
/// The asker under which names are looked up.
const ASKER: &str = "manifest URL";

/// A manifest on the network. With `https`, the server's certificate is verified.
#[derive(Debug, Clone)]
pub struct NetManifestUrl {
    io: Handle,
    lane: Lane,
    address: Arc<ManifestAddress>,
    authorities: Arc<Places>,
}

impl NetManifestUrl {
    /// A client with its sockets on `io`, which has I/O and time enabled.
    pub fn new(io: Handle, address: ManifestAddress) -> Self {
        Self {
            lane: Lane::new("PodSources", io.clone()),
            io,
            address: Arc::new(address),
            authorities: Arc::new(Places::of_this_machine()),
        }
    }

    /// The same client, trusting only the authorities in this file.
    #[cfg(test)]
    pub(super) fn trusting(mut self, file: std::path::PathBuf) -> Self {
        self.authorities = Arc::new(Places { files: vec![file], directories: Vec::new() });
        self
    }
}

impl ManifestUrl for NetManifestUrl {
    fn shown(&self) -> String {
        self.address.shown()
    }

    fn get(&self) -> BoxFuture<'static, Result<Vec<u8>, ManifestUrlError>> {
        let this = self.clone();
        let running = AbortOnDropHandle::new(
            self.io.spawn(bridge_pace::panics::caught(async move { this.fetch().await })),
        );
        bridge_io::joined(running).boxed()
    }
}

impl NetManifestUrl {
    async fn fetch(&self) -> Result<Vec<u8>, ManifestUrlError> {
        let deadline = Instant::now() + TIMEOUT;
        let mut target = self.address.target.clone();
        let mut headers = self.address.headers.clone();
        let mut tls = None;
        for request in 1.. {
            let url = target.url();
            let failed = |reason: String| ManifestUrlError::Failed { url: url.clone(), reason };
            let say = Say::new(&headers).map_err(failed)?;
            let tls = self.tls(&target, &mut tls).await.map_err(failed)?;
            let mut answer = match timeout_at(deadline, exchange(ASKER, &target, &say, &tls)).await {
                Ok(answer) => answer.map_err(failed)?,
                Err(_) => return Err(failed(words::TIMED_OUT_BEFORE_HEADERS.to_owned())),
            };
            if let Some(location) = location(&answer.response) {
                if request >= REQUESTS_MAX {
                    return Err(failed(format!("stopped after {REQUESTS_MAX} redirects")));
                }
                let next = target.follow(&location).map_err(failed)?;
                if next.host != target.host {
                    // Credentials are sent only to the host that they were given for.
                    headers.retain(|(name, _)| !is_secret(name));
                }
                target = next;
                continue;
            }
            let status = answer.response.status();
            if status != StatusCode::OK {
                return Err(ManifestUrlError::Status { url, status: status.to_string() });
            }
            return match timeout_at(deadline, read(answer.response.body_mut())).await {
                Ok(Ok(Some(body))) => Ok(body),
                Ok(Ok(None)) => Err(ManifestUrlError::TooLarge { url }),
                Ok(Err(reason)) => Err(failed(reason)),
                Err(_) => Err(failed(words::TIMED_OUT_IN_BODY.to_owned())),
            };
        }
        unreachable!("each request returns, or is followed by another up to the last")
    }

    /// The machine's authorities, read anew for each GET, since they can change while the kubelet runs.
    async fn tls(
        &self,
        target: &Target,
        known: &mut Option<Arc<ClientConfig>>,
    ) -> Result<Arc<ClientConfig>, String> {
        if target.scheme == Scheme::Http {
            return Ok(bridge_net::unverified::config());
        }
        if let Some(known) = known {
            return Ok(known.clone());
        }
        let places = self.authorities.clone();
        let read = self.lane.run(move || Ok::<_, NotRun>(roots::config(&places)));
        let config = read.await.map_err(|error| error.to_string())??;
        *known = Some(config.clone());
        Ok(config)
    }
}

/// Whether a header may hold credentials: every header but `User-Agent` and `Accept`, since a configured header is
/// often a token.
fn is_secret(name: &str) -> bool {
    !["user-agent", "accept"].iter().any(|harmless| name.eq_ignore_ascii_case(harmless))
}

/// The body; `None` if it is longer than the bound.
async fn read(body: &mut Incoming) -> Result<Option<Vec<u8>>, String> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| "unexpected EOF".to_owned())?;
        if let Ok(data) = frame.into_data() {
            if bytes.len() + data.len() > BODY_BYTES_MAX {
                return Ok(None);
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok(Some(bytes))
}
