//! What a pull, or a use, adds to the record of an image.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::format::{PullCredentials, PullSecret, PullServiceAccount, PulledRecord};
use crate::credentials::{AccountSource, Credential};

/// About how many bytes the record of an image has at most. One of more than a mebibyte would not be read.
const BYTES_MAX: usize = 512 * 1024;
/// The most secrets, and the most service accounts, under one name of an image.
const SECRETS_MAX: usize = 200;

/// The access that a pull with this credential proves.
pub fn pulled_with(used: Option<&Credential>) -> PullCredentials {
    let (secret, account) = (used.and_then(pull_secret), used.and_then(pull_account));
    match (secret, account) {
        (Some(secret), _) => {
            PullCredentials { kubernetes_secrets: vec![secret], ..PullCredentials::default() }
        }
        (None, Some(account)) => {
            PullCredentials { kubernetes_service_accounts: vec![account], ..PullCredentials::default() }
        }
        // A pull without credentials, or with the node's own, proves access for all pods of the node.
        (None, None) => PullCredentials { node_pods_accessible: true, ..PullCredentials::default() },
    }
}

/// A service account in the form of records; `None` for a credential that no provider gave for one.
pub(super) fn pull_account(credential: &Credential) -> Option<PullServiceAccount> {
    let AccountSource { uid, namespace, name } = credential.account()?.clone();
    Some(PullServiceAccount { uid, namespace, name })
}

/// A secret's credential in the form of records; `None` for a credential of the node.
pub(super) fn pull_secret(credential: &Credential) -> Option<PullSecret> {
    let source = credential.source()?;
    Some(PullSecret {
        uid: source.uid.clone(),
        namespace: source.namespace.clone(),
        name: source.name.clone(),
        credential_hash: credential.hash(),
    })
}

/// The record of an image after a pull under `name` (without tag and digest), with the time of that pull. If
/// `new` is `None`, the record only says that the kubelet pulled the image, and every pod then has to prove its
/// access; `None` when it is there already.
pub fn merged(
    before: Option<PulledRecord>,
    image_ref: &str,
    name: &str,
    new: Option<PullCredentials>,
    now: Timestamp,
) -> Option<PulledRecord> {
    let fresh = before.is_none();
    let mut record = before.unwrap_or_else(|| PulledRecord::new(image_ref));
    let proven = new.is_some();
    let changed = match new {
        Some(new) if new != PullCredentials::default() => add(&mut record, name, new),
        _ => false,
    };
    if changed {
        shrink(&mut record, name);
    }
    record.last_updated_time = Some(now);
    // Also where all was known: a record goes when its image is gone, and must be newer than that if it was pulled again.
    (fresh || changed || proven).then_some(record)
}

fn add(record: &mut PulledRecord, name: &str, new: PullCredentials) -> bool {
    let Some(known) = record.credential_mapping.get_mut(name) else {
        record.credential_mapping.insert(name.to_owned(), new);
        return true;
    };
    if known.node_pods_accessible {
        return false;
    }
    if new.node_pods_accessible {
        *known = new;
        return true;
    }
    let mut changed = false;
    for secret in new.kubernetes_secrets {
        let same = |other: &&mut PullSecret| other.coordinates() == secret.coordinates();
        match known.kubernetes_secrets.iter_mut().find(same) {
            Some(other) if *other == secret => continue,
            Some(other) => *other = secret,
            None => {
                leave_room(&mut known.kubernetes_secrets, |secret| &secret.namespace);
                known.kubernetes_secrets.push(secret);
            }
        }
        changed = true;
    }
    known.kubernetes_secrets.sort_by(|a, b| a.coordinates().cmp(&b.coordinates()));
    for account in new.kubernetes_service_accounts {
        if known.kubernetes_service_accounts.contains(&account) {
            continue;
        }
        leave_room(&mut known.kubernetes_service_accounts, |account| &account.namespace);
        known.kubernetes_service_accounts.push(account);
        changed = true;
    }
    known.kubernetes_service_accounts.sort_by(|a, b| a.coordinates().cmp(&b.coordinates()));
    changed
}

