//! The pages of metrics of a whole node: upstream's families, complete, and a form that every scraper reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use bridge_io::Io;
use bridge_kube::RestMetrics;
use bridge_kube::fake::FakeApi;
use bridge_metrics::{Described, Registry};
use bridge_tls::certificates::{CurrentPair, FakeCertificates, Purpose};
use kubelet::cgroups::{DriverAnswer, settle_driver};
use kubelet::config::FeatureGates;
use kubelet::process_metrics;
use kubelet::wiring::ManagedCertificate;
use supervision::Policy;
use testkit::node::{FakeNode, World, is_ready, member};
use testkit::{Sandbox, sandbox};

use crate::life::world;
use crate::listening::{answer, listening, read_only_port};
use crate::pods::web;

/// Upstream's families: name, type, labels and stability, as a Go kubelet 1.36.2 shows them and as its source defines those
/// that it showed no series of. Families of the Go runtime (`go_…`) are left out.
const UPSTREAM: &str = include_str!("upstream-metrics.txt");
const DOCUMENT: &str = include_str!("../../../../docs/metrics.md");

/// The tables of a section of the document: the names in a row's first column, and what it says of them.
fn rows(section: &str) -> Vec<(Vec<String>, &'static str)> {
    let (_, section) = DOCUMENT.split_once(&format!("## {section}\n")).expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.map(|row| {
        let (names, what) = row.split_once(" | ").expect("two columns");
        assert!(what.len() > 10, "{row}");
        (names.split(',').map(|name| name.trim_matches([' ', '`']).to_owned()).collect(), what)
    });
    names.collect()
}

/// The families of upstream that the document lists as absent, each with a reason.
fn absent() -> BTreeSet<String> {
    rows("`/metrics`").into_iter().flat_map(|(names, _)| names).collect()
}

/// A family as the table has it.
fn row(family: &Described) -> String {
    let labels = if family.labels.is_empty() { "-".to_owned() } else { family.labels.join(",") };
    let stability = family.help.strip_prefix('[').and_then(|help| help.split_once(']'));
    format!("{} {} {labels} {}", family.name, family.kind, stability.map_or("-", |(word, _)| word))
}

/// Every family that a node may show, whatever it has done so far.
async fn described(sandbox: &Sandbox) -> Vec<Described> {
    let mut world = world(71).with_api();
    let signed = FakeApi::new(world.clock.clone());
    let certificate = |purpose| ManagedCertificate {
        purpose,
        store: Arc::new(FakeCertificates::default()),
        current: CurrentPair::default(),
        api: Arc::new(signed.client(&Io::current())),
        bootstrap: None,
    };
    world.certificates = [Purpose::Client, Purpose::Serving].map(certificate).into();
    let node = FakeNode::start(sandbox, &world, &member().await);
    // What the daemon adds, around the actors.
    let registry: &Registry = &node.registry;
    process_metrics::register(registry, "node").expect("distinct");
    RestMetrics::new().expect("well-formed").register(registry).expect("distinct");
    let gates = FeatureGates::from_settings(&BTreeMap::new()).expect("no gate is set");
    gates.register(registry).expect("distinct");
    settle_driver(DriverAnswer::Nothing { outdated: true }, "cgroupfs", registry).expect("distinct");
    let described = node.registry.described();
    node.stop().await;
    described
}

#[test]
fn families_are_upstreams_and_what_is_left_out_is_told() {
    sandbox(Policy::default(), async |sandbox| {
        let described = described(sandbox).await;
        let ours: BTreeSet<String> =
            described.iter().filter(|it| !it.name.starts_with("understudy_")).map(row).collect();
        let upstream: BTreeSet<&str> = UPSTREAM.lines().collect();
        let strange: Vec<&String> = ours.iter().filter(|row| !upstream.contains(row.as_str())).collect();
        assert!(strange.is_empty(), "families that upstream has not, or not so: {strange:#?}");
        let name = |row: &str| row.split(' ').next().unwrap_or_default().to_owned();
        let names: BTreeSet<String> = ours.iter().map(|row| name(row)).collect();
        let missing: BTreeSet<String> =
            upstream.iter().map(|row| name(row)).filter(|name| !names.contains(name)).collect();
        let absent = absent();
        let unsaid: Vec<&String> = missing.difference(&absent).collect();
        assert!(unsaid.is_empty(), "missing without a reason in docs/metrics.md: {unsaid:#?}");
        let wrong: Vec<&String> = absent.difference(&missing).collect();
        assert!(wrong.is_empty(), "docs/metrics.md tells of these as absent: {wrong:#?}");
        let unhelpful: Vec<&str> =
            described.iter().filter(|it| it.help.len() < 10).map(|it| it.name.as_str()).collect();
        assert!(unhelpful.is_empty(), "{unhelpful:?}");
    });
}

/// A word that is the name of a family.
fn names_a_family(word: &str) -> bool {
    ["kubelet_", "rest_client_", "storage_"].iter().any(|prefix| word.starts_with(prefix))
}

#[test]
fn older_names_lead_to_families_that_are_there() {
    let described = sandbox(Policy::default(), async |sandbox| described(sandbox).await);
    let present: BTreeSet<&str> = described.iter().map(|family| family.name.as_str()).collect();
    let older = rows("Names in older descriptions");
    assert!(older.len() > 15, "{older:?}");
    for (names, today) in older {
        for name in names {
            assert!(names_a_family(&name), "{name}");
            assert!(!present.contains(name.as_str()), "{name} is not a name of old");
        }
        for name in today.split('`').filter(|word| names_a_family(word)) {
            assert!(present.contains(name), "{name} is not there: {today}");
        }
    }
}

