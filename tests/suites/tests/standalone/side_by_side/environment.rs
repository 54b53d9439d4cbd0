//! Environment, arguments and working directory of containers.

use serde_json::{Value, json};
use testkit::process::eventually;

use crate::Shared;
use crate::node::{Node, SOON};
use crate::spec::{OBEDIENT, containers, shell, with};

pub const ALL: &[(&str, Shared)] = &[
    ("variables_are_expanded", variables),
    ("command_and_arguments_replace_the_images", arguments),
    ("the_working_directory_is_the_one_asked_for", working_directory),
    ("the_hosts_file_and_the_name_are_the_pods", hosts),
    ("variables_come_from_the_pods_fields", fields),
    ("variables_come_from_files_of_a_volume", files),
    ("the_termination_message_may_lie_anywhere", termination_message),
];

fn output(node: &Node, name: &str, container: Value) -> Vec<String> {
    output_of(node, name, container, json!({}))
}

/// The output of the container `main` of a pod that runs to its end, with these fields in its spec.
pub fn output_of(node: &Node, name: &str, container: Value, spec: Value) -> Vec<String> {
    let spec = with(containers([container]), with(spec, json!({"restartPolicy": "Never"})));
    let file = node.pod(name, spec);
    let pod = file.phase("Succeeded");
    file.log(&pod, "main", 0).expect("its log")
}

fn variables(node: &Node) {
    let container = json!({
        "name": "main",
        "env": [
            {"name": "ONE", "value": "1"},
            {"name": "BOTH", "value": "$(ONE)-$(TWO)-$(NONE)"},
            {"name": "TWO", "value": "2"},
            {"name": "THREE", "value": "$(ONE)$(TWO)"},
            {"name": "ESCAPED", "value": "$$(ONE) $(ONE"},
            {"name": "EMPTY"},
        ],
        "command": ["sh", "-c", "for a in \"$@\"; do echo \"$a\"; done; env | sort", "$(ONE)"],
        "args": ["$(THREE)", "$$(ONE)", "$(NONE)", "a b", "x$(ONE)y$(TWO)z"],
    });
    let said = output(node, "env", container);
    assert_eq!(said[..5], ["12", "$(ONE)", "$(NONE)", "a b", "x1y2z"]);
    for line in ["BOTH=1-$(TWO)-$(NONE)", "EMPTY=", "ESCAPED=$(ONE) $(ONE", "ONE=1", "THREE=12", "TWO=2"] {
        assert!(said.iter().any(|said| said == line), "{line} in {said:?}");
    }
}

fn arguments(node: &Node) {
    // The image has the command `sh` and no entry point: arguments alone replace it.
    let said = output(node, "args", json!({"name": "main", "args": ["echo", "from", "the arguments"]}));
    assert_eq!(said, ["from the arguments"]);
    let said = output(node, "command", json!({"name": "main", "command": ["echo", "only"]}));
    assert_eq!(said, ["only"]);
}

fn working_directory(node: &Node) {
    let said = output(node, "dir", with(shell("main", "pwd"), json!({"workingDir": "/www"})));
    assert_eq!(said, ["/www"]);
}

fn hosts(node: &Node) {
    let file =
        node.pod("hosts", containers([shell("main", &format!("hostname; cat /etc/hosts; {OBEDIENT}"))]));
    let pod = file.ready();
    let hostname: String = pod.name().chars().take(63).collect();
    let line = format!("{}\t{hostname}", pod.ip());
    eventually("the pod's name and address", SOON, || {
        let log = file.log(&pod, "main", 0)?;
        let named = log.first() == Some(&hostname) && log.contains(&line);
        if named { Ok(()) } else { Err(format!("{log:?}")) }
    });
}

