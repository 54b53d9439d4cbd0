//! Pods with volumes of a CSI driver while one kubelet takes over from the other: one that two pods share, an inline one and,
//! where the machine has loop devices, a block device. The scene plays the controllers that bind claims and attach volumes.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use csi_driver::DriverProcess;
use csi_driver::claimed::{Claimed, have_loops, loops_below, mounts_below, take_away_below};
use csi_driver::registrar::Registrar;
use serde_json::{Value, json};
use testkit::process::{eventually, holds};

use crate::environment::Environment;
use crate::machine::{Kubelet, Machine, SOON};
use crate::pods::Maker;
use crate::scenes::{deleted, settled};
use crate::state::{Running, assert_ready_throughout, assert_steady, running};

/// The calls that change a volume.
const CALLS: [&str; 4] = ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"];
/// Longer than either kubelet takes to look at all volumes again.
const QUIET: Duration = Duration::from_secs(75);

/// A node with a driver. Dropping it takes away what is mounted.
struct Stand<'a> {
    driver: DriverProcess,
    _registrar: Registrar,
    directory: tempfile::TempDir,
    /// The loop devices that keep the pods' block devices open. They are known by their names from when they were made: a Go kubelet
    /// makes them in its own mount namespace, and when that goes the kernel no longer tells on which file they are.
    loops: Vec<String>,
    claims: Vec<Claimed>,
    image: &'a str,
    machine: Machine,
}

/// What no swap may change.
#[derive(Debug, PartialEq)]
struct Seen {
    running: Running,
    /// The mounts of the driver's volumes, with the kernel's numbers.
    mounts: BTreeMap<String, String>,
    /// The device and number of the file of each loop device.
    loops: BTreeMap<String, String>,
}

