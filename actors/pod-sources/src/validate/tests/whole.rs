use serde_json::json;

use super::{check, errors_with};

#[test]
fn metadata() {
    check(&[
        ("/metadata/name", json!(""), &["metadata.name: Required value: name or generateName is required"]),
        (
            "/metadata/name",
            json!("A_b"),
            &["metadata.name: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain"],
        ),
        ("/metadata/namespace", json!(""), &["metadata.namespace: Required value"]),
        (
            "/metadata/namespace",
            json!("a.b"),
            &["metadata.namespace: Invalid value: \"a.b\": must not contain dots"],
        ),
        ("/metadata/generateName", json!("A-"), &["metadata.generateName: Invalid value"]),
        ("/metadata/generation", json!(-1), &["metadata.generation: Invalid value: -1"]),
        (
            "/metadata/labels",
            json!({"a b": "x", "c": "-"}),
            &[
                "metadata.labels: Invalid value: \"a b\": name part",
                "metadata.labels[c]: Invalid value: \"-\": a valid label",
            ],
        ),
        (
            "/metadata/annotations",
            json!({"a/b/c": "x"}),
            &["metadata.annotations: Invalid value: \"a/b/c\": a qualified name"],
        ),
        (
            "/metadata/annotations",
            json!({"a": "x".repeat(256 * 1024)}),
            &["metadata.annotations: Too long: may not be more than 262144 bytes"],
        ),
        (
            "/metadata/ownerReferences",
            json!([{"apiVersion": "", "kind": "K", "name": "n", "uid": "u"}]),
            &["metadata.ownerReferences[0].apiVersion: Invalid value: \"\": must not be empty"],
        ),
        (
            "/metadata/finalizers",
            json!(["plain", "orphan", "foregroundDeletion"]),
            &[
                "metadata.finalizers[0]: Invalid value: \"plain\": name is neither",
                "metadata.finalizers: Invalid value: [\"plain\",\"orphan\",\"foregroundDeletion\"]",
            ],
        ),
    ]);
}

#[test]
fn annotations_with_a_meaning() {
    let row = |key: &str, value: &str| json!({key: value});
    let deletion = "controller.kubernetes.io/pod-deletion-cost";
    let app_armor = "container.apparmor.security.beta.kubernetes.io/main";
    let stranger = "container.apparmor.security.beta.kubernetes.io/stranger";
    let tolerations = "scheduler.alpha.kubernetes.io/tolerations";
    check(&[
        ("/metadata/annotations", row(deletion, "-5"), &[]),
        (
            "/metadata/annotations",
            row(deletion, "08"),
            &[
                "metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: \"08\": must be a 32bit integer",
            ],
        ),
        (
            "/metadata/annotations",
            row(tolerations, "[{\"operator\":\"x\"}]"),
            &[
                "metadata.annotations.scheduler.alpha.kubernetes.io/tolerations[0].operator: Invalid value: \"x\"",
                "metadata.annotations.scheduler.alpha.kubernetes.io/tolerations[0].operator: Unsupported value: \"x\"",
            ],
        ),
        (
            "/metadata/annotations",
            row(tolerations, "{"),
            &["metadata.annotations: Invalid value: \"scheduler.alpha.kubernetes.io/tolerations\""],
        ),
        (
            "/metadata/annotations",
            row("seccomp.security.alpha.kubernetes.io/pod", "localhost//x"),
            &[
                "metadata.annotations.seccomp.security.alpha.kubernetes.io/pod: Invalid value: \"/x\": must be a relative path",
            ],
        ),
        (
            "/metadata/annotations",
            row("seccomp.security.alpha.kubernetes.io/pod", "x"),
            &[
                "metadata.annotations.seccomp.security.alpha.kubernetes.io/pod: Invalid value: \"x\": must be a valid seccomp profile",
            ],
        ),
        (
            "/metadata/annotations",
            row("container.seccomp.security.alpha.kubernetes.io/main", "unconfined"),
            &[
                "spec.containers[0].securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match",
            ],
        ),
        (
            "/metadata/annotations",
            row(stranger, "unconfined"),
            &[
                "metadata.annotations[container.apparmor.security.beta.kubernetes.io/stranger]: Invalid value: \"stranger\": container not found",
            ],
        ),
        (
            "/metadata/annotations",
            row(app_armor, "x"),
            &[
                "metadata.annotations[container.apparmor.security.beta.kubernetes.io/main]: Invalid value: \"x\": invalid AppArmor profile name: \"x\"",
            ],
        ),
    ]);
    let field =
        ("/spec/securityContext/appArmorProfile", json!({"type": "Localhost", "localhostProfile": "p"}));
    let annotated = |value: &str| ("/metadata/annotations", json!({app_armor: value}));
    assert_eq!(errors_with(&[field.clone(), annotated("localhost/p")]), Vec::<String>::new());
    assert_eq!(
        errors_with(&[field.clone(), annotated("localhost/q")]),
        [
            "spec.containers[0].securityContext.appArmorProfile.localhostProfile: Forbidden: apparmor profile in annotation and field must match"
        ]
    );
    assert_eq!(errors_with(&[field, annotated("unconfined")]).len(), 1);
    let mirror = json!({"kubernetes.io/config.mirror": "x"});
    assert_eq!(errors_with(&[("/metadata/annotations", mirror.clone())]), Vec::<String>::new());
    assert_eq!(errors_with(&[("/metadata/annotations", mirror), ("/spec/nodeName", json!(null))]).len(), 1);
}

