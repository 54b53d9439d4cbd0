//! PURE: what the cgroups of pods, of classes of service and of the node hold (rows 14.3, 14.4, 14.7, 14.9, 14.16,
//! 14.18).

use std::collections::BTreeMap;

use bridge_node::cgroups::{CgroupValues, CpuLimit, HugePages, Limit};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use pod_rules::shares::{quota_us, shares};
use pod_spec::quantity::Quantity;
use pod_spec::resources::{
    Amounts as Which, HUGE_PAGES_PREFIX, QosClass, amounts, parsed, pod_limits, pod_requests,
};

use crate::capacity::{Amounts, PIDS};

/// Microseconds; the kernel's own and Kubernetes' default.
pub const PERIOD_US: u64 = 100_000;

/// What the node lays down for every pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodRules {
    /// `cpuCFSQuota`: CPU limits are enforced.
    pub cpu_quota: bool,
    /// `cpuCFSQuotaPeriod` in microseconds.
    pub cpu_period_us: u64,
    /// `podPidsLimit`; none for what the node allows.
    pub pids_max: Option<u64>,
}

impl Default for PodRules {
    fn default() -> Self {
        Self { cpu_quota: true, cpu_period_us: PERIOD_US, pids_max: None }
    }
}

/// Microseconds of CPU time in each period for thousandths of a CPU; no limit for none.
fn quota(millis: i128, period_us: u64) -> Limit {
    let period_us = i64::try_from(period_us).unwrap_or(i64::MAX);
    quota_us(millis, period_us).map_or(Limit::Unlimited, |quota| Limit::At(quota.unsigned_abs()))
}

/// The cgroup of a pod. Everything is given, so that what another kubelet has left there is put right.
pub fn pod_values(pod: &Pod, rules: &PodRules) -> CgroupValues {
    let nothing = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&nothing);
    let (requests, limits) = (pod_requests(spec), pod_limits(spec));
    let qos = QosClass::of(pod);
    let limited = |name: &str| match qos {
        QosClass::Guaranteed => true,
        QosClass::Burstable => all_limited(spec, name),
        QosClass::BestEffort => false,
    };
    let limit = |name: &str| limits.get(name).copied().filter(|_| limited(name)).unwrap_or(Quantity::ZERO);
    let cpu_limit = if rules.cpu_quota { limit("cpu").millis_rounded_up() } else { 0 };
    let requested = requests.get("cpu").filter(|_| qos != QosClass::BestEffort);
    CgroupValues {
        cpu_shares: Some(shares(requested.map_or(0, |cpu| cpu.millis_rounded_up()))),
        cpu: Some(CpuLimit {
            quota_us: quota(cpu_limit, rules.cpu_period_us),
            period_us: rules.cpu_period_us,
        }),
        memory: Some(match bytes(limit("memory")) {
            0 => Limit::Unlimited,
            bytes => Limit::At(bytes),
        }),
        pids: Some(rules.pids_max.map_or(Limit::Unlimited, Limit::At)),
        huge_pages: Some(huge_pages(&requests)),
    }
}

/// Whether the pod as a whole is limited: it says so itself, or every one of its containers does.
fn all_limited(spec: &PodSpec, name: &str) -> bool {
    let given = |list: BTreeMap<String, Quantity>| list.get(name).is_some_and(|amount| amount.signum() != 0);
    let own = spec.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    let mut containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    given(parsed(own)) || containers.all(|container| given(amounts(container, Which::Limits)))
}

/// The thousandths of a CPU that the pod adds to the cgroup of burstable pods; none if it is of another class.
pub fn burstable_cpu_millis(pod: &Pod) -> i128 {
    let spec = pod.spec.as_ref().filter(|_| QosClass::of(pod) == QosClass::Burstable);
    let requested = spec.and_then(|spec| pod_requests(spec).get("cpu").map(|cpu| cpu.millis_rounded_up()));
    requested.unwrap_or(0)
}

/// The cgroup of a class of service: burstable pods have what they request together, in thousandths of a CPU, best-effort
/// pods the least. Huge pages are bounded pod by pod. That of guaranteed ones is the node's.
pub fn class_values(qos: QosClass, burstable_millis: i128) -> CgroupValues {
    let millis = match qos {
        QosClass::Burstable => burstable_millis,
        QosClass::Guaranteed | QosClass::BestEffort => 0,
    };
    CgroupValues {
        cpu_shares: Some(shares(millis)),
        huge_pages: Some(HugePages::Unlimited),
        ..CgroupValues::default()
    }
}

