//! Imports form no circle: within a crate, code that two top-level modules need is in a third one below them, so that a
//! reader may begin anywhere and never comes back to where the reading began.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{File, directories, files};

/// Known circles, by crate: the modules of each, sorted, and the reason. This list only shrinks.
const KNOWN: &[(&str, &[&str], &str)] = &[
    (
        "actors/eviction-manager",
        &["actor", "local_storage"],
        "one actor, its handlers in two files by what they are for",
    ),
    (
        "actors/supervision",
        &[
            "address", "ask", "cell", "context", "driver", "effects", "envelope", "events", "faults", "held",
            "mailbox", "pump", "report", "streams", "tree",
        ],
        "a context has a tree whose seats have mailboxes of handlers that are given a context",
    ),
    (
        "messages",
        &["facts", "runtime"],
        "what the runtime holds of a pod names the pod's source, and facts hold such pods",
    ),
    (
        "runtime-bridge/cri",
        &["in_flight", "operations"],
        "calls in flight end with the outcome of the operations that they make up",
    ),
    (
        "runtime-bridge/node",
        &["cgroups", "host", "mounts"],
        "the fakes of directories and of mounts share a disk, and directories go only when no mount is below them",
    ),
];

/// Which top-level modules of a crate import which.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// The paths of a use tree that begins at `tree`: `a::{b, c::d}` is `a::b` and `a::c::d`. A plain path is itself.
fn paths(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim_start();
    if let Some(group) = tree.strip_prefix('{') {
        return members(group).into_iter().flat_map(paths).collect();
    }
    let end = tree.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(tree.len());
    let (segment, rest) = (tree[..end].to_owned(), tree[end..].trim_start());
    if let Some(rest) = rest.strip_prefix("::") {
        let below = paths(rest).into_iter();
        return below.map(|path| [vec![segment.clone()], path].concat()).collect();
    }
    // An alias stands for the last segment of its path.
    let alias = rest.strip_prefix("as ").map(|name| name.trim_start());
    let name = |text: &str| text.split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned);
    vec![[Some(segment), alias.and_then(name)].into_iter().flatten().collect()]
}

