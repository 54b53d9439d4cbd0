//! The built program beside a server that answers as a kubelet's read-only port does.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Output};

use serde_json::{Value, json};

/// Answers every request by its path, as long as the test runs; returns the server's URL.
fn kubelet() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection comes");
            let mut reader = BufReader::new(stream.try_clone().expect("it can be read"));
            let mut request = String::new();
            while reader.read_line(&mut request).is_ok_and(|read| read > 2) {}
            let path = request.split(' ').nth(1).unwrap_or_default();
            let (status, body) = match path {
                "/pods" => ("200 OK", pods().to_string()),
                "/timeline?pod=u-1" => ("200 OK", steps().to_string()),
                "/events" => ("200 OK", json!({ "events": [] }).to_string()),
                _ => ("503 Service Unavailable", "no tree\u{1b}[2J\n".to_owned()),
            };
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
            // A program that has ended reads no answer.
            let _ = stream.write_all((head + &body).as_bytes());
        }
    });
    format!("http://{address}")
}

fn steps() -> Value {
    let step = |what: &str, began: u64, took: u64| {
        json!({ "kind": "call", "by": "runtime", "what": what, "state": "done", "beganMs": began, "lastMs": began,
            "tookUs": took, "longestUs": took, "times": 1 })
    };
    json!({ "uid": "u-1", "uptimeMs": 70_000, "steps": [step("RunPodSandbox", 9000, 31_000),
        step("Start\u{1b}[2JContainer\u{9b}m", 9040, 900)] })
}

fn pods() -> Value {
    let pod = |name: &str, uid: &str, phase: &str, ready: bool, state: Value| {
        let status = json!({
            "name": "app", "image": "", "imageID": "", "restartCount": 2, "ready": ready, "started": ready,
            "state": state,
        });
        let conditions = json!([{ "type": "Ready", "status": if ready { "True" } else { "False" } }]);
        json!({
            "metadata": { "namespace": "default", "name": name, "uid": uid },
            "spec": { "containers": [{ "name": "app", "image": "x" }] },
            "status": { "phase": phase, "containerStatuses": [status], "conditions": conditions },
        })
    };
    let waiting = json!({ "waiting": { "reason": "CreateContainerError", "message": "bad\u{1b}[31m" } });
    json!({ "items": [
        pod("web", "u-1", "Running", true, json!({ "running": {} })),
        pod("bad", "u-2", "Pending", false, waiting),
    ] })
}

fn understudy(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_understudy"));
    command.args(arguments).output().expect("the program runs")
}

/// The exit code, and what was written to standard output and standard error.
fn said(arguments: &[&str]) -> (i32, String, String) {
    let output = understudy(arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("it ends by itself"), text(&output.stdout), text(&output.stderr))
}

#[test]
fn why_answers_in_a_sentence_and_by_its_exit_code() {
    let server = kubelet();
    let (code, out, _) = said(&["why", "web", "--server", &server]);
    assert_eq!((code, out.lines().next()), (0, Some("default/web runs and is Ready")), "{out}");
    assert!(out.contains("  not known: /supervision: 503 Service Unavailable: no tree␛[2J"), "{out}");
    let (code, out, _) = said(&["why", "-n", "default", "bad", "--server", &server]);
    let sentence = "default/bad waits for container app: CreateContainerError (\"bad␛[31m\")";
    assert_eq!((code, out.lines().next()), (3, Some(sentence)), "{out}");
    let (code, out, _) = said(&["why", "u-2", "--server", &server, "--output", "json"]);
    let document: Value = serde_json::from_str(&out).expect("it is JSON");
    assert_eq!((code, &document["verdict"], &document["name"]), (3, &json!("waits"), &json!("bad")));
    assert_eq!(document["sentence"], sentence);
}

#[test]
fn why_tells_wrong_use_from_a_pod_that_is_not_there() {
    let server = kubelet();
    let (code, _, err) = said(&["why", "wep", "--server", &server]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("has no pod \"wep\"; near names: default/web"), "{err}");
    for wrong in [&["why"][..], &["why", "default/web", "-n", "other"], &["why", "a/b/c"]] {
        let mut arguments = wrong.to_vec();
        arguments.extend(["--server", server.as_str()]);
        let (code, _, err) = said(&arguments);
        assert_eq!(code, 2, "{wrong:?}: {err}");
    }
    // The port was bound and is closed again.
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let closed = format!("http://{}", closed.expect("a port is free"));
    let (code, _, err) = said(&["why", "web", "--server", &closed]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("cannot connect") && err.contains("--server names another"), "{err}");
}

#[test]
fn pods_are_listed_as_kubectl_lists_them() {
    let server = kubelet();
    let (code, out, _) = said(&["pods", "--server", &server, "--output", "wide"]);
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected = [
        vec!["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "UID"],
        vec!["default", "bad", "0/1", "CreateContainerError", "2", "<unknown>", "<none>", "u-2"],
        vec!["default", "web", "1/1", "Running", "2", "<unknown>", "<none>", "u-1"],
    ];
    assert_eq!((code, rows.as_slice()), (0, &expected[..]));
    let (_, out, _) = said(&["pods", "--server", &server, "--output", "json", "-n", "default"]);
    let document: Value = serde_json::from_str(&out).expect("it is JSON");
    assert_eq!(document["pods"][1]["status"], "Running");
    let (code, out, err) = said(&["pods", "--server", &server, "-n", "other"]);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    assert!(err.contains("has no such pods"), "{err}");
}

#[test]
fn timeline_tells_what_was_done_step_by_step() {
    let server = kubelet();
    let (code, out, _) = said(&["timeline", "web", "--server", &server]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((code, lines.len(), lines[0]), (0, 3, "default/web: 2 steps, the first 61.0 s ago"), "{out}");
    assert_eq!(lines[2], "  +40 ms         900 µs  runtime  Start␛[2JContainer\u{fffd}m");
    let (code, out, _) = said(&["timeline", "web", "--server", &server, "--output", "json"]);
    let document: Value = serde_json::from_str(&out).expect("it is JSON");
    assert_eq!((code, &document["steps"][0]["tookUs"]), (0, &json!(31_000)));
    assert_eq!(document["steps"][1]["what"], "Start\u{1b}[2JContainer\u{9b}m");
    assert!(!out.contains('\u{9b}'), "a document has no effects on a terminal either: {out}");
    // Nothing was done for this one.
    let (code, _, error) = said(&["timeline", "bad", "--server", &server]);
    assert!(code == 1 && error.contains("/timeline: 503"), "{error}");
    assert_eq!(said(&["timeline", "none", "--server", &server]).0, 1);
}
