//! PURE: the TLS versions, cipher suites and key exchanges that a configuration selects, as far as rustls has them.

use std::sync::Arc;

use rustls::crypto::ring::{ALL_CIPHER_SUITES, default_provider, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::version::{TLS12, TLS13};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

use super::ServingError;

/// What the server speaks, and which configured values were left out.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// Cipher suites and key exchanges.
    pub provider: Arc<CryptoProvider>,
    /// The TLS versions, newest first.
    pub versions: Vec<&'static SupportedProtocolVersion>,
    /// The configured values that are left out, for people.
    pub warnings: Vec<String>,
}

/// The suite that Go knows by this name. Go uses the IANA's names of TLS 1.2's suites, and short ones of ChaCha20's as
/// well.
fn suite(name: &str) -> Option<SupportedCipherSuite> {
    let name = match name {
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        other => other,
    };
    // rustls marks the version in the names of TLS 1.3's suites.
    let marked = name.strip_prefix("TLS_").map(|rest| format!("TLS13_{rest}")).unwrap_or_default();
    let called = |one: &&SupportedCipherSuite| {
        let own = format!("{:?}", one.suite());
        own == if one.tls13().is_some() { marked.as_str() } else { name }
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

/// Suites that Go has and rustls does not: without forward secrecy, or without authenticated encryption.
const NOT_SPOKEN: [&str; 16] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];
/// Key exchange groups that Go has and this server does not: P-521, and those with ML-KEM.
const GROUPS_NOT_SPOKEN: [i32; 4] = [25, 4587, 4588, 4589];
/// The reason given for a list with no supported entry.
const NOTHING_SPOKEN: &str = "nothing of it is supported";

fn refused(field: &'static str, value: impl ToString, reason: impl Into<String>) -> ServingError {
    ServingError::Setting { field, value: value.to_string(), reason: reason.into() }
}

/// Turns `tlsMinVersion`, `tlsCipherSuites` and `tlsCurvePreferences` into a protocol.
///
/// # Errors
/// A value that Go does not know either, in upstream's words, or a list with no supported entry.
pub fn protocol(min_version: &str, suites: &[String], curves: &[i32]) -> Result<Protocol, ServingError> {
    let mut warnings = Vec::new();
    let versions: Vec<&'static SupportedProtocolVersion> = match min_version {
        "" | "VersionTLS12" => vec![&TLS13, &TLS12],
        "VersionTLS13" => {
            if !suites.is_empty() {
                warnings
                    .push("TLS 1.3 cipher suites are not configurable, ignoring tlsCipherSuites".to_owned());
            }
            vec![&TLS13]
        }
        "VersionTLS10" | "VersionTLS11" => {
            warnings.push(format!("tlsMinVersion: {min_version} is not spoken; TLS 1.2 is the oldest"));
            vec![&TLS13, &TLS12]
        }
        other => return Err(refused("tlsMinVersion", other, format!("unknown tls version {other:?}"))),
    };
    let mut provider = default_provider();
    if !suites.is_empty() {
        let known = known_suites(suites, &mut warnings)?;
        // The suites of TLS 1.3 are not configurable, as upstream.
        provider.cipher_suites.retain(|one| one.tls13().is_some() || known.contains(one));
    }
    if !curves.is_empty() {
        provider.kx_groups = known_groups(curves, &mut warnings)?;
    }
    Ok(Protocol { provider: Arc::new(provider), versions, warnings })
}

fn known_suites(
    names: &[String],
    warnings: &mut Vec<String>,
) -> Result<Vec<SupportedCipherSuite>, ServingError> {
    const FIELD: &str = "tlsCipherSuites";
    let mut known = Vec::new();
    for name in names {
        match suite(name) {
            Some(suite) => known.push(suite),
            None if NOT_SPOKEN.contains(&name.as_str()) => {
                warnings.push(format!("{FIELD}: {name} is not spoken and left out"));
            }
            None => {
                let reason = format!("Cipher suite {name} not supported or doesn't exist");
                return Err(refused(FIELD, name, reason));
            }
        }
    }
    if known.is_empty() { Err(refused(FIELD, names.join(","), NOTHING_SPOKEN)) } else { Ok(known) }
}

fn known_groups(
    numbers: &[i32],
    warnings: &mut Vec<String>,
) -> Result<Vec<&'static dyn SupportedKxGroup>, ServingError> {
    const FIELD: &str = "tlsCurvePreferences";
    let mut known = Vec::new();
    for (at, number) in numbers.iter().enumerate() {
        if !(1..=i32::from(u16::MAX)).contains(number) {
            let reason = format!("curve preference {number} is out of range (must be 1-{})", u16::MAX);
            return Err(refused(FIELD, number, reason));
        }
        if numbers[..at].contains(number) {
            return Err(refused(FIELD, number, format!("duplicate curve preference {number}")));
        }
        match group(*number) {
            Some(group) => known.push(group),
            None if GROUPS_NOT_SPOKEN.contains(number) => {
                warnings.push(format!("{FIELD}: {number} is not spoken and left out"));
            }
            None => {
                return Err(refused(FIELD, number, format!("curve preference {number} is not supported")));
            }
        }
    }
    let all = || numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    if known.is_empty() { Err(refused(FIELD, all(), NOTHING_SPOKEN)) } else { Ok(known) }
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

    #[test]
    fn what_go_does_not_know_is_refused_with_its_name() {
        let gcm = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
        let refused = |version: &str, names: &[&str], curves: &[i32]| {
            protocol(version, &named(names), curves).unwrap_err().to_string()
        };
        for (error, expected) in [
            (
                refused("", &[gcm, "TLS_NO_SUCH"], &[]),
                "tlsCipherSuites: Invalid value: \"TLS_NO_SUCH\": Cipher suite TLS_NO_SUCH not supported or doesn't exist",
            ),
            (
                // The name that rustls uses for it.
                refused("", &[gcm, "TLS13_AES_128_GCM_SHA256"], &[]),
                "tlsCipherSuites: Invalid value: \"TLS13_AES_128_GCM_SHA256\": \
                 Cipher suite TLS13_AES_128_GCM_SHA256 not supported or doesn't exist",
            ),
            (
                refused("VersionTLS14", &[], &[]),
                "tlsMinVersion: Invalid value: \"VersionTLS14\": unknown tls version \"VersionTLS14\"",
            ),
            (
                refused("", &[], &[29, 99]),
                "tlsCurvePreferences: Invalid value: \"99\": curve preference 99 is not supported",
            ),
            (
                refused("", &[], &[29, 29]),
                "tlsCurvePreferences: Invalid value: \"29\": duplicate curve preference 29",
            ),
            (
                refused("", &[], &[29, 65_536]),
                "tlsCurvePreferences: Invalid value: \"65536\": curve preference 65536 is out of range (must be 1-65535)",
            ),
        ] {
            assert_eq!(error, expected);
        }
        assert!(protocol("VersionTLS13", &named(&[gcm]), &[]).unwrap().warnings.len() == 1);
    }
}
