//! The hosts file that a pod's containers see (row 10.29).

use k8s_openapi::api::core::v1::Pod;

/// The hosts file of a pod with a network of its own.
pub fn etc_hosts(pod: &Pod, hostname: &str, ips: &[String]) -> String {
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
    );
    for ip in ips {
        text.push_str(&format!("{ip}\t{hostname}\n"));
    }
    let aliases = pod.spec.as_ref().and_then(|spec| spec.host_aliases.as_deref()).unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
        for alias in aliases {
            let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
            text.push_str(&format!("{}\t{names}\n", alias.ip));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::HostAlias;

    use super::*;
    use crate::fixtures::pod;

    #[test]
    fn the_hosts_file_names_the_pod_and_its_aliases() {
        let mut pod = pod("Always", vec![], vec![]);
        pod.spec.as_mut().expect("spec").host_aliases =
            Some(vec![HostAlias { ip: "1.2.3.4".into(), hostnames: Some(vec!["a".into(), "b".into()]) }]);
        let text = etc_hosts(&pod, "web", &["10.0.0.1".into(), "fd00::1".into()]);
        assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\t"));
        assert!(text.ends_with(
            "ip6-allrouters\n10.0.0.1\tweb\nfd00::1\tweb\n\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"
        ));
    }
}
