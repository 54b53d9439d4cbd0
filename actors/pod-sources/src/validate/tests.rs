use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::decode::decode_pod;
use crate::default::with_defaults;

mod bounds;
mod containers;
mod policies;
mod volumes;
mod whole;

/// A valid pod that uses many of a pod's fields.
fn rich() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}, "annotations": {"x.y/Z": "any thing"}},
        "spec": {
            "nodeName": "node-1", "restartPolicy": "Always", "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a.b"]}],
            "dnsConfig": {"nameservers": ["1.1.1.1"], "searches": ["a_b.c.", "."], "options": [{"name": "ndots"}]},
            "tolerations": [{"operator": "Exists", "effect": "NoExecute"}, {"key": "a", "value": "b", "tolerationSeconds": 1, "effect": "NoExecute"}],
            "securityContext": {"runAsUser": 1, "sysctls": [{"name": "net.ipv4.ip_forward", "value": "1"}]},
            "volumes": [
                {"name": "tmp"}, {"name": "host", "hostPath": {"path": "/var", "type": "Directory"}},
                {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
            ],
            "initContainers": [
                {"name": "first", "image": "i", "volumeMounts": [{"name": "tmp", "mountPath": "/t"}]},
                {"name": "side", "image": "i", "restartPolicy": "Always", "livenessProbe": {"exec": {"command": ["x"]}}},
            ],
            "containers": [{
                "name": "main", "image": "nginx:1", "ports": [{"containerPort": 80, "hostPort": 80, "name": "http"}, {"containerPort": 53, "protocol": "UDP"}],
                "env": [{"name": "A", "value": "b"}, {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                "volumeMounts": [{"name": "tmp", "mountPath": "/t", "subPath": "a"}, {"name": "host", "mountPath": "/h", "readOnly": true}],
                "volumeDevices": [{"name": "claim", "devicePath": "/dev/x"}],
                "livenessProbe": {"httpGet": {"port": "http"}}, "readinessProbe": {"tcpSocket": {"port": 80}, "successThreshold": 2},
                "startupProbe": {"grpc": {"port": 80}},
                "lifecycle": {"preStop": {"sleep": {"seconds": 3}}, "postStart": {"exec": {"command": ["x"]}}},
                "resources": {"limits": {"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"}, "requests": {"cpu": "100m"}},
                "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}, "seccompProfile": {"type": "RuntimeDefault"}},
            }],
        }
    })
}

/// The errors of the rich pod with the value at a JSON pointer replaced (`null` removes it) and then defaulted.
fn errors_with(changes: &[(&str, Value)]) -> Vec<String> {
    errors_of(changed(changes), true)
}

fn changed(changes: &[(&str, Value)]) -> Value {
    let mut pod = rich();
    for (pointer, value) in changes {
        let (parent, last) = pointer.rsplit_once('/').unwrap();
        let parent = pod.pointer_mut(parent).unwrap_or_else(|| panic!("no {parent}"));
        match parent {
            Value::Object(map) => {
                map.insert(last.to_owned(), value.clone());
            }
            Value::Array(list) if last == "-" => list.push(value.clone()),
            Value::Array(list) => list[last.parse::<usize>().unwrap()] = value.clone(),
            other => panic!("{pointer} stands in {other}"),
        }
    }
    pod
}

fn errors_of(pod: Value, defaulted: bool) -> Vec<String> {
    let pod = decode_pod("test", pod.to_string().as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    let pod = pod.pods.into_iter().next().unwrap();
    let pod = if defaulted { with_defaults(pod) } else { pod };
    validate_pod(&pod).iter().map(ToString::to_string).collect()
}

/// Checks rows of JSON pointer, value, and the beginnings of the resulting errors.
fn check(rows: &[(&str, Value, &[&str])]) {
    for (pointer, value, expected) in rows {
        let errors = errors_with(&[(pointer, value.clone())]);
        let matches = errors.len() == expected.len()
            && errors.iter().zip(*expected).all(|(error, expected)| error.starts_with(expected));
        assert!(matches, "{pointer} = {value}\n  found    {errors:#?}\n  expected {expected:#?}");
    }
}

#[test]
fn a_valid_pod_has_no_errors() {
    assert_eq!(errors_with(&[]), Vec::<String>::new());
}

#[test]
fn what_defaults_fill_is_required() {
    let mut pod = rich();
    pod["spec"] = json!({"containers": [{"name": "a", "image": "i", "ports": [{"containerPort": 1}],
        "livenessProbe": {"httpGet": {"port": 1}}}], "volumes": [{"name": "v"}]});
    assert_eq!(
        errors_of(pod, false),
        [
            "spec.terminationGracePeriodSeconds: Required value",
            "spec.volumes[0]: Required value: must specify a volume type",
            "spec.containers[0].terminationMessagePolicy: Required value",
            "spec.containers[0].ports[0].protocol: Required value",
            "spec.containers[0].imagePullPolicy: Required value",
            "spec.containers[0].livenessProbe.httpGet.path: Required value",
            "spec.containers[0].livenessProbe.httpGet.scheme: Unsupported value: \"\": supported values: \"HTTP\", \"HTTPS\"",
            "spec.containers[0].livenessProbe.successThreshold: Invalid value: 0: must be 1",
            "spec.restartPolicy: Required value",
            "spec.dnsPolicy: Required value",
        ]
    );
    let empty = validate_pod(&Pod::default());
    assert!(empty.iter().any(|error| error.to_string() == "spec.containers: Required value"), "{empty:?}");
}

/// Any JSON value, small.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2_i64..70000).prop_map(Value::from),
        "[a-zA-Z0-9./:@'\\[\\]_ -]{0,12}".prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-zA-Z]{1,10}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// All pointers of a value.
fn pointers(value: &Value, prefix: String, out: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(key, value)| (key.replace('/', "~1"), value)).collect(),
        Value::Array(list) => {
            list.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect()
        }
        _ => Vec::new(),
    };
    for (key, value) in children {
        let pointer = format!("{prefix}/{key}");
        out.push(pointer.clone());
        pointers(value, pointer, out);
    }
}

proptest! {
    #[test]
    fn never_panics_on_what_can_be_decoded(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any_value()), 1..5)
    ) {
        let mut pod = rich();
        for (at, value) in changes {
            let mut all = Vec::new();
            pointers(&pod, String::new(), &mut all);
            let pointer = at.get(&all).clone();
            *pod.pointer_mut(&pointer).unwrap() = value;
        }
        if let Ok(decoded) = decode_pod("test", pod.to_string().as_bytes()) {
            for pod in decoded.pods {
                let _ = validate_pod(&pod);
                let defaulted = with_defaults(pod);
                prop_assert_eq!(&with_defaults(defaulted.clone()), &defaulted);
                let _ = validate_pod(&defaulted);
                let _ = crate::static_pod::api_reference(&defaulted);
            }
        }
    }
}

#[test]
fn what_is_told_of_a_pod_that_is_wrong_everywhere_is_bounded() {
    let labels =
        (0..12_000).map(|index| (format!("k{index}{}", "k".repeat(2000)), "!".repeat(2000))).collect();
    let mut pod = Pod::default();
    pod.metadata.labels = Some(labels);
    let errors: Vec<String> = validate_pod(&pod).iter().map(ToString::to_string).collect();
    let longest = errors.iter().map(String::len).max().unwrap();
    assert!(longest < 4 * field::PART_BYTES_MAX, "{longest}");
    let all: usize = errors.iter().map(String::len).sum();
    assert!(all > field::ERRORS_BYTES_MAX / 2 && all < 2 * field::ERRORS_BYTES_MAX, "{all}");
}
