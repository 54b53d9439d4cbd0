//! The contents of a pod's `/etc/resolv.conf` (row 12.1).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use bridge_cri::wire::DnsConfig;
use k8s_openapi::api::core::v1::{Pod, PodDNSConfig};

/// Limits of common resolvers: as upstream, what exceeds them is cut off.
const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_LINE_BYTES_MAX: usize = 2048;
const SEARCH_BYTES_MAX: usize = 253;
/// How many search domains the cluster's domain adds.
const CLUSTER_SEARCHES: usize = 3;

/// The cluster's DNS, from `clusterDNS` and `clusterDomain`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterDns {
    /// Addresses of the servers. Without any, the policy ClusterFirst means Default.
    pub servers: Vec<String>,
    /// The cluster's domain; empty if there is none.
    pub domain: String,
}

/// The resolver configuration of a pod, and what there is to report about it.
#[derive(Clone, Debug, PartialEq)]
pub struct PodDns {
    /// The configuration for the sandbox.
    pub config: DnsConfig,
    /// Whether the pod wants the cluster's DNS and there is none: event MissingClusterDNS.
    pub missing_cluster: bool,
    /// The messages of the events DNSConfigForming, one for each kind of entry that was cut off.
    pub exceeded: Vec<String>,
}

/// The node's resolver configuration cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Encountered error while parsing resolv conf file. Error: {0}")]
pub struct ResolvConfError(String);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    Cluster,
    Host,
    None,
}

/// The resolver configuration of a pod. `resolv_conf` is the text of the node's file; absent if `resolvConf`
/// is configured empty: then the pod gets loopback addresses as servers, in the families of the node's
/// addresses, and so has no name resolution.
///
/// # Errors
/// The node's file cannot be parsed.
pub fn pod_dns(
    pod: &Pod,
    resolv_conf: Option<&str>,
    cluster: &ClusterDns,
    host_ips: &[String],
) -> Result<PodDns, ResolvConfError> {
    let mut config = resolv_conf.map(parse).transpose().map_err(ResolvConfError)?.unwrap_or_default();
    let policy = policy_of(pod);
    let missing_cluster = policy == Policy::Cluster && cluster.servers.is_empty();
    match policy {
        Policy::None => config = DnsConfig::default(),
        Policy::Cluster if !missing_cluster => {
            config.servers = cluster.servers.clone();
            config.searches = cluster_searches(pod, cluster, &config.searches);
            config.options = vec!["ndots:5".to_owned()];
        }
        Policy::Cluster | Policy::Host => {
            if resolv_conf.is_none() {
                config.servers = loopbacks(host_ips);
                config.searches = vec![".".to_owned()];
            }
        }
    }
    if let Some(own) = pod.spec.as_ref().and_then(|spec| spec.dns_config.as_ref()) {
        append(&mut config, own);
    }
    let exceeded = cut(&mut config);
    Ok(PodDns { config, missing_cluster, exceeded })
}

/// The message of the event CheckLimitsForResolvConf about the node, if its resolver file exceeds a limit.
/// `path` is the file's path.
pub fn check_resolv_conf(path: &str, resolv_conf: &str, cluster_domain: &str) -> Option<String> {
    let searches = match parse(resolv_conf) {
        Ok(config) => config.searches,
        Err(error) => return Some(error),
    };
    let added = if cluster_domain.is_empty() { 0 } else { CLUSTER_SEARCHES };
    let count_max = SEARCHES_MAX - added;
    if searches.len() > count_max {
        return Some(format!(
            "Resolv.conf file '{path}' contains search line consisting of more than {count_max} domains!"
        ));
    }
    if searches.iter().any(|search| search.len() > SEARCH_BYTES_MAX) {
        return Some(format!(
            "Resolv.conf file {path:?} contains a search path which length is more than allowed {SEARCH_BYTES_MAX} chars!"
        ));
    }
    (searches.join(" ").len() > SEARCH_LINE_BYTES_MAX).then(|| {
        format!(
            "Resolv.conf file '{path}' contains search line which length is more than allowed {SEARCH_LINE_BYTES_MAX} \
             chars!"
        )
    })
}

