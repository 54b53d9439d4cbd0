//! A certificate store in memory, and an authority that signs every request.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, ready};
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, IsCa, Issuer, KeyPair,
};

use super::{CertificateError, CertificateStore, KeyPem, Pair};

#[derive(Debug, Default)]
struct State {
    pair: Option<Arc<Pair>>,
    saves: u64,
    failures: VecDeque<CertificateError>,
}

/// Keeps a pair in memory, and fails on demand. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct FakeCertificates {
    state: Arc<Mutex<State>>,
}

impl FakeCertificates {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the next save fail, as with a full disk.
    pub fn fail_next(&self) {
        let path = "/var/lib/kubelet/pki/kubelet-client-current.pem".into();
        let reason = "No space left on device".to_owned();
        self.locked().failures.push_back(CertificateError::Io { operation: "write", path, reason });
    }

    /// The number of pairs saved so far.
    pub fn saves(&self) -> u64 {
        self.locked().saves
    }

    /// The current pair.
    pub fn pair(&self) -> Option<Arc<Pair>> {
        self.locked().pair.clone()
    }
}

impl CertificateStore for FakeCertificates {
    fn load(&self, _: Timestamp) -> BoxFuture<'static, Result<Option<Arc<Pair>>, CertificateError>> {
        Box::pin(ready(Ok(self.pair())))
    }

    fn save(
        &self,
        certificate: &[u8],
        key: &KeyPem,
        _: Timestamp,
    ) -> BoxFuture<'static, Result<Arc<Pair>, CertificateError>> {
        let mut state = self.locked();
        let saved = match state.failures.pop_front() {
            Some(error) => Err(error),
            None => Pair::read(certificate, key.text().as_bytes(), Path::new("the signed certificate")),
        };
        let saved = saved.map(Arc::new);
        if let Ok(pair) = &saved {
            state.pair = Some(pair.clone());
            state.saves += 1;
        }
        Box::pin(ready(saved))
    }
}

/// A certificate authority for tests.
#[derive(Debug)]
pub struct FakeAuthority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Default for FakeAuthority {
    fn default() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().expect("random numbers");
        let pem = params.self_signed(&key).expect("an authority").pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }
}

impl FakeAuthority {
    /// The authority's certificate, PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Signs a PEM request; the certificate is valid from `from` for `lifetime`.
    ///
    /// # Panics
    /// When `request` is no certificate request.
    pub fn sign(&self, request: &str, from: Timestamp, lifetime: Duration) -> String {
        let mut asked = CertificateSigningRequestParams::from_pem(request).expect("a request");
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        let since = Duration::from_secs(u64::try_from(from.as_second()).expect("a time after 1970"));
        asked.params.not_before = epoch + since;
        asked.params.not_after = epoch + since + lifetime;
        asked.signed_by(&self.issuer).expect("a certificate").pem()
    }
}
