//! Rules on node allocatable, reserved CPUs and reserved memory.

use std::collections::BTreeSet;

use pod_spec::resources::is_huge_pages;

use super::super::KubeletConfiguration;
use super::super::section::FieldValue;
use super::Problems;
use super::words::quoted;

const PODS: &str = "pods";
const NONE: &str = "none";
const SYSTEM: &str = "system-reserved";
const SYSTEM_COMPRESSIBLE: &str = "system-reserved-compressible";
const KUBE: &str = "kube-reserved";
const KUBE_COMPRESSIBLE: &str = "kube-reserved-compressible";
const FIELD: &str = "enforceNodeAllocatable (--enforce-node-allocatable)";

pub(super) fn check(config: &KubeletConfiguration, problems: &mut Problems) {
    let cgroups = &config.cgroups;
    problems.config(!cgroups.system_cgroups.is_empty() && cgroups.cgroup_root.is_empty(), || {
        "systemCgroups (--system-cgroups) was specified and cgroupRoot (--cgroup-root) was not specified"
            .to_owned()
    });
    node_allocatable(config, problems);
    if !cgroups.reserved_system_cpus.is_empty() {
        let cpus = &cgroups.reserved_system_cpus;
        let owned = !cgroups.system_reserved_cgroup.is_empty() || !cgroups.kube_reserved_cgroup.is_empty();
        problems.config(owned, || {
            "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup \
             (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)"
                .to_owned()
        });
        if let Err(error) = parse_cpu_set(cpus) {
            problems.config(true, || {
                format!("unable to parse reservedSystemCPUs (--reserved-cpus) {cpus}, error: {error}")
            });
        }
    }
    reserved_memory(config, problems);
}

fn node_allocatable(config: &KubeletConfiguration, problems: &mut Problems) {
    let cgroups = &config.cgroups;
    let enforced = &cgroups.enforce_node_allocatable;
    let has = |name: &str| enforced.iter().any(|value| value == name);
    for (whole, compressible) in [(SYSTEM, SYSTEM_COMPRESSIBLE), (KUBE, KUBE_COMPRESSIBLE)] {
        problems.config(has(whole) && has(compressible), || {
            format!("both {whole:?} and {compressible:?} cannot be specified together in {FIELD}")
        });
    }
    let mut seen = BTreeSet::new();
    for value in enforced {
        if !seen.insert(value) {
            problems.config(true, || format!("duplicated enforcements {} in {FIELD}", quoted(value)));
            continue;
        }
        match value.as_str() {
            PODS => {}
            SYSTEM | SYSTEM_COMPRESSIBLE => problems.config(cgroups.system_reserved_cgroup.is_empty(), || {
                format!(
                    "systemReservedCgroup (--system-reserved-cgroup) must be specified when {SYSTEM:?} or \
                     {SYSTEM_COMPRESSIBLE:?} included in {FIELD}"
                )
            }),
            KUBE | KUBE_COMPRESSIBLE => problems.config(cgroups.kube_reserved_cgroup.is_empty(), || {
                format!(
                    "kubeReservedCgroup (--kube-reserved-cgroup) must be specified when {KUBE:?} or \
                     {KUBE_COMPRESSIBLE:?} included in {FIELD}"
                )
            }),
            NONE => {
                problems.config(enforced.len() > 1, || {
                    format!("{FIELD} may not contain additional enforcements when {NONE:?} is specified")
                });
                continue;
            }
            other => {
                problems.config(true, || {
                    format!(
                        "option {} specified for {FIELD}. Valid options are {PODS:?}, {SYSTEM:?}, \
                         {SYSTEM_COMPRESSIBLE:?}, {KUBE:?}, {KUBE_COMPRESSIBLE:?} or {NONE:?}",
                        quoted(other)
                    )
                });
                continue;
            }
        }
        problems.config(!cgroups.cgroups_per_qos, || {
            format!(
                "cgroupsPerQOS (--cgroups-per-qos) must be set to true when {} contained in {FIELD}",
                quoted(value)
            )
        });
    }
}

fn reserved_memory(config: &KubeletConfiguration, problems: &mut Problems) {
    let mut seen = BTreeSet::new();
    for reservation in &config.resources.reserved_memory {
        let node = reservation.numa_node;
        for (resource, quantity) in &reservation.limits {
            problems.config(resource != "memory" && !is_huge_pages(resource), || {
                format!(
                    "the limit type {} for NUMA node {node} is not supported, only [memory \
                     hugepages-<HugePageSize>] is accepted",
                    quoted(resource)
                )
            });
            problems.config(quantity.is_zero(), || {
                format!(
                    "reserved memory may not be zero for NUMA node {node} and resource {}",
                    quoted(resource)
                )
            });
            problems.config(!seen.insert((node, resource)), || {
                format!(
                    "the reserved memory has a duplicate value for NUMA node {node} and resource {}",
                    quoted(resource)
                )
            });
        }
    }
}

/// The largest CPU number that is accepted, so that a typing error cannot make a set of a billion.
const CPU_MAX: u32 = 65_535;

/// Reads a set of CPUs in the kernel's form, `0-3,6`.
///
/// # Errors
/// The malformed part, in Go's words.
pub fn parse_cpu_set(text: &str) -> Result<BTreeSet<u32>, String> {
    if text.is_empty() {
        return Ok(BTreeSet::new());
    }
    let mut ranges = Vec::new();
    for range in text.split(',') {
        let mut bounds = range.splitn(2, '-');
        let first = cpu_number(bounds.next().unwrap_or_default())?;
        let last = bounds.next().map_or(Ok(first), cpu_number)?;
        if first > last {
            return Err(format!("invalid range {} ({first} > {last})", quoted(range)));
        }
        ranges.push((first, last));
    }
    // A CPU that several ranges name is work once.
    ranges.sort_unstable();
    let (mut cpus, mut next) = (BTreeSet::new(), 0);
    for (first, last) in ranges {
        cpus.extend(first.max(next)..=last);
        next = next.max(last + 1);
    }
    Ok(cpus)
}

fn cpu_number(text: &str) -> Result<u32, String> {
    let number: u32 =
        text.parse().map_err(|_| format!("strconv.Atoi: parsing {}: invalid syntax", quoted(text)))?;
    if number > CPU_MAX {
        return Err(format!("CPU number {number} is larger than {CPU_MAX}"));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::parse_cpu_set;

    #[test]
    fn cpu_sets_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_cpu_set("0-2,5").map(Vec::from_iter), Ok(vec![0, 1, 2, 5]));
        assert_eq!(parse_cpu_set("").map(|cpus| cpus.len()), Ok(0));
        assert_eq!(parse_cpu_set("4-6,1,0-2,5,2-4").map(Vec::from_iter), Ok(vec![0, 1, 2, 3, 4, 5, 6]));
        assert_eq!(parse_cpu_set(&vec!["0-65535"; 10_000].join(",")).map(|cpus| cpus.len()), Ok(65_536));
        for malformed in ["a", "3-1", "0,", "1-", "-1", "0-4000000000"] {
            assert!(parse_cpu_set(malformed).is_err(), "{malformed}");
        }
    }
}
