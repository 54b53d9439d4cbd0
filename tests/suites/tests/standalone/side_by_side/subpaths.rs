//! Parts of volumes.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use testkit::process::eventually;

use crate::Shared;
use crate::node::{Node, SOON, mounts_below};
use crate::spec::{OBEDIENT, containers, shell, sleeper, with};

pub const ALL: &[(&str, Shared)] = &[
    ("parts_of_volumes_are_mounted_kept_and_given_back", parts),
    ("a_part_is_named_by_variables", by_variables),
    ("no_link_in_a_volume_leads_to_the_node", links),
    ("read_only_reaches_as_far_as_the_runtime_can", recursive_read_only),
    ("an_empty_dir_stays_as_its_containers_have_made_it", stays),
];

fn mounting(container: Value, mounts: Value) -> Value {
    with(container, json!({"volumeMounts": mounts}))
}

fn parts(node: &Node) {
    let dir = node.gates().join("parts");
    fs::create_dir_all(dir.join("d/deeper")).expect("a directory");
    fs::write(dir.join("d/file"), "from the host\n").expect("a file");
    fs::write(dir.join("secret"), "not for them\n").expect("a file");
    let mounts = json!([
        {"name": "host", "mountPath": "/part", "subPath": "d"},
        {"name": "host", "mountPath": "/etc/file", "subPath": "d/file", "readOnly": true},
        {"name": "empty", "mountPath": "/made", "subPath": "a/b"},
        {"name": "empty", "mountPath": "/all"},
        {"name": "memory", "mountPath": "/memory", "subPath": "m"},
    ]);
    // The container ends once; the second instance finds the files of the first.
    let script = format!(
        "ls /part; cat /etc/file; touch /etc/file 2>/dev/null || echo read-only; ls -ld /all/a /made | cut -c1-10; \
         echo line >>/made/lines; echo line >>/memory/lines; test $(wc -l </all/a/b/lines) -gt 1 || exit 1; \
         cat /memory/lines; {OBEDIENT}"
    );
    let volumes = json!([
        {"name": "host", "hostPath": {"path": dir, "type": "Directory"}},
        {"name": "empty", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    ]);
    let spec = with(containers([mounting(shell("main", &script), mounts)]), json!({"volumes": volumes}));
    let file = node.pod("parts", spec);
    let pod = file.wait("restarted once", SOON, |pod| pod.restarts("main") == 1 && pod.is_ready());
    let wanted = ["deeper", "file", "from the host", "read-only", "drwxrwxrwx", "drwxrwxrwx", "line", "line"];
    eventually("the parts, also after a restart", SOON, || {
        let log = file.log(&pod, "main", 1)?;
        if log == wanted { Ok(()) } else { Err(format!("{log:?}")) }
    });
    let below = node.root().join("pods").join(pod.uid());
    let upstreams = |volume: &str, index: u32| below.join(format!("volume-subpaths/{volume}/main/{index}"));
    let mounted = mounts_below(&below);
    for (volume, index) in [("host", 0), ("host", 1), ("empty", 2), ("memory", 4)] {
        let at = upstreams(volume, index);
        assert_eq!(mounted.iter().filter(|path| **path == at).count(), 1, "{at:?} once in {mounted:?}");
    }
    file.remove();
    file.stopped(pod.uid(), SOON);
    eventually("all is unmounted and removed", SOON, || match (mounts_below(&below), below.exists()) {
        (mounts, false) if mounts.is_empty() => Ok(()),
        (mounts, exists) => Err(format!("{mounts:?}, the pod's directory is there: {exists}")),
    });
    assert_eq!(fs::read_to_string(dir.join("d/file")).expect("the host's files stay"), "from the host\n");
}

fn by_variables(node: &Node) {
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let container = |name: &str, expression: &str, script: &str| {
        with(
            shell(name, script),
            json!({
                "env": [{"name": "POD", "valueFrom": field("metadata.name")}, {"name": "SUB", "value": "x-$(POD)"}],
                "volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": expression}],
            }),
        )
    };
    let writer = container("writer", "logs/$(SUB)", &format!("echo here >/v/f; {OBEDIENT}"));
    let nobody = container("nobody", "$(NONE)/$(POD)", OBEDIENT);
    let spec = with(containers([writer, nobody]), json!({"volumes": [{"name": "v", "emptyDir": {}}]}));
    let file = node.pod("by-variables", spec);
    let pod = file.wait("one runs and one cannot", SOON, |pod| {
        pod.is_running("writer") && pod.waiting("nobody").0 == "CreateContainerConfigError"
    });
    assert_eq!(pod.waiting("nobody").1, "missing value for NONE");
    let volume = node.root().join("pods").join(pod.uid()).join("volumes/kubernetes.io~empty-dir/v");
    let written = volume.join(format!("logs/x-{}/f", pod.name()));
    eventually("the file where the variables say", SOON, || {
        let text = fs::read_to_string(&written).map_err(|error| format!("{written:?}: {error}"))?;
        if text == "here\n" { Ok(()) } else { Err(text) }
    });
}

