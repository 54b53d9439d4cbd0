use pod_why::model::{Actor, ActorEvent};

use super::*;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn pod(value: serde_json::Value) -> Pod {
    serde_json::from_value(value).unwrap()
}

fn web() -> Pod {
    pod(serde_json::json!({
        "metadata": { "name": "web-demo", "namespace": "default" },
        "spec": {
            "initContainers": [
                { "name": "write-page" },
                { "name": "clock", "restartPolicy": "Always" },
            ],
            "containers": [{ "name": "server" }],
        },
        "status": {
            "phase": "Running", "podIP": "10.244.0.2", "startTime": "2026-01-01T11:58:00Z",
            "initContainerStatuses": [
                { "name": "write-page", "ready": true, "restartCount": 0, "image": "", "imageID": "",
                  "state": { "terminated": {
                      "exitCode": 0, "reason": "Completed", "finishedAt": "2026-01-01T11:58:05Z" } } },
                { "name": "clock", "ready": true, "started": true, "restartCount": 0, "image": "", "imageID": "",
                  "state": { "running": { "startedAt": "2026-01-01T11:58:06Z" } } },
            ],
            "containerStatuses": [
                { "name": "server", "ready": true, "restartCount": 0, "image": "", "imageID": "",
                  "state": { "running": { "startedAt": "2026-01-01T11:58:07Z" } } },
            ],
        },
    }))
}

fn crash() -> Pod {
    pod(serde_json::json!({
        "metadata": { "name": "crash-demo", "namespace": "default" },
        "spec": { "containers": [{ "name": "crash" }] },
        "status": {
            "phase": "Running", "podIP": "10.244.0.3", "startTime": "2026-01-01T11:58:00Z",
            "containerStatuses": [
                { "name": "crash", "ready": false, "restartCount": 3, "image": "", "imageID": "",
                  "state": { "waiting": { "reason": "CrashLoopBackOff" } },
                  "lastState": { "terminated": {
                      "exitCode": 1, "reason": "Error", "finishedAt": "2026-01-01T11:59:48Z" } } },
            ],
        },
    }))
}

fn actor(name: &str, parent: Option<&str>) -> Actor {
    Actor {
        name: name.to_owned(),
        kind: name.split('/').next().unwrap_or_default().to_owned(),
        parent: parent.map(str::to_owned),
        state: "running".to_owned(),
        incarnation: 1,
        mailbox_bound: 1024,
        handling_p99_us: 64,
        ..Actor::default()
    }
}

fn view() -> View {
    let mut pleg = actor("Pleg", None);
    pleg.state = "restarting".to_owned();
    (pleg.incarnation, pleg.restarts, pleg.mailbox_depth, pleg.handling_p99_us) = (2, 1, 7, 4096);
    pleg.last_crash = Some(pod_why::model::Crash {
        handling: "PodTouched".to_owned(),
        reason: "boom".to_owned(),
        place: Some("actor.rs:1:2".to_owned()),
    });
    let crashed = serde_json::json!({
        "actor": "Pleg", "atMs": 118_000, "event": "crashed",
        "incarnation": 2, "handling": "PodTouched", "reason": "boom", "place": "actor.rs:1:2",
    });
    let event = serde_json::json!({
        "object": { "pod": { "pod": { "uid": "u", "namespace": "default", "name": "crash-demo" },
                             "fieldPath": "spec.containers{crash}" } },
        "type": "Warning", "reason": "BackOff", "count": 4, "firstSeen": "2026-01-01T11:59:00Z",
        "lastSeen": "2026-01-01T11:59:50Z", "message": "Back-off restarting \u{1b}[31mfailed\u{1b}[0m container\n",
    });
    View {
        banner: None,
        server: "http://127.0.0.1:10255".to_owned(),
        read: Some(now()),
        notes: Vec::new(),
        pods: vec![web(), crash()],
        supervision: Supervision {
            uptime_ms: 120_000,
            actors: vec![
                pleg,
                actor("PodWorker/a", Some("PodWorkerPool")),
                actor("PodWorker/b", Some("PodWorkerPool")),
                actor("PodWorkerPool", None),
            ],
            events: vec![serde_json::from_value::<ActorEvent>(crashed).unwrap()],
        },
        events: vec![serde_json::from_value(event).unwrap()],
    }
}

