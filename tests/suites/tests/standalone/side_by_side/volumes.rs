//! emptyDir and hostPath volumes.

use std::fs;
use std::os::unix::net::UnixListener;

use serde_json::{Value, json};
use testkit::process::eventually;

use crate::Shared;
use crate::node::{LATER, Node, SOON, mounts_below};
use crate::spec::{OBEDIENT, containers, shell, sleeper, with};

pub const ALL: &[(&str, Shared)] = &[
    ("a_host_path_of_the_wrong_type_is_told_and_tried_again", wrong_type),
    ("an_empty_dir_is_shared_and_kept_over_restarts", shared_and_kept),
    ("an_empty_dir_in_memory_is_a_tmpfs_of_its_size", in_memory),
    ("host_paths_are_checked_made_and_mounted", host_paths),
];

fn mounting(container: Value, mounts: Value) -> Value {
    with(container, json!({"volumeMounts": mounts}))
}

fn shared_and_kept(node: &Node) {
    let here = json!([{"name": "shared", "mountPath": "/here"}]);
    let there = json!([{"name": "shared", "mountPath": "/there"}]);
    // The container ends once after its first line, which the second instance finds.
    let writer = format!("echo line >>/here/lines; test $(wc -l </here/lines) -gt 1 || exit 1; {OBEDIENT}");
    let reader = format!(
        "while ! test -s /there/lines || test $(wc -l </there/lines) -lt 2; do sleep 0.1; done; \
         ls -ld /there | cut -c1-10; cat /there/lines; {OBEDIENT}"
    );
    let spec = with(
        containers([mounting(shell("writer", &writer), here), mounting(shell("reader", &reader), there)]),
        json!({"volumes": [{"name": "shared", "emptyDir": {}}]}),
    );
    let file = node.pod("shared", spec);
    let pod = file.wait("the writer restarted", SOON, |pod| pod.restarts("writer") == 1 && pod.is_ready());
    assert_eq!(pod.restarts("reader"), 0);
    eventually("the reader sees both lines", SOON, || {
        let log = file.log(&pod, "reader", 0)?;
        if log == ["drwxrwxrwx", "line", "line"] { Ok(()) } else { Err(format!("{log:?}")) }
    });
    let on_host =
        node.root().join("pods").join(pod.uid()).join("volumes/kubernetes.io~empty-dir/shared/lines");
    assert_eq!(fs::read_to_string(on_host).expect("where upstream has it"), "line\nline\n");
    file.remove();
    file.stopped(pod.uid(), SOON);
    let dir = node.root().join("pods").join(pod.uid());
    eventually("the volume is removed", SOON, || match dir.exists() {
        false => Ok(()),
        true => Err(format!("{} is there", dir.display())),
    });
}

fn in_memory(node: &Node) {
    let script = format!(
        "echo line >>/mem/lines; test $(wc -l </mem/lines) -gt 1 || exit 1; \
         grep ' /mem ' /proc/mounts | cut -d' ' -f3; df -m /mem | tail -n 1 | awk '{{print $2}}'; {OBEDIENT}"
    );
    let mount = json!([{"name": "mem", "mountPath": "/mem"}]);
    let spec = with(
        containers([mounting(shell("main", &script), mount)]),
        json!({"volumes": [{"name": "mem", "emptyDir": {"medium": "Memory", "sizeLimit": "3Mi"}}]}),
    );
    let file = node.pod("memory", spec);
    let pod =
        file.wait("restarted with the line kept", SOON, |pod| pod.restarts("main") == 1 && pod.is_ready());
    eventually("a tmpfs of 3 MiB", SOON, || {
        let log = file.log(&pod, "main", 1)?;
        if log == ["tmpfs", "3"] { Ok(()) } else { Err(format!("{log:?}")) }
    });
    let below = node.root().join("pods").join(pod.uid());
    assert_eq!(mounts_below(&below).len(), 1, "{:?}", mounts_below(&below));
    file.remove();
    file.stopped(pod.uid(), SOON);
    eventually("it is unmounted and removed", SOON, || match (mounts_below(&below), below.exists()) {
        (mounts, false) if mounts.is_empty() => Ok(()),
        (mounts, exists) => Err(format!("{mounts:?}, the pod's directory is there: {exists}")),
    });
}

