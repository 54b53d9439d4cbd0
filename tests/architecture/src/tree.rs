//! README, ARCHITECTURE and CONTRIBUTING describe the directories as they are.

use std::collections::BTreeSet;
use std::path::Path;

use crate::source::{directories, root};

/// The text of a file, by its path from the root.
pub fn read(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).unwrap_or_else(|e| panic!("{page}: {e}"))
}

/// Whether there is a file anywhere below a directory, since git keeps no empty directories.
fn holds_a_file(directory: &Path) -> bool {
    std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .any(|path| if path.is_dir() { holds_a_file(&path) } else { true })
}

/// The directories of the project, as `actors`.
fn top() -> BTreeSet<String> {
    let ours = |name: &String| !name.starts_with('.') && name != "target" && holds_a_file(&root().join(name));
    directories("").into_iter().filter(ours).collect()
}

/// The crates, as `actors/pleg`.
fn crates() -> BTreeSet<String> {
    let below = |of: &String| -> Vec<String> {
        directories(of).into_iter().map(|name| format!("{of}/{name}")).collect()
    };
    let top = top();
    let all = top.iter().cloned().chain(top.iter().flat_map(below));
    all.filter(|directory| root().join(directory).join("Cargo.toml").is_file()).collect()
}

/// The part of a page below this heading.
fn section(page: &str, heading: &str) -> String {
    let text = read(page);
    let (_, rest) = text.split_once(heading).unwrap_or_else(|| panic!("{page} has no {heading:?}"));
    rest.split("\n## ").next().expect("a text has a first part").to_owned()
}

/// The directories in ARCHITECTURE's block: each is at the margin, or two columns in, below the one above it.
fn drawn(block: &str) -> BTreeSet<String> {
    let mut drawn = BTreeSet::new();
    let mut above = "";
    for line in block.lines() {
        let name = line.split_whitespace().next().and_then(|word| word.strip_suffix('/'));
        let Some(name) = name else { continue };
        match line.len() - line.trim_start().len() {
            0 => {
                above = name;
                drawn.insert(name.to_owned());
            }
            2 => {
                drawn.insert(format!("{above}/{name}"));
            }
            // A description that continues.
            _ => {}
        }
    }
    drawn
}

#[test]
fn architecture_draws_the_tree_as_it_is() {
    let section = section("ARCHITECTURE.md", "\n## The tree\n");
    let block = section.split("```").nth(1).expect("the tree stands in a block");
    let drawn = drawn(block);
    let gone: Vec<_> = drawn.iter().filter(|path| !holds_a_file(&root().join(path))).collect();
    assert!(gone.is_empty(), "these are drawn and are not there: {gone:?}");
    let crates = crates();
    assert!(crates.len() > 25, "these are not all crates: {crates:?}");
    let missing: Vec<_> = crates.iter().filter(|path| !drawn.contains(*path)).collect();
    assert!(missing.is_empty(), "these crates are not drawn: {missing:?}");
    let below = |name: &String| drawn.iter().any(|path| path.starts_with(&format!("{name}/")));
    let top = top();
    let missing: Vec<_> = top.iter().filter(|name| !drawn.contains(*name) && !below(name)).collect();
    assert!(missing.is_empty(), "these directories are not drawn: {missing:?}");
}

#[test]
fn readme_lists_the_directories_that_are_there() {
    let section = section("README.md", "\n## The tree\n");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: BTreeSet<String> =
        rows.filter_map(|row| row.split_once("/`")).map(|(name, _)| name.to_owned()).collect();
    assert_eq!(listed, top());
}

/// The paths of the project that a page names in backticks, without patterns such as `actors/<name>`.
fn paths(text: &str, top: &BTreeSet<String>) -> BTreeSet<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    let ours = |word: &&str| word.split_once('/').is_some_and(|(first, _)| top.contains(first));
    let plain = |word: &&str| !word.contains(['<', '*', ' ']);
    quoted.filter(ours).filter(plain).map(|word| word.trim_end_matches('/').to_owned()).collect()
}

#[test]
fn contributing_names_places_that_are_there() {
    let paths = paths(&read("CONTRIBUTING.md"), &top());
    assert!(paths.len() > 20, "it names too few places: {paths:?}");
    let gone: Vec<_> = paths.iter().filter(|path| !root().join(path).exists()).collect();
    assert!(gone.is_empty(), "these are not there: {gone:?}");
}

#[test]
fn a_tree_that_is_another_would_be_found() {
    let block = "messages/   every message\nactors/\n  pleg/     what the runtime holds\n            in/ words\nbin/kubelet/   it\n";
    let names: Vec<String> = drawn(block).into_iter().collect();
    assert_eq!(names, ["actors", "actors/pleg", "bin/kubelet", "messages"]);
    let top = BTreeSet::from(["actors".to_owned()]);
    let found = paths("see `actors/pleg/`, `actors/<name>/src`, `other/x`, `actors`", &top);
    assert_eq!(found, BTreeSet::from(["actors/pleg".to_owned()]));
}
