//! Files that are not manifests. None of them may affect another pod.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};
use testkit::process::eventually;

use crate::Alone;
use crate::environment::Environment;
use crate::node::{Node, Options, SOON};
use crate::pod::PodFile;
use crate::spec::{containers, sleeper, with};
use crate::view::{Event, PodView};

pub const ALL: &[(&str, Alone)] = &[
    ("bad_manifests_are_told_and_touch_no_other_pod", bad),
    ("a_manifest_is_taken_when_it_is_complete", half_written),
    ("a_manifest_that_becomes_bad_keeps_its_pod_until_a_listing", becomes_bad),
    ("a_manifest_that_is_repaired_in_time_is_the_same_pod", repaired),
    ("a_manifest_with_fields_that_no_pod_has_runs", unknown_fields),
    ("two_manifests_of_one_name_run_once", duplicate),
];

fn other_pods(node: &Node) -> Vec<(PodFile<'_>, PodView)> {
    let files: Vec<_> = (0..3).map(|_| node.pod("good", containers([sleeper("main")]))).collect();
    files
        .into_iter()
        .map(|file| {
            let pod = file.ready();
            (file, pod)
        })
        .collect()
}

fn untouched(pods: &[(PodFile<'_>, PodView)]) {
    for (file, before) in pods {
        let now = file.look().expect("it is still listed");
        assert_eq!((now.uid(), now.status()), (before.uid(), before.status()));
        assert_eq!(file.running(before.uid()).len(), 1);
    }
}

fn manifest(node: &Node, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": node.namespace}, "spec": spec})
}

fn main_with(node: &Node, more: Value) -> Value {
    with(json!({"name": "main", "image": node.environment.image}), more)
}

fn bad(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "bad-manifests", Options::default());
    let others = other_pods(&node);
    let put = |file: &str, text: &[u8]| fs::write(node.manifests().join(file), text).expect("a file");
    let several = json!({"containers": [
        main_with(&node, json!({"name": "Not_A_Name", "imagePullPolicy": "Sometimes"})),
        main_with(&node, json!({"volumeMounts": [{"name": "none", "mountPath": "/a"}]})),
    ], "restartPolicy": "Perhaps"});
    put("not-yaml", b"a: [b\n\t: }");
    put("empty", b"");
    put("binary", &[0, 159, 146, 150, 255]);
    put("no-pod.yaml", b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n");
    put("too-large", &vec![b'#'; 11 << 20]);
    put("several", manifest(&node, "several", several).to_string().as_bytes());
    put(".hidden", b"not yaml: [");
    fs::create_dir(node.manifests().join("directory")).expect("a directory");
    let fifo = Command::new("mkfifo").arg(node.manifests().join("fifo")).status().expect("mkfifo");
    assert!(fifo.success());
    symlink("loop-b", node.manifests().join("loop-a")).expect("a link");
    symlink("loop-a", node.manifests().join("loop-b")).expect("a link");
    symlink("/nonexistent", node.manifests().join("dangling")).expect("a link");

    for (file, words) in [
        ("not-yaml", &["not-yaml"] as &[&str]),
        ("empty", &["empty"]),
        ("binary", &["binary"]),
        ("no-pod.yaml", &["ConfigMap"]),
        ("too-large", &["too-large", "10485760"]),
        (
            "several",
            &[
                "spec.containers[0].name",
                "Not_A_Name",
                "spec.containers[0].imagePullPolicy",
                "Sometimes",
                "spec.containers[1].volumeMounts[0].name",
                "spec.restartPolicy",
                "Perhaps",
            ],
        ),
        ("fifo", &["regular file"]),
        ("loop-a", &["loop-a"]),
        ("loop-b", &["loop-b"]),
    ] {
        let event = eventually(&format!("an event about {file}"), SOON, || node.manifest_event(file, words));
        assert_eq!(
            (event.kind.as_str(), event.reason.as_str()),
            ("Warning", "FailedValidation"),
            "{event:?}"
        );
    }
    for quiet in [".hidden", "directory"] {
        assert!(node.manifest_event(quiet, &[]).is_err(), "{quiet} is nobody's business");
    }
    // A manifest that is added after all of them runs.
    let after = node.pod("after", containers([sleeper("main")]));
    after.ready();
    assert_eq!(node.pods().expect("a list").len(), others.len() + 1, "no pod comes from a bad manifest");
    untouched(&others);
    assert_eq!(node.healthz.text("/healthz").as_deref(), Ok("ok"));
}

fn half_written(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "half-written", Options::default());
    let others = other_pods(&node);
    let spec = json!({"containers": [main_with(&node, json!({"command": ["sleep", "1000"]}))], "terminationGracePeriodSeconds": 1});
    let text = manifest(&node, "slow", spec).to_string();
    let (one, other) = text.split_at(text.len() / 2);
    let path = node.manifests().join("slow.json");
    let mut file = OpenOptions::new().create_new(true).write(true).open(path).expect("a file");
    file.write_all(one.as_bytes()).expect("half of it");
    eventually("half a manifest is told", SOON, || node.manifest_event("slow.json", &[]));
    file.write_all(other.as_bytes()).expect("the rest of it");
    drop(file);
    eventually("it runs", SOON, || {
        let pods = node.pods()?;
        let slow = pods.iter().find(|pod| pod.name().starts_with("slow-")).ok_or("no pod slow")?;
        if slow.is_ready() { Ok(()) } else { Err(slow.status().to_string()) }
    });
    untouched(&others);
}

fn repaired(environment: &Arc<Environment>) {
    let node = Node::alone(
        environment,
        "becomes-bad",
        Options { kubelet: json!({"fileCheckFrequency": "10m"}), ..Options::default() },
    );
    let file = node.pod("turns", containers([sleeper("main")]));
    let before = file.ready();
    file.write_text("no longer: [a manifest");
    let name = file.file().file_name().expect("a name").to_string_lossy().into_owned();
    eventually("an event about it", SOON, || node.manifest_event(&name, &[]));
    node.pod("after", containers([sleeper("main")])).ready();
    let now = file.look().expect("the last good version goes on");
    assert_eq!((now.uid(), now.status()), (before.uid(), before.status()));
    // Repaired to its earlier content: it is the same pod.
    file.write(containers([sleeper("main")]));
    node.pod("after", containers([sleeper("main")])).ready();
    let now = file.look().expect("it is listed");
    assert_eq!((now.uid(), now.status()), (before.uid(), before.status()));
}

/// A manifest that a listing finds still wrong has no pod any more.
fn becomes_bad(environment: &Arc<Environment>) {
    let options = Options { kubelet: json!({"fileCheckFrequency": "2s"}), ..Options::default() };
    let node = Node::alone(environment, "bad-listed", options);
    let file = node.pod("turns", containers([sleeper("main")]));
    let before = file.ready();
    file.write_text("no longer: [a manifest");
    let name = file.file().file_name().expect("a name").to_string_lossy().into_owned();
    let gone = || node.manifest_event(&name, &["no pod is run for it"]);
    eventually("an event about it", SOON, gone);
    file.gone(&before);
    file.write(containers([sleeper("main")]));
    file.ready();
}

fn unknown_fields(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "unknown-fields", Options::default());
    let main = with(sleeper("main"), json!({"imagePullPolice": "Never"}));
    let file = node.pod("odd", with(containers([main]), json!({"hostnetwork": true})));
    file.ready();
    let name = file.file().file_name().expect("a name").to_string_lossy().into_owned();
    let words = ["spec.hostnetwork", "spec.containers[0].imagePullPolice", name.as_str()];
    let event = eventually("an event about the fields", SOON, || node.manifest_event(&name, &words));
    assert_eq!((event.kind.as_str(), event.reason.as_str()), ("Warning", "IgnoredFields"));
    // As upstream: of a field given twice the last value counts.
    let whole = file.manifest(containers([sleeper("main")])).to_string();
    let twice = whole.replacen("\"spec\":", "\"spec\":{\"hostname\":\"twice\"},\"spec\":", 1);
    assert_ne!(whole, twice);
    file.write_text(&twice);
    let words = ["spec: the field is given twice"];
    eventually("an event about that", SOON, || node.manifest_event(&name, &words));
    file.wait("both are read", SOON, |pod| pod.is_ready() && pod.text("/spec/hostname") == "twice");
}

