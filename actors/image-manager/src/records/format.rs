//! The JSON of the records: kinds of `kubelet.config.k8s.io`, read in both of its versions and written in the
//! newer.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const OLDER: &str = "kubelet.config.k8s.io/v1alpha1";
/// More than the keys and brackets of one object of a record take.
const KEYS_BYTES: usize = 128;

/// `ImagePullIntent`: a pull of this image has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Intent {
    kind: String,
    api_version: String,
    /// The image's name as the container spells it.
    #[serde(default)]
    pub image: String,
}

/// `ImagePulledRecord`: the kubelet has pulled this image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PulledRecord {
    kind: String,
    api_version: String,
    /// When the record was changed last, in whole seconds.
    #[serde(default, serialize_with = "write_time", deserialize_with = "read_time")]
    pub last_updated_time: Option<Timestamp>,
    /// The image's reference at the runtime.
    #[serde(default)]
    pub image_ref: String,
    /// The credentials of successful pulls, by image name without tag and digest. For a name that is not here
    /// a pod has to prove its access by a pull.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "or_default")]
    pub credential_mapping: BTreeMap<String, PullCredentials>,
}

/// `ImagePullCredentials`: the pods that may use an image of this name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PullCredentials {
    /// Pods with one of these secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub kubernetes_secrets: Vec<PullSecret>,
    /// Pods that run as one of these service accounts, for which a credential provider gave the credential of a pull.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub kubernetes_service_accounts: Vec<PullServiceAccount>,
    /// All pods of the node: the image was pulled without credentials, or with the node's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub node_pods_accessible: bool,
}

/// `ImagePullSecret`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PullSecret {
    /// `metadata.uid` of the secret.
    #[serde(default)]
    pub uid: String,
    /// `metadata.namespace` of the secret.
    #[serde(default)]
    pub namespace: String,
    /// `metadata.name` of the secret.
    #[serde(default)]
    pub name: String,
    /// SHA-256 of the credential that was used.
    #[serde(default)]
    pub credential_hash: String,
}

impl PullCredentials {
    /// About how many bytes it takes in the record of an image under this name.
    pub fn weight(&self, name: &str) -> usize {
        let secrets = self.kubernetes_secrets.iter().map(PullSecret::weight);
        let accounts = self.kubernetes_service_accounts.iter().map(PullServiceAccount::weight);
        name.len() + KEYS_BYTES + secrets.chain(accounts).sum::<usize>()
    }
}

impl PullSecret {
    fn weight(&self) -> usize {
        let fields = [&self.uid, &self.namespace, &self.name, &self.credential_hash];
        KEYS_BYTES + fields.map(String::len).iter().sum::<usize>()
    }

    /// Namespace, name and UID, which identify a secret.
    pub fn coordinates(&self) -> (&str, &str, &str) {
        (&self.namespace, &self.name, &self.uid)
    }
}

/// `ImagePullServiceAccount`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PullServiceAccount {
    /// `metadata.uid` of the service account.
    #[serde(default)]
    pub uid: String,
    /// `metadata.namespace` of the service account.
    #[serde(default)]
    pub namespace: String,
    /// `metadata.name` of the service account.
    #[serde(default)]
    pub name: String,
}

impl PullServiceAccount {
    /// Namespace, name and UID, in the order of records.
    pub fn coordinates(&self) -> (&str, &str, &str) {
        (&self.namespace, &self.name, &self.uid)
    }

    fn weight(&self) -> usize {
        KEYS_BYTES + [&self.uid, &self.namespace, &self.name].map(String::len).iter().sum::<usize>()
    }
}

impl Intent {
    /// The intent of a pull of `image`.
    pub fn new(image: &str) -> Self {
        Self { kind: "ImagePullIntent".to_owned(), api_version: VERSION.to_owned(), image: image.to_owned() }
    }

    /// # Errors
    /// Why the content is no intent of a known version.
    pub fn read(content: &[u8]) -> Result<Self, String> {
        let intent: Self = parse(content)?;
        checked("ImagePullIntent", &intent.kind, &intent.api_version)?;
        Ok(intent)
    }

    /// The file's content.
    pub fn to_json(&self) -> Vec<u8> {
        text(self)
    }
}

impl PulledRecord {
    /// The record of an image without any credentials.
    pub fn new(image_ref: &str) -> Self {
        Self {
            kind: "ImagePulledRecord".to_owned(),
            api_version: VERSION.to_owned(),
            last_updated_time: None,
            image_ref: image_ref.to_owned(),
            credential_mapping: BTreeMap::new(),
        }
    }

    /// # Errors
    /// Why the content is no record of a known version.
    pub fn read(content: &[u8]) -> Result<Self, String> {
        let record: Self = parse(content)?;
        checked("ImagePulledRecord", &record.kind, &record.api_version)?;
        Ok(record)
    }

    /// Whether the record was read in the older version and has to be rewritten.
    pub fn is_older(&self) -> bool {
        self.api_version == OLDER
    }

    /// The file's content.
    pub fn to_json(&self) -> Vec<u8> {
        text(&Self { api_version: VERSION.to_owned(), ..self.clone() })
    }
}

