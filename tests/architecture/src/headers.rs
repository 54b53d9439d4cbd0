//! Which actor receives and sends which message: the headers of the actor crates, `messages::CATALOGUE` and the addresses in
//! their sources agree.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{directories, files, has_word, literals, root, type_names};
use crate::tree::read;

/// The six lines that open an actor crate's `lib.rs`.
const HEADERS: [&str; 6] = ["Duty", "Receives", "Sends", "State (rebuilt from)", "On crash", "Never does"];
/// What actors stand on, and no actors.
const GROUND: [&str; 4] = ["supervision", "pod-rules", "pod-set", "pod-why"];
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

/// The receivers that a file of `messages` declares, with the messages of each.
fn declared(text: &str) -> Vec<(String, BTreeSet<String>)> {
    let rows = text.split("receives!(").skip(1).map(|rest| rest.split(");").next().unwrap_or_default());
    let row = |row: &str| {
        let receiver = literals(row).first().expect("a receiver has a name").clone();
        let (_, messages) = row.split_once(':').expect("its messages stand behind its name");
        let name = |path: &str| path.rsplit(':').next().unwrap_or_default().trim().to_owned();
        (receiver, messages.split(',').map(name).filter(|name| !name.is_empty()).collect())
    };
    rows.map(row).collect()
}

/// The receivers of an actor crate, with the messages of each.
fn receivers_of(actor: &str) -> Vec<(String, BTreeSet<String>)> {
    let path = root().join("messages/src").join(format!("{}.rs", actor.replace('-', "_")));
    std::fs::read_to_string(path).map(|text| declared(&text)).unwrap_or_default()
}

/// The names of all messages that some actor receives.
fn all_messages() -> BTreeSet<String> {
    let all: BTreeSet<String> = actor_crates()
        .into_keys()
        .flat_map(|name| receivers_of(&name))
        .flat_map(|(_, messages)| messages)
        .collect();
    assert!(all.len() > 40, "these are not all messages: {all:?}");
    all
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
    let mut wrong = Vec::new();
    for (name, text) in actor_crates() {
        let Ok(header) = header(&text) else { continue };
        let told: BTreeSet<String> = type_names(&header["Receives"]).into_iter().collect();
        let listed: BTreeSet<String> =
            receivers_of(&name).into_iter().flat_map(|(_, messages)| messages).collect();
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
    let all = all_messages();
    let known = |names: &mut dyn Iterator<Item = String>| -> BTreeSet<String> {
        names.filter(|name| all.contains(name)).collect()
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
fn receivers_are_found_with_their_messages() {
    let text = "receives!(\"Pool\": PodObserved, facts::ResendPod,\n GetPods);\nmod worker {\n    receives!(\n\"Worker\": SyncPod\n);}";
    let messages = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let expected = [
        ("Pool".to_owned(), messages(&["PodObserved", "ResendPod", "GetPods"])),
        ("Worker".to_owned(), messages(&["SyncPod"])),
    ];
    assert_eq!(declared(text), expected);
}

#[test]
fn addresses_are_found_with_their_messages() {
    let code = "a: Address<ResendNode>, b: Vec<AskPort<Me, messages::pleg::GetHeldPods>>, c: Address<M>";
    assert_eq!(addressed(code), BTreeSet::from(["GetHeldPods".to_owned(), "ResendNode".to_owned()]));
}

/// That the catalogue is what a running node receives is shown by `node::tree`.
#[test]
fn every_receiver_is_in_the_catalogue() {
    let mut receivers: Vec<String> = files("messages/src")
        .iter()
        .filter(|file| !file.path.ends_with("/delivery.rs"))
        .flat_map(|file| {
            let module = file.path.rsplit('/').next().unwrap().trim_end_matches(".rs").to_owned();
            vec![module; declared(&file.text).len()]
        })
        .collect();
    let lib = read("messages/src/lib.rs");
    let (_, rows) = lib.split_once("pub const CATALOGUE:").expect("there is a catalogue");
    let (rows, _) = rows.split_once("];").expect("it ends");
    let mut listed: Vec<String> = rows
        .lines()
        .filter_map(|line| line.trim().strip_prefix('(')?.strip_suffix("),")?.split_once("::RECEIVER, "))
        .map(|(receiver, receives)| {
            assert_eq!(receives, format!("{receiver}::RECEIVES"), "a row names two receivers");
            receiver.split("::").next().unwrap_or_default().to_owned()
        })
        .collect();
    receivers.sort();
    listed.sort();
    assert_eq!(
        receivers, listed,
        "left: the files of `receives!` in messages; right: those of the catalogue"
    );
}

#[test]
fn every_message_of_the_catalogue_has_a_handler_in_its_actors_crate() {
    let mut missing = Vec::new();
    for name in actor_crates().into_keys() {
        let code: String = files(&format!("actors/{name}/src")).iter().map(|file| file.code()).collect();
        for (receiver, messages) in receivers_of(&name) {
            let unnamed = messages.into_iter().filter(|message| !has_word(&code, message));
            missing.extend(unnamed.map(|message| format!("{receiver}: {message}")));
        }
    }
    assert!(missing.is_empty(), "listed, and not even named by the receiver's crate: {missing:#?}");
}
