use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn defaulted(spec: Value) -> Value {
    let pod: Pod = serde_json::from_value(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}),
    )
    .unwrap();
    let once = with_defaults(pod);
    assert_eq!(with_defaults(once.clone()), once, "not idempotent");
    serde_json::to_value(once).unwrap()["spec"].take()
}

#[test]
fn completes_an_almost_empty_pod() {
    assert_eq!(
        defaulted(json!({"containers": [{"name": "a", "image": "nginx"}]})),
        json!({
            "containers": [{"name": "a", "image": "nginx", "imagePullPolicy": "Always",
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
            "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
            "securityContext": {}, "terminationGracePeriodSeconds": 30, "enableServiceLinks": true,
        })
    );
    let pod = with_defaults(Pod::default());
    assert_eq!(pod.spec.unwrap().termination_grace_period_seconds, Some(30));
}

#[test]
fn keeps_what_is_given() {
    let given = json!({
        "containers": [{"name": "a", "image": "nginx", "imagePullPolicy": "Never",
            "terminationMessagePath": "/x", "terminationMessagePolicy": "FallbackToLogsOnError"}],
        "dnsPolicy": "Default", "restartPolicy": "Never", "schedulerName": "own", "securityContext": {"runAsUser": 1},
        "terminationGracePeriodSeconds": 0, "enableServiceLinks": false,
    });
    assert_eq!(defaulted(given.clone()), given);
}

#[test]
fn completes_ports_probes_hooks_and_env() {
    let container = json!({"name": "a", "image": "nginx:1",
        "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 82, "protocol": "UDP"}],
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "B", "valueFrom": {"fileKeyRef": {"key": "k", "path": "p", "volumeName": "v"}}}],
        "livenessProbe": {"httpGet": {"port": 80}}, "readinessProbe": {"grpc": {"port": 80}, "periodSeconds": 2},
        "startupProbe": {"exec": {"command": ["x"]}, "timeoutSeconds": 0},
        "lifecycle": {"preStop": {"httpGet": {"port": 80, "path": "/x"}}}});
    let spec = defaulted(
        json!({"hostNetwork": true, "containers": [container.clone()], "ephemeralContainers": [container]}),
    );
    let (regular, ephemeral) = (&spec["containers"][0], &spec["ephemeralContainers"][0]);
    assert_eq!(
        regular["ports"],
        json!([{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}, {"containerPort": 81, "hostPort": 82, "protocol": "UDP"}])
    );
    assert_eq!(ephemeral["ports"][0], json!({"containerPort": 80, "protocol": "TCP"}));
    for container in [regular, ephemeral] {
        assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
        assert_eq!(container["env"][1]["valueFrom"]["fileKeyRef"]["optional"], false);
        let timing = |timeout: i32, period: i32| json!({"timeoutSeconds": timeout, "periodSeconds": period, "successThreshold": 1, "failureThreshold": 3});
        for (probe, handler, expected) in [
            ("livenessProbe", json!({"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}}), timing(1, 10)),
            ("readinessProbe", json!({"grpc": {"port": 80, "service": ""}}), timing(1, 2)),
            ("startupProbe", json!({"exec": {"command": ["x"]}}), timing(1, 10)),
        ] {
            let mut expected = expected;
            expected.as_object_mut().unwrap().extend(handler.as_object().unwrap().clone());
            assert_eq!(container[probe], expected);
        }
        assert_eq!(
            container["lifecycle"]["preStop"]["httpGet"],
            json!({"port": 80, "path": "/x", "scheme": "HTTP"})
        );
        assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    }
}

#[test]
fn completes_volumes() {
    let spec = defaulted(json!({"containers": [], "volumes": [
        {"name": "none"}, {"name": "host", "hostPath": {"path": "/x"}}, {"name": "s", "secret": {"secretName": "s"}},
        {"name": "c", "configMap": {"name": "c", "defaultMode": 256}},
        {"name": "d", "downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}},
            {"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}},
        {"name": "i", "image": {"reference": "a:1"}}, {"name": "l", "image": {"reference": "a"}},
        {"name": "iscsi", "iscsi": {"iqn": "a", "lun": 0, "targetPortal": "x"}},
        {"name": "r", "rbd": {"image": "a", "monitors": []}}, {"name": "az", "azureDisk": {"diskName": "a", "diskURI": "b"}},
        {"name": "sio", "scaleIO": {"gateway": "a", "secretRef": {"name": "x"}, "system": "s"}},
        {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "0.0001"}}}}}},
    ]}));
    let expected = json!([
        {"name": "none", "emptyDir": {}}, {"name": "host", "hostPath": {"path": "/x", "type": ""}},
        {"name": "s", "secret": {"secretName": "s", "defaultMode": 420}},
        {"name": "c", "configMap": {"name": "c", "defaultMode": 256}},
        {"name": "d", "downwardAPI": {"defaultMode": 420, "items": [{"path": "x", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}]}},
        {"name": "p", "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
            {"downwardAPI": {"items": [{"path": "x", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}]}}]}},
        {"name": "i", "image": {"reference": "a:1", "pullPolicy": "IfNotPresent"}},
        {"name": "l", "image": {"reference": "a", "pullPolicy": "Always"}},
        {"name": "iscsi", "iscsi": {"iqn": "a", "lun": 0, "targetPortal": "x", "iscsiInterface": "default"}},
        {"name": "r", "rbd": {"image": "a", "monitors": [], "pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}},
        {"name": "az", "azureDisk": {"diskName": "a", "diskURI": "b", "cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": false, "kind": "Shared"}},
        {"name": "sio", "scaleIO": {"gateway": "a", "secretRef": {"name": "x"}, "system": "s", "volumeName": null, "storageMode": "ThinProvisioned", "fsType": "xfs"}},
        {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"volumeMode": "Filesystem", "resources": {"requests": {"storage": "1m"}}}}}},
    ]);
    for (volume, expected) in spec["volumes"].as_array().unwrap().iter().zip(expected.as_array().unwrap()) {
        let mut expected = expected.clone();
        if let Some(source) = expected.get_mut("scaleIO") {
            source.as_object_mut().unwrap().remove("volumeName");
        }
        assert_eq!(volume, &expected);
    }
}

