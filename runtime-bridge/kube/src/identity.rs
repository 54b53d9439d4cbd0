//! Who we are to the API server, which may change while we run: a rotated certificate, a refreshed token.

use std::fmt::Debug;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use tokio::time::Instant;

use super::connect::ConnectError;
use super::exec::ExecIdentity;
use super::kubeconfig::{Pem, User};
use bridge_tls::certificates::CurrentPair;

/// Files are looked at again this often at most.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// A request without a certificate of ours waits this long for the first one.
const FIRST_WAIT: Duration = Duration::from_secs(9);
/// Bytes of a token or PEM file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// What a connection and its requests carry.
#[derive(Clone, Default)]
pub struct Identity {
    /// The certificate with those that lead to its CA, and its key.
    pub certificate: Option<Arc<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>>,
    /// Sent as `Authorization: Bearer`.
    pub token: Option<Arc<str>>,
    /// Grows when the certificate is another one: connections with the old one are not used any more.
    pub generation: u64,
}

impl Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity")
            .field("certificate", &self.certificate.is_some())
            .field("token", &self.token.is_some())
            .field("generation", &self.generation)
            .finish()
    }
}

/// Says who we are at the moment.
pub trait IdentitySource: Send + Sync + Debug {
    /// Asked before every request; must be quick.
    ///
    /// # Errors
    /// When nothing usable is there, naming the file.
    fn identity(&self) -> Result<Identity, ConnectError>;

    /// As far as it is known before anything is asked.
    ///
    /// # Errors
    /// What is there already cannot be used.
    fn at_start(&self) -> Result<Identity, ConnectError> {
        self.identity()
    }

    /// Awaited on the I/O runtime before every request: makes fresh what takes time to get.
    ///
    /// # Errors
    /// When it cannot be had.
    fn refresh(&self) -> BoxFuture<'_, Result<(), ConnectError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The server has answered 401.
    fn refused(&self) {}

    /// An item for each change, if the source tells of them by itself.
    fn changes(&self) -> Option<BoxStream<'static, ()>> {
        None
    }
}

#[derive(Debug, Default)]
struct Known {
    looked: Option<Instant>,
    read: bool,
    stamps: Vec<Option<SystemTime>>,
    identity: Identity,
}

/// The identity that a kubeconfig's user has, read again when its files change, and asked of its program when it expires.
#[derive(Debug)]
pub struct FileIdentity {
    user: User,
    program: Option<ExecIdentity>,
    known: Mutex<Known>,
}

impl FileIdentity {
    /// Reads nothing yet.
    pub fn new(user: User) -> Self {
        let program = match &user {
            User::Exec(config) => Some(ExecIdentity::new((**config).clone())),
            _ => None,
        };
        Self { user, program, known: Mutex::default() }
    }

    fn files(&self) -> Vec<&Path> {
        match &self.user {
            User::Certificate { certificate, key } => {
                [certificate, key].into_iter().filter_map(Pem::path).collect()
            }
            User::TokenFile(path) => vec![path.as_path()],
            User::Anonymous | User::Token(_) | User::Exec(_) => Vec::new(),
        }
    }

    fn read(&self, before: &Identity) -> Result<Identity, ConnectError> {
        let generation = before.generation + 1;
        match &self.user {
            User::Anonymous => Ok(Identity::default()),
            User::Token(token) => {
                Ok(Identity { token: Some(Arc::from(token.as_str())), ..Identity::default() })
            }
            User::TokenFile(path) => {
                let wrong = |reason: String| ConnectError::file(path, format!("tokenFile: {reason}"));
                let text = String::from_utf8(read_file(path).map_err(wrong)?);
                let text = text.map_err(|_| wrong("is no text".to_owned()))?;
                let token = text.trim();
                if token.is_empty() {
                    return Err(wrong("holds no token".to_owned()));
                }
                // Requests carry it, not connections.
                Ok(Identity { token: Some(Arc::from(token)), ..Identity::default() })
            }
            User::Certificate { certificate, key } => {
                let pair = certificate_pair(certificate, key)?;
                Ok(Identity { certificate: Some(Arc::new(pair)), token: None, generation })
            }
            // Asked before this.
            User::Exec(_) => Ok(Identity::default()),
        }
    }
}

