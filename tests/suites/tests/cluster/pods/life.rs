//! From creation to deletion: phases, deadlines, refusals, and names that are used again.

use serde_json::json;
use testkit::process::eventually;

use crate::Shared;
use crate::member::Member;
use crate::node::{LATER, SOON};
use crate::spec::{OBEDIENT, containers, shell, sleeper, with};

pub const ALL: &[(&str, Shared)] = &[
    ("a_deleted_pod_has_its_grace", grace),
    ("a_pod_comes_again_under_the_same_name", again),
    ("a_pod_past_its_deadline_fails", deadline),
    ("a_job_succeeds_after_a_failure", job),
    ("a_pod_that_the_node_cannot_take_is_refused", refused),
    ("twenty_pods_come_and_go", twenty),
    ("a_deletion_before_the_start_leaves_nothing", early),
];

/// Pods at once.
const MANY: usize = 20;

fn grace(member: &Member) {
    // The script counts when it is told to end, and ends by itself.
    let script = "trap 'touch /gate/told; while ! [ -e /gate/leave ]; do sleep 0.1; done; exit 0' TERM; \
                  while :; do sleep 0.1; done";
    let spec = with(
        containers([shell("main", script)]),
        json!({"gate": true, "terminationGracePeriodSeconds": 600}),
    );
    let pod = member.pod("grace", spec);
    let seen = pod.ready();
    pod.delete(None);
    eventually("it is told to end", SOON, || {
        if pod.file.gate("told").exists() { Ok(()) } else { Err("not yet".into()) }
    });
    let ending = pod.look().expect("it stays while it ends");
    assert_eq!(ending.0["metadata"]["deletionGracePeriodSeconds"], 600);
    pod.file.open_gate("leave");
    pod.gone(&seen);
}

fn again(member: &Member) {
    let pod = member.pod("again", containers([sleeper("main")]));
    let first = pod.ready();
    pod.delete(None);
    eventually("the name is free", SOON, || match pod.look() {
        Err(_) => Ok(()),
        Ok(still) => Err(still.status().to_string()),
    });
    pod.create(containers([sleeper("other")]));
    let second = pod.ready();
    assert_ne!(second.uid(), first.uid());
    assert!(second.is_running("other"));
    // A forced deletion does not wait: both pods exist for a moment, and only the second stays.
    pod.delete(Some(0));
    let third = pod.create(containers([sleeper("third")]));
    assert_ne!(third.uid(), second.uid());
    let third = pod.ready();
    assert!(third.is_running("third"));
    pod.file.gone(&first);
    pod.file.gone(&second);
    assert_eq!(pod.file.running(third.uid()).len(), 1);
}

fn deadline(member: &Member) {
    let spec = with(containers([sleeper("main")]), json!({"activeDeadlineSeconds": 3}));
    let pod = member.pod("deadline", spec);
    let seen = pod.phase("Failed");
    assert_eq!(seen.text("/status/reason"), "DeadlineExceeded");
    assert_eq!(seen.text("/status/message"), "Pod was active on the node longer than the specified deadline");
    pod.event(&seen, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline");
    eventually("nothing of it runs", SOON, || match pod.file.running(seen.uid()).len() {
        0 => Ok(()),
        count => Err(format!("{count} containers")),
    });
}

fn job(member: &Member) {
    let script = "[ -e /gate/tried ] && exit 0; touch /gate/tried; exit 9";
    let spec = with(containers([shell("main", script)]), json!({"gate": true, "restartPolicy": "OnFailure"}));
    let pod = member.pod("job", spec);
    let done = pod.wait("Succeeded", LATER, |pod| pod.phase() == "Succeeded");
    assert_eq!(done.restarts("main"), 1);
    assert_eq!(done.terminated("main")["reason"], "Completed");
    assert_eq!(done.container("main")["lastState"]["terminated"]["exitCode"], 9);
    assert_eq!(done.condition("Ready")["reason"], "PodCompleted");
    pod.delete(None);
    pod.gone(&done);
}

fn refused(member: &Member) {
    let pod = member
        .pod("selective", with(containers([sleeper("main")]), json!({"nodeSelector": {"disk": "golden"}})));
    let seen = pod.phase("Failed");
    assert_eq!(seen.text("/status/reason"), "NodeAffinity");
    let huge = with(sleeper("main"), json!({"resources": {"requests": {"cpu": "1000"}}}));
    let pod = member.pod("huge", containers([huge]));
    let seen = pod.phase("Failed");
    assert_eq!(seen.text("/status/reason"), "OutOfcpu");
    assert!(pod.file.sandboxes(seen.uid()).is_empty());
    pod.delete(None);
    pod.gone(&seen);
}

fn twenty(member: &Member) {
    let pods: Vec<_> = (0..MANY).map(|_| member.pod("many", containers([sleeper("main")]))).collect();
    let seen: Vec<_> = pods.iter().map(|pod| pod.wait("Ready", LATER, |pod| pod.is_ready())).collect();
    let mut addresses: Vec<&str> = seen.iter().map(|pod| pod.ip()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), MANY);
    for pod in &pods {
        pod.delete(None);
    }
    for (pod, seen) in pods.iter().zip(&seen) {
        pod.gone(seen);
    }
}

fn early(member: &Member) {
    let pod = member.named_pod(member.pod_name("early"));
    let created = pod.create(containers([shell("main", OBEDIENT)]));
    pod.delete(None);
    pod.gone(&created);
}
