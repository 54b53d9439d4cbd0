//! Which actor receives and sends which message: the headers of the actor crates, `messages::CATALOGUE` and the addresses in
//! their sources agree.

use std::collections::{BTreeMap, BTreeSet};

use messages::CATALOGUE;

use crate::source::{directories, files, has_word, literals, root, type_names};

/// The six lines that open an actor crate's `lib.rs`.
const HEADERS: [&str; 6] = ["Duty", "Receives", "Sends", "State (rebuilt from)", "On crash", "Never does"];
/// What actors stand on, and no actors.
const GROUND: [&str; 3] = ["supervision", "pod-rules", "pod-set"];
/// Crates that are still empty. This list only shrinks.
const SKELETONS: &[&str] = &[];

fn is_skeleton(text: &str) -> bool {
    !text.lines().any(|line| !line.trim().is_empty() && !line.starts_with("//"))
}

/// The existing actor crates, with their `lib.rs`.
fn actor_crates() -> BTreeMap<String, String> {
    let names = directories("actors").into_iter().filter(|name| !GROUND.contains(&name.as_str()));
    let read = |name: String| {
        let path = root().join("actors").join(&name).join("src/lib.rs");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        (name, text)
    };
    names.map(read).filter(|(_, text)| !is_skeleton(text)).collect()
}

/// The six lines of a crate's documentation by header, with continuation lines joined.
fn header(text: &str) -> Result<BTreeMap<&'static str, String>, String> {
    let mut found: Vec<(&'static str, String)> = Vec::new();
    for line in text.lines().map_while(|line| line.strip_prefix("//!")) {
        let line = line.trim();
        if line.is_empty() {
            break;
        }
        let opens = HEADERS
            .into_iter()
            .find_map(|header| Some((header, line.strip_prefix(header)?.strip_prefix(':')?.trim_start())));
        match (opens, found.last_mut()) {
            (Some((header, rest)), _) => found.push((header, rest.to_owned())),
            (None, Some((_, text))) => text.push_str(&format!(" {line}")),
            (None, None) => return Err("opens with something else".to_owned()),
        }
    }
    let order: Vec<_> = found.iter().map(|(header, _)| *header).collect();
    if order != HEADERS {
        return Err(format!("has {order:?}"));
    }
    if let Some((empty, _)) = found.iter().find(|(_, text)| text.is_empty()) {
        return Err(format!("says nothing after {empty}"));
    }
    Ok(found.into_iter().collect())
}

/// The messages for which a crate's code has addresses, `Address<M>` or `AskPort<From, M>`, as far as these are concrete.
fn addressed(code: &str) -> BTreeSet<String> {
    let types = ["Address<", "AskPort<"].into_iter().flat_map(|address| code.split(address).skip(1));
    let message = |rest: &str| rest.split('>').next().and_then(|types| type_names(types).pop());
    types.filter_map(message).collect()
}

/// The receivers that a file of `messages` declares.
fn receivers_of(module: &str) -> Vec<String> {
    let path = root().join("messages/src").join(format!("{module}.rs"));
    let Ok(text) = std::fs::read_to_string(path) else { return Vec::new() };
    let declared = text.split("receives!(").skip(1);
    declared.map(|rest| literals(rest).first().expect("a receiver has a name").clone()).collect()
}

#[test]
fn empty_crates_are_known() {
    let mut empty = BTreeSet::new();
    for parent in ["actors", "bin"] {
        for name in directories(parent) {
            let text = std::fs::read_to_string(root().join(parent).join(&name).join("src/lib.rs"));
            if text.is_ok_and(|text| is_skeleton(&text)) {
                empty.insert(name);
            }
        }
    }
    let known: BTreeSet<_> = SKELETONS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(empty, known, "left: empty crates; right: those that may still be");
}

