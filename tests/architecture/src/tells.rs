//! What becomes of a message that a mailbox refuses, or that is lost after it was taken.

use crate::style::all;

/// Statements of the code that throw away what a `tell` gives back.
fn careless_tells(code: &str) -> Vec<&str> {
    let statements =
        code.split("let _").skip(1).map(|rest| rest.split_once(';').map_or(rest, |(one, _)| one));
    statements.filter(|statement| statement.contains(".tell(")).collect()
}

#[test]
fn a_refused_tell_is_told_again_or_asked_for_again_or_may_be_lost() {
    let mut found = Vec::new();
    for file in all(&["actors", "bin"]) {
        // Where `tell_level` and `tell_or_count` are.
        if file.path == "actors/supervision/src/address.rs" {
            continue;
        }
        let code = file.code();
        found
            .extend(careless_tells(&code).iter().map(|statement| format!("{}: let _{statement}", file.path)));
    }
    assert!(found.is_empty(), "use what `tell` gives back, or `tell_level` or `tell_or_count`: {found:#?}");
    assert_eq!(careless_tells("let _ = a\n.tell(B);\nlet _ = c();\nif a.tell(B).is_err() {}").len(), 1);
}

/// What actors tell by `tell_level`, as it begins, and why it need not be a `Level` or a set with a `Teller`. This list only
/// shrinks.
const TOLD_ONCE: &[(&str, &str)] = &[
    ("Resend", "a digest or the fact itself comes in a minute, whether it is asked for or not"),
    ("PodTouched", "a relist of Pleg's looks at every pod"),
    ("EvictPod", "the sender says it again until the pod has ended"),
    (
        "PodObjectsChanged",
        "what volumes show is looked over every minute; a volume that waits for an object is tried again after 122 s at most, a \
         container after 15 s",
    ),
    (
        "RuntimeObserved(health",
        "the age of the runtime's newest answer is told at every check, and never again as it was",
    ),
    ("fact", "PodWorkerPool hands on to its workers what Pleg, NodeStatus and ConfigManager repeat"),
    ("message", "PodWorkerPool hands on to one worker what the worker asks for when it begins"),
];

/// Where `Level` and `Teller` are, and where addresses are made.
const BELOW: [&str; 2] = ["actors/pod-set/", "actors/supervision/"];

/// What is told by `tell_level`, without spaces.
fn told_once(code: &str) -> Vec<String> {
    let told =
        code.split(".tell_level(").skip(1).map(|rest| rest.split_once(';').map_or(rest, |(one, _)| one));
    told.map(|one| one.split_whitespace().collect()).collect()
}

#[test]
fn facts_are_told_until_they_are_known() {
    let mut told = Vec::new();
    for file in all(&["actors", "bin"]) {
        if !BELOW.iter().any(|below| file.path.starts_with(below)) {
            told.extend(told_once(&file.code()).into_iter().map(|one| (file.path.clone(), one)));
        }
    }
    let is = |one: &str, begins: &str| one.starts_with(begins);
    let found: Vec<_> =
        told.iter().filter(|(_, one)| !TOLD_ONCE.iter().any(|(begins, _)| is(one, begins))).collect();
    assert!(found.is_empty(), "a fact is told by a `Level`, one of many pods by a `Teller`: {found:#?}");
    let unused: Vec<_> =
        TOLD_ONCE.iter().filter(|(begins, _)| !told.iter().any(|(_, one)| is(one, begins))).collect();
    assert!(unused.is_empty(), "this is told by no actor any more: {unused:#?}");
    assert_eq!(told_once("a.tell_level(\n  B { c });\nd.tell(E);"), ["B{c})"]);
}
