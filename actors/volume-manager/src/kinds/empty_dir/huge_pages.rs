//! The page size of a volume in huge pages (row 10.4): from its medium, or from the requests of the pod's
//! containers.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use pod_spec::quantity::Quantity;
use pod_spec::resources::HUGE_PAGES_PREFIX;

const MEDIUM: &str = "HugePages";

/// Bytes of one page of a volume of this medium: `HugePages`, or `HugePages-2Mi`.
///
/// # Errors
/// Upstream's text: no container requests such pages, or the medium names no size and containers request
/// several.
pub fn page_bytes(medium: &str, pod: &Pod) -> Result<u64, String> {
    let own = match medium.strip_prefix(MEDIUM) {
        Some("") => None,
        Some(size) => {
            let bytes = size.strip_prefix('-').and_then(bytes);
            Some(bytes.ok_or_else(|| format!("unknown storage medium {medium:?}"))?)
        }
        None => return Err(format!("unknown storage medium {medium:?}")),
    };
    let asked = asked_for(pod);
    let unasked = || {
        format!(
            "medium {medium}: hugePages storage requested, but there is no resource request for huge pages"
        )
    };
    match own {
        Some(size) => asked.contains(&size).then_some(size).ok_or_else(unasked),
        None if asked.len() > 1 => {
            Err(format!("medium: {medium} can't be used if container requests multiple huge page sizes"))
        }
        None => asked.first().copied().ok_or_else(unasked),
    }
}

fn bytes(text: &str) -> Option<u64> {
    u64::try_from(Quantity::parse(text).ok()?.units_rounded_up()).ok().filter(|bytes| *bytes > 0)
}

/// The sizes of huge pages that the pod or one of its containers requests.
fn asked_for(pod: &Pod) -> BTreeSet<u64> {
    let Some(spec) = &pod.spec else { return BTreeSet::new() };
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let all = containers.map(|container| &container.resources).chain([&spec.resources]);
    let sizes = |resources: &ResourceRequirements| {
        let names = resources.requests.iter().flatten().map(|(name, _)| name);
        names.filter_map(|name| bytes(name.strip_prefix(HUGE_PAGES_PREFIX)?)).collect::<Vec<_>>()
    };
    all.flatten().flat_map(sizes).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::{Container, PodSpec};
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

    use super::*;

    fn pod(requests: &[&str]) -> Pod {
        let container = |name: &&str| {
            let requests = Some(BTreeMap::from([((*name).to_owned(), Text("4Mi".to_owned()))]));
            let resources = Some(ResourceRequirements { requests, ..ResourceRequirements::default() });
            Container { resources, ..Container::default() }
        };
        let containers = requests.iter().map(container).collect();
        Pod { spec: Some(PodSpec { containers, ..PodSpec::default() }), ..Pod::default() }
    }

    #[test]
    fn pages_are_as_large_as_medium_and_containers_say() {
        const SMALL: u64 = 2 << 20;
        let both = pod(&["cpu", "hugepages-2Mi", "hugepages-1Gi"]);
        let one = pod(&["hugepages-2Mi", "hugepages-2Mi"]);
        assert_eq!(page_bytes("HugePages", &one), Ok(SMALL));
        assert_eq!(page_bytes("HugePages-2Mi", &both), Ok(SMALL));
        assert_eq!(page_bytes("HugePages-1Gi", &both), Ok(1 << 30));
        assert_eq!(
            page_bytes("HugePages", &both),
            Err("medium: HugePages can't be used if container requests multiple huge page sizes".to_owned())
        );
        for (medium, pod) in [("HugePages", pod(&["cpu"])), ("HugePages-1Gi", one)] {
            let error = page_bytes(medium, &pod).expect_err("nobody asks for them");
            let text = "hugePages storage requested, but there is no resource request for huge pages";
            assert_eq!(error, format!("medium {medium}: {text}"));
        }
        for medium in ["HugePages-x", "HugePages-", "HugePages-0", "HugePages2Mi", "Tape"] {
            let error = page_bytes(medium, &both).expect_err("no medium");
            assert_eq!(error, format!("unknown storage medium {medium:?}"));
        }
    }
}
