//! A pod's host name and domain (row 12.2).

use k8s_openapi::api::core::v1::Pod;

/// The longest host name, in bytes: with a terminating zero it fills the kernel's 64.
const HOSTNAME_BYTES_MAX: usize = 63;
/// The longest full name as a host name, in bytes: the kernel's 64 without a terminating zero.
const FQDN_BYTES_MAX: usize = 64;

/// A pod's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The short host name.
    pub hostname: String,
    /// The domain `<subdomain>.<namespace>.svc.<cluster domain>`; empty without a subdomain.
    pub domain: String,
}

/// Why a pod cannot have the host name that it asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostnameError {
    /// Nothing is left of the name once it is cut to the allowed length.
    #[error("hostname for pod {pod:?} was invalid: {hostname:?}")]
    Invalid {
        /// The pod's name, from its metadata.
        pod: String,
        /// The name before it was cut.
        hostname: String,
    },
    /// The full name is longer than the kernel allows.
    #[error(
        "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long \
         ({FQDN_BYTES_MAX} characters is the max, {} characters requested)",
        fqdn.len()
    )]
    TooLong {
        /// The full name.
        fqdn: String,
    },
}

/// A pod's names: `spec.hostnameOverride` (if its gate is on), `spec.hostname` or the pod's name, cut to the
/// length that the kernel allows, and the domain of `spec.subdomain`.
///
/// # Errors
/// Nothing is left of a name that had to be cut.
pub fn names(pod: &Pod, cluster_domain: &str, override_enabled: bool) -> Result<Names, HostnameError> {
    let spec = pod.spec.as_ref();
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let override_name = spec.and_then(|spec| spec.hostname_override.as_deref()).filter(|_| override_enabled);
    if let Some(name) = override_name {
        return Ok(Names { hostname: cut(pod_name, name)?, domain: String::new() });
    }
    let set = |field: Option<&String>| field.filter(|text| !text.is_empty()).cloned();
    let hostname = set(spec.and_then(|spec| spec.hostname.as_ref()));
    let hostname = cut(pod_name, hostname.as_deref().unwrap_or(pod_name))?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let domain = set(spec.and_then(|spec| spec.subdomain.as_ref()))
        .map(|subdomain| format!("{subdomain}.{namespace}.svc.{cluster_domain}"));
    Ok(Names { hostname, domain: domain.unwrap_or_default() })
}

/// The host name for the kernel: the short name, or with `setHostnameAsFQDN` the full one.
///
/// # Errors
/// The full name is too long.
pub fn kernel_hostname(pod: &Pod, names: &Names) -> Result<String, HostnameError> {
    let full = pod.spec.as_ref().and_then(|spec| spec.set_hostname_as_fqdn).unwrap_or(false);
    if !full || names.domain.is_empty() {
        return Ok(names.hostname.clone());
    }
    let fqdn = format!("{}.{}", names.hostname, names.domain);
    if fqdn.len() > FQDN_BYTES_MAX { Err(HostnameError::TooLong { fqdn }) } else { Ok(fqdn) }
}

fn cut(pod: &str, name: &str) -> Result<String, HostnameError> {
    if name.len() <= HOSTNAME_BYTES_MAX {
        return Ok(name.to_owned());
    }
    let mut end = HOSTNAME_BYTES_MAX;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    match name[..end].trim_end_matches(['-', '.']) {
        "" => Err(HostnameError::Invalid { pod: pod.to_owned(), hostname: name.to_owned() }),
        cut => Ok(cut.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::pod;

    fn with(hostname: &str, subdomain: &str, override_name: Option<&str>, fqdn: bool) -> Pod {
        let mut pod = pod("Always", vec![], vec![]);
        let spec = pod.spec.as_mut().expect("spec");
        spec.hostname = Some(hostname.to_owned());
        spec.subdomain = Some(subdomain.to_owned());
        spec.hostname_override = override_name.map(str::to_owned);
        spec.set_hostname_as_fqdn = Some(fqdn);
        pod
    }

    #[test]
    fn the_spec_says_what_a_pod_is_called() {
        let of = |pod: &Pod| {
            let names = names(pod, "cluster.local", true).expect("valid");
            (names.hostname.clone(), names.domain.clone(), kernel_hostname(pod, &names))
        };
        let is = |hostname: &str, domain: &str, kernel: &str| {
            (hostname.to_owned(), domain.to_owned(), Ok(kernel.to_owned()))
        };
        assert_eq!(of(&with("", "", None, true)), is("web", "", "web"));
        assert_eq!(of(&with("h", "", None, true)), is("h", "", "h"));
        assert_eq!(of(&with("h", "s", None, false)), is("h", "s.ns.svc.cluster.local", "h"));
        let full = "h.s.ns.svc.cluster.local";
        assert_eq!(of(&with("h", "s", None, true)), is("h", "s.ns.svc.cluster.local", full));
        assert_eq!(of(&with("h", "s", Some("o.p"), false)), is("o.p", "", "o.p"));
        let off = names(&with("h", "s", Some("o.p"), false), "d", false).expect("valid");
        assert_eq!((off.hostname.as_str(), off.domain.as_str()), ("h", "s.ns.svc.d"));
    }

    #[test]
    fn a_full_name_has_64_bytes_at_most() {
        let domain = ".s.ns.svc.cluster.local";
        let fits = "h".repeat(64 - domain.len());
        let kernel = |hostname: &str| {
            let pod = with(hostname, "s", None, true);
            kernel_hostname(&pod, &names(&pod, "cluster.local", true).expect("valid"))
        };
        assert_eq!(kernel(&fits), Ok(format!("{fits}{domain}")));
        assert_eq!(
            kernel(&format!("{fits}x")).expect_err("65 bytes").to_string(),
            format!(
                "failed to construct FQDN from pod hostname and cluster domain, FQDN {fits}x{domain} is too long \
                 (64 characters is the max, 65 characters requested)"
            )
        );
    }

    proptest! {
        #[test]
        fn host_names_fit_the_kernel(name in "[a-z0-9.-]{1,100}") {
            let mut pod = pod("Always", vec![], vec![]);
            pod.metadata.name = Some(name.clone());
            if let Ok(names) = names(&pod, "", true) {
                let host = names.hostname;
                prop_assert!(host.len() <= 63 && name.starts_with(&host));
                prop_assert!(name.len() <= 63 || !host.ends_with(['-', '.']));
            } else {
                prop_assert!(name[..63].bytes().all(|b| b == b'-' || b == b'.'));
            }
        }
    }
}
