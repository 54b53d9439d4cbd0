//! Facts about the machine that do not change while the kubelet runs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};
use tokio::runtime::Handle;

use crate::tenant_files;
use bridge_io::{Lane, NotRun};

/// Why a fact about the machine cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// A fact that a node needs cannot be read.
    #[error("cannot tell the machine's {fact}: {reason}")]
    Unknown {
        /// The fact.
        fact: &'static str,
        /// The reason.
        reason: String,
    },
    /// A host name without letters and digits cannot name a node.
    #[error("host name {0:?} is empty")]
    EmptyHostname(String),
    /// The work was not done: too much work already waits, or the I/O runtime has shut down.
    #[error(transparent)]
    NotRun(#[from] NotRun),
}

/// Facts about a machine. A text that the machine does not state is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineFacts {
    /// The host name, in lower case and trimmed.
    pub hostname: String,
    /// The kernel's boot ID, which differs after each boot.
    pub boot_id: String,
    /// When the machine began, in seconds since the epoch; `None` if the kernel does not tell.
    pub boot_second: Option<i64>,
    /// The machine ID, from `/etc/machine-id`.
    pub machine_id: String,
    /// The firmware's UUID, from DMI; only root may read it.
    pub system_uuid: String,
    /// Bytes of memory that the kernel manages.
    pub memory_bytes: u64,
    /// Bytes of swap.
    pub swap_bytes: u64,
    /// Logical CPUs that are online.
    pub cpu_count: u32,
    /// The number of huge pages that are set aside, by their size in bytes; also sizes with 0 pages.
    pub huge_pages: BTreeMap<u64, u64>,
    /// The most processes and threads that the kernel allows at once; `None` if it does not say.
    pub pids_max: Option<u64>,
    /// The kernel's version, as `uname -r` prints it.
    pub kernel_version: String,
    /// The name of the OS, from `PRETTY_NAME` in `/etc/os-release`.
    pub os_image: String,
    /// The architecture in Kubernetes' words: `amd64`, `arm64`.
    pub architecture: String,
    /// Whether the kernel enforces AppArmor profiles.
    pub app_armor: bool,
}

/// The facts that decide whether a kubelet may start on the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartFacts {
    /// `/proc/swaps`: a line of headings, and one line for each swap area. Empty where the file does not exist.
    pub swaps: String,
    /// The CPUs that are online, in the kernel's list form: `0-3,6`. Empty where the kernel does not say.
    pub cpus_online: String,
}

impl StartFacts {
    /// Whether there is a swap area of any kind, as upstream counts.
    #[must_use]
    pub fn is_swap_on(&self) -> bool {
        self.swaps.trim().lines().count() > 1
    }
}

/// Facts about a machine.
pub trait Machine: Send + Sync + std::fmt::Debug {
    /// All facts.
    fn facts(&self) -> BoxFuture<'static, Result<MachineFacts, MachineError>>;

    /// The size, in bytes, of the file system that `path` is on.
    fn storage_bytes(&self, path: &Path) -> BoxFuture<'static, Result<u64, MachineError>>;

    /// The facts that decide whether a kubelet may start here.
    fn start_facts(&self) -> BoxFuture<'static, Result<StartFacts, MachineError>>;
}

/// The machine this process runs on.
#[derive(Debug, Clone)]
pub struct ThisMachine {
    lane: Lane,
}

impl ThisMachine {
    /// Files are read on the blocking threads of `io`.
    pub fn new(io: Handle) -> Self {
        Self { lane: Lane::new("Machine", io) }
    }
}

impl Machine for ThisMachine {
    fn facts(&self) -> BoxFuture<'static, Result<MachineFacts, MachineError>> {
        self.lane.run(facts)
    }

    fn storage_bytes(&self, path: &Path) -> BoxFuture<'static, Result<u64, MachineError>> {
        let path = path.to_owned();
        self.lane.run(move || storage_bytes(&path))
    }

    fn start_facts(&self) -> BoxFuture<'static, Result<StartFacts, MachineError>> {
        self.lane.run(|| start_facts(Path::new("/proc/swaps"), Path::new("/sys/devices/system/cpu/online")))
    }
}

