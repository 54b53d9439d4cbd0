//! The kubelet's own process: its limits, its OOM score and its address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A setting of the kubelet's own process that the kernel refused. The caller logs it as a warning, since containers
/// run without it.
#[derive(Debug, thiserror::Error)]
#[error("set {what} of the own process to {value}: {error}")]
pub struct OwnProcessError {
    what: &'static str,
    value: i64,
    error: std::io::Error,
}

/// Raises the limit of open files to `files`, or to the hard limit where that cannot be raised.
///
/// # Errors
/// The kernel refused, or the hard limit is below `files`; the soft limit then equals the hard one.
pub fn raise_open_files(files: u64) -> Result<(), OwnProcessError> {
    let refused = |error: rustix::io::Errno| OwnProcessError {
        what: "RLIMIT_NOFILE",
        value: i64::try_from(files).unwrap_or(i64::MAX),
        error: error.into(),
    };
    let hard = getrlimit(Resource::Nofile).maximum;
    // The hard limit is never lowered: an administrator set it.
    let wanted = hard.map(|hard| hard.max(files));
    if setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum: wanted }).is_ok() {
        return Ok(());
    }
    let reachable = hard.map_or(files, |hard| hard.min(files));
    setrlimit(Resource::Nofile, Rlimit { current: Some(reachable), maximum: hard }).map_err(refused)?;
    if reachable < files { Err(refused(rustix::io::Errno::PERM)) } else { Ok(()) }
}

/// Writes `/proc/self/oom_score_adj`, -1000 to 1000.
///
/// # Errors
/// The kernel refused: lowering the score needs CAP_SYS_RESOURCE.
pub fn set_oom_score_adj(value: i32) -> Result<(), OwnProcessError> {
    std::fs::write("/proc/self/oom_score_adj", value.to_string()).map_err(|error| OwnProcessError {
        what: "oom_score_adj",
        value: value.into(),
        error,
    })
}

/// The source address of this machine's IPv4 default route; `None` without one. No packet is sent.
#[must_use]
pub fn default_address() -> Option<IpAddr> {
    // 192.0.2.0/24 is reserved for documentation; connecting a datagram socket only looks up the route.
    let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))).ok()?;
    socket.connect(SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9))).ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_unspecified())
}

/// The same for IPv6.
pub(super) fn default_address_v6() -> Option<IpAddr> {
    // 2001:db8::/32 is reserved for documentation.
    let socket = UdpSocket::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))).ok()?;
    socket.connect(SocketAddr::from((Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9))).ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_open_files_limit_goes_as_far_as_it_may_and_the_hard_one_stays() {
        let before = getrlimit(Resource::Nofile);
        let reachable = before.maximum.map_or(4096, |hard| hard.min(4096));
        raise_open_files(reachable).unwrap();
        let after = getrlimit(Resource::Nofile);
        assert_eq!((after.current, after.maximum), (Some(reachable), before.maximum));
        setrlimit(Resource::Nofile, before).unwrap();
    }

    #[test]
    fn an_oom_score_out_of_range_is_refused_with_its_value() {
        let error = set_oom_score_adj(5000).unwrap_err();
        assert!(error.to_string().contains("oom_score_adj of the own process to 5000"), "{error}");
    }
}
