use serde_json::json;

use super::{check, errors_with};

#[test]
fn restart_and_resize_policies() {
    let main = "/spec/containers/0";
    let with = |change: serde_json::Value| {
        let mut container = json!({"name": "main", "image": "i"});
        container.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        container
    };
    let rule = json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}});
    check(&[
        (main, with(json!({"restartPolicy": "Never", "restartPolicyRules": [&rule]})), &[]),
        (
            main,
            with(json!({"restartPolicyRules": [&rule]})),
            &["spec.containers[0].restartPolicy: Required value: must specify restartPolicy"],
        ),
        (
            main,
            with(json!({"restartPolicy": "Maybe"})),
            &["spec.containers[0].restartPolicy: Unsupported value: \"Maybe\""],
        ),
        (
            main,
            with(
                json!({"restartPolicy": "Never", "restartPolicyRules": [{"action": "x", "exitCodes": {"operator": "y"}}, {"action": "RestartAllContainers"}]}),
            ),
            &[
                "spec.containers[0].restartPolicyRules[0].action: Unsupported value: \"x\"",
                "spec.containers[0].restartPolicyRules[0].exitCodes.operator: Unsupported value: \"y\"",
                "spec.containers[0].restartPolicyRules[1].exitCodes: Required value: must be specified",
            ],
        ),
        (
            main,
            with(json!({"restartPolicy": "Never", "restartPolicyRules": vec![&rule; 21]})),
            &["spec.containers[0].restartPolicyRules: Too many: 21: must have at most 20 items"],
        ),
        (
            main,
            with(
                json!({"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": vec![1; 256]}}]}),
            ),
            &[
                "spec.containers[0].restartPolicyRules[0].exitCodes.values: Too many: 256: must have at most 255 items",
            ],
        ),
        (
            "/spec/initContainers/0/restartPolicyRules",
            json!([&rule]),
            &["spec.initContainers[0].restartPolicy: Required value"],
        ),
        (
            main,
            with(
                json!({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "x"}, {"resourceName": "cpu", "restartPolicy": "NotRequired"}, {"resourceName": "gpu", "restartPolicy": ""}]}),
            ),
            &[
                "spec.containers[0].resizePolicy[0].restartPolicy: Unsupported value: \"x\"",
                "spec.containers[0].resizePolicy[1]: Duplicate value: \"cpu\"",
                "spec.containers[0].resizePolicy[2].resourceName: Unsupported value: \"gpu\"",
                "spec.containers[0].resizePolicy[2].restartPolicy: Required value",
            ],
        ),
        (
            "/spec/initContainers/0/resizePolicy",
            json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]),
            &[
                "spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: \"RestartContainer\": must not be set",
            ],
        ),
    ]);
}

