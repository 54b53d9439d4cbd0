use serde_json::{Value, json};

use super::check;

/// Checks a fourth volume with the given source.
fn sources(rows: &[(Value, &[&str])]) {
    for (source, expected) in rows {
        let mut volume = json!({"name": "v"});
        volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        let expected: Vec<String> = expected.iter().map(|text| format!("spec.volumes[3]{text}")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check(&[("/spec/volumes/-", volume, &expected)]);
    }
}

#[test]
fn names_and_number_of_sources() {
    check(&[
        ("/spec/volumes/-", json!({"name": ""}), &["spec.volumes[3].name: Required value"]),
        (
            "/spec/volumes/-",
            json!({"name": "a.b"}),
            &["spec.volumes[3].name: Invalid value: \"a.b\": must not contain dots"],
        ),
        ("/spec/volumes/-", json!({"name": "tmp"}), &["spec.volumes[3].name: Duplicate value: \"tmp\""]),
        (
            "/spec/volumes/1",
            json!({"name": "host", "hostPath": {"path": ""}}),
            &[
                "spec.volumes[1].hostPath.path: Required value",
                "spec.containers[0].volumeMounts[1].name: Not found: \"host\"",
            ],
        ),
    ]);
    sources(&[
        (
            json!({"emptyDir": {}, "hostPath": {"path": ""}, "image": {}}),
            &[".hostPath: Forbidden: may not specify more than 1 volume type", ".image: Forbidden"],
        ),
        (
            json!({"emptyDir": {"sizeLimit": "-1"}}),
            &[".emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity"],
        ),
        (
            json!({"hostPath": {"path": "/a/../b", "type": "Pipe"}}),
            &[
                ".hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
                ".hostPath.type: Unsupported value: \"Pipe\"",
            ],
        ),
    ]);
}

#[test]
fn current_sources() {
    sources(&[
        (
            json!({"secret": {"defaultMode": 512, "items": [{"key": "", "path": "", "mode": -1}]}}),
            &[
                ".secret.secretName: Required value",
                ".secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
                ".secret.items[0].key: Required value",
                ".secret.items[0].path: Required value",
                ".secret.items[0].mode: Invalid value: -1",
            ],
        ),
        (
            json!({"configMap": {"name": "", "items": [{"key": "k", "path": "..x"}, {"key": "k", "path": "/x"}]}}),
            &[
                ".configMap.name: Required value",
                ".configMap.items[0].path: Invalid value: \"..x\": must not start with '..'",
                ".configMap.items[1].path: Invalid value: \"/x\": must be a relative path",
            ],
        ),
        (
            json!({"persistentVolumeClaim": {"claimName": ""}}),
            &[".persistentVolumeClaim.claimName: Required value"],
        ),
        (
            json!({"downwardAPI": {"items": [{"path": "p"}, {"path": "q", "fieldRef": {"fieldPath": "status.podIP"}}, {"path": "r", "resourceFieldRef": {"resource": "limits.cpu"}}]}}),
            &[
                ".downwardAPI.items[0]: Required value: one of fieldRef and resourceFieldRef is required",
                ".downwardAPI.items[1].fieldRef.fieldPath: Unsupported value: \"status.podIP\"",
                ".downwardAPI.items[2].resourceFieldRef.containerName: Required value",
            ],
        ),
        (json!({"csi": {"driver": ""}}), &[".csi.driver: Required value"]),
        (
            json!({"csi": {"driver": "a_b", "nodePublishSecretRef": {}}}),
            &[".csi.driver: Invalid value: \"a_b\"", ".csi.nodePublishSecretRef.name: Required value"],
        ),
        (
            json!({"csi": {"driver": "a".repeat(64)}}),
            &[".csi.driver: Too long: may not be more than 63 bytes"],
        ),
        (json!({"image": {}}), &[".image.reference: Required value"]),
        (
            json!({"image": {"reference": "a", "pullPolicy": "x"}}),
            &[".image.pullPolicy: Unsupported value: \"x\""],
        ),
        (json!({"ephemeral": {}}), &[".ephemeral.volumeClaimTemplate: Required value"]),
        (
            json!({"ephemeral": {"volumeClaimTemplate": {"metadata": {"name": "n", "labels": {"a b": "c"}}, "spec": {}}}}),
            &[
                ".ephemeral.volumeClaimTemplate.metadata.labels: Invalid value: \"a b\"",
                ".ephemeral.volumeClaimTemplate.metadata.name: Forbidden: cannot be set",
                ".ephemeral.volumeClaimTemplate.spec.accessModes: Required value",
                ".ephemeral.volumeClaimTemplate.spec.resources[storage]: Required value",
            ],
        ),
        (
            json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOncePod", "ReadWriteMany", "x"], "volumeMode": "y", "storageClassName": "A", "resources": {"requests": {"storage": "0"}},
            "dataSource": {"kind": "K", "name": ""}, "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "n", "namespace": "A"}}}}}),
            &[
                ".ephemeral.volumeClaimTemplate.spec.accessModes: Unsupported value: \"x\"",
                ".ephemeral.volumeClaimTemplate.spec.accessModes: Forbidden: may not use ReadWriteOncePod",
                ".ephemeral.volumeClaimTemplate.spec.resources[storage]: Invalid value: \"0\": must be greater than zero",
                ".ephemeral.volumeClaimTemplate.spec.storageClassName: Invalid value: \"A\"",
                ".ephemeral.volumeClaimTemplate.spec.volumeMode: Unsupported value: \"y\"",
                ".ephemeral.volumeClaimTemplate.spec.dataSource.name: Required value",
                ".ephemeral.volumeClaimTemplate.spec.dataSource: Invalid value: \"K\": must be 'PersistentVolumeClaim'",
                ".ephemeral.volumeClaimTemplate.spec.dataSourceRef.namespace: Invalid value: \"A\"",
                ".ephemeral.volumeClaimTemplate.spec.dataSource: Invalid value: \"\": may not be specified",
            ],
        ),
        (
            json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}),
            &[],
        ),
    ]);
    check(&[(
        "/spec/volumes",
        json!([{"name": "tmp"}, {"name": "host", "hostPath": {"path": "/x"}}, {"name": "claim", "persistentVolumeClaim": {"claimName": "web-e"}},
            {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}]),
        &[
            "spec.volumes[2].persistentVolumeClaim.claimName: Invalid value: \"web-e\": must not reference a PVC",
        ],
    )]);
}