/// The members of a group whose brace has been opened.
fn members(group: &str) -> Vec<&str> {
    let (mut depth, mut from, mut found) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                found.push(&group[from..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&group[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    found.retain(|member| !member.trim().is_empty());
    found
}

/// The modules on the way from a crate's root to this file.
fn module(file: &File, src: &str) -> Vec<String> {
    let path = file.path.strip_prefix(src).expect("it lies there").trim_start_matches('/');
    let mut module: Vec<String> = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        module.pop();
    }
    module
}

/// The paths that the code names from the crate's root: those that begin with `crate` or reach the root by `super`.
fn named(code: &str, module: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (word, ups) in [("crate::", module.len()), ("super::", 1)] {
        for (at, _) in code.match_indices(word) {
            let before = &code[..at];
            let inside = before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
            if inside {
                continue;
            }
            let (mut rest, mut ups) = (&code[at + word.len()..], ups);
            while let Some(further) = rest.strip_prefix("super::") {
                (rest, ups) = (further, ups + 1);
            }
            let base = module.get(..module.len().saturating_sub(ups)).unwrap_or_default();
            found.extend(paths(rest).into_iter().map(|path| [base.to_vec(), path].concat()));
        }
    }
    found
}

/// Whether a file names an actor only as the asker of its ports; nothing else of that actor is used there.
fn is_asker(name: &str, code: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let words = code.split(|c| !part(c)).filter(|word| *word == name).count();
    let ports = code.matches(&format!("AskPort<{name},")).count();
    // The import is one word more.
    ports > 0 && words == ports + 1
}

/// The imports of a crate. A name that its root takes from a module is that module's.
fn imports(src: &str) -> Graph {
    let files = files(src);
    let tops: BTreeSet<String> =
        files.iter().filter_map(|file| module(file, src).into_iter().next()).collect();
    let mut taken: BTreeMap<String, String> = BTreeMap::new();
    for root in files.iter().filter(|file| module(file, src).is_empty()) {
        let code = root.code();
        for import in code.split("use ").skip(1) {
            let import = import.trim_start().trim_start_matches("self::").trim_start_matches("crate::");
            for path in paths(import) {
                if let (Some(first), Some(last)) = (path.first(), path.last())
                    && tops.contains(first)
                {
                    taken.insert(last.clone(), first.clone());
                }
            }
        }
    }
    let mut graph = Graph::new();
    for file in &files {
        let module = module(file, src);
        let Some(from) = module.first() else { continue };
        let code = file.code();
        for path in named(&code, &module) {
            let Some(name) = path.first() else { continue };
            if path.last().is_some_and(|name| is_asker(name, &code)) {
                continue;
            }
            let to = if tops.contains(name) { Some(name) } else { taken.get(name) };
            if let Some(to) = to.filter(|to| *to != from) {
                graph.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    graph
}

/// The modules that can be reached from one.
fn reached(graph: &Graph, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from.to_owned()];
    while let Some(at) = open.pop() {
        for next in graph.get(&at).into_iter().flatten() {
            if reached.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    reached
}

/// The sets of modules each of which leads to every other and back, sorted.
fn circles(graph: &Graph) -> Vec<Vec<String>> {
    let reaches: BTreeMap<&String, BTreeSet<String>> =
        graph.keys().map(|from| (from, reached(graph, from))).collect();
    let around = |from: &String| -> Vec<String> {
        let mutual = |to: &&String| reaches.get(to).is_some_and(|back| back.contains(from));
        reaches[from].iter().filter(mutual).cloned().collect()
    };
    let found: BTreeSet<Vec<String>> = graph.keys().map(around).filter(|circle| !circle.is_empty()).collect();
    found.into_iter().collect()
}

/// The workspace's crates that are not tests.
fn crates() -> Vec<String> {
    let below = ["actors", "runtime-bridge", "bin"].into_iter();
    let below = below.flat_map(|of| directories(of).into_iter().map(move |name| format!("{of}/{name}")));
    let crates = below.chain(["messages".to_owned(), "tests/testkit".to_owned()]);
    crates.filter(|directory| crate::source::root().join(directory).join("src/lib.rs").is_file()).collect()
}

#[test]
fn imports_form_no_circle() {
    let crates = crates();
    assert!(crates.len() > 25, "these are not all crates: {crates:?}");
    let client = imports("runtime-bridge/kube/src");
    assert!(client["connect"].contains("credentials"), "imports are not seen: {client:#?}");
    let mut found = BTreeSet::new();
    for directory in crates {
        let graph = imports(&format!("{directory}/src"));
        found.extend(circles(&graph).into_iter().map(|circle| (directory.clone(), circle)));
    }
    let known: BTreeSet<(String, Vec<String>)> = KNOWN
        .iter()
        .map(|(directory, circle, _)| {
            ((*directory).to_owned(), circle.iter().map(|module| (*module).to_owned()).collect())
        })
        .collect();
    let new: Vec<_> = found.difference(&known).collect();
    assert!(new.is_empty(), "what both need belongs in a third module below them: {new:#?}");
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(gone.is_empty(), "KNOWN names circles that are no more: {gone:#?}");
}

#[test]
fn a_circle_of_imports_would_be_found() {
    let text = |path: Vec<Vec<String>>| -> Vec<String> { path.iter().map(|path| path.join("::")).collect() };
    assert_eq!(text(paths("{a, b::{c, d as e}, f::*};")), ["a", "b::c", "b::d::e", "f::"]);
    let at = |way: &[&str]| way.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let code = "use super::super::{x, y::Z};\nuse crate::w;\nfn f() { super::g(); $crate::h() }";
    assert_eq!(text(named(code, &at(&["a", "b"]))), ["w", "h", "x", "y::Z", "a::g"]);
    assert!(is_asker("A", "use crate::a::A;\nfn f(port: AskPort<A, M>) {}"));
    assert!(!is_asker("A", "use crate::a::A;\nfn f(port: AskPort<A, M>) -> A {}"), "it is used, too");
    let graph = |edges: &[(&str, &str)]| {
        let mut graph = Graph::new();
        for (from, to) in edges {
            graph.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        graph
    };
    let circle = graph(&[("a", "b"), ("b", "c"), ("c", "b"), ("d", "a"), ("c", "e")]);
    assert_eq!(circles(&circle), [at(&["b", "c"])]);
    assert!(circles(&graph(&[("a", "b"), ("a", "c"), ("b", "c")])).is_empty());
}
