//! The number of requests to the API server.

use std::sync::Arc;
use std::time::Duration;

use testkit::process::{eventually, holds};

use crate::member::Member;
use crate::node::{LATER, SOON};
use crate::setting::Setting;
use crate::spec::{containers, sleeper};

/// Pods that a restarted kubelet finds again.
const PODS: usize = 10;
/// How long an idle node is watched, and how long a restarted one.
const WATCHED: Duration = Duration::from_secs(40);

pub fn restart(setting: &Arc<Setting>) {
    let member = Member::alone(setting, "restart");
    let pods: Vec<_> = (0..PODS).map(|_| member.pod("kept", containers([sleeper("main")]))).collect();
    let fixed = member.node.pod("fixed", containers([sleeper("main")]));
    let mirror = member.named_pod(fixed.ready().name().to_owned());
    let all = || pods.iter().chain([&mirror]);
    let before: Vec<_> = all().map(|pod| pod.wait("Ready", LATER, |pod| pod.is_ready())).collect();
    settled(&member);

    let mark = member.mark();
    member.node.kill_kubelet();
    member.node.start_kubelet();
    eventually("the kubelet is healthy", SOON, || member.node.healthz.text("/healthz").map(drop));
    // The kubelet has looked at each pod: anything there was to write would be written within some seconds.
    let next = member.pod("next", containers([sleeper("main")]));
    next.ready();
    settled(&member);
    let writes = member.status_writes(&mark);
    let written: Vec<&str> = writes.keys().map(String::as_str).collect();
    assert_eq!(written, [next.name()], "{writes:?}");
    for (pod, before) in all().zip(&before) {
        let after = pod.look().expect("the pod is there");
        assert_eq!(
            after.text("/metadata/resourceVersion"),
            before.text("/metadata/resourceVersion"),
            "{}",
            pod.name()
        );
        assert_eq!(after.container_id("main"), before.container_id("main"), "{}", pod.name());
    }
}

/// Waits until for some seconds no status of a pod has been written, and no watch has told of a pod.
fn settled(member: &Member) {
    let quiet = Duration::from_secs(5);
    let begun = std::time::Instant::now();
    loop {
        let mark = member.mark();
        std::thread::sleep(quiet);
        let requests = member.requests(&mark);
        if requests.about("pods") + requests.about("events") == 0 {
            return;
        }
        assert!(begun.elapsed() < SOON, "pods are still written about: {requests:?}");
    }
}

pub fn idle(setting: &Arc<Setting>) {
    let member = Member::alone(setting, "idle");
    let pods: Vec<_> = (0..PODS).map(|_| member.pod("idle", containers([sleeper("main")]))).collect();
    for pod in &pods {
        pod.wait("Ready", LATER, |pod| pod.is_ready());
    }
    settled(&member);
    let mark = member.mark();
    holds("no request is about a pod", WATCHED, || {
        let requests = member.requests(&mark);
        if requests.about("pods") == 0 { Ok(()) } else { Err(format!("{requests:?}")) }
    });
    let requests = member.requests(&mark);
    // A lease every 10 s, the Node when it changed, and watches that the API server has closed.
    assert!(requests.about("leases") >= 2, "{requests:?}");
    assert!(requests.total() <= 20, "{requests:?}");
}
