//! Parts of manifests.

use serde_json::{Value, json};

/// A container that runs a script in a shell.
pub fn shell(name: &str, script: &str) -> Value {
    json!({"name": name, "command": ["sh", "-c", script]})
}

/// A script that waits for SIGTERM and ends at once on it.
pub const OBEDIENT: &str = "trap 'exit 0' TERM; while :; do sleep 1000 & wait $!; done";
/// A script that ignores SIGTERM.
pub const STUBBORN: &str = "trap '' TERM; while :; do sleep 1; done";

/// A container that sleeps until it is told to end.
pub fn sleeper(name: &str) -> Value {
    shell(name, OBEDIENT)
}

/// A web server on port 8080.
pub fn server(name: &str) -> Value {
    json!({"name": name, "command": ["serve"], "ports": [{"name": "http", "containerPort": 8080}]})
}

/// `part` with the fields of `more` laid over it.
pub fn with(mut part: Value, more: Value) -> Value {
    let (Value::Object(fields), Value::Object(more)) = (&mut part, more) else { panic!("two objects") };
    fields.extend(more);
    part
}

/// A pod of these containers.
pub fn containers(list: impl Into<Vec<Value>>) -> Value {
    json!({"containers": list.into(), "terminationGracePeriodSeconds": 5})
}

/// A probe that runs a command every second, and settles at its first answer.
pub fn exec_probe(script: &str) -> Value {
    json!({"exec": {"command": ["sh", "-c", script]}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 10})
}