#[test]
fn resources() {
    let main = "/spec/containers/0/resources";
    let at = "spec.containers[0].resources";
    let rows = [
        (
            json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
            vec![".requests[cpu]: Invalid value: \"2\": must be less than or equal to cpu limit of 1"],
        ),
        (
            json!({"limits": {"cpu": "-1"}}),
            vec![
                ".limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
                ".requests[cpu]: Invalid value: \"-1\"",
            ],
        ),
        (
            json!({"requests": {"gpu": "1"}}),
            vec![
                ".requests[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully qualified",
            ],
        ),
        (
            json!({"requests": {"pods": "1"}}),
            vec![".requests[pods]: Invalid value: \"pods\": must be a standard resource for containers"],
        ),
        (json!({"requests": {"a b": "1"}}), vec![".requests[a b]: Invalid value: \"a b\": name part"]),
        (
            json!({"requests": {"example.com/gpu": "1"}}),
            vec![
                ".limits[example.com/gpu]: Required value: Limit must be set for non overcommitable resources",
            ],
        ),
        (
            json!({"limits": {"example.com/gpu": "2"}, "requests": {"example.com/gpu": "1"}}),
            vec![
                ".requests[example.com/gpu]: Invalid value: \"1\": must be equal to example.com/gpu limit of 2",
            ],
        ),
        (
            json!({"limits": {"example.com/gpu": "0.5"}}),
            vec![
                ".limits[example.com/gpu]: Invalid value: \"500m\": must be an integer",
                ".requests[example.com/gpu]: Invalid value: \"500m\": must be an integer",
            ],
        ),
        (
            json!({"limits": {"requests.x.y/gpu": "1"}}),
            vec![
                ".limits[requests.x.y/gpu]: Invalid value: \"requests.x.y/gpu\": doesn't follow extended resource name standard",
                ".requests[requests.x.y/gpu]",
            ],
        ),
        (json!({"limits": {"hugepages-2Mi": "4Mi"}}), vec![": Forbidden: HugePages require cpu or memory"]),
        (
            json!({"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}),
            vec![
                ".limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
                ".requests[hugepages-2Mi]",
            ],
        ),
        (json!({"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}}), vec![]),
        (
            json!({"claims": [{"name": "x"}]}),
            vec![
                ".claims[0]: Not found: \"x\": must be one of the names in pod.spec.resourceClaims which is empty",
            ],
        ),
    ];
    for (value, expected) in rows {
        let expected: Vec<String> = expected.iter().map(|text| format!("{at}{text}")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check(&[(main, value, &expected)]);
    }
}

#[test]
fn resources_of_whole_pods() {
    check(&[
        ("/spec/overhead", json!({"cpu": "-1"}), &["spec.overhead.limits[cpu]: Invalid value: \"-1\""]),
        (
            "/spec/resources",
            json!({"limits": {"cpu": "500m"}}),
            &[
                "spec.containers[0].resources.limits[cpu]: Invalid value: \"1\": must be less than or equal to pod limits of 500m",
            ],
        ),
        (
            "/spec/resources",
            json!({"limits": {"cpu": "2"}, "requests": {"cpu": "50m"}}),
            &[
                "spec.resources.requests[cpu]: Invalid value: \"50m\": must be greater than or equal to aggregate container requests of 100m",
            ],
        ),
        (
            "/spec/resources",
            json!({"requests": {"ephemeral-storage": "2"}, "claims": []}),
            &[
                "spec.resources.claims: Forbidden",
                "spec.resources.requests[ephemeral-storage]: Unsupported value",
            ],
        ),
    ]);
}

#[test]
fn resource_claims() {
    let main = "/spec/containers/0/resources";
    let claims = ("/spec/resourceClaims", json!([{"name": "x", "resourceClaimName": "r"}]));
    let uses = |claims: serde_json::Value| (main, json!({"claims": claims}));
    assert_eq!(errors_with(&[claims.clone(), uses(json!([{"name": "x"}]))]), Vec::<String>::new());
    assert_eq!(
        errors_with(&[
            claims,
            uses(
                json!([{"name": "x", "request": "a"}, {"name": "x", "request": "a"}, {"name": "x"}, {"name": ""}])
            )
        ]),
        [
            "spec.containers[0].resources.claims[1]: Duplicate value: \"x/a\"",
            "spec.containers[0].resources.claims[2]: Duplicate value: \"x\"",
            "spec.containers[0].resources.claims[3]: Required value",
        ]
    );
}

#[test]
fn security_contexts() {
    let context = "/spec/containers/0/securityContext";
    check(&[
        (
            context,
            json!({"runAsUser": -1, "runAsGroup": 4294967296_i64}),
            &[
                "spec.containers[0].securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
                "spec.containers[0].securityContext.runAsGroup: Invalid value: 4294967296",
            ],
        ),
        (
            context,
            json!({"procMount": "x"}),
            &["spec.containers[0].securityContext.procMount: Unsupported value: \"x\""],
        ),
        (
            context,
            json!({"procMount": "Unmasked"}),
            &[
                "spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false",
            ],
        ),
        (
            context,
            json!({"allowPrivilegeEscalation": false, "privileged": true, "capabilities": {"add": ["CAP_SYS_ADMIN"]}}),
            &[
                "spec.containers[0].securityContext.allowPrivilegeEscalation: Invalid value: false: cannot set `allowPrivilegeEscalation` to false and `privileged`",
                "spec.containers[0].securityContext.allowPrivilegeEscalation: Invalid value: false",
            ],
        ),
        (
            context,
            json!({"seccompProfile": {"type": ""}}),
            &["spec.containers[0].securityContext.seccompProfile.type: Required value"],
        ),
        (
            context,
            json!({"seccompProfile": {"type": "Localhost"}}),
            &["spec.containers[0].securityContext.seccompProfile.localhostProfile: Required value"],
        ),
        (
            context,
            json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "/a"}}),
            &[
                "spec.containers[0].securityContext.seccompProfile.localhostProfile: Invalid value: \"/a\": must be a relative path",
            ],
        ),
        (
            context,
            json!({"seccompProfile": {"type": "Unconfined", "localhostProfile": "a"}}),
            &[
                "spec.containers[0].securityContext.seccompProfile.localhostProfile: Invalid value: \"a\": can only be set",
            ],
        ),
        (
            context,
            json!({"appArmorProfile": {"type": "Localhost"}}),
            &["spec.containers[0].securityContext.appArmorProfile.localhostProfile: Required value"],
        ),
        (
            context,
            json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": " a"}}),
            &[
                "spec.containers[0].securityContext.appArmorProfile.localhostProfile: Invalid value: \" a\": must not be padded",
            ],
        ),
        (
            context,
            json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "a".repeat(4096)}}),
            &[
                "spec.containers[0].securityContext.appArmorProfile.localhostProfile: Too long: may not be more than 4095 bytes",
            ],
        ),
        (
            context,
            json!({"appArmorProfile": {"type": "x"}}),
            &["spec.containers[0].securityContext.appArmorProfile.type: Unsupported value: \"x\""],
        ),
        (
            context,
            json!({"windowsOptions": {"runAsUserName": "a\\b\\c", "gmsaCredentialSpec": ""}}),
            &[
                "spec.containers[0].securityContext.windowsOptions.gmsaCredentialSpec: Invalid value: \"\"",
                "spec.containers[0].securityContext.windowsOptions.runAsUserName: Invalid value: \"a\\\\b\\\\c\": runAsUserName cannot contain more than one backslash",
            ],
        ),
    ]);
}

#[test]
fn ephemeral_containers() {
    let ephemeral = "/spec/ephemeralContainers";
    let never = "spec.ephemeralContainers: Forbidden: cannot be set on create";
    check(&[
        (ephemeral, json!([{"name": "e", "image": "i", "targetContainerName": "main"}]), &[never]),
        (
            ephemeral,
            json!([{"name": "main", "image": "i", "targetContainerName": "x", "ports": [{"containerPort": 1}], "livenessProbe": {},
            "volumeMounts": [{"name": "tmp", "mountPath": "/t", "subPath": "a"}]}]),
            &[
                "spec.ephemeralContainers[0].name: Duplicate value: \"main\"",
                "spec.ephemeralContainers[0].targetContainerName: Not found: \"x\"",
                "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
                "spec.ephemeralContainers[0].livenessProbe: Forbidden",
                "spec.ephemeralContainers[0].volumeMounts[0].subPath: Forbidden",
                never,
            ],
        ),
    ]);
}
