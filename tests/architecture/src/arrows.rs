//! Which crate may depend on which: `messages <- supervision <- actors/* <- bin`, `messages <- pod-rules <- runtime-bridge <- actors/*`,
//! `messages <- pod-set <- actors/*`, `pod-rules <- pod-why <- actors/*, bin`, `pod-spec <- pod-rules, runtime-bridge, actors/*, bin`,
//! `tests -> all`.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::source::root;

/// Crates through which the outside world is reached.
const OUTSIDE: &[&str] = &["tonic", "tonic-prost", "prost", "kube", "cgroups-rs", "sysinfo"];

pub fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A workspace crate: its directory, the names of what it depends on, dev and build included, and of what it depends on
/// not only for its tests.
pub struct Crate {
    pub directory: String,
    depends: Vec<String>,
    shipped_with: Vec<String>,
}

/// The workspace's crates by name.
pub fn workspace() -> BTreeMap<String, Crate> {
    let metadata = cargo(&["metadata", "--format-version", "1", "--no-deps", "--offline"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let root = root();
    let text = |value: &Value| value.as_str().expect("cargo writes text here").to_owned();
    let crates = metadata["packages"].as_array().unwrap().iter().map(|package| {
        let manifest = text(&package["manifest_path"]);
        let directory = std::path::Path::new(&manifest).parent().unwrap().strip_prefix(&root).unwrap();
        let all = package["dependencies"].as_array().unwrap();
        let depends = all.iter().map(|dependency| text(&dependency["name"])).collect();
        let shipped = all.iter().filter(|dependency| dependency["kind"] != "dev");
        let shipped_with = shipped.map(|dependency| text(&dependency["name"])).collect();
        let directory = directory.to_string_lossy().into_owned();
        (text(&package["name"]), Crate { directory, depends, shipped_with })
    });
    let crates: BTreeMap<_, _> = crates.collect();
    assert!(crates.len() > 10, "this is not the workspace: {:?}", crates.keys());
    crates
}

/// The layer of a directory, and the layers that it may depend on.
fn layer(directory: &str) -> (&'static str, &'static [&'static str]) {
    match directory {
        // Arithmetic of waits and parsing of texts: these crates depend on no crate of ours and have no effects.
        // Actors, supervision, bridges and bin would each need their own otherwise. The meaning of a pod's spec is
        // computed by actors and by the bridge alike, and is not a message.
        "runtime-bridge/pace" | "runtime-bridge/text" | "messages/pod-spec" => ("pure", &[]),
        "messages" => ("messages", &["pure"]),
        "actors/supervision" => ("supervision", &["pure", "messages"]),
        // Both ends of what travels pod by pod: writer and followers have to agree on it, and on how it is told again.
        "actors/pod-set" => ("pod-set", &["messages", "supervision"]),
        // Actors may not know each other, and messages are data: Kubernetes' words and rules that several of them share
        // need a place below all. The bridge has labels and durations of Go from there, too.
        "actors/pod-rules" => ("rules", &["pure", "messages"]),
        // NodeApi and the companion explain pods with the same sentences.
        "actors/pod-why" => ("why", &["pure", "rules"]),
        bridge if bridge.starts_with("runtime-bridge/") => {
            ("bridge", &["pure", "messages", "rules", "bridge"])
        }
        // Below the actors: what their tests stand on.
        "tests/stage" => ("stage", &["pure", "messages", "pod-set", "supervision", "rules", "bridge"]),
        actor if actor.starts_with("actors/") => {
            ("actors", &["pure", "messages", "pod-set", "supervision", "rules", "why", "bridge"])
        }
        bin if bin.starts_with("bin/") => {
            ("bin", &["pure", "messages", "supervision", "rules", "why", "bridge", "actors"])
        }
        test if test.starts_with("tests/") => (
            "tests",
            &[
                "pure",
                "messages",
                "pod-set",
                "supervision",
                "rules",
                "why",
                "bridge",
                "stage",
                "actors",
                "bin",
                "tests",
            ],
        ),
        other => panic!("{other} has no place in the architecture"),
    }
}

fn is_actor(one: &Crate) -> bool {
    layer(&one.directory).0 == "actors"
}

#[test]
fn every_actor_is_tested_alone() {
    let actors: Vec<Crate> = workspace().into_values().filter(is_actor).collect();
    let lack = |one: &&Crate| !root().join(&one.directory).join("tests/alone.rs").is_file();
    let lacking: Vec<&str> = actors.iter().filter(lack).map(|one| one.directory.as_str()).collect();
    assert!(actors.len() > 10 && lacking.is_empty(), "actors without tests/alone.rs: {lacking:?}");
}

#[test]
fn arrows_point_one_way() {
    let crates = workspace();
    let mut wrong = Vec::new();
    for (name, one) in &crates {
        let (_, may_know) = layer(&one.directory);
        for other in one.depends.iter().filter_map(|other| crates.get_key_value(other)) {
            let layer = layer(&other.1.directory).0;
            // An actor's tests use the stage; the actor itself does not.
            let on_stage = layer == "stage" && is_actor(one) && !one.shipped_with.contains(other.0);
            if !on_stage && !may_know.contains(&layer) && other.0 != name {
                wrong.push(format!("{name} -> {}", other.0));
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that point the wrong way: {wrong:#?}");
}

/// The pods that it explains are values that it is given.
#[test]
fn what_explains_pods_is_pure() {
    let crates = workspace();
    let mut shipped = crates["pod-why"].shipped_with.clone();
    shipped.sort();
    let pure = [
        "bridge-pace",
        "jiff",
        "k8s-openapi",
        "pod-rules",
        "serde",
        "serde_json",
        "thiserror",
        "unicode-width",
    ];
    assert_eq!(shipped, pure);
}

/// Rules decide by their arguments alone: no actor, no clock, no serialisation, no log.
#[test]
fn pod_rules_are_pure() {
    let metadata = cargo(&["metadata", "--format-version", "1", "--no-deps", "--offline"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let rules = packages.iter().find(|package| package["name"] == "pod-rules").expect("it is a crate");
    let depends = rules["dependencies"].as_array().unwrap().iter();
    let shipped: Vec<_> = depends.filter(|one| one["kind"].is_null()).map(|one| &one["name"]).collect();
    assert_eq!(shipped, ["k8s-openapi", "messages", "pod-spec"]);
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
    assert!(shipped.contains("supervision v") && shipped.contains("bridge-cri v"), "{shipped}");
    for feature in ["faults", "fake"] {
        assert!(
            !armed(&shipped, "supervision", feature),
            "{feature} of supervision are built into the kubelet"
        );
    }
    let bridges = workspace().into_iter().filter(|(_, one)| layer(&one.directory).0 == "bridge");
    for (bridge, _) in bridges {
        assert!(!armed(&shipped, &bridge, "fake"), "{bridge}'s fakes are built into the kubelet");
    }
    // The same check finds the features in crates that may have them.
    let tests = tree("testkit", "normal");
    assert!(armed(&tests, "supervision", "faults"));
}
