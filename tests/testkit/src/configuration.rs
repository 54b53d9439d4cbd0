//! A kubelet's configuration without files: that of a sandboxed node, and another one by order.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use config_manager::{Configuration, ConfigurationSource, Reading};
use messages::eviction_manager::EvictionSettings;
use messages::image_manager::ImageRules;
use messages::log_manager::LogRotation;
use messages::node_status::StatusPeriods;
use pod_spec::resources::NodeResources;

/// The configuration that is in force, and the one that is read next.
pub struct FakeConfiguration {
    in_force: Mutex<Arc<Configuration>>,
    next: Mutex<Configuration>,
}

impl FakeConfiguration {
    /// That of a node with these resources. What is read first says the same as what is in force, in another generation.
    pub fn new(resources: Arc<NodeResources>) -> Self {
        let start = start(resources);
        let next = Configuration { generation: 2, ..start.clone() };
        Self { in_force: Mutex::new(Arc::new(start)), next: Mutex::new(next) }
    }

    /// Changes what is read from now on, in a generation of its own.
    pub fn change(&self, change: impl FnOnce(&mut Configuration)) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        next.generation += 1;
        change(&mut next);
    }
}

impl ConfigurationSource for FakeConfiguration {
    fn in_force(&self) -> Arc<Configuration> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn read(&self) -> Reading {
        let next = Arc::new(self.next.lock().unwrap_or_else(PoisonError::into_inner).clone());
        Box::pin(std::future::ready(Ok(next)))
    }

    fn put_in_force(&self, configuration: Arc<Configuration>) {
        *self.in_force.lock().unwrap_or_else(PoisonError::into_inner) = configuration;
    }
}

/// What the settings of a sandboxed node say.
fn start(resources: Arc<NodeResources>) -> Configuration {
    let text = |(signal, value): (&str, &str)| (signal.to_owned(), value.to_owned());
    Configuration {
        generation: 1,
        shown: Arc::new(serde_json::json!({ "kind": "KubeletConfiguration" })),
        waits: Vec::new(),
        rotation: LogRotation::default(),
        eviction: Arc::new(EvictionSettings {
            hard: [("memory.available", "100Mi"), ("nodefs.available", "10%")].map(text).into(),
            transition: Duration::from_secs(300),
            ..EvictionSettings::default()
        }),
        images: ImageRules {
            pulls_per_second: 5.0,
            burst: 10,
            parallel: 5,
            high_percent: 100,
            low_percent: 80,
            min_age: Duration::from_secs(120),
            max_age: None,
        },
        resources,
        node_status: StatusPeriods { update: Duration::from_secs(10), report: Duration::from_secs(300) },
    }
}