#[test]
fn requests_follow_limits() {
    let spec = defaulted(json!({
        "resources": {"limits": {"cpu": "2", "memory": "4Gi"}},
        "initContainers": [
            {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
            {"name": "init", "resources": {"limits": {"cpu": "0.9"}}}],
        "containers": [{"name": "a", "resources": {"limits": {"cpu": "0.5", "hugepages-2Mi": "4Mi"}, "requests": {"cpu": "0.25"}}}],
    }));
    assert_eq!(
        spec["containers"][0]["resources"],
        json!({"limits": {"cpu": "500m", "hugepages-2Mi": "4Mi"}, "requests": {"cpu": "250m", "hugepages-2Mi": "4Mi"}})
    );
    assert_eq!(
        spec["initContainers"][1]["resources"],
        json!({"limits": {"cpu": "900m"}, "requests": {"cpu": "900m"}})
    );
    assert_eq!(
        spec["resources"],
        json!({"limits": {"cpu": "2", "memory": "4Gi", "hugepages-2Mi": "4Mi"}, "requests": {"cpu": "1", "memory": "4Gi", "hugepages-2Mi": "4Mi"}})
    );
}

#[test]
fn the_old_service_account_field_counts() {
    let spec = defaulted(json!({"containers": [], "serviceAccount": "old"}));
    assert_eq!((&spec["serviceAccountName"], &spec["serviceAccount"]), (&json!("old"), &json!("old")));
    let spec = defaulted(json!({"containers": [], "serviceAccount": "old", "serviceAccountName": "new"}));
    assert_eq!((&spec["serviceAccountName"], &spec["serviceAccount"]), (&json!("new"), &json!("new")));
}

proptest! {
    #[test]
    fn is_idempotent(
        image in "[a-zA-Z:/@.-]{0,12}", policy in prop::option::of("(|Always|x)"), host in any::<bool>(), port in any::<i32>(),
        limit in "[0-9]{1,3}(|\\.[0-9]{1,12})(|m|u|n|Ki|Gi|e3|x)", request in prop::option::of("[0-9]{1,3}(n|Mi|k)?"),
        pod_limit in prop::option::of("[0-9]{1,3}(|Gi)"), name in "(cpu|memory|hugepages-2Mi|a/b)", init in any::<bool>(),
    ) {
        let mut resources = json!({"limits": {&name: &limit, "cpu": "3"}});
        if let Some(request) = request {
            resources["requests"] = json!({&name: request});
        }
        let container = json!({"name": "a", "image": image, "imagePullPolicy": policy, "resources": resources,
            "ports": [{"containerPort": port}]});
        let mut spec = json!({"hostNetwork": host, "containers": [&container], "volumes": [{"name": "v"}]});
        if init {
            spec["initContainers"] = json!([container]);
        }
        if let Some(pod_limit) = pod_limit {
            spec["resources"] = json!({"limits": {name: pod_limit}});
        }
        defaulted(spec);
    }
}
