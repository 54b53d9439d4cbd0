//! Settings that follow from the configuration, the flags and the gates.

use std::collections::BTreeMap;

use super::*;
use crate::config::FeatureGates;

#[test]
fn sizes_of_logs_are_whole_numbers_and_negative_ones_turn_rotation_off() {
    let rotation = |size: &str| {
        let mut config = KubeletConfiguration::default();
        config.pods.container_log_max_size = size.to_owned();
        log_rotation(&config)
    };
    assert_eq!(rotation("10Mi"), Ok(LogRotation::default()));
    assert_eq!(rotation("1.5Ki").map(|logs| logs.bytes_max), Ok(Some(1536)));
    assert_eq!(rotation("-1").map(|logs| logs.bytes_max), Ok(None));
    for size in ["", "lots", "500m"] {
        let error = rotation(size).expect_err("no size").to_string();
        assert!(error.starts_with(&format!("containerLogMaxSize: Invalid value: {size:?}: ")), "{error}");
    }
}

#[test]
fn flags_of_dead_containers_are_limits_unless_negative() {
    assert_eq!(garbage(&KubeletFlags::default()), GcPolicy::default());
    let flags = KubeletFlags {
        maximum_dead_containers: 7,
        maximum_dead_containers_per_container: -1,
        minimum_container_ttl_duration: GoDuration::from_secs(90),
        ..KubeletFlags::default()
    };
    let (min_age, containers_max) = (Duration::from_secs(90), Some(7));
    assert_eq!(garbage(&flags), GcPolicy { min_age, per_container_max: None, containers_max });
}

#[test]
fn the_standard_of_pods_is_that_of_the_configuration() {
    let mut understudy = UnderstudyConfiguration::default();
    assert_eq!(pod_security(&understudy), PodSecurity::default());
    understudy.pod_security.enforce = "restricted".to_owned();
    understudy.pod_security.version = "v1.30".to_owned();
    assert_eq!(pod_security(&understudy).to_string(), "restricted:v1.30");
    understudy.pod_security.enforce = "strict".to_owned();
    assert_eq!(pod_security(&understudy).level, SecurityLevel::Restricted, "never less than was meant");
}

#[test]
fn objects_are_kept_current_as_the_configuration_says() {
    let mut config = KubeletConfiguration::default();
    assert_eq!(object_strategy(&config), Strategy::Watch);
    for (word, strategy) in [("Cache", Strategy::Cache), ("Get", Strategy::Get), ("Watch", Strategy::Watch)] {
        config.sources.config_map_and_secret_change_detection_strategy = word.to_owned();
        assert_eq!(object_strategy(&config), strategy);
    }
}

#[test]
fn unused_images_are_deleted_as_the_configuration_says() {
    let mut config = KubeletConfiguration::default();
    let collection = |config: &KubeletConfiguration| image_settings(config).collection;
    let usual = CollectionPolicy { high_percent: 85, ..CollectionPolicy::default() };
    assert_eq!(collection(&config), usual);
    config.images.image_gc_high_threshold_percent = 100;
    assert!(!collection(&config).is_on());
    config.images.image_maximum_gc_age = GoDuration::from_secs(86_400);
    assert_eq!(collection(&config).max_age, Some(Duration::from_secs(86_400)));
    assert!(collection(&config).is_on());
}

fn loaded() -> Loaded {
    Loaded {
        args: Vec::new(),
        config: KubeletConfiguration::default(),
        understudy: UnderstudyConfiguration::default(),
        flags: KubeletFlags::default(),
        given: BTreeMap::new(),
        gates: FeatureGates::default(),
        warnings: Vec::new(),
        skipped_drop_ins: Vec::new(),
    }
}

fn rules(loaded: &Loaded) -> NodeRules {
    node_rules(loaded, CgroupVersion::V2, ContainerFacts::default())
}

#[test]
fn containers_go_by_the_defaults() {
    let usual = rules(&loaded());
    assert_eq!(usual, NodeRules { cgroups_v2: true, ..NodeRules::default() });
    let machine = ContainerFacts {
        selinux: false,
        selinux_labels: None,
        swap_controller: true,
        huge_page_sizes: vec![2 << 20],
        thermal_paths: vec!["/sys/x".to_owned()],
    };
    let rules = node_rules(&loaded(), CgroupVersion::Hybrid, machine.clone());
    assert!(!rules.cgroups_v2 && rules.swap_controller);
    assert_eq!(
        (rules.huge_page_sizes, rules.thermal_paths),
        (machine.huge_page_sizes, machine.thermal_paths)
    );
}

