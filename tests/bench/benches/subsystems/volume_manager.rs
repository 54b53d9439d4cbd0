//! VolumeManager alone: every pod's volume is asked for again, all at the same time.

use std::sync::Arc;
use std::time::Duration;

use bench::alone::{Count, Stage, Subject, Traffic, desired, pods};
use bridge_csi::fake::FakePlugins;
use bridge_csi::plugins::{PluginKind, PluginMetrics, PluginWatcher};
use bridge_csi::{CsiMetrics, Drivers};
use bridge_io::Io;
use bridge_node::host::{FakeDisk, FakeFlexDrivers, FakeNetworkDisks};
use futures::future::join_all;
use messages::facts::DesiredPodsChanged;
use messages::pod_manager::ResendDesired;
use messages::volume_manager::MountVolumes;
use supervision::{Address, AskPort, Outside, Place, Supervised, Vitality};
use volume_manager::{
    Backends, Csi, Flex, Objects, Showing, SweepPolicy, VolumeManager, VolumeManagerDeps, VolumeMetrics,
    VolumeSettings,
};

const DEADLINE: Duration = Duration::from_secs(60);

/// No CSI driver registers.
fn csi() -> Csi {
    let none = FakePlugins::default();
    let io = Io::current();
    let metrics = CsiMetrics::new().expect("metrics are defined once");
    let drivers = Drivers::new(Arc::new(none.clone()), io.clone(), metrics);
    Csi {
        node: "node".to_owned(),
        plugins: Arc::new(PluginWatcher::start(
            &io,
            Arc::new(none.clone()),
            Arc::new(none.clone()),
            [PluginKind::Csi],
            PluginMetrics::new().expect("metrics are defined once"),
        )),
        registry: Arc::new(drivers.clone()),
        volumes: Arc::new(drivers.clone()),
        figures: Arc::new(drivers),
        tells_health: false,
        csi_nodes: None,
    }
}

struct Alone {
    actor: Supervised<VolumeManager>,
    pods: usize,
}

impl Alone {
    async fn mount(&self, number: usize) -> bool {
        let pod = pods(self.pods)[number].clone();
        let mounted = self.actor.asked::<Outside, MountVolumes>().ask(MountVolumes { pod }, DEADLINE).await;
        mounted.is_ok_and(|mounted| mounted.is_ok())
    }
}

impl Subject for Alone {
    const NAME: &'static str = "VolumeManager";
    const TRAFFIC: Traffic = Traffic::Asks;

    async fn start(stage: &Stage, count: usize) -> Self {
        let seat = stage.tree.seat::<VolumeManager>(Vitality::Degradable);
        let sinks = Count::default();
        let facts: Address<DesiredPodsChanged> = seat.address();
        let deps = VolumeManagerDeps {
            sweep: SweepPolicy::default(),
            backends: Backends {
                mounts: stage.mounts.clone(),
                pod_dirs: stage.dirs.clone(),
                events: sinks.sink(),
                volume_objects: None,
                claim_statuses: None,
                clock: stage.clock.clone(),
                compute: stage.compute.clone(),
                objects: Objects {
                    showing: Showing::default(),
                    secrets: AskPort::answering("ObjectCache", |_| None),
                    config_maps: AskPort::answering("ObjectCache", |_| None),
                    tokens: AskPort::answering("ObjectCache", |_| None),
                    in_cluster: false,
                    node: Default::default(),
                },
                csi: csi(),
                flex: Flex::new(Arc::new(FakeFlexDrivers::default())),
                network_disks: Arc::new(FakeNetworkDisks::new(FakeDisk::new())),
                devices: Default::default(),
                attachments: Default::default(),
                selinux: None,
            },
            others_watchers: Vec::new(),
            driver_watchers: Vec::new(),
            resend_node: None,
            configuration: sinks.sink(),
            waiters: sinks.sink(),
            evict: sinks.sink(),
            events: sinks.sink(),
            held_pods: AskPort::answering("Pleg", |_| Some(Default::default())),
            resend_desired: Address::sink("PodManager", move |_: ResendDesired| {
                facts.tell(desired(count)).expect("there is room");
            }),
            metrics: VolumeMetrics::new(),
            rejections: None,
            settings: VolumeSettings { stats_period: None, ..VolumeSettings::default() },
        };
        let actor = seat.start(&Place::Here, move || VolumeManager::new(deps.clone()));
        let alone = Self { actor, pods: count };
        alone.round(0).await;
        alone
    }

    async fn round(&self, _: u64) -> u64 {
        let all = join_all((0..self.pods).map(|number| self.mount(number))).await;
        assert!(all.into_iter().all(|mounted| mounted), "every volume is mounted");
        self.pods as u64
    }

    async fn ask(&self) -> bool {
        self.mount(0).await
    }

    async fn whole(&self) -> bool {
        self.mount(self.pods - 1).await
    }
}

fn main() {
    bench::alone::run::<Alone>();
}
