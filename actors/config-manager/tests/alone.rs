//! ConfigManager alone: a scripted source reads, the files lie on a fake disk, and the actors that are told are recorded.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bridge_metrics::Registry;
use bridge_node::host::FakeStaticFiles;
use config_manager::{
    ConfigManager, ConfigManagerDeps, ConfigMetrics, Configuration, ConfigurationSource, Reading,
};
use futures::channel::oneshot;
use messages::config_manager::{GetConfiguration, ReloadConfiguration, ResendConfiguration};
use messages::event_recorder::RecordEvent;
use messages::eviction_manager::{EvictionConfigured, EvictionSettings};
use messages::facts::NodeResourcesConfigured;
use messages::image_manager::{ImageRules, ImagesConfigured};
use messages::log_manager::{LogRotation, LogRotationConfigured};
use messages::node_status::{NodeStatusConfigured, StatusPeriods};
use pod_spec::resources::NodeResources;
use serde_json::json;
use stage::{Neighbour, Stage, alone, ask};
use supervision::Supervised;

const SECOND: Duration = Duration::from_secs(1);
const FILE: &str = "/etc/kubelet.yaml";

/// A configuration of this generation, whose logs have so many files.
fn configuration(generation: u64, files_max: usize, waits: &[&str]) -> Configuration {
    Configuration {
        generation,
        shown: Arc::new(json!({"containerLogMaxFiles": files_max, "maxPods": 110})),
        waits: waits.iter().map(|field| (*field).to_owned()).collect(),
        rotation: LogRotation { files_max, ..LogRotation::default() },
        eviction: Arc::new(EvictionSettings::default()),
        images: ImageRules {
            pulls_per_second: 5.0,
            burst: 10,
            parallel: 5,
            high_percent: 85,
            low_percent: 80,
            min_age: 120 * SECOND,
            max_age: None,
        },
        resources: Arc::new(NodeResources::default()),
        node_status: StatusPeriods { update: 10 * SECOND, report: 300 * SECOND },
    }
}

struct Script {
    in_force: Arc<Configuration>,
    next: Result<Arc<Configuration>, Vec<String>>,
    reads: u64,
    /// What the next reading waits for.
    gate: Option<oneshot::Receiver<()>>,
}

/// A source that reads what the test says.
struct Scripted(Mutex<Script>);

impl Scripted {
    fn new() -> Arc<Self> {
        let start = Arc::new(configuration(1, 5, &[]));
        Arc::new(Self(Mutex::new(Script { in_force: start.clone(), next: Ok(start), reads: 0, gate: None })))
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap()
    }

    fn reads(&self) -> u64 {
        self.script().reads
    }

    fn will_read(&self, configuration: Configuration) {
        self.script().next = Ok(Arc::new(configuration));
    }

    fn will_refuse(&self, why: &str) {
        self.script().next = Err(vec![why.to_owned()]);
    }
}

impl ConfigurationSource for Scripted {
    fn in_force(&self) -> Arc<Configuration> {
        self.script().in_force.clone()
    }

    fn read(&self) -> Reading {
        let mut script = self.script();
        script.reads += 1;
        let (gate, found) = (script.gate.take(), script.next.clone());
        Box::pin(async move {
            if let Some(gate) = gate {
                let _opened = gate.await;
            }
            found
        })
    }

    fn put_in_force(&self, configuration: Arc<Configuration>) {
        self.script().in_force = configuration;
    }
}

struct Neighbours {
    source: Arc<Scripted>,
    registry: Registry,
    rotation: Neighbour<LogRotationConfigured>,
    eviction: Neighbour<EvictionConfigured>,
    images: Neighbour<ImagesConfigured>,
    manager: Neighbour<NodeResourcesConfigured>,
    node: Neighbour<NodeResourcesConfigured>,
    node_status: Neighbour<NodeStatusConfigured>,
    events: Neighbour<RecordEvent>,
}