fn parse<T: DeserializeOwned>(content: &[u8]) -> Result<T, String> {
    serde_json::from_slice(content).map_err(|error| error.to_string())
}

fn checked(wanted: &str, kind: &str, version: &str) -> Result<(), String> {
    if kind != wanted {
        return Err(format!("kind: {kind:?} is not {wanted:?}"));
    }
    if version != VERSION && version != OLDER {
        return Err(format!("apiVersion: {version:?} is neither {VERSION:?} nor {OLDER:?}"));
    }
    Ok(())
}

fn text(record: &impl Serialize) -> Vec<u8> {
    let mut json = serde_json::to_vec(record).expect("records have only string keys");
    json.push(b'\n');
    json
}

fn write_time<S: Serializer>(time: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
    let whole = time.and_then(|time| Timestamp::from_second(time.as_second()).ok());
    whole.map(|time| time.to_string()).serialize(to)
}

fn read_time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    let text: Option<String> = Option::deserialize(from)?;
    text.map(|text| text.parse().map_err(|error| D::Error::custom(format!("{text:?}: {error}")))).transpose()
}

/// Go writes and reads `null` for an empty value.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn records_are_written_as_upstream_writes_them() {
        assert_eq!(
            String::from_utf8(Intent::new("busybox:1").to_json()).unwrap(),
            "{\"kind\":\"ImagePullIntent\",\"apiVersion\":\"kubelet.config.k8s.io/v1beta1\",\"image\":\"busybox:1\"}\n"
        );
        let mut record = PulledRecord::new("sha256:1");
        record.last_updated_time = Some("2026-11-22T08:45:24.9Z".parse().unwrap());
        let secret = PullSecret {
            uid: "u".to_owned(),
            namespace: "ns".to_owned(),
            name: "pull".to_owned(),
            credential_hash: "00ff".to_owned(),
        };
        let of_secret = PullCredentials { kubernetes_secrets: vec![secret], ..PullCredentials::default() };
        let of_all = PullCredentials { node_pods_accessible: true, ..PullCredentials::default() };
        record.credential_mapping = [("r.io/b".to_owned(), of_secret), ("r.io/a".to_owned(), of_all)].into();
        let written = String::from_utf8(record.to_json()).unwrap();
        assert_eq!(
            written,
            "{\"kind\":\"ImagePulledRecord\",\"apiVersion\":\"kubelet.config.k8s.io/v1beta1\",\
             \"lastUpdatedTime\":\"2026-11-22T08:45:24Z\",\"imageRef\":\"sha256:1\",\"credentialMapping\":{\
             \"r.io/a\":{\"nodePodsAccessible\":true},\"r.io/b\":{\"kubernetesSecrets\":[{\"uid\":\"u\",\
             \"namespace\":\"ns\",\"name\":\"pull\",\"credentialHash\":\"00ff\"}]}}}\n"
        );
        let read = PulledRecord::read(written.as_bytes()).unwrap();
        assert_eq!((&read.credential_mapping, &*read.image_ref), (&record.credential_mapping, "sha256:1"));
        assert_eq!(String::from_utf8(read.to_json()).unwrap(), written);
        let empty = String::from_utf8(PulledRecord::new("x").to_json()).unwrap();
        assert!(empty.contains("\"lastUpdatedTime\":null,\"imageRef\":\"x\"}"), "{empty}");
    }

    #[test]
    fn records_of_the_older_version_and_of_service_accounts_are_kept() {
        let older = r#"{"kind": "ImagePulledRecord", "apiVersion": "kubelet.config.k8s.io/v1alpha1",
            "lastUpdatedTime": null, "imageRef": "sha256:1", "credentialMapping": {"a": {"kubernetesSecrets": null,
            "kubernetesServiceAccounts": [{"uid": "1", "namespace": "n", "name": "sa"}]}}}"#;
        let record = PulledRecord::read(older.as_bytes()).unwrap();
        assert!(record.is_older());
        let newer = PulledRecord::read(&record.to_json()).unwrap();
        assert!(!newer.is_older());
        assert_eq!(newer.credential_mapping, record.credential_mapping);
        assert_eq!(newer.credential_mapping["a"].kubernetes_service_accounts.len(), 1);
    }

    #[test]
    fn what_is_no_record_says_why() {
        let version = "\"apiVersion\":\"kubelet.config.k8s.io/v1beta1\"";
        for (content, why) in [
            (String::new(), "EOF while parsing a value at line 1 column 0"),
            (
                format!("{{\"kind\":\"ImagePullIntent\",{version},\"image\":\"a\",\"more\":1}}"),
                "unknown field `more`",
            ),
            (format!("{{\"kind\":\"Pod\",{version}}}"), "kind: \"Pod\" is not \"ImagePullIntent\""),
            (
                "{\"kind\":\"ImagePullIntent\",\"apiVersion\":\"v9\"}".to_owned(),
                "apiVersion: \"v9\" is neither",
            ),
        ] {
            let error = Intent::read(content.as_bytes()).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_get_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = PulledRecord::read(&bytes);
            let _ = Intent::read(&bytes);
        }
    }
}
