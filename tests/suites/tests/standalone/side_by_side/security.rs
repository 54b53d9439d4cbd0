//! The users and privileges of containers, as their own processes see them.

use std::fs;

use serde_json::{Value, json};

use crate::Shared;
use crate::node::Node;
use crate::pod::PodFile;
use crate::spec::{containers, shell, with};
use crate::view::PodView;

pub const ALL: &[(&str, Shared)] = &[
    ("users_and_groups_are_those_of_the_spec", users),
    ("who_must_not_be_root_is_refused_as_root", non_root),
    ("a_read_only_root_takes_no_files", read_only_root),
    ("capabilities_are_dropped_and_added", capabilities),
    ("forbidden_escalation_sets_no_new_privs", no_new_privs),
    ("seccomp_profiles_are_in_force", seccomp),
    ("a_profile_that_is_not_there_keeps_the_container_from_starting", no_profile),
    ("a_privileged_container_is_not_confined", privileged),
    ("sysctls_are_the_pods", sysctls),
];

/// Prints the kernel's status of a process.
const STATUS: &str = "cat /proc/self/status";
const CAP_NET_BIND_SERVICE: u64 = 1 << 10;
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// A container with a security context.
fn confined(name: &str, script: &str, context: Value) -> Value {
    with(shell(name, script), json!({"securityContext": context}))
}

/// A pod that runs to its end.
fn run<'a>(
    node: &'a Node,
    name: &str,
    list: impl Into<Vec<Value>>,
    context: Value,
) -> (PodFile<'a>, PodView) {
    let spec = json!({"restartPolicy": "Never", "securityContext": context});
    let file = node.pod(name, with(containers(list), spec));
    let pod = file.phase("Succeeded");
    (file, pod)
}

/// The words behind `field:` in the process status that a container has printed.
fn status(file: &PodFile<'_>, pod: &PodView, container: &str, field: &str) -> Vec<String> {
    let log = file.log(pod, container, 0).expect("its log");
    let line = log.iter().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let line = line.unwrap_or_else(|| panic!("no {field} of {container} in {log:?}"));
    line.split_whitespace().map(str::to_owned).collect()
}

fn effective_capabilities(file: &PodFile<'_>, pod: &PodView, container: &str) -> u64 {
    let field = status(file, pod, container, "CapEff");
    u64::from_str_radix(&field[0], 16).expect("a mask")
}

fn users(node: &Node) {
    let of_pod = json!({"runAsUser": 1234, "runAsGroup": 2345, "supplementalGroups": [3456, 4567]});
    let list = [
        confined("pod", STATUS, json!({})),
        confined("own", STATUS, json!({"runAsUser": 5678, "runAsGroup": 6789})),
        confined("root", STATUS, json!({"runAsUser": 0, "runAsGroup": 0})),
    ];
    let (file, pod) = run(node, "users", list, of_pod);
    for (name, uid, gid) in [("pod", "1234", "2345"), ("own", "5678", "6789"), ("root", "0", "0")] {
        assert_eq!(status(&file, &pod, name, "Uid"), [uid; 4]);
        assert_eq!(status(&file, &pod, name, "Gid"), [gid; 4]);
        let groups = status(&file, &pod, name, "Groups");
        assert!(["3456", "4567"].iter().all(|group| groups.iter().any(|one| one == group)), "{groups:?}");
    }
    let (file, pod) = run(node, "image-user", [confined("main", STATUS, json!({}))], json!({}));
    assert_eq!(status(&file, &pod, "main", "Uid"), ["0"; 4], "the image names nobody");
}

fn non_root(node: &Node) {
    let list = [
        confined("main", STATUS, json!({})),
        confined("zero", STATUS, json!({"runAsUser": 0})),
        confined("other", STATUS, json!({"runAsUser": 7})),
    ];
    let spec =
        with(containers(list), json!({"securityContext": {"runAsNonRoot": true}, "restartPolicy": "Never"}));
    let file = node.pod("non-root", spec);
    let pod = file.wait("refused", crate::node::SOON, |pod| {
        ["main", "zero"].iter().all(|name| pod.waiting(name).0 == "CreateContainerConfigError")
            && !pod.terminated("other").is_null()
    });
    let of = |name: &str| format!("(pod: \"{}\", container: {name})", pod.reference());
    for (name, text) in [
        ("main", "container has runAsNonRoot and image will run as root"),
        ("zero", "container's runAsUser breaks non-root policy"),
    ] {
        let text = format!("{text} {}", of(name));
        assert_eq!(pod.waiting(name).1, text);
        let event = file.event(&pod, "Warning", "Failed", &format!("Error: {text}"));
        assert_eq!(event.field, format!("spec.containers{{{name}}}"));
    }
    assert_eq!(status(&file, &pod, "other", "Uid"), ["7"; 4]);
    assert_eq!((pod.phase(), pod.restarts("main")), ("Pending", 0));
    assert_eq!(file.running(pod.uid()).len(), 0);
}

fn read_only_root(node: &Node) {
    let script = "touch /etc/x 2>&1 || true; touch /data/x && echo written";
    let main = with(
        confined("main", script, json!({"readOnlyRootFilesystem": true})),
        json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}),
    );
    let free = confined("free", "touch /etc/x && echo written", json!({"readOnlyRootFilesystem": false}));
    let spec = with(
        containers([main, free]),
        json!({"restartPolicy": "Never", "volumes": [{"name": "data", "emptyDir": {}}]}),
    );
    let file = node.pod("read-only", spec);
    let pod = file.phase("Succeeded");
    let said = file.log(&pod, "main", 0).expect("its log");
    assert!(said.len() == 2 && said[0].contains("Read-only file system"), "{said:?}");
    assert_eq!(said[1], "written");
    assert_eq!(file.log(&pod, "free", 0).expect("its log"), ["written"]);
}