/// A cgroup of the node's own: of all pods, or of what is reserved. Compressible is what can be taken away again: CPU.
pub fn node_values(amounts: &Amounts, compressible_only: bool) -> CgroupValues {
    let cpu_shares = amounts.get("cpu").map(|cpu| shares(cpu.millis_rounded_up()));
    if compressible_only {
        return CgroupValues { cpu_shares, ..CgroupValues::default() };
    }
    CgroupValues {
        cpu_shares,
        cpu: None,
        // Upstream writes no limit of zero, which nothing could live under.
        memory: amounts.get("memory").map(|memory| bytes(*memory)).filter(|bytes| *bytes > 0).map(Limit::At),
        pids: amounts.get(PIDS).map(|pids| match bytes(*pids) {
            0 => Limit::Unlimited,
            pids => Limit::At(pids),
        }),
        huge_pages: Some(huge_pages(amounts)),
    }
}

fn huge_pages(amounts: &Amounts) -> HugePages {
    let mut by_size = BTreeMap::new();
    for (name, amount) in amounts {
        let size = name.strip_prefix(HUGE_PAGES_PREFIX).and_then(|size| Quantity::parse(size).ok());
        if let Some(size) = size {
            *by_size.entry(bytes(size)).or_insert(0) += bytes(*amount);
        }
    }
    HugePages::Only(by_size)
}

