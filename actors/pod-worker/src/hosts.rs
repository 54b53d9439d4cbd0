//! The managed hosts file of a pod's containers (row 10.29).

use k8s_openapi::api::core::v1::Pod;

use crate::hostname::Names;

/// The hosts file of a pod with a network of its own.
pub fn etc_hosts(pod: &Pod, names: &Names, ips: &[String]) -> Vec<u8> {
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
    );
    let Names { hostname, domain } = names;
    for ip in ips {
        if domain.is_empty() {
            text.push_str(&format!("{ip}\t{hostname}\n"));
        } else {
            text.push_str(&format!("{ip}\t{hostname}.{domain}\t{hostname}\n"));
        }
    }
    text.push_str(&aliases(pod));
    text.into_bytes()
}

/// The hosts file of a pod on the node's network: the node's own file, and the pod's host aliases.
pub fn host_network_hosts(pod: &Pod, node: &[u8]) -> Vec<u8> {
    let mut text = b"# Kubernetes-managed hosts file (host network).\n".to_vec();
    text.extend_from_slice(node);
    text.extend_from_slice(aliases(pod).as_bytes());
    text
}

fn aliases(pod: &Pod) -> String {
    let aliases = pod.spec.as_ref().and_then(|spec| spec.host_aliases.as_deref()).unwrap_or_default();
    if aliases.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n# Entries added by HostAliases.\n");
    for alias in aliases {
        let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
        text.push_str(&format!("{}\t{names}\n", alias.ip));
    }
    text
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::HostAlias;

    use super::*;
    use crate::fixtures::pod;

    fn aliased() -> Pod {
        let mut pod = pod("Always", vec![], vec![]);
        let alias = |ip: &str, names: &[&str]| HostAlias {
            ip: ip.to_owned(),
            hostnames: Some(names.iter().map(|name| (*name).to_owned()).collect()),
        };
        pod.spec.as_mut().expect("spec").host_aliases =
            Some(vec![alias("1.2.3.4", &["a", "b"]), alias("::5", &["c"])]);
        pod
    }

    const ALIASES: &str = "\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n::5\tc\n";

    #[test]
    fn the_hosts_file_names_the_pod_and_its_aliases() {
        let ips = ["10.0.0.1".to_owned(), "fd00::1".to_owned()];
        let mut names = Names { hostname: "web".into(), domain: String::new() };
        let text = String::from_utf8(etc_hosts(&aliased(), &names, &ips)).expect("text");
        assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\t"));
        assert!(text.ends_with(&format!("ip6-allrouters\n10.0.0.1\tweb\nfd00::1\tweb\n{ALIASES}")), "{text}");
        names.domain = "s.ns.svc.d".into();
        let text = String::from_utf8(etc_hosts(&pod("Always", vec![], vec![]), &names, &ips)).expect("text");
        let end = "ip6-allrouters\n10.0.0.1\tweb.s.ns.svc.d\tweb\nfd00::1\tweb.s.ns.svc.d\tweb\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn on_the_nodes_network_it_is_the_nodes() {
        let text = String::from_utf8(host_network_hosts(&aliased(), b"127.0.0.1 me\n")).expect("text");
        assert_eq!(text, format!("# Kubernetes-managed hosts file (host network).\n127.0.0.1 me\n{ALIASES}"));
    }
}
