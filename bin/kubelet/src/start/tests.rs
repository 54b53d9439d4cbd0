use std::collections::BTreeMap;

use bridge_node::host::StartFacts;

use super::*;
use crate::config::{FeatureGates, KubeletConfiguration, UnderstudyConfiguration};
use crate::flags::KubeletFlags;

const HEADINGS: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";

/// A configuration that starts on the machine of these tests, as a member of a cluster.
fn member() -> Loaded {
    let flags =
        KubeletFlags { kubeconfig: "/etc/kubernetes/kubelet.conf".to_owned(), ..KubeletFlags::default() };
    Loaded {
        args: Vec::new(),
        config: KubeletConfiguration::default(),
        understudy: UnderstudyConfiguration::default(),
        flags,
        given: BTreeMap::new(),
        gates: FeatureGates::default(),
        warnings: Vec::new(),
        skipped_drop_ins: Vec::new(),
    }
}

/// The same configuration without an API server.
fn alone() -> Loaded {
    let mut loaded = member();
    loaded.flags.kubeconfig.clear();
    let server = &mut loaded.config.server;
    server.authentication.webhook.enabled = false;
    server.authentication.x509.client_ca_file = "/ca.crt".to_owned();
    server.authorization.mode = "AlwaysAllow".to_owned();
    loaded
}

fn usual() -> HostFacts {
    let facts = StartFacts { swaps: HEADINGS.to_owned(), cpus_online: "0-3".to_owned() };
    HostFacts { facts, cgroup_v2: true }
}

fn refusals(loaded: &Loaded) -> Vec<String> {
    check(loaded, &usual()).refusals.iter().map(ToString::to_string).collect()
}

type Change = fn(&mut Loaded);

fn each_is_refused(from: fn() -> Loaded, cases: &[(Change, &str)]) {
    for (change, expected) in cases {
        let mut loaded = from();
        change(&mut loaded);
        assert_eq!(refusals(&loaded), [expected.to_owned()]);
    }
}

#[test]
fn a_member_and_a_kubelet_alone_start() {
    assert_eq!(check(&member(), &usual()), StartupFindings::default());
    assert_eq!(check(&alone(), &usual()), StartupFindings::default());
    let mut legacy = alone();
    legacy.config = KubeletConfiguration::legacy();
    assert_eq!(check(&legacy, &usual()), StartupFindings::default());
}

#[test]
fn swap_stops_the_start_unless_it_is_allowed() {
    let place = "/dev/dm-1                               partition\t8388604\t0\t-2\n";
    let off = usual();
    let mut on = usual();
    on.facts.swaps.push_str(place);
    let mut loaded = member();
    assert_eq!(check(&loaded, &off), StartupFindings::default());
    let refused = check(&loaded, &on).refusals;
    let [refusal] = &refused[..] else { panic!("{refused:?}") };
    assert_eq!(refusal.field, "failSwapOn");
    let text = refusal.to_string();
    assert!(text.contains(
        "running with swap on is not supported, please disable swap or set --fail-swap-on flag to false"
    ));
    assert!(text.contains("/dev/dm-1"), "{text}");
    loaded.config.pods.fail_swap_on = false;
    let warning = "NoSwap is set due to memorySwapBehavior not specified";
    for machine in [&on, &off] {
        let verdict = check(&loaded, machine);
        assert_eq!((verdict.refusals, verdict.warnings), (vec![], vec![warning.to_owned()]));
    }
    loaded.config.pods.memory_swap.swap_behavior = "NoSwap".to_owned();
    assert_eq!(check(&loaded, &on), StartupFindings::default());
}

#[test]
fn limited_swap_needs_version_2_and_has_no_effect_yet() {
    let mut loaded = member();
    loaded.config.pods.memory_swap.swap_behavior = "LimitedSwap".to_owned();
    let verdict = check(&loaded, &usual());
    assert_eq!(verdict.refusals, []);
    assert!(verdict.warnings[0].starts_with("memorySwap.swapBehavior: LimitedSwap has no effect yet"));
    let verdict = check(&loaded, &HostFacts { cgroup_v2: false, ..usual() });
    assert_eq!(
        verdict.refusals[0].to_string(),
        "memorySwap.swapBehavior: Invalid value: \"LimitedSwap\": swap feature is enabled and LimitedSwap but it is \
         only supported with cgroupv2"
    );
}