fn capabilities(node: &Node) {
    let list = [
        confined("usual", STATUS, json!({})),
        confined("none", STATUS, json!({"capabilities": {"drop": ["ALL"]}})),
        confined("one", STATUS, json!({"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}})),
        confined("less", STATUS, json!({"capabilities": {"drop": ["NET_BIND_SERVICE"]}})),
    ];
    let (file, pod) = run(node, "caps", list, json!({}));
    let of = |name: &str| effective_capabilities(&file, &pod, name);
    let usual = of("usual");
    assert_ne!(usual & CAP_NET_BIND_SERVICE, 0, "{usual:x}");
    assert_eq!((of("none"), of("one")), (0, CAP_NET_BIND_SERVICE));
    assert_eq!(of("less"), usual & !CAP_NET_BIND_SERVICE);
}

fn no_new_privs(node: &Node) {
    let list = [
        confined("silent", STATUS, json!({})),
        confined("allowed", STATUS, json!({"allowPrivilegeEscalation": true})),
        confined("forbidden", STATUS, json!({"allowPrivilegeEscalation": false})),
    ];
    let (file, pod) = run(node, "privs", list, json!({}));
    for (name, expected) in [("silent", "0"), ("allowed", "0"), ("forbidden", "1")] {
        assert_eq!(status(&file, &pod, name, "NoNewPrivs"), [expected], "{name}");
    }
}

/// Puts a seccomp profile where the kubelet looks for it.
fn profile(node: &Node, name: &str, profile: &Value) {
    let path = node.root().join("seccomp").join(name);
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory of the node's");
    fs::write(path, profile.to_string()).expect("a file in the node's directory");
}

fn seccomp(node: &Node) {
    let forbidden = json!({"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38});
    let no_directories = json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [forbidden]});
    profile(node, "profiles/no-directories.json", &no_directories);
    let with_profile = |name: &str, profile: Value| {
        let script = format!("{STATUS}; mkdir /tmp-dir 2>&1 && echo made || true");
        confined(name, &script, json!({"seccompProfile": profile}))
    };
    let local = json!({"type": "Localhost", "localhostProfile": "profiles/no-directories.json"});
    let list = [
        confined("pod", STATUS, json!({})),
        with_profile("unconfined", json!({"type": "Unconfined"})),
        with_profile("local", local),
    ];
    let of_pod = json!({"seccompProfile": {"type": "RuntimeDefault"}});
    let (file, pod) = run(node, "seccomp", list, of_pod);
    for (name, mode) in [("pod", "2"), ("unconfined", "0"), ("local", "2")] {
        assert_eq!(status(&file, &pod, name, "Seccomp"), [mode], "{name}");
    }
    let last = |name: &str| file.log(&pod, name, 0).expect("its log").pop().unwrap_or_default();
    assert_eq!(last("unconfined"), "made");
    assert!(last("local").contains("Function not implemented"), "{}", last("local"));
    let (file, pod) = run(node, "no-seccomp", [confined("main", STATUS, json!({}))], json!({}));
    assert_eq!(status(&file, &pod, "main", "Seccomp"), ["0"], "seccompDefault is off");
}

fn no_profile(node: &Node) {
    let missing = json!({"type": "Localhost", "localhostProfile": "no/such.json"});
    let main = confined("main", STATUS, json!({"seccompProfile": missing}));
    let file = node.pod("no-profile", with(containers([main]), json!({"restartPolicy": "Never"})));
    let pod = file.wait("refused", crate::node::SOON, |pod| pod.waiting("main").0 == "CreateContainerError");
    let path = node.root().join("seccomp/no/such.json");
    assert!(pod.waiting("main").1.contains(&path.display().to_string()), "{}", pod.status());
}

fn privileged(node: &Node) {
    let script = format!("{STATUS}; sed 's/^/mount: /' /proc/mounts");
    let list =
        [confined("plain", &script, json!({})), confined("privileged", &script, json!({"privileged": true}))];
    let (file, pod) = run(node, "privileged", list, json!({}));
    let of = |name: &str| effective_capabilities(&file, &pod, name);
    let (plain, privileged) = (of("plain"), of("privileged"));
    assert_eq!(plain & CAP_SYS_ADMIN, 0, "{plain:x}");
    assert_eq!((privileged & plain, privileged & CAP_SYS_ADMIN), (plain, CAP_SYS_ADMIN), "{privileged:x}");
    // Parts of /proc are read-only, by mounts of their own, except in privileged containers.
    let proc_sys = |name: &str| {
        let log = file.log(&pod, name, 0).expect("its log");
        log.iter().any(|line| line.starts_with("mount: ") && line.contains(" /proc/sys proc ro"))
    };
    assert_eq!((proc_sys("plain"), proc_sys("privileged")), (true, false));
}

fn sysctls(node: &Node) {
    let listed = json!([
        {"name": "kernel.shm_rmid_forced", "value": "1"},
        {"name": "net/ipv4/ip_unprivileged_port_start", "value": "81"},
    ]);
    let script = "cd /proc/sys; cat kernel/shm_rmid_forced net/ipv4/ip_unprivileged_port_start";
    let list = [shell("one", script), shell("two", script)];
    let (file, pod) = run(node, "sysctls", list, json!({"sysctls": listed}));
    for name in ["one", "two"] {
        assert_eq!(file.log(&pod, name, 0).expect("its log"), ["1", "81"], "{name}");
    }
}
