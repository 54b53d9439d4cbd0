//! `kubectl logs`.

use serde_json::json;
use testkit::process::eventually;

use crate::Shared;
use crate::member::Member;
use crate::node::{LATER, SOON};
use crate::spec::{OBEDIENT, containers, shell, with};

pub const ALL: &[(&str, Shared)] = &[
    ("logs_of_an_earlier_instance", previous),
    ("logs_whole_in_part_and_by_time", parts),
    ("logs_are_followed_to_the_end", followed),
];

fn parts(member: &Member) {
    let pod = member.pod(
        "spoken",
        containers([shell("main", &format!("echo one; echo two >&2; echo three; {OBEDIENT}"))]),
    );
    pod.ready();
    let kubectl = member.kubectl();
    eventually("both streams are in the log", SOON, || {
        let mut lines: Vec<String> = kubectl.ok(&["logs", pod.name()]).lines().map(str::to_owned).collect();
        lines.sort();
        if lines == ["one", "three", "two"] { Ok(()) } else { Err(format!("{lines:?}")) }
    });
    let lines = |arguments: &[&str]| {
        let said = kubectl.ok(&[&["logs", pod.name()], arguments].concat());
        said.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines(&["--tail=1"]).len(), 1);
    assert_eq!(lines(&["--tail=0"]), Vec::<String>::new());
    assert_eq!(lines(&["--since=1h"]).len(), 3);
    assert_eq!(lines(&["--since-time=2099-01-01T00:00:00Z"]), Vec::<String>::new());
    assert_eq!(lines(&["--limit-bytes=3"]).len(), 1);
    let stamped = lines(&["--timestamps"]);
    assert!(stamped.iter().all(|line| line.starts_with("20") && line.contains('T')), "{stamped:?}");

    let previous = kubectl.run(&["logs", pod.name(), "--previous"]);
    assert_eq!(previous.code, Some(1));
    assert!(previous.err.contains("previous terminated container \"main\" in pod"), "{}", previous.err);
    let other = kubectl.run(&["logs", pod.name(), "-c", "other"]);
    assert!(other.err.contains("container other is not valid for pod"), "{}", other.err);
}

fn followed(member: &Member) {
    let script =
        "echo begun; while ! [ -e /gate/go ]; do sleep 0.1; done; for i in 1 2 3 4 5; do echo line $i; done";
    let spec = with(containers([shell("main", script)]), json!({"restartPolicy": "Never", "gate": true}));
    let pod = member.pod("followed", spec);
    pod.ready();
    let mut following = member.kubectl().start(&["logs", "--follow", pod.name()]);
    following.says("begun");
    pod.file.open_gate("go");
    let said = following.ends(SOON);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "begun\nline 1\nline 2\nline 3\nline 4\nline 5\n"));
    pod.phase("Succeeded");
    let after = member.kubectl().ok(&["logs", "-f", pod.name(), "--tail=2"]);
    assert_eq!(after, "line 4\nline 5\n", "of a container that has ended");
}

fn previous(member: &Member) {
    // The first instance waits for the gate, so that its log is complete when it ends.
    let script = format!(
        "echo instance $(ls /gate | wc -l); touch /gate/run-$(ls /gate | wc -l); [ $(ls /gate | wc -l) = 1 ] && exit 1; {OBEDIENT}"
    );
    let pod = member.pod("again", with(containers([shell("main", &script)]), json!({"gate": true})));
    pod.wait("restarted and running", LATER, |pod| pod.restarts("main") == 1 && pod.is_running("main"));
    let kubectl = member.kubectl();
    assert_eq!(kubectl.ok(&["logs", pod.name(), "--previous"]), "instance 0\n");
    eventually("the second instance has spoken", SOON, || match kubectl.ok(&["logs", pod.name()]) {
        out if out == "instance 1\n" => Ok(()),
        out => Err(out),
    });
}
