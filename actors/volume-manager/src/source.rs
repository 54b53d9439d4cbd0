//! What a volume of a pod is made of (row 10.18): the source in the pod spec, or the PersistentVolume to which the claim that
//! the pod names is bound.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bridge_csi::rules::migrated;
use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, Pod, Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use pod_spec::quantity::Quantity as Amount;

/// The finalizer that keeps a claim while pods use it.
const IN_USE: &str = "kubernetes.io/pvc-protection";
/// The annotation of a PersistentVolume with its group.
const GROUP: &str = "pv.beta.kubernetes.io/gid";
/// The annotation of a PersistentVolume with its mount options, which is older than the field.
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
/// The access mode of a volume that only one pod may use.
pub(crate) const ONE_POD: &str = "ReadWriteOncePod";

/// Upstream's text of a volume that only one pod may use.
pub(crate) const USED_BY_ANOTHER: &str =
    "volume uses the ReadWriteOncePod access mode and is already in use by another pod";

/// `volumeMode` of a claim or PersistentVolume without one.
const FILESYSTEM: &str = "Filesystem";
/// `volumeMode` of what pods have as a block device.
const BLOCK: &str = "Block";

/// The source of one volume.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    /// The pod spec says all.
    Inline(Box<Volume>),
    /// A PersistentVolume.
    Persistent(Box<Persistent>),
}

/// A PersistentVolume that a pod has through a claim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Persistent {
    /// The PersistentVolume.
    pub volume: Arc<PersistentVolume>,
    /// Whether the pod asks for it read-only: `persistentVolumeClaim.readOnly`.
    pub read_only: bool,
    /// The claim; empty for a volume of the pod itself whose plugin a CSI driver has replaced.
    pub claim: Arc<PersistentVolumeClaim>,
}

impl Persistent {
    /// The PersistentVolume's name.
    pub fn name(&self) -> &str {
        self.volume.metadata.name.as_deref().unwrap_or_default()
    }

    /// The PersistentVolume's spec.
    pub fn spec(&self) -> Option<&PersistentVolumeSpec> {
        self.volume.spec.as_ref()
    }

    /// The options with which people want it mounted, sorted: those of the annotation, else those of the spec.
    pub fn mount_options(&self) -> BTreeSet<String> {
        let annotation =
            self.annotation(MOUNT_OPTIONS).map(|text| text.split(',').map(str::to_owned).collect());
        let options = annotation.or_else(|| self.spec()?.mount_options.clone()).unwrap_or_default();
        options.into_iter().filter(|option: &String| !option.is_empty()).collect()
    }

    /// The group by which containers have access to it; `None` also for an annotation that is no number.
    pub fn group(&self) -> Option<i64> {
        self.annotation(GROUP)?.parse().ok()
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.volume.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Whether no other pod may use the volume. With several access modes it is not known which one the pod means.
    pub fn is_for_one_pod(&self) -> bool {
        self.spec().and_then(|spec| spec.access_modes.as_deref()).is_some_and(|modes| modes == [ONE_POD])
    }

    /// Whether it is larger than its claim tells.
    pub fn has_grown(&self) -> bool {
        let amount = |all: Option<&BTreeMap<String, Quantity>>| {
            let size = all.and_then(|all| all.get("storage"));
            size.and_then(|size| Amount::parse(&size.0).ok()).unwrap_or(Amount::ZERO)
        };
        let told = self.claim.status.as_ref().and_then(|status| status.capacity.as_ref());
        amount(told) < amount(self.spec().and_then(|spec| spec.capacity.as_ref()))
    }

    /// Whether pods have it as a block device.
    pub fn is_block(&self) -> bool {
        self.mode() == BLOCK
    }

    /// `Filesystem` or `Block`.
    pub fn mode(&self) -> &str {
        self.spec().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or(FILESYSTEM)
    }
}

impl Source {
    /// The name of the volume's directory: its name in the pod spec, or its PersistentVolume's.
    pub fn spec_name(&self) -> &str {
        match self {
            Self::Inline(volume) => &volume.name,
            Self::Persistent(persistent) => persistent.name(),
        }
    }

