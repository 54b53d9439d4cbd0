//! PURE: a volume of a FlexVolume driver, and what its driver is told of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Pod, Secret};
use pod_rules::volume_plugins::{FLEX_VOLUME, is_flex_driver};
use serde_json::Value;

use crate::backends::NodeFacts;
use crate::devices::Device;
use crate::fs_group;
use crate::source::Source;

/// A Secret's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SecretName {
    pub namespace: String,
    pub name: String,
}

/// A volume as its source describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FlexVolume {
    pub driver: String,
    /// Its name in the pod spec, or its PersistentVolume's.
    pub name: String,
    pub fs_type: String,
    pub read_only: bool,
    /// The options that people have written.
    options: BTreeMap<String, String>,
    pub secret: Option<SecretName>,
}

/// The driver of a source; `None` if it is no FlexVolume.
pub(super) fn driver_of(source: &Source) -> Option<&str> {
    match source {
        Source::Inline(volume) => volume.flex_volume.as_ref().map(|flex| flex.driver.as_str()),
        Source::Persistent(persistent) => {
            persistent.spec()?.flex_volume.as_ref().map(|flex| flex.driver.as_str())
        }
    }
}

/// The driver of a volume with this directory below its pod's.
pub(super) fn driver_at(dir: &Path) -> Option<String> {
    let driver = dir.parent()?.file_name()?.to_str()?.replace('~', "/");
    is_flex_driver(&driver).then_some(driver)
}

fn text(text: &Option<String>) -> String {
    text.clone().unwrap_or_default()
}

impl FlexVolume {
    /// The volume of a source for a pod.
    pub fn of(source: &Source, pod: &Pod) -> Option<Self> {
        let namespace = text(&pod.metadata.namespace);
        let name = source.spec_name().to_owned();
        match source {
            Source::Inline(volume) => {
                let flex = volume.flex_volume.as_ref()?;
                let secret = flex.secret_ref.as_ref();
                let secret = secret.map(|secret| SecretName { namespace, name: secret.name.clone() });
                Some(Self {
                    driver: flex.driver.clone(),
                    name,
                    fs_type: text(&flex.fs_type),
                    read_only: flex.read_only == Some(true),
                    options: flex.options.clone().unwrap_or_default(),
                    secret: secret.filter(SecretName::is_set),
                })
            }
            Source::Persistent(persistent) => {
                let flex = persistent.spec()?.flex_volume.as_ref()?;
                let secret = flex.secret_ref.as_ref().map(|secret| {
                    let other = text(&secret.namespace);
                    let namespace = if other.is_empty() { namespace } else { other };
                    SecretName { namespace, name: text(&secret.name) }
                });
                Some(Self {
                    driver: flex.driver.clone(),
                    name,
                    fs_type: text(&flex.fs_type),
                    // Of a PersistentVolume its claim says so, as upstream has it.
                    read_only: persistent.read_only,
                    options: flex.options.clone().unwrap_or_default(),
                    secret: secret.filter(SecretName::is_set),
                })
            }
        }
    }

    /// What the driver is told of the volume, as JSON, with `more`. What people have written wins.
    pub fn told(&self, more: BTreeMap<String, String>) -> Result<String, String> {
        let usual = [
            ("kubernetes.io/fsType", self.fs_type.as_str()),
            ("kubernetes.io/readwrite", if self.read_only { "ro" } else { "rw" }),
            ("kubernetes.io/pvOrVolumeName", self.name.as_str()),
        ];
        let mut all: BTreeMap<String, String> =
            usual.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        all.extend(more);
        all.extend(self.options.clone());
        serde_json::to_string(&all).map_err(|error| format!("failed to marshal spec, error: {error}"))
    }

    /// The name by which Nodes report it.
    pub fn unique_name(&self) -> String {
        format!("{}/{}", self.driver, self.name)
    }

    /// The name of its device.
    pub fn device(&self) -> Device {
        device(&self.driver, &self.name)
    }
}

impl SecretName {
    fn is_set(&self) -> bool {
        !self.namespace.is_empty() && !self.name.is_empty()
    }
}

/// What the driver is told of the pod when it mounts a volume for it.
pub(super) fn of_pod(pod: &Pod) -> BTreeMap<String, String> {
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
    let facts = [
        ("kubernetes.io/pod.name", text(&pod.metadata.name)),
        ("kubernetes.io/pod.namespace", text(&pod.metadata.namespace)),
        ("kubernetes.io/pod.uid", text(&pod.metadata.uid)),
        ("kubernetes.io/serviceAccount.name", account.unwrap_or_default()),
    ];
    let mut told: BTreeMap<String, String> =
        facts.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    if let Some(group) = fs_group::of_pod(pod) {
        told.insert("kubernetes.io/mounterArgs.FsGroup".to_owned(), group.to_string());
    }
    told
}

