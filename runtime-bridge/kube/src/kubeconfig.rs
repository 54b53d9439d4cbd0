//! A kubeconfig: the server, the authorities to trust, and the kubelet's identity.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::{AuthInfo, Cluster, ExecAuthCluster, ExecConfig, ExecInteractiveMode, Kubeconfig as File};

pub(super) use pem::read_file;

/// Why a kubeconfig cannot be used, naming file, field and value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    /// The file cannot be read.
    #[error("kubeconfig {path}: cannot be read: {reason}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        reason: String,
    },
    /// The file is no kubeconfig.
    #[error("kubeconfig {path}: {reason}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The place in the file, and the reason.
        reason: String,
    },
    /// A field cannot be used.
    #[error("kubeconfig {path}: {field}: {reason}", path = path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field, as `users[name=x].user.client-key`.
        field: String,
        /// The value, unless it is secret, and what is wrong with it.
        reason: String,
    },
}

/// PEM text, or the file with it.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    /// The text in the kubeconfig itself.
    Inline(Vec<u8>),
    /// The path of a file, whose contents may change.
    File(PathBuf),
}

impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            // The text may be a private key.
            Self::Inline(bytes) => write!(f, "Inline({} bytes)", bytes.len()),
            Self::File(path) => write!(f, "File({})", path.display()),
        }
    }
}

/// The user of a kubeconfig: the kubelet's identity.
#[derive(Clone)]
pub enum User {
    /// No credentials.
    Anonymous,
    /// A client certificate and its key.
    Certificate {
        /// The certificate with its chain.
        certificate: Pem,
        /// The certificate's key.
        key: Pem,
    },
    /// A bearer token.
    Token(String),
    /// The path of a file with a bearer token, checked for changes at most every 10 s.
    TokenFile(PathBuf),
    /// A program that yields a token or a certificate.
    Exec(Box<ExecConfig>),
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Anonymous => write!(f, "Anonymous"),
            Self::Certificate { certificate, .. } => write!(f, "Certificate({certificate:?})"),
            Self::Token(_) => write!(f, "Token"),
            Self::TokenFile(path) => write!(f, "TokenFile({})", path.display()),
            Self::Exec(exec) => write!(f, "Exec({:?})", exec.command),
        }
    }
}

/// The content of a kubeconfig's current context.
#[derive(Clone, Debug)]
pub struct Kubeconfig {
    /// The server's URL: `https://host:port`, with a path if the API is not at the root.
    pub server: http::Uri,
    /// The CAs of the server's certificate; the system's if `None`.
    pub certificate_authority: Option<Pem>,
    /// The name to expect in the server's certificate; the host of `server` if `None`.
    pub tls_server_name: Option<String>,
    /// Accept any certificate of the server.
    pub insecure_skip_tls_verify: bool,
    /// The user's credentials.
    pub user: User,
}

struct Reader<'a> {
    path: &'a Path,
}

