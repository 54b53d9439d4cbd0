//! Variables from the resources of containers (row 11.5).

use k8s_openapi::api::core::v1::{Container, ResourceFieldSelector};
use pod_spec::downward::{Defaults, named_resource_text, resource_text};

use super::{EnvError, EnvSources};

/// A request or limit of a container of the pod, in units of the divisor, rounded up.
pub(super) fn resource_value(
    selector: &ResourceFieldSelector,
    container: &Container,
    sources: &EnvSources<'_>,
) -> Result<String, EnvError> {
    let (pod, allocatable) = (sources.pod, sources.allocatable);
    let text = match selector.container_name.as_deref() {
        None | Some("") => resource_text(selector, pod, container, true, allocatable),
        // Of other containers, upstream gives the node's allocatable amount for a missing limit only for
        // regular ones.
        Some(_) => named_resource_text(selector, pod, allocatable, Defaults::Regular),
    };
    text.map_err(EnvError::Resource)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ResourceRequirements;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
    use pod_spec::downward::units;
    use pod_spec::quantity::Quantity;
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
                // Without a limit the value is the node's allocatable amount.
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