fn start_facts(swaps: &Path, cpus_online: &Path) -> Result<StartFacts, MachineError> {
    let text = |fact, path: &Path| match tenant_files::kernel_text(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read
            .map_err(|error| MachineError::Unknown { fact, reason: format!("{}: {error}", path.display()) }),
    };
    Ok(StartFacts {
        swaps: text("swap", swaps)?,
        cpus_online: text("CPUs online", cpus_online)?.trim().to_owned(),
    })
}

fn storage_bytes(path: &Path) -> Result<u64, MachineError> {
    let told = rustix::fs::statvfs(path).map_err(|error| MachineError::Unknown {
        fact: "storage",
        reason: format!("{}: {error}", path.display()),
    })?;
    Ok(told.f_blocks.saturating_mul(told.f_frsize))
}

/// The number of huge pages by size, from directories like `hugepages-2048kB`.
fn huge_pages(dir: &Path) -> BTreeMap<u64, u64> {
    let sizes = fs::read_dir(dir).into_iter().flatten().flatten();
    let pages = |size: PathBuf| {
        let kib: u64 =
            size.file_name()?.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        Some((kib * 1024, number(&size.join("nr_hugepages"))?))
    };
    sizes.filter_map(|size| pages(size.path())).collect()
}

fn number(file: &Path) -> Option<u64> {
    tenant_files::kernel_text(file).ok()?.trim().parse().ok()
}

/// A node's name from a host name or from `--hostname-override`: in lower case and trimmed.
///
/// # Errors
/// [`MachineError::EmptyHostname`] when nothing is left of it.
pub fn node_hostname(raw: &str) -> Result<String, MachineError> {
    let name = raw.trim().to_lowercase();
    if name.is_empty() { Err(MachineError::EmptyHostname(raw.to_owned())) } else { Ok(name) }
}

fn facts() -> Result<MachineFacts, MachineError> {
    let unknown =
        |fact| move |error: sysinfo::Error| MachineError::Unknown { fact, reason: error.to_string() };
    let what = RefreshKind::nothing()
        .with_memory(MemoryRefreshKind::everything())
        .with_cpu(CpuRefreshKind::nothing());
    let system = System::new_with_specifics(what).map_err(unknown("memory and CPUs"))?;
    let hostname = node_hostname(&System::host_name().map_err(unknown("host name"))?)?;
    let boot_id = first_text(&["/proc/sys/kernel/random/boot_id"]);
    let machine_id = first_text(&["/etc/machine-id", "/var/lib/dbus/machine-id"]);
    let os_release = ["/etc/os-release", "/usr/lib/os-release"]
        .map(|path| tenant_files::kernel_text(Path::new(path)).ok());
    let memory_bytes = system.total_memory();
    let cpu_count = system.cpus().len() as u32;
    if memory_bytes == 0 || cpu_count == 0 {
        let reason = format!("the kernel tells of {memory_bytes} bytes and {cpu_count} CPUs");
        return Err(MachineError::Unknown { fact: "memory and CPUs", reason });
    }
    Ok(MachineFacts {
        hostname,
        boot_id,
        boot_second: System::boot_time().ok().and_then(|second| i64::try_from(second).ok()),
        machine_id,
        system_uuid: first_text(&SYSTEM_UUIDS),
        memory_bytes,
        swap_bytes: system.total_swap(),
        cpu_count,
        huge_pages: huge_pages(Path::new("/sys/kernel/mm/hugepages")),
        pids_max: ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"]
            .iter()
            .filter_map(|file| number(Path::new(file)))
            .min(),
        kernel_version: System::kernel_version().unwrap_or_default(),
        os_image: os_release
            .into_iter()
            .flatten()
            .next()
            .and_then(|text| pretty_name(&text))
            .unwrap_or_default(),
        architecture: architecture(std::env::consts::ARCH).to_owned(),
        app_armor: first_text(&["/sys/module/apparmor/parameters/enabled"]).starts_with('Y'),
    })
}