fn links(node: &Node) {
    let outside = node.gates().join("outside");
    fs::create_dir_all(outside.join("etc")).expect("a directory");
    let all = json!([{"name": "v", "mountPath": "/v"}]);
    let make = "ln -s /etc /v/absolute; ln -s ../../../../../../gates/outside /v/relative; ln -s /proc/self/root /v/magic; \
                mkdir /v/real; echo inside >/v/real/file; ln -s real /v/within";
    let init = mounting(shell("init", make), all);
    let part = |name: &str, path: &str| {
        let script = format!("ls /part; {OBEDIENT}");
        mounting(shell(name, &script), json!([{"name": "v", "mountPath": "/part", "subPath": path}]))
    };
    let bad = [
        ("absolute", "absolute"),
        ("below-absolute", "absolute/new"),
        ("relative", "relative/etc"),
        ("magic", "magic/etc"),
    ];
    let mut list: Vec<Value> = bad.iter().map(|(name, path)| part(name, path)).collect();
    list.push(part("within", "within"));
    let spec =
        with(containers(list), json!({"initContainers": [init], "volumes": [{"name": "v", "emptyDir": {}}]}));
    let file = node.pod("links", spec);
    let pod = file.wait("the bad ones refused, the good one running", SOON, |pod| {
        let refused = |(name, _): &(&str, &str)| pod.waiting(name).0 == "CreateContainerConfigError";
        bad.iter().all(refused) && pod.is_running("within")
    });
    for (name, _) in bad {
        let text = format!("failed to prepare subPath for volumeMount \"v\" of container {name:?}");
        assert_eq!(pod.waiting(name).1, text);
        file.event(&pod, "Warning", "Failed", &format!("Error: {text}"));
    }
    eventually("what lies within is seen", SOON, || {
        let log = file.log(&pod, "within", 0)?;
        if log == ["file"] { Ok(()) } else { Err(format!("{log:?}")) }
    });
    assert_eq!(fs::read_dir(&outside).expect("a directory").count(), 1, "nothing was made outside");
    let below = node.root().join("pods").join(pod.uid());
    assert_eq!(mounts_below(&below).len(), 1, "only the good part is mounted: {:?}", mounts_below(&below));
}

fn recursive_read_only(node: &Node) {
    let dir = node.gates().join("recursive");
    let below = dir.join("below");
    fs::create_dir_all(&below).expect("a directory");
    let mounted = Command::new("mount").args(["-n", "-t", "tmpfs", "tmpfs"]).arg(&below).status();
    assert!(mounted.is_ok_and(|status| status.success()), "a tmpfs below the volume");
    let main = |name: &str, mode: &str| {
        let mount = json!([{"name": "v", "mountPath": "/v", "readOnly": true, "recursiveReadOnly": mode}]);
        let script = format!(
            "for f in /v /v/below; do touch $f/x 2>/dev/null && echo written || echo refused; done; {OBEDIENT}"
        );
        mounting(shell(name, &script), mount)
    };
    let list = [main("disabled", "Disabled"), main("possible", "IfPossible"), main("enabled", "Enabled")];
    let spec = with(
        containers(list),
        json!({"volumes": [{"name": "v", "hostPath": {"path": dir, "type": "Directory"}}]}),
    );
    let file = node.pod("recursive", spec);
    let can = node.cri.makes_recursive_read_only();
    let pod = file.wait("as the runtime can", SOON, |pod| {
        let enabled = pod.is_running("enabled") || pod.waiting("enabled").0 == "CreateContainerConfigError";
        pod.is_running("disabled") && pod.is_running("possible") && enabled
    });
    let plain = ["refused", "written"];
    let whole = ["refused", "refused"];
    let expect = |name: &str, wanted: [&str; 2]| {
        eventually(&format!("what {name} may write"), SOON, || {
            let log = file.log(&pod, name, 0)?;
            if log == wanted { Ok(()) } else { Err(format!("{log:?}")) }
        });
    };
    expect("disabled", plain);
    expect("possible", if can { whole } else { plain });
    if can {
        expect("enabled", whole);
    } else {
        let text = "failed to resolve recursive read-only mode: volume \"v\" requested recursive read-only mode, but it \
                    is not supported by the runtime";
        assert_eq!(pod.waiting("enabled").1, text);
    }
    file.remove();
    file.gone(&pod);
    let unmounted = Command::new("umount").args(["-n"]).arg(&below).status();
    assert!(unmounted.is_ok_and(|status| status.success()), "nothing holds what the host has mounted");
}

fn stays(node: &Node) {
    let script = format!(
        "ls -ld /v | cut -c1-10; test -e /v/again || {{ touch /v/again; chmod 0700 /v; exit 1; }}; {OBEDIENT}"
    );
    let main = mounting(shell("main", &script), json!([{"name": "v", "mountPath": "/v"}]));
    let spec =
        with(containers([main, sleeper("other")]), json!({"volumes": [{"name": "v", "emptyDir": {}}]}));
    let file = node.pod("stays", spec);
    let pod = file.wait("restarted once", SOON, |pod| pod.restarts("main") == 1 && pod.is_ready());
    eventually("the mode is the container's", SOON, || {
        let modes = [file.log(&pod, "main", 0)?, file.log(&pod, "main", 1)?].concat();
        if modes == ["drwxrwxrwx", "drwx------"] { Ok(()) } else { Err(format!("{modes:?}")) }
    });
}
