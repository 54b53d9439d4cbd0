//! PURE: a cgroup and its values as a systemd slice, with the properties that libcontainer's systemd managers set, for
//! both versions.

use std::borrow::Cow;

use super::values::weight;
use super::{CgroupValues, CgroupVersion, CpuLimit, Limit};

/// systemd's value for "no limit".
const INFINITY: u64 = u64::MAX;
/// The first version of systemd that has `CPUQuotaPeriodUSec`.
const KNOWS_PERIODS: u32 = 242;
/// systemd keeps CPU quotas in whole hundredths of a CPU: this many microseconds of each second.
const QUOTA_STEP_US: u64 = 10_000;
const SECOND_US: u64 = 1_000_000;

/// A property of a unit.
pub(super) type Property = (&'static str, Setting);

/// The value of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Flag(bool),
    Number(u64),
    Text(String),
    Texts(Vec<String>),
}

/// The unit of a cgroup, and the unit above: `/a.slice/a-b.slice` is `a-b.slice` in `a.slice`.
pub(super) fn unit(cgroup: &str) -> (&str, &str) {
    let (above, unit) = cgroup.rsplit_once('/').unwrap_or(("", cgroup));
    let parent = above.rsplit('/').next().unwrap_or_default();
    (unit, if parent.is_empty() { "-.slice" } else { parent })
}

/// The properties of every new slice: all accounting is on, since the kernel has trouble with accounting that is
/// switched on later. A slice has no `Delegate`: systemd refuses it, and below a slice there are only units.
pub(super) fn made_with(cgroup: &str, version: CgroupVersion) -> Vec<Property> {
    let (unit, parent) = unit(cgroup);
    let io = if version == CgroupVersion::V2 { "IOAccounting" } else { "BlockIOAccounting" };
    let accounting = ["MemoryAccounting", "CPUAccounting", io, "TasksAccounting"];
    let mut properties = vec![
        ("Description", Setting::Text(format!("kubelet cgroup {unit}"))),
        ("Wants", Setting::Texts(vec![parent.to_owned()])),
    ];
    properties.extend(accounting.map(|name| (name, Setting::Flag(true))));
    properties.push(("DefaultDependencies", Setting::Flag(false)));
    properties
}

/// The values as properties of systemd, which has none for huge pages. `systemd` is its version.
pub(super) fn limits(values: &CgroupValues, version: CgroupVersion, systemd: u32) -> Vec<Property> {
    let unified = version == CgroupVersion::V2;
    let number = |limit: Limit| match limit {
        Limit::Unlimited => INFINITY,
        Limit::At(amount) => amount,
    };
    let mut properties = Vec::new();
    let mut put = |name, value| properties.push((name, Setting::Number(value)));
    if let Some(memory) = values.memory {
        put(if unified { "MemoryMax" } else { "MemoryLimit" }, number(memory));
    }
    match values.cpu_shares {
        Some(shares) if unified => put("CPUWeight", weight(shares)),
        Some(shares) => put("CPUShares", shares),
        None => {}
    }
    if let Some(cpu) = values.cpu {
        if systemd >= KNOWS_PERIODS {
            put("CPUQuotaPeriodUSec", cpu.period_us);
        }
        put("CPUQuotaPerSecUSec", per_second(cpu).unwrap_or(INFINITY));
    }
    if let Some(pids) = values.pids {
        // systemd accepts no bound of 0.
        put("TasksMax", number(pids).max(1));
    }
    properties
}

/// Microseconds of CPU time per second, rounded up to systemd's step; `None` without a limit.
fn per_second(cpu: CpuLimit) -> Option<u64> {
    let Limit::At(quota) = cpu.quota_us else { return None };
    let exact = quota.saturating_mul(SECOND_US) / cpu.period_us.max(1);
    Some(exact.div_ceil(QUOTA_STEP_US).saturating_mul(QUOTA_STEP_US))
}

