//! The lists by which `tests/env/run-tests` runs the suites say what there is.

use std::collections::BTreeSet;

use crate::source::{files, root};
use crate::tree::read;

/// The suites with a main function of their own, by the manifest.
fn programs(manifest: &str) -> BTreeSet<String> {
    let tests = manifest.split("[[test]]").skip(1).filter(|test| test.contains("harness = false"));
    tests.map(|test| test.split('"').nth(1).expect("a test has a name").to_owned()).collect()
}

/// The words of the arrays of a script with these names.
fn listed(script: &str, names: &[&str]) -> BTreeSet<String> {
    let arrays = script.lines().filter_map(|line| line.split_once("=("));
    let arrays = arrays.filter(|(name, _)| names.contains(name));
    let words = arrays.filter_map(|(_, rest)| rest.strip_suffix(')'));
    words.flat_map(str::split_whitespace).map(str::to_owned).collect()
}

/// One that is not listed would run under cargo-nextest, which takes skipped cases as passed.
#[test]
fn suites_with_a_main_function_are_run_as_such() {
    let script = read("tests/env/run-tests");
    let all = listed(&script, &["plain_suites", "runtime_suites", "cluster_suites"]);
    assert_eq!(all, programs(&read("tests/suites/Cargo.toml")));
    assert!(all.len() > 5, "{all:?}");
    let members = listed(&script, &["member_suites"]);
    assert!(!members.is_empty() && members.is_subset(&listed(&script, &["cluster_suites"])), "{members:?}");
}

/// A test that is ignored is not seen in the numbers of a run.
#[test]
fn no_test_is_ignored() {
    let mark = ["#[", "ignore"].concat();
    let files = ["messages", "actors", "runtime-bridge", "bin", "tests"].iter().flat_map(|top| files(top));
    let found: Vec<String> = files.filter(|file| file.text.contains(&mark)).map(|file| file.path).collect();
    assert!(found.is_empty(), "{found:?}");
}

/// All sources of a suite, with the ones beside its directory.
fn sources(suite: &str) -> String {
    fn gather(path: &std::path::Path, into: &mut String) {
        match std::fs::read_dir(path) {
            Ok(entries) => entries.for_each(|entry| gather(&entry.unwrap().path(), into)),
            Err(_) => into.push_str(&std::fs::read_to_string(path).unwrap_or_default()),
        }
    }
    let mut text = String::new();
    for path in [suite.to_owned(), format!("{suite}.rs")] {
        gather(&root().join("tests/suites/tests").join(path), &mut text);
    }
    text
}

#[test]
fn invariants_are_tests_that_are_there() {
    let text = read("tests/env/invariants");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(lines.len() > 10, "{lines:?}");
    let is_there = |line: &str| {
        let (suite, name) = line.split_once(' ').expect("a suite and a test");
        let sources = sources(suite);
        sources.contains(&format!("fn {name}(")) || sources.contains(&format!("\"{name}\""))
    };
    let gone: Vec<&&str> = lines.iter().filter(|line| !is_there(line)).collect();
    assert!(gone.is_empty(), "these are not there: {gone:?}");
}

#[test]
fn lists_that_are_others_would_be_found() {
    let manifest = "[[test]]\nname = \"node\"\n\n[[test]]\nname = \"swap\"\nharness = false\n";
    assert_eq!(programs(manifest), BTreeSet::from(["swap".to_owned()]));
    let script = "plain_suites=(one two)\nother=(three)\nrun_suites=(\"${x[@]}\"\n";
    let words = BTreeSet::from(["one".to_owned(), "two".to_owned()]);
    assert_eq!(listed(script, &["plain_suites", "run_suites"]), words);
}
