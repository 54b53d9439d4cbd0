//! Flags and the fields that they set, and pflag's rules.

use serde_json::{Value as Json, json};

use super::{Parsed, VersionRequest, parse, rows};
use crate::config::validation::Host;
use crate::load::{Invocation, load};

fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|&word| word.to_owned()).collect()
}

fn parsed(line: &[&str]) -> Parsed {
    parse(&words(line)).unwrap_or_else(|error| panic!("{line:?}: {error}"))
}

fn refused(line: &[&str]) -> String {
    match parse(&words(line)) {
        Ok(_) => panic!("{line:?} was accepted"),
        Err(error) => error.to_string().trim_start_matches("failed to parse kubelet flag: ").to_owned(),
    }
}

#[test]
fn each_flag_sets_its_field() {
    let cases: &[(&[&str], &str, Json)] = &[
        (&["--address=::1"], "/address", json!("::1")),
        (&["--address", "10.0.0.1"], "/address", json!("10.0.0.1")),
        (&["--port=1234"], "/port", json!(1234)),
        (&["--port=0x10"], "/port", json!(16)),
        (&["--read-only-port", "5"], "/readOnlyPort", json!(5)),
        (&["--enable-server=false"], "/enableServer", json!(false)),
        (&["--anonymous-auth=F"], "/authentication/anonymous/enabled", json!(false)),
        (&["--authentication-token-webhook"], "/authentication/webhook/enabled", json!(true)),
        (
            &["--authentication-token-webhook-cache-ttl=90s"],
            "/authentication/webhook/cacheTTL",
            json!("1m30s"),
        ),
        (&["--client-ca-file=/ca"], "/authentication/x509/clientCAFile", json!("/ca")),
        (&["--authorization-mode=Webhook"], "/authorization/mode", json!("Webhook")),
        (&["--pod-manifest-path=/m"], "/staticPodPath", json!("/m")),
        (&["--sync_frequency=2m"], "/syncFrequency", json!("2m0s")),
        (&["--max-open-files=7"], "/maxOpenFiles", json!(7)),
        (&["--pod-max-pids=-5"], "/podPidsLimit", json!(-5)),
        (
            &["--cluster-dns=1.1.1.1,2.2.2.2", "--cluster-dns=3.3.3.3"],
            "/clusterDNS",
            json!(["1.1.1.1", "2.2.2.2", "3.3.3.3"]),
        ),
        (&["--enforce-node-allocatable="], "/enforceNodeAllocatable", Json::Null),
        (&["--allowed-unsafe-sysctls=\"a,b\",c"], "/allowedUnsafeSysctls", json!(["a,b", "c"])),
        (
            &["--eviction-hard=memory.available<100Mi, nodefs.available<10%"],
            "/evictionHard",
            json!({"memory.available": "100Mi", "nodefs.available": "10%"}),
        ),
        (
            &["--eviction-soft-grace-period=memory.available=1m30s"],
            "/evictionSoftGracePeriod",
            json!({"memory.available": "1m30s"}),
        ),
        (
            &["--system-reserved=cpu=1,memory=1Gi", "--system-reserved", "pid=5"],
            "/systemReserved",
            json!({"cpu": "1", "memory": "1Gi", "pid": "5"}),
        ),
        (
            &["--feature-gates=EventedPLEG=true,MemoryQoS=false"],
            "/featureGates",
            json!({"EventedPLEG": true, "MemoryQoS": false}),
        ),
        (
            &["--manifest-url-header=a:1,b:2", "--manifest-url-header", "a:3"],
            "/staticPodURLHeader",
            json!({"a": ["1", "3"], "b": ["2"]}),
        ),
        (
            &["--cpu-manager-policy-options=a=1,2", "--cpu-manager-policy-options=b=3"],
            "/cpuManagerPolicyOptions",
            json!({"a": "1,2", "b": "3"}),
        ),
        (
            &["--register-with-taints=a=b:NoSchedule,c:NoExecute"],
            "/registerWithTaints",
            json!([{"key": "a", "value": "b", "effect": "NoSchedule"}, {"key": "c", "effect": "NoExecute"}]),
        ),
        (
            &["--reserved-memory=0:memory=1Gi,hugepages-1M=2Gi;1:memory=2Gi"],
            "/reservedMemory",
            json!([{"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-1M": "2Gi"}},
                {"numaNode": 1, "limits": {"memory": "2Gi"}}]),
        ),
        (&["--serialize-image-pulls"], "/serializeImagePulls", json!(true)),
        (&["--fail-cgroupv1=false"], "/failCgroupV1", json!(false)),
        (&["-v", "4"], "/logging/verbosity", json!(4)),
        (&["-v=5"], "/logging/verbosity", json!(5)),
        (&["-v6"], "/logging/verbosity", json!(6)),
        (&["--v=7"], "/logging/verbosity", json!(7)),
        (
            &["--vmodule=pleg=5,pod*=6"],
            "/logging/vmodule",
            json!([{"filePattern": "pleg", "verbosity": 5}, {"filePattern": "pod*", "verbosity": 6}]),
        ),
        (&["--logging-format", "json"], "/logging/format", json!("json")),
        (&["--log-flush-frequency=1s"], "/logging/flushFrequency", json!("1s")),
        (&["--log-json-info-buffer-size=4Ki"], "/logging/options/json/infoBufferSize", json!("4Ki")),
        (&["--provider-id=x"], "/providerID", json!("x")),
    ];
    for (line, field, expected) in cases {
        let shown = Json::Object(parsed(line).settings.config.to_object());
        let value = shown.pointer(field).cloned().unwrap_or(Json::Null);
        // Headers are shown unmasked here: only the whole document masks them.
        assert_eq!(&value, expected, "{line:?} sets {field}");
    }
}

