//! The precedence of flags, drop-ins, file and defaults.

use super::{Files, loaded, refusal};

#[test]
fn flags_win_over_drop_ins_over_the_file_over_defaults() {
    let files = Files::new();
    let file =
        files.kubelet("kubelet.yaml", "maxPods: 10\nregistryBurst: 11\neventBurst: 12\nclusterDomain: a");
    files.kubelet("conf.d/20-late.conf", "registryBurst: 22");
    files.kubelet("conf.d/10-early.conf", "registryBurst: 21\neventBurst: 23");
    files.kubelet("conf.d/15-dir/x.conf", "eventBurst: 24");
    files.kubelet("conf.d/99-other.yaml", "maxPods: 99");
    let directory = files.path("conf.d").display().to_string();
    let loaded =
        loaded(&["--config", &file, "--config-dir", &directory, "--event-burst=31", "--max-pods", "32"]);
    assert_eq!(loaded.config.pods.max_pods, 32);
    assert_eq!(loaded.config.images.registry_burst, 22);
    assert_eq!(loaded.config.node.event_burst, 31);
    assert_eq!(loaded.config.node.event_record_qps, 50);
    assert_eq!(loaded.skipped_drop_ins, [files.path("conf.d/99-other.yaml")]);
}

#[test]
fn drop_ins_are_merged_key_by_key_and_null_removes() {
    let files = Files::new();
    let file =
        files.kubelet("kubelet.yaml", "systemReserved: {cpu: \"1\", memory: 1Gi}\nclusterDNS: [1.1.1.1]");
    files.kubelet(
        "conf.d/10.conf",
        "systemReserved: {memory: null, pid: \"100\"}\nclusterDNS: [2.2.2.2]\nevictionHard: {memory.available: 1Gi}\n\
         authentication: {webhook: {enabled: false}}\nregistryPullQPS: null",
    );
    let directory = files.path("conf.d").display().to_string();
    let config = loaded(&["--config", &file, "--config-dir", &directory]).config;
    let reserved: Vec<(&str, &str)> =
        config.cgroups.system_reserved.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(reserved, [("cpu", "1"), ("pid", "100")]);
    assert_eq!(config.pods.cluster_dns, ["2.2.2.2"]);
    assert_eq!(config.eviction.eviction_hard["memory.available"], "1Gi");
    assert_eq!(config.eviction.eviction_hard["nodefs.available"], "10%");
    assert!(!config.server.authentication.webhook.enabled);
    assert_eq!(config.server.authentication.webhook.cache_ttl.to_string(), "2m0s");
    assert_eq!(config.images.registry_pull_qps, 5);
}

#[test]
fn a_bad_drop_in_is_named() {
    let files = Files::new();
    let bad = files.kubelet("conf.d/10.conf", "maxPod: 5");
    let other = files.write("conf.d/20.conf", "maxPods: 5");
    let directory = files.path("conf.d").display().to_string();
    let errors = refusal(&["--config-dir", &directory]);
    assert_eq!(
        errors[0],
        format!("failed to decode configuration {bad}: unknown field \"maxPod\" (value 5)")
    );
    assert!(errors[1].starts_with(&format!("failed to load configuration {other}: ")), "{errors:?}");
    assert!(refusal(&["--config-dir", "/no/such/directory"])[0].starts_with("failed to read configuration"));
}

#[test]
fn a_drop_in_may_ask_for_one_pull_at_a_time() {
    let files = Files::new();
    files.kubelet("conf.d/10.conf", "serializeImagePulls: true");
    let file = files.kubelet("kubelet.yaml", "");
    let directory = files.path("conf.d").display().to_string();
    let images = loaded(&["--config", &file, "--config-dir", &directory]).config.images;
    assert_eq!((images.serialize_image_pulls, images.max_parallel_image_pulls), (Some(true), None));
}

#[test]
fn hard_eviction_defaults_belong_to_the_file() {
    let files = Files::new();
    let hard = |fields: &str| {
        let file = files.kubelet("kubelet.yaml", fields);
        loaded(&["--config", &file]).config.eviction.eviction_hard
    };
    assert_eq!(hard("").len(), 5);
    assert_eq!(hard("evictionHard: {}").len(), 0);
    assert_eq!(hard("evictionHard: {pid.available: 5%}").len(), 1);
    let merged = hard("evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true");
    assert_eq!((merged.len(), merged["memory.available"].as_str()), (5, "1Gi"));
}

#[test]
fn feature_gates_of_file_and_flags_are_merged() {
    let files = Files::new();
    let file = files.kubelet("kubelet.yaml", "featureGates: {EventedPLEG: true, MemoryQoS: true}");
    let loaded = loaded(&["--config", &file, "--feature-gates=MemoryQoS=false,SELinuxMount=true"]);
    for (gate, on) in [("EventedPLEG", true), ("MemoryQoS", false), ("SELinuxMount", true)] {
        assert_eq!(loaded.gates.enabled(gate), on, "{gate}");
        assert_eq!(loaded.config.process.feature_gates[gate], on, "{gate}");
    }
    assert_eq!(
        refusal(&["--config", &file, "--feature-gates=NoSuchGate=true"]),
        ["failed to set feature gates: unrecognized feature gate: NoSuchGate"]
    );
    let file = files.kubelet("kubelet.yaml", "featureGates: {SidecarContainers: false}");
    assert_eq!(
        refusal(&["--config", &file]),
        [
            "failed to set feature gates: cannot set feature gate SidecarContainers to false, feature is locked to \
          true"
        ]
    );
}