#[test]
fn projected_sources() {
    let certificate = json!({"signerName": "kubernetes.io/a", "keyType": "DSA", "maxExpirationSeconds": 90000, "userAnnotations": {"plain": "x"}});
    let rows: Vec<(Value, Vec<&str>)> = vec![
        (json!({"secret": {"name": ""}}), vec![".secret.name: Required value"]),
        (
            json!({"configMap": {"name": "c", "items": [{"key": "a", "path": "same"}, {"key": "b", "path": "same"}]}}),
            vec![".configMap.items[1].path: Invalid value: \"same\": conflicting duplicate paths"],
        ),
        (
            json!({"secret": {"name": "s"}, "configMap": {"name": "c"}}),
            vec![": Forbidden: may not specify more than 1 volume type per source"],
        ),
        (
            json!({"serviceAccountToken": {"path": "../t", "expirationSeconds": 599}}),
            vec![
                ".serviceAccountToken.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
                ".serviceAccountToken.path: Invalid value: \"../t\"",
                ".serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set",
            ],
        ),
        (
            json!({"clusterTrustBundle": {"path": ""}}),
            vec![
                ".clusterTrustBundle: Required value: either name or signerName",
                ".clusterTrustBundle.path: Required value",
            ],
        ),
        (
            json!({"clusterTrustBundle": {"path": "p", "name": "A", "labelSelector": {}}}),
            vec![
                ".clusterTrustBundle.name: Invalid value: \"A\": not a valid clustertrustbundlename",
                ".clusterTrustBundle.labelSelector: Invalid value",
            ],
        ),
        (
            json!({"clusterTrustBundle": {"path": "p", "name": "a", "signerName": "a.b/c"}}),
            vec![".clusterTrustBundle: Invalid value: \"a\": only one of name and signerName"],
        ),
        (
            json!({"clusterTrustBundle": {"path": "p", "signerName": "ab/c"}}),
            vec![".clusterTrustBundle.signerName: Invalid value: \"ab\": should be a domain"],
        ),
        (json!({"clusterTrustBundle": {"path": "p", "signerName": "a.b/c"}}), vec![]),
        (
            json!({"podCertificate": certificate}),
            vec![
                ".podCertificate.userAnnotations: Invalid value: \"plain\": must be a domain-prefixed key",
                ".podCertificate.keyType: Unsupported value: \"DSA\"",
                ".podCertificate.maxExpirationSeconds: Invalid value: 90000: if provided, maxExpirationSeconds must be <= 86400",
                ".podCertificate: Required value: specify at least one",
            ],
        ),
        (
            json!({"podCertificate": {"signerName": "a.b/c", "keyType": "ED25519", "keyPath": "k", "certificateChainPath": "k"}}),
            vec![".podCertificate.certificateChainPath: Invalid value: \"k\": conflicting duplicate paths"],
        ),
        (
            json!({"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}, "mode": 1000}]}}),
            vec![".downwardAPI.items[0].mode: Invalid value: 1000"],
        ),
    ];
    for (source, expected) in rows {
        let expected: Vec<String> =
            expected.iter().map(|text| format!(".projected.sources[0]{text}")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        sources(&[(json!({"projected": {"sources": [source]}}), &expected)]);
    }
    sources(&[(json!({"projected": {"defaultMode": -1}}), &[".projected.defaultMode: Invalid value: -1"])]);
}

#[test]
fn network_sources() {
    sources(&[
        (
            json!({"gitRepo": {"repository": "", "directory": "../x"}}),
            &[".gitRepo.repository: Required value", ".gitRepo.directory: Invalid value: \"../x\""],
        ),
        (
            json!({"nfs": {"server": "", "path": "x"}}),
            &[".nfs.server: Required value", ".nfs.path: Invalid value: \"x\": must be an absolute path"],
        ),
        (
            json!({"iscsi": {"targetPortal": "", "iqn": "", "lun": 256, "chapAuthSession": true}}),
            &[
                ".iscsi.targetPortal: Required value",
                ".iscsi.iqn: Required value",
                ".iscsi.lun: Invalid value: 256",
                ".iscsi.secretRef: Required value",
            ],
        ),
        (json!({"iscsi": {"targetPortal": "p", "iqn": "iqn.2015-02.example.com:test", "lun": 0}}), &[]),
        (
            json!({"iscsi": {"targetPortal": "p", "iqn": "iqn.2015-02.a:b", "lun": 0, "portals": vec!["p"; 16]}}),
            &[".iscsi.portals: Too many: 16: must have at most 15 items"],
        ),
        (
            json!({"iscsi": {"targetPortal": "p", "iqn": "eui.0123456789ABCDEF", "lun": 0, "initiatorName": "naa.x"}}),
            &[".iscsi.initiatorName: Invalid value: \"naa.x\": must be valid format"],
        ),
        (
            json!({"iscsi": {"targetPortal": "p", "iqn": "x", "lun": 0}}),
            &[".iscsi.iqn: Invalid value: \"x\": must be valid format starting with"],
        ),
        (
            json!({"iscsi": {"targetPortal": "p".repeat(64), "iqn": "iqn.2015-02.a:b", "lun": 0, "initiatorName": "iqn.2015-02.a:b"}}),
            &[".name: Invalid value: \"v\": Total length"],
        ),
        (json!({"flocker": {}}), &[".flocker: Required value: one of datasetName and datasetUUID"]),
        (
            json!({"flocker": {"datasetName": "a/b", "datasetUUID": "u"}}),
            &[
                ".flocker: Invalid value: \"resource\"",
                ".flocker.datasetName: Invalid value: \"a/b\": must not contain '/'",
            ],
        ),
        (
            json!({"quobyte": {"registry": "host", "volume": ""}}),
            &[".quobyte.registry: Invalid value: \"host\"", ".quobyte.volume: Required value"],
        ),
        (json!({"quobyte": {"registry": "a:1,[::1]:2", "volume": "v"}}), &[]),
        (json!({"fc": {}}), &[".fc.targetWWNs: Required value"]),
        (
            json!({"fc": {"targetWWNs": ["a"], "wwids": ["b"], "lun": 300}}),
            &[".fc.targetWWNs: Invalid value: [\"a\"]", ".fc.lun: Invalid value: 300"],
        ),
        (json!({"fc": {"targetWWNs": ["a"]}}), &[".fc.lun: Required value"]),
    ]);
}

#[test]
fn cloud_sources() {
    sources(&[
        (
            json!({"flexVolume": {"driver": "", "options": {"x.kubernetes.io/a": "b"}}}),
            &[".flexVolume.driver: Required value", ".flexVolume.options[x.kubernetes.io/a]: Invalid value"],
        ),
        (
            json!({"azureDisk": {"diskName": "", "diskURI": "x", "kind": "Managed", "cachingMode": "y"}}),
            &[
                ".azureDisk.diskName: Required value",
                ".azureDisk.cachingMode: Unsupported value: \"y\"",
                ".azureDisk.diskURI: Unsupported value: \"x\"",
            ],
        ),
        (json!({"azureDisk": {"diskName": "a", "diskURI": "https://x"}}), &[]),
        (
            json!({"storageos": {"volumeNamespace": "A", "secretRef": {}}}),
            &[
                ".storageos.volumeName: Required value",
                ".storageos.volumeNamespace: Invalid value: \"A\"",
                ".storageos.secretRef.name: Required value",
            ],
        ),
        (
            json!({"gcePersistentDisk": {"pdName": "", "partition": 256}}),
            &[
                ".gcePersistentDisk.partition: Invalid value: 256",
                ".gcePersistentDisk.pdName: Required value",
            ],
        ),
        (
            json!({"awsElasticBlockStore": {"volumeID": ""}}),
            &[".awsElasticBlockStore.volumeID: Required value"],
        ),
        (
            json!({"glusterfs": {"endpoints": "", "path": ""}}),
            &[".glusterfs.endpoints: Required value", ".glusterfs.path: Required value"],
        ),
        (
            json!({"rbd": {"image": "", "monitors": []}}),
            &[".rbd.monitors: Required value", ".rbd.image: Required value"],
        ),
        (
            json!({"cinder": {"volumeID": "", "secretRef": {}}}),
            &[".cinder.secretRef.name: Required value", ".cinder.volumeID: Required value"],
        ),
        (json!({"cephfs": {"monitors": []}}), &[".cephfs.monitors: Required value"]),
        (
            json!({"azureFile": {"secretName": "", "shareName": ""}}),
            &[".azureFile.secretName: Required value", ".azureFile.shareName: Required value"],
        ),
        (json!({"vsphereVolume": {"volumePath": ""}}), &[".vsphereVolume.volumePath: Required value"]),
        (json!({"photonPersistentDisk": {"pdID": ""}}), &[".photonPersistentDisk.pdID: Required value"]),
        (json!({"portworxVolume": {"volumeID": ""}}), &[".portworxVolume.volumeID: Required value"]),
        (
            json!({"scaleIO": {"gateway": "", "system": "", "secretRef": {"name": "x"}}}),
            &[
                ".scaleIO.gateway: Required value",
                ".scaleIO.system: Required value",
                ".scaleIO.volumeName: Required value",
            ],
        ),
    ]);
}
