//! The world of a subsystem alone: fakes without latency, and addresses that count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bridge_cri::fake::{FakeRuntime, RegistryImage};
use bridge_cri::{CriMetrics, Operations};
use bridge_http::probes::FakeProber;
use bridge_io::Io;
use bridge_io::clock::FakeClock;
use bridge_node::cgroups::{CgroupDriver, CgroupNames, CgroupVersion, FakeCgroups};
use bridge_node::checkpoint::FakeCheckpoints;
use bridge_node::host::{FakeDisk, FakePodDirs, Layout};
use bridge_node::mounts::FakeMounts;
use jiff::Timestamp;
use messages::Delivery;
use supervision::{Address, Policy, RestartPolicy, State, Tree, What};

use super::facts::IMAGE;
use super::wait;

const SECOND: i64 = 1_800_000_000;

/// Everything a subject may need.
pub struct Stage {
    /// The tree it is seated in; restarts are not delayed, and there is room in mailboxes.
    pub tree: Tree,
    /// The runtime.
    pub runtime: FakeRuntime,
    /// Calls to it.
    pub operations: Arc<Operations>,
    /// The disk.
    pub disk: FakeDisk,
    /// Pods' directories on it.
    pub dirs: Arc<FakePodDirs>,
    /// Mounts on it.
    pub mounts: Arc<FakeMounts>,
    /// Checkpoints.
    pub checkpoints: Arc<FakeCheckpoints>,
    /// Cgroups.
    pub cgroups: Arc<FakeCgroups>,
    /// Probes.
    pub prober: Arc<FakeProber>,
    /// Wall time.
    pub clock: Arc<FakeClock>,
    starts: Arc<AtomicU64>,
}

impl Stage {
    pub(super) fn new() -> Self {
        let restart = RestartPolicy {
            backoff_initial: Duration::ZERO,
            backoff_max: Duration::ZERO,
            restarts_max: u32::MAX,
            ..RestartPolicy::default()
        };
        let runtime = FakeRuntime::new(1).at_wall_time(SECOND * 1_000_000_000);
        runtime.add_image(IMAGE, RegistryImage::default());
        let metrics = CriMetrics::new().expect("metrics are defined once");
        let disk = FakeDisk::new();
        let layout = Layout::new("/var/lib/kubelet", "/var/log/pods", "/var/log/containers");
        let layout = layout.expect("the default directories are canonical");
        let names = CgroupNames::new(CgroupDriver::Cgroupfs, "/").expect("the root is a cgroup");
        let start = Timestamp::from_second(SECOND).expect("a second of this century is a timestamp");
        let tree = Tree::new(Policy { restart, mailbox_bound: 100_000, ..Policy::default() });
        let starts = Arc::new(AtomicU64::new(0));
        let count = starts.clone();
        tree.observe(move |event| {
            if matches!(event.what, What::Started { .. }) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self {
            tree,
            starts,
            operations: Arc::new(Operations::new(Arc::new(runtime.clone()), Io::current(), metrics)),
            runtime,
            dirs: Arc::new(FakePodDirs::new(layout, disk.clone())),
            mounts: Arc::new(FakeMounts::new(disk.clone())),
            disk,
            checkpoints: Arc::new(FakeCheckpoints::new()),
            cgroups: Arc::new(FakeCgroups::new(CgroupVersion::V2, names)),
            prober: Arc::new(FakeProber::new()),
            clock: Arc::new(FakeClock::new(1, start)),
        }
    }

    /// How often an actor has started so far.
    pub(super) fn starts(&self) -> u64 {
        self.starts.load(Ordering::Relaxed)
    }

    /// Ends every actor.
    pub(super) async fn end(&self) {
        self.tree.stop_all();
        wait("the actors to end", async || {
            let actors = self.tree.snapshot().await.actors;
            actors.iter().all(|actor| matches!(actor.state, State::Stopped | State::Failed))
        })
        .await;
    }
}

/// How many messages a sink was told.
#[derive(Clone, Debug, Default)]
pub struct Count(Arc<AtomicU64>);

impl Count {
    /// So far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// So many more.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Exactly so many.
    pub fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// A sink that only counts, on this count.
    pub fn sink<M: Delivery>(&self) -> Address<M> {
        let count = self.clone();
        Address::sink("count", move |_| count.add(1))
    }
}