fn loopbacks(host_ips: &[String]) -> Vec<String> {
    let loopback = |ip: &String| if ip.contains(':') { "::1" } else { "127.0.0.1" }.to_owned();
    let mut servers: Vec<String> = host_ips.iter().map(loopback).collect();
    if servers.is_empty() {
        servers.push("127.0.0.1".to_owned());
    }
    servers
}

fn policy_of(pod: &Pod) -> Policy {
    let spec = pod.spec.as_ref();
    let host_network = spec.and_then(|spec| spec.host_network).unwrap_or(false);
    match spec.and_then(|spec| spec.dns_policy.as_deref()) {
        Some("Default") => Policy::Host,
        Some("None") => Policy::None,
        Some("ClusterFirst") if host_network => Policy::Host,
        _ => Policy::Cluster,
    }
}

fn parse(text: &str) -> Result<DnsConfig, String> {
    let mut config = DnsConfig::default();
    let mut error = None;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let mut fields = line.split_whitespace();
        match fields.next() {
            Some("nameserver") => match fields.next() {
                Some(server) => config.servers.push(server.to_owned()),
                None => error = Some("nameserver list is empty ".to_owned()),
            },
            // The last search line counts.
            Some("search") => {
                config.searches = fields
                    .filter(|search| *search != ".")
                    .map(|search| search.strip_suffix('.').unwrap_or(search).to_owned())
                    .collect();
            }
            Some("options") => {
                config.options.extend(fields.map(str::to_owned));
            }
            _ => {}
        }
    }
    config.options = latest(config.options.into_iter());
    error.map_or(Ok(config), Err)
}

fn cluster_searches(pod: &Pod, cluster: &ClusterDns, host: &[String]) -> Vec<String> {
    if cluster.domain.is_empty() {
        return host.to_vec();
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let domain = &cluster.domain;
    let own = [format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()];
    distinct(own.iter().chain(host))
}

fn append(config: &mut DnsConfig, own: &PodDNSConfig) {
    config.servers = distinct(config.servers.iter().chain(own.nameservers.iter().flatten()));
    config.searches = distinct(config.searches.iter().chain(own.searches.iter().flatten()));
    let options = own.options.iter().flatten().filter_map(|option| {
        let name = option.name.as_ref()?;
        Some(match option.value.as_deref() {
            None | Some("") => name.clone(),
            Some(value) => format!("{name}:{value}"),
        })
    });
    config.options = latest(std::mem::take(&mut config.options).into_iter().chain(options));
}

/// Each entry once, in the order of their first places.
fn distinct<'a>(entries: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    entries.filter(|entry| seen.insert(*entry)).cloned().collect()
}

/// Of the options of each name the last one, at the place of the first.
fn latest(options: impl Iterator<Item = String>) -> Vec<String> {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut kept: Vec<String> = Vec::new();
    for option in options {
        let name = option.split(':').next().unwrap_or_default().to_owned();
        match places.entry(name) {
            Entry::Occupied(place) => kept[*place.get()] = option,
            Entry::Vacant(place) => {
                place.insert(kept.len());
                kept.push(option);
            }
        }
    }
    kept
}

