//! The kubelet's identity towards the API server, which may change while it runs: a rotated certificate, a refreshed
//! token.

use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::time::ASN1Time;

use super::error::ConnectError;
use super::kubeconfig::Pem;

/// The credentials of a connection and its requests.
#[derive(Clone, Default)]
pub struct Identity {
    /// The certificate with its chain, and its key.
    pub certificate: Option<Arc<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>>,
    /// The token, sent as `Authorization: Bearer`.
    pub token: Option<Arc<str>>,
    /// Grows with every new certificate: connections with an older one are not used any more.
    pub generation: u64,
}

impl Identity {
    /// Begin and end of the certificate; none without one, or if it cannot be read.
    pub(super) fn validity(&self) -> Option<(Timestamp, Timestamp)> {
        let leaf = self.certificate.as_ref()?.0.first()?;
        let (_, leaf) = X509Certificate::from_der(leaf).ok()?;
        let at = |time: ASN1Time| Timestamp::from_second(time.timestamp()).ok();
        Some((at(leaf.validity().not_before)?, at(leaf.validity().not_after)?))
    }

    /// Whether these are the same credentials, and not ones that were had anew since.
    pub(super) fn is_still(&self, present: &Self) -> bool {
        let own = |identity: &Self| {
            (identity.token.as_ref().map(Arc::as_ptr), identity.certificate.as_ref().map(Arc::as_ptr))
        };
        own(self) == own(present)
    }
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

/// The source of the identity at the moment.
pub trait IdentitySource: Send + Sync + Debug {
    /// The identity for the next request. Called before every request, so it must be quick.
    ///
    /// # Errors
    /// No usable identity exists; the error names the file.
    fn identity(&self) -> Result<Identity, ConnectError>;

    /// The identity as far as it is known before the first request.
    ///
    /// # Errors
    /// An existing part of the identity cannot be used.
    fn at_start(&self) -> Result<Identity, ConnectError> {
        self.identity()
    }

    /// Renews an identity that takes time to get. Awaited on the I/O runtime before every request.
    ///
    /// # Errors
    /// The identity cannot be had.
    fn refresh(&self) -> BoxFuture<'_, Result<(), ConnectError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Tells the source that the server has answered 401 to a request with the present identity.
    fn refused(&self) {}

    /// A stream with an item for each change; `None` if the source does not report changes.
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

/// A certificate and its key, checked to belong together.
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