#[test]
fn process_flags_set_their_own_settings() {
    let flags = parsed(&[
        "--root-dir=/r",
        "--hostname-override",
        "node-1",
        "--node-labels=a=b,c",
        "--cert_dir=/c",
        "--maximum-dead-containers=3",
        "--seccomp-default",
        "--node-ip=::1",
        "--housekeeping-interval=1m",
    ])
    .settings
    .flags;
    assert_eq!((flags.root_dir.as_str(), flags.cert_dir.as_str()), ("/r", "/c"));
    assert_eq!((flags.hostname_override.as_str(), flags.node_ip.as_str()), ("node-1", "::1"));
    let labels: Vec<(&str, &str)> =
        flags.node_labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(labels, [("a", "b"), ("c", "")]);
    assert_eq!((flags.maximum_dead_containers, flags.seccomp_default), (3, true));
    assert_eq!(flags.housekeeping_interval.to_string(), "1m0s");
}

#[test]
fn what_does_not_parse_is_refused_in_pflags_words() {
    for (line, text) in [
        (&["--no-such"][..], "unknown flag: --no-such"),
        (&["--no_such=1"], "unknown flag: --no_such"),
        (&["-x"], "unknown shorthand flag: 'x' in -x"),
        (&["--max-pods"], "flag needs an argument: --max-pods"),
        (&["-v"], "flag needs an argument: 'v' in -v"),
        (&["--=x"], "bad flag syntax: --=x"),
        (&["---x"], "bad flag syntax: ---x"),
        (
            &["--max-pods=abc"],
            "invalid argument \"abc\" for \"--max-pods\" flag: strconv.ParseInt: parsing \"abc\": invalid syntax",
        ),
        (
            &["--max-pods", "3000000000"],
            "invalid argument \"3000000000\" for \"--max-pods\" flag: strconv.ParseInt: parsing \"3000000000\": \
             value out of range",
        ),
        (
            &["-v=x"],
            "invalid argument \"x\" for \"-v, --v\" flag: strconv.ParseUint: parsing \"x\": invalid syntax",
        ),
        (
            &["--fail-swap-on=maybe"],
            "invalid argument \"maybe\" for \"--fail-swap-on\" flag: strconv.ParseBool: parsing \"maybe\": invalid \
             syntax",
        ),
        (
            &["--sync-frequency=3"],
            "invalid argument \"3\" for \"--sync-frequency\" flag: time: missing unit in duration \"3\"",
        ),
        (
            &["--address=nowhere"],
            "invalid argument \"nowhere\" for \"--address\" flag: \"nowhere\" is not a valid IP address",
        ),
        (
            &["--eviction-hard=memory.available"],
            "invalid argument \"memory.available\" for \"--eviction-hard\" flag: malformed pair, expect \
             string<string",
        ),
        (
            &["--feature-gates=A=x"],
            "invalid argument \"A=x\" for \"--feature-gates\" flag: invalid value of A: x, err: strconv.ParseBool: \
             parsing \"x\": invalid syntax",
        ),
        (
            &["--register-with-taints=a=b"],
            "invalid argument \"a=b\" for \"--register-with-taints\" flag: invalid taint spec: a=b",
        ),
        (
            &["--storage-driver-secure=x"],
            "invalid argument \"x\" for \"--storage-driver-secure\" flag: strconv.ParseBool: parsing \"x\": invalid \
             syntax",
        ),
    ] {
        assert_eq!(refused(line), text, "{line:?}");
    }
}

#[test]
fn flags_that_are_gone_are_unknown() {
    for name in [
        "pod-infra-container-image",
        "container-runtime",
        "keep-terminated-pod-volumes",
        "cloud-config",
        "dynamic-config-dir",
        "network-plugin",
        "cni-bin-dir",
        "cni-conf-dir",
        "really-crash-for-testing",
    ] {
        assert_eq!(refused(&[&format!("--{name}=x")]), format!("unknown flag: --{name}"));
    }
}