/// What the driver is told of a Secret, whose type is the driver's name.
pub(super) fn of_secret(driver: &str, secret: &Secret) -> Result<BTreeMap<String, String>, String> {
    if secret.type_.as_deref() != Some(driver) {
        return Err(format!("cannot get secret of type {driver}"));
    }
    let encoded = secret.data.iter().flatten().filter_map(|(key, value)| {
        // The API's form of bytes is base64, as it is here.
        let Ok(Value::String(value)) = serde_json::to_value(value) else { return None };
        Some((format!("kubernetes.io/secret/{key}"), value))
    });
    Ok(encoded.collect())
}

/// The name of the device of a driver's volume.
pub(super) fn device(driver: &str, name: &str) -> Device {
    format!("{FLEX_VOLUME}/{driver}/{name}")
}

/// The driver and the volume of a device.
pub(super) fn of_device(device: &str) -> Option<(&str, &str)> {
    let (driver, name) = device.strip_prefix(FLEX_VOLUME)?.strip_prefix('/')?.rsplit_once('/')?;
    is_flex_driver(driver).then_some((driver, name))
}

/// Where a volume of a driver is mounted for the node.
pub(super) fn place(node: NodeFacts<'_>, driver: &str, name: &str) -> Result<PathBuf, String> {
    let is_name = !name.is_empty() && !matches!(name, "." | "..") && !name.contains('/');
    if !is_name || !is_flex_driver(driver) {
        return Err(format!("{driver:?} and {name:?} are no names of a FlexVolume driver and its volume"));
    }
    Ok(node.layout.root().join("plugins").join(FLEX_VOLUME).join(driver).join("mounts").join(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::tests::{inline, persistent, pod};

    fn volume(source: &Source) -> FlexVolume {
        let mut pod = pod();
        pod.metadata.namespace = Some("ns".to_owned());
        FlexVolume::of(source, &pod).expect("a FlexVolume")
    }

    #[test]
    fn a_driver_is_told_of_its_volume_as_by_the_go_kubelet() {
        let own = json!({"name": "v", "flexVolume": {
            "driver": "vendor/tool", "fsType": "ext4", "readOnly": true, "secretRef": {"name": "s"},
            "options": {"share": "x", "kubernetes.io/fsType": "xfs"},
        }});
        let own = volume(&inline(&own));
        let told = own.told([("kubernetes.io/pod.uid".to_owned(), "u".to_owned())].into()).expect("JSON");
        assert_eq!(
            told,
            r#"{"kubernetes.io/fsType":"xfs","kubernetes.io/pod.uid":"u","kubernetes.io/pvOrVolumeName":"v","kubernetes.io/readwrite":"ro","share":"x"}"#
        );
        let secret =
            |namespace: &str| Some(SecretName { namespace: namespace.to_owned(), name: "s".to_owned() });
        assert_eq!((own.secret.clone(), own.unique_name().as_str()), (secret("ns"), "vendor/tool/v"));
        let spec = |secret: Value| json!({"flexVolume": {"driver": "vendor/tool", "readOnly": true, "secretRef": secret}});
        let claimed = volume(&persistent(spec(json!({"name": "s", "namespace": "other"})), false));
        assert_eq!((claimed.read_only, claimed.secret), (false, secret("other")), "the claim decides");
        let claimed = volume(&persistent(spec(json!({"name": "s"})), true));
        assert_eq!((claimed.read_only, claimed.secret), (true, secret("ns")));
        assert_eq!(claimed.name, "pv");
    }

    #[test]
    fn a_driver_is_told_of_the_pod_and_of_secrets_of_its_type_alone() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"containers": [], "serviceAccountName": "sa", "securityContext": {"fsGroup": 7}},
        }))
        .expect("a pod");
        let told: Vec<String> = of_pod(&pod).into_values().collect();
        assert_eq!(told, ["7", "p", "ns", "u", "sa"]);
        let secret = |kind: &str| {
            let secret = json!({"type": kind, "data": {"key": "dmFsdWU="}});
            of_secret("vendor/tool", &serde_json::from_value(secret).expect("a Secret"))
        };
        let given = [("kubernetes.io/secret/key".to_owned(), "dmFsdWU=".to_owned())];
        assert_eq!(secret("vendor/tool"), Ok(given.into()));
        assert_eq!(secret("Opaque"), Err("cannot get secret of type vendor/tool".to_owned()));
    }

    #[test]
    fn devices_and_directories_name_their_driver() {
        assert_eq!(of_device(&device("vendor/tool", "v")), Some(("vendor/tool", "v")));
        assert_eq!(of_device(&device("tool", "v")), Some(("tool", "v")));
        assert_eq!(of_device("kubernetes.io/flexvolume/v"), None);
        let at = |dir: &str| driver_at(Path::new(dir));
        assert_eq!(at("/r/pods/u/volumes/vendor~tool/v"), Some("vendor/tool".to_owned()));
        assert_eq!(at("/r/pods/u/volumes/kubernetes.io~nfs/v"), None);
    }
}
