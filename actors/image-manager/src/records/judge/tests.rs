use super::*;
use crate::credentials::{AccountSource, SecretSource};
use crate::records::{merged, pulled_with};

fn credential(password: &str, secret: &str) -> Credential {
    let source = SecretSource { uid: secret.to_owned(), namespace: "n".to_owned(), name: secret.to_owned() };
    Credential::for_tests("me", password, Some(source))
}

fn now() -> jiff::Timestamp {
    jiff::Timestamp::from_second(1).unwrap()
}

/// The record of an image that was pulled as `r.io/app` with this credential.
fn record(used: Option<&Credential>) -> PulledRecord {
    merged(None, "id", "r.io/app", Some(pulled_with(used)), now()).unwrap()
}

fn ask(
    verification: &Verification,
    image: &str,
    intended: bool,
    record: Option<&PulledRecord>,
    credentials: &[Credential],
) -> AccessDecision {
    let credentials = Ok(credentials);
    judge(verification, &AccessQuestion { image, intended, record: Ok(record), credentials })
}

const USE: AccessDecision = AccessDecision::Use { why: Checked::RecordFound, add: None };
const ALLOWED: AccessDecision = AccessDecision::Use { why: Checked::PolicyAllowed, add: None };
const PROVE: AccessDecision = AccessDecision::Prove(Checked::MustAuthenticate);
const DEFAULT: Verification = Verification::NeverVerifyPreloadedImages;

#[test]
fn policies_say_whom_they_ask() {
    let listed: Arc<[String]> = ["r.io/app".to_owned(), "r.io/team/*".to_owned()].into();
    let listed = Verification::NeverVerifyAllowlistedImages(listed);
    let preloaded = |verification: &Verification, image: &str| ask(verification, image, false, None, &[]);
    for (verification, allowed) in [
        (Verification::Off, true),
        (Verification::NeverVerify, true),
        (DEFAULT, true),
        (Verification::AlwaysVerify, false),
    ] {
        assert_eq!(preloaded(&verification, "r.io/app:1") == ALLOWED, allowed, "{verification:?}");
        let pulled = ask(&verification, "r.io/app:1", true, None, &[]);
        assert_eq!(pulled == ALLOWED, allowed && verification != DEFAULT, "{verification:?}");
    }
    let digest = format!("r.io/app:1@sha256:{}", "0".repeat(64));
    for image in ["r.io/app", "r.io/app:1", &digest, "r.io/team/a", "r.io/team/b/c:2"] {
        assert_eq!(preloaded(&listed, image), ALLOWED, "{image}");
        assert_eq!(ask(&listed, image, true, None, &[]), ALLOWED, "pulled or not: {image}");
    }
    for image in ["r.io/app2", "r.io/team", "r.io/teams/a", "other.io/r.io/app"] {
        assert_eq!(preloaded(&listed, image), PROVE, "{image}");
    }
}

#[test]
fn an_image_of_a_service_account_is_for_its_pods() {
    let account = |uid: &str| {
        let source = AccountSource { uid: uid.to_owned(), ..AccountSource::default() };
        Credential::of_account("me", source)
    };
    let mine = record(Some(&account("1")));
    let asked = |credentials: &[Credential]| ask(&DEFAULT, "r.io/app:1", false, Some(&mine), credentials);
    assert_eq!(asked(&[account("1")]), USE);
    assert_eq!(asked(&[credential("hush", "a"), account("1")]), USE);
    assert_eq!(asked(&[account("2")]), PROVE, "one of the same name that was made anew, or another one");
    assert_eq!(asked(&[]), PROVE);
    assert!(opened_by_accounts(Some(&mine), "r.io/app:1"));
    for (other, image) in [(None, "r.io/app"), (Some(record(None)), "r.io/app"), (Some(mine), "r.io/other")] {
        assert!(!opened_by_accounts(other.as_ref(), image), "{image}");
    }
}

#[test]
fn an_image_of_a_secret_is_for_those_who_have_it() {
    let (mine, wrong) = (credential("hush", "a"), credential("guessed", "b"));
    let record = record(Some(&mine));
    let ask =
        |image: &str, credentials: &[Credential]| ask(&DEFAULT, image, false, Some(&record), credentials);
    assert_eq!(ask("r.io/app:1", std::slice::from_ref(&mine)), USE);
    assert_eq!(ask("r.io/app:1", &[]), PROVE);
    assert_eq!(ask("r.io/app:1", std::slice::from_ref(&wrong)), PROVE);
    assert_eq!(ask("r.io/app:1", &[wrong, mine.clone()]), USE);
    assert_eq!(ask("r.io/other:1", std::slice::from_ref(&mine)), PROVE, "another name of the same image");
    // The same content elsewhere, and another content in the same place.
    for known in [credential("hush", "elsewhere"), credential("new", "a")] {
        let AccessDecision::Use { why: Checked::RecordFound, add: Some(add) } =
            ask("r.io/app", std::slice::from_ref(&known))
        else {
            panic!("it is as good");
        };
        assert_eq!(Some(add), pull_secret(&known));
    }
    let node = Credential::for_tests("me", "hush", None);
    assert_eq!(ask("r.io/app", &[node]), PROVE, "the node's own were not what opened it");
}

#[test]
fn an_image_that_needed_no_secret_is_for_all() {
    let node = Credential::for_tests("me", "hush", None);
    for used in [None, Some(&node)] {
        assert_eq!(ask(&DEFAULT, "r.io/app:2", true, Some(&record(used)), &[]), USE);
        assert_eq!(ask(&Verification::AlwaysVerify, "r.io/app", false, Some(&record(used)), &[]), USE);
    }
}

#[test]
fn what_is_not_known_has_to_be_proven() {
    let unknown = merged(None, "id", "r.io/app", None, now()).unwrap();
    let mine = [credential("hush", "a")];
    assert_eq!(ask(&DEFAULT, "r.io/app", false, Some(&unknown), &mine), PROVE);
    assert_eq!(ask(&DEFAULT, "r.io/app", true, None, &mine), PROVE, "its pull has not been recorded");
    let unreadable = |credentials| {
        judge(
            &DEFAULT,
            &AccessQuestion { image: "r.io/app", intended: false, record: Err("corrupt"), credentials },
        )
    };
    assert_eq!(unreadable(Ok(&mine[..])), AccessDecision::Prove(Checked::Error));
    let record = record(Some(&mine[0]));
    let question = AccessQuestion {
        image: "r.io/app",
        intended: false,
        record: Ok(Some(&record)),
        credentials: Err("broken"),
    };
    assert_eq!(judge(&DEFAULT, &question), AccessDecision::Broken("broken".to_owned()));
}

#[test]
fn uses_do_not_grow_a_record_without_end() {
    let mine = credential("hush", "a");
    let mut known = record(Some(&mine));
    for number in 0..SECRETS_ADDED_MAX {
        let other = credential("hush", &number.to_string());
        known = merged(Some(known), "id", "r.io/app", Some(pulled_with(Some(&other))), now()).unwrap();
    }
    assert_eq!(ask(&DEFAULT, "r.io/app", false, Some(&known), &[credential("hush", "one-more")]), USE);
    assert_eq!(ask(&DEFAULT, "r.io/app", false, Some(&known), &[credential("new", "a")]), PROVE);
}
