//! Manifests that change.

use std::fs;

use serde_json::json;
use testkit::process::eventually;

use crate::Shared;
use crate::cri::POD_NAME_LABEL;
use crate::node::{LATER, Node, SOON};
use crate::spec::{containers, shell, sleeper, with};
use crate::view::PodView;

pub const ALL: &[(&str, Shared)] = &[
    ("a_changed_manifest_replaces_the_pod_and_never_runs_both", changed),
    ("a_touched_manifest_changes_nothing", touched),
    ("yaml_and_json_manifests_are_read", yaml),
    ("a_pod_with_an_unsupported_field_waits_and_names_it", unsupported),
    ("a_manifest_that_refers_to_the_api_is_refused", references),
];

fn changed(node: &Node) {
    // Each instance keeps a directory for as long as it lives, and is slow to end.
    let script = "mkdir /gate/lives || echo both >>/gate/overlap; \
                  trap 'sleep 3; rmdir /gate/lives; exit 0' TERM; while :; do sleep 1000 & wait $!; done";
    let spec = |version: &str| {
        let main = with(shell("main", script), json!({"env": [{"name": "VERSION", "value": version}]}));
        with(containers([main]), json!({"terminationGracePeriodSeconds": 30, "gate": true}))
    };
    let file = node.pod("changes", spec("1"));
    let before = file.ready();
    file.write(spec("2"));
    let after = eventually("the new version runs", LATER, || {
        let running = node.cri.running(POD_NAME_LABEL, before.name());
        let running: Vec<_> =
            running.iter().filter(|c| c.labels["io.kubernetes.pod.namespace"] == node.namespace).collect();
        assert!(running.len() <= 1, "both versions run: {running:?}");
        let pod = file.look()?;
        if pod.uid() != before.uid() && pod.is_ready() { Ok(pod) } else { Err(pod.status().to_string()) }
    });
    assert_eq!(after.name(), before.name());
    assert_eq!(after.0["spec"]["containers"][0]["env"][0]["value"], "2");
    assert_eq!(file.written("overlap"), [] as [&str; 0]);
    assert_eq!(file.running(before.uid()).len(), 0);
    file.event(&before, "Normal", "Killing", "Stopping container main");
    assert!(after.0["metadata"]["uid"] != before.0["metadata"]["uid"]);
    file.gone(&before);
}

fn touched(node: &Node) {
    let spec = || containers([sleeper("main")]);
    let file = node.pod("touched", spec());
    let before = file.ready();
    let sandbox = file.sandbox(before.uid()).id;
    let text = fs::read(file.file()).expect("the manifest");
    // The manifest is rewritten in place, and replaced by another file.
    fs::write(file.file(), &text).expect("the manifest can be written");
    file.write(spec());
    // A manifest that was added later has been read, and so both changes have been.
    node.pod("after-touched", containers([sleeper("main")])).ready();
    let after = file.look().expect("it is listed");
    assert_eq!((after.uid(), after.status()), (before.uid(), before.status()));
    assert_eq!(file.sandbox(before.uid()).id, sandbox);
}

fn yaml(node: &Node) {
    let file = node.pod("yaml", containers([sleeper("placeholder")]));
    let text = format!(
        "# A comment.\napiVersion: v1\nkind: Pod\nmetadata: {{name: {}, namespace: {}}}\nspec:\n  \
         terminationGracePeriodSeconds: 1\n  containers:\n  - name: &name from-yaml\n    image: {}\n    \
         command:\n    - sh\n    - -c\n    - |\n      echo *name is a word\n      sleep 1000\n",
        file.base, node.namespace, node.environment.image
    );
    file.write_text(&text);
    let pod = file.wait("the pod of the YAML", SOON, |pod| pod.is_running("from-yaml"));
    eventually("its log", SOON, || match file.log(&pod, "from-yaml", 0)? {
        log if log == ["*name is a word"] => Ok(()),
        log => Err(format!("{log:?}")),
    });
}

fn unsupported(node: &Node) {
    let main = with(sleeper("main"), json!({"securityContext": {"windowsOptions": {"hostProcess": false}}}));
    let file = node.pod("unsupported", containers([main]));
    let reason = "UnsupportedFields";
    let waits = |pod: &PodView| pod.phase() == "Pending" && pod.text("/status/reason") == reason;
    let pod = file.wait("waiting", SOON, waits);
    let message = pod.text("/status/message");
    assert!(message.contains("spec.containers[0].securityContext"), "{}", pod.status());
    let event = eventually("an event about it", SOON, || {
        let events = file.events(pod.uid())?;
        let found = events.iter().find(|event| event.reason == reason);
        found.cloned().ok_or_else(|| format!("{events:?}"))
    });
    assert_eq!(event.kind, "Warning");
    assert!(event.message.contains("spec.containers[0].securityContext"), "{event:?}");
    assert_eq!(file.sandboxes(pod.uid()).len(), 0, "nothing of it is run");
}

fn references(node: &Node) {
    let volumes = json!([{"name": "secret", "secret": {"secretName": "a"}}]);
    let file = node.pod("refers", with(containers([sleeper("main")]), json!({"volumes": volumes})));
    let name = file.file().file_name().expect("a name").to_string_lossy().into_owned();
    let event = eventually("an event about the file", SOON, || {
        node.manifest_event(&name, &["static pods may not reference secrets"])
    });
    assert_eq!((event.kind.as_str(), event.reason.as_str()), ("Warning", "FailedValidation"));
    assert!(file.look().is_err(), "it is no pod");
}
