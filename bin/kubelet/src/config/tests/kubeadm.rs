//! The files that kubeadm and its package write on a node, unchanged.

use std::collections::BTreeMap;
use std::path::Path;

use bridge_kube::Kubeconfig;
use resource_manager::capacity::MachineCapacity;

use super::{Files, Loaded, loaded};
use crate::settings;

const CONFIG: &str = include_str!("kubeadm/config.yaml");
const INSTANCE_CONFIG: &str = include_str!("kubeadm/instance-config.yaml");
const FLAGS: &str = include_str!("kubeadm/kubeadm-flags.env");
const DROP_IN: &str = include_str!("kubeadm/10-kubeadm.conf");
/// What we tell a user to install: beside kubeadm's drop-in, and on a node without kubeadm's packages.
const OUR_DROP_IN: &str = include_str!("../../../../../config/systemd/kubelet.service.d/20-understudy.conf");
const OUR_UNIT: &str = include_str!("../../../../../config/systemd/kubelet.service");
const KUBECONFIG: &str = include_str!("kubeadm/kubelet.conf");
/// The package kubelet's file for the administrator's own flags.
const EXTRA: &str = "KUBELET_EXTRA_ARGS=\n";

const DIRECTORIES: [&str; 2] = ["/etc/kubernetes", "/var/lib/kubelet"];

/// The files below a temporary directory instead of the root.
struct Machine {
    files: Files,
}

impl Machine {
    fn new(extra: &str) -> Self {
        let machine = Self { files: Files::new() };
        machine.write("/var/lib/kubelet/config.yaml", CONFIG);
        machine.write("/var/lib/kubelet/instance-config.yaml", INSTANCE_CONFIG);
        machine.write("/var/lib/kubelet/kubeadm-flags.env", FLAGS);
        machine.write("/etc/kubernetes/kubelet.conf", KUBECONFIG);
        machine.write("/etc/default/kubelet", extra);
        machine
    }

    fn at(&self, path: &str) -> String {
        self.files.path(path.trim_start_matches('/')).display().to_string()
    }

    fn below_root(&self, text: &str) -> String {
        let moved = |text: String, directory: &&str| text.replace(*directory, &self.at(directory));
        DIRECTORIES.iter().fold(text.to_owned(), moved)
    }

    fn write(&self, path: &str, text: &str) {
        self.files.write(path.trim_start_matches('/'), &self.below_root(text));
    }

    /// The arguments that systemd makes of a drop-in: the last `ExecStart`, its variables split at blanks.
    fn arguments(&self, drop_in: &str) -> Vec<String> {
        let mut variables = BTreeMap::new();
        let mut define = |assignment: &str| {
            let (name, value) = assignment.split_once('=').expect("NAME=value");
            variables.insert(name.to_owned(), value.trim_matches('"').to_owned());
        };
        let mut command = "";
        for line in drop_in.lines() {
            match line.split_once('=') {
                Some(("Environment", assignment)) => define(assignment.trim_matches('"')),
                Some(("EnvironmentFile", file)) => {
                    let file = self.at(file.trim_start_matches('-'));
                    let text = std::fs::read_to_string(file).expect("written by this test");
                    text.lines().for_each(&mut define);
                }
                Some(("ExecStart", found)) => command = found,
                _ => {}
            }
        }
        let mut words = command.split(' ');
        assert_eq!(words.next(), Some("/usr/bin/kubelet"));
        let values = words.map(|word| match word.strip_prefix('$') {
            Some(name) => variables.get(name).cloned().unwrap_or_default(),
            None => word.to_owned(),
        });
        let arguments = values.collect::<Vec<_>>().join(" ");
        self.below_root(&arguments).split_whitespace().map(str::to_owned).collect()
    }

