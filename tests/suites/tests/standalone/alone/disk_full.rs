//! The file system with the kubelet's root directory fills up, and is emptied again.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use testkit::process::eventually;

use crate::Alone;
use crate::environment::Environment;
use crate::node::{LATER, Node, Options, SOON};
use crate::spec::{containers, exec_probe, sleeper, with};

pub const ALL: &[(&str, Alone)] = &[("a_full_disk_corrupts_nothing_and_is_recovered_from", full)];

/// A small file system on the node's root; it is removed also when the case fails.
struct Small<'a>(&'a Node);

impl<'a> Small<'a> {
    fn mount(node: &'a Node) -> Self {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m,nr_inodes=2000,mode=0755", "tmpfs"])
            .arg(node.root())
            .status();
        assert!(mounted.expect("mount runs").success(), "a tmpfs is mounted");
        Self(node)
    }

    fn filler(&self) -> std::path::PathBuf {
        self.0.root().join("filler")
    }

    /// Takes all free blocks and inodes.
    fn fill(&self) {
        let dir = self.filler();
        fs::create_dir(&dir).expect("there is room yet");
        let mut file = File::create(dir.join("blocks")).expect("there is room yet");
        while file.write_all(&[0; 4096]).is_ok() {}
        for number in 0_u32.. {
            if File::create(dir.join(number.to_string())).is_err() {
                break;
            }
        }
    }

    fn empty(&self) {
        fs::remove_dir_all(self.filler()).expect("what was put there is there");
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        // Unmounts both the kubelet's own mount of its root and this one; files still in use go with the node.
        for _ in 0..2 {
            let _gone = Command::new("umount").args(["-n", "-l"]).arg(self.0.root()).output();
        }
    }
}

fn hosts_of(root: &Path, uid: &str) -> String {
    fs::read_to_string(root.join("pods").join(uid).join("etc-hosts")).expect("the hosts file of a pod")
}

fn full(environment: &Arc<Environment>) {
    let node = Node::prepare(environment, "disk-full", Options::default());
    let small = Small::mount(&node);
    node.start_kubelet_again();
    let probed = with(sleeper("main"), json!({"readinessProbe": exec_probe("true")}));
    let [quiet, dies, goes] = [
        node.pod("quiet", containers([probed])),
        node.pod("dies", containers([sleeper("main")])),
        node.pod("goes", containers([sleeper("main")])),
    ];
    let [before, victim, leaving] = [&quiet, &dies, &goes].map(|file| file.ready());
    node.written_down();
    let hosts = hosts_of(&node.root(), before.uid());

    small.fill();
    let comes = node.pod("comes", containers([sleeper("main")]));
    let pid = node.cri.pid(victim.container_id("main"));
    let pid = Pid::from_raw(pid.try_into().expect("a process ID")).expect("a positive process ID");
    kill_process(pid, Signal::KILL).expect("its process is there");
    // The statuses of both pods say what is wrong.
    for base in [&comes.base, &dies.base] {
        eventually(&format!("{base} says that the disk is full"), LATER, || {
            let said: Vec<String> = node.events()?.into_iter().map(|event| event.message).collect();
            let shown = node.pods()?.iter().map(|pod| pod.status().to_string()).collect::<Vec<_>>();
            let pods = node.pods()?;
            let uid =
                pods.iter().find(|pod| pod.name().starts_with(base.as_str())).map(|pod| pod.uid().to_owned());
            let uid = uid.ok_or_else(|| format!("no pod {base}"))?;
            let told = node.events()?.iter().any(|event| {
                event.pod == uid && event.message.to_lowercase().contains("no space left on device")
            });
            if told { Ok(()) } else { Err(format!("{said:?} {shown:?}")) }
        });
    }
    // A pod can be removed.
    goes.remove();
    goes.stopped(leaving.uid(), LATER);
    assert_eq!(node.healthz.text("/healthz").as_deref(), Ok("ok"));
    let now = quiet.look().expect("it is listed");
    assert_eq!((now.uid(), now.status()), (before.uid(), before.status()), "other pods go on");
    assert_eq!(hosts_of(&node.root(), before.uid()), hosts);
    node.assert_alive();

    small.empty();
    let started = comes.wait("Running and Ready", LATER, |pod| pod.is_ready());
    let again = dies.wait("restarted", LATER, |pod| pod.restarts("main") >= 1 && pod.is_ready());
    assert!(hosts_of(&node.root(), started.uid()).lines().count() > 3, "a whole file");
    node.written_down();
    // The next kubelet finds no damaged files.
    node.kill_kubelet();
    node.start_kubelet_again();
    eventually("all are as they were", SOON, || {
        for (file, known) in [(&quiet, &before), (&comes, &started), (&dies, &again)] {
            let now = file.look()?;
            if now.status() != known.status() {
                return Err(format!("{} was {}", now.status(), known.status()));
            }
        }
        Ok(())
    });
    let tree = node.read_only.json("/supervision").expect("a tree");
    let actors = tree["actors"].as_array().expect("actors");
    let status = actors.iter().find(|actor| actor["kind"] == "StatusManager").expect("it is there");
    assert_eq!(status["observed"]["unusableCheckpoints"], 0, "{status}");
    goes.gone(&leaving);
}
