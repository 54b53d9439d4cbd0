//! Pods while one kubelet takes over from the other.

use std::fs;

use jiff::Timestamp;
use serde_json::Value;
use testkit::process::eventually;

use crate::environment::Environment;
use crate::machine::{Kubelet, Machine, SOON};
use crate::pods::Maker;
use crate::state::{assert_ready_throughout, assert_steady, of_pods, running, same, statuses};

/// A case.
pub type Scene = fn(&Environment);

pub const ALL: &[(&str, Scene)] = &[
    ("pods_run_on_under_the_other_kubelet_and_back", there_and_back),
    ("what_happened_between_the_kubelets_is_seen_to", between),
    ("drivers_volumes_are_adopted_and_handed_back_as_they_are", crate::storage::adopted),
];

/// Waits until each pod is Ready, or has ended in the given phase.
pub fn settled(machine: &Machine, wanted: &[(&str, &str)]) {
    eventually("every pod is as it shall be", SOON, || {
        let now = statuses(&machine.cluster)?;
        for (pod, wanted) in wanted {
            let status = now.get(*pod).ok_or_else(|| format!("no {pod}"))?;
            let phase = status["phase"].as_str().unwrap_or_default();
            let ready = status["conditions"]["Ready"][0] == "True";
            let is = if phase == "Running" && ready { "Ready" } else { phase };
            if is != *wanted {
                return Err(format!("{pod} is {is}: {status}"));
            }
        }
        Ok(())
    });
}

fn uid(machine: &Machine, pod: &str) -> String {
    let pod = machine.cluster.get(&["pod", pod]).expect("the pod is there");
    pod["metadata"]["uid"].as_str().expect("every pod has a UID").to_owned()
}

