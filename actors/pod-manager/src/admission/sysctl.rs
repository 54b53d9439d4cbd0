//! PURE: which kernel parameters a pod may set (row 16.5).

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::PodSpec;
use messages::facts::Rejection;
use pod_rules::sysctls::with_dots;

/// The most bytes of a parameter's name.
const NAME_BYTES_MAX: usize = 253;
/// The regular expression of names and patterns, for error messages.
const PATTERN: &str = "([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]";

/// Parameters that every pod may set, with the first kernel version that has the parameter in a namespace.
const SAFE: &[(&str, Option<(u32, u32)>)] = &[
    ("kernel.shm_rmid_forced", None),
    ("net.ipv4.ip_local_port_range", None),
    ("net.ipv4.tcp_syncookies", None),
    ("net.ipv4.ping_group_range", None),
    ("net.ipv4.ip_unprivileged_port_start", None),
    ("net.ipv4.ip_local_reserved_ports", Some((3, 16))),
    ("net.ipv4.tcp_keepalive_time", Some((4, 5))),
    ("net.ipv4.tcp_fin_timeout", Some((4, 6))),
    ("net.ipv4.tcp_keepalive_intvl", Some((4, 5))),
    ("net.ipv4.tcp_keepalive_probes", Some((4, 5))),
    ("net.ipv4.tcp_rmem", Some((4, 15))),
    ("net.ipv4.tcp_wmem", Some((4, 15))),
];

/// Parameters of the IPC namespace, which have no common prefix.
const OF_IPC: &[&str] = &[
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.shm",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.msg",
];

/// The kernel namespace that a parameter belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

impl Namespace {
    fn of(name: &str) -> Option<Self> {
        if OF_IPC.contains(&name) || name.starts_with("fs.mqueue.") {
            Some(Self::Ipc)
        } else {
            name.starts_with("net.").then_some(Self::Net)
        }
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipc => "IPC",
            Self::Net => "Net",
        })
    }
}

/// A configured name or pattern that cannot be allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The text is neither a parameter's name nor a pattern of names.
    #[error("sysctl {0:?} must have at most {NAME_BYTES_MAX} characters and match regex {PATTERN}")]
    Malformed(String),
    /// The parameter belongs to no namespace: setting it for a pod would set it for the node.
    #[error("the sysctls {0:?} are not known to be namespaced")]
    NotNamespaced(String),
}

/// The parameters that pods of this node may set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SysctlAllowlist {
    names: BTreeMap<String, Namespace>,
    prefixes: BTreeMap<String, Namespace>,
}

impl SysctlAllowlist {
    /// The safe parameters that this kernel (`uname -r`) keeps apart by namespace, and those of the
    /// configuration (`allowedUnsafeSysctls`: names, and patterns that end in `*`).
    ///
    /// # Errors
    /// The first configured name or pattern that cannot be allowed.
    pub fn new(kernel: &str, also: &[String]) -> Result<Self, PatternError> {
        let running = version(kernel);
        let mut list = Self::default();
        for (name, since) in SAFE {
            if since.is_none_or(|since| running.is_some_and(|running| running >= since)) {
                list.add(name)?;
            }
        }
        for pattern in also {
            if !is_pattern(pattern) {
                return Err(PatternError::Malformed(pattern.clone()));
            }
            list.add(pattern)?;
        }
        Ok(list)
    }

    fn add(&mut self, pattern: &str) -> Result<(), PatternError> {
        let name = with_dots(pattern);
        let (name, into) = match name.split_once('*') {
            Some((prefix, _)) => (prefix.to_owned(), &mut self.prefixes),
            None => (name, &mut self.names),
        };
        let namespace = Namespace::of(&name).ok_or_else(|| PatternError::NotNamespaced(name.clone()))?;
        into.insert(name, namespace);
        Ok(())
    }

    /// Refuses a pod that sets a parameter that is not allowed, or one of a namespace that it shares with the
    /// node.
    pub(super) fn check(&self, spec: &PodSpec) -> Result<(), Rejection> {
        let context = spec.security_context.as_ref();
        for sysctl in context.and_then(|context| context.sysctls.as_ref()).into_iter().flatten() {
            self.check_one(&sysctl.name, spec)
                .map_err(|why| Rejection::new("SysctlForbidden", format!("forbidden sysctl: {why}")))?;
        }
        Ok(())
    }

    fn check_one(&self, name: &str, spec: &PodSpec) -> Result<(), String> {
        let name = with_dots(name);
        let by_prefix = || {
            self.prefixes.iter().find(|(prefix, _)| name.starts_with(*prefix)).map(|(_, namespace)| namespace)
        };
        let namespace =
            self.names.get(&name).or_else(by_prefix).ok_or_else(|| format!("{name:?} not allowlisted"))?;
        let shared = match namespace {
            Namespace::Ipc => spec.host_ipc,
            Namespace::Net => spec.host_network,
        };
        if shared == Some(true) {
            return Err(format!("{name:?} not allowed with host {namespace} enabled"));
        }
        Ok(())
    }
}

fn is_pattern(text: &str) -> bool {
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let inner = |b: u8| lower(b) || b == b'-' || b == b'_';
    let segment = |segment: &str| {
        let bytes = segment.as_bytes();
        bytes.first().is_some_and(|b| lower(*b))
            && bytes.last().is_some_and(|b| lower(*b))
            && bytes.iter().all(|b| inner(*b))
    };
    let last = |segment: &str| match segment.as_bytes() {
        [] => false,
        [only] => lower(*only) || *only == b'*',
        [first, middle @ .., last] => {
            lower(*first) && middle.iter().all(|b| inner(*b)) && (lower(*last) || *last == b'*')
        }
    };
    let mut segments: Vec<&str> = text.split(['.', '/']).collect();
    let end = segments.pop().unwrap_or_default();
    text.len() <= NAME_BYTES_MAX && last(end) && segments.into_iter().all(segment)
}

