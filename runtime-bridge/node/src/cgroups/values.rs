//! PURE: a cgroup's values as the kernel's files and texts, for both versions (row 14.3).

use std::collections::BTreeMap;

/// An upper bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// No bound.
    Unlimited,
    /// At most this much.
    At(u64),
}

/// CPU time that processes may use in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuLimit {
    /// Microseconds of CPU time per period.
    pub quota_us: Limit,
    /// The period, microseconds.
    pub period_us: u64,
}

/// Bounds on huge pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HugePages {
    /// No bound, for every size.
    Unlimited,
    /// At most this many bytes, by the size of the page in bytes; sizes that are not named are bounded to 0.
    Only(BTreeMap<u64, u64>),
}

/// The values of a cgroup. A value of `None` is left unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CgroupValues {
    /// The share of contended CPU time in version 1's scale, 2 to 262144.
    pub cpu_shares: Option<u64>,
    /// The limit of CPU time.
    pub cpu: Option<CpuLimit>,
    /// The limit of memory, bytes.
    pub memory: Option<Limit>,
    /// The limit of processes and threads.
    pub pids: Option<Limit>,
    /// The limits of huge pages.
    pub huge_pages: Option<HugePages>,
}

/// The number with which upstream writes "no limit" of huge pages: every page size divides it.
const HUGE_PAGES_UNLIMITED: u64 = 1 << 62;
const SHARES_MIN: u64 = 2;
const SHARES_MAX: u64 = 262_144;
const WEIGHT_MAX: u64 = 10_000;

/// One file of a cgroup and the value that it shall hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// The controller that the file belongs to.
    pub controller: &'static str,
    /// The file's name.
    pub file: String,
    /// The value's text.
    pub text: String,
    /// The kernel rounds values down to multiples of this.
    pub unit: u64,
    /// The file is absent on older kernels, which is no failure.
    pub optional: bool,
}

impl Setting {
    fn new(controller: &'static str, file: impl Into<String>, text: String) -> Self {
        Self { controller, file: file.into(), text, unit: 1, optional: false }
    }

    /// Whether the file's present text means the same value, so that no write is needed.
    pub fn held_by(&self, current: &str) -> bool {
        let meanings =
            |text: &'_ str| -> Vec<Word> { text.split_whitespace().map(|word| self.meaning(word)).collect() };
        meanings(current) == meanings(&self.text)
    }

    /// Whether the value bounds nothing, so that a kernel without the file is no failure.
    pub fn is_unlimited(&self) -> bool {
        self.text.split_whitespace().next().is_some_and(|word| self.meaning(word) == Word::Unlimited)
    }

    fn meaning(&self, word: &str) -> Word {
        // Version 1 shows "no limit" as the largest multiple that it can count to.
        let largest = i64::MAX.unsigned_abs() / self.unit;
        match word.parse::<u64>() {
            Ok(number) if number / self.unit >= largest => Word::Unlimited,
            Ok(number) => Word::Number(number / self.unit),
            Err(_) if word == "max" || word == "-1" => Word::Unlimited,
            Err(_) => Word::Other(word.to_owned()),
        }
    }
}

#[derive(PartialEq, Eq)]
enum Word {
    Unlimited,
    Number(u64),
    Other(String),
}

/// The page sizes of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageSizes {
    /// Bytes of an ordinary page, in multiples of which memory is counted.
    pub page: u64,
    /// The sizes of huge pages on the machine, in bytes.
    pub huge: Vec<u64>,
}