fn fields(node: &Node) {
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let amount = |name: &str, resource: &str| {
        let source = json!({"resource": resource, "divisor": "1Mi"});
        json!({"name": name, "valueFrom": {"resourceFieldRef": source}})
    };
    let env = json!([
        field("NAME", "metadata.name"),
        field("NAMESPACE", "metadata.namespace"),
        field("UID", "metadata.uid"),
        field("LABEL", "metadata.labels['app']"),
        field("NODE", "spec.nodeName"),
        field("HOST_IP", "status.hostIP"),
        field("POD_IP", "status.podIP"),
        field("POD_IPS", "status.podIPs"),
        amount("REQUEST", "requests.memory"),
        amount("LIMIT", "limits.memory"),
        {"name": "JOINED", "value": "$(NAMESPACE)/$(NAME)"},
    ]);
    let main = with(shell("main", &format!("env | sort; cat /etc/hosts; {OBEDIENT}")), json!({"env": env}));
    let file = node.pod("fields", containers([main]));
    let pod = file.ready();
    let last = format!("{}\t", pod.ip());
    let log = eventually("all that it writes", SOON, || {
        let log = file.log(&pod, "main", 0)?;
        if log.iter().any(|line| line.starts_with(&last)) { Ok(log) } else { Err(format!("{log:?}")) }
    });
    let value = |name: &str| {
        let found = log.iter().find_map(|line| line.strip_prefix(&format!("{name}=")));
        found.unwrap_or_else(|| panic!("{name} in {log:?}"))
    };
    assert_eq!((value("NAME"), value("NAMESPACE")), (pod.name(), pod.namespace()));
    assert_eq!(value("UID"), pod.uid());
    assert_eq!(value("LABEL"), file.base);
    assert_eq!(value("NODE"), pod.text("/spec/nodeName"));
    assert_eq!(value("HOST_IP"), pod.text("/status/hostIP"));
    assert_eq!((value("POD_IP"), value("POD_IPS")), (pod.ip(), pod.ip()));
    assert_eq!(value("JOINED"), format!("{}/{}", pod.namespace(), pod.name()));
    assert_eq!(value("REQUEST"), "0");
    assert!(value("LIMIT").parse::<u64>().is_ok(), "{}", value("LIMIT"));
}

fn files(node: &Node) {
    let write = "printf \"# made at the start\\nGREETING='hello\\nworld' # both\\nEMPTY=''\\n\" >/vars/env";
    let mounts = json!([{"name": "vars", "mountPath": "/vars"}]);
    let init = with(shell("init", write), json!({"volumeMounts": mounts}));
    let from = |name: &str, key: &str, path: &str, optional: bool| {
        let source = json!({"volumeName": "vars", "path": path, "key": key, "optional": optional});
        json!({"name": name, "valueFrom": {"fileKeyRef": source}})
    };
    let main = |name: &str, env: Value| {
        with(shell(name, &format!("echo \"$A\" \"${{B-unset}}\"; {OBEDIENT}")), json!({"env": env}))
    };
    let list = [
        main("main", json!([from("A", "GREETING", "env", false), from("B", "NONE", "env", true)])),
        main("no-key", json!([from("A", "NONE", "env", false)])),
        main("no-file", json!([from("A", "GREETING", "none", false)])),
    ];
    let spec = with(
        containers(list),
        json!({"initContainers": [init], "volumes": [{"name": "vars", "emptyDir": {}}]}),
    );
    let file = node.pod("env-files", spec);
    let pod = file.wait("one runs and two cannot", SOON, |pod| {
        let refused = |name| pod.waiting(name).0 == "CreateContainerConfigError";
        pod.is_running("main") && refused("no-key") && refused("no-file")
    });
    let volume = node.root().join("pods").join(pod.uid()).join("volumes/kubernetes.io~empty-dir/vars/env");
    let missing =
        format!("environment variable key \"NONE\" not found in file {:?}", volume.display().to_string());
    assert_eq!(pod.waiting("no-key").1, missing);
    assert_eq!(pod.waiting("no-file").1, "couldn't parse env file");
    eventually("the value from the file", SOON, || {
        let log = file.log(&pod, "main", 0)?;
        if log == ["hello", "world unset"] { Ok(()) } else { Err(format!("{log:?}")) }
    });
}

fn termination_message(node: &Node) {
    let main = with(
        shell("main", "echo -n because >/why/it/ended; exit 3"),
        json!({"terminationMessagePath": "/why/it/ended"}),
    );
    let file = node.pod("message", with(containers([main]), json!({"restartPolicy": "Never"})));
    let pod = file.phase("Failed");
    assert_eq!(pod.terminated("main")["message"], "because", "{}", pod.status());
}
