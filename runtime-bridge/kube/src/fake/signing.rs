//! Certificate signing requests, handled as the cluster's controllers and administrators handle them.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use serde_json::{Value, json};

use super::FakeApi;
use crate::Patch;
use bridge_tls::certificates::FakeAuthority;

impl FakeApi {
    fn settle(&self, csr: &CertificateSigningRequest, kind: &str, reason: &str, message: &str) {
        let name = csr.metadata.name.as_deref().unwrap_or_default();
        let condition = json!({ "type": kind, "status": "True", "reason": reason, "message": message });
        let conditions = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
        let subresource = if kind == "Failed" { "status" } else { "approval" };
        self.change::<CertificateSigningRequest>(None, name, Some(subresource), &conditions);
    }

    /// The requests that are neither signed nor refused, sorted by name.
    pub fn pending_requests(&self) -> Vec<CertificateSigningRequest> {
        let answered = |csr: &CertificateSigningRequest| {
            csr.status
                .as_ref()
                .is_some_and(|status| status.conditions.is_some() || status.certificate.is_some())
        };
        self.list::<CertificateSigningRequest>().into_iter().filter(|csr| !answered(csr)).collect()
    }

    /// Approves and signs every pending request; the certificates are valid for `lifetime` from now. Returns the
    /// requests' names.
    pub fn sign_requests(&self, authority: &FakeAuthority, lifetime: Duration) -> Vec<String> {
        let now = self.shared.locked().state.clock.now();
        let signed = self.pending_requests().into_iter().map(|csr| {
            self.settle(&csr, "Approved", "AutoApproved", "approved by the test");
            let name = csr.metadata.name.clone().unwrap_or_default();
            let request = String::from_utf8_lossy(&csr.spec.request.0).into_owned();
            let certificate = ByteString(authority.sign(&request, now, lifetime).into_bytes());
            let certificate: Value = serde_json::to_value(certificate).expect("bytes are JSON");
            let status = Patch::Merge(json!({ "status": { "certificate": certificate } }));
            self.change::<CertificateSigningRequest>(None, &name, Some("status"), &status);
            name
        });
        signed.collect()
    }

    /// Refuses every pending request: `kind` is `Denied` or `Failed`.
    pub fn refuse_requests(&self, kind: &str, reason: &str, message: &str) {
        self.pending_requests().iter().for_each(|csr| self.settle(csr, kind, reason, message));
    }
}
