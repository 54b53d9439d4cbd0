use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use pod_why::model::Event;
use serde_json::{Value, json};

use super::document::{Description, describe};
use super::text::lines;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn metadata() -> Value {
    json!({
        "namespace": "default", "name": "web", "uid": "u-1", "labels": { "app": "web", "tier": "front" },
        "annotations": { "note": "red\u{1b}[31m" },
        "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "o", "controller": true }],
    })
}

fn spec() -> Value {
    let app = json!({
        "name": "app", "image": "demo:1", "command": ["sh", "-c"], "args": ["serve"],
        "ports": [{ "containerPort": 80, "protocol": "TCP" }, { "containerPort": 53, "hostPort": 5353, "protocol": "UDP" }],
        "resources": { "requests": { "cpu": "100m" }, "limits": { "memory": "64Mi" } },
        "env": [
            { "name": "PLAIN", "value": "x" },
            { "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } },
        ],
        "envFrom": [{ "prefix": "P_", "configMapRef": { "name": "settings" } }],
        "volumeMounts": [{ "name": "data", "mountPath": "/data", "readOnly": true, "subPath": "a" }],
    });
    json!({
        "nodeName": "node-1", "priority": 0, "serviceAccountName": "default",
        "initContainers": [{ "name": "prepare", "image": "demo:1" }],
        "containers": [app],
        "ephemeralContainers": [{ "name": "debug", "image": "demo:2", "targetContainerName": "app" }],
        "volumes": [{ "name": "data", "configMap": { "name": "settings", "optional": true } }, { "name": "empty", "emptyDir": {} }],
        "tolerations": [
            { "key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
            { "key": "a", "operator": "Equal", "value": "b" },
        ],
    })
}

fn status() -> Value {
    let ended = json!({
        "exitCode": 1, "reason": "Error", "startedAt": "2026-01-01T11:00:00Z", "finishedAt": "2026-01-01T11:01:00Z",
    });
    let app = json!({
        "name": "app", "image": "demo:1", "imageID": "sha256:1", "containerID": "containerd://c", "restartCount": 2,
        "ready": true, "state": { "running": { "startedAt": "2026-01-01T11:02:00Z" } },
        "lastState": { "terminated": ended },
    });
    json!({
        "phase": "Running", "hostIP": "10.0.0.1", "podIP": "10.1.0.4", "podIPs": [{ "ip": "10.1.0.4" }, { "ip": "fd00::4" }],
        "startTime": "2026-01-01T10:00:00Z", "qosClass": "Burstable", "containerStatuses": [app],
        "conditions": [{ "type": "Initialized", "status": "True" }, { "type": "Ready", "status": "False" }],
    })
}

fn described() -> Description {
    let pod = json!({ "metadata": metadata(), "spec": spec(), "status": status() });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let event = |uid: &str, count: u32| Event {
        object: json!({ "pod": { "pod": { "uid": uid, "namespace": "default", "name": "web" } } }),
        event_type: "Warning".to_owned(),
        reason: "BackOff".to_owned(),
        message: "it ends".to_owned(),
        count,
        last_seen: "2026-01-01T11:58:00Z".parse().unwrap(),
    };
    describe(&pod, &[event("u-1", 3), event("u-2", 1)], &[])
}

const EXPECTED: &str = r#"
Name:             web
Namespace:        default
UID:              u-1
Priority:         0
Service Account:  default
Node:             node-1/10.0.0.1
Start Time:       Thu, 01 Jan 2026 10:00:00 +0000
Labels:           app=web
                  tier=front
Annotations:      note: red␛[31m
Status:           Running
IP:               10.1.0.4
IPs:
  IP:  10.1.0.4
  IP:  fd00::4
Controlled By:  ReplicaSet/web-1
Init Containers:
  prepare:
    Container ID:
    Image:         demo:1
    Image ID:
    Port:          <none>
    Host Port:     <none>
    Environment:   <none>
    Mounts:        <none>
Containers:
  app:
    Container ID:   containerd://c
    Image:          demo:1
    Image ID:       sha256:1
    Ports:          80/TCP, 53/UDP
    Host Ports:     0/TCP, 5353/UDP
    Command:
      sh
      -c
    Args:
      serve
    State:          Running
      Started:      Thu, 01 Jan 2026 11:02:00 +0000
    Last State:     Terminated
      Reason:       Error
      Exit Code:    1
      Started:      Thu, 01 Jan 2026 11:00:00 +0000
      Finished:     Thu, 01 Jan 2026 11:01:00 +0000
    Ready:          True
    Restart Count:  2
    Limits:
      memory:       64Mi
    Requests:
      cpu:          100m
    Environment Variables from:
      ConfigMap settings with the prefix "P_"
    Environment:
      PLAIN:        x
      KEY:          <key k of Secret s>
    Mounts:
      /data from data (ro,path="a")
Ephemeral Containers:
  debug:
    Container ID:
    Image:         demo:2
    Image ID:
    Port:          <none>
    Host Port:     <none>
    Environment:   <none>
    Mounts:        <none>
Conditions:
  Type         Status
  Initialized  True
  Ready        False
Volumes:
  data:
    Type:      ConfigMap
    Name:      settings
    Optional:  true
  empty:
    Type:  EmptyDir
QoS Class:       Burstable
Node-Selectors:  <none>
Tolerations:     k:NoExecute op=Exists for 300s
                 a=b
Events:
  Type     Reason   Age      From     Message
  ----     ------   ---      ----     -------
  Warning  BackOff  2m (x3)  kubelet  it ends
"#;

#[test]
fn a_pod_is_described_as_kubectl_describes_it() {
    let told = lines(&described(), now());
    let expected: Vec<&str> = EXPECTED.trim().lines().collect();
    assert_eq!(told, expected, "\n{}", told.join("\n"));
}

#[test]
fn a_pod_that_ends_says_how_long_that_has_lasted() {
    let mut described = described();
    described.deletion_timestamp = Some("2026-01-01T11:59:00Z".to_owned());
    described.deletion_grace_seconds = Some(30);
    described.unread = vec!["/events: 503".to_owned()];
    let told = lines(&described, now());
    assert!(told.iter().any(|line| line.ends_with("Terminating (lasts 60s)")), "{told:#?}");
    assert!(told.iter().any(|line| line.starts_with("Termination Grace Period:  30s")), "{told:#?}");
    assert_eq!(told.last().map(String::as_str), Some("Not known: /events: 503"));
}

#[test]
fn a_pod_without_spec_and_status_is_described_too() {
    let pod = Pod::default();
    let told = lines(&describe(&pod, &[], &[]), now());
    assert!(told.contains(&"Events:  <none>".to_owned()) && told.contains(&"Volumes:  <none>".to_owned()));
}