/// Files with the machine's UUID; a machine without them is identified by its installation.
const SYSTEM_UUIDS: [&str; 4] = [
    "/sys/class/dmi/id/product_uuid",
    "/proc/device-tree/system-id",
    "/proc/device-tree/vm,uuid",
    "/etc/machine-id",
];

fn first_text(paths: &[&str]) -> String {
    paths
        .iter()
        .filter_map(|path| tenant_files::kernel_text(Path::new(path)).ok())
        .map(|text| text.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned())
        .find(|text| !text.is_empty())
        .unwrap_or_default()
}

fn pretty_name(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.trim().strip_prefix("PRETTY_NAME="))?;
    let quoted = |quote| value.strip_prefix(quote).and_then(|value| value.strip_suffix(quote));
    Some(quoted('"').or_else(|| quoted('\'')).unwrap_or(value).to_owned())
}

fn architecture(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A machine with the facts that a test gives.
#[cfg(any(test, feature = "fake"))]
#[derive(Debug, Clone)]
pub struct FakeMachine {
    facts: Result<MachineFacts, MachineError>,
    start: StartFacts,
}

#[cfg(any(test, feature = "fake"))]
impl FakeMachine {
    /// A machine named `hostname` with 4 CPUs and 8 GiB of memory.
    pub fn named(hostname: &str) -> Self {
        Self::new(MachineFacts {
            hostname: hostname.to_owned(),
            boot_id: "11111111-1111-4111-8111-111111111111".into(),
            boot_second: Some(1_700_000_000),
            machine_id: "22222222222242228222222222222222".into(),
            system_uuid: "33333333-3333-4333-8333-333333333333".into(),
            memory_bytes: 8 << 30,
            swap_bytes: 0,
            cpu_count: 4,
            huge_pages: BTreeMap::new(),
            pids_max: Some(32_768),
            kernel_version: "6.12.0".into(),
            os_image: "Fake Linux".into(),
            architecture: "amd64".into(),
            app_armor: false,
        })
    }

    /// A machine with these facts.
    pub fn new(facts: MachineFacts) -> Self {
        let start = StartFacts {
            swaps: "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n".to_owned(),
            cpus_online: format!("0-{}", facts.cpu_count.saturating_sub(1)),
        };
        Self { facts: Ok(facts), start }
    }

    /// The same machine with this text in `/proc/swaps`.
    #[must_use]
    pub fn with_swaps(mut self, swaps: &str) -> Self {
        swaps.clone_into(&mut self.start.swaps);
        self
    }

    /// A machine whose facts cannot be read.
    pub fn silent(error: MachineError) -> Self {
        Self { facts: Err(error), start: StartFacts::default() }
    }
}

#[cfg(any(test, feature = "fake"))]
impl Machine for FakeMachine {
    fn facts(&self) -> BoxFuture<'static, Result<MachineFacts, MachineError>> {
        Box::pin(std::future::ready(self.facts.clone()))
    }

    /// 100 GiB for every path.
    fn storage_bytes(&self, _: &Path) -> BoxFuture<'static, Result<u64, MachineError>> {
        Box::pin(std::future::ready(self.facts.clone().map(|_| 100 << 30)))
    }

    fn start_facts(&self) -> BoxFuture<'static, Result<StartFacts, MachineError>> {
        let start = self.start.clone();
        Box::pin(std::future::ready(self.facts.clone().map(|_| start)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    async fn contract(machine: Arc<dyn Machine>) {
        let facts = machine.facts().await.unwrap();
        assert_eq!(node_hostname(&facts.hostname).as_ref(), Ok(&facts.hostname));
        assert_eq!(facts.boot_id.len(), 36, "{facts:?}");
        assert!(facts.boot_second.is_some_and(|second| second > 1_600_000_000), "{facts:?}");
        assert!(facts.memory_bytes > 1 << 20, "{facts:?}");
        assert!(facts.cpu_count > 0);
        assert!(facts.pids_max.is_some_and(|pids| pids > 100), "{facts:?}");
        assert!(machine.storage_bytes(Path::new("/")).await.unwrap() > 1 << 20);
        assert!(facts.kernel_version.contains('.'));
        assert!(["amd64", "arm64"].contains(&facts.architecture.as_str()));
        assert_eq!(machine.facts().await, Ok(facts), "facts do not change");
        let start = machine.start_facts().await.unwrap();
        assert!(start.swaps.starts_with("Filename"), "{start:?}");
        assert!(start.cpus_online.starts_with('0'), "{start:?}");
    }

    #[test]
    fn swap_is_on_when_a_place_for_it_is_listed() {
        let dir = tempfile::tempdir().unwrap();
        let (swaps, cpus) = (dir.path().join("swaps"), dir.path().join("online"));
        let none = start_facts(&swaps, &cpus).unwrap();
        assert_eq!((none.is_swap_on(), none), (false, StartFacts::default()));
        let headings = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        for (places, on) in [
            ("", false),
            ("/dev/dm-1                               partition\t8388604\t0\t-2\n", true),
            // Swap in compressed memory counts, too, as upstream.
            ("/dev/zram0                              partition\t8388604\t0\t100\n", true),
        ] {
            fs::write(&swaps, format!("{headings}{places}")).unwrap();
            fs::write(&cpus, "0-3,6\n").unwrap();
            let facts = start_facts(&swaps, &cpus).unwrap();
            assert_eq!((facts.is_swap_on(), facts.cpus_online.as_str()), (on, "0-3,6"), "{places:?}");
        }
        fs::remove_file(&swaps).unwrap();
        fs::create_dir(&swaps).unwrap();
        let error = start_facts(&swaps, &cpus).unwrap_err().to_string();
        assert!(error.starts_with("cannot tell the machine's swap: "), "{error}");
    }

    #[tokio::test]
    async fn both_machines_keep_the_contract() {
        contract(Arc::new(FakeMachine::named("node-1"))).await;
        contract(Arc::new(ThisMachine::new(Handle::current()))).await;
        let error = MachineError::Unknown { fact: "host name", reason: "none".into() };
        assert_eq!(FakeMachine::silent(error.clone()).facts().await, Err(error));
    }

    #[tokio::test]
    async fn this_machine_agrees_with_the_kernel() {
        let facts = ThisMachine::new(Handle::current()).facts().await.unwrap();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
        let kib: u64 = meminfo.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert_eq!(facts.memory_bytes, kib * 1024);
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap();
        assert_eq!(facts.cpu_count as usize, cpuinfo.lines().filter(|l| l.starts_with("processor")).count());
    }

    #[test]
    fn huge_pages_by_size() {
        let dir = tempfile::tempdir().unwrap();
        for (name, pages) in [("hugepages-2048kB", "12\n"), ("hugepages-1048576kB", "0\n"), ("other", "1")] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("nr_hugepages"), pages).unwrap();
        }
        assert_eq!(huge_pages(dir.path()), BTreeMap::from([(2 << 20, 12), (1 << 30, 0)]));
        assert_eq!(huge_pages(&dir.path().join("none")), BTreeMap::new());
        let error = storage_bytes(&dir.path().join("none")).unwrap_err();
        assert!(error.to_string().starts_with("cannot tell the machine's storage: "), "{error}");
    }

    #[test]
    fn names_are_lower_case_and_trimmed() {
        assert_eq!(node_hostname(" Node-A.Example \n").unwrap(), "node-a.example");
        assert_eq!(node_hostname(" \n"), Err(MachineError::EmptyHostname(" \n".into())));
    }

    #[test]
    fn reads_the_pretty_name() {
        assert_eq!(pretty_name("ID=x\nPRETTY_NAME=\"Debian 13\"\n").as_deref(), Some("Debian 13"));
        assert_eq!(pretty_name("PRETTY_NAME='A'\n").as_deref(), Some("A"));
        assert_eq!(pretty_name("PRETTY_NAME=Plain").as_deref(), Some("Plain"));
        assert_eq!(pretty_name("NAME=x"), None);
    }
}
