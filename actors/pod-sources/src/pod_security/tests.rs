//! Each check, at each level that has it, before and after each version in which it changed.

use serde_json::{Value, json};

use super::*;

/// A pod that meets the newest restricted standard.
fn hardened() -> Value {
    json!({
        "metadata": {"name": "web", "annotations": {}},
        "spec": {
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "initContainers": [{"name": "init", "securityContext": contained()}],
            "containers": [{"name": "main", "securityContext": contained()}],
        },
    })
}

fn contained() -> Value {
    json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
}

/// The hardened pod with these values at these places.
fn with(changes: &[(&str, Value)]) -> Value {
    let mut pod = hardened();
    for (place, value) in changes {
        let (parent, field) = place.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    pod
}

fn standard(text: &str) -> PodSecurity {
    let (level, version) = text.split_once(':').unwrap();
    PodSecurity {
        level: SecurityLevel::named(level).unwrap(),
        version: StandardVersion::parse(version).unwrap(),
    }
}

/// What the pod violates, without the first words.
fn violates(pod: &Value, of: &str) -> Option<String> {
    let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
    let told = standard(of).violation(&pod)?;
    let begin = format!("violates PodSecurity \"{of}\": ");
    Some(told.strip_prefix(&begin).unwrap_or_else(|| panic!("{told}")).to_owned())
}

const MAIN: &str = "/spec/containers/0/securityContext";
const INIT: &str = "/spec/initContainers/0/securityContext";

/// A field of the main container's security context.
fn in_main(field: &str) -> String {
    format!("{MAIN}/{field}")
}

#[track_caller]
fn table(rows: &[(&Value, &str, Option<&str>)]) {
    for (pod, of, expected) in rows {
        assert_eq!(violates(pod, of).as_deref(), *expected, "{of}");
    }
}

#[test]
fn a_hardened_pod_meets_every_standard_and_a_plain_one_the_baseline() {
    for minor in 0..40 {
        for level in ["privileged", "baseline", "restricted"] {
            assert_eq!(violates(&hardened(), &format!("{level}:v1.{minor}")), None, "{level} {minor}");
        }
    }
    let plain = json!({"metadata": {}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
    table(&[
        (&plain, "privileged:latest", None),
        (&plain, "baseline:latest", None),
        (
            &plain,
            "restricted:latest",
            Some(
                "allowPrivilegeEscalation != false (containers \"a\", \"b\" must set \
                 securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (containers \"a\", \"b\" must set \
                 securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or containers \"a\", \"b\" must set \
                 securityContext.runAsNonRoot=true), seccompProfile (pod or containers \"a\", \"b\" must set \
                 securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
            ),
        ),
        (
            &plain,
            "restricted:v1.0",
            Some(
                "runAsNonRoot != true (pod or containers \"a\", \"b\" must set securityContext.runAsNonRoot=true)",
            ),
        ),
    ]);
}

#[test]
fn versions_and_levels_are_read_as_upstream_reads_them() {
    for (text, expected) in [
        ("latest", Some(StandardVersion::Latest)),
        ("v1.0", Some(StandardVersion::Minor(0))),
        ("v1.36", Some(StandardVersion::Minor(36))),
        ("v1.036", None),
        ("v1.", None),
        ("v1.+3", None),
        ("v2.0", None),
        ("1.3", None),
        ("", None),
    ] {
        assert_eq!(StandardVersion::parse(text), expected, "{text}");
    }
    assert_eq!(SecurityLevel::named("Baseline"), None);
    assert_eq!(standard("restricted:v1.7").to_string(), "restricted:v1.7");
    assert_eq!(PodSecurity::default().to_string(), "privileged:latest");
    let baseline: Vec<&str> =
        CHECKS.iter().filter(|check| check.level == SecurityLevel::Baseline).map(|check| check.id).collect();
    let restricted: Vec<&str> = CHECKS[baseline.len()..].iter().map(|check| check.id).collect();
    assert!(baseline.is_sorted() && restricted.is_sorted(), "{baseline:?} {restricted:?}");
    for check in CHECKS {
        assert!(check.versions.is_sorted_by_key(|(minor, ..)| *minor), "{}", check.id);
    }
}

#[test]
fn the_hosts_namespaces_ports_and_paths_are_not_for_the_baseline() {
    let shared = with(&[("/spec/hostNetwork", json!(true)), ("/spec/hostIPC", json!(true))]);
    let pid = with(&[("/spec/hostPID", json!(true))]);
    let path = with(&[("/spec/volumes", json!([{"name": "etc", "hostPath": {"path": "/etc"}}]))]);
    let ports = with(&[
        ("/spec/containers/0/ports", json!([{"containerPort": 1, "hostPort": 80}, {"containerPort": 2}])),
        ("/spec/initContainers/0/ports", json!([{"containerPort": 1, "hostPort": 443}])),
    ]);
    table(&[
        (&shared, "baseline:v1.0", Some("host namespaces (hostNetwork=true, hostIPC=true)")),
        (&pid, "restricted:latest", Some("host namespaces (hostPID=true)")),
        (&pid, "privileged:latest", None),
        (&path, "baseline:latest", Some("hostPath volumes (volume \"etc\")")),
        (
            &path,
            "restricted:latest",
            Some("restricted volume types (volume \"etc\" uses restricted volume type \"hostPath\")"),
        ),
        (&ports, "baseline:v1.0", Some("hostPort (containers \"init\", \"main\" use hostPorts 443, 80)")),
    ]);
}

#[test]
fn hosts_of_probes_and_hooks_are_forbidden_since_1_34() {
    let pod = with(&[
        (
            "/spec/containers/0/livenessProbe",
            json!({"httpGet": {"port": 80, "host": "10.0.0.1"}, "tcpSocket": {"port": 1, "host": "a"}}),
        ),
        ("/spec/containers/0/readinessProbe", json!({"httpGet": {"port": 80, "host": ""}})),
        (
            "/spec/initContainers/0/lifecycle",
            json!({"preStop": {"httpGet": {"port": 80, "host": "10.0.0.1"}}}),
        ),
    ]);
    let told = "probe or lifecycle host (containers \"init\", \"main\" use probe or lifecycle hosts \"10.0.0.1\", \"a\")";
    let one = with(&[("/spec/containers/0/startupProbe", json!({"tcpSocket": {"port": 1, "host": "b"}}))]);
    let told_of_one = "probe or lifecycle host (container \"main\" uses probe or lifecycle host \"b\")";
    table(&[
        (&pod, "baseline:v1.33", None),
        (&pod, "baseline:v1.34", Some(told)),
        (&pod, "restricted:latest", Some(told)),
        (&one, "baseline:latest", Some(told_of_one)),
    ]);
}

#[test]
fn privilege_and_capabilities_have_bounds() {
    let privileged = with(&[(&in_main("privileged"), json!(true))]);
    let told = "privileged (container \"main\" must not set securityContext.privileged=true)";
    let add =
        |added: Value, drop: Value| with(&[(&in_main("capabilities"), json!({"add": added, "drop": drop}))]);
    let raw = add(json!(["NET_RAW", "CHOWN"]), json!(["ALL"]));
    let default = add(json!(["CHOWN", "NET_BIND_SERVICE"]), json!([]));
    let non_default = "non-default capabilities (container \"main\" must not include \"NET_RAW\" in \
                       securityContext.capabilities.add)";
    let unrestricted = "unrestricted capabilities (container \"main\" must not include \"CHOWN\", \"NET_RAW\" in \
                        securityContext.capabilities.add)";
    let both = "unrestricted capabilities (container \"main\" must set securityContext.capabilities.drop=[\"ALL\"]; container \
                \"main\" must not include \"CHOWN\" in securityContext.capabilities.add)";
    table(&[
        (&privileged, "baseline:v1.0", Some(told)),
        (&privileged, "privileged:v1.0", None),
        (&raw, "baseline:latest", Some(non_default)),
        (&raw, "restricted:v1.21", Some(non_default)),
        (&raw, "restricted:v1.22", Some(unrestricted)),
        (&default, "baseline:latest", None),
        (&default, "restricted:v1.21", None),
        (&default, "restricted:latest", Some(both)),
    ]);
}

#[test]
fn escalation_is_forbidden_since_1_8_but_on_windows_since_1_25() {
    let open = with(&[(INIT, json!({"capabilities": {"drop": ["ALL"]}}))]);
    let told = "allowPrivilegeEscalation != false (container \"init\" must set \
                securityContext.allowPrivilegeEscalation=false)";
    let windows = with(&[
        ("/spec/os", json!({"name": "windows"})),
        (INIT, json!({})),
        (MAIN, json!({})),
        ("/spec/securityContext", json!({"runAsNonRoot": true})),
    ]);
    let on_windows = violates(&windows, "restricted:v1.24").unwrap();
    table(&[
        (&open, "baseline:latest", None),
        (&open, "restricted:v1.7", None),
        (&open, "restricted:v1.8", Some(told)),
        (&open, "restricted:latest", Some(told)),
        (&windows, "restricted:v1.25", None),
        (&windows, "restricted:latest", None),
    ]);
    for word in ["allowPrivilegeEscalation", "unrestricted capabilities", "seccompProfile"] {
        assert!(on_windows.contains(word), "{word}: {on_windows}");
    }
}

#[test]
fn masks_of_proc_stay_but_in_a_user_namespace_since_1_35() {
    let unmasked = with(&[(&in_main("procMount"), json!("Unmasked"))]);
    let of_its_own = with(&[(&in_main("procMount"), json!("Unmasked")), ("/spec/hostUsers", json!(false))]);
    let told = "procMount (container \"main\" must not set securityContext.procMount to \"Unmasked\")";
    table(&[
        (&unmasked, "baseline:v1.0", Some(told)),
        (&unmasked, "baseline:latest", Some(told)),
        (&of_its_own, "baseline:v1.34", Some(told)),
        (&of_its_own, "baseline:v1.35", None),
        (&of_its_own, "restricted:v1.34", Some(told)),
        (&of_its_own, "restricted:v1.35", Some(told)),
        (&with(&[(&in_main("procMount"), json!("Default"))]), "restricted:latest", None),
    ]);
}

#[test]
fn types_of_selinux_are_few_and_one_more_since_1_31() {
    let options = |options: Value| with(&[(&in_main("seLinuxOptions"), options)]);
    let engine = options(json!({"type": "container_engine_t"}));
    let told = "seLinuxOptions (container \"main\" set forbidden securityContext.seLinuxOptions: type \
                \"container_engine_t\")";
    let all = with(&[
        ("/spec/securityContext/seLinuxOptions", json!({"type": "spc_t", "role": "r"})),
        (&in_main("seLinuxOptions"), json!({"type": "other_t", "user": "u", "level": "s0"})),
    ]);
    let told_of_all = "seLinuxOptions (pod and container \"main\" set forbidden securityContext.seLinuxOptions: types \
                       \"other_t\", \"spc_t\"; user may not be set; role may not be set)";
    table(&[
        (&engine, "baseline:v1.30", Some(told)),
        (&engine, "baseline:v1.31", None),
        (&all, "baseline:latest", Some(told_of_all)),
        (&options(json!({"type": "container_kvm_t", "level": "s0"})), "restricted:v1.0", None),
        (&options(json!({})), "baseline:latest", None),
    ]);
}

#[test]
fn seccomp_is_judged_by_annotations_and_since_1_19_by_fields() {
    let key = "container.seccomp.security.alpha.kubernetes.io/main";
    let annotated = with(&[(
        "/metadata/annotations",
        json!({"seccomp.security.alpha.kubernetes.io/pod": "unconfined", key: "localhost/x", "other": "unconfined"}),
    )]);
    let by_annotation =
        "seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod=\"unconfined\")";
    let unconfined = with(&[
        ("/spec/securityContext/seccompProfile", json!({"type": "Unconfined"})),
        (&in_main("seccompProfile"), json!({"type": "Unconfined"})),
    ]);
    let by_field = "seccompProfile (pod and container \"main\" must not set securityContext.seccompProfile.type to \
                    \"Unconfined\")";
    let unset = with(&[
        ("/spec/securityContext", json!({"runAsNonRoot": true})),
        (&in_main("seccompProfile"), json!({"type": "Localhost", "localhostProfile": "x"})),
    ]);
    let implicit = "seccompProfile (pod or container \"init\" must set securityContext.seccompProfile.type to \
                    \"RuntimeDefault\" or \"Localhost\")";
    table(&[
        (&annotated, "baseline:v1.18", Some(by_annotation)),
        (&annotated, "baseline:v1.19", None),
        (&unconfined, "baseline:v1.18", None),
        (&unconfined, "baseline:v1.19", Some(by_field)),
        (&unconfined, "restricted:v1.19", Some(by_field)),
        (&unset, "baseline:latest", None),
        (&unset, "restricted:v1.18", None),
        (&unset, "restricted:v1.19", Some(implicit)),
        (&unset, "restricted:latest", Some(implicit)),
    ]);
}

#[test]
fn app_armor_is_judged_by_fields_and_annotations() {
    let prefix = "container.apparmor.security.beta.kubernetes.io";
    let unconfined = with(&[
        (
            "/metadata/annotations",
            json!({format!("{prefix}/main"): "unconfined", format!("{prefix}/init"): "localhost/x"}),
        ),
        ("/spec/securityContext/appArmorProfile", json!({"type": "Unconfined"})),
        (&in_main("appArmorProfile"), json!({"type": "Localhost", "localhostProfile": "x"})),
    ]);
    let told = format!(
        "forbidden AppArmor profiles (pod and annotation must not set AppArmor profile type to \"Unconfined\", \
         \"{prefix}/main=\"unconfined\"\")"
    );
    let one = with(&[(&in_main("appArmorProfile"), json!({"type": "Unconfined"}))]);
    let told_of_one = "forbidden AppArmor profile (container \"main\" must not set AppArmor profile type to \"Unconfined\")";
    table(&[
        (&unconfined, "baseline:v1.0", Some(&told)),
        (&unconfined, "privileged:latest", None),
        (&one, "restricted:latest", Some(told_of_one)),
    ]);
}

#[test]
fn settings_of_the_kernel_are_those_of_the_version() {
    for (name, first) in [
        ("kernel.shm_rmid_forced", 0),
        ("net.ipv4.ip_unprivileged_port_start", 0),
        ("net.ipv4.ip_local_reserved_ports", 27),
        ("net.ipv4.tcp_keepalive_time", 29),
        ("net.ipv4.tcp_keepalive_probes", 29),
        ("net.ipv4.tcp_rmem", 32),
        ("net.ipv4.tcp_wmem", 32),
        ("kernel.msgmax", 99),
    ] {
        let pod = with(&[("/spec/securityContext/sysctls", json!([{"name": name, "value": "1"}]))]);
        for minor in 0..40 {
            let told = violates(&pod, &format!("baseline:v1.{minor}"));
            let expected = (minor < first).then(|| format!("forbidden sysctls ({name})"));
            assert_eq!(told, expected, "{minor}");
        }
    }
}

#[test]
fn processes_of_a_windows_host_are_forbidden() {
    let pod = with(&[
        ("/spec/securityContext/windowsOptions", json!({"hostProcess": true})),
        (&in_main("windowsOptions"), json!({"hostProcess": true})),
        ("/spec/initContainers/0/securityContext/windowsOptions", json!({"hostProcess": false})),
    ]);
    let told = "hostProcess (pod and container \"main\" must not set securityContext.windowsOptions.hostProcess=true)";
    table(&[(&pod, "baseline:v1.0", Some(told)), (&pod, "privileged:latest", None)]);
}

#[test]
fn kinds_of_volumes_are_restricted() {
    let pod = with(&[(
        "/spec/volumes",
        json!([
            {"name": "a", "nfs": {"server": "s", "path": "/"}}, {"name": "b", "emptyDir": {}},
            {"name": "c", "flexVolume": {"driver": "x/y"}}, {"name": "d", "image": {"reference": "r"}},
            {"name": "e", "configMap": {}}, {"name": "f", "nfs": {"server": "s", "path": "/"}}, {"name": "g"},
        ]),
    )]);
    let told = "restricted volume types (volumes \"a\", \"c\", \"f\", \"g\" use restricted volume types \"flexVolume\", \
                \"nfs\", \"unknown\")";
    table(&[(&pod, "baseline:latest", None), (&pod, "restricted:v1.0", Some(told))]);
}

#[test]
fn root_is_restricted_but_in_a_user_namespace_since_1_35() {
    let root = with(&[
        ("/spec/securityContext/runAsUser", json!(0)),
        (&in_main("runAsUser"), json!(0)),
        (&in_main("runAsNonRoot"), json!(false)),
    ]);
    let non_root =
        "runAsNonRoot != true (container \"main\" must not set securityContext.runAsNonRoot=false)";
    let user = "runAsUser=0 (pod and container \"main\" must not set runAsUser=0)";
    let both = format!("{non_root}, {user}");
    let of_its_own = with(&[
        ("/spec/hostUsers", json!(false)),
        (&in_main("runAsUser"), json!(0)),
        (&in_main("runAsNonRoot"), json!(false)),
    ]);
    let told = format!("{non_root}, runAsUser=0 (container \"main\" must not set runAsUser=0)");
    let by_pod = with(&[("/spec/securityContext/runAsNonRoot", json!(false))]);
    let told_of_pod = "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)";
    table(&[
        (&root, "baseline:latest", None),
        (&root, "restricted:v1.22", Some(non_root)),
        (&root, "restricted:v1.23", Some(&both)),
        (&root, "restricted:latest", Some(&both)),
        (&of_its_own, "restricted:v1.34", Some(&told)),
        (&of_its_own, "restricted:v1.35", None),
        (&by_pod, "restricted:latest", Some(told_of_pod)),
    ]);
}
