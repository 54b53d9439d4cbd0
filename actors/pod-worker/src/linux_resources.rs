//! Converts Kubernetes' amounts to the kernel's: shares, quotas and limits (rows 14.3, 14.18, 5.24).

use std::collections::BTreeMap;

use bridge_cri::wire::LinuxContainerResources;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use pod_rules::shares::{quota_us, shares};
use pod_spec::quantity::Quantity;
use pod_spec::resources::{Amounts, parsed, pod_amounts};

use crate::node_rules::NodeRules;

/// The requests and limits of one container, or of one pod. A limit of zero is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Absent if there is no request: then the limit counts as one.
    pub cpu_request: Option<Quantity>,
    pub cpu_limit: Option<Quantity>,
    pub memory_limit: Option<Quantity>,
}

/// The kernel's values for these requests and limits.
pub(crate) fn linux_resources(wanted: &Wanted, rules: &NodeRules) -> LinuxContainerResources {
    let millis = |quantity: Option<Quantity>| quantity.map_or(0, Quantity::millis_rounded_up);
    let limit_millis = millis(wanted.cpu_limit);
    let shares = shares(wanted.cpu_request.map_or(limit_millis, |request| millis(Some(request))));
    let mut resources = LinuxContainerResources {
        cpu_shares: i64::try_from(shares).unwrap_or(i64::MAX),
        memory_limit_in_bytes: units(wanted.memory_limit),
        ..LinuxContainerResources::default()
    };
    if let Some(period) = rules.cpu_quota_period_us {
        // Here zero means no quota.
        resources.cpu_quota = quota_us(limit_millis, period).unwrap_or(0);
        resources.cpu_period = period;
    }
    if rules.cgroups_v2 && !rules.single_process_oom_kill {
        resources.unified.insert("memory.oom.group".to_owned(), "1".to_owned());
    }
    resources
}

/// The resources of a pod's sandbox: those of all containers together, without the overhead, which the
/// runtime gets separately.
pub(crate) fn sandbox_resources(pod: &Pod, rules: &NodeRules) -> LinuxContainerResources {
    let amounts = |which| pod.spec.as_ref().map(|spec| pod_amounts(spec, which)).unwrap_or_default();
    let (requests, limits) = (amounts(Amounts::Requests), amounts(Amounts::Limits));
    let wanted = Wanted {
        cpu_request: requests.get("cpu").copied(),
        cpu_limit: limits.get("cpu").copied(),
        memory_limit: limits.get("memory").copied(),
    };
    linux_resources(&wanted, rules)
}

/// The resources of the runtime's own processes around the pod (`spec.overhead`): request and limit alike.
pub(crate) fn overhead(pod: &Pod, rules: &NodeRules) -> LinuxContainerResources {
    let Some(overhead) = overhead_of(pod.spec.as_ref()) else { return LinuxContainerResources::default() };
    let cpu = Some(overhead.get("cpu").copied().unwrap_or(Quantity::ZERO));
    let wanted = Wanted { cpu_request: cpu, cpu_limit: cpu, memory_limit: overhead.get("memory").copied() };
    linux_resources(&wanted, rules)
}

fn overhead_of(spec: Option<&PodSpec>) -> Option<BTreeMap<String, Quantity>> {
    let overhead = spec?.overhead.as_ref()?;
    Some(parsed(Some(overhead)))
}