/// Leaves room for one more secret or service account under a name: the namespace with the most of them loses its last.
fn leave_room<T>(entries: &mut Vec<T>, namespace: fn(&T) -> &String) {
    while entries.len() >= SECRETS_MAX {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for entry in entries.iter() {
            *counts.entry(namespace(entry).as_str()).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        let most = most.map(|(namespace, _)| namespace.to_owned());
        let is_of_most = |entry: &T| Some(namespace(entry)) == most.as_ref();
        let Some(place) = entries.iter().rposition(is_of_most) else { return };
        entries.remove(place);
    }
}

/// Forgets names other than `new` until the record is small enough: always one of the owner that has most of the record. A
/// pod that uses such a name proves its access by a pull again.
fn shrink(record: &mut PulledRecord, new: &str) {
    let weights = record.credential_mapping.iter().map(|(name, access)| access.weight(name));
    let mut left: usize = weights.sum();
    if left <= BYTES_MAX {
        return;
    }
    let mut owners: BTreeMap<String, (usize, Vec<String>)> = BTreeMap::new();
    for (name, access) in record.credential_mapping.iter().filter(|(name, _)| name.as_str() != new) {
        let (bytes, names) = owners.entry(owner(name, access)).or_default();
        *bytes += access.weight(name);
        names.push(name.clone());
    }
    while left > BYTES_MAX {
        let Some((bytes, names)) = owners.values_mut().max_by_key(|(bytes, _)| *bytes) else { return };
        let Some(name) = names.pop() else { return };
        let Some(access) = record.credential_mapping.remove(&name) else { return };
        let weight = access.weight(&name);
        *bytes = bytes.saturating_sub(weight);
        left = left.saturating_sub(weight);
    }
}

/// By whose doing a name is in a record: the namespaces whose secrets or service accounts opened it, or the registry of one that is open to all.
fn owner(name: &str, access: &PullCredentials) -> String {
    let of_secrets = access.kubernetes_secrets.iter().map(|secret| secret.namespace.as_str());
    let of_accounts = access.kubernetes_service_accounts.iter().map(|account| account.namespace.as_str());
    let namespaces: BTreeSet<&str> = of_secrets.chain(of_accounts).collect();
    if namespaces.is_empty() {
        return format!("/{}", name.split('/').next().unwrap_or_default());
    }
    namespaces.into_iter().collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secret(name: &str, hash: &str) -> PullSecret {
        let hash = hash.to_owned();
        PullSecret { name: name.to_owned(), credential_hash: hash, ..PullSecret::default() }
    }

    fn of(secrets: &[PullSecret]) -> Option<PullCredentials> {
        Some(PullCredentials { kubernetes_secrets: secrets.to_vec(), ..PullCredentials::default() })
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn what_is_proven_adds_up() {
        let all = Some(PullCredentials { node_pods_accessible: true, ..PullCredentials::default() });
        let first = merged(None, "id", "app", of(&[secret("b", "1")]), at(1)).unwrap();
        assert_eq!(first.last_updated_time, Some(at(1)));
        let again = merged(Some(first.clone()), "id", "app", of(&[secret("b", "1")]), at(2)).unwrap();
        assert_eq!(again.last_updated_time, Some(at(2)));
        assert_eq!(again.credential_mapping, first.credential_mapping);
        let both = merged(Some(first.clone()), "id", "app", of(&[secret("a", "2")]), at(2)).unwrap();
        assert_eq!(both.credential_mapping["app"].kubernetes_secrets, [secret("a", "2"), secret("b", "1")]);
        let renewed = merged(Some(both), "id", "app", of(&[secret("b", "3")]), at(3)).unwrap();
        assert_eq!(
            renewed.credential_mapping["app"].kubernetes_secrets,
            [secret("a", "2"), secret("b", "3")]
        );
        let other = merged(Some(renewed), "id", "other", of(&[secret("c", "4")]), at(4)).unwrap();
        assert_eq!(other.credential_mapping.len(), 2, "names are proven apart");
        let open = merged(Some(other), "id", "app", all.clone(), at(5)).unwrap();
        assert_eq!(Some(&open.credential_mapping["app"]), all.as_ref());
        let still = merged(Some(open.clone()), "id", "app", of(&[secret("z", "9")]), at(6)).unwrap();
        assert_eq!(still.credential_mapping, open.credential_mapping);
    }

    #[test]
    fn service_accounts_add_up_beside_secrets_and_are_bounded() {
        let account = |namespace: &str, name: &str| PullServiceAccount {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..PullServiceAccount::default()
        };
        let of_accounts = |accounts: &[PullServiceAccount]| {
            Some(PullCredentials {
                kubernetes_service_accounts: accounts.to_vec(),
                ..PullCredentials::default()
            })
        };
        let (a, b) = (account("team", "a"), account("team", "b"));
        let first = merged(None, "id", "app", of_accounts(std::slice::from_ref(&b)), at(1)).unwrap();
        let same = merged(Some(first.clone()), "id", "app", of_accounts(std::slice::from_ref(&b)), at(2));
        assert_eq!(same.map(|record| record.credential_mapping), Some(first.credential_mapping.clone()));
        let both = merged(Some(first), "id", "app", of_accounts(std::slice::from_ref(&a)), at(2)).unwrap();
        let both = merged(Some(both), "id", "app", of(&[secret("s", "1")]), at(2)).unwrap();
        let known = &both.credential_mapping["app"];
        assert_eq!((&*known.kubernetes_service_accounts, known.kubernetes_secrets.len()), (&[a, b][..], 1));
        let mut record = both;
        for number in 0..2 * SECRETS_MAX {
            let crowd = account("crowd", &format!("{number:04}"));
            record = merged(Some(record), "id", "app", of_accounts(&[crowd]), at(3)).unwrap();
        }
        let accounts = &record.credential_mapping["app"].kubernetes_service_accounts;
        let of_team = accounts.iter().filter(|account| account.namespace == "team").count();
        assert_eq!((accounts.len(), of_team), (SECRETS_MAX, 2));
        let given = AccountSource { namespace: "team".to_owned(), ..AccountSource::default() };
        let proven = pulled_with(Some(&Credential::of_account("me", given)));
        assert_eq!(proven.kubernetes_service_accounts, [account("team", "")]);
        assert!(!proven.node_pods_accessible);
    }

    #[test]
    fn an_image_of_unknown_circumstances_is_known_and_opens_nothing() {
        let record = merged(None, "id", "app", None, at(1)).unwrap();
        assert!(record.credential_mapping.is_empty());
        assert_eq!(merged(Some(record), "id", "app", None, at(2)), None);
    }

    #[test]
    fn a_credential_of_the_node_opens_the_image_and_one_of_a_secret_does_not() {
        assert!(pulled_with(None).node_pods_accessible);
        assert!(pulled_with(Some(&Credential::default())).node_pods_accessible);
    }

    /// The access of a pull with a secret of this namespace, of the longest possible name.
    fn of_namespace(namespace: &str, number: usize) -> Option<PullCredentials> {
        of(&[PullSecret {
            uid: "u".repeat(36),
            namespace: namespace.to_owned(),
            name: format!("{number:0253}"),
            credential_hash: "0".repeat(64),
        }])
    }

    #[test]
    fn a_record_can_always_be_read_and_the_namespace_that_fills_it_is_forgotten() {
        let mut record = merged(None, "id", "quiet.io/app", of_namespace("quiet", 0), at(1)).unwrap();
        for number in 0..3000 {
            let name = format!("crowd.io/app{number:04}");
            record = merged(Some(record), "id", &name, of_namespace("crowd", 0), at(1)).unwrap();
            assert!(record.credential_mapping.contains_key(&name), "what was just proven holds");
        }
        let bytes = record.to_json().len();
        assert!((1 << 18..1 << 20).contains(&bytes), "{bytes}");
        assert!(record.credential_mapping.contains_key("quiet.io/app"));
    }

    #[test]
    fn the_secrets_of_a_name_are_bounded_and_the_namespace_with_the_most_pays() {
        let mut record = merged(None, "id", "app", of_namespace("quiet", 0), at(1)).unwrap();
        for number in 0..2 * SECRETS_MAX {
            record = merged(Some(record), "id", "app", of_namespace("crowd", number), at(1)).unwrap();
        }
        let secrets = &record.credential_mapping["app"].kubernetes_secrets;
        assert_eq!(secrets.len(), SECRETS_MAX);
        assert!(secrets.iter().any(|secret| secret.namespace == "quiet"));
        let last = format!("{:0253}", 2 * SECRETS_MAX - 1);
        assert!(secrets.iter().any(|secret| secret.name == last), "what was just proven holds");
    }

    proptest! {
        #[test]
        fn secrets_stay_sorted_and_single(names in proptest::collection::vec(("[a-c]", "[0-2]"), 0..20)) {
            let mut record = None;
            for (name, hash) in names {
                let next = merged(record.clone(), "id", "app", of(&[secret(&name, &hash)]), at(1));
                record = next.or(record);
            }
            let Some(record) = record else { return Ok(()) };
            let secrets = &record.credential_mapping["app"].kubernetes_secrets;
            let sorted = secrets.windows(2).all(|pair| pair[0].coordinates() < pair[1].coordinates());
            prop_assert!(sorted);
        }
    }
}