#[test]
fn containers_go_by_the_configuration() {
    let mut loaded = loaded();
    let pods = &mut loaded.config.pods;
    pods.cpu_cfs_quota_period = GoDuration::from_millis(20);
    pods.single_process_oom_kill = Some(true);
    loaded.flags.root_dir = "/k".to_owned();
    let on = ["ContainerStopSignals", "RuntimeClassInImageCriApi"].map(|gate| (gate.to_owned(), true));
    loaded.gates = FeatureGates::from_settings(&on.into()).expect("gates");
    let made = rules(&loaded);
    assert_eq!(made.cpu_quota_period_us, Some(20_000));
    assert!(made.single_process_oom_kill && made.stop_signals && made.images_by_handler);
    assert_eq!(made.seccomp_root, PathBuf::from("/k/seccomp"));
    loaded.config.pods.cpu_cfs_quota = false;
    assert_eq!(rules(&loaded).cpu_quota_period_us, None);
}

#[test]
fn gates_and_the_configuration_bound_the_delays_of_restarts() {
    let seconds = |gates: &[(&str, bool)], max: Option<i64>| {
        let mut config = KubeletConfiguration::default();
        let settings = gates.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect();
        let gates = FeatureGates::from_settings(&settings).expect("gates");
        config.apply_gated_defaults(&gates);
        if let Some(max) = max {
            config.pods.crash_loop_back_off.max_container_restart_period = Some(GoDuration::from_secs(max));
        }
        let bounds = crash_backoff(&config, &gates);
        (bounds.initial.as_secs(), bounds.max.as_secs())
    };
    let (reduced, configured) = ("ReduceDefaultCrashLoopBackOffDecay", "KubeletCrashLoopBackOffMax");
    assert_eq!(seconds(&[], None), (10, 300));
    assert_eq!(seconds(&[], Some(5)), (5, 5));
    assert_eq!(seconds(&[(reduced, true)], None), (1, 300), "the configured one goes before");
    assert_eq!(seconds(&[(reduced, true)], Some(20)), (1, 20));
    assert_eq!(seconds(&[(reduced, true), (configured, false)], None), (1, 60));
    assert_eq!(seconds(&[(configured, false)], None), (10, 300));
}

#[test]
fn field_and_flag_each_set_the_seccomp_default() {
    for (field, flag) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut loaded = loaded();
        loaded.config.pods.seccomp_default = field;
        loaded.flags.seccomp_default = flag;
        assert_eq!(rules(&loaded).seccomp_default, field || flag);
    }
}

#[test]
fn mailboxes_have_room_for_as_many_pods_as_the_node_may_run() {
    let mut understudy = UnderstudyConfiguration::default();
    understudy.mailbox.per_actor.insert("Pleg".to_owned(), 7);
    let policy = |max_pods| {
        let mut config = loaded().config;
        config.pods.max_pods = max_pods;
        policy(&understudy, &config, 0)
    };
    assert_eq!([0, 110, 1000].map(|pods| policy(pods).mailbox_bound), [1024, 1100, 10_000]);
    assert_eq!(policy(1000).mailbox_bounds["Pleg"], 7, "what is said of one actor holds");
}

#[test]
fn cgroups_of_processes_are_named_by_their_whole_paths() {
    let mut config = KubeletConfiguration::default();
    let none = ProcessCgroups { oom_score_adj: -999, ..ProcessCgroups::default() };
    assert_eq!(process_cgroups(&config), Ok(none.clone()));
    config.cgroups.kubelet_cgroups = "/system.slice/kubelet.service".to_owned();
    config.cgroups.system_cgroups = "system".to_owned();
    let (kubelet, system) = (Some("/system.slice/kubelet.service".to_owned()), Some("/system".to_owned()));
    assert_eq!(process_cgroups(&config), Ok(ProcessCgroups { kubelet, system, ..none }));
    config.cgroups.kubelet_cgroups = "/a/../b".to_owned();
    let error = process_cgroups(&config).expect_err("no path").to_string();
    assert!(error.starts_with("kubeletCgroups: Invalid value: \"/a/../b\": "), "{error}");
}
