//! PURE: the TLS versions, cipher suites and key exchanges of a configuration, as far as there are such.

use std::sync::Arc;

use rustls::crypto::ring::{ALL_CIPHER_SUITES, default_provider, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::version::{TLS12, TLS13};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

use super::ServingError;

/// What is spoken, and what was asked for in vain.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// Cipher suites and key exchanges.
    pub provider: Arc<CryptoProvider>,
    /// Newest first.
    pub versions: Vec<&'static SupportedProtocolVersion>,
    /// What of the configuration is left out, for people.
    pub warnings: Vec<String>,
}

/// Go's names of TLS 1.2's suites are those of the IANA, but for ChaCha20, where Go also takes a short one.
fn suite(name: &str) -> Option<SupportedCipherSuite> {
    let name = match name {
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        other => other,
    };
    // rustls marks the version in the names of TLS 1.3's.
    let marked = name.replacen("TLS_", "TLS13_", 1);
    let called = |one: &&SupportedCipherSuite| {
        let own = format!("{:?}", one.suite());
        own == name || own == marked
    };
    ALL_CIPHER_SUITES.iter().find(called).copied()
}

fn group(number: i32) -> Option<&'static dyn SupportedKxGroup> {
    match number {
        23 => Some(kx_group::SECP256R1),
        24 => Some(kx_group::SECP384R1),
        29 => Some(kx_group::X25519),
        _ => None,
    }
}

/// Puts `tlsMinVersion`, `tlsCipherSuites` and `tlsCurvePreferences` together.
///
/// # Errors
/// Nothing of a list remains, or the version is none.
pub fn protocol(min_version: &str, suites: &[String], curves: &[i32]) -> Result<Protocol, ServingError> {
    let mut warnings = Vec::new();
    let versions: Vec<&'static SupportedProtocolVersion> = match min_version {
        "" | "VersionTLS12" => vec![&TLS13, &TLS12],
        "VersionTLS13" => vec![&TLS13],
        "VersionTLS10" | "VersionTLS11" => {
            warnings.push(format!("tlsMinVersion: {min_version} is not spoken; TLS 1.2 is the oldest"));
            vec![&TLS13, &TLS12]
        }
        other => {
            return Err(ServingError::Setting { field: "tlsMinVersion", value: other.to_owned() });
        }
    };
    let mut provider = default_provider();
    if !suites.is_empty() {
        let known = suites.iter().filter_map(|name| {
            let found = suite(name);
            if found.is_none() {
                warnings.push(format!("tlsCipherSuites: {name} is not spoken and left out"));
            }
            found
        });
        let known: Vec<SupportedCipherSuite> = known.collect();
        if known.is_empty() {
            return Err(ServingError::Setting { field: "tlsCipherSuites", value: suites.join(",") });
        }
        // As upstream: the suites of TLS 1.3 are not configurable.
        provider.cipher_suites.retain(|one| one.tls13().is_some() || known.contains(one));
    }
    if !curves.is_empty() {
        let known = curves.iter().filter_map(|number| {
            let found = group(*number);
            if found.is_none() {
                warnings.push(format!("tlsCurvePreferences: {number} is not spoken and left out"));
            }
            found
        });
        provider.kx_groups = known.collect();
        if provider.kx_groups.is_empty() {
            return Err(ServingError::Setting {
                field: "tlsCurvePreferences",
                value: curves.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            });
        }
    }
    Ok(Protocol { provider: Arc::new(provider), versions, warnings })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn the_defaults_are_all_that_is_safe() {
        let all = protocol("", &[], &[]).unwrap();
        assert_eq!(all.versions.len(), 2);
        assert!(all.warnings.is_empty());
        assert_eq!(all.provider.cipher_suites.len(), ALL_CIPHER_SUITES.len());
    }

    #[test]
    fn an_old_version_is_raised_and_said() {
        let raised = protocol("VersionTLS10", &[], &[]).unwrap();
        assert_eq!((raised.versions.len(), raised.warnings.len()), (2, 1));
        assert_eq!(protocol("VersionTLS13", &[], &[]).unwrap().versions.len(), 1);
        assert!(protocol("TLS1.2", &[], &[]).is_err());
    }

    #[test]
    fn suites_that_are_not_there_are_left_out_until_none_remains() {
        let some = protocol(
            "",
            &named(&[
                "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
                "TLS_RSA_WITH_AES_128_CBC_SHA",
                "TLS_AES_128_GCM_SHA256",
            ]),
            &[],
        );
        let some = some.unwrap();
        assert_eq!(some.warnings.len(), 1, "{:?}", some.warnings);
        let old = some.provider.cipher_suites.iter().filter(|one| one.tls13().is_none());
        assert_eq!(old.count(), 1);
        let none = protocol("", &named(&["TLS_RSA_WITH_AES_128_CBC_SHA"]), &[]).unwrap_err();
        assert!(none.to_string().contains("tlsCipherSuites"), "{none}");
    }

    #[test]
    fn curves_keep_their_order() {
        let chosen = protocol("", &[], &[24, 25, 29]).unwrap();
        assert_eq!(chosen.warnings.len(), 1);
        let names: Vec<_> = chosen.provider.kx_groups.iter().map(|one| one.name()).collect();
        assert_eq!(names, [rustls::NamedGroup::secp384r1, rustls::NamedGroup::X25519]);
        assert!(protocol("", &[], &[25]).is_err());
    }
}
