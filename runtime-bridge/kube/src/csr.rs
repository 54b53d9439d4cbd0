//! Certificates signed by the cluster: a CertificateSigningRequest is created and awaited.

use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use crate::{ApiError, CertificateRequests, Followed, Select};
use bridge_tls::certificates::{CertificateError, KeyPem, Pair, Purpose, Subject};

/// Why the cluster has not signed a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CsrError {
    /// The request could not be made.
    #[error(transparent)]
    Made(#[from] CertificateError),
    /// The API server did not accept the request.
    #[error("cannot create certificate signing request: {0}")]
    NotCreated(ApiError),
    /// A request of that name exists and cannot be read.
    #[error("cannot retrieve certificate signing request: {0}")]
    NotRetrieved(ApiError),
    /// A request of that name exists for another key or subject.
    #[error("retrieved csr is not compatible: {0}")]
    Incompatible(String),
    /// The request was not signed.
    #[error("cannot watch on the certificate signing request: {0}")]
    NotSigned(String),
}

impl CsrError {
    /// The API server's error, if that is the reason.
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            Self::NotCreated(error) | Self::NotRetrieved(error) => Some(error),
            _ => None,
        }
    }
}

/// A request that the API server has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

fn requested(csr: &CertificateSigningRequest) -> Requested {
    let meta = &csr.metadata;
    Requested { name: meta.name.clone().unwrap_or_default(), uid: meta.uid.clone().unwrap_or_default() }
}

/// Requests a certificate. With a name, an existing request of that name for the same key and subject is reused;
/// without one the API server generates a name.
///
/// # Errors
/// The request could not be made, or the API server did not accept it.
pub async fn request_certificate(
    api: &dyn CertificateRequests,
    key: &KeyPem,
    subject: &Subject,
    purpose: Purpose,
    name: Option<&str>,
) -> Result<Requested, CsrError> {
    let csr = CertificateSigningRequest {
        metadata: ObjectMeta {
            name: name.map(str::to_owned),
            generate_name: name.is_none().then(|| "csr-".to_owned()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(key.request(subject)?.into_bytes()),
            signer_name: purpose.signer().to_owned(),
            usages: Some(purpose.usages().map(str::to_owned).to_vec()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let error = match api.create(&csr).await {
        Ok(made) => return Ok(requested(&made)),
        Err(error) => error,
    };
    let Some(name) = name.filter(|_| error.is_already_exists()) else {
        return Err(CsrError::NotCreated(error));
    };
    tracing::info!(csr = name, "csr for this node already exists, reusing");
    let there: CertificateSigningRequest = api.get(name).await.map_err(CsrError::NotRetrieved)?;
    compatible(&there, &csr, key).map_err(CsrError::Incompatible)?;
    tracing::info!(csr = name, "csr for this node is still valid");
    Ok(requested(&there))
}

/// Whether the existing request is for the same key, subject and signer.
fn compatible(
    there: &CertificateSigningRequest,
    ours: &CertificateSigningRequest,
    key: &KeyPem,
) -> Result<(), String> {
    let parsed = |csr: &CertificateSigningRequest, which: &str| {
        CertificateSigningRequestDer::from_pem_slice(&csr.spec.request.0)
            .map_err(|error| format!("unable to parse {which} csr: {error}"))
    };
    let (new, original) = (parsed(there, "new")?, parsed(ours, "original")?);
    let read = |der: &CertificateSigningRequestDer<'_>| {
        let (_, csr) = X509CertificationRequest::from_der(der).map_err(|error| error.to_string())?;
        let info = csr.certification_request_info;
        Ok::<_, String>((info.subject.to_string(), info.subject_pki.raw.to_vec()))
    };
    let ((new, public), (original, _)) = (read(&new)?, read(&original)?);
    if new != original {
        return Err(format!("csr subjects differ: new: {new}, orig: {original}"));
    }
    if there.spec.signer_name != ours.spec.signer_name {
        let (new, original) = (&there.spec.signer_name, &ours.spec.signer_name);
        return Err(format!("csr signerNames differ: new {new:?}, orig: {original:?}"));
    }
    if public != key.public().map_err(|error| error.to_string())? {
        return Err("error validating signature new CSR against old key: it is by another key".to_owned());
    }
    let signed = there.status.as_ref().and_then(|status| status.certificate.as_ref());
    if let Some(signed) = signed.filter(|signed| !signed.0.is_empty()) {
        let named = std::path::Path::new("status.certificate");
        let pair = Pair::read(&signed.0, key.text().as_bytes(), named)
            .map_err(|error| format!("error parsing signed certificate for CSR: {error}"))?;
        if pair.is_expired(jiff::Timestamp::now()) {
            let end = pair.leaf.not_after;
            return Err(format!("one of the certificates for the CSR has expired: {end}"));
        }
    }
    Ok(())
}

/// Waits, without a deadline, until the cluster has signed the request; returns the certificate, PEM.
///
/// # Errors
/// The request was denied, has failed, is gone or was replaced by another one.
pub async fn wait_for_certificate(
    api: &dyn CertificateRequests,
    requested: &Requested,
) -> Result<Vec<u8>, CsrError> {
    let select = Select::named(None, &requested.name);
    let mut news = api.follow(select);
    let deleted = || CsrError::NotSigned(format!("csr {:?} was deleted", requested.name));
    while let Some(item) = news.next().await {
        let csr = match item {
            Followed::All(all) => all.into_iter().next().ok_or_else(deleted)?,
            Followed::Changed(csr) => csr,
            Followed::Gone(_) => return Err(deleted()),
            Followed::Unreadable(_) => continue,
            Followed::Trouble(error) => {
                tracing::debug!(%error, "Error fetching v1 certificate signing request");
                continue;
            }
        };
        if let Some(certificate) = issued(&csr, requested)? {
            tracing::info!(csr = requested.name, "Certificate signing request is issued");
            return Ok(certificate);
        }
    }
    Err(CsrError::NotSigned("the I/O runtime has shut down".to_owned()))
}

fn issued(csr: &CertificateSigningRequest, requested: &Requested) -> Result<Option<Vec<u8>>, CsrError> {
    if csr.metadata.uid.as_deref() != Some(&requested.uid) {
        return Err(CsrError::NotSigned(format!("csr {:?} changed UIDs", requested.name)));
    }
    let Some(status) = &csr.status else { return Ok(None) };
    let mut approved = false;
    for condition in status.conditions.iter().flatten() {
        let said = || {
            let said = |text: &Option<String>| text.clone().unwrap_or_default();
            format!("reason: {}, message: {}", said(&condition.reason), said(&condition.message))
        };
        match condition.type_.as_str() {
            "Denied" => {
                let why = format!("certificate signing request is denied, {}", said());
                return Err(CsrError::NotSigned(why));
            }
            "Failed" => {
                let why = format!("certificate signing request failed, {}", said());
                return Err(CsrError::NotSigned(why));
            }
            "Approved" => approved = true,
            _ => {}
        }
    }
    let certificate = status.certificate.as_ref().filter(|certificate| !certificate.0.is_empty());
    Ok(certificate.filter(|_| approved).map(|certificate| certificate.0.clone()))
}
