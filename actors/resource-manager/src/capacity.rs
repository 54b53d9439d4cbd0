//! PURE: the node's capacity, the part of it that pods may use, and the limits of the cgroup of all pods (row 13.4).

use std::collections::BTreeMap;

use pod_rules::signals;
use pod_rules::thresholds::Value as Threshold;
use pod_spec::quantity::Quantity;
use pod_spec::resources::{HUGE_PAGES_PREFIX, NodeResources, is_huge_pages};

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

/// Upstream's name for processes and threads, which no Node's status shows.
pub const PIDS: &str = "pid";
/// The resources that can be reserved for the system and for Kubernetes' own processes.
const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", PIDS];

/// The resources of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineCapacity {
    /// Logical CPUs.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Bytes of the file system of the kubelet's directory; `None` if local storage is not accounted for.
    pub storage_bytes: Option<u64>,
    /// Number of huge pages set aside, by page size in bytes.
    pub huge_pages: BTreeMap<u64, u64>,
    /// How many processes and threads there can be at once; `None` if that is unknown.
    pub pids: Option<u64>,
}

/// What is withheld from pods, and how many pods there may be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reservations {
    /// `kubeReserved`
    pub kube: Amounts,
    /// `systemReserved`
    pub system: Amounts,
    /// `evictionHard`: thresholds by signal.
    pub eviction_hard: BTreeMap<String, Threshold>,
    /// `maxPods`
    pub pods_max: u64,
    /// `podsPerCore`; 0 for no such bound.
    pub pods_per_core: u64,
}

/// A configuration value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapacityError {
    /// The resource is not one that can be reserved.
    #[error("cannot reserve {0:?} resource")]
    Unreservable(String),
    /// The text is not a quantity.
    #[error("failed to parse quantity {text:?} for {name:?} resource: {reason}")]
    NoQuantity {
        /// The resource.
        name: String,
        /// The text.
        text: String,
        /// Why it is not.
        reason: String,
    },
    /// The quantity is negative.
    #[error("resource quantity for {name:?} cannot be negative: {text}")]
    Negative {
        /// The resource.
        name: String,
        /// The text.
        text: String,
    },
    /// A threshold that is neither a quantity nor a percentage.
    #[error("eviction threshold {signal} must be a positive quantity or a percentage: {text}")]
    BadThreshold {
        /// The signal.
        signal: String,
        /// The text.
        text: String,
    },
    /// More is reserved than the machine has; the text names each resource.
    #[error("invalid Node Allocatable configuration. {0}")]
    TooMuch(String),
}

/// Reads `kubeReserved` or `systemReserved`.
///
/// # Errors
/// Upstream's error for the first resource that cannot be reserved, or not with this quantity.
pub fn reserved(texts: &BTreeMap<String, String>) -> Result<Amounts, CapacityError> {
    let amount = |(name, text): (&String, &String)| {
        if !RESERVABLE.contains(&name.as_str()) {
            return Err(CapacityError::Unreservable(name.clone()));
        }
        let (name, text) = (name.clone(), text.clone());
        match Quantity::parse(&text) {
            Err(error) => Err(CapacityError::NoQuantity { name, text, reason: error.to_string() }),
            Ok(quantity) if quantity.signum() < 0 => Err(CapacityError::Negative { name, text }),
            Ok(quantity) => Ok((name, quantity)),
        }
    };
    texts.iter().map(amount).collect()
}

/// Reads `evictionHard`; `0%` and `100%` switch a signal off.
///
/// # Errors
/// [`CapacityError::BadThreshold`] for the first text that is no threshold.
pub fn thresholds(texts: &BTreeMap<String, String>) -> Result<BTreeMap<String, Threshold>, CapacityError> {
    let mut read = BTreeMap::new();
    for (signal, text) in texts.iter().filter(|(_, text)| *text != "0%" && *text != "100%") {
        let bad = || CapacityError::BadThreshold { signal: signal.clone(), text: text.clone() };
        let threshold = Threshold::parse(text).map_err(|_| bad())?;
        let fits = match threshold {
            Threshold::Part(part) => (0.0..=1.0).contains(&part),
            Threshold::Amount(amount) => amount.signum() > 0,
        };
        if !fits {
            return Err(bad());
        }
        read.insert(signal.clone(), threshold);
    }
    Ok(read)
}

