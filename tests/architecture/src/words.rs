//! A word of Kubernetes that several crates share stands once, in `pod-rules`.

use std::collections::BTreeSet;

use crate::source::{File, files};

/// The directory of shared words.
const HOME: &str = "actors/pod-rules/src";
/// The directories of everything that is shipped.
const SHIPPED: [&str; 4] = ["messages/src", "actors", "runtime-bridge", "bin"];
/// Words with another meaning elsewhere: the word, the file, and its meaning there.
const HOMONYMS: &[(&str, &str, &str)] =
    &[("Failed", "runtime-bridge/kube/src/csr.rs", "a condition of a certificate request")];

/// Fakes describe the outside world, as tests do, in words of their own.
fn is_fake(file: &File) -> bool {
    file.path.contains("/fake")
}

fn words() -> BTreeSet<String> {
    let words: BTreeSet<String> = files(HOME).iter().flat_map(File::constants).collect();
    for known in ["Evicted", "kubernetes.io/config.mirror", "NoExecute", "Ready", "kubernetes.io/empty-dir"] {
        assert!(words.contains(known), "{HOME} has lost {known:?}, or its constants are not found");
    }
    words
}

#[test]
fn shared_words_stand_in_pod_rules_alone() {
    let words = words();
    let (mut found, mut needed) = (Vec::new(), BTreeSet::new());
    let shipped = SHIPPED.iter().flat_map(|directory| files(directory));
    for file in shipped.filter(|file| !file.path.starts_with(HOME) && !is_fake(file)) {
        for (line, string) in file.strings().into_iter().filter(|(_, string)| words.contains(string)) {
            let homonym = HOMONYMS.iter().find(|(word, path, _)| *word == string && *path == file.path);
            match homonym {
                Some(homonym) => drop(needed.insert(homonym)),
                None => found.push(format!("{}:{line}: {string:?}", file.path)),
            }
        }
    }
    assert!(found.is_empty(), "use the constants of pod-rules: {found:#?}");
    assert_eq!(needed, HOMONYMS.iter().collect(), "left: the homonyms that there are; right: the list");
}

/// A word that one crate alone uses stays in that crate.
#[test]
fn pod_rules_has_no_words_of_one_crate() {
    let module =
        |file: &File| file.path.trim_end_matches(".rs").rsplit('/').next().unwrap_or_default().to_owned();
    let callers: Vec<(String, String)> = SHIPPED
        .iter()
        .flat_map(|directory| files(directory))
        .filter(|file| !file.path.starts_with(HOME))
        .map(|file| (file.path.split("/src/").next().unwrap_or_default().to_owned(), file.code()))
        .filter(|(_, code)| code.contains("pod_rules::"))
        .collect();
    let mut lonely = Vec::new();
    for file in files(HOME).iter().filter(|file| !file.path.ends_with("/lib.rs")) {
        let name = module(file);
        let users: BTreeSet<&String> = callers
            .iter()
            .filter(|(_, code)| crate::source::has_word(code, &name))
            .map(|(user, _)| user)
            .collect();
        if users.len() < 2 {
            lonely.push(format!("{name}: {users:?}"));
        }
    }
    assert!(lonely.is_empty(), "modules of pod-rules with fewer than two users: {lonely:#?}");
}