impl Reader<'_> {
    fn wrong(&self, field: impl Into<String>, reason: impl Into<String>) -> KubeconfigError {
        KubeconfigError::Field { path: self.path.to_owned(), field: field.into(), reason: reason.into() }
    }

    /// A path, relative to the kubeconfig's directory.
    fn file(&self, path: &str) -> PathBuf {
        self.path.parent().unwrap_or_else(|| Path::new(".")).join(path)
    }

    /// The field's `data` form if it is set, else its `file` form, as client-go does.
    fn pem(
        &self,
        field: &str,
        data: Option<&str>,
        file: Option<&str>,
    ) -> Result<Option<Pem>, KubeconfigError> {
        match (data.filter(|data| !data.is_empty()), file.filter(|file| !file.is_empty())) {
            (Some(data), _) => {
                let text: String = data.split_whitespace().collect();
                let bytes = STANDARD.decode(text);
                let bytes = bytes
                    .map_err(|error| self.wrong(format!("{field}-data"), format!("no base64: {error}")))?;
                Ok(Some(Pem::Inline(bytes)))
            }
            (None, Some(file)) => Ok(Some(Pem::File(self.file(file)))),
            (None, None) => Ok(None),
        }
    }

    fn server(&self, field: &str, cluster: &Cluster) -> Result<http::Uri, KubeconfigError> {
        let text = cluster.server.as_deref().unwrap_or_default().trim_end_matches('/');
        let field = format!("{field}.server");
        if text.is_empty() {
            return Err(self.wrong(field, "Required value: the URL of the API server"));
        }
        // A server without a scheme means HTTPS, as in client-go.
        let text = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
        let uri: http::Uri =
            text.parse().map_err(|error| self.wrong(&field, format!("Invalid value: {text:?}: {error}")))?;
        // A port above 65535 is parsed as no port.
        let host = uri.host().unwrap_or_default();
        let has_port = uri.authority().is_some_and(|whole| !whole.as_str().ends_with(host));
        match uri.scheme_str() {
            Some("https" | "http") if !host.is_empty() && has_port == uri.port_u16().is_some() => Ok(uri),
            _ => Err(self.wrong(field, format!("Invalid value: {text:?}: must be https://host[:port]"))),
        }
    }

    fn exec(&self, field: &str, exec: &ExecConfig) -> Result<User, KubeconfigError> {
        let mut exec = exec.clone();
        let command = exec.command.clone().unwrap_or_default();
        if command.is_empty() {
            return Err(self.wrong(format!("{field}.command"), "Required value"));
        }
        // Only a bare name is searched for in PATH.
        if command.contains('/') {
            exec.command = Some(self.file(&command).display().to_string());
        }
        let version = exec.api_version.as_deref().unwrap_or_default();
        match version {
            "" => return Err(self.wrong(format!("{field}.apiVersion"), "Required value")),
            "client.authentication.k8s.io/v1" if exec.interactive_mode.is_none() => {
                return Err(self.wrong(format!("{field}.interactiveMode"), "Required value"));
            }
            "client.authentication.k8s.io/v1" | "client.authentication.k8s.io/v1beta1" => {}
            other => {
                let reason = format!(
                    "Unsupported value: {other:?}: supported values: \"client.authentication.k8s.io/v1\", \
                     \"client.authentication.k8s.io/v1beta1\""
                );
                return Err(self.wrong(format!("{field}.apiVersion"), reason));
            }
        }
        if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
            let reason = "Invalid value: \"Always\": nobody is there to ask";
            return Err(self.wrong(format!("{field}.interactiveMode"), reason));
        }
        Ok(User::Exec(Box::new(exec)))
    }

    /// Adds the cluster's data to the program's configuration, if the program wants them.
    fn about(&self, field: &str, cluster: &Cluster, user: &mut User) -> Result<(), KubeconfigError> {
        let User::Exec(exec) = user else { return Ok(()) };
        if exec.provide_cluster_info {
            let mut cluster = cluster.clone();
            let file = cluster.certificate_authority.take().filter(|file| !file.is_empty());
            cluster.certificate_authority = file.map(|file| self.file(&file).display().to_string());
            let about = ExecAuthCluster::try_from(&cluster);
            let about = about.map_err(|error| {
                self.wrong(format!("{field}.certificate-authority"), super::error::causes(&error))
            })?;
            exec.cluster = Some(about);
        }
        Ok(())
    }

    fn user(&self, field: &str, user: &AuthInfo) -> Result<User, KubeconfigError> {
        use secrecy::ExposeSecret;
        if user.impersonate.as_deref().is_some_and(|name| !name.is_empty()) {
            return Err(self.wrong(format!("{field}.as"), "is not supported"));
        }
        let key_data = user.client_key_data.as_ref().map(|data| data.expose_secret());
        let certificate = self.pem(
            &format!("{field}.client-certificate"),
            user.client_certificate_data.as_deref(),
            user.client_certificate.as_deref(),
        )?;
        let key = self.pem(&format!("{field}.client-key"), key_data, user.client_key.as_deref())?;
        match (certificate, key) {
            (Some(certificate), Some(key)) => return Ok(User::Certificate { certificate, key }),
            (Some(_), None) => return Err(self.wrong(format!("{field}.client-key"), "Required value")),
            (None, Some(_)) => {
                return Err(self.wrong(format!("{field}.client-certificate"), "Required value"));
            }
            (None, None) => {}
        }
        if let Some(exec) = &user.exec {
            return self.exec(&format!("{field}.exec"), exec);
        }
        if let Some(file) = user.token_file.as_deref().filter(|file| !file.is_empty()) {
            return Ok(User::TokenFile(self.file(file)));
        }
        if let Some(token) = user.token.as_ref().map(|token| token.expose_secret()).filter(|t| !t.is_empty())
        {
            return Ok(User::Token(token.to_owned()));
        }
        if user.username.is_some() || user.password.is_some() {
            return Err(self.wrong(format!("{field}.username"), "basic authentication is not supported"));
        }
        if user.auth_provider.is_some() {
            return Err(self.wrong(format!("{field}.auth-provider"), "is not supported: use exec"));
        }
        Ok(User::Anonymous)
    }
}

