//! PURE: what a volume of a CSI driver is, by its pod's spec or its PersistentVolume.

use std::collections::BTreeMap;

use bridge_csi::rules::access::{Access, AccessMode, Use};
use bridge_csi::rules::attachment;
use bridge_csi::rules::vol_data::Lifecycle;
use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, CSIVolumeSource, Pod};

use crate::source::{Persistent, Source};

/// A Secret whose values a driver is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SecretName {
    pub namespace: String,
    pub name: String,
}

/// A volume of a CSI driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CsiVolume {
    pub driver: String,
    /// The driver's name of the volume.
    pub handle: String,
    pub lifecycle: Lifecycle,
    /// The type of the file system; empty if the volume does not say it.
    pub fs_type: String,
    pub attributes: BTreeMap<String, String>,
    pub read_only: bool,
    /// Whether pods have it as a block device.
    pub is_block: bool,
    /// The access modes; `None`: inline.
    pub modes: Option<Vec<String>>,
    pub mount_options: Vec<String>,
    pub stage_secret: Option<SecretName>,
    pub publish_secret: Option<SecretName>,
    pub expand_secret: Option<SecretName>,
}

/// The inline source of a driver.
fn inline(source: &Source) -> Option<&CSIVolumeSource> {
    source.inline()?.csi.as_ref()
}

/// The persistent source of a driver.
fn persistent(source: &Source) -> Option<(&Persistent, &CSIPersistentVolumeSource)> {
    let persistent = source.persistent()?;
    Some((persistent, persistent.spec()?.csi.as_ref()?))
}

/// Whether a driver has the volume.
pub(super) fn serves(source: &Source) -> bool {
    inline(source).is_some() || persistent(source).is_some()
}

/// The driver that has the volume.
pub(super) fn driver_of(source: &Source) -> Option<&str> {
    let inline = inline(source).map(|found| found.driver.as_str());
    inline.or_else(|| persistent(source).map(|(_, found)| found.driver.as_str()))
}

impl CsiVolume {
    /// The volume of this source, for a pod.
    pub fn of(source: &Source, pod: &Pod) -> Option<Self> {
        inline(source)
            .map(|found| Self::of_inline(source.spec_name(), found, pod))
            .or_else(|| persistent(source).map(|(persistent, found)| Self::of_persistent(persistent, found)))
    }

    fn of_inline(name: &str, source: &CSIVolumeSource, pod: &Pod) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let secret = |secret: &k8s_openapi::api::core::v1::LocalObjectReference| SecretName {
            namespace: text(&pod.metadata.namespace),
            name: secret.name.clone(),
        };
        Self {
            driver: source.driver.clone(),
            handle: attachment::inline_handle(pod.metadata.uid.as_deref().unwrap_or_default(), name),
            lifecycle: Lifecycle::Ephemeral,
            fs_type: text(&source.fs_type),
            attributes: source.volume_attributes.clone().unwrap_or_default(),
            read_only: source.read_only.unwrap_or_default(),
            is_block: false,
            modes: None,
            mount_options: Vec::new(),
            stage_secret: None,
            publish_secret: source.node_publish_secret_ref.as_ref().map(secret),
            expand_secret: None,
        }
    }

    fn of_persistent(persistent: &Persistent, source: &CSIPersistentVolumeSource) -> Self {
        let secret = |secret: &k8s_openapi::api::core::v1::SecretReference| SecretName {
            namespace: secret.namespace.clone().unwrap_or_default(),
            name: secret.name.clone().unwrap_or_default(),
        };
        let spec = persistent.spec();
        Self {
            driver: source.driver.clone(),
            handle: source.volume_handle.clone(),
            lifecycle: Lifecycle::Persistent,
            fs_type: source.fs_type.clone().unwrap_or_default(),
            attributes: source.volume_attributes.clone().unwrap_or_default(),
            read_only: persistent.read_only,
            is_block: persistent.is_block(),
            modes: Some(spec.and_then(|spec| spec.access_modes.clone()).unwrap_or_default()),
            mount_options: spec.and_then(|spec| spec.mount_options.clone()).unwrap_or_default(),
            stage_secret: source.node_stage_secret_ref.as_ref().map(secret),
            publish_secret: source.node_publish_secret_ref.as_ref().map(secret),
            expand_secret: source.node_expand_secret_ref.as_ref().map(secret),
        }
    }

    /// The name by which Nodes report the volume, and by which work on it takes its turn.
    pub fn unique_name(&self) -> String {
        attachment::unique_name(&self.driver, &self.handle)
    }

    /// Whether the volume is inline in its pod.
    pub fn is_inline(&self) -> bool {
        self.lifecycle == Lifecycle::Ephemeral
    }

    /// How the volume is used by a pod of this group.
    pub fn access(&self, group: Option<i64>) -> Access {
        let mode = AccessMode::of_volume(self.modes.as_deref());
        if self.is_block {
            return Access::block(mode);
        }
        let used_as = Use::Mount { fs_type: self.fs_type.clone(), flags: self.mount_options.clone(), group };
        Access { mode, used_as }
    }
}

/// A volume by the name under which Nodes report it: its driver, and its handle.
pub(super) fn named(unique_name: &str) -> Option<(&str, &str)> {
    let rest = unique_name.strip_prefix(bridge_csi::rules::PLUGIN)?.strip_prefix('/')?;
    rest.split_once('^').filter(|(driver, handle)| !driver.is_empty() && !handle.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests;

    #[test]
    fn an_inline_volume_is_its_pods_alone() {
        let source = tests::inline(&serde_json::json!({"name": "v", "csi": {
            "driver": "d.example", "fsType": "xfs", "readOnly": true,
            "volumeAttributes": {"share": "a"}, "nodePublishSecretRef": {"name": "s"},
        }}));
        let mut pod = tests::pod();
        pod.metadata.namespace = Some("shop".to_owned());
        let volume = CsiVolume::of(&source, &pod).expect("a driver has it");
        assert_eq!(volume.handle, attachment::inline_handle("u", "v"));
        assert!(volume.is_inline() && volume.read_only && serves(&source));
        let secret = SecretName { namespace: "shop".into(), name: "s".into() };
        assert_eq!((volume.publish_secret, volume.stage_secret), (Some(secret), None));
        assert!(!serves(&tests::inline(&serde_json::json!({"name": "v", "emptyDir": {}}))));
    }

    #[test]
    fn a_persistent_volume_says_how_it_is_used() {
        let spec = serde_json::json!({
            "accessModes": ["ReadWriteOncePod"], "mountOptions": ["noatime"],
            "csi": {
                "driver": "d.example", "volumeHandle": "h/1", "readOnly": true,
                "nodeStageSecretRef": {"name": "s", "namespace": "n"},
            },
        });
        let volume = CsiVolume::of(&tests::persistent(spec, false), &tests::pod()).expect("a driver has it");
        assert!(!volume.read_only, "what counts is how the pod asks for it");
        assert_eq!(volume.unique_name(), "kubernetes.io/csi/d.example^h/1");
        assert_eq!(named(&volume.unique_name()), Some(("d.example", "h/1")));
        let access = volume.access(Some(7));
        assert_eq!(access.mode, AccessMode::ReadWriteOncePod);
        let flags = vec!["noatime".to_owned()];
        assert_eq!(access.used_as, Use::Mount { fs_type: String::new(), flags, group: Some(7) });
        for other in ["kubernetes.io/nfs/d^h", "kubernetes.io/csi/d", "kubernetes.io/csi/^h"] {
            assert_eq!(named(other), None);
        }
    }
}
