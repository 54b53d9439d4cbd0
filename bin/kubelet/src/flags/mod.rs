//! The command line: every flag of the kubelet, in upstream's spelling and with pflag's rules.
//!
//! A flag is one row of a table: name, type, the setting that it sets, and its effect. Parsing, `--help`, deprecation
//! notes and the list of settings without effect are all derived from the table.

mod help;
mod kind;
mod node_kind;
mod parse;
mod table;
mod validate;

use std::collections::BTreeMap;

pub use self::help::help_text;
pub use self::parse::{Parsed, parse};
pub use self::validate::validate;

use crate::config::logging::LoggingConfiguration;
use crate::config::section::Section;
use crate::config::{Effect, GoDuration, KubeletConfiguration};

/// The settings that a command line changes: fields of the configuration, and settings that exist as flags only.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The configuration.
    pub config: KubeletConfiguration,
    /// Settings that exist as flags only.
    pub flags: KubeletFlags,
}

/// Whether and how `--version` was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VersionRequest {
    /// The version was not asked for.
    #[default]
    No,
    /// `--version`.
    Plain,
    /// `--version=raw`.
    Raw,
}

/// Settings that exist as flags only. Paths are as given; a flag that was not given is an empty text.
#[derive(Debug, Clone, PartialEq)]
pub struct KubeletFlags {
    /// File of the KubeletConfiguration.
    pub config: String,
    /// Directory of drop-in files.
    pub config_dir: String,
    /// File of the UnderstudyConfiguration.
    pub understudy_config: String,
    /// Directory of the kubelet's own files.
    pub root_dir: String,
    /// Directory of certificates.
    pub cert_dir: String,
    /// Name of the node instead of the machine's.
    pub hostname_override: String,
    /// Kubeconfig with the API server and the kubelet's identity.
    pub kubeconfig: String,
    /// Kubeconfig with which the first certificate is requested.
    pub bootstrap_kubeconfig: String,
    /// Addresses of the node, comma-separated.
    pub node_ip: String,
    /// Labels that the node registers with.
    pub node_labels: BTreeMap<String, String>,
    /// `external`, or empty for none.
    pub cloud_provider: String,
    /// Cgroup of the container runtime.
    pub runtime_cgroups: String,
    /// File or directory that configures credential providers.
    pub image_credential_provider_config: String,
    /// Directory of credential providers.
    pub image_credential_provider_bin_dir: String,
    /// Whether `RuntimeDefault` is the seccomp profile of pods that name none.
    pub seccomp_default: bool,
    /// File that is locked while the kubelet runs.
    pub lock_file: String,
    /// Whether the kubelet exits when another process wants the lock.
    pub exit_on_lock_contention: bool,
    /// Time between two looks at a container's usage.
    pub housekeeping_interval: GoDuration,
    /// Longest time between two looks at a container's usage.
    pub max_housekeeping_interval: GoDuration,
    /// Dead containers kept on the node; negative for any number.
    pub maximum_dead_containers: i32,
    /// Dead containers kept per container.
    pub maximum_dead_containers_per_container: i32,
    /// Age below which a dead container is kept.
    pub minimum_container_ttl_duration: GoDuration,
    /// Program that mounts instead of mount(8).
    pub experimental_mounter_path: String,
    /// Whether hard eviction thresholds leave node allocatable alone.
    pub experimental_allocatable_ignore_eviction: bool,
    /// Whether help was asked for.
    pub help: bool,
    /// Whether the version was asked for.
    pub version: VersionRequest,
}

impl Default for KubeletFlags {
    fn default() -> Self {
        Self {
            config: String::new(),
            config_dir: String::new(),
            understudy_config: String::new(),
            root_dir: "/var/lib/kubelet".to_owned(),
            cert_dir: "/var/lib/kubelet/pki".to_owned(),
            hostname_override: String::new(),
            kubeconfig: String::new(),
            bootstrap_kubeconfig: String::new(),
            node_ip: String::new(),
            node_labels: BTreeMap::new(),
            cloud_provider: String::new(),
            runtime_cgroups: String::new(),
            image_credential_provider_config: String::new(),
            image_credential_provider_bin_dir: String::new(),
            seccomp_default: false,
            lock_file: String::new(),
            exit_on_lock_contention: false,
            housekeeping_interval: GoDuration::from_secs(10),
            max_housekeeping_interval: GoDuration::from_secs(15),
            maximum_dead_containers: -1,
            maximum_dead_containers_per_container: 1,
            minimum_container_ttl_duration: GoDuration::ZERO,
            experimental_mounter_path: String::new(),
            experimental_allocatable_ignore_eviction: false,
            help: false,
            version: VersionRequest::No,
        }
    }
}

/// The setting that a flag sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A field of the configuration, by its top-level name in the file; fields of `logging` by both names. The flag has
    /// the field's effect.
    Config(&'static str),
    /// A setting that exists as a flag only.
    Process(Effect),
}

/// One flag.
#[derive(Clone, Copy)]
pub struct FlagRow {
    /// The flag's name without dashes.
    pub name: &'static str,
    /// Its one-letter form.
    pub shorthand: Option<char>,
    /// The name of its type in `--help`; empty for booleans.
    pub type_name: &'static str,
    /// The value of a flag that is given without one; `None` when a value must follow.
    pub without_value: Option<&'static str>,
    /// The deprecation note, if the flag is deprecated.
    pub deprecated: Option<&'static str>,
    /// The setting that it sets.
    pub target: Target,
    /// Its purpose, as `--help` prints it.
    pub usage: &'static str,
    set: fn(&mut Settings, &str, bool) -> Result<(), String>,
    show: fn(&Settings) -> String,
}

impl FlagRow {
    /// The flag's effect in this program.
    pub fn effect(&self) -> Effect {
        match self.target {
            Target::Process(effect) => effect,
            Target::Config(field) => match field.strip_prefix("logging.") {
                Some(inner) => LoggingConfiguration::ROWS.iter().find(|row| row.name == inner),
                None => KubeletConfiguration::rows().find(|row| row.name == field),
            }
            .map(|row| row.effect)
            .expect("every flag of the configuration names a field of it"),
        }
    }

    /// The flag's value in `settings`, in the form in which `--help` prints defaults.
    pub fn value(&self, settings: &Settings) -> String {
        (self.show)(settings)
    }
}

/// Every flag, in the order of `--help`.
pub fn rows() -> Vec<&'static FlagRow> {
    let mut rows: Vec<&'static FlagRow> = table::TABLES.iter().copied().flatten().collect();
    rows.sort_by_key(|row| row.name);
    rows
}

/// The settings before the first flag: the defaults of a kubelet without a configuration file.
pub fn defaults() -> Settings {
    Settings { config: KubeletConfiguration::legacy(), flags: KubeletFlags::default() }
}

#[cfg(test)]
mod tests;
