//! The configuration read anew while the kubelet runs (row 30.8): by the same code as at the start, and in force only as a whole.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use bridge_io::Io;
use bridge_node::cgroups::CgroupDriver;
use config_manager::{Configuration, ConfigurationSource, Reading, differences};
use messages::config_manager::RECEIVER;
use messages::image_manager::ImageRules;
use messages::node_status::StatusPeriods;
use resource_manager::capacity::MachineCapacity;
use serde_json::Value;

use crate::config::section::encode_object;
use crate::config::validation::{self, Host};
use crate::config::{KubeletConfiguration, SettingError, UnderstudyConfiguration, live};
use crate::flags::KubeletFlags;
use crate::load::{Invocation, Loaded, absolute, load};
use crate::start::HostFacts;
use crate::telemetry::Verbosity;
use crate::wiring::Settings;
use crate::{serving, settings, start};

/// What the process was started with.
#[derive(Clone, Debug)]
pub struct Start {
    /// Configuration and command line.
    pub loaded: Loaded,
    /// The node's name.
    pub node: String,
    /// The node's address.
    pub host_ip: Option<IpAddr>,
    /// The machine's capacity.
    pub machine: MachineCapacity,
    /// The facts by which the start was allowed.
    pub host: HostFacts,
    /// The cgroup driver in use.
    pub driver: CgroupDriver,
}

impl Start {
    fn settings(
        &self,
        config: &KubeletConfiguration,
        understudy: &UnderstudyConfiguration,
    ) -> Result<Settings, SettingError> {
        let garbage = settings::garbage(&self.loaded.flags);
        settings::settings(config, understudy, garbage, &self.node, self.host_ip, &self.machine)
    }

    /// What the actors are told of a configuration in force.
    fn configuration(
        &self,
        config: &KubeletConfiguration,
        generation: u64,
        waits: Vec<String>,
    ) -> Result<Configuration, SettingError> {
        let settings = self.settings(config, &self.loaded.understudy)?;
        let (images, node) = (settings.images, &config.node);
        Ok(Configuration {
            generation,
            shown: serving::configz(config, self.driver),
            waits,
            rotation: settings.logs,
            eviction: Arc::new(settings::eviction_settings(config)?),
            images: ImageRules {
                pulls_per_second: images.throttle.pulls_per_second,
                burst: images.throttle.burst,
                parallel: images.limits.parallel,
                high_percent: images.collection.high_percent,
                low_percent: images.collection.low_percent,
                min_age: images.collection.min_age,
                max_age: images.collection.max_age,
            },
            resources: settings.node_resources,
            node_status: StatusPeriods {
                update: node.node_status_update_frequency.as_std(),
                report: node.node_status_report_frequency.as_std(),
            },
        })
    }

    /// The fields of a newer configuration that wait for a restart.
    fn waits(&self, newest: &Loaded) -> Vec<String> {
        let started = &self.loaded;
        let object = |config: &KubeletConfiguration| Value::Object(config.to_object());
        let mut waits = differences(&object(&started.config), &object(&newest.config));
        waits.retain(|field| !live::is_live(field));
        if newest.config.pods.max_pods > started.config.pods.max_pods {
            waits.push(format!("maxPods (above {})", started.config.pods.max_pods));
        }
        let understudy = differences(&encode_object(&started.understudy), &encode_object(&newest.understudy));
        waits.extend(understudy.into_iter().map(|field| format!("UnderstudyConfiguration.{field}")));
        waits
    }

    /// Reads the command line and its files anew; what is wrong anywhere refuses all of it.
    fn newest(&self, host: &Host) -> Result<Loaded, Vec<String>> {
        let newest = match load(&self.loaded.args, host, &mut std::io::sink()).map_err(texts)? {
            Invocation::Run(newest) => *newest,
            Invocation::Help | Invocation::Version(_) => {
                return Err(vec!["the command line starts no kubelet".to_owned()]);
            }
        };
        let refusals = start::check(&newest, &self.host).refusals;
        if !refusals.is_empty() {
            return Err(texts(refusals));
        }
        self.settings(&newest.config, &newest.understudy).map_err(|error| vec![error.to_string()])?;
        Ok(newest)
    }
}

/// The files of the configuration, and the configuration in force.
pub struct ConfigFiles {
    io: Io,
    kept: Arc<Kept>,
}

struct Kept {
    start: Start,
    verbosity: Option<Verbosity>,
    in_force: Mutex<Arc<Configuration>>,
}

impl ConfigFiles {
    /// The configuration of the start is in force; files are read on the blocking threads of `io`, and the log of this
    /// verbosity follows.
    ///
    /// # Errors
    /// The first field of the start's configuration with an unusable value.
    pub fn new(io: &Io, start: Start, verbosity: Option<Verbosity>) -> Result<Self, SettingError> {
        let in_force = start.configuration(&start.loaded.config, 1, Vec::new())?;
        let kept = Kept { start, verbosity, in_force: Mutex::new(Arc::new(in_force)) };
        Ok(Self { io: io.for_owner(RECEIVER), kept: Arc::new(kept) })
    }
}

impl Kept {
    fn read(&self) -> Result<Arc<Configuration>, Vec<String>> {
        let host = Host::probe();
        let newest = self.start.newest(&host)?;
        let started = &self.start.loaded;
        let config = live::in_force(&started.config, &newest.config);
        let problems = validation::validate(&config, &started.gates, &host);
        if !problems.is_empty() {
            let beside = |problem: String| format!("beside the fields that wait for a restart: {problem}");
            return Err(problems.into_iter().map(beside).collect());
        }
        let in_force = self.in_force();
        let waits = self.start.waits(&newest);
        let next = self.start.configuration(&config, in_force.generation, waits);
        let mut next = next.map_err(|error| vec![error.to_string()])?;
        if next == *in_force {
            return Ok(in_force);
        }
        if next.shown != in_force.shown {
            next.generation += 1;
        }
        Ok(Arc::new(next))
    }

    fn in_force(&self) -> Arc<Configuration> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn put_in_force(&self, now: Arc<Configuration>) {
        let mut in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let verbosity = |of: &Configuration| {
            let level = of.shown.pointer("/logging/verbosity").and_then(Value::as_u64).unwrap_or_default();
            u32::try_from(level).unwrap_or(u32::MAX)
        };
        // A verbosity that was set over HTTP stays as long as the configured one does.
        if let Some(log) = self.verbosity.as_ref().filter(|_| verbosity(&now) != verbosity(&in_force)) {
            log.shared().store(verbosity(&now), Ordering::Relaxed);
        }
        *in_force = now;
    }
}

impl ConfigurationSource for ConfigFiles {
    fn in_force(&self) -> Arc<Configuration> {
        self.kept.in_force()
    }

    fn read(&self) -> Reading {
        let kept = self.kept.clone();
        let read = self.io.blocking(move || kept.read());
        Box::pin(async move { read.await.unwrap_or_else(|error| Err(vec![error.to_string()])) })
    }

    fn put_in_force(&self, configuration: Arc<Configuration>) {
        self.kept.put_in_force(configuration);
    }
}

/// The files and directories that the configuration is read from.
pub fn watched(flags: &KubeletFlags) -> Vec<PathBuf> {
    let named = [&flags.config, &flags.config_dir, &flags.understudy_config].into_iter();
    named.filter(|path| !path.is_empty()).map(|path| absolute(path)).collect()
}

fn texts<E: ToString>(errors: Vec<E>) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;
