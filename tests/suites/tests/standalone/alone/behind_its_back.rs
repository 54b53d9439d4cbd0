//! Ends of containers and sandboxes that the kubelet did not cause.

use std::sync::Arc;

use bridge_cri::wire::ContainerState;
use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::Alone;
use crate::environment::Environment;
use crate::node::{LATER, Node, Options, SOON};
use crate::pod::PodFile;
use crate::spec::{containers, sleeper};
use crate::view::PodView;

pub const ALL: &[(&str, Alone)] = &[
    ("a_killed_process_is_seen_without_a_relist", killed),
    ("a_container_removed_behind_its_back_comes_back", container_removed),
    ("a_sandbox_stopped_behind_its_back_is_recreated", sandbox_stopped),
    ("a_sandbox_removed_behind_its_back_is_recreated", sandbox_removed),
];

/// Sends SIGKILL.
fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.try_into().expect("a process ID")).expect("a positive process ID");
    kill_process(pid, Signal::KILL).expect("the process is there");
}

fn nanoseconds(nanoseconds: i64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(nanoseconds)).expect("a time of the runtime")
}

/// With a relist far away, only the notification of the process' end can tell.
fn killed(environment: &Arc<Environment>) {
    let relist = json!({"relist": {"notified": "10m0s"}});
    let node = Node::alone(environment, "killed", Options { understudy: relist, ..Options::default() });
    let file = node.pod("killed", containers([sleeper("main"), sleeper("other")]));
    let before = file.ready();
    kill(node.cri.pid(before.container_id("main")));
    let after = file.wait("restarted", SOON, |pod| pod.restarts("main") == 1 && pod.is_ready());
    let last = &after.container("main")["lastState"]["terminated"];
    assert_eq!((&last["exitCode"], &last["reason"]), (&json!(137), &json!("Error")), "{last}");
    assert_eq!(after.container("other"), before.container("other"));
    // Times of the runtime's clock: when the first instance ended and the next was created.
    let ended = node.cri.status(before.container_id("main")).expect("the last instance is kept");
    assert_eq!(ended.state(), ContainerState::ContainerExited);
    let made = node.cri.status(after.container_id("main")).expect("the new one").created_at;
    let took = nanoseconds(made).duration_since(nanoseconds(ended.finished_at));
    // Upstream's first back-off is ten seconds; a first restart has none.
    assert!(took.as_secs_f64() < 10.0, "the next instance was made {took:#} after the end of the last");
}

fn container_removed(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "container-removed", Options::default());
    let file = node.pod("removed", containers([sleeper("main"), sleeper("other")]));
    let before = file.ready();
    node.cri.remove_container(before.container_id("main"));
    let after = file.wait("a new container runs", SOON, |pod| {
        pod.container_id("main") != before.container_id("main") && pod.is_ready()
    });
    assert!(after.restarts("main") >= 1, "a lost instance counts: {}", after.status());
    // The container's end may have been seen before it was removed.
    let last = &after.container("main")["lastState"]["terminated"];
    assert_eq!(last["exitCode"], 137, "{last}");
    assert_eq!(after.container("other"), before.container("other"));
    assert_eq!(file.running(before.uid()).len(), 2);
}

fn recreated<'a>(node: &'a Node, mischief: impl Fn(&str)) -> (PodFile<'a>, PodView, PodView) {
    let file = node.pod("sandbox", containers([sleeper("main")]));
    let bystander = node.pod("bystander", containers([sleeper("main")]));
    let (before, aside) = (file.ready(), bystander.ready());
    let old = file.sandbox(before.uid()).id;
    mischief(&old);
    let after = file.wait("a new sandbox and container run", LATER, |pod| {
        pod.container_id("main") != before.container_id("main") && pod.is_ready()
    });
    assert_ne!(file.sandbox(before.uid()).id, old);
    assert_eq!(after.uid(), before.uid());
    assert_eq!(file.running(before.uid()).len(), 1);
    assert!(!after.ip().is_empty());
    assert_eq!(bystander.look().expect("it is listed").status(), aside.status());
    (file, before, after)
}

fn sandbox_stopped(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "sandbox-stopped", Options::default());
    let (file, before, after) = recreated(&node, |id| node.cri.stop_sandbox(id));
    let changed = "Pod sandbox changed, it will be killed and re-created.";
    file.event(&before, "Normal", "SandboxChanged", changed);
    assert_eq!(file.sandbox(after.uid()).metadata.expect("metadata").attempt, 1);
    // The end of the container may be seen before that of the sandbox, and a start in vain counts.
    assert!((1..=2).contains(&after.restarts("main")), "{}", after.status());
}

fn sandbox_removed(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "sandbox-removed", Options::default());
    let (file, _, after) = recreated(&node, |id| {
        node.cri.stop_sandbox(id);
        node.cri.remove_sandbox(id);
    });
    file.remove();
    file.gone(&after);
}
