//! Configurations with which the kubelet's binary does not start: it ends with an error that names the field, and has
//! made nothing.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::Alone;
use crate::environment::Environment;
use crate::node::{Node, Options, SOON};

pub const ALL: &[(&str, Alone)] = &[
    ("what_upstream_refuses_is_refused_with_the_fields_name", fields),
    ("swap_stops_the_start_unless_it_is_allowed", swap),
    ("the_root_directory_is_the_kubelets_own_from_its_first_moment", root_directory),
    ("the_kernels_settings_are_demanded_or_made", kernel_settings),
    ("feature_gates_and_the_addresses_of_pods_have_their_effect", gates),
];

fn fields(environment: &Arc<Environment>) {
    let cases: &[(Value, &str)] = &[
        (json!({"tlsCertFile": "/nowhere/tls.crt"}), "tlsPrivateKeyFile is not set"),
        (json!({"tlsPrivateKeyFile": "/nowhere/tls.key"}), "tlsCertFile is not set"),
        (json!({"tlsCipherSuites": ["TLS_NONSENSE"]}), "tlsCipherSuites: Invalid value: \"TLS_NONSENSE\""),
        (json!({"tlsCurvePreferences": [29, 99]}), "tlsCurvePreferences: Invalid value: \"99\""),
        (json!({"tlsMinVersion": "VersionTLS9"}), "tlsMinVersion: Invalid value: \"VersionTLS9\""),
        (json!({"authorization": {"mode": "Nonsense"}}), "unknown authorization mode Nonsense"),
        (
            json!({"authorization": {"mode": "Webhook"}}),
            "authorization.mode: Invalid value: \"Webhook\": no client provided, cannot use webhook authorization",
        ),
        (
            json!({"authentication": {"webhook": {"enabled": true}}}),
            "no client provided, cannot use webhook authentication",
        ),
        (
            json!({"authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": false}}}),
            "no authentication method configured",
        ),
        (json!({"containerLogMaxSize": "10 MB"}), "containerLogMaxSize: Invalid value: \"10 MB\""),
        (json!({"containerLogMaxFiles": 1}), "containerLogMaxFiles must be greater than 1"),
        (json!({"reservedSystemCPUs": "0-"}), "reservedSystemCPUs (--reserved-cpus) 0-"),
        (json!({"reservedSystemCPUs": "60000"}), "reservedSystemCPUs: Invalid value: \"60000\""),
        (json!({"podCIDR": "10.0.0.0"}), "podCIDR: Invalid value: \"10.0.0.0\""),
        (json!({"evictionHard": {"memory.available": "many"}}), "evictionHard: memory.available=many"),
        (json!({"kubeReserved": {"cpu": "few"}}), "kubeReserved: Invalid value: \"cpu=few\""),
        (json!({"qosReserved": {"cpu": "10%"}}), "qosReserved: Invalid value: \"cpu=10%\""),
        (json!({"cpuManagerPolicy": "dynamic"}), "cpuManagerPolicy: Invalid value: \"dynamic\""),
        (json!({"imageGCLowThresholdPercent": 101}), "imageGCLowThresholdPercent"),
    ];
    for (kubelet, words) in cases {
        let options = Options { kubelet: kubelet.clone(), ..Options::default() };
        let node = Node::prepare(environment, "refused", options);
        node.start_kubelet();
        assert_eq!(node.kubelet_ends().code(), Some(1), "{kubelet}");
        // The log quotes values.
        let log = node.log().replace("\\\"", "\"");
        assert!(log.contains(words), "{kubelet}:\n{log}");
    }
}

fn swap(environment: &Arc<Environment>) {
    for (fail, words) in [(true, "running with swap on is not supported"), (false, "")] {
        let options = Options { kubelet: json!({"failSwapOn": fail}), ..Options::default() };
        let mut node = Node::prepare(environment, "swap", options);
        let swaps = node.gates().join("swaps");
        let text = "Filename\tType\tSize\tUsed\tPriority\n/dev/of-a-test partition\t1024\t0\t-2\n";
        std::fs::write(&swaps, text).expect("a file in the node's directory");
        node.after(&format!("mount --bind '{}' /proc/swaps", swaps.display()));
        if fail {
            node.start_kubelet();
            assert_eq!(node.kubelet_ends().code(), Some(1));
            let log = node.log();
            assert!(log.contains(words) && log.contains("/dev/of-a-test"), "{log}");
        } else {
            let node = node.started().expect("swap is allowed");
            assert!(node.log().contains("Swap is on"), "{}", node.log());
        }
    }
}

