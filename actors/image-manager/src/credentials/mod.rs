//! PURE: which credentials of a pod's secrets and of the node are good for an image (row 6.5).

mod config;
mod keyring;

use std::fmt;

use k8s_openapi::api::core::v1::Secret;
use runtime_bridge::cri::wire::AuthConfig;
use runtime_bridge::host::{DockerConfigFile, DockerConfigFormat};

pub use keyring::Keyring;

/// What a registry is shown. It never leaves by way of a log: its debugging form is empty of secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credential {
    username: String,
    password: String,
    identity_token: String,
    registry_token: String,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(…)")
    }
}

impl Credential {
    /// As the runtime takes it. The address is left out, as upstream does: it was matched already.
    pub fn to_wire(&self) -> AuthConfig {
        AuthConfig {
            username: self.username.clone(),
            password: self.password.clone(),
            identity_token: self.identity_token.clone(),
            registry_token: self.registry_token.clone(),
            ..AuthConfig::default()
        }
    }
}

/// What the node's files come to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NodeCredentials {
    /// The credentials of the first file that is valid.
    pub keyring: Keyring,
    /// What is wrong with the files before it, and with single entries of it: each names its file, none a secret.
    pub warnings: Vec<String>,
}

/// What a pod's secrets come to.
///
/// # Errors
/// What is wrong with the secret, without what is in it.
pub fn add_secret(keyring: &mut Keyring, secret: &Secret) -> Result<(), String> {
    let (format, key) = match secret.type_.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => (DockerConfigFormat::ConfigJson, ".dockerconfigjson"),
        Some("kubernetes.io/dockercfg") => (DockerConfigFormat::Dockercfg, ".dockercfg"),
        // Others hold no credentials of registries, and nobody says that they should.
        _ => return Ok(()),
    };
    let content = secret.data.as_ref().and_then(|data| data.get(key)).filter(|content| !content.0.is_empty());
    let Some(content) = content else { return Ok(()) };
    for (registry, credential) in config::parse(format, &content.0)? {
        keyring.add(&registry, credential)?;
    }
    Ok(())
}

/// Takes the first valid file, as upstream does.
pub fn from_files(files: &[DockerConfigFile]) -> NodeCredentials {
    let mut found = NodeCredentials::default();
    for file in files {
        let path = file.path.display();
        let parsed = match &file.content {
            Ok(content) => config::parse(file.format, content.expose()),
            Err(error) => Err(error.clone()),
        };
        match parsed {
            Ok(entries) => {
                for (registry, credential) in entries {
                    if let Err(error) = found.keyring.add(&registry, credential) {
                        found.warnings.push(format!("{path}: a registry in it is passed over: {error}"));
                    }
                }
                return found;
            }
            Err(error) => found.warnings.push(format!("{path} is passed over: {error}")),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use runtime_bridge::host::SecretContent;

    use super::*;

    fn file(path: &str, format: DockerConfigFormat, content: &str) -> DockerConfigFile {
        let content = Ok(SecretContent::new(content.as_bytes()));
        DockerConfigFile { path: path.into(), format, content }
    }

    fn users(found: &NodeCredentials, repository: &str) -> Vec<String> {
        found.keyring.lookup(repository).into_iter().map(|credential| credential.username).collect()
    }

    #[test]
    fn the_first_valid_file_counts_and_broken_ones_are_named() {
        use DockerConfigFormat::{ConfigJson, Dockercfg};
        let broken = file("/a/config.json", ConfigJson, "{\"auths\": {\"r.io\": {\"auth\": \"hush!\"}}}");
        let unreadable = DockerConfigFile {
            content: Err("Permission denied (os error 13)".to_owned()),
            ..file("/b/config.json", ConfigJson, "")
        };
        let valid = file(
            "/c/config.json",
            ConfigJson,
            r#"{"auths": {"r.io": {"username": "c"}, "r.io:x": {"username": "never"}}}"#,
        );
        let later = file("/d/.dockercfg", Dockercfg, r#"{"r.io": {"username": "d"}}"#);
        let found = from_files(&[broken.clone(), unreadable, valid, later.clone()]);
        assert_eq!(users(&found, "r.io/app"), ["c"]);
        assert_eq!(
            found.warnings,
            [
                "/a/config.json is passed over: auths[\"r.io\"].auth: not base64",
                "/b/config.json is passed over: Permission denied (os error 13)",
                "/c/config.json: a registry in it is passed over: \"r.io:x\": the port is not a number",
            ]
        );
        assert_eq!(users(&from_files(&[broken, later]), "r.io/app"), ["d"]);
        assert_eq!(from_files(&[]), NodeCredentials::default());
    }

    #[test]
    fn secrets_of_both_kinds_are_understood_and_others_passed_over() {
        let secret = |kind: &str, key: &str, content: &str| -> Secret {
            let data = serde_json::json!({"metadata": {}, "type": kind, "stringData": {}});
            let mut secret: Secret = serde_json::from_value(data).unwrap();
            let content = k8s_openapi::ByteString(content.as_bytes().to_vec());
            secret.data = Some([(key.to_owned(), content)].into());
            secret
        };
        let mut keyring = Keyring::default();
        let (json, cfg) = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg");
        let one = r#"{"auths": {"r.io": {"username": "one"}}}"#;
        add_secret(&mut keyring, &secret(json, ".dockerconfigjson", one)).unwrap();
        add_secret(&mut keyring, &secret(cfg, ".dockercfg", r#"{"q.io": {"username": "two"}}"#)).unwrap();
        add_secret(&mut keyring, &secret("Opaque", ".dockerconfigjson", "{nonsense")).unwrap();
        add_secret(&mut keyring, &secret(json, ".dockercfg", "{nonsense")).unwrap();
        let user = |image: &str| keyring.lookup(image).remove(0).username;
        assert_eq!((user("r.io/app"), user("q.io/app")), ("one".to_owned(), "two".to_owned()));
        let broken =
            add_secret(&mut Keyring::default(), &secret(json, ".dockerconfigjson", "hush {")).unwrap_err();
        assert!(!broken.contains("hush"), "{broken}");
    }

    #[test]
    fn nothing_shows_a_secret() {
        let content =
            r#"{"auths": {"r.io": {"username": "me", "password": "hush", "identitytoken": "hush"}}}"#;
        let files = [file("/config.json", DockerConfigFormat::ConfigJson, content)];
        let shown = format!("{files:?} {:?}", from_files(&files));
        assert!(!shown.contains("hush"), "{shown}");
        let wire = from_files(&files).keyring.lookup("r.io/a").remove(0).to_wire();
        assert_eq!(
            (&*wire.username, &*wire.password, &*wire.identity_token, &*wire.auth),
            ("me", "hush", "hush", "")
        );
    }
}
