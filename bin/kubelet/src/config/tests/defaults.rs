//! The defaults of all fields.

use serde_json::{Value as Json, json};

use super::super::KubeletConfiguration;
use super::{Files, loaded};

/// The effective configuration of a file that sets nothing: upstream's, except for parallel pulls, whose default is
/// this kubelet's own.
fn of_an_empty_file() -> Json {
    serde_json::from_str(include_str!("defaults.json")).expect("JSON")
}

#[test]
fn an_empty_file_gives_the_documented_defaults() {
    let files = Files::new();
    let loaded = loaded(&["--config", &files.kubelet("kubelet.yaml", "")]);
    let (ours, expected) = (loaded.config.to_json(), of_an_empty_file());
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(ours.get(name), Some(value), "{name}");
    }
    assert_eq!(ours, expected);
    assert_eq!(super::beside_defaults(&loaded.warnings), Vec::<&str>::new());
}

#[test]
fn without_a_file_the_legacy_defaults_hold() {
    let loaded = loaded(&[]);
    let mut expected = of_an_empty_file();
    expected["authentication"]["anonymous"]["enabled"] = json!(true);
    expected["authentication"]["webhook"]["enabled"] = json!(false);
    expected["authorization"]["mode"] = json!("AlwaysAllow");
    expected["readOnlyPort"] = json!(10255);
    expected.as_object_mut().expect("an object").remove("evictionHard");
    assert_eq!(loaded.config.to_json(), expected);
    assert_eq!(super::beside_defaults(&loaded.warnings), Vec::<&str>::new());
}

#[test]
fn there_are_as_many_fields_as_upstream_has_and_each_once() {
    let mut names: Vec<&str> = KubeletConfiguration::rows().map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!((names.len(), KubeletConfiguration::rows().count()), (125, 125));
}

#[test]
fn zero_means_unset_where_go_cannot_tell_the_two_apart() {
    let files = Files::new();
    let config = |fields: &str| loaded(&["--config", &files.kubelet("kubelet.yaml", fields)]).config;
    let zeros =
        config("maxPods: 0\nsyncFrequency: 0s\neventRecordQPS: 0\nhealthzPort: 0\nregistryPullQPS: null");
    assert_eq!(zeros.pods.max_pods, 110);
    assert_eq!(zeros.sources.sync_frequency.to_string(), "1m0s");
    assert_eq!((zeros.node.event_record_qps, zeros.server.healthz_port), (0, 0));
    assert_eq!(zeros.images.registry_pull_qps, 5);
    assert_eq!(config("podPidsLimit: -7").pods.pod_pids_limit, -1);
    assert!(config("enforceNodeAllocatable: []").cgroups.enforce_node_allocatable.is_empty());
    let report = config("nodeStatusUpdateFrequency: 30s").node.node_status_report_frequency;
    assert_eq!(report.to_string(), "30s");
}

#[test]
fn parallel_pulls_follow_whoever_speaks() {
    let files = Files::new();
    let pulls = |fields: &str, flags: &[&str]| {
        let file = files.kubelet("kubelet.yaml", fields);
        let images = loaded(&[&["--config", file.as_str()], flags].concat()).config.images;
        (images.serialize_image_pulls, images.max_parallel_image_pulls)
    };
    assert_eq!(pulls("", &[]), (Some(false), Some(5)));
    assert_eq!(pulls("serializeImagePulls: true", &[]), (Some(true), None));
    assert_eq!(pulls("serializeImagePulls: false", &[]), (Some(false), None));
    assert_eq!(pulls("maxParallelImagePulls: 3", &[]), (Some(false), Some(3)));
    assert_eq!(pulls("maxParallelImagePulls: 1", &[]), (Some(true), Some(1)));
    assert_eq!(pulls("", &["--serialize-image-pulls"]), (Some(true), None));
    assert_eq!(pulls("serializeImagePulls: true", &["--serialize-image-pulls=false"]), (Some(false), None));
}

#[test]
fn what_is_printed_reads_back_as_the_same() {
    let files = Files::new();
    let first = loaded(&[
        "--config",
        &files.kubelet(
            "kubelet.yaml",
            "staticPodPath: /pods\nreservedMemory: \
        [{numaNode: 0, limits: {memory: 1Gi}}]\nlogging: {flushFrequency: 5000000000, verbosity: 3}",
        ),
    ]);
    let text = first.config.to_json().to_string();
    let second = loaded(&["--config", &files.write("printed.json", &text)]);
    assert_eq!(first.config, second.config);
    assert!(text.contains("\"flushFrequency\":5000000000"), "{text}");
}

#[test]
fn the_headers_of_manifest_requests_are_not_shown() {
    let loaded = loaded(&["--manifest-url-header=Authorization:Bearer secret"]);
    assert_eq!(loaded.config.to_json()["staticPodURLHeader"], json!({"Authorization": ["<masked>"]}));
    assert_eq!(loaded.config.sources.static_pod_url_header["Authorization"], ["Bearer secret"]);
}

#[test]
fn the_sample_files_load() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config");
    let loaded = loaded(&[
        "--config",
        &format!("{directory}/kubelet.yaml"),
        "--understudy-config",
        &format!("{directory}/understudy.yaml"),
    ]);
    assert_eq!(loaded.config.sources.static_pod_path, "/etc/kubernetes/manifests");
    assert_eq!(loaded.understudy, super::super::UnderstudyConfiguration::default());
}
