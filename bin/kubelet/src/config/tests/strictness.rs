//! Contents that a file may not have.

use super::{Files, loaded, refusal};

#[test]
fn unknown_fields_and_wrong_types_are_all_named_with_file_path_and_value() {
    let files = Files::new();
    let file = files.kubelet(
        "kubelet.yaml",
        "port: \"10250\"\nmaxPods: 1.5\nstaticPodpath: /pods\nsyncFrequency: 10\nfileCheckFrequency: 1 day\n\
         authentication: {webhook: {enabled: 1, ttl: 5s}}\nclusterDNS: [10.0.0.10, 7]\nsystemReserved: {cpu: 1}\n\
         oomScoreAdj: 3000000000",
    );
    let mut errors = refusal(&["--config", &file]);
    errors.sort();
    let prefix = format!("failed to decode configuration {file}: ");
    let expected = [
        "field \"authentication.webhook.enabled\": invalid value 1: expected a boolean",
        "field \"clusterDNS[1]\": invalid value 7: expected a string",
        "field \"fileCheckFrequency\": invalid value \"1 day\": expected a duration (time: unknown unit \" day\" in \
         duration \"1 day\")",
        "field \"maxPods\": invalid value 1.5: expected a 32-bit integer",
        "field \"oomScoreAdj\": invalid value 3000000000: expected a 32-bit integer",
        "field \"port\": invalid value \"10250\": expected a 32-bit integer",
        "field \"syncFrequency\": invalid value 10: expected a duration such as \"1m30s\"",
        "field \"systemReserved.cpu\": invalid value 1: expected a string",
        "unknown field \"authentication.webhook.ttl\" (value \"5s\")",
        "unknown field \"staticPodpath\" (value \"/pods\")",
    ];
    assert_eq!(errors, expected.map(|text| format!("{prefix}{text}")));
}

#[test]
fn yaml_means_what_it_means_to_the_go_kubelet() {
    let files = Files::new();
    let file = files.kubelet("kubelet.yaml", "failSwapOn: no\nmaxPods: 0100\nclusterDNS: &dns [10.0.0.10]\n");
    let loaded = loaded(&["--config", &file]);
    assert!(!loaded.config.pods.fail_swap_on);
    assert_eq!(loaded.config.pods.max_pods, 64, "octal");
}

#[test]
fn a_field_set_twice_is_refused() {
    let files = Files::new();
    let file = files.kubelet("kubelet.yaml", "maxPods: 1\nmaxPods: 2");
    let errors = refusal(&["--config", &file]);
    assert_eq!(errors.len(), 1);
    assert!(errors[0].starts_with(&format!("failed to parse configuration {file}: ")), "{errors:?}");
    assert!(errors[0].contains("field \"maxPods\" is set twice (second value 2)"), "{errors:?}");
}

#[test]
fn another_kind_or_version_is_refused() {
    let files = Files::new();
    for (text, found) in [
        ("kind: KubeProxyConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1", "KubeProxyConfiguration"),
        ("kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1\""),
        ("maxPods: 3", "found kind null"),
        ("[1]", "expected an object"),
    ] {
        let file = files.write("kubelet.yaml", text);
        let errors = refusal(&["--config", &file]);
        assert!(errors[0].starts_with(&format!("failed to load configuration {file}: ")), "{errors:?}");
        assert!(errors[0].contains(found), "{errors:?}");
    }
}

#[test]
fn missing_empty_and_malformed_files_are_refused() {
    let files = Files::new();
    let missing = files.path("missing.yaml").display().to_string();
    assert!(refusal(&["--config", &missing])[0].starts_with("failed to read configuration"));
    for text in ["", "a: [", "a: 1\n---\nb: 2\n"] {
        let file = files.write("kubelet.yaml", text);
        assert!(refusal(&["--config", &file])[0].starts_with("failed to parse configuration"), "{text:?}");
    }
}

#[test]
fn our_own_kind_is_read_as_strictly() {
    let files = Files::new();
    let head = "kind: UnderstudyConfiguration\napiVersion: understudy.dev/v1alpha1\n";
    let file = files.write("ours.yaml", &format!("{head}supervision: {{backoffInitial: 50ms, restarts: 3}}"));
    assert_eq!(
        refusal(&["--understudy-config", &file]),
        [format!("failed to decode configuration {file}: unknown field \"supervision.restarts\" (value 3)")]
    );
    let file = files.write("ours.yaml", &format!("{head}mailbox: {{default: 0}}"));
    assert_eq!(
        refusal(&["--understudy-config", &file]),
        [
            "failed to validate kubelet configuration: invalid understudy configuration: mailbox.default 0 must be at \
          least 1"
        ]
    );
    let file = files.write(
        "ours.yaml",
        &format!("{head}mailbox: {{perActor: {{pleg: 7}}}}\npodSubmission: {{enabled: true}}"),
    );
    let loaded = loaded(&["--understudy-config", &file]);
    assert_eq!(loaded.understudy.mailbox.per_actor["pleg"], 7);
    assert!(loaded.understudy.pod_submission.enabled);
    assert_eq!(super::beside_defaults(&loaded.warnings), Vec::<&str>::new());
}
