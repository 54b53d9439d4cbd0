use super::*;
use crate::decode::decode_pod;
use crate::default::with_defaults;
use serde_json::{Value, json};

fn found(spec: &Value) -> Vec<String> {
    found_by(spec, &Supported::this_version())
}

fn found_by(spec: &Value, supported: &Supported) -> Vec<String> {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"a": "b"}}, "spec": spec});
    let pod = decode_pod("test", pod.to_string().as_bytes()).unwrap().pods.remove(0);
    unsupported(&with_defaults(pod), supported).into_iter().map(|field| field.path).collect()
}

fn base() -> Value {
    let text = include_str!("../../testdata/valid/everything-supported.yaml");
    let pod = decode_pod("test", text.as_bytes()).unwrap().pods.remove(0);
    serde_json::to_value(pod).unwrap()["spec"].take()
}

#[test]
fn what_this_version_does_is_not_reported() {
    assert_eq!(found(&base()), Vec::<String>::new());
}

#[test]
fn every_other_field_is_reported() {
    let env = json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]);
    for (pointer, value, expected) in [
        ("/hostUsers", json!(false), "spec.hostUsers"),
        ("/imagePullSecrets", json!([{"name": "s"}]), "spec.imagePullSecrets"),
        ("/resources", json!({"claims": [{"name": "x"}]}), "spec.resources.claims"),
        ("/schedulingGroup", json!({"podGroupName": "g"}), "spec.schedulingGroup"),
        ("/ephemeralContainers", json!([{"name": "e"}]), "spec.ephemeralContainers"),
        ("/volumes/0/configMap", json!({"name": "c"}), "spec.volumes[0].configMap"),
        (
            "/volumes/0/projected",
            json!({"sources": [{"secret": {"name": "s"}}]}),
            "spec.volumes[0].projected.sources[0].secret",
        ),
        ("/volumes/0/rbd", json!({"monitors": ["m"], "image": "i"}), "spec.volumes[0].rbd"),
        (
            "/volumes/0/persistentVolumeClaim",
            json!({"claimName": "c"}),
            "spec.volumes[0].persistentVolumeClaim",
        ),
        (
            "/initContainers/1/resources",
            json!({"claims": [{"name": "x"}]}),
            "spec.initContainers[1].resources.claims",
        ),
        (
            "/containers/0/resources",
            json!({"claims": [{"name": "x"}]}),
            "spec.containers[0].resources.claims",
        ),
        (
            "/containers/0/securityContext/windowsOptions",
            json!({"hostProcess": true}),
            "spec.containers[0].securityContext.windowsOptions",
        ),
        ("/containers/0/env", env, "spec.containers[0].env[0].valueFrom.configMapKeyRef"),
        ("/containers/0/envFrom", json!([{"secretRef": {"name": "s"}}]), "spec.containers[0].envFrom"),
        ("/containers/0/volumeDevices", json!([{"name": "a"}]), "spec.containers[0].volumeDevices"),
    ] {
        let mut spec = base();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        spec.pointer_mut(parent).unwrap()[name] = value.clone();
        assert_eq!(found(&spec), [expected], "{pointer} = {value}");
    }
}

#[test]
fn claims_devices_and_volumes_of_drivers_are_for_pods_of_the_api_server() {
    let claim = json!({"claimName": "c"});
    let template = json!({"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}});
    for (source, value) in [
        ("persistentVolumeClaim", claim),
        ("ephemeral", template),
        ("csi", json!({"driver": "disk.example"})),
        ("awsElasticBlockStore", json!({"volumeID": "vol-1"})),
    ] {
        let mut spec = base();
        spec["volumes"] = json!([{"name": "v", source: value}]);
        spec["containers"][0]["volumeDevices"] = json!([{"name": "v", "devicePath": "/dev/x"}]);
        assert_eq!(found_by(&spec, &Supported::for_api_pods()), Vec::<String>::new(), "{source}");
        let of_static = ["spec.containers[0].volumeDevices".to_owned(), format!("spec.volumes[0].{source}")];
        assert_eq!(found(&spec), of_static);
    }
}

#[test]
fn all_reasons_are_given_at_once_and_name_what_is_known() {
    let mut spec = base();
    spec["hostUsers"] = json!(false);
    spec["schedulingGroup"] = json!({"podGroupName": "g"});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec});
    let pod = with_defaults(decode_pod("test", pod.to_string().as_bytes()).unwrap().pods.remove(0));
    let reasons: Vec<_> =
        unsupported(&pod, &Supported::this_version()).iter().map(ToString::to_string).collect();
    assert_eq!(
        reasons,
        [
            "spec.hostUsers \"false\" is not supported by this version of the kubelet, which knows \"true\"",
            "spec.schedulingGroup is not supported by this version of the kubelet",
        ]
    );
}

#[test]
fn a_later_version_adds_rows() {
    let mut spec = base();
    spec["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "s"}}]);
    assert_eq!(found(&spec).len(), 1);
    let later = Supported::this_version().with("spec.containers.envFrom", Rule::Yes);
    assert_eq!(found_by(&spec, &later), Vec::<String>::new());
}

#[test]
fn a_placed_static_pod_is_supported() {
    let text = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "creationTimestamp": null},
        "spec": {"containers": [{"name": "a", "image": "i"}]}, "status": {"phase": "Running"}});
    let source = crate::static_pod::Source::File("/x".into());
    let pods = crate::static_pod::static_pods(
        text.to_string().as_bytes(),
        &source,
        "n",
        jiff::Timestamp::UNIX_EPOCH,
    );
    assert_eq!(unsupported(&pods.unwrap().pods[0], &Supported::this_version()), []);
}

#[test]
fn a_pod_with_many_unsupported_fields_is_refused_in_few_words() {
    let volume =
        |index| json!({"name": format!("v{index}"), "rbd": {"monitors": ["m".repeat(2000)], "image": "i"}});
    let volumes: Vec<Value> = (0..2000).map(volume).collect();
    let spec = json!({"containers": [{"name": "a", "image": "i"}], "volumes": volumes});
    let pod = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec})).unwrap();
    assert_eq!(unsupported(&pod, &Supported::for_api_pods()).len(), 256);
    let refusal = refusal(&pod, &Supported::for_api_pods()).unwrap();
    assert!(refusal.message.starts_with("spec.volumes[0].rbd"), "{}", refusal.message);
    assert!(refusal.message.ends_with("..."), "{}", refusal.message);
    assert!(refusal.message.len() <= REFUSAL_BYTES_MAX + 3, "{}", refusal.message.len());
}