async fn page(world: &World, path: &str, accept: &str) -> String {
    let request = Request::get(path).header("accept", accept).body(Body::empty()).expect("a request");
    let (status, text) = answer(world, read_only_port(), request).await.expect("the port is open");
    assert_eq!(status, 200, "{path}");
    text
}

/// A sample: the name, the labels as they are written, and the value.
fn sample(line: &str) -> (String, Vec<(String, String)>, f64) {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no value: {line}"));
    let (name, mut rest) = line.split_at(end);
    let is_name = |text: &str| {
        !text.is_empty()
            && !text.starts_with(|c: char| c.is_ascii_digit())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    assert!(is_name(name), "{line}");
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
            assert!(is_name(label), "{line}");
            let mut value = String::new();
            let mut chars = after.char_indices();
            let end = loop {
                match chars.next().unwrap_or_else(|| panic!("no end: {line}")) {
                    (at, '"') => break at,
                    (_, '\\') => {
                        let (_, escaped) = chars.next().unwrap_or_else(|| panic!("no end: {line}"));
                        assert!(['\\', '"', 'n'].contains(&escaped), "{line}");
                        value.push(escaped);
                    }
                    (_, plain) => value.push(plain),
                }
            };
            labels.push((label.to_owned(), value));
            rest = &after[end + 1..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        rest = &rest[1..];
    }
    let mut parts = rest.strip_prefix(' ').unwrap_or_else(|| panic!("no value: {line}")).split(' ');
    let value = parts.next().unwrap_or_default();
    let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
    if let Some(time) = parts.next() {
        assert!(time.parse::<f64>().is_ok() && parts.next().is_none(), "{line}");
    }
    (name.to_owned(), labels, value)
}

/// Panics where a page is not what scrapers read: each family once, with help and type before its samples, no sample twice,
/// buckets that grow up to the count.
fn check(path: &str, text: &str, open_metrics: bool) {
    let mut text = text;
    if open_metrics {
        text = text.strip_suffix("# EOF\n").unwrap_or_else(|| panic!("{path}: no end"));
    }
    let (mut families, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let (mut family, mut kind) = (String::new(), String::new());
    let mut buckets: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split(' ').next().unwrap_or_default().to_owned();
            assert!(families.insert(family.clone()), "{path}: {family} stands twice");
            kind.clear();
            continue;
        }
        if let Some(told) = line.strip_prefix("# TYPE ") {
            let (name, word) = told.split_once(' ').expect("a type");
            assert!(name == family && kind.is_empty(), "{path}: {line}");
            kind = word.to_owned();
            continue;
        }
        let (name, mut labels, value) = sample(line);
        let suffix = name.strip_prefix(&family).unwrap_or_else(|| panic!("{path}: {line} in {family}"));
        let may_be: &[&str] = match (kind.as_str(), open_metrics) {
            ("counter", true) => &["_total"],
            ("histogram", _) => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        assert!(may_be.contains(&suffix), "{path}: {line} in {family} {kind}");
        labels.sort();
        assert!(seen.insert((name.clone(), labels.clone())), "{path}: {line} stands twice");
        let bound = labels.iter().position(|(label, _)| label == "le").map(|at| labels.remove(at));
        let series = format!("{family} {labels:?}");
        match suffix {
            "_bucket" => {
                let known = buckets.entry(series).or_default();
                assert!(known.last().is_none_or(|last| *last <= value) && bound.is_some(), "{path}: {line}");
                known.push(value);
            }
            "_count" => assert_eq!(buckets[&series].last(), Some(&value), "{path}: {line}"),
            _ => assert!(kind != "counter" || value >= 0.0, "{path}: {line}"),
        }
    }
    assert!(!families.is_empty(), "{path} is empty");
}

async fn with_web(sandbox: &Sandbox, world: &World) -> FakeNode {
    world.manifest("web.yaml", &web("web"));
    let node = FakeNode::start(sandbox, world, &listening());
    node.until("the pod to be Ready", |pods| pods.values().any(|status| is_ready(status))).await;
    node
}

#[test]
fn every_page_is_well_formed_in_both_formats_of_text() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(72);
        let node = with_web(sandbox, &world).await;
        page(&world, "/healthz", "").await;
        for path in ["/metrics", "/metrics/probes", "/metrics/slis"] {
            check(path, &page(&world, path, "").await, false);
            let open = page(&world, path, "application/openmetrics-text; version=1.0.0").await;
            check(path, &open, true);
        }
        node.stop().await;
    });
}

#[test]
fn a_pods_life_is_counted() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(73);
        let node = with_web(sandbox, &world).await;
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        let text = page(&world, "/metrics", "").await;
        let value = |series: &str| {
            let line =
                text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
            line.map(|line| sample(line).2)
        };
        for (series, expected) in [
            ("kubelet_desired_pods{static=\"true\"}", 1.0),
            ("kubelet_active_pods{static=\"true\"}", 1.0),
            ("kubelet_active_pods{static=\"\"}", 0.0),
            ("kubelet_mirror_pods", 0.0),
            ("kubelet_managed_ephemeral_containers", 0.0),
            ("kubelet_running_pods", 1.0),
            ("kubelet_orphaned_runtime_pods_total", 0.0),
            ("kubelet_pod_start_duration_seconds_count", 1.0),
        ] {
            assert_eq!(value(series), Some(expected), "{series}: {text}");
        }
        world.remove_manifest("web.yaml");
        node.until("the pod to be gone", |pods| pods.is_empty()).await;
        let ended = page(&world, "/metrics", "").await;
        assert!(
            ended.contains("kubelet_terminated_containers_total{container_type=\"container\","),
            "{ended}"
        );
        node.stop().await;
    });
}