/// Major and minor version of a kernel release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next()?, numbers.next().unwrap_or(Ok(0))) {
        (Ok(major), minor) => Some((major, minor.unwrap_or(0))),
        (Err(_), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PodSecurityContext, Sysctl};

    use super::*;

    fn spec(name: &str) -> PodSpec {
        let sysctl = Sysctl { name: name.to_owned(), value: "1".to_owned() };
        let context = PodSecurityContext { sysctls: Some(vec![sysctl]), ..PodSecurityContext::default() };
        PodSpec { security_context: Some(context), ..PodSpec::default() }
    }

    fn list(kernel: &str, also: &[&str]) -> Result<SysctlAllowlist, PatternError> {
        SysctlAllowlist::new(kernel, &also.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    fn message(list: &SysctlAllowlist, spec: &PodSpec) -> String {
        list.check(spec)
            .map_or_else(|why| format!("{}: {}", why.reason, why.message), |()| "allowed".to_owned())
    }

    #[test]
    fn what_may_be_set() {
        let plain = list("5.10.0-8-amd64", &[]).unwrap();
        let more = list("5.10.0-8-amd64", &["kernel.msg*", "net.core.somaxconn", "net/ipv6/conf/*"]).unwrap();
        for (list, name, expected) in [
            (&plain, "kernel.shm_rmid_forced", "allowed"),
            (&plain, "net.ipv4.tcp_wmem", "allowed"),
            (&plain, "net/ipv4/tcp_wmem", "allowed"),
            (&plain, "kernel.msgmax", "SysctlForbidden: forbidden sysctl: \"kernel.msgmax\" not allowlisted"),
            (&plain, "kernel/msgmax", "SysctlForbidden: forbidden sysctl: \"kernel.msgmax\" not allowlisted"),
            (&more, "kernel.msgmax", "allowed"),
            (&more, "net.core.somaxconn", "allowed"),
            (&more, "net.ipv6.conf.all.disable_ipv6", "allowed"),
            (&more, "net/ipv6/conf/eth0.1/disable_ipv6", "allowed"),
            (&more, "vm.swappiness", "SysctlForbidden: forbidden sysctl: \"vm.swappiness\" not allowlisted"),
        ] {
            assert_eq!(message(list, &spec(name)), expected, "{name}");
        }
        assert_eq!(message(&plain, &PodSpec::default()), "allowed");
    }

    #[test]
    fn what_is_shared_with_the_node_may_not_be_set() {
        let list = list("6.1.0", &["kernel.msg*"]).unwrap();
        let net = PodSpec { host_network: Some(true), ..spec("net.ipv4.tcp_syncookies") };
        assert_eq!(
            message(&list, &net),
            "SysctlForbidden: forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host Net enabled"
        );
        let ipc = PodSpec { host_ipc: Some(true), ..spec("kernel.msgmnb") };
        assert_eq!(
            message(&list, &ipc),
            "SysctlForbidden: forbidden sysctl: \"kernel.msgmnb\" not allowed with host IPC enabled"
        );
        let other = PodSpec { host_ipc: Some(true), ..spec("net.ipv4.tcp_syncookies") };
        assert_eq!(message(&list, &other), "allowed");
    }

    #[test]
    fn an_old_kernel_has_fewer() {
        for (kernel, name, allowed) in [
            ("3.15.9", "net.ipv4.ip_local_reserved_ports", false),
            ("3.16", "net.ipv4.ip_local_reserved_ports", true),
            ("4.4.0", "net.ipv4.tcp_keepalive_time", false),
            ("4.5.0", "net.ipv4.tcp_keepalive_intvl", true),
            ("4.5.0", "net.ipv4.tcp_fin_timeout", false),
            ("4.6.0", "net.ipv4.tcp_fin_timeout", true),
            ("4.14.99", "net.ipv4.tcp_rmem", false),
            ("4.15.0", "net.ipv4.tcp_rmem", true),
            ("10.0", "net.ipv4.tcp_rmem", true),
            ("", "net.ipv4.tcp_rmem", false),
            ("", "net.ipv4.tcp_syncookies", true),
        ] {
            let list = list(kernel, &[]).unwrap();
            assert_eq!(list.check(&spec(name)).is_ok(), allowed, "{name} on {kernel:?}");
        }
    }

    #[test]
    fn patterns_of_the_configuration() {
        for good in
            ["net.*", "kernel.shm*", "kernel.msg*", "fs.mqueue.*", "net/core/somaxconn", "net.a-b.c_d"]
        {
            assert!(list("6.1", &[good]).is_ok(), "{good}");
        }
        for bad in ["", "Net.a", "net..a", "net.a.", "*.a", "net.*.a", "kernel.-a", &"net.".repeat(70)] {
            assert_eq!(list("6.1", &[bad]), Err(PatternError::Malformed(bad.to_owned())));
        }
        for node in ["vm.swappiness", "kernel.*", "*", "fs.*", "network.a"] {
            let error = list("6.1", &[node]).unwrap_err().to_string();
            let shown = node.trim_end_matches('*');
            assert_eq!(error, format!("the sysctls {shown:?} are not known to be namespaced"));
        }
    }
}
