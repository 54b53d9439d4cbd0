//! What a pull, or a use, adds to the record of an image.

use jiff::Timestamp;

use super::format::{PullCredentials, PullSecret, PulledRecord};
use crate::credentials::Credential;

/// The access that a pull with this credential proves.
pub fn pulled_with(used: Option<&Credential>) -> PullCredentials {
    match used.and_then(pull_secret) {
        Some(secret) => PullCredentials { kubernetes_secrets: vec![secret], ..PullCredentials::default() },
        // A pull without credentials, or with the node's own, proves access for all pods of the node.
        None => PullCredentials { node_pods_accessible: true, ..PullCredentials::default() },
    }
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

/// The record of an image after a pull under `name` (without tag and digest); `None` when nothing changes. If
/// `new` is `None`, the record only says that the kubelet pulled the image: every pod then has to prove its
/// access.
pub fn merged(
    before: Option<PulledRecord>,
    image_ref: &str,
    name: &str,
    new: Option<PullCredentials>,
    now: Timestamp,
) -> Option<PulledRecord> {
    let fresh = before.is_none();
    let mut record = before.unwrap_or_else(|| PulledRecord::new(image_ref));
    let changed = match new {
        Some(new) if new != PullCredentials::default() => add(&mut record, name, new),
        _ => false,
    };
    record.last_updated_time = Some(now);
    (fresh || changed).then_some(record)
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
            None => known.kubernetes_secrets.push(secret),
        }
        changed = true;
    }
    known.kubernetes_secrets.sort_by(|a, b| a.coordinates().cmp(&b.coordinates()));
    changed
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
        assert_eq!(merged(Some(first.clone()), "id", "app", of(&[secret("b", "1")]), at(2)), None);
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
        assert_eq!(merged(Some(open), "id", "app", of(&[secret("z", "9")]), at(6)), None);
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