    /// The volume of the pod spec, unless it is a claim.
    pub fn inline(&self) -> Option<&Volume> {
        match self {
            Self::Inline(volume) => Some(volume),
            Self::Persistent(_) => None,
        }
    }

    /// The PersistentVolume behind a claim.
    pub fn persistent(&self) -> Option<&Persistent> {
        match self {
            Self::Inline(_) => None,
            Self::Persistent(persistent) => Some(persistent),
        }
    }

    /// Whether pods have it as a block device.
    pub fn is_block(&self) -> bool {
        self.persistent().is_some_and(Persistent::is_block)
    }

    /// Whether it is shown read-only, so that its files keep the labels that they have.
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::Inline(volume) => {
                let asked = [
                    volume.csi.as_ref().and_then(|csi| csi.read_only),
                    volume.iscsi.as_ref().and_then(|iscsi| iscsi.read_only),
                    volume.fc.as_ref().and_then(|fc| fc.read_only),
                ];
                asked.contains(&Some(true))
            }
            Self::Persistent(persistent) => {
                let csi = persistent.spec().and_then(|spec| spec.csi.as_ref());
                persistent.read_only || csi.is_some_and(|csi| csi.read_only == Some(true))
            }
        }
    }

    /// A hostPath, inline or persistent.
    pub fn host_path(&self) -> Option<&HostPathVolumeSource> {
        match self {
            Self::Inline(volume) => volume.host_path.as_ref(),
            Self::Persistent(persistent) => persistent.spec()?.host_path.as_ref(),
        }
    }

    /// The field that is the source, as the API spells it; empty for an inline volume without one.
    pub fn field(&self) -> String {
        match self {
            Self::Inline(volume) => field_of(volume),
            Self::Persistent(persistent) => of_persistent(persistent.spec()),
        }
    }
}

/// The field of an inline volume that is its source, as the API spells it; empty without one.
fn field_of(volume: &Volume) -> String {
    let fields = serde_json::to_value(volume).ok();
    let mut names = fields.iter().filter_map(serde_json::Value::as_object).flat_map(|fields| fields.keys());
    names.find(|name| *name != "name").cloned().unwrap_or_default()
}

/// The field of a PersistentVolume that is its source.
fn of_persistent(spec: Option<&PersistentVolumeSpec>) -> String {
    const OTHERS: [&str; 9] = [
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    ];
    let fields = spec.and_then(|spec| serde_json::to_value(spec).ok());
    let mut names = fields.iter().filter_map(serde_json::Value::as_object).flat_map(|fields| fields.keys());
    names.find(|name| !OTHERS.contains(&name.as_str())).cloned().unwrap_or_default()
}

/// The claim that a volume of a pod names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimName {
    /// The claim's name, in the pod's namespace.
    pub name: String,
    /// Whether the pod asks for the volume read-only.
    pub read_only: bool,
    /// Whether the claim is made for this pod alone, from `ephemeral.volumeClaimTemplate`.
    pub ephemeral: bool,
}

/// The claim that the volume names; `None` if the pod spec itself says what the volume is.
pub(crate) fn claim_of(volume: &Volume, pod: &Pod) -> Option<ClaimName> {
    if let Some(claim) = &volume.persistent_volume_claim {
        let read_only = claim.read_only.unwrap_or_default();
        return Some(ClaimName { name: claim.claim_name.clone(), read_only, ephemeral: false });
    }
    volume.ephemeral.as_ref()?;
    let name = format!("{}-{}", pod.metadata.name.as_deref().unwrap_or_default(), volume.name);
    Some(ClaimName { name, read_only: false, ephemeral: true })
}

/// PURE: the name of the PersistentVolume that a claim is bound to.
///
/// # Errors
/// Upstream's text: the claim is not bound, or about to go.
pub(crate) fn bound_volume(claim: &PersistentVolumeClaim) -> Result<&str, &'static str> {
    let finalizers = claim.metadata.finalizers.as_deref().unwrap_or_default();
    if claim.metadata.deletion_timestamp.is_some() && !finalizers.iter().any(|finalizer| finalizer == IN_USE)
    {
        return Err("PVC is being deleted");
    }
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Bound") {
        return Err("PVC is not bound");
    }
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    volume.filter(|name| !name.is_empty()).ok_or("PVC has empty pvc.Spec.VolumeName")
}

