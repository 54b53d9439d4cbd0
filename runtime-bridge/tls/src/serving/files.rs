//! The files of the HTTPS server: its certificate and key, and the authorities of client certificates.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};

use super::ServingError;
use crate::certificates::CurrentPair;

/// The largest certificate file that is read.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// How long a self-signed certificate is valid, days.
const SELF_SIGNED_DAYS: i64 = 365;

/// The source of the server's certificate.
#[derive(Clone, Debug)]
pub enum CertificateSource {
    /// `tlsCertFile` and `tlsPrivateKeyFile`.
    Files {
        /// PEM file with the certificate and its chain.
        certificate: PathBuf,
        /// PEM file with the key.
        key: PathBuf,
    },
    /// `kubelet.crt` and `kubelet.key` in a directory, self-signed and written when they are missing.
    SelfSigned {
        /// `--cert-dir`.
        directory: PathBuf,
        /// The node's host name.
        host: String,
    },
    /// The certificate that the cluster has signed: the pair that is current at each handshake.
    Issued(CurrentPair),
}

impl CertificateSource {
    /// The paths of certificate and key, unless the cluster issues them.
    pub fn files(&self) -> Option<(PathBuf, PathBuf)> {
        match self {
            Self::Files { certificate, key } => Some((certificate.clone(), key.clone())),
            Self::SelfSigned { directory, .. } => {
                Some((directory.join("kubelet.crt"), directory.join("kubelet.key")))
            }
            Self::Issued(_) => None,
        }
    }
}

/// The contents of all files that the server's TLS needs.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Material {
    /// The certificate and its key, unless the cluster issues them.
    pub pair: Option<(Vec<u8>, Vec<u8>)>,
    pub client_ca: Option<Vec<u8>>,
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, ServingError> {
    use std::io::Read;
    let failed = |error| ServingError::Read { path: path.to_owned(), error };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

pub(super) fn material(
    source: &CertificateSource,
    client_ca: Option<&Path>,
) -> Result<Material, ServingError> {
    let pair = source.files().map(|(certificate, key)| Ok((read(&certificate)?, read(&key)?)));
    Ok(Material { pair: pair.transpose()?, client_ca: client_ca.map(read).transpose()? })
}

/// Writes the self-signed certificate unless both of its files exist. `now` is in seconds of Unix time.
pub(super) fn ensure(source: &CertificateSource, now: i64) -> Result<(), ServingError> {
    let CertificateSource::SelfSigned { directory, host } = source else { return Ok(()) };
    let Some((certificate, key)) = source.files() else { return Ok(()) };
    match (certificate.exists(), key.exists()) {
        (true, true) => return Ok(()),
        (false, false) => {}
        (true, false) => return Err(ServingError::Alone { there: certificate, missing: key }),
        (false, true) => return Err(ServingError::Alone { there: key, missing: certificate }),
    }
    std::fs::create_dir_all(directory)
        .map_err(|error| ServingError::Write { path: directory.clone(), error })?;
    let (certificate_pem, key_pem) = self_signed(host, now)?;
    // Both files are written completely before either gets its name: a kubelet that is killed leaves a pair or nothing,
    // except in the moment between the two renames.
    let (key_file, certificate_file) =
        (written(&key, key_pem.as_bytes())?, written(&certificate, certificate_pem.as_bytes())?);
    let named = |from: PathBuf, to: PathBuf| {
        std::fs::rename(from, &to).map_err(|error| ServingError::Write { path: to, error })
    };
    named(key_file, key)?;
    named(certificate_file, certificate)
}

fn self_signed(host: &str, now: i64) -> Result<(String, String), ServingError> {
    let made = |error: rcgen::Error| ServingError::Made(error.to_string());
    let mut params = CertificateParams::new(vec![host.to_owned()]).map_err(made)?;
    params.distinguished_name.push(DnType::CommonName, format!("{host}@{now}"));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let day = |seconds: i64| {
        let date = jiff::Timestamp::from_second(seconds)
            .map_err(|error| ServingError::Made(error.to_string()))?
            .to_zoned(jiff::tz::TimeZone::UTC)
            .date();
        let part = |number: i8| u8::try_from(number).unwrap_or(1);
        Ok(rcgen::date_time_ymd(i32::from(date.year()), part(date.month()), part(date.day())))
    };
    params.not_before = day(now)?;
    params.not_after = day(now + SELF_SIGNED_DAYS * 24 * 3600)?;
    let key = KeyPair::generate().map_err(made)?;
    let certificate = params.self_signed(&key).map_err(made)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// Writes a temporary file beside its destination, readable by root alone; returns the temporary path.
fn written(path: &Path, bytes: &[u8]) -> Result<PathBuf, ServingError> {
    let failed = |error| ServingError::Write { path: path.to_owned(), error };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.tmp"));
    let _ = std::fs::remove_file(&temporary);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(temporary)
}
