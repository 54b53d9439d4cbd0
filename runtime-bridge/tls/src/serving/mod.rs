//! TLS of the HTTPS server: the kubelet's own certificate, and the users that client certificates name.
//!
//! A client certificate is requested and never required, and the handshake proves only that the client has its key.
//! Whether its authority is trusted is checked for each request ([`ServingTls::identify`]), since a client with an
//! unknown certificate is to be answered with 401 instead of a broken connection.

mod client;
mod files;
mod suites;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bridge_io::watch;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub use client::{CertificateIdentity, Chain, ClientCertificate};
pub use files::CertificateSource;
pub use suites::{Protocol, protocol};

use crate::certificates::CurrentPair;
use bridge_io::NotRun;
use bridge_io::clock::Clock;
use bridge_io::{Io, lasting};

/// The time between two keep-alive packets on an idle connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The interval at which the files are checked for changes.
const RELOAD: Duration = Duration::from_secs(10);

/// Why the server's TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// A configuration field has a value that cannot be used.
    #[error("{field}: Invalid value: {value:?}: {reason}")]
    Setting {
        /// The field's name.
        field: &'static str,
        /// Its value.
        value: String,
        /// The reason.
        reason: String,
    },
    /// A file cannot be read.
    #[error("read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// A file cannot be written.
    #[error("write {}: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{}: {reason}", path.display())]
    Contents {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// One file of the pair exists without the other.
    #[error(
        "error reading {}, certificate and key must be supplied as a pair: there is no {}",
        there.display(), missing.display()
    )]
    Alone {
        /// The file that exists.
        there: PathBuf,
        /// The file that is missing.
        missing: PathBuf,
    },
    /// Certificate, key and protocol do not fit together, for this reason.
    #[error("TLS: {0}")]
    Tls(String),
    /// The self-signed certificate could not be made.
    #[error("make a self-signed certificate: {0}")]
    Made(String),
}

/// How the server identifies itself, and which client certificates it trusts.
#[derive(Clone, Debug)]
pub struct ServingSettings {
    /// TLS versions and cipher suites.
    pub protocol: Protocol,
    /// The server's certificate.
    pub certificate: CertificateSource,
    /// The file of `clientCAFile`, with the trusted authorities of client certificates; without it client certificates
    /// are ignored.
    pub client_ca: Option<PathBuf>,
}

/// The TLS state made from the files at one time.
#[derive(Clone)]
struct Loaded {
    config: Arc<ServerConfig>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

/// The server's side of TLS, always made from the newest files. Cheap to clone.
#[derive(Clone)]
pub struct ServingTls {
    loaded: watch::Receiver<Loaded>,
    issued: Option<CurrentPair>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for ServingTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServingTls").finish_non_exhaustive()
    }
}

/// Presents the pair that the cluster has signed last.
#[derive(Debug)]
struct Issued(CurrentPair);

impl ResolvesServerCert for Issued {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.get().map(|pair| pair.certified.clone())
    }
}

fn load(settings: &ServingSettings, material: &files::Material) -> Result<Loaded, ServingError> {
    let wrong = |path: &PathBuf, reason: String| ServingError::Contents { path: path.clone(), reason };
    let verifier = match (&settings.client_ca, &material.client_ca) {
        (Some(path), Some(pem)) => Some(
            client::verifier(pem, settings.protocol.provider.clone())
                .map_err(|reason| wrong(path, reason))?,
        ),
        _ => None,
    };
    let asking = client::Asking::new(settings.protocol.provider.clone(), verifier.clone());
    let tls = |error: rustls::Error| ServingError::Tls(error.to_string());
    let builder = ServerConfig::builder_with_provider(settings.protocol.provider.clone())
        .with_protocol_versions(&settings.protocol.versions)
        .map_err(tls)?
        .with_client_cert_verifier(Arc::new(asking));
    let mut config = match (&settings.certificate, settings.certificate.files(), &material.pair) {
        (CertificateSource::Issued(pair), ..) => builder.with_cert_resolver(Arc::new(Issued(pair.clone()))),
        (_, Some((certificate, key)), Some((certificate_pem, key_pem))) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate_pem).collect();
            let chain = chain.map_err(|error| wrong(&certificate, format!("not PEM: {error:?}")))?;
            if chain.is_empty() {
                return Err(wrong(&certificate, "no certificate in it".to_owned()));
            }
            let private = PrivateKeyDer::from_pem_slice(key_pem)
                .map_err(|error| wrong(&key, format!("no private key in it: {error:?}")))?;
            let made = builder.with_single_cert(chain, private);
            made.map_err(|error| wrong(&certificate, error.to_string()))?
        }
        _ => return Err(ServingError::Tls("there is no certificate".to_owned())),
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Loaded { config: Arc::new(config), verifier })
}

