//! A configuration that changes while the kubelet runs.

use std::fs;
use std::sync::Arc;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::process::eventually;

use super::https::{CLOSE, ask, certificates, node};
use crate::Alone;
use crate::environment::Environment;
use crate::node::{Node, SOON};
use crate::spec::{containers, sleeper, with};

pub const ALL: &[(&str, Alone)] = &[("a_changed_file_takes_effect_and_a_bad_one_changes_nothing", reload)];

/// Replaces the node's configuration file, in one step.
fn write(node: &Node, text: &str) {
    let file = node.configuration();
    let aside = file.with_extension("new");
    fs::write(&aside, text).expect("a file in the node's directory");
    fs::rename(&aside, &file).expect("both are in one directory");
}

#[track_caller]
fn until_metric(node: &Node, name: &str, value: f64) {
    eventually(&format!("{name} {value}"), SOON, || {
        let now = node.metric(name)?;
        if now >= value { Ok(()) } else { Err(now.to_string()) }
    });
}

fn reload(environment: &Arc<Environment>) {
    let certificates = certificates();
    let fields = json!({"maxPods": 20, "containerLogMaxFiles": 4});
    let (node, _files) = node(environment, "reload", &certificates, fields);
    let started = fs::read_to_string(node.configuration()).expect("the kubelet has read it");
    let started: Value = serde_json::from_str(&started).expect("JSON is YAML");
    let shown = || {
        let answer = ask(&node, &certificates, true, "GET /configz", CLOSE, |_| false);
        answer.split_once("\r\n\r\n").expect("headers and a body").1.to_owned()
    };
    let first = node.pod("first", containers([sleeper("main")]));
    first.ready();
    assert_eq!(node.metric("understudy_config_generation"), Ok(1.0));

    let changed = json!({
        "maxPods": 1, "containerLogMaxFiles": 9, "logging": {"verbosity": 5}, "clusterDomain": "another.local",
    });
    let changed = with(started, changed);
    write(&node, &changed.to_string());
    until_metric(&node, "understudy_config_generation", 2.0);
    let all = shown();
    for field in ["\"maxPods\":1,", "\"containerLogMaxFiles\":9", "\"verbosity\":5", "\"cluster.local\""] {
        assert!(all.contains(field), "{field} is not in {all}");
    }
    let told = node.log();
    let waits: Vec<&str> =
        told.lines().filter(|line| line.contains("Changed fields of the configuration wait")).collect();
    assert!(waits.len() == 1 && waits[0].contains("fields=\"clusterDomain\""), "{waits:?}");
    let second = node.pod("second", containers([sleeper("main")]));
    let second = second.phase("Failed");
    assert!(second.text("/status/message").contains("res: pods"), "{}", second.text("/status/message"));

    let bad = with(changed.clone(), json!({"containerLogMaxFiles": 3, "maxPods": "many"}));
    write(&node, &bad.to_string());
    until_metric(&node, "understudy_config_reload_errors_total", 1.0);
    let refused = node.log();
    let refused = refused.lines().find(|line| line.contains("The changed configuration is refused"));
    let refused = refused.expect("a line about it");
    let file = node.configuration().display().to_string();
    assert!([file.as_str(), "maxPods", "many"].iter().all(|word| refused.contains(word)), "{refused}");
    assert_eq!((node.metric("understudy_config_generation"), shown()), (Ok(2.0), all));

    // A file that is half written is refused by order, and the next one mends it.
    let text = changed.to_string();
    write(&node, &text[..text.len() / 2]);
    node.signal_kubelet(Signal::HUP);
    until_metric(&node, "understudy_config_reload_errors_total", 2.0);
    write(&node, &with(changed, json!({"containerLogMaxFiles": 3})).to_string());
    until_metric(&node, "understudy_config_generation", 3.0);
    assert!(shown().contains("\"containerLogMaxFiles\":3"));
    node.assert_alive();
}