impl Neighbours {
    fn new() -> Self {
        Self {
            source: Scripted::new(),
            registry: Registry::new(),
            rotation: Neighbour::new("LogManager"),
            eviction: Neighbour::new("EvictionManager"),
            images: Neighbour::new("ImageManager"),
            manager: Neighbour::new("PodManager"),
            node: Neighbour::new("NodeStatus"),
            node_status: Neighbour::new("NodeStatus"),
            events: Neighbour::new("EventRecorder"),
        }
    }

    fn start(&self, stage: &Stage<'_>) -> Supervised<ConfigManager> {
        stage.start(self.deps(stage), ConfigManager::new)
    }

    fn deps(&self, stage: &Stage<'_>) -> ConfigManagerDeps {
        let metrics = ConfigMetrics::new().unwrap();
        metrics.register(&self.registry).unwrap();
        ConfigManagerDeps {
            source: self.source.clone(),
            files: Arc::new(FakeStaticFiles::new(stage.fakes.disk.clone())),
            watched: vec![PathBuf::from(FILE)],
            rotation: self.rotation.address(),
            eviction: self.eviction.address(),
            images: self.images.address(),
            resources: vec![self.manager.address(), self.node.address()],
            node_status: Some(self.node_status.address()),
            events: self.events.address(),
            metrics,
        }
    }

    /// How many messages each actor was told.
    fn told(&self) -> [usize; 6] {
        [
            self.rotation.count(),
            self.eviction.count(),
            self.images.count(),
            self.manager.count(),
            self.node.count(),
            self.node_status.count(),
        ]
    }

    fn reasons(&self) -> Vec<String> {
        self.events.heard().iter().map(|event| event.reason.to_string()).collect()
    }

    /// Whether the page of metrics has this line.
    fn has_line(&self, line: &str) -> bool {
        let page = String::from_utf8(bridge_metrics::page(self.registry.gather(), "", "").body).unwrap();
        page.lines().any(|one| one == line)
    }
}

/// Writes the file that is watched.
fn touch(stage: &Stage<'_>, text: &str) {
    stage.fakes.disk.write(FILE, text, 0o644);
}

#[test]
fn a_changed_file_is_read_a_second_later_and_every_actor_is_told_its_part() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.until("the first look", || near.source.reads() == 1).await;
        stage.pass(5 * SECOND).await;
        assert_eq!((near.told(), near.reasons().len()), ([0; 6], 0), "each actor has what it began with");
        assert!(near.has_line("understudy_config_generation 1"));
        near.source.will_read(configuration(2, 9, &["address"]));
        touch(stage, "a");
        touch(stage, "b");
        stage.pass(500 * Duration::from_millis(1)).await;
        assert_eq!(near.source.reads(), 1, "more may come");
        stage.until("the change to be told", || near.told() == [1; 6]).await;
        assert_eq!((near.source.reads(), near.rotation.last().unwrap().settings.files_max), (2, 9));
        assert_eq!(near.reasons(), ["ConfigurationChanged", "ConfigurationNeedsRestart"]);
        let messages: Vec<String> =
            near.events.heard().iter().map(|event| event.message.to_string()).collect();
        assert!(messages[0].ends_with("changed: containerLogMaxFiles"), "{messages:?}");
        assert!(messages[1].ends_with("restart of the kubelet: address"), "{messages:?}");
        assert!(near.has_line("understudy_config_generation 2"));
        let shown = ask(&actor, GetConfiguration, SECOND).await.unwrap();
        assert_eq!(&*shown, r#"{"containerLogMaxFiles":9,"maxPods":110}"#);
        stage.pass(10 * SECOND).await;
        assert_eq!(near.reasons().len(), 2, "each is told once");
    });
}

#[test]
fn a_bad_configuration_changes_nothing_and_is_told_once_until_it_is_another_one() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.pass(5 * SECOND).await;
        near.source.will_refuse("failed to parse configuration /etc/kubelet.yaml: line 3");
        touch(stage, "half");
        stage.until("the refusal", || near.reasons() == ["ConfigurationRefused"]).await;
        assert!(near.events.last().unwrap().message.contains("/etc/kubelet.yaml: line 3"));
        stage.pass(120 * SECOND).await;
        assert_eq!((near.told(), near.reasons().len()), ([0; 6], 1));
        assert!(near.has_line("understudy_config_reload_errors_total 1"));
        actor.address().tell(ReloadConfiguration).unwrap();
        stage.pass(5 * SECOND).await;
        assert_eq!(near.reasons().len(), 2, "an order is answered");
        near.source.will_read(configuration(2, 9, &[]));
        touch(stage, "whole");
        stage.until("the change to be told", || near.told() == [1; 6]).await;
        assert!(near.has_line("understudy_config_reload_errors_total 2"));
    });
}

