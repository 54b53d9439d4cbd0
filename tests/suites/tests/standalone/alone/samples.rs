//! The sample files that a user is told to start a kubelet with: `config/kubelet.yaml` with `config/understudy.yaml`, and the
//! command line of the unit in `config/systemd`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use crate::Alone;
use crate::environment::Environment;
use crate::node::{Node, Options};

pub const ALL: &[(&str, Alone)] = &[
    ("the_sample_configuration_starts_a_kubelet", configuration),
    ("the_units_command_line_starts_a_kubelet", unit),
];

fn sample(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config")).join(name)
}

/// Runs the kubelet where what the samples keep below `/var/lib` and `/var/log` is its own: the runtime sees none of it, so
/// no pod is started. The kernel's settings that a kubelet makes are its own, too.
fn within(node: &mut Node, script: &str) {
    let settings = "for file in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
                    kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do\n\
                    mkdir -p \"/var/lib/sys/${file%/*}\"; echo 7 >\"/var/lib/sys/$file\"\n\
                    mount --bind \"/var/lib/sys/$file\" \"/proc/sys/$file\"\ndone";
    node.after(&format!(
        "mount -t tmpfs tmpfs /var/lib\nmount -t tmpfs tmpfs /var/log\n{settings}\n{script}"
    ));
}

/// The files unchanged; what depends on the machine, as ports and the runtime's socket, is in a drop-in beside them.
fn configuration(environment: &Arc<Environment>) {
    let mut node = Node::prepare(environment, "samples", Options::default());
    let drop_ins = node.notes("drop-ins");
    std::fs::create_dir(&drop_ins).expect("a directory in the node's own");
    std::fs::copy(node.notes("kubelet.yaml"), drop_ins.join("90-machine.conf"))
        .expect("the node's own settings");
    let arguments = [
        ("--config", sample("kubelet.yaml")),
        ("--understudy-config", sample("understudy.yaml")),
        ("--config-dir", drop_ins),
    ];
    let given = std::mem::take(&mut node.command_mut().arguments);
    // The root directory and that of certificates stay as they are.
    let kept = given.into_iter().skip(4);
    let samples = arguments.into_iter().flat_map(|(flag, path)| [OsString::from(flag), path.into()]);
    node.command_mut().arguments = samples.chain(kept).collect();
    within(&mut node, "");
    let node = node.started().expect("the samples start a kubelet");
    node.assert_alive();
}

fn unit(environment: &Arc<Environment>) {
    let mut node = Node::prepare(environment, "unit", Options::default());
    let unit = std::fs::read_to_string(sample("systemd/kubelet.service")).expect("the unit");
    let command =
        unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("the unit starts something");
    let words: Vec<&str> = command.split(' ').collect();
    let ["/usr/bin/kubelet", arguments @ .., "$KUBELET_EXTRA_ARGS"] = words.as_slice() else {
        panic!("another command: {command}")
    };
    let configuration = node.notes("kubelet.yaml").display().to_string();
    node.command_mut().arguments = arguments.iter().map(OsString::from).collect();
    within(&mut node, &format!("mkdir /var/lib/kubelet; cp '{configuration}' /var/lib/kubelet/config.yaml"));
    let node = node.started().expect("the unit's command starts a kubelet");
    node.assert_alive();
}