/// Cuts off the entries beyond the limits. Returns the messages of the events about them.
fn cut(config: &mut DnsConfig) -> Vec<String> {
    let mut exceeded = Vec::new();
    if config.servers.len() > NAMESERVERS_MAX {
        config.servers.truncate(NAMESERVERS_MAX);
        exceeded.push(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            config.servers.join(" ")
        ));
    }
    let before = config.searches.len();
    config.searches.truncate(SEARCHES_MAX);
    config.searches.retain(|search| search.len() <= SEARCH_BYTES_MAX);
    let line_bytes = |searches: &[String]| searches.iter().map(|search| search.len() + 1).sum::<usize>();
    while line_bytes(&config.searches) > SEARCH_LINE_BYTES_MAX + 1 {
        config.searches.pop();
    }
    if config.searches.len() < before {
        exceeded.push(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            config.searches.join(" ")
        ));
    }
    exceeded
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodDNSConfigOption;
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::{container, pod};

    const HOST: &str = "# by hand\nsearch old\nnameserver 10.0.0.2\n nameserver 10.0.0.3\nsearch a.b. c . \n\
                        options ndots:2 rotate\noptions ndots:3\n";

    fn with_policy(policy: &str, host_network: bool) -> Pod {
        let mut pod = pod("Always", vec![], vec![container("c")]);
        let spec = pod.spec.as_mut().expect("spec");
        spec.dns_policy = Some(policy.into());
        spec.host_network = Some(host_network);
        pod
    }

    fn pod_dns(pod: &Pod, resolv_conf: Option<&str>, cluster: &ClusterDns) -> PodDns {
        super::pod_dns(pod, resolv_conf, cluster, &["10.0.0.1".to_owned(), "fd00::1".to_owned()])
            .expect("valid")
    }

    fn cluster() -> ClusterDns {
        ClusterDns { servers: vec!["10.96.0.10".into()], domain: "cluster.local".into() }
    }

    #[test]
    fn policy_default_takes_the_nodes() {
        let dns = pod_dns(&with_policy("Default", false), Some(HOST), &cluster());
        assert_eq!(dns.config.servers, ["10.0.0.2", "10.0.0.3"]);
        assert_eq!(dns.config.searches, ["a.b", "c"]);
        assert_eq!(dns.config.options, ["ndots:3", "rotate"]);
        assert!(!dns.missing_cluster);
        let dns = pod_dns(&with_policy("Default", false), None, &cluster());
        assert_eq!(dns.config.servers, ["127.0.0.1", "::1"]);
        assert_eq!(dns.config.searches, ["."]);
    }

    #[test]
    fn options_take_work_by_their_number() {
        let mut many = with_policy("None", false);
        let option = |number: usize| PodDNSConfigOption {
            name: Some(format!("o{number:05}")),
            value: Some("1".to_owned()),
        };
        let options = (0..40_000).chain(0..1).map(option).collect();
        let own = PodDNSConfig { options: Some(options), ..PodDNSConfig::default() };
        many.spec.as_mut().expect("spec").dns_config = Some(own);
        let begun = tokio::time::Instant::now();
        let dns = pod_dns(&many, None, &cluster());
        let took = begun.elapsed();
        assert!(took.as_secs() < 5, "{took:?}");
        assert_eq!((dns.config.options.len(), &*dns.config.options[0]), (40_000, "o00000:1"));
    }

    #[test]
    fn policy_cluster_first() {
        let dns = pod_dns(&with_policy("ClusterFirst", false), Some(HOST), &cluster());
        assert_eq!(dns.config.servers, ["10.96.0.10"]);
        assert_eq!(
            dns.config.searches,
            ["ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "a.b", "c"]
        );
        assert_eq!(dns.config.options, ["ndots:5"]);
        let on_host = pod_dns(&with_policy("ClusterFirst", true), Some(HOST), &cluster());
        assert_eq!(on_host.config.servers, ["10.0.0.2", "10.0.0.3"]);
        let both = pod_dns(&with_policy("ClusterFirstWithHostNet", true), Some(HOST), &cluster());
        assert_eq!(both.config.servers, ["10.96.0.10"]);
        let none = pod_dns(&with_policy("ClusterFirst", false), Some(HOST), &ClusterDns::default());
        assert!(none.missing_cluster);
        assert_eq!(none.config.servers, ["10.0.0.2", "10.0.0.3"]);
    }

    #[test]
    fn the_pods_own_configuration_is_added() {
        let mut pod = with_policy("None", false);
        pod.spec.as_mut().expect("spec").dns_config = Some(PodDNSConfig {
            nameservers: Some(vec!["1.1.1.1".into(), "1.1.1.1".into()]),
            searches: Some(vec!["x".into()]),
            options: Some(vec![
                PodDNSConfigOption { name: Some("ndots".into()), value: Some("2".into()) },
                PodDNSConfigOption { name: Some("edns0".into()), value: None },
            ]),
        });
        let dns = pod_dns(&pod, Some(HOST), &cluster());
        assert_eq!(dns.config.servers, ["1.1.1.1"]);
        assert_eq!(dns.config.searches, ["x"]);
        assert_eq!(dns.config.options, ["ndots:2", "edns0"]);
    }

    #[test]
    fn what_is_beyond_the_limits_is_cut_and_told() {
        let mut pod = with_policy("Default", false);
        let searches: Vec<String> = (0..33).map(|n| format!("s{n}")).collect();
        pod.spec.as_mut().expect("spec").dns_config = Some(PodDNSConfig {
            nameservers: Some(vec!["1.1.1.1".into(), "1.1.1.2".into(), "10.0.0.2".into()]),
            searches: Some(searches.clone()),
            options: None,
        });
        let dns = pod_dns(&pod, Some("nameserver 10.0.0.2\nnameserver 10.0.0.3\n"), &cluster());
        assert_eq!(
            dns.exceeded,
            [
                "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: \
                 10.0.0.2 10.0.0.3 1.1.1.1"
                    .to_owned(),
                format!(
                    "Search Line limits were exceeded, some search paths have been omitted, the applied search line \
                     is: {}",
                    searches[..32].join(" ")
                ),
            ]
        );
        let long = format!("search a {} b", "x".repeat(254));
        let dns = pod_dns(&with_policy("Default", false), Some(&long), &cluster());
        assert_eq!((dns.config.searches.join(" "), dns.exceeded.len()), ("a b".to_owned(), 1));
        let line = format!("search {}", vec!["y".repeat(200); 11].join(" "));
        let dns = pod_dns(&with_policy("Default", false), Some(&line), &cluster());
        assert_eq!((dns.config.searches.len(), dns.exceeded.len()), (10, 1));
    }

    #[test]
    fn the_nodes_file_is_checked() {
        let error = super::pod_dns(&with_policy("Default", false), Some("nameserver\n"), &cluster(), &[]);
        assert_eq!(
            error.expect_err("no server").to_string(),
            "Encountered error while parsing resolv conf file. Error: nameserver list is empty "
        );
        let check = |text: &str| check_resolv_conf("/r", text, "cluster.local");
        assert_eq!(check(HOST), None);
        assert_eq!(check("nameserver"), Some("nameserver list is empty ".to_owned()));
        let many = format!("search {}", vec!["a"; 30].join(" "));
        assert_eq!(
            check(&many).as_deref(),
            Some("Resolv.conf file '/r' contains search line consisting of more than 29 domains!")
        );
        assert_eq!(check_resolv_conf("/r", &many, ""), None);
        assert_eq!(
            check(&format!("search {}", "x".repeat(254))).as_deref(),
            Some(
                "Resolv.conf file \"/r\" contains a search path which length is more than allowed 253 chars!"
            )
        );
        assert_eq!(
            check(&format!("search {}", vec!["y".repeat(200); 11].join(" "))).as_deref(),
            Some("Resolv.conf file '/r' contains search line which length is more than allowed 2048 chars!")
        );
    }

    proptest! {
        #[test]
        fn the_limits_hold(text in proptest::collection::vec("(search( [a-z.]{1,300}){0,40}|nameserver [0-9.]{7})", 0..8)) {
            let dns = pod_dns(&with_policy("Default", false), Some(&text.join("\n")), &cluster());
            prop_assert!(dns.config.servers.len() <= 3 && dns.config.searches.len() <= 32);
            prop_assert!(dns.config.searches.join(" ").len() <= SEARCH_LINE_BYTES_MAX);
        }
    }
}
