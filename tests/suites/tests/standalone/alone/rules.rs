//! Settings of the configuration that apply to all containers.

use std::sync::Arc;

use serde_json::json;

use crate::Alone;
use crate::environment::Environment;
use crate::node::{Node, Options};
use crate::spec::{OBEDIENT, containers, shell, with};

pub const ALL: &[(&str, Alone)] = &[("the_node_has_a_seccomp_default_and_a_period_of_quotas", rules)];

fn rules(environment: &Arc<Environment>) {
    let kubelet = json!({"seccompDefault": true, "cpuCFSQuotaPeriod": "20ms"});
    let node = Node::alone(environment, "rules", Options { kubelet, ..Options::default() });
    let script = format!("grep ^Seccomp: /proc/self/status; {OBEDIENT}");
    let limited = json!({"resources": {"limits": {"cpu": "500m"}}});
    let unconfined = json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}});
    let list = [with(shell("silent", &script), limited), with(shell("unconfined", &script), unconfined)];
    let file = node.pod("rules", containers(list));
    let pod = file.ready();
    for (name, mode) in [("silent", "2"), ("unconfined", "0")] {
        let said = testkit::process::eventually("the mode is told", crate::node::SOON, || {
            let log = file.log(&pod, name, 0)?;
            log.first().cloned().ok_or_else(|| "nothing is said yet".to_owned())
        });
        assert_eq!(said.split_whitespace().last(), Some(mode), "{name}");
    }
    let resources = &node.cri.config(pod.container_id("silent"))["linux"]["resources"];
    assert_eq!((&resources["cpu_quota"], &resources["cpu_period"]), (&json!(10_000), &json!(20_000)));
}
