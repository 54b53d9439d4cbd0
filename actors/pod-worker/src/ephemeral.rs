//! Ephemeral containers in the form of ordinary containers: the two differ only in the container whose
//! processes an ephemeral one sees (row 5.14).

use k8s_openapi::api::core::v1::{Container, EphemeralContainer};

/// The ephemeral container as an ordinary one. `targetContainerName` is left out: the caller that makes the
/// configuration gives the target's ID.
pub fn as_container(ephemeral: &EphemeralContainer) -> Container {
    // Destructured in full, so that the compiler reports a field that is added later.
    let EphemeralContainer {
        args,
        command,
        env,
        env_from,
        image,
        image_pull_policy,
        lifecycle,
        liveness_probe,
        name,
        ports,
        readiness_probe,
        resize_policy,
        resources,
        restart_policy,
        restart_policy_rules,
        security_context,
        startup_probe,
        stdin,
        stdin_once,
        target_container_name: _,
        termination_message_path,
        termination_message_policy,
        tty,
        volume_devices,
        volume_mounts,
        working_dir,
    } = ephemeral.clone();
    Container {
        args,
        command,
        env,
        env_from,
        image,
        image_pull_policy,
        lifecycle,
        liveness_probe,
        name,
        ports,
        readiness_probe,
        resize_policy,
        resources,
        restart_policy,
        restart_policy_rules,
        security_context,
        startup_probe,
        stdin,
        stdin_once,
        termination_message_path,
        termination_message_policy,
        tty,
        volume_devices,
        volume_mounts,
        working_dir,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_but_the_target_is_carried_over() {
        let mut value = json!({
            "name": "debug", "image": "i", "command": ["sh"], "args": ["a"], "tty": true, "stdin": true,
            "env": [{"name": "A", "value": "b"}], "workingDir": "/", "imagePullPolicy": "Never",
            "securityContext": {"runAsUser": 7, "capabilities": {"add": ["SYS_PTRACE"]}},
            "terminationMessagePath": "/x", "terminationMessagePolicy": "File",
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            "targetContainerName": "main",
        });
        let ephemeral: EphemeralContainer = serde_json::from_value(value.clone()).expect("a container");
        let container = serde_json::to_value(as_container(&ephemeral)).expect("JSON");
        assert!(value.as_object_mut().is_some_and(|fields| fields.remove("targetContainerName").is_some()));
        assert_eq!(container, value);
    }
}