impl<'a> Stand<'a> {
    /// A node on which the Go kubelet runs, with claims of these volume modes that are bound and attached.
    fn new(environment: &'a Environment, claims: &[(&str, &str)]) -> Self {
        let mut machine = Machine::new(environment, "storage");
        machine.start(Kubelet::Go);
        let driver = format!("{}.example", machine.name);
        let directory = tempfile::Builder::new().prefix("csi-").tempdir().expect("a temporary directory");
        let process = DriverProcess::spawn(&driver, directory.path(), None).expect("the driver serves");
        let registry = machine.root().join("plugins_registry");
        let registrar = Registrar::start(&environment.registrar, &registry, &driver, &process.endpoint())
            .expect("the registrar runs");
        machine.cluster.apply(&json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": driver },
            "spec": {
                "attachRequired": true, "podInfoOnMount": true, "fsGroupPolicy": "File",
                "volumeLifecycleModes": ["Persistent", "Ephemeral"], "tokenRequests": [{ "audience": "vault" }],
            },
        }));
        let named = |claim: &str| Claimed {
            driver: driver.clone(),
            handle: format!("handle-{claim}"),
            namespace: machine.cluster.namespace.clone(),
            claim: claim.to_owned(),
            volume: format!("{claim}-{}", machine.name),
            node: machine.name.clone(),
        };
        let (claims, modes): (Vec<Claimed>, Vec<Value>) =
            claims.iter().map(|(claim, mode)| (named(claim), json!({ "volumeMode": mode }))).unzip();
        let stand = Self {
            driver: process,
            _registrar: registrar,
            directory,
            loops: Vec::new(),
            claims,
            image: &environment.image,
            machine,
        };
        stand.driver_is_known();
        stand.claims.iter().zip(modes).for_each(|(claimed, mode)| stand.bound(claimed, &mode));
        stand
    }

    fn driver_is_known(&self) {
        let Machine { cluster, name, .. } = &self.machine;
        eventually("the CSINode has the driver", SOON, || {
            let drivers = cluster.get(&["csinode", name])?["spec"]["drivers"].clone();
            if drivers[0]["name"].is_string() { Ok(()) } else { Err(drivers.to_string()) }
        });
    }

    /// What provisioner and binder write.
    fn bound(&self, claimed: &Claimed, more: &Value) {
        let cluster = &self.machine.cluster;
        cluster.apply(&claimed.claim(more));
        let claim = cluster.get(&["pvc", &claimed.claim]).expect("the claim is there");
        cluster.apply(&claimed.volume(&claim["metadata"]["uid"], more.clone()));
        // The Go kubelet takes it for granted that a bound claim tells its capacity.
        let bound =
            json!({ "phase": "Bound", "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"] });
        cluster.tell("pvc", &claimed.claim, &bound);
    }

    /// What the controller writes once the node tells that it uses the volumes.
    fn attach(&self) {
        let Machine { cluster, name, .. } = &self.machine;
        let wanted: Vec<Value> = self.claims.iter().map(|claimed| json!(claimed.unique_name())).collect();
        eventually("the volumes are in use", SOON, || {
            let in_use = cluster.get(&["node", name])?["status"]["volumesInUse"].clone();
            let in_use = in_use.as_array().cloned().unwrap_or_default();
            if wanted.iter().all(|volume| in_use.contains(volume)) {
                Ok(())
            } else {
                Err(json!(in_use).to_string())
            }
        });
        let attached: Vec<Value> =
            wanted.iter().map(|volume| json!({ "name": volume, "devicePath": "" })).collect();
        for claimed in &self.claims {
            let attachment = claimed.attachment();
            cluster.apply(&attachment);
            let name = attachment["metadata"]["name"].as_str().expect("it is named");
            cluster.tell("volumeattachment", name, &json!({ "attached": true }));
        }
        cluster.tell("node", name, &json!({ "volumesAttached": attached }));
    }

    /// A pod with a volume at `/data` that adds its own name to the file `words` there.
    fn shares(&self, name: &str, volume: Value) {
        let make = Maker::new(&self.machine, self.image);
        let script = format!("echo {name} >>/data/words; trap 'exit 0' TERM; while :; do sleep 0.2; done");
        let mounted = json!({ "volumeMounts": [{ "name": "data", "mountPath": "/data" }] });
        make.make(name, &[make.container("main", &script, mounted)], json!({ "volumes": [volume] }));
    }

    /// A pod that has a claim's device.
    fn maps(&self, name: &str, claim: &str) {
        let make = Maker::new(&self.machine, self.image);
        let script = format!("echo {name} >/dev/disk; trap 'exit 0' TERM; while :; do sleep 0.2; done");
        let mapped = json!({ "volumeDevices": [{ "name": "data", "devicePath": "/dev/disk" }] });
        let volumes = json!({ "volumes": [of_claim(claim)] });
        make.make(name, &[make.container("main", &script, mapped)], volumes);
    }

    fn order(&mut self, words: &str) -> Value {
        let told = self.driver.order(words).unwrap_or_else(|error| panic!("{words}: {error}"));
        serde_json::from_str(&told).unwrap_or_else(|error| panic!("{words}: {told:?}: {error}"))
    }

    fn counts(&mut self) -> [u64; 4] {
        CALLS.map(|rpc| self.order(&format!("count {rpc}")).as_u64().expect("a number"))
    }

    fn seen(&self) -> Seen {
        let root = self.machine.root();
        Seen {
            running: running(&self.machine.cri, &self.machine.cluster.namespace),
            mounts: mounts_below(&root),
            loops: self.loops.iter().map(|name| (name.clone(), file_of(name))).collect(),
        }
    }

    fn shows(&self, pod: &str, script: &str, expected: &str) {
        let shown = self.machine.cluster.exec(pod, "main", script).expect("a command in it");
        assert_eq!(shown, expected, "{pod}: {script}");
    }

    /// Swaps kubelets, and asserts that nothing of pods and volumes has changed since, or will.
    fn swapped(&mut self, to: Kubelet, pods: &[&str]) {
        let before = self.seen();
        let name = self.machine.name.clone();
        let watch = self.machine.watch(&["pods"], &format!("pods-{to:?}"));
        let node = self.machine.watch(&["node", &name], &format!("node-{to:?}"));
        eventually("both are followed", SOON, || match (watch.seen().len(), node.seen().len()) {
            (0, _) | (_, 0) => Err("nothing was seen yet".to_owned()),
            _ => Ok(()),
        });
        self.machine.swap(to);
        self.driver_is_known();
        holds("pods and volumes are as they were", QUIET, || {
            let now = self.seen();
            if now == before { Ok(()) } else { Err(format!("{now:?}\ninstead of {before:?}")) }
        });
        assert_steady(&watch, pods);
        assert_ready_throughout(&node);
    }

    /// The controller has made the volume larger; the node makes its file system larger.
    fn grows(&mut self, claimed: &Claimed) {
        let cluster = &self.machine.cluster;
        let capacity = json!({ "spec": { "capacity": { "storage": "2Gi" } } }).to_string();
        cluster
            .kubectl(&["patch", "pv", &claimed.volume, "--type=merge", "-p", &capacity])
            .expect("it is taken");
        cluster.tell(
            "pvc",
            &claimed.claim,
            &json!({
                "capacity": { "storage": "1Gi" }, "allocatedResources": { "storage": "2Gi" },
                "allocatedResourceStatuses": { "storage": "NodeResizePending" },
                "conditions": [{ "type": "FileSystemResizePending", "status": "True" }],
            }),
        );
        eventually("the claim tells its size", SOON, || {
            let status = cluster.get(&["pvc", &claimed.claim])?["status"].clone();
            let is_done =
                status["capacity"]["storage"] == "2Gi" && status["allocatedResourceStatuses"].is_null();
            if is_done { Ok(()) } else { Err(status.to_string()) }
        });
        assert_eq!(self.order("held")["sizes"][&claimed.handle], 2_i64 << 30);
    }

    fn nothing_is_left(&mut self) {
        eventually("the driver holds nothing", SOON, || {
            let told = self.driver.order("held")?;
            let held: Value = serde_json::from_str(&told).map_err(|error| error.to_string())?;
            let is_empty = |field: &str| held[field].as_object().is_some_and(serde_json::Map::is_empty);
            if is_empty("staged") && is_empty("published") { Ok(()) } else { Err(told) }
        });
        let root = self.machine.root();
        assert_eq!((mounts_below(&root), loops_below(&root)), (BTreeMap::new(), BTreeMap::new()));
        assert_eq!(self.order("broken"), json!([]), "the rules that kubelets keep towards drivers");
    }
}