#[test]
fn words_that_are_no_flags_are_refused() {
    for line in [&["run"][..], &["--fail-swap-on", "false"], &["--", "--port=1"], &["-"]] {
        let error = load(&words(line), &Host { cgroup_v2: true }, &mut Vec::new());
        let text = error.expect_err("a stray word")[0].to_string();
        assert_eq!(text, format!("unknown command {}", line.last().expect("a word")));
    }
}

#[test]
fn deprecated_flags_are_noted_once_per_use() {
    let mut notices = Vec::new();
    let line = words(&[
        "--max_pods=5",
        "--v=2",
        "--provider-id=x",
        "--boot-id-file=/b",
        "--maximum-dead-containers=1",
    ]);
    load(&line, &Host { cgroup_v2: true }, &mut notices).expect("valid");
    let text = String::from_utf8(notices).expect("UTF-8");
    let starts: Vec<&str> = text.lines().map(|line| line.split(',').next().unwrap_or_default()).collect();
    assert_eq!(
        starts,
        [
            "Flag --max-pods has been deprecated",
            "Flag --boot-id-file has been deprecated",
            "Flag --maximum-dead-containers has been deprecated",
        ]
    );
    assert!(text.contains(
        "This parameter should be set via the config file specified by the Kubelet's --config flag."
    ));
}

#[test]
fn there_are_as_many_flags_as_upstream_has_and_one_of_ours() {
    let rows = rows();
    assert!(rows.windows(2).all(|pair| pair[0].name < pair[1].name));
    let kept: Vec<&str> = rows.iter().filter(|row| row.deprecated.is_none()).map(|row| row.name).collect();
    assert_eq!(rows.len(), 151);
    assert_eq!(kept.len(), 26, "{kept:?}");
    for row in &rows {
        // Fails if the field that the flag names does not exist.
        row.effect();
    }
}

#[test]
fn the_defaults_of_the_flags_are_upstreams() {
    let settings = super::defaults();
    for (name, default) in [
        ("address", "0.0.0.0"),
        ("anonymous-auth", "true"),
        ("authentication-token-webhook-cache-ttl", "2m0s"),
        ("authorization-mode", "AlwaysAllow"),
        ("cert-dir", "/var/lib/kubelet/pki"),
        ("enforce-node-allocatable", "[pods]"),
        ("event-storage-age-limit", "default=0"),
        ("housekeeping-interval", "10s"),
        ("machine-id-file", "/etc/machine-id,/var/lib/dbus/machine-id"),
        ("maximum-dead-containers", "-1"),
        ("pod-max-pids", "-1"),
        ("read-only-port", "10255"),
        ("root-dir", "/var/lib/kubelet"),
        ("streaming-connection-idle-timeout", "4h0m0s"),
    ] {
        let row = rows().into_iter().find(|row| row.name == name).expect(name);
        assert_eq!(row.value(&settings), default, "{name}");
    }
}

#[test]
fn help_and_version_come_before_every_other_check() {
    let host = Host { cgroup_v2: false };
    let ask = |line: &[&str]| load(&words(line), &host, &mut Vec::new());
    assert_eq!(ask(&["--help", "--config=/no/such"]), Ok(Invocation::Help));
    assert_eq!(ask(&["-h"]), Ok(Invocation::Help));
    assert_eq!(ask(&["--version"]), Ok(Invocation::Version(VersionRequest::Plain)));
    assert_eq!(ask(&["--version=raw"]), Ok(Invocation::Version(VersionRequest::Raw)));
    let help = super::help_text();
    for row in rows() {
        assert!(help.contains(&format!("--{}", row.name)), "{}", row.name);
    }
    assert!(help.contains("EventedPLEG=true|false (ALPHA - default=false)"));
}

#[test]
fn labels_that_a_node_may_not_set_on_itself_are_refused() {
    let ask = |labels: &str| {
        let line = words(&[&format!("--node-labels={labels}")]);
        load(&line, &Host { cgroup_v2: true }, &mut Vec::new())
    };
    for good in ["a=b", "node.kubernetes.io/x=y", "a.node.kubernetes.io/x=y", "kubernetes.io/os=linux"] {
        assert!(ask(good).is_ok(), "{good}");
    }
    let text = |labels: &str| ask(labels).expect_err(labels)[0].to_string();
    assert!(text("node-role.kubernetes.io/master=").contains(
        "unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [node-role.kubernetes.io/master]"
    ));
    assert!(text("a b=c").contains("invalid node labels: 'a b' - name part must consist of"));
}
