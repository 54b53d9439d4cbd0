//! FlexVolume drivers: a shell script that binds a directory.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use serde_json::json;
use testkit::process::eventually;

use crate::Alone;
use crate::environment::Environment;
use crate::node::{LATER, Node, Options, SOON, mounts_below};
use crate::spec::{OBEDIENT, containers, shell, with};

pub const ALL: &[(&str, Alone)] = &[("a_driver_that_appears_binds_a_directory_and_undoes_it", binds)];

/// Installs the driver `understudy.dev/bind`, which notes its calls in `log` and binds `data`.
fn install(drivers: &Path, log: &Path, data: &Path) {
    let script = format!(
        r#"#!/bin/sh
echo "$1 $2" >>'{}'
ok() {{ echo '{{"status": "Success"}}'; }}
failed() {{ echo '{{"status": "Failure", "message": "it cannot be done"}}'; exit 1; }}
case "$1" in
init) echo '{{"status": "Success", "capabilities": {{"attach": false}}}}' ;;
mount) mount --bind '{}' "$2" && ok || failed ;;
unmount) umount "$2" && ok || failed ;;
*) echo '{{"status": "Not supported"}}'; exit 1 ;;
esac
"#,
        log.display(),
        data.display()
    );
    let dir = drivers.join("understudy.dev~bind");
    fs::create_dir_all(&dir).expect("a directory");
    // Written by a process of its own: a program that a process has open for writing cannot be run.
    let write = r#"printf %s "$1" >"$2.new"; chmod 755 "$2.new"; mv "$2.new" "$2""#;
    let written = Command::new("sh").args(["-c", write, "sh", &script]).arg(dir.join("bind")).status();
    assert!(written.expect("a shell").success());
}

fn binds(environment: &Arc<Environment>) {
    let place = tempfile::tempdir().expect("a temporary directory");
    let [drivers, log, data] = ["drivers", "log", "data"].map(|name| place.path().join(name));
    fs::create_dir(&data).expect("a directory");
    fs::write(data.join("file"), "of the driver\n").expect("a file");
    let options = Options { kubelet: json!({"volumePluginDir": drivers}), ..Options::default() };
    let node = Node::alone(environment, "flex", options);
    let main = with(
        shell("main", &format!("cat /data/file; echo written >/data/made; {OBEDIENT}")),
        json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}),
    );
    let volumes = json!([{"name": "data", "flexVolume": {"driver": "understudy.dev/bind"}}]);
    let file = node.pod("flex", with(containers([main]), json!({"volumes": volumes})));
    let missing = "flexVolume driver understudy.dev/bind: it is not in";
    let waits = file.wait("waiting", SOON, |pod| !pod.is_ready());
    eventually("its driver to be missed", SOON, || {
        let events = file.events(waits.uid())?;
        let is_told = events.iter().any(|event| event.message.contains(missing));
        if is_told { Ok(()) } else { Err(format!("{events:?}")) }
    });

    install(&drivers, &log, &data);
    let pod = file.wait("Ready with its volume", LATER, |pod| pod.is_ready());
    eventually("the file is seen", SOON, || {
        let said = file.log(&pod, "main", 0)?;
        if said == ["of the driver"] { Ok(()) } else { Err(format!("{said:?}")) }
    });
    let v = node.root().join("pods").join(pod.uid()).join("volumes/understudy.dev~bind/data");
    let calls = || fs::read_to_string(&log).unwrap_or_default();
    let mounted = format!("mount {}", v.display());
    assert_eq!(calls().lines().filter(|call| **call == *mounted).count(), 1, "{}", calls());
    node.kill_kubelet();
    node.start_kubelet_again();
    file.ready();
    assert_eq!(mounts_below(&v).len(), 1, "it is mounted no second time: {}", calls());

    file.remove();
    file.gone(&pod);
    assert_eq!(mounts_below(&v).len(), 0);
    assert!(calls().lines().any(|call| call == format!("unmount {}", v.display())), "{}", calls());
    assert_eq!(calls().lines().filter(|call| **call == *mounted).count(), 1, "{}", calls());
    let kept = ["file", "made"].map(|name| fs::read_to_string(data.join(name)).unwrap_or_default());
    assert_eq!(kept, ["of the driver\n", "written\n"], "what is in the directory stays");
}
