//! The kubelet's possible identities: its kubeconfig's user, and the certificate that the cluster has signed last.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::time::Instant;

use super::credentials::{Identity, IdentitySource, certificate_pair};
use super::error::ConnectError;
use super::exec::{ExecIdentity, ProgramMetrics};
use super::kubeconfig::{Pem, User, read_file};
use bridge_tls::certificates::CurrentPair;

/// The shortest time between two checks of the files for changes.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// How long a request waits for the kubelet's first certificate.
const FIRST_WAIT: Duration = Duration::from_secs(9);

#[derive(Debug, Default)]
struct CurrentIdentity {
    looked: Option<Instant>,
    read: bool,
    stamps: Vec<Option<SystemTime>>,
    identity: Identity,
}

/// The identity of a kubeconfig's user, read again when its files change, or renewed by its program when it expires.
#[derive(Debug)]
pub struct FileIdentity {
    user: User,
    program: Option<ExecIdentity>,
    known: Mutex<CurrentIdentity>,
}

impl FileIdentity {
    /// An identity that has read nothing yet.
    pub fn new(user: User) -> Self {
        let program = match &user {
            User::Exec(config) => Some(ExecIdentity::new((**config).clone())),
            _ => None,
        };
        Self { user, program, known: Mutex::default() }
    }

    /// The same; the runs of a program are counted.
    #[must_use]
    pub fn counted(mut self, metrics: &ProgramMetrics) -> Self {
        if let Some(program) = &mut self.program {
            program.counted(metrics.clone());
        }
        self
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
                // Requests carry a token, connections do not.
                Ok(Identity { token: Some(Arc::from(token)), ..Identity::default() })
            }
            User::Certificate { certificate, key } => {
                let pair = certificate_pair(certificate, key)?;
                Ok(Identity { certificate: Some(Arc::new(pair)), token: None, generation })
            }
            // The program has run before this point.
            User::Exec(_) => Ok(Identity::default()),
        }
    }
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
                // A pair that is being replaced is complete in a moment; until then the old one is used.
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
            // The files may hold something newer.
            None => self.known.lock().unwrap_or_else(PoisonError::into_inner).looked = None,
        }
    }
}

/// The identity of the current pair: the certificate that the cluster has signed last.
#[derive(Clone, Debug)]
pub struct PairIdentity(CurrentPair);

impl PairIdentity {
    /// The identity of whichever pair `pair` presents.
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
            // Without a certificate the server would treat the kubelet as anonymous.
            (_, None) => Err(ConnectError::NoCertificate),
        }
    }

    fn at_start(&self) -> Result<Identity, ConnectError> {
        Ok(self.identity().unwrap_or_default())
    }

    fn refresh(&self) -> BoxFuture<'_, Result<(), ConnectError>> {
        Box::pin(async {
            // The outcome is ignored: a missing certificate is reported by `identity`.
            let _ = tokio::time::timeout(FIRST_WAIT, self.0.wait()).await;
            Ok(())
        })
    }

    fn changes(&self) -> Option<BoxStream<'static, ()>> {
        Some(self.0.changes())
    }
}
