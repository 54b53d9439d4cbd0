//! The credentials of a kubeconfig, as the kubelet itself reads one.

use std::path::Path;

use bridge_kube::{Kubeconfig, Pem, User};

use super::{ConnectError, read};
use crate::client::tls::{ClientPair, Trust};
use crate::client::{Token, file};

/// What a kubeconfig says of its cluster's authorities and its user. That its server's certificate is not to be checked, or has
/// another name, says nothing of a kubelet's.
#[derive(Default)]
pub struct Known {
    /// The authorities of the cluster.
    pub authorities: Option<Trust>,
    /// The user's certificate.
    pub pair: Option<ClientPair>,
    /// The user's token.
    pub token: Option<Token>,
}

/// Reads a kubeconfig.
///
/// # Errors
/// It cannot be used, with the file and the field.
pub fn known(path: &Path, context: Option<&str>) -> Result<Known, ConnectError> {
    let unusable = ConnectError::Unusable;
    let text = String::from_utf8(read("--kubeconfig", path)?);
    let text = text.map_err(|_| unusable(format!("--kubeconfig {}: no UTF-8", path.display())))?;
    let config =
        Kubeconfig::read_context(path, &text, context).map_err(|error| unusable(error.to_string()))?;
    let of = |field: &str, pem: &Pem| bytes(path, field, pem);
    let authorities = config.certificate_authority.as_ref();
    let authorities = authorities.map(|pem| {
        let from = named(path, "certificate-authority", pem);
        of("certificate-authority", pem).map(|pem| Trust::Authorities { pem, from })
    });
    let mut known = Known { authorities: authorities.transpose()?, ..Known::default() };
    let at = |why: String| unusable(format!("kubeconfig {}: {why}", path.display()));
    match &config.user {
        User::Anonymous => {}
        User::Certificate { certificate, key } => {
            let from = named(path, "client-certificate", certificate);
            let (certificate, key) = (of("client-certificate", certificate)?, of("client-key", key)?);
            known.pair = Some(ClientPair { certificate, key, from });
        }
        User::Token(token) => {
            known.token = Some(Token::text(token).map_err(|why| at(format!("token: {why}")))?)
        }
        User::TokenFile(file) => {
            known.token = Some(Token::file(file).map_err(|why| at(format!("tokenFile: {why}")))?);
        }
        User::Exec(_) => {
            let instead = "pass --token-file, or --client-certificate and --client-key";
            return Err(at(format!("exec: credential plugins are not supported: {instead}")));
        }
    }
    Ok(known)
}

fn bytes(path: &Path, field: &str, pem: &Pem) -> Result<Vec<u8>, ConnectError> {
    match pem {
        Pem::Inline(bytes) => Ok(bytes.clone()),
        Pem::File(named) => file::read(named)
            .map_err(|why| ConnectError::Unusable(format!("kubeconfig {}: {field}: {why}", path.display()))),
    }
}

/// Where a field's PEM text stands, for errors.
fn named(path: &Path, field: &str, pem: &Pem) -> String {
    match pem {
        Pem::Inline(_) => format!("kubeconfig {}: {field}-data", path.display()),
        Pem::File(file) => format!("kubeconfig {}: {field} {}", path.display(), file.display()),
    }
}