/// The root directory's mode does not depend on the umask.
fn root_directory(environment: &Arc<Environment>) {
    let mut node = Node::prepare(environment, "root-directory", Options::default());
    std::fs::remove_dir(node.root()).expect("it is empty");
    node.after("umask 0");
    let root = node.root();
    let node = node.started().expect("a kubelet");
    for (below, mode) in [
        ("", 0o750),
        ("pods", 0o750),
        ("plugins", 0o750),
        ("plugins_registry", 0o750),
        ("pod-resources", 0o750),
        ("checkpoints", 0o700),
    ] {
        let made = std::fs::metadata(root.join(below)).expect("it is there").permissions().mode() & 0o7777;
        assert_eq!(made, mode, "{below:?} is {made:o}");
    }
    node.assert_alive();
}

fn kernel_settings(environment: &Arc<Environment>) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str| dir.path().join(name);
    std::fs::create_dir(file("vm")).expect("an empty directory takes another");
    std::fs::create_dir_all(file("kernel/keys")).expect("an empty directory takes another");
    for name in [
        "vm/overcommit_memory",
        "vm/panic_on_oom",
        "kernel/panic",
        "kernel/panic_on_oops",
        "kernel/keys/root_maxkeys",
        "kernel/keys/root_maxbytes",
    ] {
        std::fs::write(file(name), "7\n").expect("a file in a directory of ours");
    }
    let options = |protect: bool| Options {
        kubelet: json!({"protectKernelDefaults": protect}),
        understudy: json!({"sysctlDir": dir.path()}),
        ..Options::default()
    };
    let panics = || std::fs::read_to_string(file("kernel/panic")).expect("it is there");
    let node = Node::prepare(environment, "kernel-protected", options(true));
    node.start_kubelet();
    assert_eq!(node.kubelet_ends().code(), Some(1));
    let log = node.log();
    for name in ["vm/overcommit_memory, expected value: 1", "kernel/panic, expected value: 10"] {
        assert!(log.contains(&format!("invalid kernel flag: {name}, actual value: 7")), "{log}");
    }
    assert_eq!(panics(), "7\n");
    let node = Node::alone(environment, "kernel-settings", options(false));
    assert_eq!(panics(), "10");
    node.assert_alive();
}

fn gates(environment: &Arc<Environment>) {
    let gates = json!({"EventedPLEG": true, "ContainerStopSignals": true});
    let kubelet = json!({"featureGates": gates, "podCIDR": "10.77.0.0/16"});
    let node = Node::alone(environment, "gates", Options { kubelet, ..Options::default() });
    let line = "these feature gates are away from their default and have no effect: EventedPLEG=true";
    testkit::process::eventually("the line on gates", SOON, || {
        let log = node.log();
        if log.contains(line) { Ok(()) } else { Err(log) }
    });
    testkit::process::eventually("the runtime is told of the addresses of pods", SOON, || {
        let log = node.log();
        let told = log.contains("\"Updating Pod CIDR\" newPodCIDR=\"10.77.0.0/16\"");
        if told && !log.contains("have no effect yet: podCIDR") { Ok(()) } else { Err(log) }
    });
    let metrics = node.read_only.text("/metrics").expect("metrics");
    for line in [
        "kubernetes_feature_enabled{name=\"EventedPLEG\",stage=\"ALPHA\"} 1",
        "kubernetes_feature_enabled{name=\"ContainerRestartRules\",stage=\"BETA\"} 1",
        "kubernetes_feature_enabled{name=\"SidecarContainers\",stage=\"\"} 1",
    ] {
        assert!(metrics.lines().any(|one| one == line), "{line}");
    }
}