fn screen(view: &View, width: usize, height: usize) -> Vec<String> {
    let lines = render(view, &Look { width, height: Some(height), colour: false }, now());
    assert!(lines.len() <= height, "{} lines", lines.len());
    for line in &lines {
        assert!(text::width(line) <= width, "{line}");
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
    lines
}

#[test]
fn an_ordinary_terminal_shows_everything() {
    let expected = [
        "http://127.0.0.1:10255   up 2m   2 pods   4 actors",
        "",
        "POD                  STATUS            READY  RESTARTS   AGE  IP / LAST EXIT",
        "default/crash-demo   CrashLoopBackOff  0/1           3    2m  10.244.0.3",
        "  └ crash            CrashLoopBackOff  no            3        Error 1, 12s ago",
        "default/web-demo     Running           2/2           0    2m  10.244.0.2",
        "  ├ write-page (in…  Completed         yes           0  115s  Completed 0, 115s…",
        "  ├ clock (sidecar)  Running           yes           0  114s",
        "  └ server           Running           yes           0  113s",
        "",
        "ACTOR          STATE       INC/RESTARTS  MAILBOX   P99  LAST CRASH",
        "Pleg           restarting           2/1   7/1024   4ms  PodTouched: boom at act…",
        "PodWorkerPool  running              1/0   0/1024  64µs",
        "PodWorker ×2   2 running            -/0   0/2048  64µs",
        "",
        "AGE  TYPE     REASON   OBJECT                    EVENT",
        " 2s  Actor    Crashed  Pleg                      PodTouched: boom at actor.rs:1…",
        "10s  Warning  BackOff  default/crash-demo crash  (x4) Back-off restarting ␛[31m…",
    ];
    assert_eq!(screen(&view(), 80, 24), expected);
}

#[test]
fn a_small_terminal_shows_what_needs_a_look() {
    let expected = [
        "http://127.0.0.1:10255   up 2m   2 pods…",
        "POD                 STATUS",
        "default/crash-demo  CrashLoopBackOff",
        "  └ crash           CrashLoopBackOff",
        "default/web-demo    Running",
        "ACTOR          STATE       LAST CRASH",
        "Pleg           restarting  PodTouched: …",
        "PodWorkerPool  running",
        "PodWorker ×2   2 running",
        "AGE  REASON   OBJECT        EVENT",
        " 2s  Crashed  Pleg          PodTouched:…",
        "10s  BackOff  default/cra…  (x4) Back-o…",
    ];
    assert_eq!(screen(&view(), 40, 12), expected);
}

#[test]
fn a_server_that_went_away_is_said_above_what_was_known() {
    let mut view = view();
    view.banner = Some("Demo\nIn a browser".to_owned());
    view.notes = vec!["cannot connect to http://127.0.0.1:10255: Connection refused".to_owned()];
    view.read = Some("2026-01-01T11:59:00Z".parse().unwrap());
    let lines = screen(&view, 80, 24);
    assert_eq!(lines[0], "Demo");
    assert_eq!(lines[1], "In a browser");
    assert_eq!(lines[3], "cannot connect to http://127.0.0.1:10255: Connection refused");
    assert_eq!(lines[4], "What follows is 60s old.");
    assert!(lines.iter().any(|line| line.starts_with("default/web-demo")));
}

#[test]
fn nothing_known_is_a_heading_alone() {
    let view = View {
        server: "http://127.0.0.1:1".to_owned(),
        notes: vec!["Not asked yet.".to_owned()],
        ..View::default()
    };
    assert_eq!(screen(&view, 80, 24), ["http://127.0.0.1:1", "Not asked yet."]);
}

#[test]
fn every_size_holds() {
    let mut view = view();
    view.pods = (0..40)
        .map(|number| {
            let mut pod = if number % 2 == 0 { web() } else { crash() };
            pod.metadata.name = Some(format!("pod-日本語-{number}"));
            pod
        })
        .collect();
    for width in 0..90 {
        for height in 0..30 {
            screen(&view, width, height);
        }
    }
    let lines = screen(&view, 80, 24);
    assert!(lines.iter().any(|line| line.contains("of them in trouble")), "{lines:#?}");
}

#[test]
fn colours_wrap_whole_lines() {
    let lines = render(&view(), &Look { width: 80, height: Some(24), colour: true }, now());
    assert!(lines[0].starts_with("\x1b[1mhttp"));
    assert!(
        lines.iter().any(|line| line.starts_with("\x1b[31mdefault/crash-demo") && line.ends_with("\x1b[0m"))
    );
    assert!(lines.iter().all(|line| line.matches("\x1b[").count() % 2 == 0));
}

#[test]
fn a_pods_status_is_the_word_that_tells_most() {
    let status = |pod: &Pod| pods::pod_row(pod, now()).status;
    assert_eq!(status(&web()), "Running");
    assert_eq!(status(&crash()), "CrashLoopBackOff");
    let mut pod = web();
    pod.status.as_mut().unwrap().init_container_statuses.as_mut().unwrap()[1].started = Some(false);
    assert_eq!(status(&pod), "Init:1/2");
    let mut pod = crash();
    pod.status.as_mut().unwrap().phase = Some("Succeeded".to_owned());
    assert_eq!(status(&pod), "Completed");
    pod.status.as_mut().unwrap().reason = Some("Evicted\x1b".to_owned());
    assert_eq!(status(&pod), "Evicted␛");
    pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    assert_eq!(status(&pod), "Terminating");
    assert_eq!(status(&Pod::default()), "Unknown");
}
