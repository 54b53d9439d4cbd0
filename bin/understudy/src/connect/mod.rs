//! The flags that name a kubelet and the caller's credentials, and the [`Server`] that they make.

mod kubeconfig;

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};

use crate::client::tls::{ClientPair, Trust};
use crate::client::{Address, Server, Tls, Token, file};
use kubeconfig::Known;

/// The read-only port of a kubelet on this machine.
const READ_ONLY: &str = "http://127.0.0.1:10255";
/// Its authenticated port.
const SECURED: &str = "https://127.0.0.1:10250";

/// Which kubelet to ask, and as which caller.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "The kubelet")]
pub struct ConnectArgs {
    /// Its read-only port, http://HOST:10255, or its authenticated port, https://HOST:10250; on this machine unless given
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub server: Option<Address>,
    /// The file with the caller's token
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    /// The caller's token; every process of the machine can read it there: --token-file is safe
    #[arg(long, value_name = "TOKEN", value_hint = ValueHint::Other)]
    pub token: Option<String>,
    /// The file with the caller's certificate
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "client_key")]
    pub client_certificate: Option<PathBuf>,
    /// The file with the key of that certificate
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "client_certificate")]
    pub client_key: Option<PathBuf>,
    /// The file with the authorities to trust; those of the kubeconfig, or of the machine, unless given
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with = "insecure_skip_tls_verify"
    )]
    pub certificate_authority: Option<PathBuf>,
    /// The name that the kubelet's certificate has to hold for; the host of the URL unless given
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Hostname)]
    pub tls_server_name: Option<String>,
    /// Accept any certificate: whatever answers there is shown the token
    #[arg(long)]
    pub insecure_skip_tls_verify: bool,
    /// The kubeconfig with the caller's credentials; its server is not asked
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; the current one unless given
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other, requires = "kubeconfig")]
    pub context: Option<String>,
}

/// Why a kubelet cannot be asked with these flags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Flags that do not fit together.
    #[error("{0}")]
    WrongUse(String),
    /// A file or a value that cannot be used.
    #[error("{0}")]
    Unusable(String),
}

impl ConnectError {
    /// Whether the command line is wrong, whatever the files hold.
    pub fn is_wrong_use(&self) -> bool {
        matches!(self, Self::WrongUse(_))
    }
}

/// The content of the file that a flag names.
fn read(flag: &str, path: &Path) -> Result<Vec<u8>, ConnectError> {
    file::read(path).map_err(|why| ConnectError::Unusable(format!("{flag} {why}")))
}

impl ConnectArgs {
    /// The kubelet to ask: at the read-only port of this machine, or, with credentials, at its authenticated port, unless an
    /// address is given.
    ///
    /// # Errors
    /// Flags that do not fit together, or files that cannot be used.
    pub fn server(&self) -> Result<Server, ConnectError> {
        self.at(if self.is_of_secured() { SECURED } else { READ_ONLY })
    }

    /// The same for what only the authenticated port answers.
    ///
    /// # Errors
    /// The address is one of a read-only port; or as [`ConnectArgs::server`].
    pub fn secured(&self) -> Result<Server, ConnectError> {
        match &self.server {
            Some(address) if !address.is_secured() => Err(ConnectError::WrongUse(format!(
                "{address}: only the authenticated port answers this: --server https://HOST:10250"
            ))),
            _ => self.at(SECURED),
        }
    }

    /// Whether a flag makes sense for the authenticated port alone.
    fn is_of_secured(&self) -> bool {
        let files = [
            &self.token_file,
            &self.client_certificate,
            &self.client_key,
            &self.certificate_authority,
            &self.kubeconfig,
        ];
        self.insecure_skip_tls_verify
            || self.token.is_some()
            || self.tls_server_name.is_some()
            || files.into_iter().any(Option::is_some)
    }

    fn at(&self, usual: &str) -> Result<Server, ConnectError> {
        let address = match &self.server {
            Some(address) => address.clone(),
            None => usual.parse::<Address>().map_err(|error| ConnectError::WrongUse(error.to_string()))?,
        };
        if !address.is_secured() {
            if self.is_of_secured() {
                return Err(ConnectError::WrongUse(format!(
                    "{address}: credentials and authorities are for https:// alone; the read-only port asks for none, and a \
                     token would cross the network for all to read"
                )));
            }
            return Ok(Server::plain(address));
        }
        let known = match &self.kubeconfig {
            Some(path) => kubeconfig::known(path, self.context.as_deref())?,
            None => Known::default(),
        };
        let Known { authorities, pair, token } = known;
        // What the command line names goes before the kubeconfig's user, whole.
        let (pair, token) = match (self.pair()?, self.token()?) {
            (None, None) => (pair, token),
            own => own,
        };
        let trust = match (&self.certificate_authority, authorities) {
            _ if self.insecure_skip_tls_verify => Trust::Everything,
            (Some(path), _) => Trust::Authorities {
                pem: read("--certificate-authority", path)?,
                from: format!("--certificate-authority {}", path.display()),
            },
            (None, Some(authorities)) => authorities,
            (None, None) => Trust::Machine,
        };
        let name = self.tls_server_name.as_deref().unwrap_or(address.host());
        let tls = Tls::new(&trust, pair.as_ref(), name).map_err(ConnectError::Unusable)?;
        Ok(Server::secured(address, tls, token))
    }

    fn pair(&self) -> Result<Option<ClientPair>, ConnectError> {
        let (Some(certificate), Some(key)) = (&self.client_certificate, &self.client_key) else {
            return Ok(None);
        };
        let from = format!("--client-certificate {}, --client-key {}", certificate.display(), key.display());
        let (certificate, key) = (read("--client-certificate", certificate)?, read("--client-key", key)?);
        Ok(Some(ClientPair { certificate, key, from }))
    }

    fn token(&self) -> Result<Option<Token>, ConnectError> {
        let token = match (&self.token_file, &self.token) {
            (Some(path), _) => Token::file(path).map_err(|why| format!("--token-file {why}")),
            (None, Some(text)) => Token::text(text).map_err(|why| format!("--token: {why}")),
            (None, None) => return Ok(None),
        };
        token.map(Some).map_err(ConnectError::Unusable)
    }
}

#[cfg(test)]
mod tests;
