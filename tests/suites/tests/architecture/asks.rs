//! Asks go only down: the edges declared in wiring have no circle.

use std::collections::{BTreeMap, BTreeSet};

use kubelet::wiring::ASKS;
use messages::CATALOGUE;

use crate::source::{directories, files, literals, root};

/// The table of wiring.
fn asks() -> Vec<(String, String)> {
    assert!(!ASKS.is_empty(), "nobody asks anybody");
    ASKS.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect()
}

/// A circle in the edges, as the names on its way.
fn circle(edges: &[(String, String)]) -> Option<Vec<String>> {
    fn walk(at: &str, edges: &[(String, String)], way: &mut Vec<String>) -> bool {
        let back = way.iter().any(|name| name == at);
        way.push(at.to_owned());
        if back {
            return true;
        }
        let mut next = edges.iter().filter(|(from, _)| from == at);
        if next.any(|(_, to)| walk(to, edges, way)) {
            return true;
        }
        way.pop();
        false
    }
    edges.iter().find_map(|(from, _)| {
        let mut way = Vec::new();
        walk(from, edges, &mut way).then_some(way)
    })
}

#[test]
fn asks_are_acyclic() {
    let edges = asks();
    assert_eq!(circle(&edges), None, "asks in a circle wait for each other");
    let distinct: BTreeSet<_> = edges.iter().collect();
    assert_eq!(distinct.len(), edges.len(), "an edge is there twice");
}

#[test]
fn a_circle_would_be_found() {
    let edges = |pairs: &[(&str, &str)]| -> Vec<_> {
        pairs.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect()
    };
    assert!(circle(&edges(&[("a", "b"), ("b", "c"), ("d", "c"), ("c", "a")])).is_some());
    assert!(circle(&edges(&[("a", "a")])).is_some());
    assert!(circle(&edges(&[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])).is_none());
}

/// The names of the actors of each crate: `const NAME` as a literal, or the receivers of its messages.
fn actors() -> BTreeMap<String, Vec<String>> {
    let mut actors = BTreeMap::new();
    for name in directories("actors").into_iter().filter(|name| name != "supervision") {
        let module = root().join(format!("messages/src/{}.rs", name.replace('-', "_")));
        let declared = std::fs::read_to_string(module).unwrap_or_default();
        let mut names: Vec<String> =
            declared.split("receives!(").skip(1).map(|rest| literals(rest)[0].clone()).collect();
        for file in files(&format!("actors/{name}/src")) {
            let literal = file.text.split("const NAME: &'static str = \"").skip(1);
            names.extend(literal.map(|rest| rest.split('"').next().expect("a literal ends").to_owned()));
        }
        actors.insert(name, names);
    }
    actors
}

#[test]
fn the_table_names_actors_and_every_crate_that_asks_is_in_it() {
    let (edges, actors) = (asks(), actors());
    let known: BTreeSet<&str> = CATALOGUE
        .iter()
        .map(|(name, _)| *name)
        .chain(actors.values().flatten().map(String::as_str))
        .collect();
    for (from, to) in &edges {
        assert!(
            known.contains(from.as_str()) && known.contains(to.as_str()),
            "{from} -> {to}: nobody's name"
        );
        assert!(CATALOGUE.iter().any(|(name, _)| name == to), "{to} receives nothing, so nobody asks it");
    }
    for (name, actors) in actors {
        // A message is handed over by value, so a borrowed argument is another `ask`.
        let asks = |code: String| code.split(".ask(").skip(1).any(|rest| !rest.trim_start().starts_with('&'));
        let asks = files(&format!("actors/{name}/src")).iter().any(|file| asks(file.code()));
        let listed = edges.iter().any(|(from, _)| actors.contains(from));
        assert_eq!(asks, listed, "actors/{name}: asks in its code, and an edge in ASKS");
    }
}