#[test]
fn what_makes_no_event_is_found_in_half_a_minute_and_orders_are_read_once_a_second() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.pass(5 * SECOND).await;
        near.source.will_read(configuration(2, 9, &[]));
        stage.pass(30 * SECOND).await;
        assert_eq!(near.told(), [1; 6]);
        let reads = near.source.reads();
        for _ in 0..100 {
            actor.address().tell(ReloadConfiguration).unwrap();
            stage.pass(Duration::from_millis(20)).await;
        }
        assert!(near.source.reads() <= reads + 3, "{} after {reads}", near.source.reads());
    });
}

#[test]
fn a_new_incarnation_goes_on_with_what_is_in_force_and_tells_those_that_ask() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.pass(5 * SECOND).await;
        near.source.will_read(configuration(2, 9, &[]));
        touch(stage, "a");
        stage.until("the change to be told", || near.told() == [1; 6]).await;
        near.source.will_refuse("broken");
        stage.crash::<ConfigManager>().await;
        stage.until("all to be told again", || near.told() == [2; 6]).await;
        assert_eq!(near.rotation.last().unwrap().settings.files_max, 9, "though the file is broken now");
        actor.address().tell(ResendConfiguration { receiver: "NodeStatus" }).unwrap();
        stage.until("NodeStatus to be told", || near.told() == [2, 2, 2, 2, 3, 3]).await;
    });
}

#[test]
fn a_change_that_an_incarnation_has_read_and_not_told_is_told_by_the_next_one() {
    alone(async |stage| {
        let near = Neighbours::new();
        let _actor = near.start(stage);
        stage.pass(5 * SECOND).await;
        near.source.will_read(configuration(2, 9, &["address"]));
        stage.crash_on::<ConfigManager>("read configuration");
        touch(stage, "a");
        stage.until_incarnation::<ConfigManager>(2).await;
        assert_eq!(near.source.in_force().generation, 1, "what is not told is not in force");
        stage.until("the change to be told", || near.told() == [1; 6]).await;
        assert_eq!(near.reasons(), ["ConfigurationChanged", "ConfigurationNeedsRestart"]);
        let told = near.rotation.last().unwrap().settings.files_max;
        assert_eq!((near.source.in_force().generation, told), (2, 9));
    });
}

#[test]
fn an_order_during_a_reading_is_answered_by_a_further_one() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.pass(5 * SECOND).await;
        near.source.will_refuse("broken");
        touch(stage, "a");
        stage.until("the refusal", || near.reasons().len() == 1).await;
        let (open, gate) = oneshot::channel();
        near.source.script().gate = Some(gate);
        let reads = near.source.reads();
        touch(stage, "b");
        stage.until("a reading", || near.source.reads() == reads + 1).await;
        actor.address().tell(ReloadConfiguration).unwrap();
        stage.pass(5 * SECOND).await;
        drop(open);
        stage.pass(SECOND / 2).await;
        assert_eq!(
            (near.source.reads(), near.reasons().len()),
            (reads + 1, 1),
            "it may have read the old file"
        );
        stage.until("the answer", || near.reasons().len() == 2).await;
        assert_eq!(near.source.reads(), reads + 2);
    });
}

#[test]
fn an_actor_whose_mailbox_is_full_is_told_later() {
    alone(async |stage| {
        let near = Neighbours::new();
        let _actor = near.start(stage);
        stage.pass(5 * SECOND).await;
        near.rotation.refuse();
        near.source.will_read(configuration(2, 9, &[]));
        touch(stage, "a");
        stage.until("the others to be told", || near.eviction.count() == 1).await;
        near.rotation.fall_silent();
        stage.until("LogManager to be told", || near.rotation.count() == 1).await;
    });
}