#[test]
fn every_actor_crate_opens_with_the_six_lines() {
    let crates = actor_crates();
    assert!(!crates.is_empty());
    let wrong: Vec<_> = crates
        .iter()
        .filter_map(|(name, text)| header(text).err().map(|why| format!("actors/{name}/src/lib.rs {why}")))
        .collect();
    assert!(wrong.is_empty(), "six lines {HEADERS:?} are expected: {wrong:#?}");
}

#[test]
fn the_headers_name_exactly_what_the_catalogue_lists() {
    let catalogue: BTreeMap<&str, &[&str]> = CATALOGUE.iter().copied().collect();
    let mut wrong = Vec::new();
    for (name, text) in actor_crates() {
        let Ok(header) = header(&text) else { continue };
        let told: BTreeSet<String> = type_names(&header["Receives"]).into_iter().collect();
        let receivers = receivers_of(&name.replace('-', "_"));
        let listed: BTreeSet<String> = receivers
            .iter()
            .flat_map(|receiver| catalogue.get(receiver.as_str()).copied().unwrap_or_default())
            .map(|name| (*name).to_owned())
            .collect();
        let not_told: Vec<_> = listed.difference(&told).collect();
        let not_listed: Vec<_> = told.difference(&listed).collect();
        if !not_told.is_empty() || !not_listed.is_empty() {
            wrong
                .push(format!("{name}: not in its header {not_told:?}, not in the catalogue {not_listed:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_headers_name_exactly_what_the_actors_have_addresses_for() {
    let all: BTreeSet<&str> = CATALOGUE.iter().flat_map(|(_, messages)| messages.iter().copied()).collect();
    let known = |names: &mut dyn Iterator<Item = String>| -> BTreeSet<String> {
        names.filter(|name| all.contains(name.as_str())).collect()
    };
    let mut wrong = Vec::new();
    for (name, text) in actor_crates() {
        let Ok(header) = header(&text) else { continue };
        let told = known(&mut type_names(&header["Sends"]).into_iter());
        let code: String = files(&format!("actors/{name}/src")).iter().map(|file| file.code()).collect();
        let sent = known(&mut addressed(&code).into_iter());
        if told != sent {
            let (not_told, not_sent) = (sent.difference(&told), told.difference(&sent));
            let (not_told, not_sent): (Vec<_>, Vec<_>) = (not_told.collect(), not_sent.collect());
            wrong.push(format!("{name}: not in its header {not_told:?}, no address for {not_sent:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn addresses_are_found_with_their_messages() {
    let code = "a: Address<ResendNode>, b: Vec<AskPort<Me, messages::pleg::GetHeldPods>>, c: Address<M>";
    assert_eq!(addressed(code), BTreeSet::from(["GetHeldPods".to_owned(), "ResendNode".to_owned()]));
}

#[test]
fn every_receiver_is_in_the_catalogue() {
    let declared: BTreeSet<String> = files("messages/src")
        .iter()
        .filter(|file| !file.path.ends_with("/delivery.rs"))
        .flat_map(|file| receivers_of(file.path.rsplit('/').next().unwrap().trim_end_matches(".rs")))
        .collect();
    let listed: BTreeSet<String> = CATALOGUE.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(declared, listed, "left: `receives!` in messages; right: messages::CATALOGUE");
    assert_eq!(listed.len(), CATALOGUE.len(), "a receiver is listed twice");
}

#[test]
fn every_message_of_the_catalogue_has_a_handler_in_its_actors_crate() {
    let catalogue: BTreeMap<&str, &[&str]> = CATALOGUE.iter().copied().collect();
    let mut missing = Vec::new();
    for name in actor_crates().into_keys() {
        let code: String = files(&format!("actors/{name}/src")).iter().map(|file| file.code()).collect();
        for receiver in receivers_of(&name.replace('-', "_")) {
            for message in catalogue.get(receiver.as_str()).copied().unwrap_or_default() {
                if !has_word(&code, message) {
                    missing.push(format!("{receiver}: {message}"));
                }
            }
        }
    }
    assert!(missing.is_empty(), "listed, and not even named by the receiver's crate: {missing:#?}");
}