#[test]
fn nobody_and_nonsense_may_not_ask() {
    each_is_refused(
        alone,
        &[
            (
                |l| l.config.server.authentication.webhook.enabled = true,
                "authentication.webhook.enabled: Invalid value: \"true\": no client provided, cannot use webhook \
                 authentication (there is no --kubeconfig)",
            ),
            (
                |l| l.config.server.authentication.x509.client_ca_file.clear(),
                "authentication: Invalid value: \"\": no authentication method configured (none of \
                 x509.clientCAFile, webhook.enabled, anonymous.enabled)",
            ),
            (
                |l| l.config.server.authorization.mode = "Webhook".to_owned(),
                "authorization.mode: Invalid value: \"Webhook\": no client provided, cannot use webhook authorization \
                 (there is no --kubeconfig)",
            ),
        ],
    );
    each_is_refused(
        member,
        &[
            (
                |l| l.config.server.authorization.mode = "Nonsense".to_owned(),
                "authorization.mode: Invalid value: \"Nonsense\": unknown authorization mode Nonsense",
            ),
            (
                |l| l.config.server.authorization.mode.clear(),
                "authorization.mode: Invalid value: \"\": no authorization mode specified",
            ),
        ],
    );
    let mut open = alone();
    open.config.server.authentication.x509.client_ca_file.clear();
    open.config.server.authentication.anonymous.enabled = true;
    assert_eq!(refusals(&open), [""; 0], "open, but said so");
}

#[test]
fn half_a_pair_and_unknown_protocols_are_refused() {
    each_is_refused(
        member,
        &[
            (
                |l| l.config.server.tls_cert_file = "/tls.crt".to_owned(),
                "tlsCertFile: Invalid value: \"/tls.crt\": certificate and key must be supplied as a pair: \
                 tlsPrivateKeyFile is not set",
            ),
            (
                |l| l.config.server.tls_private_key_file = "/tls.key".to_owned(),
                "tlsPrivateKeyFile: Invalid value: \"/tls.key\": certificate and key must be supplied as a pair: \
                 tlsCertFile is not set",
            ),
            (
                |l| l.config.server.tls_min_version = "VersionTLS99".to_owned(),
                "tlsMinVersion: Invalid value: \"VersionTLS99\": unknown tls version \"VersionTLS99\"",
            ),
            (
                |l| l.config.server.tls_cipher_suites = vec!["TLS_NONE".to_owned()],
                "tlsCipherSuites: Invalid value: \"TLS_NONE\": Cipher suite TLS_NONE not supported or doesn't exist",
            ),
            (
                |l| l.config.server.tls_curve_preferences = vec![29, 7],
                "tlsCurvePreferences: Invalid value: \"7\": curve preference 7 is not supported",
            ),
        ],
    );
}

#[test]
fn flags_and_fields_of_pods_are_refused_with_their_names() {
    each_is_refused(
        member,
        &[
            (
                |l| l.config.cgroups.system_cgroups = "//".to_owned(),
                "systemCgroups: Invalid value: \"//\": system container cannot be root (\"/\")",
            ),
            (|l| l.flags.root_dir.clear(), "--root-dir: Invalid value: \"\": invalid root directory \"\""),
            (
                |l| l.flags.exit_on_lock_contention = true,
                "--exit-on-lock-contention: Invalid value: \"true\": cannot exit on lock file contention: no lock file \
                 specified",
            ),
            (
                |l| l.flags.cloud_provider = "aws".to_owned(),
                "--cloud-provider: Invalid value: \"aws\": cloud provider \"aws\" was specified, but built-in cloud \
                 providers are disabled. Please set --cloud-provider=external and migrate to an external cloud \
                 provider",
            ),
            (
                |l| l.config.sources.sync_frequency = crate::config::GoDuration::from_nanos(-1),
                "syncFrequency: Invalid value: \"-1ns\": invalid sync frequency",
            ),
            (
                |l| {
                    l.config.sources.config_map_and_secret_change_detection_strategy = "Poll".to_owned();
                },
                "configMapAndSecretChangeDetectionStrategy: Invalid value: \"Poll\": unknown configmap and secret \
                 manager mode: Poll",
            ),
            (
                |l| l.config.pods.container_log_max_size = "10MB!".to_owned(),
                "containerLogMaxSize: Invalid value: \"10MB!\": failed to parse container log max size \"10MB!\": not \
                 a quantity of whole bytes",
            ),
            (
                |l| l.config.pods.container_log_max_size = "100m".to_owned(),
                "containerLogMaxSize: Invalid value: \"100m\": failed to parse container log max size \"100m\": not a \
                 quantity of whole bytes",
            ),
        ],
    );
    for cidr in ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.0/16,", "x/8", "fd00::/129"] {
        let mut loaded = alone();
        cidr.clone_into(&mut loaded.config.pods.pod_cidr);
        assert!(refusals(&loaded)[0].starts_with(&format!("podCIDR: Invalid value: {cidr:?}: ")), "{cidr}");
    }
    let mut both = alone();
    both.config.pods.pod_cidr = "10.0.0.0/16,fd00::/64".to_owned();
    both.config.pods.cluster_dns = vec!["10.96.0.10".to_owned(), "dns.local".to_owned()];
    let verdict = check(&both, &usual());
    assert_eq!(verdict.refusals, []);
    assert_eq!(verdict.warnings, ["clusterDNS: Invalid clusterDNS IP \"dns.local\" is left out"]);
}

