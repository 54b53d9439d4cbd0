//! The kubeconfig that a node writes for itself after its first certificate was signed.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::super::error::ConnectError;
use super::{Kubeconfig, Pem, User};
use bridge_tls::certificates::{CertificateError, KeyPem, Pair, write_private};

/// A text in double quotes, as YAML and JSON write it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl Kubeconfig {
    /// The client certificate with its key; `None` if the user has other credentials.
    ///
    /// # Errors
    /// A file cannot be read, or certificate and key do not belong together.
    pub fn client_pair(&self) -> Result<Option<Pair>, ConnectError> {
        let Some((certificate, key, named)) = self.client_pem()? else { return Ok(None) };
        let read = Pair::read(&certificate, key.text().as_bytes(), &named);
        read.map(Some).map_err(|error| ConnectError::file(&named, error.to_string()))
    }

    /// The client certificate and its key as PEM, with the certificate's path.
    ///
    /// # Errors
    /// A file cannot be read, or holds no key.
    pub fn client_pem(&self) -> Result<Option<(Vec<u8>, KeyPem, std::path::PathBuf)>, ConnectError> {
        let User::Certificate { certificate, key } = &self.user else { return Ok(None) };
        let field = "client-key";
        let text = KeyPem::read(&key.bytes(field)?, key.path().unwrap_or(Path::new(field)));
        let text = text.map_err(|error| key.wrong(field, error))?;
        let field = "client-certificate";
        let named = certificate.path().map_or_else(|| format!("{field}-data").into(), Path::to_owned);
        Ok(Some((certificate.bytes(field)?, text, named)))
    }

    /// The paths of certificate and key, if they are files.
    pub fn client_files(&self) -> Option<(&Path, &Path)> {
        match &self.user {
            User::Certificate { certificate, key } => certificate.path().zip(key.path()),
            _ => None,
        }
    }

    /// A kubeconfig for the same server whose user is the pair in a file.
    pub fn text_with(&self, pair: &Path) -> String {
        let mut cluster = format!("    server: {}\n", quoted(self.server.to_string().trim_end_matches('/')));
        match &self.certificate_authority {
            Some(Pem::File(path)) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                cluster += &format!("    certificate-authority: {}\n", quoted(&path.display().to_string()));
            }
            Some(Pem::Inline(bytes)) => {
                cluster += &format!("    certificate-authority-data: {}\n", STANDARD.encode(bytes));
            }
            None => {}
        }
        if self.insecure_skip_tls_verify {
            cluster += "    insecure-skip-tls-verify: true\n";
        }
        if let Some(name) = &self.tls_server_name {
            cluster += &format!("    tls-server-name: {}\n", quoted(name));
        }
        let pair = quoted(&pair.display().to_string());
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: default-cluster\n  cluster:\n{cluster}\
             contexts:\n- name: default-context\n  context:\n    cluster: default-cluster\n    \
             namespace: default\n    user: default-auth\ncurrent-context: default-context\nusers:\n\
             - name: default-auth\n  user:\n    client-certificate: {pair}\n    client-key: {pair}\n"
        )
    }

    /// Writes [`Kubeconfig::text_with`] to a file, completely or not at all, readable by root alone. Blocks.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_with(&self, pair: &Path, path: &Path) -> Result<(), CertificateError> {
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            std::fs::create_dir_all(directory).map_err(|error| CertificateError::Io {
                operation: "create",
                path: directory.to_owned(),
                reason: error.to_string(),
            })?;
        }
        write_private(path, self.text_with(pair).as_bytes())
    }
}