fn duplicate(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "duplicate", Options::default());
    let file = node.pod("twin", containers([sleeper("main")]));
    let before = file.ready();
    let twin = file.manifest(containers([sleeper("second")]));
    // The names make one be read before the first manifest, and one after it.
    for name in ["zz-twin.yaml", "00-twin.yaml"] {
        let known = node.events().expect("a list").iter().filter(|event| is_refusal(event)).count();
        let path = node.manifests().join(name);
        fs::write(&path, twin.to_string()).expect("a file");
        eventually(&format!("an event about the duplicate {name}"), SOON, || {
            let events: Vec<_> = node.events()?.into_iter().filter(is_refusal).collect();
            if events.len() > known { Ok(()) } else { Err(format!("{events:?}")) }
        });
        node.pod("after", containers([sleeper("main")])).ready();
        let twins: Vec<PodView> =
            node.pods().expect("a list").into_iter().filter(|pod| pod.name() == before.name()).collect();
        assert_eq!(twins.len(), 1, "one of them: {twins:?}");
        assert_eq!(
            (twins[0].uid(), twins[0].status()),
            (before.uid(), before.status()),
            "{name}: the first one stays"
        );
        fs::remove_file(path).expect("it was there");
        node.pod("after", containers([sleeper("main")])).ready();
        assert_eq!(file.look().expect("it is listed").status(), before.status());
    }
}

fn is_refusal(event: &Event) -> bool {
    event.reason == "FailedValidation" && event.kind == "Warning"
}