/// PURE: whether a claim that was made for a pod's own volume belongs to the pod: a claim of another owner may have its name.
///
/// # Errors
/// Upstream's text.
pub(crate) fn check_owner(claim: &PersistentVolumeClaim, pod: &Pod) -> Result<(), String> {
    let owners = claim.metadata.owner_references.as_deref().unwrap_or_default();
    let of_pod = |owner: &&k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| {
        owner.controller == Some(true) && Some(owner.uid.as_str()) == pod.metadata.uid.as_deref()
    };
    if owners.iter().find(of_pod).is_some() {
        return Ok(());
    }
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Err(format!(
        "PVC {}/{} was not created for pod {}/{} (pod is not owner)",
        text(&claim.metadata.namespace),
        text(&claim.metadata.name),
        text(&pod.metadata.namespace),
        text(&pod.metadata.name)
    ))
}

/// PURE: the source behind a bound claim.
///
/// # Errors
/// Upstream's text: the PersistentVolume is bound to another claim.
pub(crate) fn behind(
    claim: &Arc<PersistentVolumeClaim>,
    volume: Arc<PersistentVolume>,
    read_only: bool,
) -> Result<Source, String> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let Some(bound_to) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else {
        return Err(format!(
            "found PV object {name} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
        ));
    };
    let bound_uid = bound_to.uid.as_deref().unwrap_or_default();
    if bound_uid != uid {
        return Err(format!(
            "found PV object {name} but its pv.Spec.ClaimRef.UID {bound_uid} does not point to claim.UID {uid}"
        ));
    }
    Ok(Source::Persistent(Box::new(Persistent { volume, read_only, claim: claim.clone() })))
}

/// PURE: a source of a plugin that a CSI driver has replaced as a volume of the driver, for a pod in this namespace; another
/// source as it is (row 10.17).
///
/// # Errors
/// Upstream's text: the driver cannot have such a volume.
pub(crate) fn migrated(source: Source, namespace: &str) -> Result<Source, String> {
    let made = match &source {
        Source::Inline(volume) => migrated::inline(volume, namespace),
        Source::Persistent(persistent) => migrated::persistent(&persistent.volume),
    };
    let Some(volume) = made.transpose()? else { return Ok(source) };
    let (read_only, claim) = match source {
        // It has no capacity either, so that it never grows beyond what its claim tells.
        Source::Inline(_) => (false, Arc::default()),
        Source::Persistent(persistent) => (persistent.read_only, persistent.claim),
    };
    Ok(Source::Persistent(Box::new(Persistent { volume: Arc::new(volume), read_only, claim })))
}

/// How containers of a pod use a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Uses {
    /// A container has it in `volumeMounts`.
    pub mounted: bool,
    /// A container has it in `volumeDevices`.
    pub as_device: bool,
}

