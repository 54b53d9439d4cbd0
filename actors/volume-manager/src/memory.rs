//! How large a volume in memory may grow (row 10.4): as its pod could anyway, or less where the volume says so.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Bytes of a quantity as Kubernetes writes them (`1.5Gi`, `500M`, `2e9`), rounded up to whole bytes; `None` when it
/// is no quantity or more than fits. Quantities of pods have been validated where the pods come from.
pub fn bytes(quantity: &Quantity) -> Option<u64> {
    let text = quantity.0.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let fraction_digits = u32::try_from(fraction.len()).ok()?;
    let digits: u128 = format!("0{whole}{fraction}").parse().ok()?;
    let (multiply, divide) = scale(suffix)?;
    let divisor = divide.checked_mul(10u128.checked_pow(fraction_digits)?)?;
    u64::try_from(digits.checked_mul(multiply)?.div_ceil(divisor)).ok()
}

/// What a suffix multiplies and divides by.
fn scale(suffix: &str) -> Option<(u128, u128)> {
    const DECIMAL: [&str; 6] = ["k", "M", "G", "T", "P", "E"];
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const SMALL: [&str; 3] = ["m", "u", "n"];
    let place =
        |among: &[&str]| among.iter().position(|s| *s == suffix).and_then(|at| u32::try_from(at + 1).ok());
    if suffix.is_empty() {
        return Some((1, 1));
    }
    if let Some(place) = place(&DECIMAL) {
        return Some((1000u128.pow(place), 1));
    }
    if let Some(place) = place(&BINARY) {
        return Some((1024u128.pow(place), 1));
    }
    if let Some(place) = place(&SMALL) {
        return Some((1, 1000u128.pow(place)));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = 10u128.checked_pow(exponent.unsigned_abs())?;
    Some(if exponent < 0 { (1, power) } else { (power, 1) })
}

/// The size of an emptyDir in memory, in bytes: the volume's own limit, the pod's memory limit or all that pods may
/// have on this node, whichever is least.
pub fn tmpfs_bytes(size_limit: Option<&Quantity>, pod: &Pod, node_allocatable_bytes: u64) -> u64 {
    let own = size_limit.and_then(bytes);
    let pod = pod.spec.as_ref().and_then(pod_limit_bytes);
    [own, pod].into_iter().flatten().filter(|limit| *limit > 0).fold(node_allocatable_bytes, u64::min)
}

fn memory(amounts: Option<&BTreeMap<String, Quantity>>) -> Option<u64> {
    amounts?.get("memory").and_then(bytes).filter(|bytes| *bytes > 0)
}

fn limit(resources: Option<&ResourceRequirements>) -> Option<u64> {
    memory(resources?.limits.as_ref())
}

/// The pod's memory limit in bytes, as its cgroup gets it: its own, or that of its containers when every one of them
/// has one. Init containers run one after the other, sidecars beside all that come after them.
fn pod_limit_bytes(spec: &PodSpec) -> Option<u64> {
    let overhead = memory(spec.overhead.as_ref()).unwrap_or(0);
    if let Some(own) = limit(spec.resources.as_ref()) {
        return own.checked_add(overhead);
    }
    let of = |container: &Container| limit(container.resources.as_ref());
    let (mut sidecars, mut starting) = (0u64, 0u64);
    for container in spec.init_containers.iter().flatten() {
        let needs = of(container)?;
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = sidecars.checked_add(needs)?;
            starting = starting.max(sidecars);
        } else {
            starting = starting.max(sidecars.checked_add(needs)?);
        }
    }
    let mut running = sidecars;
    for container in &spec.containers {
        running = running.checked_add(of(container)?)?;
    }
    running.max(starting).checked_add(overhead)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quantity(text: &str) -> Quantity {
        Quantity(text.to_owned())
    }

    #[test]
    fn quantities_are_read_as_bytes() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1024", Some(1024)),
            ("1Ki", Some(1024)),
            ("1.5Gi", Some(1_610_612_736)),
            ("64M", Some(64_000_000)),
            ("1e3", Some(1000)),
            ("2E", Some(2_000_000_000_000_000_000)),
            ("1E1", Some(10)),
            ("15e-1", Some(2)),
            ("1500m", Some(2)),
            ("1n", Some(1)),
            (".5k", Some(500)),
            ("", None),
            (".", None),
            ("abc", None),
            ("1Q", None),
            ("1e99", None),
            ("100E", None),
            ("-1", None),
        ] {
            assert_eq!(bytes(&quantity(text)), expected, "{text}");
        }
    }

    fn container(limit: Option<&str>, policy: Option<&str>) -> Container {
        let limits = limit.map(|limit| BTreeMap::from([("memory".to_owned(), quantity(limit))]));
        Container {
            resources: Some(ResourceRequirements { limits, ..ResourceRequirements::default() }),
            restart_policy: policy.map(str::to_owned),
            ..Container::default()
        }
    }

    #[test]
    fn the_pods_limit_counts_only_when_every_container_has_one() {
        let pod = |containers: Vec<Container>, init: Vec<Container>| Pod {
            spec: Some(PodSpec { containers, init_containers: Some(init), ..PodSpec::default() }),
            ..Pod::default()
        };
        let bounded = pod(vec![container(Some("100"), None), container(Some("50"), None)], vec![]);
        assert_eq!(tmpfs_bytes(None, &bounded, 1000), 150);
        assert_eq!(tmpfs_bytes(Some(&quantity("40")), &bounded, 1000), 40);
        assert_eq!(tmpfs_bytes(Some(&quantity("400")), &bounded, 1000), 150);
        assert_eq!(tmpfs_bytes(None, &bounded, 100), 100);
        let open = pod(vec![container(Some("100"), None), container(None, None)], vec![]);
        assert_eq!(tmpfs_bytes(None, &open, 1000), 1000);
        assert_eq!(tmpfs_bytes(Some(&quantity("0")), &open, 1000), 1000);
        let starting = pod(
            vec![container(Some("10"), None)],
            vec![container(Some("5"), Some("Always")), container(Some("300"), None)],
        );
        assert_eq!(tmpfs_bytes(None, &starting, 1000), 305);
    }

    #[test]
    fn a_limit_of_the_pod_itself_comes_first() {
        let resources = container(Some("70"), None).resources;
        let overhead = Some(BTreeMap::from([("memory".to_owned(), quantity("5"))]));
        let spec =
            PodSpec { containers: vec![container(None, None)], resources, overhead, ..PodSpec::default() };
        assert_eq!(tmpfs_bytes(None, &Pod { spec: Some(spec), ..Pod::default() }, 1000), 75);
    }

    proptest! {
        #[test]
        fn no_text_is_too_much(text in "\\PC{0,40}") {
            let _ = bytes(&quantity(&text));
        }

        #[test]
        fn whole_numbers_keep_their_value(number in 0u64..1 << 40) {
            prop_assert_eq!(bytes(&quantity(&number.to_string())), Some(number));
            prop_assert_eq!(bytes(&quantity(&format!("{number}Ki"))), Some(number * 1024));
            prop_assert_eq!(bytes(&quantity(&format!("{number}k"))), Some(number * 1000));
        }

        #[test]
        fn never_more_than_the_node_gives(own in proptest::option::of(0u64..5000), node in 1u64..5000) {
            let own = own.map(|own| quantity(&own.to_string()));
            prop_assert!(tmpfs_bytes(own.as_ref(), &Pod::default(), node) <= node);
        }
    }
}
