//! Flags of the process: files, directories, identity, log, feature gates.

use super::super::FlagRow;
use super::super::kind::{Bool, Bytes, Duration, Gates, Int32, Level, Str, VModule};
use super::super::node_kind::Version;
use super::{EVICTION_FLAG, config_flag, process_flag};

pub(super) const ROWS: &[FlagRow] = &[
    process_flag!("config", Str, config, Used, "File of the KubeletConfiguration; flags override it"),
    process_flag!(
        "config-dir",
        Str,
        config_dir,
        Used,
        "Directory whose *.conf files are merged over the configuration, in lexical order"
    ),
    process_flag!(
        "understudy-config",
        Str,
        understudy_config,
        Used,
        "File of the UnderstudyConfiguration: supervision, budgets and periods of this kubelet"
    ),
    process_flag!("root-dir", Str, root_dir, Used, "Directory of the kubelet's own files"),
    process_flag!("cert-dir", Str, cert_dir, Used, "Directory of certificates"),
    process_flag!(
        "kubeconfig",
        Str,
        kubeconfig,
        Used,
        "File that says how to reach the API server; without it the kubelet runs standalone"
    ),
    process_flag!(
        "bootstrap-kubeconfig",
        Str,
        bootstrap_kubeconfig,
        Used,
        "File that says how to ask the API server for a first client certificate"
    ),
    process_flag!("lock-file", Str, lock_file, Used, "File that is locked while the kubelet runs"),
    process_flag!(
        "exit-on-lock-contention",
        Bool,
        exit_on_lock_contention,
        Used,
        "Exit when another process wants the lock file"
    ),
    process_flag!("help", Some('h'), Bool, help, Used, None, "Print this help"),
    process_flag!(
        "version",
        None,
        Version,
        version,
        Used,
        None,
        "Print the version and exit; --version=raw prints all of it"
    ),
    config_flag!(
        "v",
        Some('v'),
        Level,
        process.logging.verbosity,
        "logging",
        None,
        "Write log lines up to this V level"
    ),
    config_flag!(
        "vmodule",
        None,
        VModule,
        process.logging.vmodule,
        "logging",
        None,
        "V levels for some source files, only for the text format"
    ),
    config_flag!(
        "log-flush-frequency",
        None,
        Duration,
        process.logging.flush_frequency.duration,
        "logging",
        None,
        "Longest time before a log line is written"
    ),
    config_flag!("logging-format", Str, process.logging.format, "logging", "Format of the log: text or json"),
    config_flag!(
        "log-text-split-stream",
        Bool,
        process.logging.options.text.split_stream,
        "logging.options",
        "[Alpha] Text format: informational lines go to standard output"
    ),
    config_flag!(
        "log-text-info-buffer-size",
        Bytes,
        process.logging.options.text.info_buffer_size,
        "logging.options",
        "[Alpha] Text format: buffer of the informational stream, in bytes"
    ),
    config_flag!(
        "log-json-split-stream",
        Bool,
        process.logging.options.json.split_stream,
        "logging.options",
        "[Alpha] JSON format: informational lines go to standard output"
    ),
    config_flag!(
        "log-json-info-buffer-size",
        Bytes,
        process.logging.options.json.info_buffer_size,
        "logging.options",
        "[Alpha] JSON format: buffer of the informational stream, in bytes"
    ),
    config_flag!(
        "feature-gates",
        Gates,
        process.feature_gates,
        "featureGates",
        "Feature gates as name=true|false, comma-separated:"
    ),
    process_flag!(
        "housekeeping-interval",
        Duration,
        housekeeping_interval,
        NotYet,
        "Time between two looks at a container's usage"
    ),
    process_flag!(
        "max-housekeeping-interval",
        Duration,
        max_housekeeping_interval,
        NotYet,
        "Longest time between two looks at a container's usage"
    ),
    process_flag!(
        "maximum-dead-containers",
        None,
        Int32,
        maximum_dead_containers,
        Used,
        Some(EVICTION_FLAG),
        "Dead containers kept on the node; negative for any number"
    ),
    process_flag!(
        "maximum-dead-containers-per-container",
        None,
        Int32,
        maximum_dead_containers_per_container,
        Used,
        Some(EVICTION_FLAG),
        "Dead containers kept per container"
    ),
    process_flag!(
        "minimum-container-ttl-duration",
        None,
        Duration,
        minimum_container_ttl_duration,
        Used,
        Some(EVICTION_FLAG),
        "Age below which a dead container is kept"
    ),
    process_flag!(
        "experimental-mounter-path",
        None,
        Str,
        experimental_mounter_path,
        NotYet,
        Some("will be removed in 1.25 or later. in favor of using CSI."),
        "Program that mounts instead of mount(8)"
    ),
    process_flag!(
        "experimental-allocatable-ignore-eviction",
        None,
        Bool,
        experimental_allocatable_ignore_eviction,
        NotYet,
        Some("will be removed in 1.25 or later."),
        "Leave hard eviction thresholds out of node allocatable"
    ),
];
