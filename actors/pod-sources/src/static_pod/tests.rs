use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

const SEEN: Timestamp = Timestamp::UNIX_EPOCH;

fn file() -> Source {
    Source::File("/etc/kubernetes/manifests/web.yaml".into())
}

fn manifest(spec: &Value) -> Vec<u8> {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec})
        .to_string()
        .into_bytes()
}

fn one(spec: &Value, source: &Source, node: &str) -> Result<Pod, ManifestError> {
    static_pods(&manifest(spec), source, node, SEEN).map(|decoded| decoded.pods.into_iter().next().unwrap())
}

fn plain() -> Value {
    json!({"containers": [{"name": "web", "image": "nginx"}]})
}

#[test]
fn places_a_pod_from_a_file() {
    let pod = one(&plain(), &file(), "Node-1").unwrap_err();
    assert_eq!(
        pod.to_string(),
        "/etc/kubernetes/manifests/web.yaml: pod default/web-node-1: spec.nodeName: Invalid value: \"Node-1\": a lowercase RFC 1123 \
         subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an \
         alphanumeric character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    );
    let pod = one(&plain(), &file(), "node-1").unwrap();
    let uid = pod.metadata.uid.clone().unwrap();
    assert_eq!(pod.metadata.name.as_deref(), Some("web-node-1"));
    assert_eq!(pod.metadata.namespace.as_deref(), Some("default"));
    let annotations = pod.metadata.annotations.unwrap();
    assert_eq!(annotations[CONFIG_HASH], uid);
    assert_eq!(annotations[CONFIG_SOURCE], "file");
    assert_eq!(annotations[CONFIG_SEEN_ANNOTATION], "1970-01-01T00:00:00Z");
    let spec = pod.spec.unwrap();
    assert_eq!(spec.node_name.as_deref(), Some("node-1"));
    assert_eq!(
        serde_json::to_value(spec.tolerations).unwrap(),
        json!([{"operator": "Exists", "effect": "NoExecute"}])
    );
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Pending"));
}

#[test]
fn a_url_gives_no_toleration_and_perhaps_many_pods() {
    let source = Source::Http("http://x/pods".into());
    let pod = one(&plain(), &source, "node-1").unwrap();
    assert_eq!(pod.spec.unwrap().tolerations, None);
    assert_eq!(pod.metadata.annotations.unwrap()[CONFIG_SOURCE], "http");
    let list = json!({"apiVersion": "v1", "kind": "PodList", "items": [
        {"metadata": {"name": "a"}, "spec": plain()}, {"metadata": {"name": "b"}, "spec": plain()}]});
    let pods = static_pods(list.to_string().as_bytes(), &source, "n", SEEN).unwrap().pods;
    assert_eq!(pods.len(), 2);
    assert_ne!(pods[0].metadata.uid, pods[1].metadata.uid);
    let in_a_file = static_pods(list.to_string().as_bytes(), &file(), "n", SEEN).unwrap_err();
    assert!(matches!(in_a_file, ManifestError::Decode(DecodeError::WrongKind { .. })), "{in_a_file}");
}

#[test]
fn a_submission_gives_one_pod_whose_uid_is_the_same_however_it_came() {
    let source = |words: &str| Source::Submission(words.to_owned());
    let pod = one(&plain(), &source("/pods"), "node-1").unwrap();
    assert_eq!(pod.metadata.annotations.as_ref().unwrap()[CONFIG_SOURCE], "submission");
    assert_eq!(pod.spec.as_ref().unwrap().tolerations, None);
    let kept = one(&plain(), &source("submitted-pods/default_web-node-1"), "node-1").unwrap();
    assert_eq!(kept, pod);
    assert_ne!(one(&plain(), &file(), "node-1").unwrap().metadata.uid, pod.metadata.uid);
    let list = json!({"apiVersion": "v1", "kind": "PodList", "items": []});
    let refused = static_pods(list.to_string().as_bytes(), &source("/pods"), "n", SEEN).unwrap_err();
    assert_eq!(refused.to_string(), "/pods: kind: wants Pod, found \"PodList\"");
}

#[test]
fn which_manager_has_set_which_field_is_forgotten() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "web", "managedFields": [{"manager": "m"}]}, "spec": plain()}))
    .unwrap();
    assert_eq!(placed(pod, &file(), "n", SEEN).metadata.managed_fields, None);
}