fn host_paths(node: &Node) {
    let dir = node.gates().join("host-paths");
    fs::create_dir_all(dir.join("present")).expect("a directory");
    fs::write(dir.join("present/file"), "from the host\n").expect("a file");
    let _listener = UnixListener::bind(dir.join("socket")).expect("a socket");
    let volumes = [
        ("directory", "present", "Directory"),
        ("file", "present/file", "File"),
        ("made-directory", "made/deeper", "DirectoryOrCreate"),
        ("made-file", "present/made", "FileOrCreate"),
        ("socket", "socket", "Socket"),
        ("unchecked", "present", ""),
    ];
    let paths: Vec<Value> = volumes
        .iter()
        .map(|(name, path, kind)| json!({"name": name, "hostPath": {"path": dir.join(path), "type": kind}}))
        .chain([json!({"name": "null", "hostPath": {"path": "/dev/null", "type": "CharDevice"}})])
        .collect();
    let mounts = json!([
        {"name": "directory", "mountPath": "/v/directory"},
        {"name": "file", "mountPath": "/v/file"},
        {"name": "made-directory", "mountPath": "/v/made-directory"},
        {"name": "made-file", "mountPath": "/v/made-file"},
        {"name": "socket", "mountPath": "/v/socket"},
        {"name": "unchecked", "mountPath": "/v/read-only", "readOnly": true},
        {"name": "null", "mountPath": "/v/null"},
    ]);
    let script = format!(
        "cat /v/directory/file /v/file; echo hello >/v/made-directory/hello; echo made >/v/made-file; \
         test -S /v/socket && echo a socket; touch /v/read-only/refused 2>/dev/null || echo read-only; \
         test -c /v/null && echo a device; {OBEDIENT}"
    );
    let spec = with(containers([mounting(shell("main", &script), mounts)]), json!({"volumes": paths}));
    let file = node.pod("host-paths", spec);
    let pod = file.ready();
    let wanted = ["from the host", "from the host", "a socket", "read-only", "a device"];
    eventually("all mounts are seen", SOON, || {
        let log = file.log(&pod, "main", 0)?;
        if log == wanted { Ok(()) } else { Err(format!("{log:?}")) }
    });
    assert_eq!(fs::read_to_string(dir.join("made/deeper/hello")).expect("made by the pod"), "hello\n");
    assert_eq!(fs::read_to_string(dir.join("present/made")).expect("made by the kubelet"), "made\n");
    file.remove();
    file.gone(&pod);
    assert_eq!(
        fs::read_to_string(dir.join("present/file")).expect("the host's files stay"),
        "from the host\n"
    );
}

fn wrong_type(node: &Node) {
    let path = node.gates().join("wrong");
    fs::create_dir_all(&path).expect("a directory");
    let volumes = json!([{"name": "config", "hostPath": {"path": path, "type": "File"}}]);
    let mounts = json!([{"name": "config", "mountPath": "/config"}]);
    let file = node.pod(
        "wrong-type",
        with(containers([mounting(sleeper("main"), mounts)]), json!({"volumes": volumes})),
    );
    let pod = file.wait("waiting for its volume", SOON, |pod| pod.container("main").is_object());
    let said = format!("hostPath type check failed: {} is not a file", path.display());
    let event = eventually("a clear FailedMount", SOON, || {
        let events = file.events(pod.uid())?;
        let found =
            events.iter().find(|event| event.reason == "FailedMount" && event.message.contains(&said));
        found.cloned().ok_or_else(|| format!("{events:?}"))
    });
    assert_eq!(event.kind, "Warning");
    assert!(event.message.contains("config"), "it names the volume: {}", event.message);
    let pod = file.look().expect("it is listed");
    assert_eq!((pod.phase(), pod.waiting("main").0), ("Pending", "ContainerCreating"), "{}", pod.status());

    fs::remove_dir(&path).expect("nothing is in it");
    fs::write(&path, "").expect("a file in its place");
    file.wait("Running after the volume is right", LATER, |pod| pod.is_ready());
}
