//! The machine: the kubelet's directories, static pods' files, logs, the lock on the root directory, and facts about
//! it.

mod addresses;
mod container_facts;
mod container_logs;
mod credential_plugins;
mod docker_configs;
#[cfg(any(test, feature = "fake"))]
mod fake_disk;
mod flex_drivers;
mod journal;
mod kernel_settings;
mod lock;
mod log_file;
mod machine;
mod network_disks;
mod own_process;
mod own_use;
mod pod_dirs;
mod pull_records;
pub(crate) mod remove_tree;
mod selinux;
mod static_files;
mod system_logs;

#[cfg(any(test, feature = "fake"))]
pub use addresses::FakeHostAddresses;
pub use addresses::{FoundAddresses, HostAddresses, ThisHost};
pub use container_facts::ContainerFacts;
#[cfg(any(test, feature = "fake"))]
pub use container_logs::FakeContainerLogs;
pub use container_logs::{
    COMPRESSED, Compressed, ContainerLogs, DiskContainerLogs, LogError, LogPlace, UNFINISHED,
};
#[cfg(any(test, feature = "fake"))]
pub use credential_plugins::FakeCredentialPlugins;
pub use credential_plugins::{
    CredentialPlugins, ExecCredentialPlugins, Needed, PLUGIN_OUTPUT_BYTES_MAX, PLUGIN_TURN_WITHIN,
    PLUGIN_WITHIN, PluginError, PluginOutput, PluginRun, check_plugin,
};
#[cfg(any(test, feature = "fake"))]
pub use docker_configs::FakeDockerConfigs;
pub use docker_configs::{
    DOCKER_CONFIG_BYTES_MAX, DiskDockerConfigs, DockerConfigFile, DockerConfigFormat, DockerConfigs,
    SecretContent,
};
#[cfg(any(test, feature = "fake"))]
pub use fake_disk::FakeDisk;
#[cfg(any(test, feature = "fake"))]
pub use flex_drivers::FakeFlexDrivers;
pub use flex_drivers::{
    ExecFlexDrivers, FLEX_CALL_WITHIN, FLEX_OUTPUT_BYTES_MAX, FLEX_PLACE_WITHIN, FlexAnswer, FlexCall,
    FlexDrivers, FlexError, FlexVersion,
};
pub use journal::{Gzip, Journal, JournalOutput, JournalPlace};
pub use kernel_settings::{KernelSettingError, KernelSettings, KernelSettingsError};
pub use lock::{LockError, RootLock, SharedLock};
pub use log_file::{LogFile, LogWatch};
#[cfg(any(test, feature = "fake"))]
pub use machine::FakeMachine;
pub use machine::{Machine, MachineError, MachineFacts, StartFacts, ThisMachine, node_hostname};
#[cfg(any(test, feature = "fake"))]
pub use network_disks::FakeNetworkDisks;
pub use network_disks::{
    BlockDisk, DiskLink, DisksError, DisksReply, FLUSH_WITHIN, ISCSIADM_OUTPUT_BYTES_MAX,
    ISCSIADM_PLACE_WITHIN, ISCSIADM_WITHIN, IscsiAnswer, IscsiCall, IscsiRecord, IscsiSession, LinksBy,
    NetworkDisks, Partition, SCAN_WITHIN, SeenDisks, SystemDisks,
};
pub use own_process::{OwnProcessError, default_address, raise_open_files, set_oom_score_adj};
pub use own_use::OwnUse;
#[cfg(any(test, feature = "fake"))]
pub use pod_dirs::FakePodDirs;
pub use pod_dirs::{
    DiskPodDirs, Layout, OtherVolume, PodDirReads, PodDirs, PodDirsError, PodLogDir, Reported, SUBPATHS,
};
#[cfg(any(test, feature = "fake"))]
pub use pull_records::FakePullRecords;
pub use pull_records::{
    Decide, DiskPullRecords, PullRecords, PullRecordsError, RecordChange, RecordFile, RecordKind,
};
pub use remove_tree::RemoveTreeError;
pub use selinux::SelinuxLabels;
#[cfg(any(test, feature = "fake"))]
pub use static_files::FakeStaticFiles;
pub use static_files::{
    DiskStaticFiles, FilesChanged, MANIFEST_BYTES_MAX, MANIFESTS_BYTES_MAX, MANIFESTS_MAX, ManifestFile,
    ReadError, StaticFiles, StaticFilesError,
};
pub use system_logs::{SystemLog, SystemLogFile, SystemLogs};