/// The Node's `status.capacity` and `status.allocatable`: the latter is the capacity less reservations and hard
/// eviction thresholds, memory also less huge pages, and never negative.
pub fn node_resources(machine: &MachineCapacity, reservations: &Reservations) -> NodeResources {
    let capacity = capacity(machine, reservations);
    let mut allocatable = less(&capacity, &kept_back(&capacity, reservations));
    let huge = capacity.iter().filter(|(name, _)| is_huge_pages(name)).map(|(_, amount)| *amount);
    let huge = huge.fold(Quantity::ZERO, Quantity::plus);
    if let Some(memory) = allocatable.get_mut("memory") {
        *memory = at_least_nothing(memory.minus(huge));
    }
    NodeResources { capacity, allocatable }
}

/// The limits of the cgroup of all pods. With `pods` (`enforceNodeAllocatable`) they are the capacity less
/// reservations, while eviction thresholds and huge pages are not taken off; otherwise they are the whole capacity.
pub fn enforced(machine: &MachineCapacity, reservations: &Reservations, pods: bool) -> Amounts {
    let mut all = compute(machine);
    all.extend(machine.pids.map(|pids| (PIDS.to_owned(), Quantity::decimal(pids))));
    if !pods {
        return all;
    }
    less(&less(&all, &reservations.system), &reservations.kube)
}

/// Checks that the machine has what is reserved.
///
/// # Errors
/// Upstream's error, which names every resource of which the machine has less.
pub fn validate(machine: &MachineCapacity, reservations: &Reservations) -> Result<(), CapacityError> {
    let capacity = capacity(machine, reservations);
    let kept = kept_back(&capacity, reservations);
    let short = |(name, kept): (&String, &Quantity)| {
        let there = capacity.get(name).filter(|there| *there < kept)?;
        Some(format!(
            "Resource {name:?} has a reservation of {kept} but capacity of {there}. Expected capacity >= reservation."
        ))
    };
    let short: Vec<String> = kept.iter().filter_map(short).collect();
    if short.is_empty() { Ok(()) } else { Err(CapacityError::TooMuch(short.join(" "))) }
}

fn compute(machine: &MachineCapacity) -> Amounts {
    let mut all = Amounts::from([
        ("cpu".to_owned(), Quantity::decimal(machine.cpus.into())),
        ("memory".to_owned(), Quantity::binary(machine.memory_bytes)),
    ]);
    all.extend(machine.huge_pages.iter().map(|(size, pages)| {
        let name = format!("{HUGE_PAGES_PREFIX}{}", Quantity::binary(*size));
        (name, Quantity::binary(size.saturating_mul(*pages)))
    }));
    all
}

fn capacity(machine: &MachineCapacity, reservations: &Reservations) -> Amounts {
    let mut all = compute(machine);
    let pods = match reservations.pods_per_core {
        0 => reservations.pods_max,
        per_core => per_core.saturating_mul(machine.cpus.into()).min(reservations.pods_max),
    };
    all.insert("pods".to_owned(), Quantity::decimal(pods));
    let storage = machine.storage_bytes.map(Quantity::binary);
    all.extend(storage.map(|storage| ("ephemeral-storage".to_owned(), storage)));
    all.extend(machine.pids.map(|pids| (PIDS.to_owned(), Quantity::decimal(pids))));
    all
}

/// The amounts that are withheld from pods, of each resource that the machine has.
fn kept_back(capacity: &Amounts, reservations: &Reservations) -> Amounts {
    let signal = |resource: &str| match resource {
        "memory" => reservations.eviction_hard.get(signals::MEMORY_AVAILABLE),
        "ephemeral-storage" => reservations.eviction_hard.get(signals::NODE_FS_AVAILABLE),
        _ => None,
    };
    let kept = |(name, there): (&String, &Quantity)| {
        let evicted = signal(name).map(|threshold| threshold.of(*there));
        let of = |amounts: &Amounts| amounts.get(name).copied();
        let all = [of(&reservations.system), of(&reservations.kube), evicted];
        let sum = all.into_iter().flatten().fold(Quantity::ZERO, Quantity::plus);
        (sum.signum() > 0).then(|| (name.clone(), sum))
    };
    capacity.iter().filter_map(kept).collect()
}

fn less(amounts: &Amounts, kept: &Amounts) -> Amounts {
    let of = |(name, amount): (&String, &Quantity)| {
        let left = kept.get(name).map_or(*amount, |kept| at_least_nothing(amount.minus(*kept)));
        (name.clone(), left)
    };
    amounts.iter().map(of).collect()
}

