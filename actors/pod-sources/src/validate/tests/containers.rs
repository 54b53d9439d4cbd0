use serde_json::json;

use super::{check, errors_with};

#[test]
fn names_images_and_policies() {
    check(&[
        ("/spec/containers", json!([]), &["spec.containers: Required value"]),
        ("/spec/containers/0/name", json!(""), &["spec.containers[0].name: Required value"]),
        (
            "/spec/containers/0/name",
            json!("A"),
            &["spec.containers[0].name: Invalid value: \"A\": a lowercase RFC 1123 label"],
        ),
        (
            "/spec/containers/0/name",
            json!("a.b"),
            &["spec.containers[0].name: Invalid value: \"a.b\": must not contain dots"],
        ),
        (
            "/spec/containers/0/name",
            json!("first"),
            &["spec.initContainers[0].name: Duplicate value: \"first\""],
        ),
        (
            "/spec/initContainers/1/name",
            json!("first"),
            &["spec.initContainers[1].name: Duplicate value: \"first\""],
        ),
        ("/spec/containers/0/image", json!(""), &["spec.containers[0].image: Required value"]),
        (
            "/spec/containers/0/image",
            json!(" a"),
            &["spec.containers[0].image: Invalid value: \" a\": must not have leading"],
        ),
        (
            "/spec/containers/0/imagePullPolicy",
            json!("Sometimes"),
            &[
                "spec.containers[0].imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
            ],
        ),
        (
            "/spec/containers/0/terminationMessagePolicy",
            json!("x"),
            &["spec.containers[0].terminationMessagePolicy: Unsupported value: \"x\""],
        ),
        (
            "/spec/containers/-",
            json!({"name": "main", "image": "i"}),
            &["spec.containers[1].name: Duplicate value: \"main\""],
        ),
    ]);
}

