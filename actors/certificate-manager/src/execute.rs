//! One attempt to get a certificate: key, request, waiting for the signature, disk.

use std::sync::Arc;
use std::time::Duration;

use bridge_io::clock::Clock;
use bridge_kube::{CertificateRequests, request_certificate, wait_for_certificate};
use bridge_tls::certificates::{CertificateStore, KeyPem, Pair, Purpose, Subject};

use crate::rotation::answers;

/// A request that has not been signed after this long is given up.
const SIGNED_WITHIN: Duration = Duration::from_secs(15 * 60);
/// How long an attempt may take: that, some calls with deadlines of their own, and the disk.
pub(crate) const RENEWED_WITHIN: Duration = Duration::from_secs(20 * 60);

/// The inputs of an attempt.
pub struct Renewal {
    pub api: Arc<dyn CertificateRequests>,
    pub store: Arc<dyn CertificateStore>,
    pub clock: Arc<dyn Clock>,
    pub purpose: Purpose,
    pub subject: Subject,
}

/// Why there is no certificate.
#[derive(Debug)]
pub struct Failure {
    /// The step that failed.
    pub step: &'static str,
    /// The error.
    pub reason: String,
    /// Whether the API server answers, if the failure tells.
    pub answers: Option<bool>,
}

fn failure(step: &'static str) -> impl Fn(&dyn std::fmt::Display) -> Failure {
    move |reason| Failure { step, reason: reason.to_string(), answers: None }
}

/// Gets a new pair, which is on disk when this returns.
pub async fn renew(work: Renewal) -> Result<Arc<Pair>, Failure> {
    let made = failure("Unable to generate a certificate signing request");
    let key = KeyPem::generate().map_err(|error| made(&error))?;
    let requested = request_certificate(&*work.api, &key, &work.subject, work.purpose, None).await;
    let requested = requested.map_err(|error| Failure {
        step: "Failed while requesting a signed certificate from the control plane",
        reason: error.to_string(),
        answers: error.api().map(|error| answers(error.code)),
    })?;
    tracing::info!(csr = requested.name, "Certificate signing request created");
    let unsigned = failure("Certificate request was not signed");
    let signed = tokio::time::timeout(SIGNED_WITHIN, wait_for_certificate(&*work.api, &requested)).await;
    let signed = signed.map_err(|_| unsigned(&"timed out waiting for the condition"))?;
    let signed = signed.map_err(|error| unsigned(&error))?;
    let saved = work.store.save(&signed, &key, work.clock.now()).await;
    saved.map_err(|error| failure("Unable to store the new cert/key pair")(&error))
}