/// The values with the CPU quota as systemd rounds it. The kernel's file must hold the rounded value, or systemd and
/// the kubelet would overwrite each other's.
pub(super) fn kept(values: &CgroupValues) -> Cow<'_, CgroupValues> {
    let rounded = values.cpu.and_then(|cpu| {
        let quota = per_second(cpu)?.saturating_mul(cpu.period_us) / SECOND_US;
        (cpu.quota_us != Limit::At(quota)).then_some(CpuLimit { quota_us: Limit::At(quota), ..cpu })
    });
    match rounded {
        Some(cpu) => Cow::Owned(CgroupValues { cpu: Some(cpu), ..values.clone() }),
        None => Cow::Borrowed(values),
    }
}

/// The number at the beginning of systemd's version text: 245 for `v245.4-1.fc32`; 0 if there is none.
pub(super) fn version_number(text: &str) -> u32 {
    let text = text.trim_start_matches(['"', 'v']);
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(properties: &[Property]) -> Vec<(&str, u64)> {
        let number = |setting: &Setting| match setting {
            Setting::Number(number) => *number,
            other => panic!("{other:?} is no number"),
        };
        properties.iter().map(|(name, setting)| (*name, number(setting))).collect()
    }

    fn values() -> CgroupValues {
        CgroupValues {
            cpu_shares: Some(512),
            cpu: Some(CpuLimit { quota_us: Limit::At(50_500), period_us: 100_000 }),
            memory: Some(Limit::At(1 << 20)),
            pids: Some(Limit::At(0)),
            huge_pages: None,
        }
    }

    #[test]
    fn a_slice_is_named_by_the_last_part_and_wants_the_one_above() {
        assert_eq!(unit("/kubepods.slice"), ("kubepods.slice", "-.slice"));
        assert_eq!(unit("/a.slice/a-b.slice/a-b-c.slice"), ("a-b-c.slice", "a-b.slice"));
        let properties = made_with("/a.slice/a-b.slice", CgroupVersion::V2);
        assert!(properties.contains(&("Wants", Setting::Texts(vec!["a.slice".to_owned()]))));
        assert!(properties.contains(&("IOAccounting", Setting::Flag(true))));
        assert!(properties.iter().all(|(name, _)| *name != "Delegate" && *name != "PIDs"));
        let first = made_with("/a.slice", CgroupVersion::Hybrid);
        assert!(first.contains(&("BlockIOAccounting", Setting::Flag(true))));
    }

    #[test]
    fn both_versions_have_their_own_words() {
        let first = [
            ("MemoryLimit", 1 << 20),
            ("CPUShares", 512),
            ("CPUQuotaPeriodUSec", 100_000),
            ("CPUQuotaPerSecUSec", 510_000),
            ("TasksMax", 1),
        ];
        assert_eq!(numbers(&limits(&values(), CgroupVersion::V1, 249)), first);
        let second =
            [("MemoryMax", 1 << 20), ("CPUWeight", 20), ("CPUQuotaPerSecUSec", 510_000), ("TasksMax", 1)];
        assert_eq!(numbers(&limits(&values(), CgroupVersion::V2, 241)), second);
        assert!(limits(&CgroupValues::default(), CgroupVersion::V2, 249).is_empty());
    }

    #[test]
    fn no_limit_is_infinity() {
        let values = CgroupValues {
            cpu: Some(CpuLimit { quota_us: Limit::Unlimited, period_us: 100_000 }),
            memory: Some(Limit::Unlimited),
            pids: Some(Limit::Unlimited),
            ..CgroupValues::default()
        };
        let properties = limits(&values, CgroupVersion::V2, 0);
        let infinite = ["MemoryMax", "CPUQuotaPerSecUSec", "TasksMax"].map(|name| (name, INFINITY));
        assert_eq!(numbers(&properties), infinite);
        assert_eq!(*kept(&values), values);
    }

    #[test]
    fn the_quota_in_the_file_is_the_one_that_systemd_keeps() {
        assert_eq!(kept(&values()).cpu.unwrap().quota_us, Limit::At(51_000));
        let exact = CgroupValues {
            cpu: Some(CpuLimit { quota_us: Limit::At(51_000), period_us: 100_000 }),
            ..values()
        };
        assert_eq!(*kept(&exact), exact);
    }

    #[test]
    fn versions_as_distributions_write_them() {
        let numbers = ["v245.4-1.fc32", "\"252.6-1\"", "249", "devel"].map(version_number);
        assert_eq!(numbers, [245, 252, 249, 0]);
    }
}
