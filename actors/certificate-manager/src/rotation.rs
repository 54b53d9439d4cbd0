//! PURE: when a certificate is requested, and what it must hold (rows 20.3, 20.4).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use bridge_pace::{Backoff, fraction, stretched};
use bridge_tls::certificates::{Leaf, Names, Subject};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeAddress;

/// Period of looks at the time: the clock may be set.
pub const LOOK: Duration = Duration::from_secs(10);
/// Pause after success: a new certificate that is unsuitable is not replaced at once.
pub const AFTER_SUCCESS: Duration = Duration::from_secs(32);
/// After so many failures in a row the pause is the longest.
pub const FAILURES_MAX: u32 = 5;
/// The kubelet ends after so long without a valid client certificate, if the API server answers.
pub const LOST_AFTER: Duration = Duration::from_secs(300);

const BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(2), Duration::from_secs(32));

/// When a certificate is replaced: after 70 to 90 % of its life.
pub fn deadline(leaf: &Leaf, random: u64) -> Timestamp {
    let life = leaf.not_after.duration_since(leaf.not_before).as_millis_f64().max(0.0);
    let after = Duration::from_secs_f64(life * (0.7 + 0.2 * fraction(random)) / 1000.0);
    leaf.not_before.checked_add(after).unwrap_or(leaf.not_after)
}

/// Pause after so many failures in a row (at least one).
pub fn retry_wait(failures: u32, random: u64) -> Duration {
    if failures >= FAILURES_MAX {
        return BACKOFF.longest();
    }
    stretched(BACKOFF.after(failures), 0.1, random)
}

/// The names of a serving certificate for these addresses; `None` while there is no IP.
pub fn names(addresses: &[NodeAddress]) -> Option<Names> {
    let mut names = Names { dns: BTreeSet::new(), ips: BTreeSet::new() };
    for NodeAddress { address, type_ } in addresses.iter().filter(|address| !address.address.is_empty()) {
        let ip = address.parse::<IpAddr>().ok();
        match (type_.as_str(), ip) {
            ("Hostname" | "ExternalIP" | "InternalIP", Some(ip)) => {
                names.ips.insert(ip);
            }
            ("Hostname", None) | ("ExternalDNS" | "InternalDNS", _) => {
                names.dns.insert(address.clone());
            }
            _ => {}
        }
    }
    Some(names).filter(|names| !names.ips.is_empty())
}

/// Whether a certificate holds everything that is wanted; it may hold more.
pub fn satisfies(leaf: &Leaf, subject: &Subject) -> bool {
    leaf.common_name == subject.common_name
        && leaf.organizations.contains(&subject.organization)
        && leaf.dns_names.is_superset(&subject.names.dns)
        && leaf.ips.is_superset(&subject.names.ips)
}

/// The state of a role.
#[derive(Clone, Copy, Debug)]
pub struct CertificateState<'a> {
    /// The certificate that the kubelet presents.
    pub leaf: Option<&'a Leaf>,
    /// Whether it is to be replaced now, however long it is valid.
    pub provisional: bool,
    /// When it is to be replaced.
    pub deadline: Option<Timestamp>,
    /// What a certificate must hold; `None` while that is unknown.
    pub subject: Option<&'a Subject>,
}

/// The next step of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing can be requested.
    Nothing,
    /// Wait for so long.
    Wait(Duration),
    /// Request a certificate.
    Ask,
}

/// The next step of a role at this time.
pub fn next(known: CertificateState<'_>, now: Timestamp) -> Next {
    let Some(subject) = known.subject else { return Next::Nothing };
    let good = known.leaf.is_some_and(|leaf| satisfies(leaf, subject)) && !known.provisional;
    match known.deadline.filter(|_| good) {
        Some(deadline) if deadline > now => {
            Next::Wait(Duration::try_from(deadline.duration_since(now)).unwrap_or(Duration::ZERO))
        }
        _ => Next::Ask,
    }
}

/// Whether the request in flight is for a subject that is no longer wanted.
pub fn is_outdated(asked: &Subject, wanted: Option<&Subject>) -> bool {
    wanted.is_some_and(|wanted| wanted != asked)
}