#[test]
fn policies_names_and_numbers() {
    check(&[
        (
            "/spec/restartPolicy",
            json!("Sometimes"),
            &[
                "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
            ],
        ),
        ("/spec/dnsPolicy", json!("x"), &["spec.dnsPolicy: Unsupported value: \"x\""]),
        ("/spec/preemptionPolicy", json!("x"), &["spec.preemptionPolicy: Unsupported value: \"x\""]),
        (
            "/spec/activeDeadlineSeconds",
            json!(0),
            &["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
        ),
        ("/spec/hostname", json!("a.b"), &["spec.hostname: Invalid value: \"a.b\""]),
        ("/spec/subdomain", json!("A"), &["spec.subdomain: Invalid value: \"A\""]),
        (
            "/spec/hostnameOverride",
            json!("a".repeat(65)),
            &["spec.hostnameOverride: Too long: may not be more than 64 bytes"],
        ),
        ("/spec/serviceAccountName", json!("A"), &["spec.serviceAccountName: Invalid value: \"A\""]),
        ("/spec/nodeName", json!("A"), &["spec.nodeName: Invalid value: \"A\""]),
        ("/spec/priorityClassName", json!("A"), &["spec.priorityClassName: Invalid value: \"A\""]),
        ("/spec/runtimeClassName", json!("A"), &["spec.runtimeClassName: Invalid value: \"A\""]),
        ("/spec/schedulingGroup", json!({}), &["spec.schedulingGroup.podGroupName: Invalid value"]),
        (
            "/spec/hostAliases/0",
            json!({"ip": "x", "hostnames": ["A"]}),
            &[
                "spec.hostAliases[0].ip: Invalid value: \"x\": must be a valid IP address",
                "spec.hostAliases[0].hostnames[0]: Invalid value: \"A\"",
            ],
        ),
        (
            "/spec/readinessGates",
            json!([{"conditionType": "a b"}]),
            &["spec.readinessGates[0].conditionType: Invalid value: \"a b\""],
        ),
        (
            "/spec/schedulingGates",
            json!([{"name": "a"}, {"name": "a"}]),
            &[
                "spec.schedulingGates[1]: Duplicate value: \"a\"",
                "spec.nodeName: Forbidden: cannot be set until all schedulingGates",
            ],
        ),
        ("/spec/nodeSelector", json!({"a": "b c"}), &["spec.nodeSelector[a]: Invalid value: \"b c\""]),
        (
            "/spec/resourceClaims",
            json!([{"name": "a"}, {"name": "a", "resourceClaimName": "A", "resourceClaimTemplateName": "t"}]),
            &[
                "spec.resourceClaims[0]: Invalid value: \"a\": must specify one of",
                "spec.resourceClaims[1].name: Duplicate value: \"a\"",
                "spec.resourceClaims[1]: Invalid value: \"a\": at most one of",
                "spec.resourceClaims[1].resourceClaimName: Invalid value: \"A\"",
            ],
        ),
    ]);
    let both = errors_with(&[
        ("/spec/hostnameOverride", json!("a")),
        ("/spec/setHostnameAsFQDN", json!(true)),
        ("/spec/hostPID", json!(true)),
        ("/spec/shareProcessNamespace", json!(true)),
    ]);
    assert_eq!(
        both,
        [
            "spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled",
            "spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true",
        ]
    );
}

#[test]
fn resolver_configuration() {
    check(&[
        (
            "/spec/dnsConfig/nameservers",
            json!(["1", "1.1.1.1", "1.1.1.1", "::1"]),
            &[
                "spec.dnsConfig.nameservers: Invalid value: [\"1\",\"1.1.1.1\",\"1.1.1.1\",\"::1\"]: must not have more than 3 nameservers",
                "spec.dnsConfig.nameservers[0]: Invalid value: \"1\": must be a valid IP address",
            ],
        ),
        ("/spec/dnsConfig/searches", json!(["A"]), &["spec.dnsConfig.searches[0]: Invalid value: \"A\""]),
        ("/spec/dnsConfig/searches", json!(vec!["a"; 33]), &["spec.dnsConfig.searches: Invalid value"]),
        (
            "/spec/dnsConfig/searches",
            json!(vec!["a".repeat(60) + "." + &"b".repeat(60); 17]),
            &["spec.dnsConfig.searches: Invalid value"],
        ),
        (
            "/spec/dnsConfig/options",
            json!([{"value": "x"}]),
            &["spec.dnsConfig.options[0]: Required value: must not be empty"],
        ),
    ]);
    let none = ("/spec/dnsPolicy", json!("None"));
    assert_eq!(
        errors_with(&[none.clone(), ("/spec/dnsConfig", json!(null))]),
        ["spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"]
    );
    assert_eq!(errors_with(&[none, ("/spec/dnsConfig/nameservers", json!([]))]).len(), 1);
}

#[test]
fn tolerations() {
    let first = "/spec/tolerations/1";
    check(&[
        (
            first,
            json!({"key": "a b", "operator": "Exists"}),
            &["spec.tolerations[1].key: Invalid value: \"a b\""],
        ),
        (
            first,
            json!({"value": "x"}),
            &["spec.tolerations[1].operator: Invalid value: \"\": operator must be Exists"],
        ),
        (
            first,
            json!({"key": "a", "tolerationSeconds": 1}),
            &["spec.tolerations[1].effect: Invalid value: \"\": effect must be 'NoExecute'"],
        ),
        (
            first,
            json!({"key": "a", "value": "b c"}),
            &["spec.tolerations[1].operator: Invalid value: \"b c\""],
        ),
        (
            first,
            json!({"key": "a", "operator": "Exists", "value": "b"}),
            &["spec.tolerations[1].operator: Invalid value: \"b\": value must be empty"],
        ),
        (
            first,
            json!({"key": "a", "operator": "Like", "effect": "x"}),
            &[
                "spec.tolerations[1].operator: Unsupported value: \"Like\"",
                "spec.tolerations[1].effect: Unsupported value: \"x\"",
            ],
        ),
    ]);
}

#[test]
fn affinity_and_topology() {
    let term = |expression: serde_json::Value| json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [expression]}}});
    let node = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let rows = [
        (
            json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
            "[0].matchExpressions[0].values: Required value",
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}),
            "[0].matchExpressions[0].values: Forbidden",
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1", "2"]}]}),
            "[0].matchExpressions[0].values: Required value",
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "x"}]}),
            "[0].matchExpressions[0].operator: Invalid value: \"x\"",
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b c"]}]}),
            "[0].matchExpressions[0].values[0]: Invalid value: \"b c\"",
        ),
        (
            json!({"matchFields": [{"key": "spec.x", "operator": "In", "values": ["a"]}]}),
            "[0].matchFields[0].key: Invalid value: \"spec.x\"",
        ),
        (
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["A"]}]}),
            "[0].matchFields[0].values[0]: Invalid value: \"A\"",
        ),
    ];
    for (expression, expected) in rows {
        check(&[("/spec/affinity", term(expression), &[&format!("{node}{expected}")])]);
    }
    let pods = |term: serde_json::Value| json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 0, "podAffinityTerm": term}]}});
    let at = "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]";
    let weight = format!("{at}.weight: Invalid value: 0: must be in the range 1-100");
    let line = |text: &str| format!("{at}.podAffinityTerm{text}");
    check(&[
        ("/spec/affinity", pods(json!({"topologyKey": "zone"})), &[&weight]),
        (
            "/spec/affinity",
            pods(json!({"topologyKey": "z", "namespaces": ["A"], "matchLabelKeys": ["a"]})),
            &[
                &weight,
                &line(".namespaces[0]: Invalid value: \"A\""),
                &line(".matchLabelKeys: Forbidden: must not be specified when labelSelector is not set"),
            ],
        ),
        (
            "/spec/affinity",
            pods(
                json!({"topologyKey": "z", "labelSelector": {"matchLabels": {"a": "x"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}, "matchLabelKeys": ["a"], "mismatchLabelKeys": ["a"]}),
            ),
            &[
                &weight,
                &line(
                    ".matchLabelKeys[0]: Invalid value: \"a\": exists in both matchLabelKeys and labelSelector",
                ),
                &line(
                    ".matchLabelKeys[0]: Invalid value: \"a\": exists in both matchLabelKeys and mismatchLabelKeys",
                ),
            ],
        ),
        (
            "/spec/topologySpreadConstraints",
            json!([{"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "x", "minDomains": 0, "nodeTaintsPolicy": "y"}]),
            &[
                "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0",
                "spec.topologySpreadConstraints[0].topologyKey: Required value",
                "spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: \"x\"",
                "spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: must be greater than zero",
                "spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: can only use",
                "spec.topologySpreadConstraints[0].nodeTaintsPolicy: Unsupported value: \"y\"",
            ],
        ),
        (
            "/spec/topologySpreadConstraints",
            json!([{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}, {"maxSkew": 2, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]),
            &[
                "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: \"{z, DoNotSchedule}\"",
            ],
        ),
    ]);
}

#[test]
fn pod_security_and_host_namespaces() {
    check(&[
        (
            "/spec/securityContext",
            json!({"fsGroup": -1, "supplementalGroups": [1, -2], "fsGroupChangePolicy": "x", "supplementalGroupsPolicy": "y", "seLinuxChangePolicy": "MountOption"}),
            &[
                "spec.securityContext.fsGroup: Invalid value: -1",
                "spec.securityContext.supplementalGroups[1]: Invalid value: -2",
                "spec.securityContext.fsGroupChangePolicy: Unsupported value: \"x\"",
                "spec.securityContext.supplementalGroupsPolicy: Unsupported value: \"y\"",
                "spec.securityContext.seLinuxChangePolicy: Unsupported value: \"MountOption\"",
            ],
        ),
        (
            "/spec/securityContext/sysctls",
            json!([{"name": "", "value": ""}, {"name": "A", "value": ""}, {"name": "a", "value": ""}, {"name": "a", "value": ""}]),
            &[
                "spec.securityContext.sysctls[0].name: Required value",
                "spec.securityContext.sysctls[1].name: Invalid value: \"A\"",
                "spec.securityContext.sysctls[3].name: Duplicate value: \"a\"",
            ],
        ),
        (
            "/spec/hostUsers",
            json!(false),
            &["spec.containers[0].volumeDevices: Forbidden: when `hostUsers` is false"],
        ),
        (
            "/spec/os",
            json!({"name": "plan9"}),
            &["spec.os: Unsupported value: \"plan9\": supported values: \"linux\", \"windows\""],
        ),
        ("/spec/os", json!({"name": ""}), &["spec.os.name: Required value"]),
        (
            "/spec/os",
            json!({"name": "windows"}),
            &[
                "spec.securityContext.sysctls: Forbidden: cannot be set for a windows pod",
                "spec.securityContext.runAsUser: Forbidden",
                "spec.containers[0].securityContext.seccompProfile: Forbidden",
                "spec.containers[0].securityContext.capabilities: Forbidden",
            ],
        ),
        (
            "/spec/securityContext/windowsOptions",
            json!({"hostProcess": true}),
            &["spec.hostNetwork: Invalid value: false: hostNetwork must be true"],
        ),
    ]);
    let errors = errors_with(&[
        ("/spec/hostNetwork", json!(true)),
        ("/spec/hostUsers", json!(false)),
        ("/spec/containers/0/volumeDevices", json!([])),
    ]);
    assert_eq!(
        errors,
        [
            "spec.securityContext.sysctls[0].name: Invalid value: \"net.ipv4.ip_forward\": may not be specified when 'hostNetwork' is true",
            "spec.hostNetwork: Forbidden: when `hostUsers` is false",
        ]
    );
    let linux = [("/spec/os", json!({"name": "linux"})), ("/spec/securityContext/windowsOptions", json!({}))];
    assert_eq!(
        errors_with(&linux),
        ["spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod"]
    );
}
