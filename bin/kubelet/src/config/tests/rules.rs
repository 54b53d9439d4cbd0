//! `ValidateKubeletConfiguration`: upstream's messages, all at once.

use super::super::validation::{Host, validate};
use super::super::{FeatureGates, GoDuration, KubeletConfiguration};
use super::{CGROUP_V2, Files, refusal};

/// A valid configuration.
fn valid() -> KubeletConfiguration {
    let mut config = KubeletConfiguration::default();
    config.apply_gated_defaults(&FeatureGates::default());
    config.images.settle_parallel_pulls();
    config
}

fn broken(change: impl FnOnce(&mut KubeletConfiguration)) -> Vec<String> {
    broken_with(&[], change)
}

fn broken_with(gates: &[(&str, bool)], change: impl FnOnce(&mut KubeletConfiguration)) -> Vec<String> {
    let mut config = valid();
    change(&mut config);
    let settings = gates.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    let gates = FeatureGates::from_settings(&settings).expect("known gates");
    validate(&config, &gates, &CGROUP_V2)
}

#[test]
fn the_defaults_are_valid() {
    assert_eq!(broken(|_| {}), Vec::<String>::new());
}

type Change = fn(&mut KubeletConfiguration);

fn each_breaks(cases: &[(Change, &str)]) {
    for (change, message) in cases {
        assert_eq!(broken(change), [format!("invalid configuration: {message}")]);
    }
}

#[test]
fn each_limit_of_the_node_has_upstreams_message() {
    each_breaks(&[
        (|c| c.node.node_lease_duration_seconds = 0, "nodeLeaseDurationSeconds must be greater than 0"),
        (
            |c| c.cgroups.system_cgroups = "/s".to_owned(),
            "systemCgroups (--system-cgroups) was specified and cgroupRoot (--cgroup-root) was not specified",
        ),
        (|c| c.node.event_burst = -1, "eventBurst (--event-burst) -1 must not be a negative number"),
        (|c| c.node.event_record_qps = -1, "eventRecordQPS (--event-qps) -1 must not be a negative number"),
        (
            |c| c.server.healthz_port = 65_536,
            "healthzPort (--healthz-port) 65536 must be between 1 and 65535, inclusive",
        ),
        (
            |c| c.pods.cpu_cfs_quota_period = GoDuration::from_secs(2),
            "cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {2s} must be between 1ms and 1sec, inclusive",
        ),
        (
            |c| c.cgroups.oom_score_adj = 1001,
            "oomScoreAdj (--oom-score-adj) 1001 must be between -1000 and 1000, inclusive",
        ),
        (|c| c.server.port = 0, "port (--port) 0 must be between 1 and 65535, inclusive"),
        (
            |c| c.server.read_only_port = 65_536,
            "readOnlyPort (--read-only-port) 65536 must be between 0 and 65535, inclusive",
        ),
        (
            |c| c.node.node_status_max_images = -2,
            "nodeStatusMaxImages (--node-status-max-images) -2 must be -1 or greater",
        ),
    ]);
}

#[test]
fn each_limit_of_pods_and_images_has_upstreams_message() {
    each_breaks(&[
        (
            |c| c.images.image_gc_high_threshold_percent = 101,
            "imageGCHighThresholdPercent (--image-gc-high-threshold) 101 must be between 0 and 100, inclusive",
        ),
        (
            |c| c.images.image_gc_low_threshold_percent = 90,
            "imageGCLowThresholdPercent (--image-gc-low-threshold) 90 must be less than \
             imageGCHighThresholdPercent (--image-gc-high-threshold) 85",
        ),
        (
            |c| c.images.image_maximum_gc_age = GoDuration::from_secs(1),
            "imageMaximumGCAge 1s must be greater than imageMinimumGCAge 2m0s",
        ),
        (
            |c| c.images.max_parallel_image_pulls = Some(0),
            "maxParallelImagePulls 0 must be a positive number",
        ),
        (
            |c| c.images.serialize_image_pulls = Some(true),
            "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is \
             set to false",
        ),
        (
            |c| c.sources.run_once = true,
            "runOnce (--runOnce) true, Runonce mode has been deprecated and should not be set",
        ),
        (
            |c| c.resources.topology_manager_policy = "x".to_owned(),
            "topologyManagerPolicy (--topology-manager-policy) \"x\" must be one of: [\"none\" \"best-effort\" \
             \"restricted\" \"single-numa-node\"]",
        ),
        (
            |c| c.pods.crash_loop_back_off.max_container_restart_period = Some(GoDuration::from_secs(301)),
            "CrashLoopBackOff.MaxContainerRestartPeriod (got: 301 seconds) must be set between 1s and 300s",
        ),
        (|c| c.pods.container_log_max_files = 1, "containerLogMaxFiles must be greater than 1"),
        (
            |c| c.pods.container_log_monitor_interval = GoDuration::from_secs(2),
            "containerLogMonitorInterval must be a positive time duration greater than or equal to 3s",
        ),
        (
            |c| c.cgroups.memory_throttling_factor = 1.1,
            "memoryThrottlingFactor 1.1 must be greater than 0 and less than or equal to 1.0",
        ),
        (
            |c| c.pods.pod_logs_dir = "/var/../log".to_owned(),
            "pod logs path \"/var/../log\" must be normalized",
        ),
        (
            |c| c.pods.pod_logs_dir = "/grün".to_owned(),
            "pod logs path \"/grün\" mut contains ASCII characters only",
        ),
        (
            |c| c.images.container_runtime_endpoint = String::new(),
            "the containerRuntimeEndpoint was not specified or empty",
        ),
        (
            |c| c.cgroups.reserved_system_cpus = "0-x".to_owned(),
            "unable to parse reservedSystemCPUs (--reserved-cpus) 0-x, error: strconv.Atoi: parsing \"x\": invalid \
             syntax",
        ),
    ]);
}

