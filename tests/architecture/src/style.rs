//! House rules that a reader of the source can check.

use crate::source::{File, files, has_word};

/// No file is longer than this many lines; 500 is the aim.
const LINES_MAX: usize = 600;
const LINES_AIM: usize = 500;
/// Directories in which one seed must replay everything.
const DETERMINISTIC: &[&str] = &["messages", "actors"];
/// Locks between an actor and its own effects, which never leave the actor. This list only shrinks.
const LOCKS: &[&str] = &["actors/pod-worker/src/execute/progress.rs"];
/// The directories of everything that is shipped.
const SHIPPED: &[&str] = &["messages", "actors", "runtime-bridge", "bin"];

pub fn all(under: &[&str]) -> Vec<File> {
    under.iter().flat_map(|directory| files(directory)).collect()
}

/// `path:line: line` of every line of code outside tests that the rule forbids.
fn offenders(under: &[&str], forbidden: impl Fn(&File, &str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for file in all(under) {
        let code = file.code();
        for (number, line) in code.lines().enumerate().filter(|(_, line)| forbidden(&file, line)) {
            found.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
        }
    }
    found
}

#[test]
fn files_are_short() {
    let mut long = Vec::new();
    for file in all(&["messages", "actors", "runtime-bridge", "bin", "tests"]) {
        let lines = file.text.lines().count();
        if lines > LINES_AIM {
            println!("longer than the aim of {LINES_AIM}: {} with {lines} lines", file.path);
        }
        if lines > LINES_MAX {
            long.push(format!("{} has {lines} lines", file.path));
        }
    }
    assert!(long.is_empty(), "split by concept: {long:#?}");
}

#[test]
fn nothing_is_randomly_ordered_where_a_seed_must_replay() {
    let found = offenders(DETERMINISTIC, |_, line| {
        has_word(line, "HashMap") || has_word(line, "HashSet") || has_word(line, "RandomState")
    });
    assert!(found.is_empty(), "use BTreeMap and BTreeSet: {found:#?}");
    let found = offenders(DETERMINISTIC, |_, line| line.contains("rand::") || has_word(line, "getrandom"));
    assert!(found.is_empty(), "randomness comes from the bridge's clock: {found:#?}");
}

#[test]
fn what_waits_is_woken_in_order() {
    let found = offenders(SHIPPED, |file, line| {
        let tokios =
            line.contains("tokio::sync::watch") || line.contains("sync::{") && has_word(line, "watch");
        tokios && file.path != "runtime-bridge/io/src/watch.rs"
    });
    assert!(found.is_empty(), "Tokio wakes in an order drawn at random: use bridge_io::watch: {found:#?}");
}

#[test]
fn time_is_the_clock_of_the_sandbox_where_a_seed_must_replay() {
    let found = offenders(DETERMINISTIC, |_, line| {
        let std_instant = line.contains("std::time::") && has_word(line, "Instant");
        std_instant
            || has_word(line, "SystemTime")
            || line.contains("Timestamp::now")
            || line.contains("Zoned::now")
    });
    assert!(found.is_empty(), "use tokio::time::Instant and the bridge's clock: {found:#?}");
}

#[test]
fn every_select_is_biased() {
    let mut found = Vec::new();
    for file in all(SHIPPED) {
        let code = file.code();
        for (at, _) in code.match_indices("select!") {
            let body = code[at + "select!".len()..].trim_start().trim_start_matches(['{', '(']).trim_start();
            if !body.starts_with("biased") {
                found.push(format!("{}:{}", file.path, code[..at].lines().count() + 1));
            }
        }
    }
    assert!(found.is_empty(), "a select that is not biased takes a random branch: {found:#?}");
}

#[test]
fn documents_of_the_companion_are_written_in_one_place() {
    let found = offenders(&["bin/understudy/src"], |file, line| {
        let writes = line.contains("serde_json::to_string") || line.contains("serde_json::to_writer");
        writes && file.path != "bin/understudy/src/json.rs"
    });
    assert!(found.is_empty(), "there they have no effects on a terminal: {found:#?}");
}

#[test]
fn actors_share_no_locks_and_no_statics() {
    let found = offenders(&["actors"], |file, line| {
        let shared =
            line.contains("Arc<Mutex") || line.contains("Arc<RwLock") || line.contains("Arc<parking_lot");
        let global =
            has_word(line, "static") && line.contains(": ") && line.trim_start().starts_with("static")
                || has_word(line, "thread_local");
        let known = LOCKS.contains(&file.path.as_str());
        !file.path.starts_with("actors/supervision/") && !known && (shared || global)
    });
    assert!(found.is_empty(), "state is an actor's own; reads travel as Arc snapshots: {found:#?}");
}

#[test]
fn actors_start_no_tasks_and_block_on_nothing() {
    let found = offenders(&["actors"], |file, line| {
        let spawns = line.contains("tokio::spawn(")
            || line.contains("spawn_blocking")
            || line.contains("spawn_local(");
        let blocks =
            line.contains("thread::sleep") || line.contains("block_on(") || line.contains("std::fs::");
        !file.path.starts_with("actors/supervision/") && (spawns || blocks)
    });
    assert!(found.is_empty(), "work belongs to an incarnation (Ctx::effect) or to the bridge: {found:#?}");
}

#[test]
fn only_supervision_starts_actors_and_calls_plain_addresses() {
    let found = offenders(&["actors", "bin/kubelet/src"], |file, line| {
        let plain = [".do_send(", ".try_send(", "Supervisor::start", "start_in_arbiter", "SystemService"];
        !file.path.starts_with("actors/supervision/") && plain.iter().any(|call| line.contains(call))
    });
    assert!(found.is_empty(), "use supervision::Address and Tree: {found:#?}");
}

/// Names of whole outside worlds, of which an actor gets only the ports that it may use; and the name under which the
/// process itself asks, which is no edge of the tree.
const WHOLE: &[&str] = &["ApiClient", "Outside"];

#[test]
fn actors_are_handed_ports_and_not_the_whole_of_a_world() {
    let found = offenders(&["actors"], |file, line| {
        let whole = WHOLE.iter().any(|name| has_word(line, name));
        let runtime =
            line.contains("bridge_cri") && (has_word(line, "Operations") || has_word(line, "Runtime"));
        !file.path.starts_with("actors/supervision/") && (whole || runtime)
    });
    assert!(found.is_empty(), "name one of bridge_cri::ports or bridge_kube::ports: {found:#?}");
}

#[test]
fn nothing_shipped_unwraps() {
    let found = offenders(SHIPPED, |_, line| {
        line.contains(".unwrap()") || line.contains("todo!") || line.contains("unimplemented!")
    });
    assert!(found.is_empty(), "`expect` states the invariant: {found:#?}");
}

/// Words that stand for a subject without naming it.
const NAMELESS: &[&str] =
    &["who", "whom", "whoever", "somebody", "someone", "nobody", "everybody", "anybody"];

/// The comment on a line, in lower case.
fn comment(line: &str) -> Option<String> {
    let begins = if line.trim_start().starts_with("//") { line.find("//") } else { line.find(" // ") };
    begins.map(|at| line[at..].to_lowercase())
}

fn names_no_subject(line: &str) -> bool {
    comment(line).is_some_and(|comment| {
        NAMELESS.iter().any(|word| has_word(&comment, word)) || comment.contains("sees to it")
    })
}

#[test]
fn comments_name_their_subjects() {
    let mut found = Vec::new();
    for file in all(&["messages", "actors", "runtime-bridge", "bin", "tests"]) {
        let lines = file.text.lines().enumerate().filter(|(_, line)| names_no_subject(line));
        found.extend(lines.map(|(number, line)| format!("{}:{}: {}", file.path, number + 1, line.trim())));
    }
    assert!(found.is_empty(), "name the actor, the caller, the pod or the user: {found:#?}");
    let with = |comment: &str| format!("say(\"who?\"); {comment}");
    assert!(names_no_subject(&with(&["//", "Nobody asks."].join(" "))), "a comment after code is read");
    assert!(!names_no_subject(&with("// A greeting.")), "a string is no comment");
}