/// PURE: whether the pod uses a persistent volume as what it is, a file system or a device.
///
/// # Errors
/// Upstream's text.
pub(crate) fn check_mode(name: &str, persistent: &Persistent, uses: Uses) -> Result<(), String> {
    let mode = persistent.mode();
    let wrong = |place| Err(format!("volume {name} has volumeMode {mode}, but is specified in {place}"));
    if uses.mounted && mode != FILESYSTEM {
        wrong("volumeMounts")
    } else if uses.as_device && mode != BLOCK {
        wrong("volumeDevices")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
        serde_json::from_value(value).expect("an object of the API")
    }

    fn claim(more: serde_json::Value) -> PersistentVolumeClaim {
        let mut claim = serde_json::json!({
            "metadata": {"name": "c", "namespace": "ns", "uid": "claim"},
            "spec": {"volumeName": "pv"},
            "status": {"phase": "Bound"},
        });
        let fields = claim.as_object_mut().expect("a map");
        for (field, value) in more.as_object().expect("a map") {
            fields.insert(field.clone(), value.clone());
        }
        from(claim)
    }

    fn volume(spec: serde_json::Value) -> PersistentVolume {
        from(serde_json::json!({"metadata": {"name": "pv"}, "spec": spec}))
    }

    fn pod() -> Pod {
        from(serde_json::json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}))
    }

    #[test]
    fn a_claim_leads_to_its_volume_once_it_is_bound() {
        assert_eq!(bound_volume(&claim(serde_json::json!({}))), Ok("pv"));
        for (more, error) in [
            (serde_json::json!({"status": {"phase": "Pending"}}), "PVC is not bound"),
            (serde_json::json!({"status": {}}), "PVC is not bound"),
            (serde_json::json!({"spec": {}}), "PVC has empty pvc.Spec.VolumeName"),
            (
                serde_json::json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
                "PVC is being deleted",
            ),
        ] {
            assert_eq!(bound_volume(&claim(more)), Err(error));
        }
        let used = serde_json::json!({"metadata": {
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubernetes.io/pvc-protection"],
        }});
        assert_eq!(bound_volume(&claim(used)), Ok("pv"), "pods that use it may start again");
    }

    #[test]
    fn a_volume_that_is_another_claims_is_refused() {
        let of = |spec| behind(&Arc::new(claim(serde_json::json!({}))), Arc::new(volume(spec)), true);
        let found = of(serde_json::json!({"claimRef": {"uid": "claim"}, "hostPath": {"path": "/x"}}));
        let source = found.expect("it is bound to the claim");
        assert_eq!((source.spec_name(), source.field()), ("pv", "hostPath".to_owned()));
        assert_eq!(source.host_path().map(|source| source.path.as_str()), Some("/x"));
        let other = of(serde_json::json!({"claimRef": {"uid": "other"}})).expect_err("it is another claim's");
        assert_eq!(
            other,
            "found PV object pv but its pv.Spec.ClaimRef.UID other does not point to claim.UID claim"
        );
        let free = of(serde_json::json!({})).expect_err("it is bound to none");
        assert!(free.starts_with("found PV object pv but it has a nil pv.Spec.ClaimRef"), "{free}");
    }

    #[test]
    fn a_pods_own_claim_must_be_its_own() {
        let volume: Volume = from(serde_json::json!({"name": "v", "ephemeral": {}}));
        let named = claim_of(&volume, &pod()).expect("it names a claim");
        assert_eq!((named.name.as_str(), named.ephemeral), ("p-v", true));
        let owner = |uid: &str, controller: bool| {
            let owner = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": controller});
            claim(
                serde_json::json!({"metadata": {"name": "p-v", "namespace": "ns", "ownerReferences": [owner]}}),
            )
        };
        assert_eq!(check_owner(&owner("u", true), &pod()), Ok(()));
        for stranger in [owner("other", true), owner("u", false)] {
            let error = check_owner(&stranger, &pod()).expect_err("it is not the pod's");
            assert_eq!(error, "PVC ns/p-v was not created for pod ns/p (pod is not owner)");
        }
    }

    #[test]
    fn a_device_is_no_file_system() {
        let persistent = |mode: Option<&str>| Persistent {
            volume: Arc::new(volume(serde_json::json!({"volumeMode": mode}))),
            read_only: false,
            claim: Default::default(),
        };
        let (mounted, device) =
            (Uses { mounted: true, as_device: false }, Uses { mounted: false, as_device: true });
        assert_eq!(check_mode("v", &persistent(None), mounted), Ok(()));
        assert_eq!(check_mode("v", &persistent(Some("Block")), device), Ok(()));
        assert_eq!(
            check_mode("v", &persistent(Some("Block")), mounted),
            Err("volume v has volumeMode Block, but is specified in volumeMounts".to_owned())
        );
        assert_eq!(
            check_mode("v", &persistent(None), device),
            Err("volume v has volumeMode Filesystem, but is specified in volumeDevices".to_owned())
        );
    }
}
