//! The certificate authorities that this machine trusts.
//!
//! `rustls-native-certs` reads them. Their paths are chosen here as Go chooses them, since administrators set
//! `SSL_CERT_FILE` and `SSL_CERT_DIR` for Go programs: each variable replaces only its own half of the usual paths,
//! while in the crate either one replaces both halves.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_native_certs::load_certs_from_paths;

/// Where distributions keep all authorities in one file: Debian, Fedora, SUSE, OpenELEC, RHEL, Alpine.
const FILES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Where distributions keep one file per authority: Debian and SUSE, Fedora.
const DIRECTORIES: [&str; 2] = ["/etc/ssl/certs", "/etc/pki/tls/certs"];

/// The paths of trusted authorities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Files with many authorities; only the first that exists is read.
    pub files: Vec<PathBuf>,
    /// Directories of files with authorities; all are read.
    pub directories: Vec<PathBuf>,
}

impl Places {
    /// The usual paths, as `SSL_CERT_FILE` and `SSL_CERT_DIR` change them.
    pub fn of_this_machine() -> Self {
        Self::of(std::env::var_os("SSL_CERT_FILE"), std::env::var_os("SSL_CERT_DIR"))
    }

    fn of(file: Option<OsString>, directories: Option<OsString>) -> Self {
        let usual = |places: &[&str]| places.iter().map(PathBuf::from).collect();
        let given = |value: Option<OsString>| value.filter(|value| !value.is_empty());
        Self {
            files: given(file).map_or_else(|| usual(&FILES), |file| vec![file.into()]),
            directories: given(directories)
                .map_or_else(|| usual(&DIRECTORIES), |all| std::env::split_paths(&all).collect()),
        }
    }
}

/// The authorities at these paths.
///
/// # Errors
/// There are none; the text is for people.
pub fn store(places: &Places) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let mut problems = Vec::new();
    let file = places.files.iter().find(|file| file.exists());
    let file = file.map(|file| load_certs_from_paths(Some(file), None));
    let directories = places.directories.iter().filter(|directory| directory.exists());
    let directories = directories.map(|directory| load_certs_from_paths(None, Some(directory)));
    for found in file.into_iter().chain(directories) {
        problems.extend(found.errors.first().map(ToString::to_string));
        roots.add_parsable_certificates(found.certs);
    }
    if roots.is_empty() {
        let looked = places.files.iter().chain(&places.directories);
        let looked: Vec<String> = looked.map(|place| place.display().to_string()).collect();
        let why = problems.first().map_or_else(String::new, |problem| format!(": {problem}"));
        return Err(format!("no certificate authorities in {}{why}", looked.join(" or ")));
    }
    Ok(roots)
}

/// A TLS client configuration that trusts the authorities at these paths.
///
/// # Errors
/// The same as [`store`].
pub fn config(places: &Places) -> Result<Arc<ClientConfig>, String> {
    let roots = store(places)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has cipher suites for TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variable_replaces_its_own_half() {
        let usual = Places::of(None, Some("".into()));
        assert_eq!((usual.files.len(), usual.directories.len()), (FILES.len(), DIRECTORIES.len()));
        let file = Places::of(Some("/a.pem".into()), None);
        assert_eq!(file, Places { files: vec!["/a.pem".into()], ..usual.clone() });
        let directories = Places::of(None, Some("/a:/b".into()));
        assert_eq!(directories, Places { directories: vec!["/a".into(), "/b".into()], ..usual });
    }

    #[test]
    fn files_and_directories_count_and_what_is_no_certificate_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| directory.path().join(name);
        let pem = |name: &str| {
            let key = rcgen::KeyPair::generate().unwrap();
            let mut parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
            parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
            parameters.self_signed(&key).unwrap().pem()
        };
        std::fs::create_dir(place("many")).unwrap();
        std::fs::write(place("one.pem"), pem("a")).unwrap();
        std::fs::write(place("many/any-name"), pem("b")).unwrap();
        std::fs::write(place("many/README"), "text").unwrap();
        let places =
            Places { files: vec![place("absent"), place("one.pem")], directories: vec![place("many")] };
        assert_eq!(store(&places).unwrap().len(), 2);
        let none = Places { files: vec![place("absent"), place("many/README")], directories: vec![] };
        let error = store(&none).unwrap_err();
        assert!(error.contains("absent") && error.contains("many/README"), "{error}");
    }
}