#[test]
fn an_own_toleration_is_widened() {
    let spec = json!({"containers": [{"name": "web", "image": "nginx"}],
        "tolerations": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}, {"key": "a", "operator": "Exists"}]});
    let tolerations = one(&spec, &file(), "n").unwrap().spec.unwrap().tolerations;
    assert_eq!(
        serde_json::to_value(tolerations).unwrap(),
        json!([{"operator": "Exists", "effect": "NoExecute"}, {"key": "a", "operator": "Exists"}])
    );
}

/// These UIDs are in use on nodes: they must never change for these inputs.
#[test]
fn uids_are_pinned() {
    let pod = one(&plain(), &file(), "node-1").unwrap();
    assert_eq!(pod.metadata.uid.as_deref(), Some("110dcecdb88efef9815b9f3a344cd647"));
    let pod = one(&plain(), &Source::Http("http://x".into()), "node-1").unwrap();
    assert_eq!(pod.metadata.uid.as_deref(), Some("4d9f56e43a741e86449f9cd93b8c482e"));
}

#[test]
fn the_uid_depends_on_manifest_node_and_source_only() {
    let uid =
        |spec: &Value, source: &Source, node: &str| one(spec, source, node).unwrap().metadata.uid.unwrap();
    let first = uid(&plain(), &file(), "n");
    assert_eq!((first.len(), first.bytes().all(|byte| byte.is_ascii_hexdigit())), (32, true));
    let mut defaulted = plain();
    defaulted["restartPolicy"] = json!("Always");
    assert_eq!(uid(&defaulted, &file(), "n"), first, "a default written out is no change");
    defaulted["restartPolicy"] = json!("Never");
    for other in [
        uid(&defaulted, &file(), "n"),
        uid(&plain(), &file(), "m"),
        uid(&plain(), &Source::File("/other".into()), "n"),
        uid(&plain(), &Source::Http("/etc/kubernetes/manifests/web.yaml".into()), "n"),
    ] {
        assert_ne!(other, first);
    }
    let later = static_pods(&manifest(&plain()), &file(), "n", Timestamp::MAX).unwrap();
    assert_eq!(later.pods[0].metadata.uid.as_ref(), Some(&first));
    assert_eq!(uid_of(&later.pods[0], &file(), "n").len(), 32);
    let given = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "uid": "mine"}, "spec": plain()});
    let pod = static_pods(given.to_string().as_bytes(), &file(), "n", SEEN).unwrap().pods.remove(0);
    assert_eq!(pod.metadata.uid.as_deref(), Some("mine"));
    assert_eq!(pod.metadata.annotations.unwrap()[CONFIG_HASH], "mine");
}

#[test]
fn yaml_and_json_of_the_same_pod_have_one_uid() {
    let yaml = "# comment\nkind: Pod\napiVersion: v1\nmetadata:\n  name: web\nspec:\n  containers:\n  - image: nginx\n    name: web\n";
    let from_yaml = static_pods(yaml.as_bytes(), &file(), "n", SEEN).unwrap().pods.remove(0);
    assert_eq!(from_yaml, one(&plain(), &file(), "n").unwrap());
}

#[test]
fn refuses_pods_without_a_name() {
    for metadata in ["{}", "{\"name\":\"\"}", "null"] {
        let text = format!("{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{metadata}}}");
        let error = static_pods(text.as_bytes(), &file(), "n", SEEN).unwrap_err();
        assert_eq!(
            error.to_string(),
            "/etc/kubernetes/manifests/web.yaml: invalid pod: name is needed for the pod"
        );
    }
}