#[test]
fn relative_paths_start_at_the_file() {
    let files = Files::new();
    let file = files.kubelet("etc/kubelet.yaml", "staticPodPath: ../pods\nresolvConf: \"\"");
    let config = loaded(&["--config", &file]).config;
    assert_eq!(config.sources.static_pod_path, files.path("pods").display().to_string());
    assert_eq!(config.pods.resolv_conf, "");
}

#[test]
fn settings_without_effect_yet_are_named_in_one_line() {
    let files = Files::new();
    let file = files.kubelet("kubelet.yaml", "reservedSystemCPUs: \"0\"\nmaxPods: 5\niptablesDropBit: 3");
    let effects = |args: &[&str]| {
        let warnings = loaded(args).warnings;
        let set = warnings.into_iter().find(|warning| warning.starts_with("these settings"));
        set.map(|line| line.split_once(": ").expect("a list").1.to_owned()).unwrap_or_default()
    };
    assert_eq!(
        effects(&["--config", &file, "--boot-id-file=/x", "--cert-dir=/y", "--pod-cidr=10.0.0.0/16"]),
        "reservedSystemCPUs, --boot-id-file"
    );
    // A field set to its default counts as set; a value that Go cannot tell from an unset one does not.
    let text = "contentType: application/vnd.kubernetes.protobuf\ncpuManagerReconcilePeriod: 0s\n\
                cpuManagerPolicy: none\nmemoryManagerPolicy: \"\"";
    let file = files.kubelet("kubelet.yaml", text);
    assert_eq!(
        effects(&["--config", &file, "--housekeeping-interval=10s", "--topology-manager-scope=container"]),
        "contentType, cpuManagerPolicy, topologyManagerScope, --housekeeping-interval"
    );
    let gate = "--feature-gates=LoggingAlphaOptions=true";
    let flags = ["--log-text-split-stream", "--log-json-info-buffer-size=1Mi"];
    assert_eq!(effects(&[gate, flags[0], flags[1]]), "--log-json-info-buffer-size, --log-text-split-stream");
    let file = files.kubelet("kubelet.yaml", "logging: {options: {json: {splitStream: true}}}");
    assert_eq!(effects(&[gate, "--config", &file]), "logging.options");
    // Of these the default works.
    assert_eq!(effects(&["--enable-controller-attach-detach=false"]), "enableControllerAttachDetach");
    let works = loaded(&["--config", &files.kubelet("kubelet.yaml", "enableControllerAttachDetach: true")]);
    assert!(!works.warnings.iter().any(|line| line.contains("enableControllerAttachDetach")));
    files.kubelet("conf.d/10.conf", "kernelMemcgNotification: true");
    let directory = files.path("conf.d").display().to_string();
    assert_eq!(effects(&["--config-dir", &directory]), "kernelMemcgNotification");
}

#[test]
fn defaults_that_have_no_effect_yet_are_named_too() {
    let files = Files::new();
    let line = |fields: &str| {
        let warnings = loaded(&["--config", &files.kubelet("kubelet.yaml", fields)]).warnings;
        warnings.into_iter().find(|warning| warning.contains("not even at their defaults")).expect("a line")
    };
    let all = line("");
    for field in ["contentType", "enableProfilingHandler"] {
        assert!(all.contains(field), "{field}: {all}");
    }
    // The field is in the list of set ones instead.
    assert!(!line("enableProfilingHandler: true").contains("enableProfilingHandler"));
}

#[test]
fn gates_without_effect_are_named_in_one_line() {
    let line = |gates: &str| {
        let warnings = loaded(&[&format!("--feature-gates={gates}")]).warnings;
        warnings.into_iter().find(|warning| warning.starts_with("these feature gates"))
    };
    assert_eq!(line("ContainerStopSignals=true,HostnameOverride=false,EventedPLEG=false"), None);
    assert_eq!(
        line("EventedPLEG=true,KubeletSeparateDiskGC=false,ContainerStopSignals=true").as_deref(),
        Some(
            "these feature gates are away from their default and have no effect: EventedPLEG=true, \
             KubeletSeparateDiskGC=false"
        )
    );
    assert!(line("AllAlpha=true").is_some_and(|line| line.contains("EventedPLEG=true")));
}

#[test]
fn a_first_certificate_and_later_ones_can_be_asked_for() {
    let args = ["--bootstrap-kubeconfig=/b.conf", "--rotate-certificates", "--rotate-server-certificates"];
    let loaded = loaded(&args);
    assert_eq!(super::beside_defaults(&loaded.warnings), Vec::<&str>::new());
    assert_eq!(loaded.flags.bootstrap_kubeconfig, "/b.conf");
    assert!(loaded.config.server.rotate_certificates && loaded.config.server.server_tls_bootstrap);
}