/// The values as files of version 1.
pub(super) fn version_1(values: &CgroupValues, sizes: &PageSizes) -> Vec<Setting> {
    let number = |limit| match limit {
        Limit::Unlimited => "-1".to_owned(),
        Limit::At(amount) => u64::to_string(&amount),
    };
    let mut settings = Vec::new();
    if let Some(shares) = values.cpu_shares {
        settings.push(Setting::new("cpu", "cpu.shares", shares.to_string()));
    }
    if let Some(cpu) = values.cpu {
        settings.push(Setting::new("cpu", "cpu.cfs_period_us", cpu.period_us.to_string()));
        settings.push(Setting::new("cpu", "cpu.cfs_quota_us", number(cpu.quota_us)));
    }
    if let Some(memory) = values.memory {
        let setting = Setting::new("memory", "memory.limit_in_bytes", number(memory));
        settings.push(Setting { unit: sizes.page, ..setting });
    }
    if let Some(pids) = values.pids {
        settings.push(Setting::new("pids", "pids.max", or_max(pids)));
    }
    if let Some(pages) = &values.huge_pages {
        settings.extend(huge_pages(pages, sizes, ["limit_in_bytes", "rsvd.limit_in_bytes"]));
    }
    settings
}

/// The values as files of version 2.
pub(super) fn version_2(values: &CgroupValues, sizes: &PageSizes) -> Vec<Setting> {
    let mut settings = Vec::new();
    if let Some(shares) = values.cpu_shares {
        settings.push(Setting::new("cpu", "cpu.weight", weight(shares).to_string()));
    }
    if let Some(cpu) = values.cpu {
        let text = format!("{} {}", or_max(cpu.quota_us), cpu.period_us);
        settings.push(Setting::new("cpu", "cpu.max", text));
    }
    if let Some(memory) = values.memory {
        let setting = Setting::new("memory", "memory.max", or_max(memory));
        settings.push(Setting { unit: sizes.page, ..setting });
    }
    if let Some(pids) = values.pids {
        settings.push(Setting::new("pids", "pids.max", or_max(pids)));
    }
    if let Some(pages) = &values.huge_pages {
        settings.extend(huge_pages(pages, sizes, ["max", "rsvd.max"]));
    }
    settings
}

fn or_max(limit: Limit) -> String {
    match limit {
        Limit::Unlimited => "max".to_owned(),
        Limit::At(amount) => amount.to_string(),
    }
}

/// Maps version 1's CPU shares (2 to 262144) to version 2's CPU weight (1 to 10000), as Kubernetes does.
pub fn weight(shares: u64) -> u64 {
    if shares >= SHARES_MAX {
        return WEIGHT_MAX;
    }
    1 + shares.saturating_sub(SHARES_MIN) * (WEIGHT_MAX - 1) / (SHARES_MAX - SHARES_MIN)
}

fn huge_pages<'a>(
    pages: &'a HugePages,
    sizes: &'a PageSizes,
    files: [&'static str; 2],
) -> impl Iterator<Item = Setting> + 'a {
    let limit = |size: &u64| match pages {
        HugePages::Unlimited => HUGE_PAGES_UNLIMITED,
        HugePages::Only(bytes) => bytes.get(size).copied().unwrap_or(0),
    };
    sizes.huge.iter().flat_map(move |size| {
        // The second file bounds reservations, before pages are used.
        files.into_iter().enumerate().map(move |(number, file)| Setting {
            unit: (*size).max(1),
            optional: number > 0,
            ..Setting::new("hugetlb", format!("hugetlb.{}.{file}", size_name(*size)), limit(size).to_string())
        })
    })
}

