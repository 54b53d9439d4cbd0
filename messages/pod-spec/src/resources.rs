//! What resource names mean, what a whole pod requests, and its quality-of-service class (rows 14.1, 14.16).

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use serde::Serialize;

use crate::quantity::Quantity;

/// Prefix of the resources that are huge pages of one size: `hugepages-2Mi`.
pub const HUGE_PAGES_PREFIX: &str = "hugepages-";

/// Which of a container's two lists of amounts is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amounts {
    /// `resources.requests`
    Requests,
    /// `resources.limits`
    Limits,
}

/// Whether the resource `name` is huge pages.
pub fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES_PREFIX)
}

/// Whether the resource `name` belongs to Kubernetes itself: it has no prefix, or one of kubernetes.io.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether a container may request less of the resource than its limit.
pub fn overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// Whether `spec.resources` may give the resource for a pod as a whole.
pub fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_pages(name)
}

/// Whether an init container is a sidecar: it keeps running beside the containers that start after it.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// What a pod's containers ask for together: the sum of those that run side by side, or what is needed at the worst
/// moment of initialisation if that is more. Texts that are no quantities count as nothing.
pub fn aggregate(spec: &PodSpec, which: Amounts) -> BTreeMap<String, Quantity> {
    let mut running = BTreeMap::new();
    for container in &spec.containers {
        add(&mut running, &amounts(container, which));
    }
    let (mut sidecars, mut initialising) = (BTreeMap::new(), BTreeMap::new());
    for container in spec.init_containers.iter().flatten() {
        let own = amounts(container, which);
        let stays = is_sidecar(container);
        if stays {
            add(&mut running, &own);
            add(&mut sidecars, &own);
        }
        // What is needed of a resource that the container does not name is as before.
        let at_once = own.iter().map(|(name, amount)| {
            let beside = sidecars.get(name).copied().unwrap_or(Quantity::ZERO);
            (name.clone(), if stays { beside } else { amount.plus(beside) })
        });
        raise(&mut initialising, &at_once.collect());
    }
    raise(&mut running, &initialising);
    running
}

/// What a pod as a whole requests: its own amounts where it gives them, else the sum over its containers; plus the
/// overhead of its runtime class.
pub fn pod_requests(spec: &PodSpec) -> BTreeMap<String, Quantity> {
    let mut requests = pod_amounts(spec, Amounts::Requests);
    add(&mut requests, &parsed(spec.overhead.as_ref()));
    requests
}

/// The limits of a pod as a whole, for the resources that have any. A container without a limit counts as 0, so the
/// caller has to check whether the pod may be held to the sum.
pub fn pod_limits(spec: &PodSpec) -> BTreeMap<String, Quantity> {
    let mut limits = pod_amounts(spec, Amounts::Limits);
    for (name, overhead) in parsed(spec.overhead.as_ref()) {
        if let Some(limit) = limits.get_mut(&name).filter(|limit| limit.signum() != 0) {
            *limit = limit.plus(overhead);
        }
    }
    limits
}

/// The pod's own amounts where it gives them, else the sum over its containers; without the overhead.
pub fn pod_amounts(spec: &PodSpec, which: Amounts) -> BTreeMap<String, Quantity> {
    let mut amounts = aggregate(spec, which);
    amounts.extend(pod_level(spec, which));
    amounts
}

/// The amounts that a pod gives for itself as a whole (`spec.resources`).
pub fn pod_level(spec: &PodSpec, which: Amounts) -> BTreeMap<String, Quantity> {
    let mut own = listed(spec.resources.as_ref(), which);
    own.retain(|name, _| is_pod_level(name));
    own
}

/// The requests or limits of one container.
pub fn amounts(container: &Container, which: Amounts) -> BTreeMap<String, Quantity> {
    listed(container.resources.as_ref(), which)
}

fn listed(resources: Option<&ResourceRequirements>, which: Amounts) -> BTreeMap<String, Quantity> {
    let Some(resources) = resources else { return BTreeMap::new() };
    parsed(match which {
        Amounts::Requests => resources.requests.as_ref(),
        Amounts::Limits => resources.limits.as_ref(),
    })
}

