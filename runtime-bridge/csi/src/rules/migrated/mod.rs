//! PURE: the in-tree plugins that CSI drivers have replaced, and their volumes as volumes of these drivers (row 10.17).

mod sources;
mod topology;

use k8s_openapi::api::core::v1::{PersistentVolume, Volume};

/// The annotation of a CSINode that lists the plugins whose volumes this node leaves to CSI drivers.
pub const ANNOTATION: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// The in-tree plugins, in alphabetical order, and the drivers that replaced them.
pub const MIGRATED: &[(&str, &str)] = &[
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/azure-file", "file.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
    ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
];

/// The value of the annotation.
#[must_use]
pub fn annotation() -> String {
    MIGRATED.iter().map(|(plugin, _)| *plugin).collect::<Vec<_>>().join(",")
}

/// The driver that replaced an in-tree plugin.
#[must_use]
pub fn driver_of(plugin: &str) -> Option<&'static str> {
    MIGRATED.iter().find(|(name, _)| *name == plugin).map(|(_, driver)| *driver)
}

/// A PersistentVolume of a migrated plugin as one of the driver that replaced it; `None` for another volume.
///
/// # Errors
/// Upstream's text: the driver cannot have such a volume.
#[must_use]
pub fn persistent(volume: &PersistentVolume) -> Option<Result<PersistentVolume, String>> {
    sources::persistent(volume).map(|made| made.map_err(untranslated))
}

/// An inline volume of a migrated plugin, of a pod in this namespace, as a PersistentVolume of the driver that replaced the
/// plugin; `None` for another volume.
///
/// # Errors
/// Upstream's text: the driver cannot have such a volume.
#[must_use]
pub fn inline(volume: &Volume, namespace: &str) -> Option<Result<PersistentVolume, String>> {
    sources::inline(volume, namespace).map(|made| made.map_err(untranslated))
}

