//! Host and pod addresses (row 8.8).

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{HostIP, PodIP, PodStatus};
use messages::runtime::RuntimePod;

/// Fills hostIP(s) and podIP(s). A pod whose sandbox has gone keeps its addresses: they are how it was reached.
pub(crate) fn fill(
    status: &mut PodStatus,
    previous: Option<&PodStatus>,
    observed: Option<&RuntimePod>,
    host_ips: &[String],
    host_network: bool,
) {
    status.host_ip = host_ips.first().cloned();
    status.host_ips = list(host_ips).map(|ips| ips.into_iter().map(|ip| HostIP { ip }).collect());

    let seen: Vec<&str> = observed
        .and_then(RuntimePod::ready_sandbox)
        .map(|s| s.ips.iter().map(AsRef::as_ref).collect())
        .unwrap_or_default();
    let mut ips = by_family(&seen, host_ips);
    if ips.is_empty() {
        ips = previous
            .and_then(|p| p.pod_ips.as_ref())
            .map(|ips| ips.iter().map(|ip| ip.ip.clone()).collect())
            .unwrap_or_default();
    }
    if host_network {
        join_host(&mut ips, host_ips);
    }
    status.pod_ip = ips.first().cloned();
    status.pod_ips = list(&ips).map(|ips| ips.into_iter().map(|ip| PodIP { ip }).collect());
}

/// One address of each family, first the one of the family of the node's primary address.
fn by_family(ips: &[&str], host_ips: &[String]) -> Vec<String> {
    let parsed: Vec<IpAddr> = ips.iter().filter_map(|ip| ip.parse().ok()).collect();
    let v6_first = host_ips.first().and_then(|ip| ip.parse::<IpAddr>().ok()).is_some_and(|ip| ip.is_ipv6());
    [v6_first, !v6_first]
        .into_iter()
        .filter_map(|v6| parsed.iter().find(|ip| ip.is_ipv6() == v6))
        .map(ToString::to_string)
        .collect()
}

/// A pod with the host's network has the host's addresses; they stay once set, but a second family may join.
fn join_host(ips: &mut Vec<String>, host_ips: &[String]) {
    if ips.is_empty() {
        ips.extend(host_ips.first().cloned());
    }
    let family = |ip: &str| ip.parse::<IpAddr>().ok().map(|ip| ip.is_ipv6());
    if let ([only], [_, second]) = (&**ips, host_ips)
        && family(only) != family(second)
    {
        ips.push(second.clone());
    }
}

fn list(ips: &[String]) -> Option<Vec<String>> {
    (!ips.is_empty()).then(|| ips.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(ips: &[&str]) -> Vec<String> {
        ips.iter().map(|ip| (*ip).to_owned()).collect()
    }

    #[test]
    fn the_nodes_family_comes_first_and_each_family_once() {
        let pod = ["fd00::0005", "10.0.0.5", "10.0.0.6"];
        assert_eq!(by_family(&pod, &owned(&["192.0.2.1"])), owned(&["10.0.0.5", "fd00::5"]));
        assert_eq!(by_family(&pod, &owned(&["2001:db8::1"])), owned(&["fd00::5", "10.0.0.5"]));
        assert_eq!(by_family(&["10.0.0.5"], &[]), owned(&["10.0.0.5"]));
        assert_eq!(by_family(&["nonsense"], &[]), Vec::<String>::new());
    }

    #[test]
    fn host_network_pods_have_the_nodes_addresses() {
        let host = owned(&["192.0.2.1", "2001:db8::1"]);
        let mut status = PodStatus::default();
        fill(&mut status, None, None, &host, true);
        assert_eq!(status.pod_ip.as_deref(), Some("192.0.2.1"));
        assert_eq!(status.pod_ips.as_ref().map(Vec::len), Some(2));
        assert_eq!(status.host_ips.as_ref().map(Vec::len), Some(2));

        let mut moved = PodStatus::default();
        fill(&mut moved, Some(&status), None, &owned(&["192.0.2.9"]), true);
        assert_eq!(moved.pod_ip.as_deref(), Some("192.0.2.1"), "immutable once set");
        assert_eq!(moved.host_ip.as_deref(), Some("192.0.2.9"));
    }
}
