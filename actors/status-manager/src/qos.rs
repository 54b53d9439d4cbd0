//! The QoS class of a pod, from its spec (row 8.9).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

const COMPUTE: [&str; 2] = ["cpu", "memory"];

/// `Guaranteed`, `Burstable` or `BestEffort`. A class that the API server has set is kept.
pub fn qos_class(pod: &Pod) -> String {
    if let Some(class) = pod.status.as_ref().and_then(|s| s.qos_class.clone()).filter(|c| !c.is_empty()) {
        return class;
    }
    compute(pod).to_owned()
}

fn compute(pod: &Pod) -> &'static str {
    let Some(spec) = &pod.spec else { return "BestEffort" };
    let mut sums = Sums { requests: BTreeMap::new(), limits: BTreeMap::new(), every_limit_set: true };
    if let Some(resources) = &spec.resources {
        sums.add_requests(resources);
        // Pod-level limits only count against Guaranteed where there are any at all.
        if resources.limits.as_ref().is_some_and(|l| !l.is_empty()) {
            sums.add_limits(resources);
        }
    } else {
        let none = ResourceRequirements::default();
        for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
            let resources = container.resources.as_ref().unwrap_or(&none);
            sums.add_requests(resources);
            sums.add_limits(resources);
        }
    }
    sums.class()
}

struct Sums {
    requests: BTreeMap<&'static str, i128>,
    limits: BTreeMap<&'static str, i128>,
    every_limit_set: bool,
}

impl Sums {
    fn add_requests(&mut self, resources: &ResourceRequirements) {
        add(&mut self.requests, resources.requests.as_ref());
    }

    fn add_limits(&mut self, resources: &ResourceRequirements) {
        let found = add(&mut self.limits, resources.limits.as_ref());
        self.every_limit_set &= found == COMPUTE.len();
    }

    fn class(&self) -> &'static str {
        if self.requests.is_empty() && self.limits.is_empty() {
            "BestEffort"
        } else if self.every_limit_set && self.requests == self.limits {
            "Guaranteed"
        } else {
            "Burstable"
        }
    }
}

/// Adds the positive amounts of cpu and memory; how many there were.
fn add(sums: &mut BTreeMap<&'static str, i128>, list: Option<&BTreeMap<String, Quantity>>) -> usize {
    let mut found = 0;
    for name in COMPUTE {
        let amount = list.and_then(|l| l.get(name)).and_then(|q| nanos(&q.0)).unwrap_or(0);
        if amount > 0 {
            *sums.entry(name).or_insert(0) += amount;
            found += 1;
        }
    }
    found
}

/// A quantity in billionths of its unit, a smaller fraction rounded up in its size; `None` if it is not one or
/// does not fit.
fn nanos(text: &str) -> Option<i128> {
    const NANO: i128 = 1_000_000_000;
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (up, down) = scale(suffix)?;
    let down = down.checked_mul(10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?)?;
    let exact = mantissa.checked_mul(up)?.checked_mul(NANO)?;
    Some(sign * (exact / down + i128::from(exact % down != 0)))
}

/// The factor of a suffix as a fraction.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    let of = |exponent: i32| -> Option<(i128, i128)> {
        let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
        Some(if exponent < 0 { (1, power) } else { (power, 1) })
    };
    match suffix {
        "n" => of(-9),
        "u" => of(-6),
        "m" => of(-3),
        "" => of(0),
        "k" => of(3),
        "M" => of(6),
        "G" => of(9),
        "T" => of(12),
        "P" => of(15),
        "E" => of(18),
        "Ki" => Some((1 << 10, 1)),
        "Mi" => Some((1 << 20, 1)),
        "Gi" => Some((1 << 30, 1)),
        "Ti" => Some((1 << 40, 1)),
        "Pi" => Some((1 << 50, 1)),
        "Ei" => Some((1 << 60, 1)),
        _ => of(suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, PodSpec, PodStatus};

    use super::*;

    fn resources(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> ResourceRequirements {
        let list = |items: &[(&str, &str)]| {
            Some(items.iter().map(|(k, v)| ((*k).to_owned(), Quantity((*v).to_owned()))).collect())
        };
        ResourceRequirements { requests: list(requests), limits: list(limits), ..Default::default() }
    }

    fn class(containers: Vec<ResourceRequirements>) -> String {
        let containers = containers
            .into_iter()
            .map(|r| Container { resources: Some(r), ..Container::default() })
            .collect();
        qos_class(&Pod { spec: Some(PodSpec { containers, ..PodSpec::default() }), ..Pod::default() })
    }

    #[test]
    fn quantities() {
        assert_eq!(nanos("1"), Some(1_000_000_000));
        assert_eq!(nanos("0.5"), nanos("500m"));
        assert_eq!(nanos("1Ki"), nanos("1024"));
        assert_eq!(nanos("1.5Gi"), Some((1_i128 << 30) * 1_500_000_000));
        assert_eq!(nanos("1e3"), nanos("1k"));
        assert_eq!(nanos("1E"), nanos("1e18"));
        assert_eq!(nanos("-2"), Some(-2_000_000_000));
        assert_eq!(nanos("0.0000000001"), Some(1));
        for bad in ["", ".", "1.2.3", "x", "1Qi", "e3", "1e"] {
            assert_eq!(nanos(bad), None, "{bad}");
        }
    }

    #[test]
    fn guaranteed_needs_equal_requests_and_limits_of_both_in_every_container() {
        let full = resources(&[("cpu", "1"), ("memory", "1Gi")], &[("cpu", "1000m"), ("memory", "1024Mi")]);
        assert_eq!(class(vec![full.clone()]), "Guaranteed");
        assert_eq!(class(vec![full.clone(), full.clone()]), "Guaranteed");
        assert_eq!(class(vec![full.clone(), resources(&[], &[])]), "Burstable");
        assert_eq!(class(vec![resources(&[("cpu", "1")], &[("cpu", "1")])]), "Burstable");
        let uneven = resources(&[("cpu", "1"), ("memory", "1Gi")], &[("cpu", "2"), ("memory", "1Gi")]);
        assert_eq!(class(vec![uneven]), "Burstable");
    }

    #[test]
    fn best_effort_without_cpu_and_memory() {
        assert_eq!(class(vec![resources(&[], &[])]), "BestEffort");
        let other = resources(&[("ephemeral-storage", "1Gi"), ("cpu", "0")], &[("nvidia.com/gpu", "1")]);
        assert_eq!(class(vec![other]), "BestEffort");
    }

    #[test]
    fn pod_level_resources_take_the_place_of_the_containers() {
        let mut pod = Pod {
            spec: Some(PodSpec {
                containers: vec![Container::default()],
                resources: Some(resources(
                    &[("cpu", "1"), ("memory", "1Gi")],
                    &[("cpu", "1"), ("memory", "1Gi")],
                )),
                ..PodSpec::default()
            }),
            ..Pod::default()
        };
        assert_eq!(qos_class(&pod), "Guaranteed");
        pod.status = Some(PodStatus { qos_class: Some("Burstable".into()), ..PodStatus::default() });
        assert_eq!(qos_class(&pod), "Burstable", "what the API server has set is immutable");
    }
}
