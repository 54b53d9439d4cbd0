//! Manifests for the sandbox.

use testkit::node::IMAGE;

/// A pod with one container that runs for ever and has a readiness probe.
pub fn web(name: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 5
  initContainers:
  - {{name: prepare, image: {IMAGE}, imagePullPolicy: IfNotPresent, command: [prepare]}}
  - {{name: side, image: {IMAGE}, imagePullPolicy: IfNotPresent, command: [serve, side], restartPolicy: Always}}
  containers:
  - name: main
    image: {IMAGE}
    imagePullPolicy: IfNotPresent
    command: [serve, main]
    readinessProbe: {{exec: {{command: [ready]}}, periodSeconds: 1}}
    livenessProbe: {{exec: {{command: [alive]}}, periodSeconds: 5}}
    volumeMounts: [{{name: data, mountPath: /data}}, {{name: data, mountPath: /part, subPath: part}}]
  volumes: [{{name: data, emptyDir: {{}}}}]
"
    )
}

/// A pod whose only container ends with 0.
pub fn job(name: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: OnFailure
  containers:
  - {{name: main, image: {IMAGE}, imagePullPolicy: IfNotPresent, command: [job]}}
"
    )
}
