//! Each crate of others is built once for the kubelet, for the companion and for the tests: with the same features.

use std::collections::{BTreeMap, BTreeSet};

use crate::arrows::cargo;

/// The features with which others' crates are built, by name and version. A crate that proc-macros want, too, may have two sets.
fn sets(of: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let list = ["tree", "--offline", "--prefix", "none", "-f", "{p}|{f}"];
    let mut sets: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in cargo(&[&list[..], of].concat()).lines().filter(|line| !line.is_empty()) {
        let line = line.trim_end_matches(" (*)");
        let (name, features) = line.split_once('|').expect("this is the form that was asked for");
        // A crate of the workspace has its path behind its version.
        if !name.contains(" (/") {
            sets.entry(name.to_owned()).or_default().insert(features.to_owned());
        }
    }
    sets
}

#[test]
fn others_crates_are_built_once() {
    let whole = sets(&["--workspace", "-e", "normal,dev"]);
    assert!(whole.len() > 200, "{}", whole.len());
    for program in ["kubelet", "understudy"] {
        let alone = sets(&["-p", program, "-e", "normal"]);
        let otherwise: Vec<_> = alone
            .iter()
            .filter(|(name, features)| !features.is_subset(&whole[*name]))
            .map(|(name, features)| {
                format!("{name}: {features:?} for {program}, {:?} for the tests", whole[name])
            })
            .collect();
        assert!(
            otherwise.is_empty(),
            "runtime-bridge/features/Cargo.toml is to name more features: {otherwise:#?}"
        );
    }
}
