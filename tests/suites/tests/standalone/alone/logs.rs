//! A container that writes much: its log is rotated while it writes, and while a client follows it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use testkit::process::eventually;

use super::https::{CLOSE, ask, certificates, connect, node};
use crate::Alone;
use crate::environment::Environment;
use crate::node::SOON;
use crate::spec::{OBEDIENT, containers, shell};

pub const ALL: &[(&str, Alone)] = &[("a_log_that_grows_is_rotated_and_followed_without_a_gap", rotated)];

/// Number of lines of 1 KiB.
const LINES: usize = 6_000;
const MIB: u64 = 1 << 20;

/// Names and sizes of the files in a directory.
fn files(dir: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let file = |entry: fs::DirEntry| {
        let size = entry.metadata().ok()?.len();
        Some((entry.file_name().into_string().ok()?, size))
    };
    let mut files: Vec<(String, u64)> = entries.filter_map(file).collect();
    files.sort();
    files
}

fn rotated(environment: &Arc<Environment>) {
    let certificates = certificates();
    let fields = json!({
        "containerLogMaxSize": "1Mi", "containerLogMaxFiles": 3, "containerLogMonitorInterval": "3s",
    });
    let (node, _files) = node(environment, "logs", &certificates, fields);
    // Six MiB in some ten seconds, which are several looks at the log, once a client follows.
    let script = format!(
        "pad=$(head -c 1000 /dev/zero | tr '\\0' x); echo begun; while ! [ -e /tmp/go ]; do sleep 0.1; done; \
         i=0; while [ $i -lt {LINES} ]; do echo \"line-$i $pad\"; i=$((i+1)); \
         [ $((i % 60)) != 0 ] || sleep 0.1; done; echo all-written; {OBEDIENT}"
    );
    let file = node.pod("writes", containers([shell("main", &script)]));
    let pod = file.ready();
    let name = format!("{}/{}", node.namespace, pod.text("/metadata/name"));
    let dir = file.log_dir(&pod).join("main");
    let mut follower = connect(node.server, &certificates, true).expect("the server is there");
    // A client of HTTP/1.0 gets the body without chunks.
    let request = format!("GET /containerLogs/{name}/main?follow=true HTTP/1.0\r\nHost: kubelet\r\n\r\n");
    follower.write_all(request.as_bytes()).expect("the request goes out");
    let mut lines = BufReader::new(follower).lines().map(|line| line.expect("more lines"));
    lines.by_ref().find(|line| line == "begun").expect("what was written before");
    let go = format!("POST /run/{name}/main?cmd=touch%20/tmp/go");
    ask(&node, &certificates, true, &go, CLOSE, |_| false);
    let mut expected = 0;
    for line in lines.take_while(|line| line != "all-written") {
        assert!(line.starts_with(&format!("line-{expected} ")), "{expected} is not {:.40}", line);
        expected += 1;
    }
    assert_eq!(expected, LINES, "the end came early");
    eventually("few files of little size", SOON, || {
        let found = files(&dir);
        let bytes: u64 = found.iter().map(|(_, size)| size).sum();
        let compressed = found.iter().any(|(name, _)| name.ends_with(".gz"));
        let whole = found.iter().all(|(name, _)| !name.ends_with(".tmp"));
        let fits = found.len() <= 3 && bytes <= 4 * MIB && compressed && whole;
        if fits { Ok(()) } else { Err(format!("{found:?}")) }
    });
    assert_eq!(files(&dir)[0].0, "0.log");
    let tail = format!("GET /containerLogs/{name}/main?tailLines=1");
    let last = ask(&node, &certificates, true, &tail, CLOSE, |_| false);
    assert!(last.starts_with("HTTP/1.1 200"), "what is written now is read: {last}");
    file.remove();
    file.gone(&pod);
}
