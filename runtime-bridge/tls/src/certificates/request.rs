//! Private keys, and certificate signing requests for them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::string::Ia5String;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData, SanType};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use sha2::{Digest, Sha512_256};

use super::store::write_private;
use super::{CertificateError, Pair};

/// The two uses of the node's certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Identifies the kubelet as a client of the API server.
    Client,
    /// Identifies the kubelet's HTTPS server to its clients.
    Serving,
}

impl Purpose {
    /// The name of the cluster's signer for this purpose.
    pub fn signer(self) -> &'static str {
        match self {
            Self::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::Serving => "kubernetes.io/kubelet-serving",
        }
    }

    /// The key usages to request. An elliptic-curve key does not encipher keys.
    pub fn usages(self) -> [&'static str; 2] {
        match self {
            Self::Client => ["digital signature", "client auth"],
            Self::Serving => ["digital signature", "server auth"],
        }
    }

    /// The prefix of the names of its files.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Client => "kubelet-client",
            Self::Serving => "kubelet-server",
        }
    }
}

/// The host names and IP addresses that a certificate is to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// DNS names.
    pub dns: BTreeSet<String>,
    /// IP addresses.
    pub ips: BTreeSet<IpAddr>,
}

/// The subject of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// `system:node:NAME`.
    pub common_name: String,
    /// `system:nodes`.
    pub organization: String,
    /// The host names and addresses; empty for a client certificate.
    pub names: Names,
}

impl Subject {
    /// The subject of a node, as the API server's node authorizer expects it.
    pub fn node(name: &str, names: Names) -> Self {
        Self { common_name: format!("system:node:{name}"), organization: "system:nodes".to_owned(), names }
    }
}

/// A private key as PEM text.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPem(String);

impl std::fmt::Debug for KeyPem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyPem(…)")
    }
}

fn made(error: impl std::fmt::Display) -> CertificateError {
    CertificateError::Made(error.to_string())
}

impl KeyPem {
    /// A new key on the curve P-256.
    ///
    /// # Errors
    /// The operating system has no random numbers.
    pub fn generate() -> Result<Self, CertificateError> {
        Ok(Self(KeyPair::generate().map_err(made)?.serialize_pem()))
    }

    /// Reads a kept key from PEM; its text is kept as written. `named` is its origin, for errors.
    ///
    /// # Errors
    /// The text is no private key.
    pub fn read(pem: &[u8], named: &Path) -> Result<Self, CertificateError> {
        let wrong = |reason: String| CertificateError::pair(named, reason);
        PrivateKeyDer::from_pem_slice(pem)
            .map_err(|error| wrong(format!("it holds no private key: {error}")))?;
        let text = std::str::from_utf8(pem).map_err(|error| wrong(error.to_string()))?;
        Ok(Self(text.to_owned()))
    }

    /// The key in a file; a new key is written if the file is missing or holds no usable one.
    ///
    /// # Errors
    /// The file can be neither read nor written.
    pub fn of_file(path: &Path) -> Result<Self, CertificateError> {
        match std::fs::read(path) {
            Ok(bytes) => match Self::read(&bytes, path).and_then(|key| key.public().map(|_| key)) {
                Ok(key) => return Ok(key),
                Err(error) => {
                    tracing::warn!(%error, "The key that was kept is not usable; another one is made")
                }
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(CertificateError::io("read", path, &error)),
        }
        let key = Self::generate()?;
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)
                .map_err(|error| CertificateError::io("create", directory, &error))?;
        }
        write_private(path, key.0.as_bytes())?;
        Ok(key)
    }

    /// The key of a pair.
    ///
    /// # Errors
    /// The key is of a kind that cannot be used for another request.
    pub fn of(pair: &Pair) -> Result<Self, CertificateError> {
        Ok(Self(KeyPair::try_from(&pair.client.1).map_err(made)?.serialize_pem()))
    }

    /// The key as PEM text, which is secret.
    pub fn text(&self) -> &str {
        &self.0
    }

    fn pair(&self) -> Result<KeyPair, CertificateError> {
        KeyPair::from_pem(&self.0).map_err(made)
    }

    /// The public key (SubjectPublicKeyInfo, DER), as certificates and requests hold it.
    ///
    /// # Errors
    /// The key cannot sign.
    pub fn public(&self) -> Result<Vec<u8>, CertificateError> {
        Ok(self.pair()?.subject_public_key_info())
    }

    /// A certificate signing request for this key, PEM.
    ///
    /// # Errors
    /// A name in the subject that no certificate can hold.
    pub fn request(&self, subject: &Subject) -> Result<String, CertificateError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, subject.organization.clone());
        params.distinguished_name.push(DnType::CommonName, subject.common_name.clone());
        for name in &subject.names.dns {
            let name =
                Ia5String::try_from(name.as_str()).map_err(|error| made(format!("{name:?}: {error}")))?;
            params.subject_alt_names.push(SanType::DnsName(name));
        }
        params.subject_alt_names.extend(subject.names.ips.iter().copied().map(SanType::IpAddress));
        params.serialize_request(&self.pair()?).and_then(|request| request.pem()).map_err(made)
    }

    /// A name for the request that is derived from key, subject and usages, so that a restarted kubelet finds its
    /// request again.
    ///
    /// # Errors
    /// The key cannot sign.
    pub fn request_name(&self, subject: &Subject, usages: &[&str]) -> Result<String, CertificateError> {
        let mut hash = Sha512_256::new();
        let mut write = |data: &[u8]| {
            hash.update(URL_SAFE_NO_PAD.encode(data));
            // `|` is no letter of that alphabet, so that no byte can move from one part to the next.
            hash.update(b"|");
        };
        write(&self.public()?);
        write(subject.common_name.as_bytes());
        write(subject.organization.as_bytes());
        usages.iter().for_each(|usage| write(usage.as_bytes()));
        Ok(format!("node-csr-{}", URL_SAFE_NO_PAD.encode(hash.finalize())))
    }
}