impl Drop for Stand<'_> {
    fn drop(&mut self) {
        let cluster = &self.machine.cluster;
        for name in &self.loops {
            let _gone = Command::new("losetup").arg("--detach").arg(name).status();
        }
        take_away_below(&self.machine.root());
        take_away_below(self.directory.path());
        let mut left = vec![("csidriver".to_owned(), self.claims[0].driver.clone())];
        for claimed in &self.claims {
            left.push(("pv".to_owned(), claimed.volume.clone()));
            if let Some(name) = claimed.attachment()["metadata"]["name"].as_str() {
                left.push(("volumeattachment".to_owned(), name.to_owned()));
            }
        }
        for (kind, name) in left {
            let _gone = cluster.kubectl(&["delete", &kind, &name, "--wait=false", "--ignore-not-found"]);
        }
    }
}

/// The device and number of the file of a loop device; empty if it has none.
fn file_of(name: &str) -> String {
    let shown =
        Command::new("losetup").args(["--raw", "--noheadings", "-O", "BACK-MAJ:MIN,BACK-INO", name]).output();
    String::from_utf8_lossy(&shown.expect("losetup runs").stdout).trim().to_owned()
}

fn of_claim(claim: &str) -> Value {
    json!({ "name": "data", "persistentVolumeClaim": { "claimName": claim } })
}

pub fn adopted(environment: &Environment) {
    let with_block = have_loops();
    let claims = [("shared", "Filesystem"), ("device", "Block")];
    let mut stand = Stand::new(environment, if with_block { &claims } else { &claims[..1] });
    let inline = json!({ "name": "data", "csi": { "driver": stand.claims[0].driver } });
    let mut pods = vec!["first", "second", "inline"];
    stand.shares("first", of_claim("shared"));
    stand.shares("inline", inline);
    if with_block {
        stand.maps("block", "device");
        pods.push("block");
    }
    stand.attach();
    settled(&stand.machine, &[("first", "Ready")]);
    stand.shares("second", of_claim("shared"));
    settled(&stand.machine, &pods.iter().map(|pod| (*pod, "Ready")).collect::<Vec<_>>());
    stand.shows("first", "cat /data/words", "first\nsecond\n");
    stand.loops = loops_below(&stand.machine.root()).into_keys().collect();
    assert_eq!(stand.loops.len(), usize::from(with_block), "one for each pod with a block device");

    let calls = stand.counts();
    stand.swapped(Kubelet::Ours, &pods);
    assert_eq!(stand.counts(), calls, "no call to the driver changes a volume");
    let shared = stand.claims[0].clone();
    stand.grows(&shared);
    stand.shares("third", of_claim("shared"));
    settled(&stand.machine, &[("third", "Ready")]);
    stand.shows("third", "cat /data/words", "first\nsecond\nthird\n");
    deleted(&stand.machine, "second");
    pods.retain(|pod| *pod != "second");
    pods.push("third");
    let [staged, published, unpublished, unstaged] = calls;
    assert_eq!(stand.counts(), [staged, published + 1, unpublished + 1, unstaged]);

    // It stages and publishes everything anew when it begins, as it always does, and a driver changes nothing then.
    stand.swapped(Kubelet::Go, &pods);
    stand.shows("first", "cat /data/words", "first\nsecond\nthird\n");
    if with_block {
        stand.shows("block", "read word </dev/disk; echo $word", "block\n");
    }
    for pod in pods {
        deleted(&stand.machine, pod);
    }
    stand.nothing_is_left();
    stand.machine.stop();
}