/// Reads a list of amounts. Texts that are no quantities are left out.
pub fn parsed(list: Option<&BTreeMap<String, Text>>) -> BTreeMap<String, Quantity> {
    let of = |(name, text): (&String, &Text)| Some((name.clone(), Quantity::parse(&text.0).ok()?));
    list.into_iter().flatten().filter_map(of).collect()
}

/// The node's resources and the part of them that pods may have. Computed by ResourceManager.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeResources {
    /// By resource name: `cpu`, `memory`, `pods`, `ephemeral-storage`, `hugepages-2Mi`, …
    pub capacity: BTreeMap<String, Quantity>,
    /// The capacity less what is reserved and what eviction keeps free, by resource name; never negative.
    pub allocatable: BTreeMap<String, Quantity>,
}

/// Kubernetes' classes of quality of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum QosClass {
    /// Every container has requests equal to limits, for cpu and memory.
    Guaranteed,
    /// Some container requests or limits cpu or memory.
    Burstable,
    /// No container requests or limits cpu or memory.
    BestEffort,
}

impl QosClass {
    /// Every class, the best served first.
    pub const ALL: [Self; 3] = [Self::Guaranteed, Self::Burstable, Self::BestEffort];

    /// The class of a pod: the one that the API server has set in its status, else computed from its spec.
    pub fn of(pod: &Pod) -> Self {
        let set = pod.status.as_ref().and_then(|status| status.qos_class.as_deref());
        let set = Self::ALL.into_iter().find(|class| set == Some(class.as_str()));
        set.unwrap_or_else(|| pod.spec.as_ref().map_or(Self::BestEffort, class_of))
    }

    /// The class as `status.qosClass` spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The resources that decide a pod's class.
const COMPUTE: [&str; 2] = ["cpu", "memory"];

fn class_of(spec: &PodSpec) -> QosClass {
    let compute = |resources: Option<&ResourceRequirements>, which| {
        let mut own = listed(resources, which);
        own.retain(|name, amount| COMPUTE.contains(&name.as_str()) && amount.signum() > 0);
        own
    };
    let (mut requests, mut limits, mut all_limited) = (BTreeMap::new(), BTreeMap::new(), true);
    let mut count = |resources: Option<&ResourceRequirements>, limits_count: bool| {
        add(&mut requests, &compute(resources, Amounts::Requests));
        let own = compute(resources, Amounts::Limits);
        all_limited &= !limits_count || own.len() == COMPUTE.len();
        add(&mut limits, &own);
    };
    match &spec.resources {
        // Pod-level limits only count against Guaranteed where there are any at all.
        Some(own) => count(Some(own), own.limits.as_ref().is_some_and(|limits| !limits.is_empty())),
        None => {
            for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
                count(container.resources.as_ref(), true);
            }
        }
    }
    if requests.is_empty() && limits.is_empty() {
        QosClass::BestEffort
    } else if all_limited && requests == limits {
        QosClass::Guaranteed
    } else {
        QosClass::Burstable
    }
}

fn add(sum: &mut BTreeMap<String, Quantity>, more: &BTreeMap<String, Quantity>) {
    for (name, quantity) in more {
        let entry = sum.entry(name.clone()).or_insert(Quantity::ZERO);
        *entry = entry.plus(*quantity);
    }
}