impl Kubeconfig {
    /// Reads a kubeconfig; errors name `path`, and relative paths begin at its directory.
    ///
    /// # Errors
    /// The first field that cannot be used.
    pub fn read(path: &Path, text: &str) -> Result<Self, KubeconfigError> {
        Self::read_context(path, text, None)
    }

    /// The same, of this context instead of the current one.
    ///
    /// # Errors
    /// The first field that cannot be used.
    pub fn read_context(path: &Path, text: &str, context: Option<&str>) -> Result<Self, KubeconfigError> {
        let reader = Reader { path };
        let malformed = |reason: String| KubeconfigError::Malformed { path: path.to_owned(), reason };
        // kube's own reader would bring a second YAML parser into the program.
        let file = bridge_text::value(text).map_err(malformed)?;
        let file: File = serde_json::from_slice(file.to_string().as_bytes())
            .map_err(|error| malformed(error.to_string()))?;
        let (field, name) = match context {
            Some(name) => ("contexts", Some(name)),
            None => ("current-context", file.current_context.as_deref()),
        };
        let context_name = name.unwrap_or_default();
        if context_name.is_empty() {
            return Err(reader.wrong(field, "Required value"));
        }
        let context = file.contexts.iter().find(|context| context.name == context_name);
        let context = context.and_then(|context| context.context.as_ref());
        let context = context.ok_or_else(|| {
            reader.wrong(field, format!("Invalid value: {context_name:?}: there is no such context"))
        })?;
        let cluster = file.clusters.iter().find(|cluster| cluster.name == context.cluster);
        let cluster = cluster.and_then(|cluster| cluster.cluster.as_ref()).ok_or_else(|| {
            let field = format!("contexts[name={context_name}].context.cluster");
            reader.wrong(field, format!("Invalid value: {:?}: there is no such cluster", context.cluster))
        })?;
        let cluster_field = format!("clusters[name={}].cluster", context.cluster);
        if cluster.proxy_url.as_deref().is_some_and(|url| !url.is_empty()) {
            return Err(reader.wrong(format!("{cluster_field}.proxy-url"), "is not supported"));
        }
        let user_name = context.user.as_deref().unwrap_or_default();
        let mut user = match file.auth_infos.iter().find(|user| user.name == user_name) {
            Some(user) => {
                let none = AuthInfo::default();
                let info = user.auth_info.as_ref().unwrap_or(&none);
                reader.user(&format!("users[name={user_name}].user"), info)?
            }
            None if user_name.is_empty() => User::Anonymous,
            None => {
                let field = format!("contexts[name={context_name}].context.user");
                return Err(
                    reader.wrong(field, format!("Invalid value: {user_name:?}: there is no such user"))
                );
            }
        };
        reader.about(&cluster_field, cluster, &mut user)?;
        Ok(Self {
            server: reader.server(&cluster_field, cluster)?,
            certificate_authority: reader.pem(
                &format!("{cluster_field}.certificate-authority"),
                cluster.certificate_authority_data.as_deref(),
                cluster.certificate_authority.as_deref(),
            )?,
            tls_server_name: cluster.tls_server_name.clone().filter(|name| !name.is_empty()),
            insecure_skip_tls_verify: cluster.insecure_skip_tls_verify.unwrap_or(false),
            user,
        })
    }
}

mod issued;
mod pem;
#[cfg(test)]
mod tests;
