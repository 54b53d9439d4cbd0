//! PURE: which credentials of a pod's secrets, of the node and of its credential providers are good for an image (rows 6.5,
//! 6.6).

mod config;
mod keyring;
pub mod providers;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bridge_cri::PullShare;
use bridge_cri::wire::AuthConfig;
use bridge_node::host::{DockerConfigFile, DockerConfigFormat};
use k8s_openapi::api::core::v1::Secret;
use pod_rules::go_json;
use sha2::{Digest, Sha256};

pub use keyring::{Keyring, check_pattern};

/// What the kubelet shows to a registry. Its `Debug` form holds no secrets, so that none can get into a log.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credential {
    username: String,
    password: String,
    email: String,
    identity_token: String,
    registry_token: String,
    /// The secret that the credential comes from; none for those of the node and of its providers.
    source: Option<Arc<SecretSource>>,
    /// The service account for which a provider gave the credential.
    account: Option<Arc<AccountSource>>,
}

/// The service account for which a credential provider gave a credential.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountSource {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

/// The secret of the API server that a credential comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretSource {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(…)")
    }
}

impl Credential {
    /// The credential as the runtime takes it. The registry's address is left out, as upstream does: it was
    /// matched already.
    pub fn to_wire(&self) -> AuthConfig {
        AuthConfig {
            username: self.username.clone(),
            password: self.password.clone(),
            identity_token: self.identity_token.clone(),
            registry_token: self.registry_token.clone(),
            ..AuthConfig::default()
        }
    }

    /// The secret that the credential comes from; none for those of the node and of its providers.
    pub fn source(&self) -> Option<&SecretSource> {
        self.source.as_deref()
    }

    /// The service account for which a provider gave the credential.
    pub fn account(&self) -> Option<&AccountSource> {
        self.account.as_deref()
    }

    /// SHA-256 of the credential in upstream's JSON form, in hexadecimal digits: records name a credential by
    /// its hash.
    pub fn hash(&self) -> String {
        let fields = [
            ("username", &self.username),
            ("password", &self.password),
            ("email", &self.email),
            ("identitytoken", &self.identity_token),
            ("registrytoken", &self.registry_token),
        ];
        let set = fields.iter().filter(|(_, text)| !text.is_empty());
        let set: Vec<String> =
            set.map(|(name, text)| format!("\"{name}\":{}", go_json::string(text))).collect();
        let digest = Sha256::digest(format!("{{{}}}", set.join(",")));
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A credential of a test.
    #[cfg(test)]
    pub fn for_tests(username: &str, password: &str, source: Option<SecretSource>) -> Self {
        let (username, password) = (username.to_owned(), password.to_owned());
        Self { username, password, source: source.map(Arc::new), ..Self::default() }
    }

    /// A provider's credential of a test.
    #[cfg(test)]
    pub fn of_account(username: &str, account: AccountSource) -> Self {
        Self { username: username.to_owned(), account: Some(Arc::new(account)), ..Self::default() }
    }

    /// Every field, so that fingerprints of different credentials differ.
    fn parts(&self) -> [&str; 8] {
        let source = self.source.as_deref();
        let of_source = |part: fn(&SecretSource) -> &String| source.map_or("", |source| part(source));
        [
            &self.username,
            &self.password,
            &self.email,
            &self.identity_token,
            &self.registry_token,
            of_source(|source| &source.uid),
            of_source(|source| &source.namespace),
            of_source(|source| &source.name),
        ]
    }
}

/// The fingerprint of the pods that may share a pull: those of one namespace and one runtime handler with the
/// same credentials for the image. The namespace counts because runtimes may judge images by it.
pub fn share(namespace: &str, handler: &str, credentials: &[Credential]) -> PullShare {
    let parts = credentials.iter().flat_map(Credential::parts);
    PullShare::of([namespace, handler].into_iter().chain(parts))
}

/// The fingerprint of the pods that may share a pull when providers gave these credentials besides. What was given for a service
/// account is for its pods alone; what was given for the node is the same for all, whatever it is today.
pub fn share_with_provided(
    namespace: &str,
    handler: &str,
    credentials: &[Credential],
    provided: &[Credential],
) -> PullShare {
    let Some(account) = provided.iter().find_map(Credential::account) else {
        if provided.is_empty() {
            return share(namespace, handler, credentials);
        }
        // A pull without any would fail for a pod that was given some.
        let parts = credentials.iter().flat_map(Credential::parts).chain(["provided"]);
        return PullShare::of([namespace, handler].into_iter().chain(parts));
    };
    let of_account = [&account.uid, &account.namespace, &account.name].map(String::as_str);
    let parts = credentials.iter().flat_map(Credential::parts).chain(of_account);
    PullShare::of([namespace, handler].into_iter().chain(parts))
}

/// The credentials in the node's files.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NodeCredentials {
    /// The credentials of the first file that is valid.
    pub keyring: Keyring,
    /// Problems of the files before the valid one, and of single entries of that one: each names its file and
    /// no secret.
    pub warnings: Vec<String>,
}

/// Credentials that a registry can tell apart: one that several files or secrets hold is tried once.
pub fn distinct<'a>(credentials: impl Iterator<Item = &'a Credential>) -> Vec<Credential> {
    let mut seen = BTreeSet::new();
    let shown =
        |one: &'a Credential| [&one.username, &one.password, &one.identity_token, &one.registry_token];
    credentials.filter(|credential| seen.insert(shown(credential))).cloned().collect()
}

