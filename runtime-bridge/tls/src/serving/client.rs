//! Client certificates: requested in the handshake, verified for each request.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The certificates that a client sent, its own first; empty if it sent none.
pub type Chain = Arc<[CertificateDer<'static>]>;

/// The user that a client certificate names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateIdentity {
    /// The common name: the user.
    pub name: String,
    /// The organisations: the groups.
    pub organizations: Vec<String>,
    /// SHA-256 of the certificate, lower-case hexadecimal.
    pub sha256: String,
    /// How long the certificate is good yet.
    pub left: Duration,
}

/// The result of verifying a client's certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    /// There is none, none was requested, or it names no user.
    Absent,
    /// The client is this user.
    Valid(CertificateIdentity),
    /// The certificates are not trusted, for this reason.
    Refused(String),
}

/// A verifier that trusts certificates signed by the authorities of a PEM file.
pub(super) fn verifier(
    pem: &[u8],
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("not PEM: {error:?}"))?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() {
        return Err("no certificate in it".to_owned());
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| error.to_string())
}

/// The most certificates between a client's own and an authority that are looked at. A stranger chooses them, and what looking
/// at them costs grows with the factorial of how many have one name.
const BETWEEN_MAX: usize = 4;

pub(super) fn identify(
    verifier: Option<&dyn ClientCertVerifier>,
    chain: &Chain,
    now: jiff::Timestamp,
) -> ClientCertificate {
    let (Some(verifier), Some((own, between))) = (verifier, chain.split_first()) else {
        return ClientCertificate::Absent;
    };
    if between.len() > BETWEEN_MAX {
        let reason =
            format!("it comes with {} others, and at most {BETWEEN_MAX} are looked at", between.len());
        return ClientCertificate::Refused(reason);
    }
    let since = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0));
    if let Err(error) = verifier.verify_client_cert(own, between, UnixTime::since_unix_epoch(since)) {
        return ClientCertificate::Refused(error.to_string());
    }
    match named(own, now) {
        Ok(Some(identity)) => ClientCertificate::Valid(identity),
        Ok(None) => ClientCertificate::Absent,
        Err(reason) => ClientCertificate::Refused(reason),
    }
}

fn named(
    certificate: &CertificateDer<'_>,
    now: jiff::Timestamp,
) -> Result<Option<CertificateIdentity>, String> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| error.to_string())?;
    let subject = parsed.subject();
    // A common name that is no text names no user; the last common name counts, as upstream.
    let name = subject.iter_common_name().filter_map(|one| one.as_str().ok()).last().unwrap_or_default();
    if name.is_empty() {
        return Ok(None);
    }
    let organizations = subject.iter_organization().filter_map(|one| one.as_str().ok().map(str::to_owned));
    let sha256 = Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect();
    let left = parsed.validity().not_after.timestamp().saturating_sub(now.as_second());
    let left = Duration::from_secs(u64::try_from(left).unwrap_or(0));
    let organizations = organizations.collect();
    Ok(Some(CertificateIdentity { name: name.to_owned(), organizations, sha256, left }))
}

/// Requests a client certificate and accepts any, once the client has proved that it has the key.
#[derive(Debug)]
pub(super) struct Asking {
    provider: Arc<CryptoProvider>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

impl Asking {
    pub(super) fn new(provider: Arc<CryptoProvider>, verifier: Option<Arc<dyn ClientCertVerifier>>) -> Self {
        Self { provider, verifier }
    }
}

impl ClientCertVerifier for Asking {
    fn offer_client_auth(&self) -> bool {
        self.verifier.is_some()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.as_ref().map_or(&[], |verifier| verifier.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        // The chain is verified for each request instead, where a refusal can be answered.
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