#[test]
fn node_allocatable_is_checked_value_by_value() {
    let errors = broken(|config| {
        config.cgroups.cgroups_per_qos = false;
        config.cgroups.enforce_node_allocatable =
            ["pods", "pods", "system-reserved", "system-reserved-compressible", "nonsense"]
                .map(str::to_owned)
                .into();
    });
    let field = "enforceNodeAllocatable (--enforce-node-allocatable)";
    let per_qos = |value: &str| {
        format!("cgroupsPerQOS (--cgroups-per-qos) must be set to true when \"{value}\" contained in {field}")
    };
    let group = format!(
        "systemReservedCgroup (--system-reserved-cgroup) must be specified when \"system-reserved\" or \
         \"system-reserved-compressible\" included in {field}"
    );
    let expected = [
        format!(
            "both \"system-reserved\" and \"system-reserved-compressible\" cannot be specified together in {field}"
        ),
        per_qos("pods"),
        format!("duplicated enforcements \"pods\" in {field}"),
        group.clone(),
        per_qos("system-reserved"),
        group,
        per_qos("system-reserved-compressible"),
        format!(
            "option \"nonsense\" specified for {field}. Valid options are \"pods\", \"system-reserved\", \
             \"system-reserved-compressible\", \"kube-reserved\", \"kube-reserved-compressible\" or \"none\""
        ),
    ];
    assert_eq!(errors, expected.map(|text| format!("invalid configuration: {text}")));
}

#[test]
fn shutdown_periods_exclude_and_need_each_other() {
    let errors = broken(|config| {
        config.pods.shutdown_grace_period = GoDuration::from_secs(1);
        config.pods.shutdown_grace_period_critical_pods = GoDuration::from_secs(2);
    });
    assert_eq!(
        errors,
        ["invalid configuration: shutdownGracePeriodCriticalPods {2s} must be <= shutdownGracePeriod {1s}"]
    );
    let errors = broken(|config| config.pods.shutdown_grace_period = GoDuration::from_millis(1));
    assert_eq!(
        errors,
        ["invalid configuration: shutdownGracePeriod {1ms} must be either zero or otherwise >= 1 sec"]
    );
}

#[test]
fn gates_open_and_close_fields() {
    let off = [
        ("GracefulNodeShutdown", false),
        ("GracefulNodeShutdownBasedOnPodPriority", false),
        ("WindowsGracefulNodeShutdown", false),
        ("KubeletCrashLoopBackOffMax", false),
    ];
    let errors = broken_with(&off, |config| config.pods.shutdown_grace_period = GoDuration::from_secs(1));
    assert_eq!(
        errors,
        [
            "invalid configuration: FeatureGate KubeletCrashLoopBackOffMax not enabled, \
             CrashLoopBackOff.MaxContainerRestartPeriod must not be set",
            "invalid configuration: specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires \
             feature gate GracefulNodeShutdown",
        ]
    );
    let off = [("CustomCPUCFSQuotaPeriod", false)];
    assert_eq!(
        broken_with(&off, |config| config.pods.cpu_cfs_quota_period = GoDuration::from_millis(200)),
        ["invalid configuration: cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {200ms} requires feature gate \
             CustomCPUCFSQuotaPeriod"]
    );
}

