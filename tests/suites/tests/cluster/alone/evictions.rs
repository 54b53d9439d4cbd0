//! A node whose disk is filled by a pod. Its root is a small file system of its own, so that the machine's other disks
//! do not matter, and no pods of other nodes are touched.

use std::process::Command;
use std::sync::Arc;

use serde_json::json;
use testkit::process::eventually;

use crate::member::{Member, OwnPod, condition};
use crate::node::{LATER, Node, SOON};
use crate::setting::Setting;
use crate::spec::{OBEDIENT, containers, shell, sleeper, with};

fn small_root(node: &Node) {
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=256m,mode=0755", "tmpfs"])
        .arg(node.root())
        .status();
    assert!(mounted.expect("mount runs").success(), "a tmpfs is mounted");
}

fn waits_for_pressure(member: &Member, status: &str) {
    eventually(&format!("DiskPressure is {status}"), LATER, || {
        let node = member.object()?;
        let found = condition(&node, "DiskPressure");
        if found["status"] == status { Ok(()) } else { Err(found.to_string()) }
    });
}

pub fn full_disk(setting: &Arc<Setting>) {
    let kubelet = json!({
        "evictionHard": {"nodefs.available": "128Mi"},
        "evictionPressureTransitionPeriod": "60s",
    });
    let member = Member::prepared(setting, "evicts", kubelet, small_root);
    let fixed = member.node.pod("fixed", containers([sleeper("main")]));
    let mirror = member.named_pod(fixed.ready().name().to_owned());
    let quiet = member.pod("quiet", containers([sleeper("main")]));
    let before = [mirror.ready(), quiet.ready()];

    let fills = shell("main", &format!("dd if=/dev/zero of=/data/x bs=1M count=170; {OBEDIENT}"));
    let fills = with(fills, json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}));
    let spec = with(containers([fills]), json!({"volumes": [{"name": "data", "emptyDir": {}}]}));
    let filler = member.pod("filler", spec);
    let ended = filler.wait("Failed", LATER, |pod| pod.phase() == "Failed");
    assert_eq!(ended.text("/status/reason"), "Evicted");
    let words = "The node was low on resource: ephemeral-storage. Threshold quantity: 128Mi, available: ";
    let message = ended.text("/status/message").to_owned();
    assert!(message.starts_with(words) && message.ends_with(". "), "{message}");
    let disrupted = ended.condition("DisruptionTarget");
    assert_eq!(
        (&disrupted["status"], &disrupted["reason"]),
        (&json!("True"), &json!("TerminationByKubelet"))
    );
    assert_eq!(disrupted["message"], json!(message));
    filler.event(&ended, "Evicted", words);

    let refused = member.pod("refused", containers([sleeper("main")]));
    let refused = refused.wait("refused", SOON, |pod| pod.phase() == "Failed");
    assert_eq!(refused.text("/status/reason"), "Evicted");
    let why = "Pod was rejected: The node had condition: [DiskPressure]. ";
    assert_eq!(refused.text("/status/message"), why);
    waits_for_pressure(&member, "True");
    waits_for_pressure(&member, "False");
    member.pod("late", containers([sleeper("main")])).ready();
    for (pod, before) in [&mirror, &quiet].into_iter().zip(&before) {
        let after = pod.look().expect("the pod is there");
        assert_eq!(after.container_id("main"), before.container_id("main"), "{}", pod.name());
        assert!(after.is_ready(), "{}", after.status());
    }
}

/// The pod has ended with this message, and without a condition about a disruption.
fn exceeded(pod: &OwnPod<'_>, message: &str) {
    let ended = pod.wait("Failed", LATER, |pod| pod.phase() == "Failed");
    assert_eq!((ended.text("/status/reason"), ended.text("/status/message")), ("Evicted", message));
    assert!(ended.condition("DisruptionTarget").is_null(), "{}", ended.status());
    pod.event(&ended, "Evicted", message.trim_end());
}

pub fn limits_of_local_storage(setting: &Arc<Setting>) {
    let kubelet = json!({"evictionHard": {"pid.available": "1"}});
    let member = Member::prepared(setting, "limits", kubelet, |_| ());
    let mounts = json!({"volumeMounts": [{"name": "x", "mountPath": "/x"}]});
    let sized = |script: &str, size: &str| {
        let main = with(shell("main", &format!("{script}; {OBEDIENT}")), mounts.clone());
        with(containers([main]), json!({"volumes": [{"name": "x", "emptyDir": {"sizeLimit": size}}]}))
    };
    let limited = |script: &str, limit: &str| {
        let limits = json!({"resources": {"limits": {"ephemeral-storage": limit}}});
        with(shell("main", &format!("{script}; {OBEDIENT}")), limits)
    };
    let writes = |file: &str, mib: u32| format!("dd if=/dev/zero of={file} bs=1M count={mib}");
    let neighbour = member.pod("neighbour", sized(&writes("/x/y", 2), "16Mi"));
    let before = neighbour.ready();
    let volume = member.pod("volume", sized(&writes("/x/y", 3), "1Mi"));
    let layer = member.pod("layer", containers([limited(&writes("/y", 3), "1Mi")]));
    let two = [
        limited("true", "64Mi"),
        with(
            limited("head -c 2000000 /dev/zero | tr '\\0' 'x' | fold -w 1000", "1Mi"),
            json!({"name": "talks"}),
        ),
    ];
    let talks = member.pod("talks", containers(two));
    exceeded(&volume, "Usage of EmptyDir volume \"x\" exceeds the limit \"1Mi\". ");
    exceeded(&talks, "Container talks exceeded its local ephemeral storage limit \"1Mi\". ");
    exceeded(&layer, "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ");
    let after = neighbour.look().expect("the pod is there");
    assert!(after.is_ready(), "{}", after.status());
    assert_eq!(after.container_id("main"), before.container_id("main"));
}