fn bytes(amount: Quantity) -> u64 {
    u64::try_from(amount.units_rounded_up()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
    use proptest::prelude::*;

    use super::*;

    /// `cpu=1 memory=1Gi`
    fn list(text: &str) -> Option<BTreeMap<String, Text>> {
        let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
        Some(pairs.map(|(name, text)| (name.to_owned(), Text(text.to_owned()))).collect())
    }

    /// Requests and limits.
    fn resources(requests: &str, limits: &str) -> ResourceRequirements {
        ResourceRequirements { requests: list(requests), limits: list(limits), ..Default::default() }
    }

    fn pod(containers: &[(&str, &str)]) -> Pod {
        let containers = containers.iter().map(|(requests, limits)| Container {
            resources: Some(resources(requests, limits)),
            ..Container::default()
        });
        Pod {
            spec: Some(PodSpec { containers: containers.collect(), ..PodSpec::default() }),
            ..Pod::default()
        }
    }

    /// Shares, quota, memory limit.
    fn three(pod: &Pod, rules: &PodRules) -> (u64, Limit, Limit) {
        let values = pod_values(pod, rules);
        (values.cpu_shares.unwrap(), values.cpu.unwrap().quota_us, values.memory.unwrap())
    }

    #[test]
    fn shares_and_quota_of_upstreams_tables() {
        for (millis, expected) in [
            (-5, 2),
            (0, 2),
            (1, 2),
            (10, 10),
            (100, 102),
            (1000, 1024),
            (2000, 2048),
            (256_000, 262_144),
            (i128::from(i64::MAX), 262_144),
        ] {
            assert_eq!(shares(millis), expected, "{millis}");
        }
        for (millis, period, expected) in [
            (5, 100_000, 1000),
            (10, 100_000, 1000),
            (150, 100_000, 15_000),
            (1500, 5000, 7500),
            (1, 5000, 1000),
        ] {
            assert_eq!(quota(millis, period), Limit::At(expected), "{millis} of {period}");
        }
        assert_eq!(quota(0, 100_000), Limit::Unlimited);
    }

    #[test]
    fn pods_by_class() {
        let rules = PodRules::default();
        let (free, at) = (Limit::Unlimited, Limit::At);
        let full = "cpu=500m memory=64Mi";
        for (containers, expected) in [
            (vec![("", "")], (2, free, free)),
            (vec![("cpu=100m", "")], (102, free, free)),
            (vec![("cpu=100m memory=10Mi", "cpu=200m memory=20Mi")], (102, at(20_000), at(20 << 20))),
            // One container without a limit leaves the pod without.
            (vec![("cpu=100m", "cpu=200m memory=20Mi"), ("", "cpu=100m")], (102, at(30_000), free)),
            (vec![(full, full)], (512, at(50_000), at(64 << 20))),
            (vec![(full, full), (full, full)], (1024, at(100_000), at(128 << 20))),
        ] {
            assert_eq!(three(&pod(&containers), &rules), expected, "{containers:?}");
        }
    }

    #[test]
    fn the_pods_own_resources_hold_for_all_containers() {
        let mut whole = pod(&[("cpu=100m", ""), ("", "")]);
        whole.spec.as_mut().unwrap().resources = Some(resources("cpu=1 memory=64Mi", "cpu=2 memory=128Mi"));
        let rules = PodRules::default();
        assert_eq!(three(&whole, &rules), (1024, Limit::At(200_000), Limit::At(128 << 20)));
        whole.spec.as_mut().unwrap().resources = Some(resources("cpu=1", "cpu=2"));
        assert_eq!(three(&whole, &rules), (1024, Limit::At(200_000), Limit::Unlimited));
        let same = "cpu=1 memory=64Mi";
        whole.spec.as_mut().unwrap().resources = Some(resources(same, same));
        assert_eq!(three(&whole, &rules), (1024, Limit::At(100_000), Limit::At(64 << 20)));
    }

    #[test]
    fn the_nodes_rules() {
        let full = pod(&[("cpu=500m memory=64Mi", "cpu=500m memory=64Mi")]);
        let off = PodRules { cpu_quota: false, ..PodRules::default() };
        assert_eq!(three(&full, &off), (512, Limit::Unlimited, Limit::At(64 << 20)));
        let short = PodRules { cpu_period_us: 10_000, pids_max: Some(64), ..PodRules::default() };
        let values = pod_values(&full, &short);
        assert_eq!(values.cpu, Some(CpuLimit { quota_us: Limit::At(5000), period_us: 10_000 }));
        assert_eq!(values.pids, Some(Limit::At(64)));
        assert_eq!(pod_values(&full, &off).pids, Some(Limit::Unlimited));
    }

    #[test]
    fn init_containers_sidecars_overhead_and_huge_pages() {
        let mut made = pod(&[("cpu=1 hugepages-2Mi=4Mi", "cpu=1 hugepages-2Mi=4Mi")]);
        let spec = made.spec.as_mut().unwrap();
        spec.init_containers = Some(vec![
            Container {
                resources: Some(resources("cpu=500m", "cpu=500m")),
                restart_policy: Some("Always".into()),
                ..Container::default()
            },
            Container { resources: Some(resources("cpu=2", "cpu=2")), ..Container::default() },
        ]);
        spec.overhead = list("cpu=250m");
        let values = pod_values(&made, &PodRules::default());
        assert_eq!(values.cpu_shares, Some(shares(2750)));
        assert_eq!(values.cpu.unwrap().quota_us, Limit::At(275_000));
        assert_eq!(values.huge_pages, Some(HugePages::Only([(2 << 20, 4 << 20)].into())));
    }

    #[test]
    fn classes() {
        let pods = [
            pod(&[("cpu=100m", "")]),
            pod(&[("cpu=150m", "cpu=1")]),
            pod(&[("", "")]),
            pod(&[("cpu=3 memory=1Gi", "cpu=3 memory=1Gi")]),
        ];
        let millis = pods.iter().map(burstable_cpu_millis).sum();
        let burstable = class_values(QosClass::Burstable, millis);
        assert_eq!(burstable.cpu_shares, Some(256));
        assert_eq!((burstable.memory, burstable.huge_pages), (None, Some(HugePages::Unlimited)));
        assert_eq!(class_values(QosClass::Burstable, 0).cpu_shares, Some(2));
        assert_eq!(class_values(QosClass::BestEffort, millis).cpu_shares, Some(2));
    }

    #[test]
    fn the_nodes_own() {
        let amounts = parsed(list("cpu=3250m memory=7Gi pid=32000 hugepages-2Mi=1Gi").as_ref());
        let values = node_values(&amounts, false);
        assert_eq!(values.cpu_shares, Some(3328));
        assert_eq!((values.memory, values.pids), (Some(Limit::At(7 << 30)), Some(Limit::At(32_000))));
        assert_eq!(values.huge_pages, Some(HugePages::Only([(2 << 20, 1 << 30)].into())));
        let compressible = CgroupValues { cpu_shares: Some(3328), ..CgroupValues::default() };
        assert_eq!(node_values(&amounts, true), compressible);
        let nothing = node_values(&parsed(list("memory=0").as_ref()), false);
        assert_eq!((nothing.memory, nothing.cpu_shares, nothing.pids), (None, None, None));
    }

    proptest! {
        #[test]
        fn values_stay_within_what_the_kernel_takes(request in 0_u64..1 << 40, limit in 0_u64..1 << 40, period in 1000_u64..1_000_000) {
            let made = pod(&[(&format!("cpu={request}m"), &format!("cpu={limit}m"))]);
            let values = pod_values(&made, &PodRules { cpu_period_us: period, ..PodRules::default() });
            let shares = values.cpu_shares.unwrap_or_default();
            prop_assert!((2..=262_144).contains(&shares));
            match values.cpu.map(|cpu| cpu.quota_us) {
                Some(Limit::At(quota)) => prop_assert!(quota >= 1000),
                other => prop_assert_eq!((other, limit), (Some(Limit::Unlimited), 0)),
            }
        }
    }
}
