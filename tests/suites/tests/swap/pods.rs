//! Pods of many kinds.

use std::path::Path;

use serde_json::{Value, json};

use crate::machine::Machine;

/// A script that runs until SIGTERM.
const RUN: &str = "trap 'exit 0' TERM; while :; do sleep 0.2; done";

/// Makes pods for one node.
pub struct Maker<'a> {
    machine: &'a Machine,
    image: &'a str,
}

impl<'a> Maker<'a> {
    pub fn new(machine: &'a Machine, image: &'a str) -> Self {
        Self { machine, image }
    }

    /// A container with these fields beside its name, image and script.
    pub fn container(&self, name: &str, script: &str, more: Value) -> Value {
        let own = json!({
            "name": name, "image": self.image, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script]
        });
        laid_over(own, more)
    }

    /// A container that runs for ever.
    pub fn steady(&self, name: &str, more: Value) -> Value {
        self.container(name, RUN, more)
    }

    /// Creates a pod at the API server.
    pub fn make(&self, name: &str, containers: &[Value], more: Value) {
        let spec = json!({
            "nodeName": self.machine.name, "terminationGracePeriodSeconds": 2, "containers": containers
        });
        self.machine.cluster.apply(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": laid_over(spec, more)
        }));
    }

    /// Creates the objects of the volumes of [`Self::volumes`], with this word as their content.
    pub fn objects(&self, word: &str) {
        self.machine.cluster.apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" },
            "data": { "greeting": word, "file.txt": "fixed" }
        }));
        self.machine.cluster.apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "keys" },
            "stringData": { "password": "hidden", "token": word }
        }));
    }

    /// A pod with volumes of every kind that shows objects, two emptyDirs, a group, all probes, an init container and a
    /// sidecar.
    pub fn volumes(&self, name: &str) {
        let always = json!({ "exec": { "command": ["true"] }, "periodSeconds": 1, "timeoutSeconds": 30 });
        let main = self.steady("main", json!({
            "env": [
                { "name": "GREETING", "valueFrom": { "configMapKeyRef": { "name": "settings", "key": "greeting" } } },
                { "name": "POD_IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } }
            ],
            "envFrom": [{ "secretRef": { "name": "keys" } }],
            "resources": { "requests": { "cpu": "10m", "memory": "16Mi" }, "limits": { "cpu": "500m", "memory": "64Mi" } },
            "ports": [{ "containerPort": 8080, "name": "web" }],
            "readinessProbe": {
                "exec": { "command": ["test", "-f", "/scratch/file"] }, "periodSeconds": 1, "timeoutSeconds": 30
            },
            "livenessProbe": always, "startupProbe": always,
            "lifecycle": { "preStop": { "exec": { "command": ["true"] } } },
            "volumeMounts": [
                { "name": "scratch", "mountPath": "/scratch" },
                { "name": "memory", "mountPath": "/memory" },
                { "name": "config", "mountPath": "/config" },
                { "name": "secret", "mountPath": "/secret", "readOnly": true },
                { "name": "all", "mountPath": "/all" },
                { "name": "info", "mountPath": "/info" },
                { "name": "config", "mountPath": "/sub.txt", "subPath": "file.txt" }
            ]
        }));
        let scratch = json!({ "volumeMounts": [{ "name": "scratch", "mountPath": "/scratch" }] });
        let sidecar = self.steady("sidecar", json!({ "restartPolicy": "Always", "startupProbe": always }));
        self.make(name, &[main], json!({
            "securityContext": { "fsGroup": 2000, "runAsUser": 1000, "runAsGroup": 1000 },
            "initContainers": [self.container("prepare", "echo prepared > /scratch/file", scratch), sidecar],
            "volumes": [
                { "name": "scratch", "emptyDir": {} },
                { "name": "memory", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } },
                { "name": "config", "configMap": { "name": "settings" } },
                { "name": "secret", "secret": { "secretName": "keys", "defaultMode": 0o440 } },
                { "name": "info", "downwardAPI": { "items": [
                    { "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } }
                ] } },
                { "name": "all", "projected": { "sources": [
                    { "serviceAccountToken": { "path": "token", "audience": "someone", "expirationSeconds": 3600 } },
                    { "configMap": { "name": "settings", "items": [{ "key": "greeting", "path": "greeting" }] } },
                    { "secret": { "name": "keys", "items": [{ "key": "token", "path": "secret-token" }] } }
                ] } }
            ]
        }));
    }

    /// A pod whose container ends once with code 3 and then runs.
    pub fn crashed(&self, name: &str) {
        let script = format!(
            "if ! [ -e /keep/once ]; then touch /keep/once; echo first; exit 3; fi; echo second; {RUN}"
        );
        let keep = json!({ "volumeMounts": [{ "name": "keep", "mountPath": "/keep" }] });
        let volumes = json!({ "volumes": [{ "name": "keep", "emptyDir": {} }] });
        self.make(name, &[self.container("main", &script, keep)], volumes);
    }

    /// A pod whose container ends for good, with a termination message.
    pub fn finished(&self, name: &str, code: u8) {
        let script = format!("echo done; echo bye > /dev/termination-log; exit {code}");
        self.make(name, &[self.container("main", &script, json!({}))], json!({ "restartPolicy": "Never" }));
    }

    /// A pod with two containers, one of which has ended.
    pub fn half_done(&self, name: &str) {
        let done = self.container("done", "exit 0", json!({}));
        self.make(name, &[done, self.steady("runs", json!({}))], json!({ "restartPolicy": "OnFailure" }));
    }

    /// A pod with the node's own network and processes, and a class of its own.
    pub fn host(&self, name: &str) {
        let resources = json!({ "cpu": "50m", "memory": "16Mi" });
        let main = self.steady("main", json!({
            "resources": { "requests": resources, "limits": resources }, "securityContext": { "privileged": true },
            "volumeMounts": [{ "name": "gates", "mountPath": "/gates" }]
        }));
        let volumes = json!([{ "name": "gates", "hostPath": { "path": self.machine.gates() } }]);
        self.make(name, &[main], json!({ "hostNetwork": true, "hostPID": true, "volumes": volumes }));
    }

    /// A pod with the strictest security context, and with names and resolvers of its own.
    pub fn secured(&self, name: &str) {
        let main = self.steady("main", json!({
            "securityContext": {
                "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] }
            },
            "stdin": true, "tty": true, "terminationMessagePolicy": "FallbackToLogsOnError"
        }));
        self.make(
            name,
            &[main],
            json!({
                "hostname": "named", "subdomain": "sub", "shareProcessNamespace": true, "dnsPolicy": "None",
                "dnsConfig": { "nameservers": ["192.0.2.7"], "searches": ["a.example"] },
                "hostAliases": [{ "ip": "192.0.2.8", "hostnames": ["other"] }],
                "securityContext": {
                    "seccompProfile": { "type": "RuntimeDefault" }, "supplementalGroups": [7],
                    "runAsNonRoot": true, "runAsUser": 1234
                }
            }),
        );
    }

    /// A pod with a field that this kubelet does not support in new pods.
    pub fn unsupported(&self, name: &str) {
        let main =
            self.steady("main", json!({ "volumeMounts": [{ "name": "image", "mountPath": "/image" }] }));
        let volumes = json!({ "volumes": [{
            "name": "image", "image": { "reference": self.image, "pullPolicy": "IfNotPresent" }
        }] });
        self.make(name, &[main], volumes);
    }

    /// A pod whose container ignores SIGTERM.
    pub fn stubborn(&self, name: &str, grace_seconds: u32) {
        let main = self.container("main", "trap '' TERM; while :; do sleep 0.2; done", json!({}));
        self.make(name, &[main], json!({ "terminationGracePeriodSeconds": grace_seconds }));
    }

    /// A pod whose container ends with code 9 once there is a file of its name among the gates.
    pub fn dies_when_told(&self, name: &str) {
        let script = format!(
            "trap 'exit 0' TERM; while ! [ -e /gates/{name} ]; do sleep 0.2; done; rm /gates/{name}; exit 9"
        );
        let mount = json!({ "volumeMounts": [{ "name": "gates", "mountPath": "/gates" }] });
        let volumes =
            json!({ "volumes": [{ "name": "gates", "hostPath": { "path": self.machine.gates() } }] });
        self.make(name, &[self.container("main", &script, mount)], volumes);
    }

    /// Writes the manifest of a static pod into `directory`.
    pub fn static_pod(&self, name: &str, directory: &Path) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": self.machine.cluster.namespace },
            "spec": { "containers": [self.steady("main", json!({}))] }
        });
        // It is written beside the directory first, so that a kubelet that watches the directory never reads half of
        // it.
        let [beside, file] = [directory.with_extension("new"), directory.join(format!("{name}.json"))];
        std::fs::write(&beside, pod.to_string()).expect("a file in a directory of ours");
        std::fs::rename(beside, file).expect("both are on one file system");
    }
}

fn laid_over(mut under: Value, over: Value) -> Value {
    if let (Value::Object(under), Value::Object(over)) = (&mut under, over) {
        under.extend(over);
    }
    under
}
