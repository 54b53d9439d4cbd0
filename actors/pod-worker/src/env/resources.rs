//! Variables from the resources of containers (row 11.5).

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use messages::quantity::Quantity;
use messages::resources::{Amounts, amounts, is_huge_pages, parsed};

use super::{EnvError, EnvSources};
use crate::spec::PodView;

/// What a container without a limit may use as much of as there is.
const DEFAULTED: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// An amount of a container of the pod, in units of the divisor, rounded up.
pub(super) fn resource_value(
    selector: &ResourceFieldSelector,
    container: &Container,
    sources: &EnvSources<'_>,
) -> Result<String, EnvError> {
    let Some(name) = selector.container_name.as_deref().filter(|name| !name.is_empty()) else {
        return value_of(selector, container, true, sources);
    };
    let view = PodView::of(sources.pod);
    let named = |containers: &'_ [Container]| containers.iter().position(|one| one.name == name);
    // Of other containers upstream gives only regular ones what the node has where they have no limit.
    if let Some(at) = named(view.regular()) {
        value_of(selector, &view.regular()[at], true, sources)
    } else if let Some(at) = named(view.init()) {
        value_of(selector, &view.init()[at], false, sources)
    } else {
        Err(EnvError::Resource(format!("container {name} not found")))
    }
}

fn value_of(
    selector: &ResourceFieldSelector,
    container: &Container,
    defaulted: bool,
    sources: &EnvSources<'_>,
) -> Result<String, EnvError> {
    let unsupported =
        || EnvError::Resource(format!("unsupported container resource : {}", selector.resource));
    let (list, name) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    let which = match list {
        "limits" => Amounts::Limits,
        "requests" => Amounts::Requests,
        _ => return Err(unsupported()),
    };
    if !DEFAULTED.contains(&name) && !is_huge_pages(name) {
        return Err(unsupported());
    }
    let own = amounts(container, which).get(name).copied();
    let amount = match own.filter(|amount| amount.signum() != 0) {
        None if defaulted && which == Amounts::Limits => limit_of_all(sources.pod, name, sources),
        own => own,
    };
    Ok(units(name, amount.unwrap_or(Quantity::ZERO), divisor(selector)).to_string())
}

/// What there is: for the pod as a whole if it has limits of its own, else on the node.
fn limit_of_all(pod: &Pod, name: &str, sources: &EnvSources<'_>) -> Option<Quantity> {
    if !DEFAULTED.contains(&name) {
        return None;
    }
    let node = sources.allocatable.get(name).copied()?;
    let of_pod = || {
        let resources = pod.spec.as_ref()?.resources.as_ref()?;
        let own = *parsed(resources.limits.as_ref()).get(name)?;
        // Upstream knows pod-level limits of these two alone.
        (matches!(name, "cpu" | "memory") && own.signum() != 0).then_some(own)
    };
    Some(of_pod().unwrap_or(node))
}

fn divisor(selector: &ResourceFieldSelector) -> Quantity {
    let given = selector.divisor.as_ref().and_then(|text| Quantity::parse(&text.0).ok());
    let one = || Quantity::parse("1").expect("one is a quantity");
    given.filter(|divisor| divisor.signum() > 0).unwrap_or_else(one)
}