fn raise(maximum: &mut BTreeMap<String, Quantity>, other: &BTreeMap<String, Quantity>) {
    for (name, quantity) in other {
        let entry = maximum.entry(name.clone()).or_insert(*quantity);
        if quantity > entry {
            *entry = *quantity;
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodStatus;

    use super::*;

    fn resources(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> ResourceRequirements {
        let list = |items: &[(&str, &str)]| {
            Some(items.iter().map(|(name, text)| ((*name).to_owned(), Text((*text).to_owned()))).collect())
        };
        ResourceRequirements { requests: list(requests), limits: list(limits), ..Default::default() }
    }

    #[test]
    fn a_sidecar_with_many_resources_is_not_counted_for_each_container_anew() {
        let names: Vec<String> = (0..10_000).map(|number| format!("example.org/r{number:05}")).collect();
        let all: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "1")).collect();
        let sidecar = Container {
            restart_policy: Some("Always".to_owned()),
            resources: Some(resources(&all, &[])),
            ..Container::default()
        };
        let small = Container { resources: Some(resources(&all[..1], &[])), ..Container::default() };
        let init = std::iter::once(sidecar).chain(std::iter::repeat_n(small, 10_000)).collect();
        let spec = PodSpec { init_containers: Some(init), ..PodSpec::default() };
        let begun = tokio::time::Instant::now();
        let sum = aggregate(&spec, Amounts::Requests);
        let took = begun.elapsed();
        assert!(took.as_secs() < 5, "{took:?}");
        let of = |name: &str| sum[name].units_rounded_up();
        assert_eq!((sum.len(), of(&names[0]), of(&names[9_999])), (10_000, 2, 1));
    }

    fn spec(containers: Vec<ResourceRequirements>) -> PodSpec {
        let containers = containers
            .into_iter()
            .map(|resources| Container { resources: Some(resources), ..Container::default() })
            .collect();
        PodSpec { containers, ..PodSpec::default() }
    }

    fn class(containers: Vec<ResourceRequirements>) -> QosClass {
        QosClass::of(&Pod { spec: Some(spec(containers)), ..Pod::default() })
    }

    fn texts(amounts: BTreeMap<String, Quantity>) -> Vec<(String, String)> {
        amounts.into_iter().map(|(name, amount)| (name, amount.to_string())).collect()
    }

    #[test]
    fn guaranteed_needs_equal_requests_and_limits_of_both_in_every_container() {
        let full = resources(&[("cpu", "1"), ("memory", "1Gi")], &[("cpu", "1000m"), ("memory", "1024Mi")]);
        assert_eq!(class(vec![full.clone()]), QosClass::Guaranteed);
        assert_eq!(class(vec![full.clone(), full.clone()]), QosClass::Guaranteed);
        assert_eq!(class(vec![full, resources(&[], &[])]), QosClass::Burstable);
        assert_eq!(class(vec![resources(&[("cpu", "1")], &[("cpu", "1")])]), QosClass::Burstable);
        let uneven = resources(&[("cpu", "1"), ("memory", "1Gi")], &[("cpu", "2"), ("memory", "1Gi")]);
        assert_eq!(class(vec![uneven]), QosClass::Burstable);
    }

    #[test]
    fn best_effort_without_cpu_and_memory() {
        assert_eq!(class(vec![resources(&[], &[])]), QosClass::BestEffort);
        let other = resources(&[("ephemeral-storage", "1Gi"), ("cpu", "0")], &[("nvidia.com/gpu", "1")]);
        assert_eq!(class(vec![other]), QosClass::BestEffort);
    }

    #[test]
    fn pod_level_resources_take_the_place_of_the_containers() {
        let whole = [("cpu", "1"), ("memory", "1Gi")];
        let mut spec = spec(vec![resources(&[("cpu", "100m")], &[])]);
        spec.resources = Some(resources(&whole, &whole));
        spec.overhead = Some([("memory".to_owned(), Text("16Mi".to_owned()))].into());
        let requests = [("cpu".to_owned(), "1".to_owned()), ("memory".to_owned(), "1040Mi".to_owned())];
        assert_eq!(texts(pod_requests(&spec)), requests);
        assert_eq!(texts(pod_limits(&spec)), requests);
        let mut pod = Pod { spec: Some(spec), ..Pod::default() };
        assert_eq!(QosClass::of(&pod), QosClass::Guaranteed);
        pod.status = Some(PodStatus { qos_class: Some("Burstable".into()), ..PodStatus::default() });
        assert_eq!(QosClass::of(&pod), QosClass::Burstable, "what the API server has set is immutable");
    }

    #[test]
    fn init_containers_count_by_their_worst_moment() {
        let container = |cpu: &str, policy: Option<&str>| Container {
            resources: Some(resources(&[("cpu", cpu)], &[])),
            restart_policy: policy.map(str::to_owned),
            ..Container::default()
        };
        let mut spec = spec(vec![resources(&[("cpu", "1")], &[])]);
        spec.init_containers = Some(vec![container("100m", Some("Always")), container("3", None)]);
        assert_eq!(texts(pod_requests(&spec)), [("cpu".to_owned(), "3100m".to_owned())]);
    }
}