#[test]
fn log_and_tracing_rules_name_their_field() {
    let errors = broken(|config| {
        config.process.logging.format = "xml".to_owned();
        config.process.logging.vmodule =
            vec![super::super::logging::VModuleItem { file_pattern: "a=b".to_owned(), verbosity: 1 }];
        config.process.logging.options.json.split_stream = true;
        config.node.tracing = Some(super::super::node::TracingConfiguration {
            endpoint: Some("http://collector".to_owned()),
            sampling_rate_per_million: Some(1_000_001),
        });
    });
    assert_eq!(
        errors,
        [
            "logging.format: Invalid value: \"xml\": Unsupported log format",
            "logging.vmodule: Forbidden: Only supported for text log format",
            "logging.vmodule[0]: Invalid value: \"a=b\": File pattern must not contain equal sign or comma",
            "logging.options.json.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled",
            "tracing.samplingRatePerMillion: Invalid value: 1000001: sampling rate per million must be less than or \
             equal to one million",
            "tracing.endpoint: Invalid value: \"http://collector\": unsupported scheme: http.  Options are none, \
             dns, unix, or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md",
        ]
    );
}

#[test]
fn an_endpoint_of_traces_is_a_name_of_grpc_and_a_share_is_at_most_all() {
    let with = |endpoint: Option<&str>, rate: Option<i32>| {
        broken(|config| {
            config.node.tracing = Some(super::super::node::TracingConfiguration {
                endpoint: endpoint.map(str::to_owned),
                sampling_rate_per_million: rate,
            });
        })
    };
    for good in [
        "localhost:4317",
        "collector",
        "[2001:db8::1]:4317",
        "dns:///collector:4317",
        "DNS://192.0.2.53/collector:4317",
        "unix:///run/collector.sock",
        "unix-abstract:///collector",
    ] {
        assert_eq!(with(Some(good), Some(1_000_000)), Vec::<String>::new(), "{good}");
    }
    assert_eq!(with(None, Some(0)), Vec::<String>::new());
    assert_eq!(
        with(None, Some(-1)),
        ["tracing.samplingRatePerMillion: Invalid value: -1: sampling rate must be positive"]
    );
    for (endpoint, url, why) in [
        ("collector:http", "dns://collector:http", r#"invalid port ":http" after host"#),
        ("unix:/run/a", "dns://unix:/run/a", ""),
        ("[::1", "dns://[::1", "missing ']' in host"),
        ("a b:1", "dns://a b:1", r#"invalid character " " in host name"#),
        ("dns://a b/", "dns://a b/", r#"invalid character " " in host name"#),
    ] {
        let expected = format!("tracing.endpoint: Invalid value: {url:?}: parse {url:?}: {why}");
        let expected = if why.is_empty() { Vec::new() } else { vec![expected] };
        assert_eq!(with(Some(endpoint), Some(1)), expected, "{endpoint}");
    }
    assert_eq!(
        with(Some("a\n"), None),
        [
            r#"tracing.endpoint: Invalid value: "dns://a\n": parse "dns://a\n": net/url: invalid control character in URL"#
        ]
    );
}

#[test]
fn images_of_the_allowlist_are_checked() {
    let errors = |pattern: &str| {
        broken(|config| {
            config.images.image_pull_credentials_verification_policy =
                "NeverVerifyAllowlistedImages".to_owned();
            config.images.preloaded_images_verification_allowlist = vec![pattern.to_owned()];
        })
    };
    for good in ["registry.k8s.io/pause", "localhost:5000/a/b", "registry.k8s.io/*"] {
        assert_eq!(errors(good), Vec::<String>::new(), "{good}");
    }
    for bad in [" a", "*", "/*", "registry/*/a", "registry/a:1", "registry/a@sha256:0", "registry/A"] {
        assert_eq!(errors(bad).len(), 1, "{bad}");
    }
}

#[test]
fn the_host_decides_about_cgroup_v1() {
    let (gates, v1) = (FeatureGates::default(), Host { cgroup_v2: false });
    let mut config = valid();
    let refused = validate(&config, &gates, &v1);
    assert_eq!(
        refused,
        [
            "kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is unsupported and will be \
          removed in a future release"
        ]
    );
    config.cgroups.fail_cgroup_v1 = false;
    assert_eq!(validate(&config, &gates, &v1), Vec::<String>::new());
    config.pods.single_process_oom_kill = Some(false);
    assert_eq!(validate(&config, &gates, &v1).len(), 1);
    assert_eq!(validate(&config, &gates, &CGROUP_V2), Vec::<String>::new());
}

#[test]
fn every_broken_rule_is_reported_at_once() {
    let files = Files::new();
    let file = files.kubelet("kubelet.yaml", "port: 70000\nmaxPods: -1\nhairpinMode: x");
    assert_eq!(
        refusal(&["--config", &file]),
        [
            "invalid configuration: maxPods (--max-pods) -1 must not be a negative number",
            "invalid configuration: port (--port) 70000 must be between 1 and 65535, inclusive",
            "invalid configuration: option \"x\" specified for hairpinMode (--hairpin-mode). Valid options are \
             \"none\", \"hairpin-veth\" or \"promiscuous-bridge\"",
        ]
        .map(|text| format!("failed to validate kubelet configuration: {text}"))
    );
}
