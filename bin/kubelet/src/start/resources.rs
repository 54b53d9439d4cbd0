//! CPUs, memory and their managers: configurations with which upstream's managers do not start.

use std::collections::BTreeMap;

use super::{HostFacts, StartupFindings};
use crate::config::validation::parse_cpu_set;
use crate::load::Loaded;

const CPU_POLICY: &str = "cpuManagerPolicy";
const CPU_OPTIONS: &str = "cpuManagerPolicyOptions";
const TOPOLOGY_OPTIONS: &str = "topologyManagerPolicyOptions";
/// The most NUMA nodes that upstream's topology manager accepts by default.
const NUMA_NODES_DEFAULT: u32 = 8;

pub(super) fn check(loaded: &Loaded, machine: &HostFacts, verdict: &mut StartupFindings) {
    let driver = loaded.config.cgroups.cgroup_driver.as_str();
    if !["cgroupfs", "systemd"].contains(&driver) {
        verdict.warnings.push(format!(
            "cgroupDriver: {driver:?} is neither \"cgroupfs\" nor \"systemd\"; cgroupfs is taken unless the CRI runtime \
             tells its own"
        ));
    }
    let system = loaded.config.cgroups.system_cgroups.as_str();
    let is_root = !system.is_empty() && system.bytes().all(|byte| byte == b'/');
    verdict.refuse(is_root, "systemCgroups", system, || "system container cannot be root (\"/\")".to_owned());
    reserved_cpus(loaded, machine, verdict);
    qos_reserved(&loaded.config.cgroups.qos_reserved, verdict);
    cpu_manager(loaded, verdict);
    memory_manager(loaded, verdict);
    topology_manager(loaded, verdict);
}

fn reserved_cpus(loaded: &Loaded, machine: &HostFacts, verdict: &mut StartupFindings) {
    let reserved = loaded.config.cgroups.reserved_system_cpus.as_str();
    let online = machine.facts.cpus_online.as_str();
    if online.is_empty() {
        return;
    }
    if let (Ok(wanted), Ok(there)) = (parse_cpu_set(reserved), parse_cpu_set(online)) {
        verdict.refuse(!wanted.is_subset(&there), "reservedSystemCPUs", reserved, || {
            format!("reserved-cpus: {reserved} is not a subset of online-cpus: {online}")
        });
    }
}

fn qos_reserved(reserved: &BTreeMap<String, String>, verdict: &mut StartupFindings) {
    for (resource, text) in reserved {
        let value = || format!("{resource}={text}");
        if resource != "memory" {
            verdict.refuse(true, "qosReserved", value(), || format!("cannot reserve {resource:?} resource"));
            continue;
        }
        let wrong = match text.strip_suffix('%').map(str::parse::<i64>) {
            None => Some(format!("percentage expected, got '{text}'")),
            Some(Err(_)) => Some(format!("invalid number in percentage '{text}'")),
            Some(Ok(0..=100)) => None,
            Some(Ok(_)) => Some("percentage must be between 0 and 100".to_owned()),
        };
        if let Some(wrong) = wrong {
            verdict.refuse(true, "qosReserved", value(), || {
                format!("failed to parse percentage {text:?} for {resource:?} resource: {wrong}")
            });
        }
    }
}

fn listed(options: &BTreeMap<String, String>) -> String {
    options.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}

fn is_true(options: &BTreeMap<String, String>, name: &str) -> bool {
    options.get(name).is_some_and(|value| go_bool(value) == Some(true))
}

