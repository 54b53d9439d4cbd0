//! Volumes made from objects of the API server, and from their later changes.

use std::time::{Duration, Instant};

use bridge_kube::Select;
use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret};
use serde_json::{Value, json};
use testkit::process::eventually;

use crate::Shared;
use crate::cri::UID_LABEL;
use crate::member::{Member, named};
use crate::node::{LATER, SOON};
use crate::spec::{OBEDIENT, containers, shell, sleeper, with};

pub const ALL: &[(&str, Shared)] = &[
    ("files_follow_their_objects", followed),
    ("a_pod_waits_for_its_objects", awaited),
    ("nothing_is_made_for_a_pod_before_its_secret_is_there", withheld),
    ("the_service_accounts_token_is_accepted", token),
];

/// A script that copies the contents of files to the gate again and again.
fn watching(files: &[&str]) -> String {
    let copies: Vec<String> =
        files.iter().map(|file| format!("cp /data/{file} /gate/{}", file.replace('/', "-"))).collect();
    format!("trap 'exit 0' TERM; while :; do {}; sleep 0.2; done 2>/dev/null", copies.join("; "))
}

fn followed(member: &Member) {
    let api = &member.api;
    let ns = member.ns();
    api.create::<ConfigMap>(named(member, "words", json!({"data": {"word": "one", "unused": "x"}})));
    api.create::<Secret>(named(member, "secrets", json!({"stringData": {"word": "hush"}})));
    let files = ["config/word", "secret/word", "all/config", "all/secret", "all/label", "down/annotation"];
    let label = json!({"path": "label", "fieldRef": {"fieldPath": "metadata.labels['stage']"}});
    let annotation = json!({"path": "annotation", "fieldRef": {"fieldPath": "metadata.annotations['note']"}});
    let mounts = ["config", "secret", "all", "down"]
        .map(|name| json!({"name": name, "mountPath": format!("/data/{name}")}));
    let spec = with(
        containers([with(shell("main", &watching(&files)), json!({"volumeMounts": mounts}))]),
        json!({"gate": true, "volumes": [
            {"name": "config", "configMap": {"name": "words", "items": [{"key": "word", "path": "word"}]}},
            {"name": "secret", "secret": {"secretName": "secrets", "defaultMode": 256}},
            {"name": "all", "projected": {"sources": [
                {"configMap": {"name": "words", "items": [{"key": "word", "path": "config"}]}},
                {"secret": {"name": "secrets", "items": [{"key": "word", "path": "secret"}]}},
                {"downwardAPI": {"items": [label]}},
            ]}},
            {"name": "down", "downwardAPI": {"items": [annotation]}},
        ]}),
    );
    let pod = member.named_pod(member.pod_name("followed"));
    let mut manifest = pod.file.manifest(spec);
    manifest["spec"]["nodeName"] = json!(member.name);
    manifest["metadata"]["labels"]["stage"] = json!("first");
    manifest["metadata"]["annotations"] = json!({"note": "first"});
    api.create::<Pod>(manifest);
    let before = pod.ready();
    let says = |file: &str, words: &str| {
        eventually(&format!("{file} says {words}"), LATER, || {
            let written = pod.file.written(&file.replace('/', "-")).join("\n");
            if written == words { Ok(()) } else { Err(format!("{written:?}")) }
        });
    };
    for (file, words) in files.iter().zip(["one", "hush", "one", "hush", "first", "first"]) {
        says(file, words);
    }
    api.merge::<ConfigMap>(ns, "words", json!({"data": {"word": "two"}}));
    api.merge::<Secret>(ns, "secrets", json!({"stringData": {"word": "still"}}));
    let changed = json!({"metadata": {"labels": {"stage": "second"}, "annotations": {"note": "second"}}});
    api.merge::<Pod>(ns, pod.name(), changed);
    for (file, words) in files.iter().zip(["two", "still", "two", "still", "second", "second"]) {
        says(file, words);
    }
    let after = pod.look().expect("the pod is there");
    assert_eq!(after.container_id("main"), before.container_id("main"), "no container was restarted");
}

fn awaited(member: &Member) {
    let spec = with(
        containers([with(
            shell("main", &format!("cat /late/word >/gate/word; {OBEDIENT}")),
            json!({"volumeMounts": [{"name": "late", "mountPath": "/late"}]}),
        )]),
        json!({"gate": true, "volumes": [{"name": "late", "configMap": {"name": "late"}}]}),
    );
    let pod = member.pod("awaited", spec);
    let seen = pod.wait("waits", SOON, |pod| pod.waiting("main").0 == "ContainerCreating");
    pod.event(&seen, "FailedMount", "configmap \"late\" not found");
    member.api.create::<ConfigMap>(named(member, "late", json!({"data": {"word": "here"}})));
    pod.wait("Running", LATER, |pod| pod.is_running("main"));
    eventually("it has read it", SOON, || match pod.file.written("word") {
        lines if lines == ["here"] => Ok(()),
        lines => Err(format!("{lines:?}")),
    });
}