fn untranslated(why: String) -> String {
    format!("failed to translate in-tree pv to CSI: {why}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of_pod(source: Value) -> Result<Value, String> {
        let mut volume = source;
        volume["name"] = json!("v");
        let volume: Volume = serde_json::from_value(volume).expect("a volume");
        let made = inline(&volume, "shop").expect("it is of a migrated plugin")?;
        Ok(serde_json::to_value(made).expect("JSON"))
    }

    /// `[name, handle, modes]` and the source of the PersistentVolume for an inline volume.
    fn told(source: Value) -> (Value, Value) {
        let made = of_pod(source).expect("the driver has it");
        let csi = &made["spec"]["csi"];
        let told = json!([made["metadata"]["name"], csi["volumeHandle"], made["spec"]["accessModes"][0]]);
        (told, csi.clone())
    }

    #[test]
    fn inline_volumes_are_volumes_of_their_drivers() {
        let (names, csi) = told(json!({"awsElasticBlockStore": {
            "volumeID": "aws://us-east-1a/vol-1", "fsType": "xfs", "partition": 2, "readOnly": true,
        }}));
        assert_eq!(names, json!(["ebs.csi.aws.com-vol-1", "vol-1", "ReadWriteOnce"]));
        assert_eq!(csi["volumeAttributes"], json!({"partition": "2"}));
        assert_eq!((&csi["fsType"], &csi["readOnly"]), (&json!("xfs"), &json!(true)));
        let (names, csi) = told(json!({"gcePersistentDisk": {"pdName": "d", "readOnly": true}}));
        let handle = "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d";
        assert_eq!(names, json!(["pd.csi.storage.gke.io-d", handle, "ReadOnlyMany"]));
        assert_eq!(csi["volumeAttributes"], json!({"partition": ""}));
        let uri = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";
        let (names, csi) = told(json!({"azureDisk": {
            "diskName": "d", "diskURI": uri, "kind": "managed", "cachingMode": "None", "fsType": "ext4",
        }}));
        assert_eq!(names, json!([uri, uri, "ReadWriteOnce"]));
        let attributes = json!({"kind": "Managed", "cachingmode": "None", "fstype": "ext4"});
        assert_eq!(csi["volumeAttributes"], attributes);
        let file = json!({"secretName": "azure-storage-account-acc-secret", "shareName": "s"});
        let (names, csi) = told(json!({"azureFile": file}));
        assert_eq!(names, json!(["#acc#s#v#shop", "#acc#s#v#shop", "ReadWriteMany"]));
        let secret = json!({"name": "azure-storage-account-acc-secret", "namespace": "shop"});
        assert_eq!(csi["nodeStageSecretRef"], secret);
        let (names, _) = told(json!({"cinder": {"volumeID": "c"}}));
        assert_eq!(names, json!(["cinder.csi.openstack.org-c", "c", "ReadWriteOnce"]));
        let (names, _) = told(json!({"portworxVolume": {"volumeID": "p", "readOnly": true}}));
        assert_eq!(names, json!(["pxd.portworx.com-p", "p", "ReadOnlyMany"]));
        let (names, csi) =
            told(json!({"vsphereVolume": {"volumePath": "[a] b", "storagePolicyName": "gold"}}));
        assert_eq!(names, json!(["csi.vsphere.vmware.com-[a] b", "[a] b", "ReadWriteOnce"]));
        assert_eq!(csi["volumeAttributes"], json!({"storagepolicyname": "gold"}));
        let other: Volume = serde_json::from_value(json!({"name": "v", "emptyDir": {}})).expect("a volume");
        assert_eq!(inline(&other, "shop"), None);
    }

    #[test]
    fn what_no_driver_has_is_refused() {
        let failed = "failed to translate in-tree pv to CSI: ";
        for (source, why) in [
            (
                json!({"awsElasticBlockStore": {"volumeID": "aws://a/disk"}}),
                "failed to translate Kubernetes ID",
            ),
            (
                json!({"azureDisk": {"diskName": "d", "diskURI": "u", "kind": "Shared"}}),
                "kind(Shared) is not",
            ),
        ] {
            let error = of_pod(source).expect_err("no driver has it");
            assert!(error.starts_with(&format!("{failed}{why}")), "{error}");
        }
    }

    fn behind_claim(source: Value, labels: Value, affinity: Value) -> Result<Value, String> {
        let mut spec = json!({
            "accessModes": ["ReadWriteMany"], "capacity": {"storage": "1Gi"}, "nodeAffinity": affinity,
            "claimRef": {"namespace": "shop", "name": "c"},
        });
        for (field, value) in source.as_object().expect("a map") {
            spec[field] = value.clone();
        }
        let volume = json!({"metadata": {"name": "pv", "labels": labels}, "spec": spec});
        let volume: PersistentVolume = serde_json::from_value(volume).expect("a PersistentVolume");
        let made = persistent(&volume).expect("it is of a migrated plugin")?;
        Ok(serde_json::to_value(made).expect("JSON")["spec"].clone())
    }

    #[test]
    fn persistent_volumes_keep_all_but_their_source_and_say_their_place_as_the_driver_does() {
        let required = |key: &str| {
            let here = json!({"key": key, "operator": "In", "values": ["z"]});
            json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}})
        };
        let ebs = json!({"awsElasticBlockStore": {"volumeID": "vol-1"}});
        for key in ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"] {
            let made = behind_claim(ebs.clone(), json!({}), required(key)).expect("the driver has it");
            assert_eq!(made["nodeAffinity"], required("topology.ebs.csi.aws.com/zone"), "{key}");
            assert_eq!(made["awsElasticBlockStore"], Value::Null);
            assert_eq!(
                (&made["csi"]["volumeHandle"], &made["capacity"]["storage"]),
                (&json!("vol-1"), &json!("1Gi"))
            );
            let made = behind_claim(ebs.clone(), json!({key: "z"}), Value::Null).expect("the driver has it");
            assert_eq!(made["nodeAffinity"], required("topology.ebs.csi.aws.com/zone"), "{key}");
        }
        let disk = json!({"gcePersistentDisk": {"pdName": "d"}});
        let zones = json!({"topology.kubernetes.io/zone": "us-east1-a__us-east1-b"});
        let made = behind_claim(disk.clone(), zones, Value::Null).expect("the driver has it");
        assert_eq!(made["csi"]["volumeHandle"], "projects/UNSPECIFIED/regions/us-east1/disks/d");
        assert_eq!(made["accessModes"], json!(["ReadWriteOnce"]), "it was never written by several nodes");
        let places = &made["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0];
        let both =
            json!({"key": "topology.gke.io/zone", "operator": "In", "values": ["us-east1-a", "us-east1-b"]});
        assert_eq!(*places, both);
        let far = json!({"topology.kubernetes.io/zone": "us-east1-a__us-west1-b"});
        let error = behind_claim(disk, far, Value::Null).expect_err("it is in two regions");
        assert!(error.contains("multiple or no regions gotten from zones"), "{error}");
        let file = json!({"azureFile": {"secretName": "s", "shareName": "share"}});
        let made = behind_claim(file, json!({}), Value::Null).expect("the driver has it");
        assert_eq!(made["csi"]["volumeHandle"], "#s#share#pv#shop");
    }

    #[test]
    fn plugins_are_listed_in_order() {
        assert!(MIGRATED.is_sorted());
        assert!(annotation().starts_with("kubernetes.io/aws-ebs,kubernetes.io/azure-disk,"));
        assert_eq!(driver_of("kubernetes.io/gce-pd"), Some("pd.csi.storage.gke.io"));
        assert_eq!(driver_of("kubernetes.io/nfs"), None);
    }
}
