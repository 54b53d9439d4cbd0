//! What a container may use, and when it is killed for memory (rows 14.3, 14.12).

use k8s_openapi::api::core::v1::Pod;
use runtime_bridge::cri::wire::LinuxContainerResources;

use crate::sandbox_config::{CPU_PERIOD_US, CPU_SHARES_MIN};

/// Most likely to be killed when memory is short: what pods without requests get.
const OOM_SCORE_BEST_EFFORT: i64 = 1000;
/// Pods that the node cannot do without.
const OOM_SCORE_CRITICAL: i64 = -997;
const NODE_CRITICAL: &str = "system-node-critical";

/// Those of a container without requests and limits; others are refused before they get here.
pub(super) fn resources(pod: &Pod) -> LinuxContainerResources {
    let critical =
        pod.spec.as_ref().and_then(|spec| spec.priority_class_name.as_deref()) == Some(NODE_CRITICAL);
    LinuxContainerResources {
        cpu_shares: CPU_SHARES_MIN,
        cpu_period: CPU_PERIOD_US,
        oom_score_adj: if critical { OOM_SCORE_CRITICAL } else { OOM_SCORE_BEST_EFFORT },
        ..LinuxContainerResources::default()
    }
}