/// CPU in thousandths, all else in whole units, each rounded up before it is divided, as upstream has it.
fn units(name: &str, amount: Quantity, divisor: Quantity) -> i128 {
    let whole = |quantity: Quantity| {
        if name == "cpu" { quantity.millis_rounded_up() } else { i128::from(quantity.units_rounded_up()) }
    };
    let (amount, divisor) = (whole(amount), whole(divisor).max(1));
    amount.div_euclid(divisor) + i128::from(amount.rem_euclid(divisor) != 0)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ResourceRequirements;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
    use proptest::prelude::*;

    use super::*;
    use crate::env::tests::with_sources;
    use crate::fixtures::{container, pod};

    fn limited(name: &str, limits: &[(&str, &str)], requests: &[(&str, &str)]) -> Container {
        let list = |items: &[(&str, &str)]| {
            Some(items.iter().map(|(name, text)| ((*name).to_owned(), Text((*text).to_owned()))).collect())
        };
        let resources = ResourceRequirements {
            limits: list(limits),
            requests: list(requests),
            ..ResourceRequirements::default()
        };
        Container { resources: Some(resources), ..container(name) }
    }

    fn selector(resource: &str, divisor: &str, container: &str) -> ResourceFieldSelector {
        ResourceFieldSelector {
            container_name: Some(container.to_owned()),
            divisor: Some(Text(divisor.to_owned())),
            resource: resource.to_owned(),
        }
    }

    #[test]
    fn amounts_are_divided_and_rounded_up() {
        let main = limited(
            "main",
            &[("cpu", "1500m"), ("memory", "64Mi"), ("hugepages-2Mi", "4Mi"), ("ephemeral-storage", "1k")],
            &[("cpu", "250m"), ("memory", "33Mi")],
        );
        let free = container("free");
        let init = container("init");
        let pod = pod("Always", vec![init], vec![main.clone(), free]);
        with_sources(&pod, |sources| {
            let of = |resource: &str, divisor: &str, container: &str| {
                resource_value(&selector(resource, divisor, container), &main, sources)
                    .map_err(|error| error.to_string())
            };
            for (resource, divisor, container, expected) in [
                ("limits.cpu", "0", "", "2"),
                ("limits.cpu", "1m", "", "1500"),
                ("requests.cpu", "1", "", "1"),
                ("requests.cpu", "100m", "", "3"),
                ("limits.memory", "", "", "67108864"),
                ("limits.memory", "1Mi", "", "64"),
                ("requests.memory", "32Mi", "", "2"),
                ("limits.hugepages-2Mi", "1Mi", "", "4"),
                ("requests.hugepages-2Mi", "1Mi", "", "0"),
                ("limits.ephemeral-storage", "0", "", "1000"),
                ("requests.ephemeral-storage", "0", "", "0"),
                // Without a limit: what pods may have of the node.
                ("limits.cpu", "0", "free", "4"),
                ("limits.memory", "1Gi", "free", "8"),
                ("limits.ephemeral-storage", "1Gi", "free", "100"),
                ("limits.hugepages-2Mi", "0", "free", "0"),
                ("requests.cpu", "0", "free", "0"),
                ("limits.cpu", "0", "init", "0"),
            ] {
                let value = of(resource, divisor, container);
                assert_eq!(value, Ok(expected.to_owned()), "{resource} {divisor:?} of {container:?}");
            }
            assert_eq!(of("limits.cpu", "0", "none"), Err("container none not found".into()));
            assert_eq!(of("limits.gpu", "0", ""), Err("unsupported container resource : limits.gpu".into()));
            assert_eq!(of("cpu", "0", ""), Err("unsupported container resource : cpu".into()));
        });
    }

    #[test]
    fn a_limit_of_the_pod_comes_before_the_nodes() {
        let free = container("free");
        let mut pod = pod("Always", vec![], vec![free.clone()]);
        let limits =
            limited("", &[("cpu", "2"), ("memory", "1Gi"), ("ephemeral-storage", "1Gi")], &[]).resources;
        pod.spec.as_mut().expect("spec").resources = limits;
        with_sources(&pod, |sources| {
            let of = |resource: &str| resource_value(&selector(resource, "0", ""), &free, sources);
            assert_eq!(of("limits.cpu").expect("known"), "2");
            assert_eq!(of("limits.memory").expect("known"), (1u64 << 30).to_string());
            assert_eq!(of("limits.ephemeral-storage").expect("known"), (100u64 << 30).to_string());
        });
    }

    proptest! {
        #[test]
        fn never_less_than_there_is(bytes in 0i64..1 << 50, divisor in 1i64..1 << 40) {
            let quantity = |n: i64| Quantity::parse(&n.to_string()).expect("a number");
            let units = units("memory", quantity(bytes), quantity(divisor));
            let (bytes, divisor) = (i128::from(bytes), i128::from(divisor));
            prop_assert!(units * divisor >= bytes && (units - 1) * divisor < bytes.max(1));
        }
    }
}