/// Whether a server that refuses with this code is healthy: it refuses the request and not its work. 0 means no answer.
pub fn answers(code: u16) -> bool {
    matches!(code, 401 | 403 | 404)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn leaf(from: i64, to: i64) -> Leaf {
        Leaf {
            common_name: "system:node:n".to_owned(),
            organizations: ["system:nodes".to_owned()].into(),
            dns_names: BTreeSet::new(),
            ips: BTreeSet::new(),
            not_before: at(from),
            not_after: at(to),
        }
    }

    fn address(type_: &str, address: &str) -> NodeAddress {
        NodeAddress { type_: type_.to_owned(), address: address.to_owned() }
    }

    proptest! {
        #[test]
        fn it_is_replaced_after_70_to_90_percent_of_its_life(life in 10_i64..100_000_000, random: u64) {
            let leaf = leaf(1000, 1000 + life);
            let after = deadline(&leaf, random).duration_since(at(1000)).as_secs_f64();
            let life = std::time::Duration::from_secs(life.unsigned_abs()).as_secs_f64();
            prop_assert!(after >= 0.7 * life - 0.01 && after <= 0.9 * life + 0.01, "{after} of {life}");
        }

        #[test]
        fn waits_double_up_to_five_tries_and_stay(failures in 1_u32..50, random: u64) {
            let wait = retry_wait(failures, random).as_secs_f64();
            let base = f64::from(2_u32.pow(failures.min(5)));
            prop_assert!(wait >= base && wait <= base * 1.1);
        }
    }

    #[test]
    fn a_serving_certificate_needs_an_ip_and_holds_every_address() {
        assert_eq!(names(&[]), None);
        assert_eq!(names(&[address("Hostname", "n"), address("InternalDNS", "n.x")]), None);
        let all = [
            address("Hostname", "n"),
            address("InternalIP", "10.0.0.1"),
            address("ExternalIP", "2001:db8::1"),
            address("InternalIP", "nonsense"),
            address("ExternalDNS", "n.example"),
            address("InternalIP", ""),
        ];
        let expected = Names {
            dns: ["n".to_owned(), "n.example".to_owned()].into(),
            ips: ["10.0.0.1".parse().expect("an IP"), "2001:db8::1".parse().expect("an IP")].into(),
        };
        assert_eq!(names(&all), Some(expected));
        let host = names(&[address("Hostname", "10.0.0.9")]).expect("an IP");
        assert!(host.dns.is_empty() && host.ips.len() == 1);
    }

    #[test]
    fn it_is_asked_for_when_there_is_none_or_it_lacks_something_or_is_due() {
        let subject = Subject::node("n", Names::default());
        let held = leaf(0, 100);
        let known = CertificateState {
            leaf: Some(&held),
            provisional: false,
            deadline: Some(at(80)),
            subject: Some(&subject),
        };
        assert_eq!(next(known, at(10)), Next::Wait(Duration::from_secs(70)));
        assert_eq!(next(known, at(80)), Next::Ask);
        assert_eq!(next(known, at(500)), Next::Ask);
        assert_eq!(next(CertificateState { leaf: None, deadline: None, ..known }, at(10)), Next::Ask);
        assert_eq!(next(CertificateState { provisional: true, ..known }, at(10)), Next::Ask);
        assert_eq!(next(CertificateState { subject: None, ..known }, at(500)), Next::Nothing);
        let more = Names { dns: BTreeSet::new(), ips: ["10.0.0.1".parse().expect("an IP")].into() };
        let more = Subject::node("n", more);
        assert_eq!(next(CertificateState { subject: Some(&more), ..known }, at(10)), Next::Ask);
        let holder = Leaf { ips: more.names.ips.clone(), ..held.clone() };
        assert!(satisfies(&holder, &subject), "it may hold more");
        assert!(!satisfies(&Leaf { common_name: "system:node:o".to_owned(), ..holder }, &subject));
        assert!(is_outdated(&subject, Some(&more)) && !is_outdated(&subject, Some(&subject)));
        assert!(!is_outdated(&subject, None), "what is wanted is not known: let it come");
    }

    #[test]
    fn whoever_refuses_us_is_well_and_whoever_fails_is_not() {
        let well: Vec<u16> =
            [0, 400, 401, 403, 404, 409, 429, 500, 503].into_iter().filter(|c| answers(*c)).collect();
        assert_eq!(well, [401, 403, 404]);
    }
}