fn at_least_nothing(amount: Quantity) -> Quantity {
    if amount.signum() < 0 { Quantity::ZERO } else { amount }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    fn shown(amounts: &Amounts) -> Vec<String> {
        amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect()
    }

    fn machine() -> MachineCapacity {
        MachineCapacity {
            cpus: 4,
            memory_bytes: 8 << 30,
            storage_bytes: Some(100 << 30),
            huge_pages: [(2 << 20, 512), (1 << 30, 0)].into(),
            pids: Some(32_768),
        }
    }

    fn reservations(kube: &[(&str, &str)], system: &[(&str, &str)], hard: &[(&str, &str)]) -> Reservations {
        Reservations {
            kube: reserved(&texts(kube)).unwrap(),
            system: reserved(&texts(system)).unwrap(),
            eviction_hard: thresholds(&texts(hard)).unwrap(),
            pods_max: 110,
            pods_per_core: 0,
        }
    }

    #[test]
    fn without_reservations_all_but_huge_pages_is_allocatable() {
        let node = node_resources(&machine(), &reservations(&[], &[], &[]));
        let mut expected = [
            "cpu=4",
            "ephemeral-storage=100Gi",
            "hugepages-1Gi=0",
            "hugepages-2Mi=1Gi",
            "memory=8Gi",
            "pid=32768",
            "pods=110",
        ];
        assert_eq!(shown(&node.capacity), expected);
        expected[4] = "memory=7Gi";
        assert_eq!(shown(&node.allocatable), expected);
    }

    #[test]
    fn what_is_reserved_and_what_eviction_keeps_free_is_taken_off() {
        let kept = reservations(
            &[("cpu", "500m"), ("memory", "512Mi"), ("ephemeral-storage", "10Gi"), ("pid", "768")],
            &[("cpu", "250m"), ("memory", "512Mi")],
            &[("memory.available", "1Gi"), ("nodefs.available", "10%"), ("imagefs.available", "15%")],
        );
        let node = node_resources(&machine(), &kept);
        let expected =
            ["cpu=3250m", "hugepages-1Gi=0", "hugepages-2Mi=1Gi", "memory=5Gi", "pid=32k", "pods=110"];
        let mut allocatable = shown(&node.allocatable);
        allocatable.remove(1);
        assert_eq!(allocatable, expected);
        // 10 % in single precision is a little more than a tenth.
        let storage = node.allocatable["ephemeral-storage"].units_rounded_up();
        assert!((storage - (80_i64 << 30)).abs() < 4096, "{storage}");
        assert_eq!(validate(&machine(), &kept), Ok(()));

        // Eviction thresholds and huge pages are not taken off the limits of all pods together.
        let held = enforced(&machine(), &kept, true);
        let expected = ["cpu=3250m", "hugepages-1Gi=0", "hugepages-2Mi=1Gi", "memory=7Gi", "pid=32k"];
        assert_eq!(shown(&held), expected);
        let all = ["cpu=4", "hugepages-1Gi=0", "hugepages-2Mi=1Gi", "memory=8Gi", "pid=32768"];
        assert_eq!(shown(&enforced(&machine(), &kept, false)), all);
    }

    #[test]
    fn nothing_becomes_negative_and_too_much_is_refused() {
        let kept = reservations(&[("cpu", "3")], &[("cpu", "2"), ("memory", "7680Mi")], &[]);
        let node = node_resources(&machine(), &kept);
        assert_eq!((node.allocatable["cpu"], node.allocatable["memory"]), (Quantity::ZERO, Quantity::ZERO));
        assert_eq!(enforced(&machine(), &kept, true)["cpu"], Quantity::ZERO);
        assert_eq!(
            validate(&machine(), &kept).unwrap_err().to_string(),
            "invalid Node Allocatable configuration. Resource \"cpu\" has a reservation of 5 but capacity of 4. \
             Expected capacity >= reservation."
        );
    }

    #[test]
    fn pods_per_core_bound_pods() {
        for (per_core, expected) in [(0, 110), (10, 40), (100, 110)] {
            let kept = Reservations { pods_per_core: per_core, ..reservations(&[], &[], &[]) };
            assert_eq!(node_resources(&machine(), &kept).capacity["pods"], Quantity::decimal(expected));
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_in_upstreams_words() {
        let refused = |name, text| reserved(&texts(&[(name, text)])).unwrap_err().to_string();
        assert_eq!(refused("pods", "1"), "cannot reserve \"pods\" resource");
        assert_eq!(refused("cpu", "-1"), "resource quantity for \"cpu\" cannot be negative: -1");
        assert!(
            refused("memory", "1x").starts_with("failed to parse quantity \"1x\" for \"memory\" resource: ")
        );
        let off = thresholds(&texts(&[("memory.available", "0%"), ("nodefs.available", "100%")])).unwrap();
        assert!(off.is_empty());
        for text in ["-1%", "101%", "x%", "0", "-1Gi", "much"] {
            assert!(thresholds(&texts(&[("memory.available", text)])).is_err(), "{text}");
        }
    }
}