#[test]
fn a_driver_that_nobody_knows_is_named() {
    let mut loaded = member();
    loaded.config.cgroups.cgroup_driver = "Systemd".to_owned();
    let verdict = check(&loaded, &usual());
    assert_eq!(verdict.refusals, []);
    assert!(
        verdict.warnings[0].starts_with("cgroupDriver: \"Systemd\" is neither"),
        "{:?}",
        verdict.warnings
    );
}

#[test]
fn managers_that_cannot_start_are_refused() {
    each_is_refused(
        member,
        &[
            (
                |l| l.config.cgroups.reserved_system_cpus = "2-4".to_owned(),
                "reservedSystemCPUs: Invalid value: \"2-4\": reserved-cpus: 2-4 is not a subset of online-cpus: 0-3",
            ),
            (
                |l| l.config.cgroups.qos_reserved = [("cpu".to_owned(), "10%".to_owned())].into(),
                "qosReserved: Invalid value: \"cpu=10%\": cannot reserve \"cpu\" resource",
            ),
            (
                |l| l.config.cgroups.qos_reserved = [("memory".to_owned(), "101%".to_owned())].into(),
                "qosReserved: Invalid value: \"memory=101%\": failed to parse percentage \"101%\" for \"memory\" \
                 resource: percentage must be between 0 and 100",
            ),
            (
                |l| l.config.resources.cpu_manager_policy = "dynamic".to_owned(),
                "cpuManagerPolicy: Invalid value: \"dynamic\": unknown policy: \"dynamic\"",
            ),
            (
                |l| l.config.resources.cpu_manager_policy = "static".to_owned(),
                "cpuManagerPolicy: Invalid value: \"static\": the static policy requires systemreserved.cpu + \
                 kubereserved.cpu to be greater than zero",
            ),
            (
                |l| {
                    l.config.resources.cpu_manager_policy_options =
                        [("full-pcpus-only".to_owned(), "true".to_owned())].into();
                },
                "cpuManagerPolicyOptions: Invalid value: \"full-pcpus-only=true\": None policy: received unsupported \
                 options",
            ),
            (
                |l| {
                    l.config.cgroups.reserved_system_cpus = "0".to_owned();
                    l.config.resources.cpu_manager_policy = "static".to_owned();
                    l.config.resources.cpu_manager_policy_options =
                        [("align-by-socket".to_owned(), "true".to_owned())].into();
                },
                "cpuManagerPolicyOptions: Invalid value: \"align-by-socket\": CPU Manager Policy Alpha-level Options not \
                 enabled, but option \"align-by-socket\" provided",
            ),
            (
                |l| l.config.resources.memory_manager_policy = "Dynamic".to_owned(),
                "memoryManagerPolicy: Invalid value: \"Dynamic\": unknown policy: \"Dynamic\"",
            ),
            (
                |l| {
                    l.config.resources.topology_manager_policy = "restricted".to_owned();
                    l.config.resources.topology_manager_policy_options =
                        [("max-allowable-numa-nodes".to_owned(), "7".to_owned())].into();
                },
                "topologyManagerPolicyOptions: Invalid value: \"max-allowable-numa-nodes=7\": the minimum value of \
                 \"max-allowable-numa-nodes\" should not be less than 8",
            ),
        ],
    );
}
