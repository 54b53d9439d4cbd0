//! StatsProvider alone: pages of metrics about all pods, asked for one after another; then readings of cgroups' files by
//! themselves, from the ask to the page, with a tree of plain files in place of the kernel's.

#![allow(clippy::disallowed_methods, reason = "measures real time")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::alone::{Stage, Subject, Traffic, pods, runtime_pod, wait};
use bridge_node::cgroups::{CgroupDriver, CgroupNames, CgroupVersion, Hierarchy};
use bridge_node::stats::usage::{FakeUsage, UsageReads};
use bridge_node::stats::{Places, SystemStats};
use jiff::Timestamp;
use messages::runtime::RuntimePods;
use messages::stats_provider::{GetUsageMetrics, MetricsPage};
use stats_provider::{Backends, StatsConfig, StatsProvider, StatsProviderDeps};
use supervision::{AskPort, Outside, Place, Supervised, Vitality};

/// Asks of one round.
const ASKS: u64 = 50;
/// Readings of which the median is shown.
const READINGS: usize = 11;
const WITHIN: Duration = Duration::from_secs(10);

struct Alone {
    _actor: Supervised<StatsProvider>,
    metrics: AskPort<Outside, GetUsageMetrics>,
}

fn held(count: usize) -> RuntimePods {
    let one = |pod: &Arc<messages::facts::DesiredPod>| {
        let held = runtime_pod(&pod.pod_ref, 0);
        (held.pod.uid.clone(), Arc::new(held))
    };
    Arc::new(pods(count).iter().map(one).collect())
}

fn deps(stage: &Stage, held: RuntimePods, usage: Arc<dyn UsageReads>) -> StatsProviderDeps {
    StatsProviderDeps {
        node: Arc::from("node"),
        began: Timestamp::UNIX_EPOCH,
        config: Arc::new(StatsConfig::default()),
        backends: Backends {
            pods: AskPort::answering("Pleg", move |_| Some(Some(held.clone()))),
            volumes: AskPort::answering("VolumeManager", |_| Some(BTreeMap::new())),
            usage,
            runtime: stage.operations.clone(),
            io: bridge_io::Io::current(),
        },
    }
}

fn start(stage: &Stage, deps: StatsProviderDeps) -> Alone {
    let seat = stage.tree.seat::<StatsProvider>(Vitality::Degradable);
    let actor = seat.start(&Place::Here, move || StatsProvider::new(deps.clone()));
    Alone { metrics: actor.asked(), _actor: actor }
}

impl Alone {
    async fn page(&self, page: MetricsPage) -> usize {
        let page = self.metrics.ask(GetUsageMetrics(page), WITHIN).await;
        page.map_or(0, |page| page.iter().map(|family| family.samples.len()).sum())
    }
}

impl Subject for Alone {
    const NAME: &'static str = "StatsProvider";
    const TRAFFIC: Traffic = Traffic::Asks;

    async fn start(stage: &Stage, count: usize) -> Self {
        let usage = Arc::new(FakeUsage::new(stage.clock.clone()));
        let alone = start(stage, deps(stage, held(count), usage));
        wait("the first figures", async || alone.whole().await).await;
        alone
    }

    async fn round(&self, _: u64) -> u64 {
        for _ in 0..ASKS {
            assert!(self.page(MetricsPage::Resource).await > 1, "there are figures");
        }
        ASKS
    }

    async fn ask(&self) -> bool {
        self.page(MetricsPage::Cadvisor).await > 2
    }

    async fn whole(&self) -> bool {
        self.page(MetricsPage::Resource).await > 1
    }
}

fn put(dir: &Path, files: &[(&str, &str)]) {
    fs::create_dir_all(dir).expect("a directory of our own");
    for (file, text) in files {
        fs::write(dir.join(file), text).expect("a file of our own");
    }
}

/// A cgroup of version 2 with the files that the kernel has there.
fn cgroup(dir: &Path) {
    let stat: String = (0..40).map(|line| format!("counter_{line} {line}\n")).collect();
    let stat = format!("anon 1000000\nfile 2000000\ninactive_file 1000\n{stat}pgfault 10\npgmajfault 1\n");
    let pressure =
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n";
    put(
        dir,
        &[
            ("cpu.stat", "usage_usec 1000000\nuser_usec 600000\nsystem_usec 400000\nnr_periods 0\n"),
            ("memory.stat", &stat),
            ("memory.current", "3000000\n"),
            ("memory.max", "max\n"),
            ("memory.swap.current", "0\n"),
            ("memory.swap.max", "max\n"),
            ("cpu.pressure", pressure),
            ("memory.pressure", pressure),
            ("io.pressure", pressure),
            ("io.stat", "8:0 rbytes=1 wbytes=2 rios=1 wios=1\n"),
            ("cgroup.procs", "1\n"),
            ("pids.current", "1\n"),
            ("pids.max", "max\n"),
        ],
    );
}

/// How long it takes from an ask to the page when everything has to be read.
async fn readings(count: usize) {
    let root = tempfile::tempdir().expect("a temporary directory");
    let held = held(count);
    let names = CgroupNames::new(CgroupDriver::Cgroupfs, "/").expect("the root is a cgroup");
    cgroup(&root.path().join("cgroup/kubepods"));
    for (uid, pod) in held.iter() {
        let own = root.path().join(format!("cgroup/kubepods/besteffort/pod{uid}"));
        cgroup(&own);
        let sandboxes = pod.sandboxes.iter().map(|one| &one.id);
        for id in sandboxes.chain(pod.containers.iter().map(|one| &one.id)) {
            cgroup(&own.join(&**id));
        }
    }
    let hierarchies = vec![Hierarchy { path: root.path().join("cgroup"), controllers: Vec::new() }];
    let (version, proc) = (CgroupVersion::V2, "/proc".into());
    let places = Places { version, hierarchies, names, root: root.path().to_owned(), proc };
    for page in [MetricsPage::Resource, MetricsPage::Cadvisor] {
        let (mut took, mut samples) = (Vec::new(), 0);
        for _ in 0..READINGS {
            // A new one has nothing that it could answer with.
            let stage = Stage::default();
            let stats = SystemStats::at(places.clone(), tokio::runtime::Handle::current());
            let usage = Arc::new(stats.usage(stage.clock.clone()));
            let alone = start(&stage, deps(&stage, held.clone(), usage));
            let begun = Instant::now();
            samples = alone.page(page).await;
            took.push(begun.elapsed());
        }
        took.sort();
        println!(
            "{page:?}, {count} pods, from the ask to {samples} samples: median {:?}, slowest {:?}",
            took[READINGS / 2],
            took[READINGS - 1]
        );
    }
}

fn main() {
    bench::alone::run::<Alone>();
    actix_rt::System::new().block_on(async {
        for count in [30, 110, 500] {
            readings(count).await;
        }
    });
}
