//! Names: resolver configuration, host names and hosts files.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};
use testkit::process::eventually;

use super::environment::output_of;
use crate::Shared;
use crate::node::{Node, SOON};
use crate::spec::{OBEDIENT, containers, shell, sleeper, with};

pub const ALL: &[(&str, Shared)] = &[
    ("every_dns_policy_has_its_resolv_conf", resolv_conf),
    ("nameservers_beyond_the_limit_are_told", too_many_nameservers),
    ("host_names_are_those_of_the_spec", host_names),
    ("a_full_host_name_that_is_too_long_fails_the_sandbox", too_long),
    ("a_pod_on_the_nodes_network_sees_the_nodes_hosts_file", host_network_hosts),
    ("a_hosts_file_of_the_users_is_left_alone", own_hosts),
];

/// The content of a file, as a container of a pod with these fields in its spec reads it.
fn file_seen(node: &Node, name: &str, file: &str, spec: Value) -> Vec<String> {
    output_of(node, name, shell("main", &format!("cat {file}")), spec)
}

/// The words of the line that begins with `key`, in any order.
fn words(lines: &[String], key: &str) -> BTreeSet<String> {
    let lines = lines.iter().filter_map(|line| line.strip_prefix(key));
    lines.flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn resolv_conf(node: &Node) {
    let namespace = &node.namespace;
    let cluster = format!("{namespace}.svc.cluster.local svc.cluster.local cluster.local node.example");
    let none = json!({
        "dnsPolicy": "None",
        "dnsConfig": {
            "nameservers": ["192.0.2.99"],
            "searches": ["own.example"],
            "options": [{"name": "ndots", "value": "2"}, {"name": "rotate"}],
        },
    });
    let merged = json!({"dnsPolicy": "ClusterFirst", "dnsConfig": {
        "nameservers": ["192.0.2.99"], "searches": ["own.example"], "options": [{"name": "ndots", "value": "3"}],
    }});
    let on_host = |policy: &str| json!({"dnsPolicy": policy, "hostNetwork": true});
    for (name, spec, servers, searches, options) in [
        ("dns-default", json!({"dnsPolicy": "Default"}), "192.0.2.53", "node.example", "timeout:1"),
        ("dns-cluster", json!({"dnsPolicy": "ClusterFirst"}), "192.0.2.10", cluster.as_str(), "ndots:5"),
        ("dns-host", on_host("ClusterFirst"), "192.0.2.53", "node.example", "timeout:1"),
        ("dns-both", on_host("ClusterFirstWithHostNet"), "192.0.2.10", cluster.as_str(), "ndots:5"),
        ("dns-none", none, "192.0.2.99", "own.example", "ndots:2 rotate"),
        ("dns-merged", merged, "192.0.2.10 192.0.2.99", &format!("{cluster} own.example") as &str, "ndots:3"),
    ] {
        let lines = file_seen(node, name, "/etc/resolv.conf", spec);
        let expected = |text: &str| text.split(' ').map(str::to_owned).collect::<BTreeSet<_>>();
        assert_eq!(words(&lines, "nameserver "), expected(servers), "{name}: {lines:?}");
        assert_eq!(words(&lines, "search "), expected(searches), "{name}: {lines:?}");
        assert_eq!(words(&lines, "options "), expected(options), "{name}: {lines:?}");
    }
}

fn too_many_nameservers(node: &Node) {
    let own = json!({"nameservers": ["192.0.2.1", "192.0.2.2", "192.0.2.3"]});
    let spec = with(containers([sleeper("main")]), json!({"dnsPolicy": "Default", "dnsConfig": own}));
    let file = node.pod("dns-limit", spec);
    let pod = file.ready();
    let text = "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: \
                192.0.2.53 192.0.2.1 192.0.2.2";
    file.event(&pod, "Warning", "DNSConfigForming", text);
}

fn host_names(node: &Node) {
    let domain = format!("s.{}.svc.cluster.local", node.namespace);
    let named = json!({"hostname": "h", "subdomain": "s"});
    for (name, spec, hostname, line) in [
        ("hostname", json!({"hostname": "given"}), "given".to_owned(), "given".to_owned()),
        ("subdomain", named.clone(), "h".to_owned(), format!("h.{domain}\th")),
        (
            "fqdn",
            with(named, json!({"setHostnameAsFQDN": true})),
            format!("h.{domain}"),
            format!("h.{domain}\th"),
        ),
        ("override", json!({"hostnameOverride": "o.p"}), "o.p".to_owned(), "o.p".to_owned()),
    ] {
        let said = output_of(node, name, shell("main", "hostname; cat /etc/hosts"), spec);
        assert_eq!(said.first(), Some(&hostname), "{name}: {said:?}");
        let own = said.last().and_then(|line| line.split_once('\t'));
        assert_eq!(own.map(|(_, names)| names), Some(line.as_str()), "{name}: {said:?}");
    }
}

fn too_long(node: &Node) {
    let hostname = "h".repeat(60);
    let fqdn = format!("{hostname}.s.{}.svc.cluster.local", node.namespace);
    let spec = json!({"hostname": hostname, "subdomain": "s", "setHostnameAsFQDN": true});
    let file = node.pod("fqdn-too-long", with(containers([sleeper("main")]), spec));
    let pod = file.wait("listed", SOON, |pod| pod.container("main").is_object());
    let text = format!(
        "Failed to create pod sandbox: failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is \
         too long (64 characters is the max, {} characters requested)",
        fqdn.len()
    );
    file.event(&pod, "Warning", "FailedCreatePodSandBox", &text);
    assert!(file.sandboxes(pod.uid()).is_empty(), "no sandbox of it has been made");
}

const ALIASES: &str = "# Entries added by HostAliases.";

fn host_network_hosts(node: &Node) {
    let aliases = json!([{"ip": "192.0.2.7", "hostnames": ["seven", "sept"]}]);
    let spec = json!({"hostNetwork": true, "dnsPolicy": "Default", "hostAliases": aliases});
    let said = file_seen(node, "host-hosts", "/etc/hosts", spec);
    assert_eq!(said[0], "# Kubernetes-managed hosts file (host network).", "{said:?}");
    assert_eq!(said[said.len() - 2..], [ALIASES.to_owned(), "192.0.2.7\tseven\tsept".to_owned()]);
    let nodes = fs::read_to_string("/etc/hosts").expect("the node has a hosts file");
    for line in nodes.lines().filter(|line| !line.trim().is_empty()) {
        assert!(said.iter().any(|said| said == line), "{line:?} in {said:?}");
    }
}

fn own_hosts(node: &Node) {
    let path = node.gates().join("own-hosts");
    fs::write(&path, "192.0.2.8\teight\n").expect("a file");
    let main = with(
        shell("main", &format!("cat /etc/hosts; {OBEDIENT}")),
        json!({"volumeMounts": [{"name": "own", "mountPath": "/etc/hosts"}]}),
    );
    let volumes = json!([{"name": "own", "hostPath": {"path": path, "type": "File"}}]);
    let aliases = json!([{"ip": "192.0.2.7", "hostnames": ["seven"]}]);
    let spec = with(
        containers([main, shell("other", &format!("cat /etc/hosts; {OBEDIENT}"))]),
        json!({"volumes": volumes, "hostAliases": aliases}),
    );
    let file = node.pod("own-hosts", spec);
    let pod = file.ready();
    eventually("the user's file, and the managed one beside it", SOON, || {
        let (own, managed) = (file.log(&pod, "main", 0)?, file.log(&pod, "other", 0)?);
        let well =
            own == ["192.0.2.8\teight"] && managed.last().is_some_and(|line| line == "192.0.2.7\tseven");
        if well { Ok(()) } else { Err(format!("{own:?} {managed:?}")) }
    });
    let on_node = node.root().join("pods").join(pod.uid()).join("etc-hosts");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(on_node).expect("managed").permissions());
    assert_eq!(mode & 0o777, 0o644);
}
