//! The resources and the user that a container really has, where the runtime tells them (row 8.2).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ContainerUser, LinuxContainerUser, PodSpec, PodStatus, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use messages::runtime::Effective;
use pod_spec::quantity::Quantity;
use pod_spec::resources::{pod_limits, pod_requests};

/// Millicores up to which the kernel makes no difference between CPU limits; below, the same for CPU requests.
const CPU_LIMIT_MILLIS_MIN: i64 = 10;
const CPU_REQUEST_MILLIS_MIN: i64 = 2;

/// The allocated resources, with the real amounts of the container in place of those that differ. Amounts too small for
/// the kernel to tell apart stay as allocated, and a list that was not allocated stays absent.
pub(crate) fn resources(
    allocated: ResourceRequirements,
    effective: Option<&Effective>,
) -> ResourceRequirements {
    let mut resources = allocated;
    let Some(effective) = effective else { return resources };
    if let Some(limits) = &mut resources.limits {
        put_millis(limits, effective.cpu_limit_millis, CPU_LIMIT_MILLIS_MIN);
        if let Some(bytes) = effective.memory_limit_bytes {
            put(limits, "memory", &in_bytes(bytes));
        }
    }
    if let Some(requests) = &mut resources.requests {
        put_millis(requests, effective.cpu_request_millis, CPU_REQUEST_MILLIS_MIN);
    }
    resources
}

/// Fills in the resources that were allocated to the pod as a whole.
pub(crate) fn of_pod(spec: &PodSpec, status: &mut PodStatus) {
    let list = |amounts: BTreeMap<String, Quantity>| {
        let texts = amounts.into_iter().map(|(name, amount)| (name, Text(amount.to_string())));
        Some(texts.collect::<BTreeMap<_, _>>()).filter(|texts| !texts.is_empty())
    };
    let requests = list(pod_requests(spec));
    status.allocated_resources.clone_from(&requests);
    let claims = spec.resources.as_ref().and_then(|resources| resources.claims.clone());
    status.resources = Some(ResourceRequirements { claims, limits: list(pod_limits(spec)), requests });
}

/// The user, in the API's form.
pub(crate) fn user(effective: &Effective) -> Option<ContainerUser> {
    let user = effective.user.as_ref()?;
    let groups = Some(user.supplemental_groups.clone()).filter(|groups| !groups.is_empty());
    let linux = LinuxContainerUser { uid: user.uid, gid: user.gid, supplemental_groups: groups };
    Some(ContainerUser { linux: Some(linux) })
}

fn put_millis(amounts: &mut BTreeMap<String, Text>, millis: Option<i64>, min: i64) {
    let Some(millis) = millis else { return };
    let allocated = amounts.get("cpu").and_then(|text| Quantity::parse(&text.0).ok());
    if millis > min || allocated.unwrap_or(Quantity::ZERO).millis_rounded_up() > i128::from(min) {
        put(amounts, "cpu", &format!("{millis}m"));
    }
}

/// Bytes in the largest binary unit that keeps them exact.
fn in_bytes(bytes: i64) -> String {
    if bytes % 1024 == 0 { format!("{}Ki", bytes / 1024) } else { bytes.to_string() }
}

/// Replaces an amount by `text` in canonical form, unless they are equal.
fn put(amounts: &mut BTreeMap<String, Text>, name: &str, text: &str) {
    let Ok(amount) = Quantity::parse(text) else { return };
    let there = amounts.get(name).and_then(|text| Quantity::parse(&text.0).ok());
    if there != Some(amount) {
        amounts.insert(name.to_owned(), Text(amount.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use messages::runtime::User;

    use super::*;

    fn list(amounts: &[(&str, &str)]) -> Option<BTreeMap<String, Text>> {
        Some(amounts.iter().map(|(name, text)| ((*name).to_owned(), Text((*text).to_owned()))).collect())
    }

    #[test]
    fn amounts_that_differ_are_told_and_others_stay_as_written() {
        let allocated = ResourceRequirements {
            limits: list(&[("cpu", "0.25"), ("memory", "64Mi")]),
            requests: list(&[("cpu", "100m"), ("memory", "32Mi")]),
            ..ResourceRequirements::default()
        };
        let same = Effective {
            cpu_limit_millis: Some(250),
            cpu_request_millis: Some(100),
            memory_limit_bytes: Some(64 << 20),
            ..Effective::default()
        };
        assert_eq!(resources(allocated.clone(), Some(&same)), allocated);
        assert_eq!(resources(allocated.clone(), None), allocated);
        let other = Effective {
            cpu_limit_millis: Some(1500),
            cpu_request_millis: Some(1000),
            memory_limit_bytes: Some((96 << 20) + 1),
            ..Effective::default()
        };
        let told = resources(allocated, Some(&other));
        assert_eq!(told.limits, list(&[("cpu", "1500m"), ("memory", "100663297")]));
        assert_eq!(told.requests, list(&[("cpu", "1"), ("memory", "32Mi")]));
    }

    #[test]
    fn what_the_kernel_cannot_tell_apart_and_what_was_not_allocated_stay() {
        let least =
            Effective { cpu_limit_millis: Some(10), cpu_request_millis: Some(2), ..Effective::default() };
        let allocated = ResourceRequirements {
            limits: list(&[("cpu", "5m")]),
            requests: list(&[("cpu", "1m")]),
            ..ResourceRequirements::default()
        };
        assert_eq!(resources(allocated.clone(), Some(&least)), allocated);
        assert_eq!(resources(ResourceRequirements::default(), Some(&least)), Default::default());
        let memory = ResourceRequirements { requests: list(&[("memory", "1Mi")]), ..Default::default() };
        assert_eq!(resources(memory.clone(), Some(&least)), memory);
    }

    #[test]
    fn a_pod_is_allocated_what_its_containers_are_together() {
        use k8s_openapi::api::core::v1::Container;
        let container = |cpu: &str| Container {
            name: cpu.to_owned(),
            resources: Some(ResourceRequirements { requests: list(&[("cpu", cpu)]), ..Default::default() }),
            ..Container::default()
        };
        let spec = PodSpec { containers: vec![container("100m"), container("1900m")], ..PodSpec::default() };
        let mut status = PodStatus::default();
        of_pod(&spec, &mut status);
        assert_eq!(status.allocated_resources, list(&[("cpu", "2")]));
        let expected = ResourceRequirements { requests: list(&[("cpu", "2")]), ..Default::default() };
        assert_eq!(status.resources, Some(expected));
        of_pod(&PodSpec::default(), &mut status);
        assert_eq!((status.allocated_resources, status.resources), (None, Some(Default::default())));
    }

    #[test]
    fn the_user_is_told_where_the_runtime_tells_it() {
        assert_eq!(user(&Effective::default()), None);
        let known = User { uid: 1, gid: 2, supplemental_groups: vec![] };
        let linux = user(&Effective { user: Some(known), ..Effective::default() }).unwrap().linux.unwrap();
        assert_eq!((linux.uid, linux.gid, linux.supplemental_groups), (1, 2, None));
    }
}