#[test]
fn ports() {
    let port = "/spec/containers/0/ports/0";
    let row = |change: serde_json::Value| {
        let mut given = json!({"containerPort": 80, "name": "http"});
        given.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        given
    };
    check(&[
        (
            port,
            row(json!({"containerPort": 0})),
            &["spec.containers[0].ports[0].containerPort: Required value"],
        ),
        (
            port,
            row(json!({"containerPort": 65536})),
            &[
                "spec.containers[0].ports[0].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
            ],
        ),
        (
            port,
            row(json!({"hostPort": -1})),
            &["spec.containers[0].ports[0].hostPort: Invalid value: -1: must be between"],
        ),
        (
            port,
            row(json!({"protocol": "ICMP"})),
            &[
                "spec.containers[0].ports[0].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            ],
        ),
        (
            port,
            row(json!({"name": "UP"})),
            &[
                "spec.containers[0].ports[0].name: Invalid value: \"UP\": must contain only",
                "spec.containers[0].ports[0].name: Invalid value: \"UP\": must contain at least one letter",
            ],
        ),
        (
            "/spec/containers/0/ports/1",
            row(json!({})),
            &["spec.containers[0].ports[1].name: Duplicate value: \"http\""],
        ),
        (
            "/spec/containers/0/ports/1",
            json!({"containerPort": 1, "hostPort": 80}),
            &["spec.containers[0].ports[1].hostPort: Duplicate value: \"TCP//80\""],
        ),
        (
            "/spec/containers/-",
            json!({"name": "b", "image": "i", "ports": [{"containerPort": 1, "hostPort": 80}]}),
            &["spec.containers[1].ports[0].hostPort: Duplicate value: \"TCP//80\""],
        ),
        (
            "/spec/containers/-",
            json!({"name": "b", "image": "i", "ports": [{"containerPort": 1, "hostPort": 80, "hostIP": "1.2.3.4"}]}),
            &[],
        ),
        (
            "/spec/initContainers/-",
            json!({"name": "b", "image": "i", "ports": [{"containerPort": 1, "hostPort": 80}]}),
            &[],
        ),
    ]);
    assert_eq!(
        errors_with(&[
            ("/spec/hostNetwork", json!(true)),
            (port, json!({"containerPort": 1, "hostPort": 2}))
        ])[0],
        "spec.containers[0].ports[0].hostPort: Invalid value: 2: must match `containerPort` when `hostNetwork` is true"
    );
}

#[test]
fn sources_of_environment() {
    let one = "/spec/containers/0/env/1";
    let from = |source: serde_json::Value| json!({"name": "X", "valueFrom": source});
    let at = "spec.containers[0].env[1].valueFrom";
    let line = |text: &str| format!("{at}{text}");
    let rows = [
        (json!({}), line(": Invalid value: \"\": must specify one of")),
        (
            json!({"fieldRef": {"fieldPath": "spec.bogus"}}),
            line(
                ".fieldRef.fieldPath: Invalid value: \"spec.bogus\": error converting fieldPath: field label not supported",
            ),
        ),
        (json!({"fieldRef": {"fieldPath": ""}}), line(".fieldRef.fieldPath: Required value")),
        (
            json!({"fieldRef": {"fieldPath": "metadata.labels"}}),
            line(".fieldRef.fieldPath: Unsupported value: \"metadata.labels\""),
        ),
        (
            json!({"fieldRef": {"fieldPath": "metadata.labels['a b']"}}),
            line(".fieldRef: Invalid value: \"a b\": name part"),
        ),
        (
            json!({"fieldRef": {"fieldPath": "metadata.name['a']"}}),
            line(".fieldRef.fieldPath: Invalid value: \"metadata.name['a']\": error converting"),
        ),
        (
            json!({"fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v2"}}),
            line(
                ".fieldRef.fieldPath: Invalid value: \"metadata.name\": error converting fieldPath: unsupported pod version: v2",
            ),
        ),
        (json!({"resourceFieldRef": {"resource": ""}}), line(".resourceFieldRef.resource: Required value")),
        (
            json!({"resourceFieldRef": {"resource": "limits.gpu"}}),
            line(".resourceFieldRef.resource: Unsupported value: \"limits.gpu\""),
        ),
        (
            json!({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1Mi"}}),
            line(".resourceFieldRef.divisor: Invalid value: \"limits.cpu\": only divisor's values 1m and 1"),
        ),
        (
            json!({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1m"}}),
            line(".resourceFieldRef.divisor: Invalid value: \"limits.memory\": only divisor's values 1, 1k"),
        ),
        (
            json!({"configMapKeyRef": {"name": "A", "key": "k"}}),
            line(".configMapKeyRef.name: Invalid value: \"A\""),
        ),
        (json!({"secretKeyRef": {"name": "a", "key": ""}}), line(".secretKeyRef.key: Required value")),
        (
            json!({"secretKeyRef": {"name": "a", "key": "a/b"}}),
            line(".secretKeyRef.key: Invalid value: \"a/b\": a valid config key"),
        ),
        (
            json!({"fileKeyRef": {"key": "K", "volumeName": "host", "path": "p"}}),
            line(
                ".fileKeyRef.volumeName: Invalid value: \"host\": referenced volume must be of type emptyDir",
            ),
        ),
        (
            json!({"fileKeyRef": {"key": "K", "volumeName": "none", "path": "p"}}),
            line(".fileKeyRef.volumeName: Not found: \"none\""),
        ),
        (
            json!({"fileKeyRef": {"key": "K", "volumeName": "tmp", "path": "../p"}}),
            line(".fileKeyRef.path: Invalid value: \"../p\": must not contain '..'"),
        ),
        (
            json!({"fieldRef": {"fieldPath": "metadata.uid"}, "configMapKeyRef": {"name": "a", "key": "k"}}),
            line(": Invalid value: \"\": may not have more than one field"),
        ),
    ];
    for (source, expected) in rows {
        check(&[(one, from(source), &[expected.as_str()])]);
    }
    for good in [
        json!({"fieldRef": {"fieldPath": "metadata.annotations['X.y/z']"}}),
        json!({"fieldRef": {"fieldPath": "spec.host"}}),
        json!({"resourceFieldRef": {"resource": "requests.hugepages-2Mi", "divisor": "1Mi"}}),
        json!({"fileKeyRef": {"key": "K", "volumeName": "tmp", "path": "p"}}),
    ] {
        check(&[(one, from(good), &[])]);
    }
}

#[test]
fn environment() {
    let one = "/spec/containers/0/env/1";
    check(&[
        (
            one,
            json!({"name": "X", "value": "v", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}),
            &["spec.containers[0].env[1].valueFrom: Invalid value: \"\": may not be specified when `value`"],
        ),
        (one, json!({"name": "", "value": "v"}), &["spec.containers[0].env[1].name: Required value"]),
        (
            one,
            json!({"name": "a=b"}),
            &["spec.containers[0].env[1].name: Invalid value: \"a=b\": a valid environment variable name"],
        ),
        (
            "/spec/containers/0/envFrom",
            json!([{"prefix": "="}]),
            &[
                "spec.containers[0].envFrom[0].prefix: Invalid value: \"=\"",
                "spec.containers[0].envFrom[0]: Invalid value: \"\": must specify one of",
            ],
        ),
        (
            "/spec/containers/0/envFrom",
            json!([{"secretRef": {"name": ""}}]),
            &["spec.containers[0].envFrom[0].secretRef.name: Required value"],
        ),
        (
            "/spec/containers/0/envFrom",
            json!([{"secretRef": {"name": "a"}, "configMapRef": {"name": "A"}}]),
            &[
                "spec.containers[0].envFrom[0].configMapRef.name: Invalid value: \"A\"",
                "spec.containers[0].envFrom[0]: Invalid value: \"\": may not have more",
            ],
        ),
    ]);
}

#[test]
fn mounts_and_devices() {
    let mount = "/spec/containers/0/volumeMounts/0";
    let device = "/spec/containers/0/volumeDevices/0";
    check(&[
        (
            mount,
            json!({"name": "nowhere", "mountPath": "/t"}),
            &["spec.containers[0].volumeMounts[0].name: Not found: \"nowhere\""],
        ),
        (
            mount,
            json!({"name": "", "mountPath": "/t"}),
            &[
                "spec.containers[0].volumeMounts[0].name: Required value",
                "spec.containers[0].volumeMounts[0].name: Not found",
            ],
        ),
        (
            mount,
            json!({"name": "tmp", "mountPath": ""}),
            &["spec.containers[0].volumeMounts[0].mountPath: Required value"],
        ),
        (
            mount,
            json!({"name": "tmp", "mountPath": "/h"}),
            &["spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/h\": must be unique"],
        ),
        (
            mount,
            json!({"name": "tmp", "mountPath": "/t", "subPath": "/abs"}),
            &["spec.containers[0].volumeMounts[0].subPath: Invalid value: \"/abs\": must be a relative path"],
        ),
        (
            mount,
            json!({"name": "tmp", "mountPath": "/t", "subPath": "a/../../b"}),
            &[
                "spec.containers[0].volumeMounts[0].subPath: Invalid value: \"a/../../b\": must not contain '..'",
            ],
        ),
        (
            mount,
            json!({"name": "tmp", "mountPath": "/t", "subPath": "a", "subPathExpr": "b"}),
            &[
                "spec.containers[0].volumeMounts[0].subPathExpr: Invalid value: \"b\": subPathExpr and subPath are mutually exclusive",
            ],
        ),
        (
            mount,
            json!({"name": "tmp", "mountPath": "/t", "mountPropagation": "Bidirectional"}),
            &["spec.containers[0].volumeMounts[0].mountPropagation: Forbidden: Bidirectional"],
        ),
        (
            mount,
            json!({"name": "tmp", "mountPath": "/t", "mountPropagation": "x"}),
            &["spec.containers[0].volumeMounts[0].mountPropagation: Unsupported value: \"x\""],
        ),
        (
            mount,
            json!({"name": "tmp", "mountPath": "/t", "recursiveReadOnly": "Enabled", "mountPropagation": "HostToContainer"}),
            &[
                "spec.containers[0].volumeMounts[0].recursiveReadOnly: Forbidden: may only be specified when readOnly",
                "spec.containers[0].volumeMounts[0].recursiveReadOnly: Forbidden: may only be specified when mountPropagation",
            ],
        ),
        (
            mount,
            json!({"name": "tmp", "mountPath": "/dev/x"}),
            &[
                "spec.containers[0].volumeMounts[0].mountPath: Invalid value: \"/dev/x\": must not already exist as a path in volumeDevices",
                "spec.containers[0].volumeDevices[0].devicePath: Invalid value: \"/dev/x\": must not already",
            ],
        ),
        (
            device,
            json!({"name": "tmp", "devicePath": "/d"}),
            &[
                "spec.containers[0].volumeMounts[0].name: Invalid value: \"tmp\": must not already exist in volumeDevices",
                "spec.containers[0].volumeDevices[0].name: Invalid value: \"tmp\": can only use",
                "spec.containers[0].volumeDevices[0].name: Invalid value: \"tmp\": must not already exist in volumeMounts",
            ],
        ),
        (
            device,
            json!({"name": "none", "devicePath": "/../d"}),
            &[
                "spec.containers[0].volumeDevices[0].name: Not found: \"none\"",
                "spec.containers[0].volumeDevices[0].devicePath: Invalid value: \"/../d\": can not contain",
            ],
        ),
    ]);
}

#[test]
fn probes() {
    let probe = "/spec/containers/0/livenessProbe";
    check(&[
        (
            probe,
            json!({}),
            &["spec.containers[0].livenessProbe: Required value: must specify a handler type"],
        ),
        (probe, json!({"exec": {}}), &["spec.containers[0].livenessProbe.exec.command: Required value"]),
        (
            probe,
            json!({"exec": {"command": ["x"]}, "tcpSocket": {"port": 0}}),
            &[
                "spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
            ],
        ),
        (
            probe,
            json!({"tcpSocket": {"port": 0}}),
            &["spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: 0: must be between"],
        ),
        (
            probe,
            json!({"grpc": {"port": 70000}}),
            &["spec.containers[0].livenessProbe.grpc.port: Invalid value: 70000"],
        ),
        (
            probe,
            json!({"httpGet": {"port": "a--b", "scheme": "FTP", "httpHeaders": [{"name": "a b", "value": ""}]}}),
            &[
                "spec.containers[0].livenessProbe.httpGet.port: Invalid value: \"a--b\": must not contain consecutive",
                "spec.containers[0].livenessProbe.httpGet.scheme: Unsupported value: \"FTP\"",
                "spec.containers[0].livenessProbe.httpGet.httpHeaders[0].name: Invalid value: \"a b\": a valid HTTP header",
            ],
        ),
        (
            probe,
            json!({"exec": {"command": ["x"]}, "periodSeconds": -1, "timeoutSeconds": -1, "failureThreshold": -1, "initialDelaySeconds": -1, "successThreshold": 2, "terminationGracePeriodSeconds": 0}),
            &[
                "spec.containers[0].livenessProbe.initialDelaySeconds: Invalid value: -1: must be greater than or equal to 0",
                "spec.containers[0].livenessProbe.timeoutSeconds: Invalid value: -1",
                "spec.containers[0].livenessProbe.periodSeconds: Invalid value: -1",
                "spec.containers[0].livenessProbe.failureThreshold: Invalid value: -1",
                "spec.containers[0].livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
                "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
            ],
        ),
        (
            "/spec/containers/0/readinessProbe",
            json!({"exec": {"command": ["x"]}, "terminationGracePeriodSeconds": 5}),
            &[
                "spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 5: must not be set",
            ],
        ),
        (
            "/spec/containers/0/startupProbe/successThreshold",
            json!(3),
            &["spec.containers[0].startupProbe.successThreshold: Invalid value: 3: must be 1"],
        ),
        (
            "/spec/initContainers/0/livenessProbe",
            json!({"exec": {"command": ["x"]}}),
            &[
                "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
            ],
        ),
        (
            "/spec/initContainers/1/livenessProbe",
            json!({}),
            &["spec.initContainers[1].livenessProbe: Required value"],
        ),
    ]);
}

#[test]
fn hooks_and_stop_signals() {
    let hook = "/spec/containers/0/lifecycle/preStop";
    check(&[
        (
            hook,
            json!({}),
            &["spec.containers[0].lifecycle.preStop: Required value: must specify a handler type"],
        ),
        (
            hook,
            json!({"sleep": {"seconds": 31}}),
            &[
                "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)",
            ],
        ),
        (hook, json!({"sleep": {"seconds": 0}}), &[]),
        (
            "/spec/containers/0/lifecycle/stopSignal",
            json!("SIGTERM"),
            &["spec.containers[0].lifecycle.stopSignal: Forbidden: may not be set for containers with empty"],
        ),
        ("/spec/initContainers/0/lifecycle", json!({}), &["spec.initContainers[0].lifecycle: Forbidden"]),
    ]);
    let linux = ("/spec/os", json!({"name": "linux"}));
    for (signal, good) in [
        ("SIGRTMIN+15", true),
        ("SIGRTMAX-14", true),
        ("SIGRTMAX-15", false),
        ("SIGRTMIN+0", false),
        ("SIGFOO", false),
        ("SIGKILL", true),
    ] {
        let errors =
            errors_with(&[linux.clone(), ("/spec/containers/0/lifecycle/stopSignal", json!(signal))]);
        assert_eq!(errors.is_empty(), good, "{signal}: {errors:?}");
    }
}
