//! `kubectl debug`: ephemeral containers.

use testkit::process::eventually;

use crate::Shared;
use crate::member::Member;
use crate::node::SOON;
use crate::spec::{containers, sleeper};

pub const ALL: &[(&str, Shared)] = &[("a_running_pod_is_debugged", debug)];

fn debug(member: &Member) {
    let kubectl = member.kubectl();
    let pod = member.pod("debugged", containers([sleeper("main")]));
    let before = pod.ready();
    let image = format!("--image={}", member.setting.runtime.image);
    let debug = |name: &str, option: &str, command: &str| -> Vec<String> {
        let head = ["debug", pod.name(), "-c", name, &image, option, "--profile=general"];
        let all = [&head[..], &["--image-pull-policy=IfNotPresent", "--", "sh", "-c", command]].concat();
        all.into_iter().map(str::to_owned).collect()
    };
    let looker = debug("looker", "--target=main", "ps; echo looked; exit 2");
    kubectl.ok(&looker.iter().map(String::as_str).collect::<Vec<_>>());
    let ended = |name: &str| {
        eventually(&format!("{name} has ended"), SOON, || {
            let now = pod.look()?;
            let all = now.status()["ephemeralContainerStatuses"].as_array().cloned().unwrap_or_default();
            let own = all.iter().find(|status| status["name"] == name);
            let code = own.and_then(|status| status["state"]["terminated"]["exitCode"].as_i64());
            code.ok_or_else(|| now.status().to_string())
        })
    };
    assert_eq!(ended("looker"), 2);
    let seen = kubectl.ok(&["logs", pod.name(), "-c", "looker"]);
    assert!(seen.contains("sleep 1000") && seen.contains("looked"), "it sees its target's processes: {seen}");

    let talker = debug("talker", "-i", "while read x; do echo heard $x; [ $x = end ] && exit 0; done");
    let mut talking = kubectl.start_fed(&talker.iter().map(String::as_str).collect::<Vec<_>>());
    talking.feed(b"one\n");
    talking.says("heard one");
    talking.feed(b"end\n");
    assert_eq!(ended("talker"), 0);
    talking.ends(SOON);

    let after = pod.look().expect("the pod is there");
    assert!(after.is_ready(), "{}", after.status());
    assert_eq!((after.restarts("main"), after.container_id("main")), (0, before.container_id("main")));
    pod.delete(None);
    pod.gone(&after);
}
