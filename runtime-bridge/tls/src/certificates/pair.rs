//! A certificate with its key, and the pair that the kubelet presents at the moment.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use bridge_io::watch;
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::CertificateError;

/// The fields that the kubelet reads from a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The subject's common name.
    pub common_name: String,
    /// The subject's organisations.
    pub organizations: BTreeSet<String>,
    /// DNS names among the subject's alternative names.
    pub dns_names: BTreeSet<String>,
    /// IP addresses among the subject's alternative names.
    pub ips: BTreeSet<IpAddr>,
    /// The beginning of its validity.
    pub not_before: Timestamp,
    /// The end of its validity.
    pub not_after: Timestamp,
}

/// A certificate with its chain, and its key.
pub struct Pair {
    /// The pair in the form that a server needs.
    pub certified: Arc<CertifiedKey>,
    /// The pair in the form that a client needs: the certificate with its chain, and its key.
    pub client: Arc<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    /// The certificate's fields.
    pub leaf: Leaf,
    /// The earliest end of validity among the certificate and its chain.
    pub first_end: Timestamp,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("leaf", &self.leaf).finish_non_exhaustive()
    }
}

fn leaf(der: &CertificateDer<'_>) -> Result<Leaf, String> {
    let (_, parsed) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
    let at = |time: x509_parser::time::ASN1Time| {
        Timestamp::from_second(time.timestamp()).map_err(|error| error.to_string())
    };
    let subject = parsed.subject();
    let name = subject.iter_common_name().filter_map(|one| one.as_str().ok()).last().unwrap_or_default();
    let organizations = subject.iter_organization().filter_map(|one| one.as_str().ok());
    let mut leaf = Leaf {
        common_name: name.to_owned(),
        organizations: organizations.map(str::to_owned).collect(),
        dns_names: BTreeSet::new(),
        ips: BTreeSet::new(),
        not_before: at(parsed.validity().not_before)?,
        not_after: at(parsed.validity().not_after)?,
    };
    let names = parsed.subject_alternative_name().map_err(|error| error.to_string())?;
    for name in names.iter().flat_map(|names| &names.value.general_names) {
        match name {
            GeneralName::DNSName(name) => {
                leaf.dns_names.insert((*name).to_owned());
            }
            GeneralName::IPAddress(bytes) => {
                let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                leaf.ips.extend(v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)));
            }
            _ => {}
        }
    }
    Ok(leaf)
}

impl Pair {
    /// Reads a certificate with its chain and a key from PEM; both arguments may be the same bytes. `named` is their
    /// origin, for errors.
    ///
    /// # Errors
    /// The certificate or the key is missing, or they do not belong together.
    pub fn read(certificate: &[u8], key: &[u8], named: &Path) -> Result<Self, CertificateError> {
        let wrong = |reason: String| CertificateError::pair(named, reason);
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
        let chain = chain.map_err(|error| wrong(format!("not PEM: {error}")))?;
        let first = chain.first().ok_or_else(|| wrong("it holds no certificate".to_owned()))?;
        let leaf =
            leaf(first).map_err(|reason| wrong(format!("unable to parse certificate data: {reason}")))?;
        let ends = chain.iter().map(self::leaf).filter_map(Result::ok).map(|leaf| leaf.not_after);
        let first_end = ends.min().unwrap_or(leaf.not_after);
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| wrong(format!("it holds no private key: {error}")))?;
        let provider = rustls::crypto::ring::default_provider();
        let certified =
            CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider).map_err(|error| {
                wrong(match error {
                    rustls::Error::InconsistentKeys(_) => "the key is not that of the certificate".to_owned(),
                    other => other.to_string(),
                })
            })?;
        Ok(Self { certified: Arc::new(certified), client: Arc::new((chain, key)), leaf, first_end })
    }

    /// Whether the certificate's validity has ended at `now`.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now > self.leaf.not_after
    }
}

#[derive(Clone, Debug, Default)]
struct Shown {
    pair: Option<Arc<Pair>>,
    provisional: bool,
    is_withdrawn: bool,
    generation: u64,
}

impl Shown {
    fn presented(&self) -> Option<Arc<Pair>> {
        self.pair.clone().filter(|_| !self.is_withdrawn)
    }
}

/// The pair that is presented to peers at the moment, if there is one. Cheap to clone; clones share it. Written by
/// CertificateManager, read by the API client and the HTTPS server.
#[derive(Clone, Debug)]
pub struct CurrentPair {
    shown: watch::Sender<Shown>,
}

impl Default for CurrentPair {
    fn default() -> Self {
        Self { shown: watch::Sender::new(Shown::default()) }
    }
}

impl CurrentPair {
    /// Presents another pair from now on, or none. A provisional pair is to be replaced soon, however long it is valid.
    pub fn show(&self, pair: Option<Arc<Pair>>, provisional: bool) {
        self.shown.send_modify(|shown| {
            shown.generation += 1;
            shown.pair = pair;
            shown.provisional = provisional;
            shown.is_withdrawn = false;
        });
    }

    /// Presents the pair no longer, or again; returns whether that is a change. A pair that has expired by a clock that was ahead
    /// is good again once the clock is right.
    pub fn withdraw(&self, is_withdrawn: bool) -> bool {
        self.shown.send_if_modified(|shown| {
            let is_news = shown.pair.is_some() && shown.is_withdrawn != is_withdrawn;
            shown.generation += u64::from(is_news);
            shown.is_withdrawn = is_withdrawn;
            is_news
        })
    }

    /// The current pair, if there is one.
    pub fn get(&self) -> Option<Arc<Pair>> {
        self.shown.borrow().presented()
    }

    /// The current pair, or the one that was withdrawn.
    pub fn present_or_withdrawn(&self) -> Option<Arc<Pair>> {
        self.shown.borrow().pair.clone()
    }

    /// Whether the current pair is to be replaced soon.
    pub fn is_provisional(&self) -> bool {
        self.shown.borrow().provisional
    }

    /// The current pair with a number that differs for each pair.
    pub fn numbered(&self) -> (u64, Option<Arc<Pair>>) {
        let shown = self.shown.borrow();
        (shown.generation, shown.presented())
    }

    /// A stream with an item whenever another pair is presented.
    pub fn changes(&self) -> BoxStream<'static, ()> {
        let shown = self.shown.subscribe();
        futures::stream::unfold(shown, async |mut shown| {
            shown.changed().await.ok()?;
            Some(((), shown))
        })
        .boxed()
    }

    /// Waits until there is a pair.
    pub async fn wait(&self) {
        let mut shown = self.shown.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = shown.wait_for(|shown| shown.presented().is_some()).await;
    }
}
