//! `understudy logs`.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::kubelet::{Answer, Kubelet, answers, said};

/// Logs of the two containers of `web`; those of `one` break off, and `prepare` has none yet.
fn kubelet() -> Kubelet {
    Kubelet::start(
        "127.0.0.1",
        answers(|target| {
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let parts = |parts: &[&[u8]], ends: bool| Answer {
                status: "200 OK",
                parts: parts.iter().map(|part| part.to_vec()).collect(),
                ends,
            };
            match path {
                "/containerLogs/default/web/app" if query.contains("timestamps=true") => {
                    parts(&[b"2026-01-01T00:00:00Z one\n2026-01-01T00:00:01Z tw", b"o\n"], true)
                }
                "/containerLogs/default/web/app" => parts(&[b"one\n\x1b[31mtw", b"o\xff\n"], true),
                "/containerLogs/default/web/beside" => parts(&[b"beside\n"], true),
                "/containerLogs/default/one/only" => parts(&[b"begun\n"], false),
                _ => Answer::whole(
                    "400 Bad Request",
                    "container \"prepare\" in pod \"web\" is waiting to start: PodInitializing\n",
                ),
            }
        }),
    )
}

#[test]
fn a_log_is_passed_on_as_it_is() {
    let node = kubelet();
    let flags = node.flags();
    let output = Command::new(env!("CARGO_BIN_EXE_understudy"))
        .args(["logs", "-n", "default", "web", "-c", "app"])
        .args(&flags)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"one\n\x1b[31mtwo\xff\n");
    assert!(output.stderr.is_empty());
}

#[test]
fn what_is_asked_for_reaches_the_kubelet() {
    let node = kubelet();
    let flags = ["-fp", "--tail", "5", "--since", "1m", "--timestamps"];
    let (code, out, err) = node.said(&[&["logs", "u-1", "--container=app"][..], &flags].concat());
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("2026-01-01T00:00:00Z one\n"), "{out}");
    let query = "follow=true&previous=true&timestamps=true&tailLines=5&sinceSeconds=60";
    assert_eq!(node.asked().last(), Some(&format!("/containerLogs/default/web/app?{query}")));
}

#[test]
fn a_container_that_is_not_named_is_chosen_as_kubectl_does() {
    let node = kubelet();
    let (code, out, err) = node.said(&["logs", "default/web"]);
    assert!(code == 0 && out.starts_with("one\n"), "{err}");
    assert_eq!(err, "Defaulted container \"app\" out of: app, beside, prepare (init)\n");
    let (code, _, err) = node.said(&["logs", "web", "-c", "bside"]);
    assert_eq!(code, 1);
    assert!(
        err.contains("default/web: no container \"bside\"; it has: app, beside, prepare (init)"),
        "{err}"
    );
}

#[test]
fn what_fails_is_told_by_the_exit_code() {
    let node = kubelet();
    // The log ends without the end of its answer.
    let (code, out, err) = node.said(&["logs", "one"]);
    assert_eq!((code, out.as_str()), (1, "begun\n"), "{err}");
    assert!(err.contains("the log of container \"only\" of default/one"), "{err}");
    let (code, out, err) = node.said(&["logs", "web", "-c", "prepare"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("is waiting to start: PodInitializing"), "{err}");
    let (code, _, err) = node.said(&["logs", "wep"]);
    assert!(code == 1 && err.contains("near names: default/web"), "{err}");
    let (code, _, err) = said(&["logs", "web", "--server", "http://127.0.0.1:10255"]);
    assert!(code == 2 && err.contains("only the authenticated port"), "{err}");
    for wrong in [&["logs"][..], &["logs", "a/b/c"], &["logs", "web", "--since", "5"]] {
        assert_eq!(node.said(wrong).0, 2, "{wrong:?}");
    }
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let node = kubelet();
    let mut child = Command::new(env!("CARGO_BIN_EXE_understudy"))
        .args(["logs", "web", "-c", "beside"])
        .args(node.flags())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_log_can_be_read_as_documents() {
    let node = kubelet();
    let (code, out, err) = node.said(&["logs", "web", "-c", "app", "--output", "json"]);
    assert_eq!(code, 0, "{err}");
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let line = |time: &str, line: &str| json!({ "time": time, "line": line, "partial": false });
    assert_eq!(lines, [line("2026-01-01T00:00:00Z", "one"), line("2026-01-01T00:00:01Z", "two")]);
}