impl ServingTls {
    /// Reads the files, writing the self-signed ones when they are missing, and keeps watching them for changes.
    /// Blocks.
    ///
    /// # Errors
    /// A file that cannot be read or written, or does not hold what it should.
    pub fn start(settings: ServingSettings, io: &Io, clock: Arc<dyn Clock>) -> Result<Self, ServingError> {
        files::ensure(&settings.certificate, clock.now().as_second())?;
        let material = files::material(&settings.certificate, settings.client_ca.as_deref())?;
        let (tell, loaded) = watch::channel(load(&settings, &material)?);
        let issued = match &settings.certificate {
            CertificateSource::Issued(pair) => Some(pair.clone()),
            _ => None,
        };
        let blocking = io.clone();
        let keeping =
            move || keep_current(settings.clone(), material.clone(), tell.clone(), blocking.clone());
        // Not awaited: the task ends with the last server.
        drop(io.spawn(lasting("keep the serving certificate current", keeping)));
        Ok(Self { loaded, issued, clock })
    }

    /// Performs a client's TLS handshake. The caller bounds its time.
    ///
    /// # Errors
    /// The handshake failed.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<(TlsStream<TcpStream>, Chain)> {
        let config = self.loaded.borrow().config.clone();
        let stream = match TlsAcceptor::from(config).accept(stream).await {
            Ok(stream) => stream,
            Err(_) if self.issued.as_ref().is_some_and(|pair| pair.get().is_none()) => {
                return Err(io::Error::other("no serving certificate available for the kubelet"));
            }
            Err(error) => return Err(error),
        };
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let chain = chain.iter().map(|one| one.clone().into_owned()).collect();
        Ok((stream, chain))
    }

    /// Verifies a client's certificates against the present authorities and time, and returns the user that they name.
    pub fn identify(&self, chain: &Chain) -> ClientCertificate {
        let verifier = self.loaded.borrow().verifier.clone();
        client::identify(verifier.as_deref(), chain, self.clock.now())
    }
}

/// Lets the kernel check now and then whether the client still exists: without this, a client on a machine that is gone
/// keeps its connection for ever when nothing is left to be sent.
pub fn keep_alive(stream: &TcpStream) {
    use rustix::net::sockopt;
    // A failure is ignored: the connection works without keep-alive.
    let _ = sockopt::set_tcp_keepidle(stream, KEEP_ALIVE);
    let _ = sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE);
    let _ = sockopt::set_tcp_keepcnt(stream, 9);
    let _ = sockopt::set_socket_keepalive(stream, true);
}

/// Reads the files at an interval until no server uses them any more.
async fn keep_current(
    settings: ServingSettings,
    mut material: files::Material,
    tell: watch::Sender<Loaded>,
    io: Io,
) {
    let mut said = String::new();
    loop {
        tokio::select! {
            biased;
            () = tell.closed() => return,
            () = tokio::time::sleep(RELOAD) => {}
        }
        let (source, client_ca) = (settings.certificate.clone(), settings.client_ca.clone());
        let read = io.blocking(move || files::material(&source, client_ca.as_deref())).await;
        let read = match read {
            Ok(read) => read,
            Err(NotRun::RuntimeGone) => return,
            Err(NotRun::Busy { .. } | NotRun::Late { .. }) => continue,
        };
        let outcome = read.and_then(|read| {
            if read != material {
                tell.send_replace(load(&settings, &read)?);
                tracing::info!("Serving certificate or client authorities read anew");
                material = read;
            }
            Ok(())
        });
        // A half-written pair is logged once; the last good one stays in use.
        let trouble = outcome.err().map_or_else(String::new, |error| error.to_string());
        if trouble != said && !trouble.is_empty() {
            tracing::error!(error = trouble, "Certificates cannot be read anew; the last ones stay");
        }
        said = trouble;
    }
}