/// How many bytes a secret's data has.
pub fn bytes(secret: &Secret) -> usize {
    secret.data.iter().flatten().map(|(key, content)| key.len() + content.0.len()).sum()
}

/// Adds the credentials in a pod's secret.
///
/// # Errors
/// Why the secret cannot be understood, without its content: the pod's pulls fail then, as upstream has it.
/// An entry for an invalid registry is passed over.
pub fn add_secret(keyring: &mut Keyring, secret: &Secret) -> Result<(), String> {
    let (format, key) = match secret.type_.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => (DockerConfigFormat::ConfigJson, ".dockerconfigjson"),
        Some("kubernetes.io/dockercfg") => (DockerConfigFormat::Dockercfg, ".dockercfg"),
        // Secrets of other types hold no registry credentials; upstream ignores them too.
        _ => return Ok(()),
    };
    let content = secret.data.as_ref().and_then(|data| data.get(key)).filter(|content| !content.0.is_empty());
    let Some(content) = content else { return Ok(()) };
    let meta = &secret.metadata;
    let source = Arc::new(SecretSource {
        uid: meta.uid.clone().unwrap_or_default(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    });
    let entries = config::parse(format, &content.0).map_err(|error| {
        format!("secret {:?}: {key}: {error}", format!("{}/{}", source.namespace, source.name))
    })?;
    for (registry, credential) in entries {
        let credential = Credential { source: Some(source.clone()), ..credential };
        if let Err(error) = keyring.add(&registry, credential) {
            tracing::warn!(
                secret = source.name,
                namespace = source.namespace,
                "A registry is passed over: {error}"
            );
        }
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
    use bridge_node::host::SecretContent;

    use super::*;

    const HASH: &str = "ff5484aba668202aa1ba550ef3d71c6c2b9a091cea70fcb68396e58583791c3a";

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
        let mut broken = secret(json, ".dockerconfigjson", "hush {");
        (broken.metadata.namespace, broken.metadata.name) = (Some("team".to_owned()), Some("bad".to_owned()));
        assert_eq!(
            add_secret(&mut Keyring::default(), &broken).unwrap_err(),
            "secret \"team/bad\": .dockerconfigjson: not valid JSON at line 1, column 1"
        );
        let partly = r#"{"auths": {"r.io:port": {}, "r.io": {"username": "me"}}}"#;
        let mut keyring = Keyring::default();
        add_secret(&mut keyring, &secret(json, ".dockerconfigjson", partly)).unwrap();
        assert_eq!(keyring.lookup("r.io/app").len(), 1, "a registry that is none is passed over");
    }

    #[test]
    fn hashes_are_upstreams() {
        // sha256 of {"username":"me","password":"hush"}
        let source = Some(SecretSource::default());
        assert_eq!(Credential::for_tests("me", "hush", source.clone()).hash(), HASH);
        assert_eq!(Credential::for_tests("me", "hush", None).hash(), HASH, "wherever it comes from");
        assert_ne!(Credential::for_tests("me", "Hush", source).hash(), HASH);
    }

    #[test]
    fn those_with_the_same_credentials_share_and_others_do_not() {
        let of = |username: &str, uid: &str| {
            let source = SecretSource { uid: uid.to_owned(), ..SecretSource::default() };
            Credential { username: username.to_owned(), source: Some(source.into()), ..Credential::default() }
        };
        let (me, you) = (of("me", "1"), of("you", "1"));
        let mine = share("team", "", std::slice::from_ref(&me));
        assert_eq!(mine, share("team", "", std::slice::from_ref(&me)));
        for other in [
            share("team", "", &[]),
            share("team", "", std::slice::from_ref(&you)),
            share("team", "", &[of("me", "2")]),
            share("team", "", &[me.clone(), you.clone()]),
            share("team", "gvisor", std::slice::from_ref(&me)),
            share("other", "", std::slice::from_ref(&me)),
        ] {
            assert_ne!(mine, other);
        }
        assert_ne!(
            share("team", "", &[me.clone(), you.clone()]),
            share("team", "", &[you, me]),
            "the first is tried first"
        );
    }

    #[test]
    fn what_is_given_for_a_service_account_is_shared_by_its_pods_alone() {
        let account = |uid: &str| AccountSource { uid: uid.to_owned(), ..AccountSource::default() };
        let (one, other) =
            (Credential::of_account("a", account("1")), Credential::of_account("a", account("2")));
        let [of_node, later] = ["today", "later"].map(|now| Credential::for_tests("node", now, None));
        let shared = |provided: &[Credential]| share_with_provided("team", "", &[], provided);
        assert_eq!(shared(&[]), share("team", "", &[]));
        assert_eq!(
            shared(std::slice::from_ref(&of_node)),
            shared(&[later]),
            "it is for all pods of the node"
        );
        assert_ne!(shared(std::slice::from_ref(&of_node)), shared(&[]), "one has none");
        assert_ne!(shared(std::slice::from_ref(&one)), shared(&[]));
        assert_ne!(shared(std::slice::from_ref(&one)), shared(std::slice::from_ref(&other)));
        let renewed = Credential::of_account("b", account("1"));
        assert_eq!(shared(&[of_node, one]), shared(&[renewed]), "what it is today counts for nothing");
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