/// A size in the kernel's file names, such as `2MB`.
fn size_name(bytes: u64) -> String {
    let units = [(1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")];
    let unit = units.into_iter().find(|(unit, _)| bytes.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{bytes}B"), |(unit, name)| format!("{}{name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [u64; 2] = [2 << 20, 1 << 30];

    fn texts(values: &CgroupValues, of: fn(&CgroupValues, &PageSizes) -> Vec<Setting>) -> Vec<String> {
        let sizes = PageSizes { page: 4096, huge: SIZES.to_vec() };
        of(values, &sizes).iter().map(|one| format!("{} {}={}", one.controller, one.file, one.text)).collect()
    }

    fn full() -> CgroupValues {
        CgroupValues {
            cpu_shares: Some(512),
            cpu: Some(CpuLimit { quota_us: Limit::At(50_000), period_us: 100_000 }),
            memory: Some(Limit::At(1 << 20)),
            pids: Some(Limit::At(100)),
            huge_pages: Some(HugePages::Only([(2 << 20, 4 << 20)].into())),
        }
    }

    #[test]
    fn files_of_version_1() {
        let expected = [
            "cpu cpu.shares=512",
            "cpu cpu.cfs_period_us=100000",
            "cpu cpu.cfs_quota_us=50000",
            "memory memory.limit_in_bytes=1048576",
            "pids pids.max=100",
            "hugetlb hugetlb.2MB.limit_in_bytes=4194304",
            "hugetlb hugetlb.2MB.rsvd.limit_in_bytes=4194304",
            "hugetlb hugetlb.1GB.limit_in_bytes=0",
            "hugetlb hugetlb.1GB.rsvd.limit_in_bytes=0",
        ];
        assert_eq!(texts(&full(), version_1), expected);
    }

    #[test]
    fn files_of_version_2() {
        let expected = [
            "cpu cpu.weight=20",
            "cpu cpu.max=50000 100000",
            "memory memory.max=1048576",
            "pids pids.max=100",
            "hugetlb hugetlb.2MB.max=4194304",
            "hugetlb hugetlb.2MB.rsvd.max=4194304",
            "hugetlb hugetlb.1GB.max=0",
            "hugetlb hugetlb.1GB.rsvd.max=0",
        ];
        assert_eq!(texts(&full(), version_2), expected);
    }

    #[test]
    fn no_limit() {
        let values = CgroupValues {
            cpu: Some(CpuLimit { quota_us: Limit::Unlimited, period_us: 100_000 }),
            memory: Some(Limit::Unlimited),
            pids: Some(Limit::Unlimited),
            ..CgroupValues::default()
        };
        let first = [
            "cpu cpu.cfs_period_us=100000",
            "cpu cpu.cfs_quota_us=-1",
            "memory memory.limit_in_bytes=-1",
            "pids pids.max=max",
        ];
        assert_eq!(texts(&values, version_1), first);
        assert_eq!(
            texts(&values, version_2),
            ["cpu cpu.max=max 100000", "memory memory.max=max", "pids pids.max=max"]
        );
        let pages = CgroupValues { huge_pages: Some(HugePages::Unlimited), ..CgroupValues::default() };
        assert_eq!(texts(&pages, version_2)[0], "hugetlb hugetlb.2MB.max=4611686018427387904");
        assert_eq!(texts(&CgroupValues::default(), version_1), <[&str; 0]>::default());
    }

    #[test]
    fn weights() {
        for (shares, expected) in
            [(0, 1), (2, 1), (28, 1), (29, 2), (1024, 39), (2048, 79), (262_143, 9_999), (262_144, 10_000)]
        {
            assert_eq!(weight(shares), expected, "{shares}");
        }
        assert_eq!(weight(u64::MAX), 10_000);
    }

    #[test]
    fn the_kernels_words_for_the_same() {
        let memory = |text: &str| Setting {
            unit: 4096,
            ..Setting::new("memory", "memory.limit_in_bytes", text.to_owned())
        };
        assert!(memory("-1").held_by("9223372036854771712\n"));
        assert!(memory("max").held_by("max\n") && memory("max").is_unlimited());
        assert!(memory("1000001").held_by("999424\n"), "rounded down to pages");
        assert!(!memory("1048576").held_by("9223372036854771712\n"));
        assert!(!memory("1048576").held_by("") && !memory("1048576").is_unlimited());
        let cpu = |text: &str| Setting::new("cpu", "cpu.max", text.to_owned());
        assert!(cpu("max 100000").held_by("max 100000\n") && cpu("max 100000").is_unlimited());
        assert!(!cpu("max 100000").held_by("max 50000\n"));
        assert!(!cpu("5000 100000").held_by("max 100000\n"));
    }
}
