//! Who may know whom: `messages <- supervision <- actors/* <- bin`, `messages <- runtime-bridge <- actors/*`,
//! `messages <- pod-set <- actors/*`, `tests -> all`.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::source::root;

/// Crates through which the outside world is reached.
const OUTSIDE: &[&str] = &["tonic", "tonic-prost", "prost", "kube", "cgroups-rs", "sysinfo"];

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A workspace crate: its directory and the names of what it depends on, dev and build included.
struct Crate {
    directory: String,
    depends: Vec<String>,
}

fn workspace() -> BTreeMap<String, Crate> {
    let metadata = cargo(&["metadata", "--format-version", "1", "--no-deps", "--offline"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let root = root();
    let text = |value: &Value| value.as_str().expect("cargo writes text here").to_owned();
    let crates = metadata["packages"].as_array().unwrap().iter().map(|package| {
        let manifest = text(&package["manifest_path"]);
        let directory = std::path::Path::new(&manifest).parent().unwrap().strip_prefix(&root).unwrap();
        let depends = package["dependencies"].as_array().unwrap().iter();
        let depends = depends.map(|dependency| text(&dependency["name"])).collect();
        (text(&package["name"]), Crate { directory: directory.to_string_lossy().into_owned(), depends })
    });
    let crates: BTreeMap<_, _> = crates.collect();
    assert!(crates.len() > 10, "this is not the workspace: {:?}", crates.keys());
    crates
}

/// The layer of a directory, and the layers it may know.
fn layer(directory: &str) -> (&'static str, &'static [&'static str]) {
    match directory {
        "messages" => ("messages", &[]),
        "actors/supervision" => ("supervision", &["messages"]),
        // Both ends of what travels pod by pod: writer and followers have to agree on it, and it does nothing by itself.
        "actors/pod-set" => ("pod-set", &["messages"]),
        "runtime-bridge" => ("bridge", &["messages"]),
        actor if actor.starts_with("actors/") => {
            ("actors", &["messages", "pod-set", "supervision", "bridge"])
        }
        bin if bin.starts_with("bin/") => ("bin", &["messages", "supervision", "bridge", "actors"]),
        test if test.starts_with("tests/") => {
            ("tests", &["messages", "pod-set", "supervision", "bridge", "actors", "bin", "tests"])
        }
        other => panic!("{other} has no place in the architecture"),
    }
}

#[test]
fn arrows_point_one_way() {
    let crates = workspace();
    let mut wrong = Vec::new();
    for (name, one) in &crates {
        let (_, may_know) = layer(&one.directory);
        for other in one.depends.iter().filter_map(|other| crates.get_key_value(other)) {
            if !may_know.contains(&layer(&other.1.directory).0) && other.0 != name {
                wrong.push(format!("{name} -> {}", other.0));
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that point the wrong way: {wrong:#?}");
}

#[test]
fn only_the_bridge_reaches_outside() {
    let mut wrong = Vec::new();
    for (name, one) in workspace() {
        if !matches!(layer(&one.directory).0, "bridge" | "tests") {
            let outside = one.depends.into_iter().filter(|other| OUTSIDE.contains(&other.as_str()));
            wrong.extend(outside.map(|other| format!("{name} -> {other}")));
        }
    }
    assert!(wrong.is_empty(), "crates that only runtime-bridge may know: {wrong:#?}");
}

#[test]
fn the_shipped_kubelet_has_neither_faults_nor_fakes() {
    let tree = |package: &str, edges: &str| {
        cargo(&["tree", "--offline", "-p", package, "-e", edges, "--prefix", "none", "-f", "{p} [{f}]"])
    };
    let armed = |tree: &str, name: &str, feature: &str| {
        tree.lines().any(|line| {
            let features = line.rsplit_once('[').map_or("", |(_, features)| features.trim_end_matches(']'));
            line.starts_with(&format!("{name} v")) && features.split(',').any(|one| one == feature)
        })
    };
    let shipped = tree("kubelet", "normal");
    assert!(shipped.contains("supervision v") && shipped.contains("runtime-bridge v"), "{shipped}");
    assert!(!armed(&shipped, "supervision", "faults"), "faults are built into the kubelet");
    assert!(!armed(&shipped, "runtime-bridge", "fake"), "fakes are built into the kubelet");
    // The same look finds them where they belong.
    let tests = tree("testkit", "normal");
    assert!(armed(&tests, "supervision", "faults"));
}