pub fn deleted(machine: &Machine, pod: &str) {
    let uid = uid(machine, pod);
    machine.cluster.delete(pod);
    eventually("the pod is gone", SOON, || machine.cluster.is_gone(pod));
    eventually("its containers are gone", SOON, || {
        let left = of_pods(&running(&machine.cri, &machine.cluster.namespace), &[pod]);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    eventually("its volumes are gone", SOON, || {
        let dir = machine.pod_dir(&uid);
        let left = machine.mounts().into_iter().any(|mount| mount.starts_with(&dir));
        if left { Err(format!("something is mounted below {}", dir.display())) } else { Ok(()) }
    });
}

/// Asserts that the running kubelet updates volumes, and serves logs and exec.
fn looked_after(machine: &Machine, make: &Maker<'_>, word: &str, pods: &[&str]) {
    make.objects(word);
    let label = format!("word={word}");
    for pod in pods {
        machine.cluster.kubectl(&["label", "pod", pod, "--overwrite", &label]).expect("a label is taken");
    }
    let script = "cat /config/greeting; echo; cat /secret/token; echo; cat /all/greeting; echo; \
        cat /all/secret-token; echo; cat /info/labels; echo; cat /scratch/file; cat /sub.txt";
    let expected = format!("{word}\n{word}\n{word}\n{word}\nword=\"{word}\"\nprepared\nfixed");
    for pod in pods {
        eventually("volumes show what is true now", SOON, || {
            let shown = machine.cluster.exec(pod, "main", script)?;
            if shown == expected { Ok(()) } else { Err(shown) }
        });
        let token = machine.cluster.exec(pod, "main", "cat /all/token").expect("a command in it");
        assert_eq!(token.split('.').count(), 3, "{token}");
    }
}

fn logs(machine: &Machine, pod: &str, more: &[&str]) -> String {
    machine.cluster.kubectl(&[&["logs", pod], more].concat()).expect("logs")
}

/// Swaps kubelets, and asserts that both show the same and that nothing has happened in between.
fn swapped(machine: &mut Machine, to: Kubelet, word: &str, image: &str, steady: &[&str], volumes: &[&str]) {
    let before =
        (running(&machine.cri, &machine.cluster.namespace), statuses(&machine.cluster).expect("statuses"));
    let mounts = machine.mounts();
    let name = machine.name.clone();
    let pods = machine.watch(&["pods"], &format!("pods-{word}"));
    let node = machine.watch(&["node", &name], &format!("node-{word}"));
    eventually("both are followed", SOON, || match (pods.seen().len(), node.seen().len()) {
        (0, _) | (_, 0) => Err("nothing was seen yet".to_owned()),
        _ => Ok(()),
    });
    machine.swap(to);
    looked_after(machine, &Maker::new(machine, image), word, volumes);
    // Within this time both look at everything again, with or without changes.
    eventually("the node's status was looked at", SOON, || match node.seen().len() {
        0 | 1 => Err("it was not written".to_owned()),
        _ => Ok(()),
    });
    assert_eq!(running(&machine.cri, &machine.cluster.namespace), before.0, "what runs");
    eventually("statuses are what they were", SOON, || same(&before.1, &statuses(&machine.cluster)?));
    assert_eq!(machine.mounts(), mounts);
    assert_steady(&pods, steady);
    assert_ready_throughout(&node);
}

fn there_and_back(environment: &Environment) {
    let image = environment.image.as_str();
    let mut machine = Machine::new(environment, "back");
    machine.start(Kubelet::Go);
    let make = Maker::new(&machine, image);
    make.objects("first");
    make.make(
        "plain",
        &[make.container("main", "echo said; trap 'exit 0' TERM; while :; do sleep 0.2; done", Value::Null)],
        Value::Null,
    );
    make.volumes("volumes");
    make.crashed("crashed");
    make.finished("finished", 0);
    make.finished("failed", 7);
    make.half_done("half-done");
    make.host("host");
    make.secured("secured");
    make.unsupported("unsupported");
    let ends = [
        ("plain", "Ready"),
        ("volumes", "Ready"),
        ("crashed", "Ready"),
        ("finished", "Succeeded"),
        ("failed", "Failed"),
        ("half-done", "Running"),
        ("host", "Ready"),
        ("secured", "Ready"),
        ("unsupported", "Ready"),
    ];
    settled(&machine, &ends);
    let mut pods: Vec<&str> = ends.iter().map(|(pod, _)| *pod).collect();
    eventually("the first run of the crashed one is over", SOON, || {
        let counts = statuses(&machine.cluster)?["crashed"]["containers"][0][4].clone();
        if counts == 1 { Ok(()) } else { Err(counts.to_string()) }
    });

    swapped(&mut machine, Kubelet::Ours, "second", image, &pods, &["volumes"]);
    assert_eq!(logs(&machine, "plain", &[]), "said\n");
    assert_eq!(logs(&machine, "crashed", &["--previous"]), "first\n");
    assert_eq!(logs(&machine, "finished", &[]), "done\n");
    deleted(&machine, "plain");
    deleted(&machine, "unsupported");
    deleted(&machine, "failed");
    pods.retain(|pod| !["plain", "unsupported", "failed"].contains(pod));
    let make = Maker::new(&machine, image);
    make.volumes("ours-volumes");
    make.crashed("ours-crashed");
    make.finished("ours-finished", 5);
    make.secured("ours-secured");
    make.host("ours-host");
    let ours = [
        ("ours-volumes", "Ready"),
        ("ours-crashed", "Ready"),
        ("ours-finished", "Failed"),
        ("ours-secured", "Ready"),
        ("ours-host", "Ready"),
    ];
    settled(&machine, &ours);
    pods.extend(ours.iter().map(|(pod, _)| *pod));

    // The Go kubelet accepts statuses of another kubelet only for containers that were ten seconds old when it started.
    eventually("every container is old enough", SOON, || {
        let all = running(&machine.cri, &machine.cluster.namespace);
        let youngest = all.values().flatten().map(|(_, started_ns)| *started_ns).max().unwrap_or_default();
        let age_ns = Timestamp::now().as_nanosecond() - i128::from(youngest);
        if age_ns > 12_000_000_000 { Ok(()) } else { Err(format!("{age_ns} ns")) }
    });
    swapped(&mut machine, Kubelet::Go, "third", image, &pods, &["volumes", "ours-volumes"]);
    assert_eq!(logs(&machine, "ours-crashed", &["--previous"]), "first\n");
    assert_eq!(logs(&machine, "ours-finished", &[]), "done\n");
    for pod in ["ours-volumes", "volumes", "ours-finished", "ours-secured"] {
        deleted(&machine, pod);
    }
    machine.stop();
}

/// Pods that end, are deleted or die while one kubelet is on its way out or none runs; and a static pod.
fn between(environment: &Environment) {
    const GRACE_SECONDS: i64 = 10;
    let image = environment.image.as_str();
    let mut machine = Machine::new(environment, "between");
    machine.start(Kubelet::Go);
    let make = Maker::new(&machine, image);
    make.static_pod("static", &machine.manifests());
    let mirror = format!("static-{}", machine.name);
    make.stubborn("stubborn", GRACE_SECONDS as u32);
    make.make("unseen", &[make.steady("main", Value::Null)], Value::Null);
    make.dies_when_told("dies");
    make.make("bystander", &[make.steady("main", Value::Null)], Value::Null);
    let all = [mirror.as_str(), "stubborn", "unseen", "dies", "bystander"];
    settled(&machine, &all.map(|pod| (pod, "Ready")));
    let before = running(&machine.cri, &machine.cluster.namespace);
    let watch = machine.watch(&["pods"], "pods-between");

    machine.cluster.delete("stubborn");
    eventually("its end has begun", SOON, || {
        let events = machine.cluster.get(&["events"])?;
        let killing =
            |event: &Value| event["reason"] == "Killing" && event["involvedObject"]["name"] == "stubborn";
        let begun = events["items"].as_array().is_some_and(|events| events.iter().any(killing));
        if begun { Ok(()) } else { Err("no event Killing".to_owned()) }
    });
    machine.stop();
    machine.cluster.delete("unseen");
    fs::write(machine.gates().join("dies"), "").expect("a file in a directory of ours");
    eventually("it has died with nobody there", SOON, || {
        let left = of_pods(&running(&machine.cri, &machine.cluster.namespace), &["dies"]);
        if left.contains_key("dies/main") { Err(format!("{left:?}")) } else { Ok(()) }
    });
    machine.start(Kubelet::Ours);

    eventually("the pod nobody saw deleted is gone", SOON, || machine.cluster.is_gone("unseen"));
    eventually("the one that was ending is gone", SOON, || machine.cluster.is_gone("stubborn"));
    let ended = watch.seen().into_iter().rfind(|pod| {
        pod["metadata"]["name"] == "stubborn"
            && pod["status"]["containerStatuses"][0]["state"]["terminated"].is_object()
    });
    let ended = ended.expect("its end was told before it went");
    let time =
        |value: &Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok()).expect("a time");
    let finished = time(&ended["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"]);
    let deadline = time(&ended["metadata"]["deletionTimestamp"]);
    let early = deadline.as_second() - finished.as_second();
    assert!(early <= 3, "killed {early} s before its {GRACE_SECONDS} s of grace were over");

    eventually("the one that died runs again", SOON, || {
        let now = statuses(&machine.cluster)?;
        let container = &now["dies"]["containers"][0];
        let (count, code) = (&container[4], &container[7]["terminated"]["exitCode"]);
        if (container[2] == true, count == 1, code == 9) == (true, true, true) {
            Ok(())
        } else {
            Err(container.to_string())
        }
    });
    settled(&machine, &[(mirror.as_str(), "Ready"), ("dies", "Ready"), ("bystander", "Ready")]);
    let after = running(&machine.cri, &machine.cluster.namespace);
    assert_eq!(of_pods(&after, &["bystander"]), of_pods(&before, &["bystander"]));
    assert_steady(&watch, &["bystander"]);
    // A static pod has another UID under each kubelet: it is started anew, once.
    let anew = of_pods(&after, &[&mirror]);
    assert_eq!(anew.len(), 2, "{anew:?}");
    assert!(anew.iter().all(|(name, what)| before[name] != *what), "{anew:?}");

    machine.swap(Kubelet::Go);
    settled(&machine, &[(mirror.as_str(), "Ready"), ("dies", "Ready"), ("bystander", "Ready")]);
    eventually("the static pod is the Go kubelet's again", SOON, || {
        let now = of_pods(&running(&machine.cri, &machine.cluster.namespace), &[&mirror]);
        let is_new = now.len() == 2 && now.iter().all(|(name, what)| anew[name] != *what);
        if is_new { Ok(()) } else { Err(format!("{now:?}")) }
    });
    let back = running(&machine.cri, &machine.cluster.namespace);
    assert_eq!(of_pods(&back, &["bystander", "dies"]), of_pods(&after, &["bystander", "dies"]));
    machine.stop();
}
