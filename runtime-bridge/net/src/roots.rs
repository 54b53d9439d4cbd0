//! The authorities whose certificates this machine trusts: the file that distributions keep for all programs.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Where distributions keep it: Debian and Alpine, Fedora, SUSE, RHEL.
const FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
];

/// The files to look for, the first that is there counts; `SSL_CERT_FILE` replaces them.
pub fn files() -> Vec<PathBuf> {
    match std::env::var_os("SSL_CERT_FILE").filter(|file| !file.is_empty()) {
        Some(file) => vec![file.into()],
        None => FILES.iter().map(PathBuf::from).collect(),
    }
}

/// The authorities of the first file that is there; the error is for people.
pub fn store(files: &[PathBuf]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = files.iter().find(|file| file.exists()) {
        let shown = file.display();
        let certificates =
            CertificateDer::pem_file_iter(file).map_err(|error| format!("read {shown}: {error}"))?;
        let readable = certificates.filter_map(Result::ok);
        roots.add_parsable_certificates(readable);
    }
    if roots.is_empty() {
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        return Err(format!("no certificate authorities in {}", names.join(" or ")));
    }
    Ok(roots)
}

/// TLS that trusts them.
pub fn config(files: &[PathBuf]) -> Result<Arc<ClientConfig>, String> {
    let roots = store(files)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has cipher suites for TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