    fn load(&self) -> Loaded {
        let arguments = self.arguments(DROP_IN);
        loaded(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

#[test]
fn a_node_of_kubeadm_starts_with_its_files_and_flags_unchanged() {
    let machine = Machine::new(EXTRA);
    let Loaded { config, flags, warnings, skipped_drop_ins, .. } = machine.load();
    assert_eq!(flags.kubeconfig, machine.at("/etc/kubernetes/kubelet.conf"));
    assert_eq!((flags.hostname_override.as_str(), flags.node_ip.as_str()), ("worker-1", "192.0.2.10"));
    let taints: Vec<String> = config
        .node
        .register_with_taints
        .iter()
        .map(|taint| format!("{}:{}", taint.key, taint.effect))
        .collect();
    assert_eq!(taints, ["node-role.kubernetes.io/control-plane:NoSchedule", "example.org/setup:NoExecute"]);

    let server = &config.server;
    assert!(!server.authentication.anonymous.enabled && server.authentication.webhook.enabled);
    assert_eq!(server.authentication.x509.client_ca_file, machine.at("/etc/kubernetes/pki/ca.crt"));
    assert_eq!(server.authorization.mode, "Webhook");
    assert_eq!((server.port, server.read_only_port, server.healthz_port), (10250, 0, 10248));
    assert_eq!(server.healthz_bind_address, "127.0.0.1");
    assert!(server.rotate_certificates);
    assert_eq!(config.cgroups.cgroup_driver, "systemd");
    assert_eq!(config.pods.cluster_dns, ["10.96.0.10"]);
    assert_eq!(config.pods.cluster_domain, "cluster.local");
    assert_eq!(config.pods.resolv_conf, "/run/systemd/resolve/resolv.conf");
    assert_eq!(config.images.container_runtime_endpoint, "unix:///var/run/containerd/containerd.sock");
    assert_eq!(config.sources.static_pod_path, machine.at("/etc/kubernetes/manifests"));

    assert_eq!(skipped_drop_ins, [] as [&Path; 0]);
    assert_eq!(super::beside_defaults(&warnings), Vec::<&str>::new(), "nothing that would frighten");
}

#[test]
fn our_drop_in_hands_over_all_that_kubeadms_does() {
    let machine = Machine::new("KUBELET_EXTRA_ARGS=--max-pods=42\n");
    let both =
        [DROP_IN, OUR_DROP_IN].concat().replace("/usr/local/bin/understudy-kubelet", "/usr/bin/kubelet");
    assert_eq!(machine.arguments(&both), machine.arguments(DROP_IN));
}

#[test]
fn our_unit_starts_with_a_configuration_and_flags_of_the_administrator() {
    let machine = Machine::new("KUBELET_EXTRA_ARGS=\"--node-ip=192.0.2.99 --max-pods=42\"\n");
    let arguments = machine.arguments(OUR_UNIT);
    let loaded = loaded(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(loaded.flags.config, machine.at("/var/lib/kubelet/config.yaml"));
    assert_eq!(
        (loaded.config.pods.max_pods, loaded.config.pods.cluster_domain.as_str()),
        (42, "cluster.local")
    );
}

#[test]
fn a_duration_of_zero_is_a_default() {
    let config = Machine::new(EXTRA).load().config;
    let shown = config.to_json();
    for (field, value) in [
        ("/authentication/webhook/cacheTTL", "2m0s"),
        ("/authorization/webhook/cacheAuthorizedTTL", "5m0s"),
        ("/authorization/webhook/cacheUnauthorizedTTL", "30s"),
        ("/cpuManagerReconcilePeriod", "10s"),
        ("/evictionPressureTransitionPeriod", "5m0s"),
        ("/fileCheckFrequency", "20s"),
        ("/httpCheckFrequency", "20s"),
        ("/imageMaximumGCAge", "0s"),
        ("/imageMinimumGCAge", "2m0s"),
        ("/nodeStatusReportFrequency", "5m0s"),
        ("/nodeStatusUpdateFrequency", "10s"),
        ("/runtimeRequestTimeout", "2m0s"),
        ("/shutdownGracePeriod", "0s"),
        ("/shutdownGracePeriodCriticalPods", "0s"),
        ("/streamingConnectionIdleTimeout", "4h0m0s"),
        ("/syncFrequency", "1m0s"),
        ("/volumeStatsAggPeriod", "1m0s"),
    ] {
        assert_eq!(shown.pointer(field).and_then(|value| value.as_str()), Some(value), "{field}");
    }
    assert_eq!(
        shown.pointer("/evictionHard/memory.available").and_then(|value| value.as_str()),
        Some("100Mi")
    );
}

#[test]
fn what_the_files_say_becomes_settings() {
    let loaded = Machine::new(EXTRA).load();
    let machine = MachineCapacity {
        cpus: 4,
        memory_bytes: 8 << 30,
        storage_bytes: Some(100 << 30),
        pids: Some(32768),
        ..MachineCapacity::default()
    };
    let settings = settings::settings(
        &loaded.config,
        &loaded.understudy,
        settings::garbage(&loaded.flags),
        "worker-1",
        None,
        &machine,
    );
    let settings = settings.expect("a configuration of kubeadm is in order");
    assert_eq!(settings.node, "worker-1");
    assert_eq!(settings.worker.cluster_dns.domain, "cluster.local");
    assert_eq!(settings.worker.cluster_dns.servers, ["10.96.0.10"]);
}

#[test]
fn the_kubeconfig_of_a_node_that_has_joined_is_read() {
    let machine = Machine::new(EXTRA);
    let path = machine.at("/etc/kubernetes/kubelet.conf");
    let read = Kubeconfig::read(Path::new(&path), &machine.below_root(KUBECONFIG));
    assert_eq!(read.expect("a kubeconfig of kubeadm is in order").server, "https://192.0.2.2:6443");
}

#[test]
fn the_administrators_own_flags_come_last() {
    let machine = Machine::new("KUBELET_EXTRA_ARGS=\"--node-ip=192.0.2.99 --max-pods=42\"\n");
    let Loaded { config, flags, .. } = machine.load();
    assert_eq!((flags.node_ip.as_str(), config.pods.max_pods), ("192.0.2.99", 42));
}

#[test]
fn a_directory_of_drop_ins_may_stand_beside_the_file() {
    let machine = Machine::new(EXTRA);
    machine.files.kubelet("etc/kubernetes/kubelet.conf.d/10-pods.conf", "maxPods: 250");
    let extra = "KUBELET_EXTRA_ARGS=--config-dir=/etc/kubernetes/kubelet.conf.d\n";
    machine.files.write("etc/default/kubelet", extra);
    let arguments = machine.arguments(DROP_IN);
    let loaded = loaded(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(
        (loaded.config.pods.max_pods, loaded.config.pods.cluster_domain.as_str()),
        (250, "cluster.local")
    );
}