#[test]
fn refuses_references_to_api_objects() {
    let volume = |source: Value| {
        let mut volume = json!({"name": "v"});
        volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        let mut spec = plain();
        spec["volumes"] = json!([volume]);
        spec
    };
    let container = |change: Value| {
        let mut spec = plain();
        spec["containers"][0].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        spec
    };
    let with = |field: &str, value: Value| {
        let mut spec = plain();
        spec[field] = value;
        spec
    };
    let template =
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}});
    let bundle = json!({"name": "b", "path": "p"});
    let certificate = json!({"signerName": "a.b/c", "keyType": "ED25519", "keyPath": "k"});
    for (spec, expected) in [
        (with("serviceAccountName", json!("a")), "serviceaccounts"),
        (with("serviceAccount", json!("a")), "serviceaccounts"),
        (with("imagePullSecrets", json!([{"name": "a"}])), "secrets"),
        (with("resourceClaims", json!([{"name": "a", "resourceClaimName": "c"}])), "resourceclaims"),
        (
            container(
                json!({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "k"}}}]}),
            ),
            "secrets",
        ),
        (container(json!({"envFrom": [{"secretRef": {"name": "a"}}]})), "secrets"),
        (
            container(
                json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "k"}}}]}),
            ),
            "configmaps",
        ),
        (container(json!({"envFrom": [{"configMapRef": {"name": "a"}}]})), "configmaps"),
        (volume(json!({"secret": {"secretName": "a"}})), "secrets"),
        (volume(json!({"configMap": {"name": "a"}})), "configmaps"),
        (volume(json!({"projected": {"sources": [{"secret": {"name": "a"}}]}})), "secrets"),
        (volume(json!({"projected": {"sources": [{"configMap": {"name": "a"}}]}})), "configmaps"),
        (volume(json!({"projected": {"sources": [{"clusterTrustBundle": bundle}]}})), "clustertrustbundles"),
        (volume(json!({"projected": {"sources": [{"podCertificate": certificate}]}})), "podcertificates"),
        (volume(json!({"projected": {"sources": [{}]}})), "an unknown source (via projected volumes)"),
        (volume(json!({"persistentVolumeClaim": {"claimName": "a"}})), "persistentvolumeclaims"),
        (
            volume(json!({"ephemeral": {"volumeClaimTemplate": template}})),
            "persistentvolumeclaims (via ephemeral volumes)",
        ),
        (volume(json!({"csi": {"driver": "a.b"}})), "csidrivers (via CSI volumes)"),
        (volume(json!({"csi": {"driver": "a.b", "nodePublishSecretRef": {"name": "s"}}})), "secrets"),
        (volume(json!({"azureFile": {"secretName": "s", "shareName": "x"}})), "secrets"),
        (volume(json!({"glusterfs": {"endpoints": "e", "path": "p"}})), "endpoints (via glusterFS volumes)"),
        (volume(json!({"rbd": {"monitors": ["m"], "image": "i", "secretRef": {"name": "s"}}})), "secrets"),
    ] {
        let error = one(&spec, &file(), "n").unwrap_err();
        assert!(
            matches!(&error, ManifestError::ApiReference { resource, .. } if resource == expected),
            "{spec}: {error}"
        );
        assert!(
            error
                .to_string()
                .ends_with(&format!("pod default/web-n: static pods may not reference {expected}"))
        );
    }
    for spec in [
        volume(json!({"hostPath": {"path": "/x"}})),
        volume(json!({"emptyDir": {}})),
        volume(json!({"nfs": {"server": "s", "path": "/p"}})),
        volume(
            json!({"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]}}),
        ),
        volume(json!({"projected": {"sources": [{"downwardAPI": {"items": []}}]}})),
    ] {
        assert!(one(&spec, &file(), "n").is_ok(), "{spec}");
    }
}

#[test]
fn reports_all_errors_of_a_pod() {
    let spec = json!({"containers": [{"name": "A"}], "restartPolicy": "x"});
    let Err(ManifestError::Invalid { errors, pod, .. }) = one(&spec, &file(), "n") else { panic!("valid") };
    let fields: Vec<_> = errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(
        (pod.as_str(), fields),
        ("default/web-n", vec!["spec.containers[0].name", "spec.containers[0].image", "spec.restartPolicy"])
    );
}

proptest! {
    #[test]
    fn the_same_input_gives_the_same_pod(
        name in "[a-z]{1,8}", image in "[a-z]{1,8}(:[a-z]{1,5})?", node in "[a-z]{1,8}", path in "\\PC{0,20}",
        labels in prop::collection::btree_map("[a-z]{1,5}", "[a-z]{0,5}", 0..5),
    ) {
        let forward: Vec<_> = labels.iter().map(|(key, value)| format!("{key:?}: {value:?}")).collect();
        let backward: Vec<_> = forward.iter().rev().cloned().collect();
        let text = |labels: &[String]| format!(
            "kind: Pod\napiVersion: v1\nmetadata: {{name: {name}x, labels: {{{}}}}}\nspec: {{containers: [{{name: {name}x, image: \"{image}\"}}]}}\n",
            labels.join(", ")
        );
        let source = Source::File(path);
        let first = static_pods(text(&forward).as_bytes(), &source, &node, SEEN).unwrap();
        let second = static_pods(text(&backward).as_bytes(), &source, &node, SEEN).unwrap();
        prop_assert_eq!(first, second);
    }
}

/// The sample manifests of a folder of test data, by name.
fn samples(folder: &str) -> Vec<(String, Vec<u8>)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(folder);
    let mut samples: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap())
        })
        .collect();
    samples.sort();
    assert!(!samples.is_empty());
    samples
}

