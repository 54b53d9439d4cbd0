//! PURE: which of the machine's addresses the Node has (row 13.3).

use std::net::IpAddr;

use bridge_node::host::FoundAddresses;
use k8s_openapi::api::core::v1::NodeAddress;

/// The configuration of the node's addresses.
#[derive(Clone, Copy, Debug)]
pub struct AddressSettings<'a> {
    /// The Node's name, which may be an address itself.
    pub name: &'a str,
    /// `--node-ip`.
    pub node_ips: &'a [IpAddr],
    /// Whether an external cloud provider writes addresses itself.
    pub external_cloud: bool,
}

fn address(kind: &str, address: impl ToString) -> NodeAddress {
    NodeAddress { type_: kind.to_owned(), address: address.to_string() }
}

fn not_usable(ip: IpAddr, found: &FoundAddresses) -> Option<String> {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    if ip.is_loopback() {
        Some("nodeIP can't be loopback address".to_owned())
    } else if ip.is_multicast() {
        Some("nodeIP can't be a multicast address".to_owned())
    } else if link_local {
        Some("nodeIP can't be a link-local unicast address".to_owned())
    } else if ip.is_unspecified() {
        Some("nodeIP can't be an all zeros address".to_owned())
    } else if found.local.contains(&ip) {
        None
    } else {
        Some(format!("node IP: \"{ip}\" not found in the host's network interfaces"))
    }
}

/// The addresses that the Node is to have, given those it has now.
///
/// # Errors
/// No address was found, or a configured one is not this machine's; the Node then keeps its addresses.
pub fn addresses(
    told: AddressSettings<'_>,
    found: &FoundAddresses,
    before: &[NodeAddress],
) -> Result<Vec<NodeAddress>, String> {
    let first = told.node_ips.first().copied();
    let specified: Vec<IpAddr> = told.node_ips.iter().copied().filter(|ip| !ip.is_unspecified()).collect();
    for (place, ip) in told.node_ips.iter().enumerate().filter(|(_, ip)| !ip.is_unspecified()) {
        if let Some(why) = not_usable(*ip, found) {
            let which = if place == 0 { "nodeIP" } else { "secondaryNodeIP" };
            return Err(format!("failed to validate {which}: {why}"));
        }
    }
    let hostname = address("Hostname", told.name);
    if told.external_cloud && !before.is_empty() {
        return Ok(before.to_vec());
    }
    if told.external_cloud && first.is_none() {
        return Ok(vec![hostname]);
    }
    if let [one, two, ..] = specified[..] {
        return Ok(vec![address("InternalIP", one), address("InternalIP", two), hostname]);
    }
    let ip = match first.filter(|ip| !ip.is_unspecified()) {
        Some(ip) => Some(ip),
        None => told.name.parse().ok().or_else(|| looked_up(first, found)),
    };
    let ip = ip.ok_or_else(|| {
        format!("can't get ip address of node {}. error: no default routes found", told.name)
    })?;
    Ok(vec![address("InternalIP", ip), hostname])
}

/// The address of the node's name, else that of the default route; IPv4 is preferred unless `first` is IPv6.
fn looked_up(first: Option<IpAddr>, found: &FoundAddresses) -> Option<IpAddr> {
    let preferred = |ip: &IpAddr| ip.is_ipv4() == first.is_none_or(|first| first.is_ipv4());
    let usable = || found.looked_up.iter().copied().filter(|ip| not_usable(*ip, found).is_none());
    let routes = || found.default_routes.iter().copied();
    usable()
        .find(preferred)
        .or_else(|| usable().next())
        .or_else(|| routes().find(preferred))
        .or_else(|| routes().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn found() -> FoundAddresses {
        FoundAddresses {
            looked_up: vec![ip("127.0.1.1"), ip("fd00::7"), ip("10.0.0.7")],
            local: [ip("127.0.1.1"), ip("fd00::7"), ip("10.0.0.7"), ip("10.0.0.8")].into(),
            default_routes: vec![ip("10.0.0.9"), ip("fd00::9")],
        }
    }

    fn chosen(name: &str, node_ips: &[&str], found: &FoundAddresses) -> Result<Vec<String>, String> {
        let node_ips: Vec<IpAddr> = node_ips.iter().map(|text| ip(text)).collect();
        let told = AddressSettings { name, node_ips: &node_ips, external_cloud: false };
        let list = addresses(told, found, &[])?;
        Ok(list.into_iter().map(|a| format!("{} {}", a.type_, a.address)).collect())
    }

    #[test]
    fn the_order_is_flag_then_name_then_resolver_then_route() {
        let found = found();
        let one = |ip: &str, name: &str| Ok(vec![format!("InternalIP {ip}"), format!("Hostname {name}")]);
        assert_eq!(chosen("n", &["10.0.0.8"], &found), one("10.0.0.8", "n"));
        assert_eq!(chosen("10.1.1.1", &[], &found), one("10.1.1.1", "10.1.1.1"));
        assert_eq!(chosen("n", &[], &found), one("10.0.0.7", "n"));
        assert_eq!(chosen("n", &["::"], &found), one("fd00::7", "n"));
        let nameless = FoundAddresses { looked_up: Vec::new(), ..found.clone() };
        assert_eq!(chosen("n", &[], &nameless), one("10.0.0.9", "n"));
        assert_eq!(chosen("n", &["::"], &nameless), one("fd00::9", "n"));
        let both = vec!["InternalIP 10.0.0.7".into(), "InternalIP fd00::7".into(), "Hostname n".into()];
        assert_eq!(chosen("n", &["10.0.0.7", "fd00::7"], &found), Ok(both));
    }

    #[test]
    fn an_address_of_nobody_or_of_somebody_else_is_refused() {
        let lost = "can't get ip address of node n. error: no default routes found";
        assert_eq!(chosen("n", &[], &FoundAddresses::default()), Err(lost.to_owned()));
        let foreign =
            "failed to validate nodeIP: node IP: \"10.9.9.9\" not found in the host's network interfaces";
        assert_eq!(chosen("n", &["10.9.9.9"], &found()), Err(foreign.to_owned()));
        let second = "failed to validate secondaryNodeIP: nodeIP can't be loopback address";
        assert_eq!(chosen("n", &["10.0.0.8", "::1"], &found()), Err(second.to_owned()));
    }

    #[test]
    fn an_external_cloud_has_the_last_word() {
        let told = AddressSettings { name: "n", node_ips: &[], external_cloud: true };
        assert_eq!(addresses(told, &found(), &[]), Ok(vec![address("Hostname", "n")]));
        let set = vec![address("ExternalIP", "1.2.3.4")];
        assert_eq!(addresses(told, &found(), &set), Ok(set));
    }
}