/// After so many tries of a volume the next one is so far away that only news of the secret can start the pod before
/// it.
const TRIES: i64 = 7;
/// Shorter than the pause after so many tries, which is 32 s; a machine that is busy with other pods needs some time.
const WOKEN_WITHIN: Duration = Duration::from_secs(20);

fn withheld(member: &Member) {
    let mounting = with(sleeper("main"), json!({"volumeMounts": [{"name": "late", "mountPath": "/late"}]}));
    let volumes = json!({"volumes": [{"name": "late", "secret": {"secretName": "withheld"}}]});
    let pod = member.pod("withheld", with(containers([mounting]), volumes));
    let seen = pod.wait("waits", SOON, |pod| pod.waiting("main").0 == "ContainerCreating");
    pod.event(
        &seen,
        "FailedMount",
        "MountVolume.SetUp failed for volume \"late\" : secret \"withheld\" not found",
    );
    eventually("it is tried again and again", LATER, || {
        let events = member.api.list::<Event>(&Select {
            namespace: Some(member.name.clone()),
            fields: Some(format!("involvedObject.uid={},reason=FailedMount", seen.uid())),
            ..Select::default()
        })?;
        let tries: i64 = events.iter().filter_map(|event| event["count"].as_i64()).sum();
        if tries >= TRIES { Ok(()) } else { Err(format!("{tries} times")) }
    });
    let waits = pod.look().expect("the pod is there");
    assert_eq!(waits.condition("PodReadyToStartContainers")["status"], "False", "{}", waits.status());
    assert_eq!((waits.phase(), waits.ip()), ("Pending", ""), "{}", waits.status());
    assert!(member.node.cri.sandboxes(UID_LABEL, waits.uid()).is_empty(), "no sandbox");

    member.api.create::<Secret>(named(member, "withheld", json!({"stringData": {"word": "hush"}})));
    let created = Instant::now();
    let ready = pod.wait("Ready at once", WOKEN_WITHIN, |pod| pod.is_ready());
    println!("Ready {:?} after its secret", created.elapsed());
    assert_eq!(ready.condition("PodReadyToStartContainers")["status"], "True", "{}", ready.status());
}

fn token(member: &Member) {
    let mounted = "/var/run/secrets/kubernetes.io/serviceaccount";
    let audience =
        json!({"serviceAccountToken": {"path": "token", "audience": "vault", "expirationSeconds": 600}});
    let script = format!(
        "for f in token namespace ca.crt; do cp {mounted}/$f /gate/$f; done; cp /vault/token /gate/vault; touch /gate/all; {OBEDIENT}"
    );
    let container =
        with(shell("main", &script), json!({"volumeMounts": [{"name": "vault", "mountPath": "/vault"}]}));
    let spec = with(
        containers([container, sleeper("other")]),
        json!({"gate": true, "volumes": [{"name": "vault", "projected": {"sources": [audience]}}]}),
    );
    let pod = member.pod("token", spec);
    let seen = pod.ready();
    eventually("the files are copied", SOON, || {
        if pod.file.gate("all").exists() { Ok(()) } else { Err(format!("{}", seen.status())) }
    });
    let read = |name: &str| std::fs::read_to_string(pod.file.gate(name)).expect("a copied file");
    assert_eq!(read("namespace"), member.name);
    let authority = std::fs::read_to_string(member.setting.plane.join("pki/ca.crt")).expect("the authority");
    assert_eq!(read("ca.crt"), authority);
    let review = |token: &str, audience: Option<&str>| -> Value {
        let spec = json!({"token": token, "audiences": audience.map(|one| [one])});
        member.api.create::<TokenReview>(json!({"metadata": {}, "spec": spec}))["status"].clone()
    };
    let reviewed = review(&read("token"), None);
    assert_eq!(reviewed["authenticated"], true, "{reviewed}");
    assert_eq!(reviewed["user"]["username"], format!("system:serviceaccount:{}:default", member.name));
    let extra = &reviewed["user"]["extra"];
    assert_eq!(extra["authentication.kubernetes.io/pod-uid"], json!([seen.uid()]));
    assert_eq!(extra["authentication.kubernetes.io/node-name"], json!([member.name]));
    assert_eq!(review(&read("vault"), Some("vault"))["authenticated"], true);
    assert_ne!(review(&read("vault"), None)["authenticated"], true, "it is for another audience");
}