/// The quantity in whole units, rounded up; zero if absent.
pub(crate) fn units(quantity: Option<Quantity>) -> i64 {
    quantity.map_or(0, Quantity::units_rounded_up)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::{container, pod, resources, sidecar};

    fn quantity(text: &str) -> Option<Quantity> {
        (!text.is_empty()).then(|| Quantity::parse(text).expect("a quantity"))
    }

    fn values(request: &str, limit: &str, memory: &str, rules: &NodeRules) -> [i64; 4] {
        let wanted = Wanted {
            cpu_request: quantity(request),
            cpu_limit: quantity(limit),
            memory_limit: quantity(memory),
        };
        let made = linux_resources(&wanted, rules);
        [made.cpu_shares, made.cpu_quota, made.cpu_period, made.memory_limit_in_bytes]
    }

    #[test]
    fn shares_quota_and_limit_follow_request_and_limits() {
        let rules = NodeRules::default();
        for (request, limit, memory, expected) in [
            ("", "", "", [2, 0, 100_000, 0]),
            ("0", "", "", [2, 0, 100_000, 0]),
            // Without a request the limit counts as one; a request of zero does not.
            ("", "1", "", [1024, 100_000, 100_000, 0]),
            ("0", "1", "", [2, 100_000, 100_000, 0]),
            ("250m", "500m", "64Mi", [256, 50_000, 100_000, 67_108_864]),
            ("1m", "1m", "1", [2, 1000, 100_000, 1]),
            ("3m", "10m", "", [3, 1000, 100_000, 0]),
            ("2", "1500m", "1G", [2048, 150_000, 100_000, 1_000_000_000]),
            ("1000", "1000", "", [262_144, 100_000_000, 100_000, 0]),
            // An amount below a thousandth counts as one thousandth.
            ("100u", "100u", "100m", [2, 1000, 100_000, 1]),
        ] {
            assert_eq!(values(request, limit, memory, &rules), expected, "{request}/{limit}/{memory}");
        }
    }

    #[test]
    fn the_node_says_whether_limits_are_quotas_and_over_what_time() {
        let period = NodeRules { cpu_quota_period_us: Some(20_000), ..NodeRules::default() };
        assert_eq!(values("1", "500m", "", &period), [1024, 10_000, 20_000, 0]);
        assert_eq!(values("1", "10m", "", &period), [1024, 1000, 20_000, 0]);
        let off = NodeRules { cpu_quota_period_us: None, ..NodeRules::default() };
        assert_eq!(values("1", "500m", "1Mi", &off), [1024, 0, 0, 1 << 20]);
    }

    #[test]
    fn the_kernel_kills_whole_containers_only_in_version_2_and_unless_told_otherwise() {
        for (v2, single, group) in
            [(false, false, None), (true, true, None), (false, true, None), (true, false, Some("1"))]
        {
            let rules = NodeRules { cgroups_v2: v2, single_process_oom_kill: single, ..NodeRules::default() };
            let made = linux_resources(&Wanted::default(), &rules);
            assert_eq!(made.unified.get("memory.oom.group").map(String::as_str), group, "{v2} {single}");
        }
    }

    fn with(container: Container, requests: &[(&str, &str)], limits: &[(&str, &str)]) -> Container {
        Container { resources: Some(resources(requests, limits)), ..container }
    }

    #[test]
    fn a_sandbox_is_told_of_all_its_containers_together() {
        let cpu = |cpu| [("cpu", cpu), ("memory", "10Mi")];
        let init = vec![
            with(sidecar("side"), &cpu("100m"), &cpu("200m")),
            with(container("init"), &cpu("1"), &cpu("1")),
        ];
        let regular = vec![with(container("a"), &cpu("100m"), &cpu("100m")), with(container("b"), &[], &[])];
        let mut pod = pod("Always", init, regular);
        let rules = NodeRules::default();
        // Initialization takes more than running does: the sidecar and the init container run at once.
        let made = sandbox_resources(&pod, &rules);
        assert_eq!((made.cpu_shares, made.cpu_quota), (1126, 120_000));
        assert_eq!(made.memory_limit_in_bytes, 20 << 20);
        assert_eq!(made.oom_score_adj, 0);

        let spec = pod.spec.as_mut().expect("spec");
        let text = |text: &str| Text(text.to_owned());
        spec.overhead = Some([("cpu".into(), text("250m")), ("memory".into(), text("5Mi"))].into());
        assert_eq!(sandbox_resources(&pod, &rules), made, "the overhead is told apart");
        let over = overhead(&pod, &rules);
        assert_eq!((over.cpu_shares, over.cpu_quota, over.cpu_period), (256, 25_000, 100_000));
        assert_eq!(over.memory_limit_in_bytes, 5 << 20);

        let spec = pod.spec.as_mut().expect("spec");
        spec.resources = Some(ResourceRequirements {
            limits: Some([("cpu".into(), text("4"))].into()),
            ..ResourceRequirements::default()
        });
        let made = sandbox_resources(&pod, &rules);
        assert_eq!((made.cpu_quota, made.memory_limit_in_bytes), (400_000, 20 << 20));
    }

    #[test]
    fn a_pod_that_asks_for_nothing_is_told_as_such() {
        let pod = pod("Always", vec![], vec![container("c")]);
        let rules = NodeRules::default();
        assert_eq!(sandbox_resources(&pod, &rules), linux_resources(&Wanted::default(), &rules));
        assert_eq!(overhead(&pod, &rules), LinuxContainerResources::default());
        let only_memory = {
            let mut pod = pod.clone();
            let memory = [("memory".to_owned(), Text("1Mi".into()))];
            pod.spec.as_mut().expect("spec").overhead = Some(memory.into());
            overhead(&pod, &rules)
        };
        assert_eq!((only_memory.cpu_shares, only_memory.cpu_quota), (2, 0));
    }

    proptest! {
        #[test]
        fn every_amount_gives_values_that_the_kernel_takes(
            request in any::<Option<u64>>(), limit in any::<Option<u64>>(), period in 1000_i64..=1_000_000
        ) {
            let millis = |amount: Option<u64>| {
                amount.map(|amount| Quantity::parse(&format!("{amount}m")).expect("a quantity"))
            };
            let rules = NodeRules { cpu_quota_period_us: Some(period), ..NodeRules::default() };
            let wanted = Wanted { cpu_request: millis(request), cpu_limit: millis(limit), memory_limit: None };
            let made = linux_resources(&wanted, &rules);
            prop_assert!((2..=262_144).contains(&made.cpu_shares));
            prop_assert_eq!(made.cpu_quota == 0, limit.unwrap_or(0) == 0);
            prop_assert!(made.cpu_quota == 0 || made.cpu_quota >= 1000);
        }
    }
}