/// Parses a boolean as Go's `strconv.ParseBool` does.
fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn cpu_manager(loaded: &Loaded, verdict: &mut StartupFindings) {
    let (cgroups, resources) = (&loaded.config.cgroups, &loaded.config.resources);
    let policy = resources.cpu_manager_policy.as_str();
    let options = &resources.cpu_manager_policy_options;
    match policy {
        "none" => verdict.refuse(!options.is_empty(), CPU_OPTIONS, listed(options), || {
            "None policy: received unsupported options".to_owned()
        }),
        "static" => {
            let some = |reserved: &BTreeMap<String, String>| {
                reserved.get("cpu").is_some_and(|text| {
                    pod_spec::quantity::Quantity::parse(text).is_ok_and(|cpu| cpu.signum() > 0)
                })
            };
            let reserved = !cgroups.reserved_system_cpus.is_empty()
                || some(&cgroups.system_reserved)
                || some(&cgroups.kube_reserved);
            verdict.refuse(!reserved, CPU_POLICY, policy, || {
                "the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"
                    .to_owned()
            });
            cpu_options(loaded, verdict);
        }
        other => verdict.refuse(true, CPU_POLICY, other, || format!("unknown policy: {other:?}")),
    }
}

fn cpu_options(loaded: &Loaded, verdict: &mut StartupFindings) {
    const ALPHA: &str = "CPUManagerPolicyAlphaOptions";
    const BETA: &str = "CPUManagerPolicyBetaOptions";
    const CORES: &str = "distribute-cpus-across-cores";
    let options = &loaded.config.resources.cpu_manager_policy_options;
    for (name, value) in options {
        let gate = match name.as_str() {
            "full-pcpus-only" | "strict-cpu-reservation" | "prefer-align-cpus-by-uncorecache" => None,
            "distribute-cpus-across-numa" => Some(("Beta", BETA)),
            "align-by-socket" | CORES => Some(("Alpha", ALPHA)),
            _ => {
                verdict.refuse(true, CPU_OPTIONS, name, || {
                    format!("unknown CPU Manager Policy option: {name:?}")
                });
                continue;
            }
        };
        if let Some((stage, gate)) = gate {
            verdict.refuse(!loaded.gates.enabled(gate), CPU_OPTIONS, name, || {
                format!("CPU Manager Policy {stage}-level Options not enabled, but option {name:?} provided")
            });
        }
        verdict.refuse(go_bool(value).is_none(), CPU_OPTIONS, format!("{name}={value}"), || {
            format!("bad value for option {name:?}")
        });
    }
    for (one, other) in [
        ("full-pcpus-only", CORES),
        ("distribute-cpus-across-numa", CORES),
        ("prefer-align-cpus-by-uncorecache", CORES),
        ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
    ] {
        verdict.refuse(
            is_true(options, one) && is_true(options, other),
            CPU_OPTIONS,
            listed(options),
            || format!("static policy options {one} and {other} can not be used at the same time"),
        );
    }
}

fn memory_manager(loaded: &Loaded, verdict: &mut StartupFindings) {
    const FIELD: &str = "memoryManagerPolicy";
    match loaded.config.resources.memory_manager_policy.as_str() {
        "None" | "Static" => {}
        "BestEffort" => verdict.refuse(true, FIELD, "BestEffort", || {
            "policy \"BestEffort\" is not available for platform \"linux\"".to_owned()
        }),
        other => verdict.refuse(true, FIELD, other, || format!("unknown policy: {other:?}")),
    }
}

fn topology_manager(loaded: &Loaded, verdict: &mut StartupFindings) {
    let resources = &loaded.config.resources;
    // Without a policy, upstream ignores the options.
    if resources.topology_manager_policy == "none" {
        return;
    }
    for (name, value) in &resources.topology_manager_policy_options {
        let wrong = match name.as_str() {
            "prefer-closest-numa-nodes" => {
                go_bool(value).is_none().then(|| format!("bad value for option {name:?}"))
            }
            "max-allowable-numa-nodes" => match value.parse::<u32>() {
                Err(_) => Some(format!("unable to convert policy option to integer {name:?}")),
                Ok(NUMA_NODES_DEFAULT..) => None,
                Ok(_) => Some(format!(
                    "the minimum value of {name:?} should not be less than {NUMA_NODES_DEFAULT}"
                )),
            },
            _ => Some(format!("unknown Topology Manager Policy option: {name:?}")),
        };
        if let Some(wrong) = wrong {
            verdict.refuse(true, TOPOLOGY_OPTIONS, format!("{name}={value}"), || wrong);
        }
    }
}
