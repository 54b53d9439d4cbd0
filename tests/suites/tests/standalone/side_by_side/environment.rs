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
];

/// What the container `main` of a pod that runs to its end has written.
fn output(node: &Node, name: &str, container: Value) -> Vec<String> {
    let file = node.pod(name, with(containers([container]), json!({"restartPolicy": "Never"})));
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
