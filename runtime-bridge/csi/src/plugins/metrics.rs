//! The metric of plugins that register; name and labels are upstream's.

use std::collections::BTreeSet;

use prometheus::core::Collector;
use prometheus::{IntGaugeVec, Opts};

const DESIRED: &str = "desired_state_of_world";
const ACTUAL: &str = "actual_state_of_world";

/// The sockets of plugins that there are, and those whose plugins are registered. Clones tell of the same plugins. There are
/// no more of them than [`SOCKETS_MAX`](super::registrations::SOCKETS_MAX).
#[derive(Clone, Debug)]
pub struct PluginMetrics {
    plugins: IntGaugeVec,
}

impl PluginMetrics {
    /// Makes the handle; the wiring registers [`collectors`](Self::collectors) once.
    ///
    /// # Errors
    /// Only when a metric's name or label were malformed.
    pub fn new() -> prometheus::Result<Self> {
        let help = "[ALPHA] Plugins by socket: those that are there, and those that are registered.";
        let options = Opts::new("plugin_manager_total_plugins", help);
        Ok(Self { plugins: IntGaugeVec::new(options, &["socket_path", "state"])? })
    }

    /// The collectors to register.
    #[must_use]
    pub fn collectors(&self) -> Vec<Box<dyn Collector>> {
        vec![Box::new(self.plugins.clone())]
    }

    /// The metric as it is to be after what was told before.
    pub(super) fn show(&self, shown: &mut Shown, plugins: impl Iterator<Item = (String, bool)>) {
        let mut now = Shown::default();
        for (socket, registered) in plugins {
            if registered {
                now.0.insert((socket.clone(), ACTUAL));
            }
            now.0.insert((socket, DESIRED));
        }
        for (socket, state) in shown.0.difference(&now.0) {
            // It was shown, so that it is there.
            drop(self.plugins.remove_label_values(&[socket.as_str(), *state]));
        }
        for (socket, state) in now.0.difference(&shown.0) {
            self.plugins.with_label_values(&[socket.as_str(), state]).set(1);
        }
        *shown = now;
    }
}

/// The series that the metric has.
#[derive(Debug, Default)]
pub(super) struct Shown(BTreeSet<(String, &'static str)>);
