//! Leftovers of instances that have ended.

use std::fs;
use std::sync::Arc;

use serde_json::json;
use testkit::process::eventually;

use crate::Alone;
use crate::cri::UID_LABEL;
use crate::environment::Environment;
use crate::node::{LATER, Node, Options, SOON};
use crate::spec::{containers, shell, with};

pub const ALL: &[(&str, Alone)] = &[
    ("old_instances_go_with_their_logs", old_instances),
    ("logs_of_a_pod_past_its_deadline_stay", past_its_deadline),
];

fn past_its_deadline(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "late", Options::default());
    let script = "echo began; while :; do sleep 0.1; done";
    // On a busy machine a container may need several seconds to begin.
    let spec = with(
        containers([shell("main", script)]),
        json!({"activeDeadlineSeconds": 30, "terminationGracePeriodSeconds": 1}),
    );
    let file = node.pod("late", spec);
    let pod = file.phase("Failed");
    assert_eq!(pod.text("/status/reason"), "DeadlineExceeded");
    assert_eq!(file.log(&pod, "main", 0), Ok(vec!["began".to_owned()]));
    // A directory without a pod is removed by the next collection, which comes once a minute.
    let orphan = node.logs().join("nowhere_nobody_00000000-0000-0000-0000-000000000000");
    fs::create_dir(&orphan).expect("a directory of a pod that is gone");
    eventually("the garbage is collected", LATER, || match orphan.exists() {
        false => Ok(()),
        true => Err("it is there".to_owned()),
    });
    assert_eq!(file.log(&pod, "main", 0), Ok(vec!["began".to_owned()]));
    assert_eq!(node.cri.containers(UID_LABEL, pod.uid()).len(), 1);
    file.remove();
    file.gone(&pod);
    assert!(!file.log_dir(&pod).exists());
}

fn old_instances(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "garbage", Options::default());
    let script = "echo began; until rm /gate/end 2>/dev/null; do sleep 0.1; done; exit 1";
    let file = node.pod("ends", with(containers([shell("main", script)]), json!({"gate": true})));
    file.ready();
    for restarts in 1..=3 {
        file.open_gate("end");
        file.wait("restarted", LATER, |pod| pod.restarts("main") == restarts && pod.is_running("main"));
    }
    let pod = file.look().expect("it is listed");
    eventually("one dead instance is kept, with its log and link", SOON, || {
        let mut attempts: Vec<u32> = node
            .cri
            .containers(UID_LABEL, pod.uid())
            .into_iter()
            .filter_map(|container| Some(container.metadata?.attempt))
            .collect();
        attempts.sort_unstable();
        let names = |dir: std::path::PathBuf| -> Vec<String> {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            let mut names: Vec<_> =
                entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            names
        };
        let (logs, links) = (names(file.log_dir(&pod).join("main")), names(node.links()));
        if attempts == [2, 3] && logs == ["2.log", "3.log"] && links.len() == 2 {
            Ok(())
        } else {
            Err(format!("containers {attempts:?}, logs {logs:?}, links {links:?}"))
        }
    });
    file.remove();
    file.gone(&pod);
    eventually("no link is left", SOON, || {
        let left = fs::read_dir(node.links()).into_iter().flatten().count();
        if left == 0 { Ok(()) } else { Err(format!("{left} links")) }
    });
}
