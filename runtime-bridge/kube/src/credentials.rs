//! Who the kubelet is to the API server, which may change while it runs: a rotated certificate, a refreshed token.

use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::error::ConnectError;
use super::kubeconfig::Pem;

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