impl Pem {
    /// The file, if it is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Inline(_) => None,
        }
    }

    /// `field` is the one of the kubeconfig that names the file.
    pub(crate) fn bytes(&self, field: &str) -> Result<Vec<u8>, ConnectError> {
        match self {
            Self::Inline(bytes) => Ok(bytes.clone()),
            Self::File(path) => read_file(path).map_err(|reason| self.wrong(field, reason)),
        }
    }

    /// What is wrong with it, naming the file and the field.
    pub(crate) fn wrong(&self, field: &str, reason: impl std::fmt::Display) -> ConnectError {
        match self {
            Self::Inline(_) => ConnectError::file(Path::new(&format!("{field}-data")), reason.to_string()),
            Self::File(path) => ConnectError::file(path, format!("{field}: {reason}")),
        }
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read;
    let failed = |error: std::io::Error| error.to_string();
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// The certificates that a field of the kubeconfig holds or names.
pub(super) fn certificates(pem: &Pem, field: &str) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let bytes = pem.bytes(field)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let certificates = read.map_err(|error| pem.wrong(field, error))?;
    if certificates.is_empty() {
        return Err(pem.wrong(field, "holds no certificate"));
    }
    Ok(certificates)
}

/// A certificate and its key, which belong together.
pub(super) fn certificate_pair(
    certificate: &Pem,
    pem_key: &Pem,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), ConnectError> {
    let certificates = certificates(certificate, "client-certificate")?;
    let bytes = pem_key.bytes("client-key")?;
    let key = PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|error| pem_key.wrong("client-key", format!("no private key: {error}")))?;
    let provider = rustls::crypto::ring::default_provider();
    let matched = CertifiedKey::from_der(certificates.clone(), key.clone_key(), &provider);
    matched.map_err(|error| {
        let reason = match error {
            rustls::Error::InconsistentKeys(_) => "is not the key of the client certificate".to_owned(),
            other => other.to_string(),
        };
        pem_key.wrong("client-key", reason)
    })?;
    Ok((certificates, key))
}

impl IdentitySource for FileIdentity {
    fn identity(&self) -> Result<Identity, ConnectError> {
        if let Some(program) = &self.program {
            return Ok(program.identity());
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.looked.is_some_and(|looked| looked.elapsed() < LOOK_AGAIN) {
            return Ok(known.identity.clone());
        }
        let modified = |path: &Path| std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
        let stamps: Vec<_> = self.files().into_iter().map(modified).collect();
        if !known.read || stamps != known.stamps {
            match self.read(&known.identity) {
                Ok(identity) => {
                    known.identity = identity;
                    known.stamps = stamps;
                    known.read = true;
                }
                // A pair that is just being replaced is whole again in a moment; until then the old one holds.
                Err(error) if known.read => {
                    tracing::warn!(%error, "The identity towards the API server cannot be read again");
                }
                Err(error) => return Err(error),
            }
        }
        known.looked = Some(Instant::now());
        Ok(known.identity.clone())
    }

    fn refresh(&self) -> BoxFuture<'_, Result<(), ConnectError>> {
        Box::pin(async {
            match &self.program {
                Some(program) => program.refresh().await,
                None => Ok(()),
            }
        })
    }

    fn refused(&self) {
        match &self.program {
            Some(program) => program.refused(),
            // Perhaps the files hold something newer.
            None => self.known.lock().unwrap_or_else(PoisonError::into_inner).looked = None,
        }
    }
}

/// The identity of the pair that is shown at the moment: the certificate that the cluster has signed last.
#[derive(Clone, Debug)]
pub struct PairIdentity(CurrentPair);

impl PairIdentity {
    /// Whatever `pair` shows.
    pub fn new(pair: CurrentPair) -> Self {
        Self(pair)
    }
}

impl IdentitySource for PairIdentity {
    fn identity(&self) -> Result<Identity, ConnectError> {
        match self.0.numbered() {
            (generation, Some(pair)) => {
                Ok(Identity { certificate: Some(pair.client.clone()), token: None, generation })
            }
            // The server would see nobody in us.
            (_, None) => Err(ConnectError::NoCertificate),
        }
    }

    fn at_start(&self) -> Result<Identity, ConnectError> {
        Ok(self.identity().unwrap_or_default())
    }

    fn refresh(&self) -> BoxFuture<'_, Result<(), ConnectError>> {
        Box::pin(async {
            // Nothing more to wait for: the answer says it.
            let _ = tokio::time::timeout(FIRST_WAIT, self.0.wait()).await;
            Ok(())
        })
    }

    fn changes(&self) -> Option<BoxStream<'static, ()>> {
        Some(self.0.changes())
    }
}