#[test]
fn valid_samples_give_pods() {
    for (name, bytes) in samples("valid") {
        let Decoded { pods, ignored_fields, .. } =
            static_pods(&bytes, &Source::File(name.clone()), "node", SEEN)
                .unwrap_or_else(|error| panic!("{error}"));
        let ignored: Vec<String> = ignored_fields.iter().map(ToString::to_string).collect();
        let text = String::from_utf8(bytes).unwrap();
        let expected = text.lines().next().and_then(|line| line.strip_prefix("# ignored: "));
        assert_eq!(ignored.join("; "), expected.unwrap_or_default(), "{name}");
        // A complete pod that is written as JSON is read again as the same pod.
        let again = decode::decode_pod(&name, &serde_json::to_vec(&pods[0]).unwrap()).unwrap().pods.remove(0);
        let without_status = Pod { status: None, ..pods[0].clone() };
        assert_eq!(with_defaults(again), without_status, "{name}");
    }
}

#[test]
fn invalid_samples_name_what_is_wrong() {
    for (name, bytes) in samples("invalid") {
        let error = static_pods(&bytes, &Source::File(name.clone()), "node", SEEN).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{name}: ")), "{error}");
        let text = String::from_utf8(bytes).unwrap();
        let (_, expected) = text.lines().next().unwrap().split_once("error: ").unwrap();
        assert!(
            error.contains(expected.trim_end_matches('"')),
            "{name}\n  found    {error}\n  expected {expected}"
        );
    }
}

#[test]
fn yaml_keeps_its_meaning() {
    let (_, bytes) = samples("valid").into_iter().find(|(name, _)| name == "anchors.yaml").unwrap();
    let spec = static_pods(&bytes, &file(), "n", SEEN).unwrap().pods.remove(0).spec.unwrap();
    assert_eq!((spec.termination_grace_period_seconds, spec.host_ipc), (Some(16), Some(false)));
    assert_eq!(spec.containers[1].command, spec.containers[0].command);
    assert_eq!(spec.containers[1].args, Some(vec!["1".to_owned()]));
    let init = &spec.init_containers.unwrap()[0];
    assert_eq!(init.image, spec.containers[0].image);
    assert_eq!(init.command.as_ref().unwrap()[2], "# a script\nset -e\ntrue\n");
}
