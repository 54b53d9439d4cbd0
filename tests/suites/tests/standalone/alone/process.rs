//! The kubelet as a process: its messages to systemd, its limits, signals.

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use rustix::process::Signal;
use testkit::process::eventually;

use crate::Alone;
use crate::environment::Environment;
use crate::node::{Node, Options, SOON};

pub const ALL: &[(&str, Alone)] = &[
    ("systemd_hears_that_it_is_ready_and_lives", systemd),
    ("a_watchdog_that_is_too_short_is_refused", short_watchdog),
    ("a_second_signal_ends_it_at_once", second_signal),
    ("its_open_files_are_limited_as_configured", limits),
    ("another_one_that_wants_its_lock_file_ends_it", lock_file),
];

fn systemd(environment: &Arc<Environment>) {
    let mut node = Node::prepare(environment, "systemd", Options::default());
    let socket = node.gates().join("notify");
    let notified = UnixDatagram::bind(&socket).expect("a socket in the node's directory");
    notified.set_read_timeout(Some(SOON)).expect("a timeout");
    let hear = || {
        let mut text = [0; 1024];
        let length = notified.recv(&mut text).expect("systemd is told something");
        String::from_utf8_lossy(&text[..length]).trim_end().to_owned()
    };
    node.set_variable("NOTIFY_SOCKET", socket.as_os_str());
    node.set_variable("WATCHDOG_USEC", "3000000".as_ref());
    node.start_kubelet();
    assert_eq!(hear(), "READY=1");
    for _ in 0..3 {
        assert_eq!(hear(), "WATCHDOG=1");
    }
    node.signal_kubelet(Signal::TERM);
    while hear() != "STOPPING=1" {}
    assert_eq!(node.kubelet_ends().code(), Some(0));
}

fn lock_file(environment: &Arc<Environment>) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let flag = format!("--lock-file={}", dir.path().join("lock").display());
    let options = || Options {
        flags: vec![flag.clone().into(), "--exit-on-lock-contention".into()],
        ..Options::default()
    };
    let first = Node::alone(environment, "lock-first", options());
    let second = Node::alone(environment, "lock-second", options());
    assert_eq!(first.kubelet_ends().code(), Some(0));
    assert!(first.log().contains("Another process wants the lock file"), "{}", first.log());
    second.assert_alive();
}

fn short_watchdog(environment: &Arc<Environment>) {
    let mut node = Node::prepare(environment, "short-watchdog", Options::default());
    node.set_variable("WATCHDOG_USEC", "500000".as_ref());
    node.start_kubelet();
    assert_eq!(node.kubelet_ends().code(), Some(1));
    let words = "create health checker: configure watchdog timeout too small: 500ms";
    assert!(node.log_tail().contains(words), "{}", node.log_tail());
}

/// Both signals arrive together, while the kubelet is stopped: the second is pending when the first is handled.
fn second_signal(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "second-signal", Options::default());
    for signal in [Signal::STOP, Signal::INT, Signal::TERM, Signal::CONT] {
        node.signal_kubelet(signal);
    }
    assert_eq!(node.kubelet_ends().code(), Some(1));
}

fn limits(environment: &Arc<Environment>) {
    let kubelet = serde_json::json!({"maxOpenFiles": 1000});
    let node = Node::alone(environment, "limits", Options { kubelet, ..Options::default() });
    let proc = format!("/proc/{}", node.kubelet_pid());
    eventually("the limit is set", SOON, || {
        let limits = std::fs::read_to_string(format!("{proc}/limits")).map_err(|error| error.to_string())?;
        let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
        if files.split_whitespace().nth(3) == Some("1000") { Ok(()) } else { Err(files.to_owned()) }
    });
}
