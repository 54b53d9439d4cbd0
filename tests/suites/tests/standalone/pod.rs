//! One static pod: its manifest, its status and its remains. Dropping it removes the manifest.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use bridge_cri::wire::{Container, PodSandbox, PodSandboxState};
use serde_json::{Value, json};
use testkit::process::eventually;

use crate::cgroups;
use crate::cri::UID_LABEL;
use crate::node::{LATER, Node, SOON};
use crate::view::{Event, PodView};

/// A static pod of a node.
pub struct PodFile<'a> {
    node: &'a Node,
    /// `metadata.name` in the manifest; the node's name is appended to it.
    pub base: String,
    file: PathBuf,
}

impl<'a> PodFile<'a> {
    pub fn new(node: &'a Node, base: String) -> Self {
        let file = node.manifests().join(format!("{base}.yaml"));
        fs::create_dir_all(node.gates().join(&base)).expect("a directory of the node's");
        Self { node, base, file }
    }

    /// Writes the manifest, in one step as configuration management does.
    ///
    /// Added to the spec: the image, and, if the spec says `"gate": true`, the volume `gate`, which is a directory of
    /// the host that every container has at `/gate`.
    pub fn write(&self, spec: Value) {
        self.write_text(&self.manifest(spec).to_string());
    }

    /// Puts this text in place of the manifest, in one step.
    pub fn write_text(&self, text: &str) {
        let hidden = self.file.with_file_name(format!(".{}.new", self.base));
        fs::write(&hidden, text).expect("a file in the node's directory");
        fs::rename(&hidden, &self.file).expect("a file in the node's directory");
    }

    /// The whole manifest for a spec.
    pub fn manifest(&self, mut spec: Value) -> Value {
        let gate = spec.as_object_mut().and_then(|spec| spec.remove("gate")).is_some();
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                let container = container.as_object_mut().expect("containers are objects");
                container.entry("image").or_insert_with(|| json!(self.node.environment.image));
                if gate {
                    let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
                    let gate = json!({"name": "gate", "mountPath": "/gate"});
                    mounts.as_array_mut().expect("a list").push(gate);
                }
            }
        }
        if gate {
            let volume = json!({"name": "gate", "hostPath": {"path": self.node.gates().join(&self.base), "type": "Directory"}});
            let volumes =
                spec.as_object_mut().expect("an object").entry("volumes").or_insert_with(|| json!([]));
            volumes.as_array_mut().expect("a list").push(volume);
        }
        let metadata = json!({
            "name": self.base,
            "namespace": self.node.namespace,
            "labels": {"app": self.base, "understudy.dev/suite": "standalone"},
        });
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    }

    /// Removes the manifest.
    pub fn remove(&self) {
        fs::remove_file(&self.file).expect("the manifest is there");
    }

    /// The manifest's file.
    pub fn file(&self) -> PathBuf {
        self.file.clone()
    }

    /// A file by which the host and the pod communicate.
    pub fn gate(&self, name: &str) -> PathBuf {
        self.node.gates().join(&self.base).join(name)
    }

    /// Makes a file in the gate.
    pub fn open_gate(&self, name: &str) {
        fs::write(self.gate(name), "").expect("a file in the node's directory");
    }

    /// Removes a file from the gate.
    pub fn close_gate(&self, name: &str) {
        fs::remove_file(self.gate(name)).expect("the gate was open");
    }

    /// The lines that pods have written into a file of the gate.
    pub fn written(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.gate(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    // ---- the kubelet's answers ----

    /// The pod as `/pods` shows it now.
    pub fn look(&self) -> Result<PodView, String> {
        let pods = self.node.pods()?;
        let found = pods.into_iter().find(|pod| {
            pod.namespace() == self.node.namespace
                && pod.name().strip_prefix(&self.base).is_some_and(|node| node.starts_with('-'))
        });
        found.ok_or_else(|| format!("no pod {}", self.base))
    }

    /// Waits until `is` is true of the pod.
    #[track_caller]
    pub fn wait(&self, what: &str, within: Duration, is: impl Fn(&PodView) -> bool) -> PodView {
        eventually(&format!("{}: {what}", self.base), within, || match self.look()? {
            pod if is(&pod) => Ok(pod),
            pod => Err(format!("{}; {}", pod.status(), self.trouble(pod.uid()))),
        })
    }

    /// Waits until the pod is Running and Ready.
    #[track_caller]
    pub fn ready(&self) -> PodView {
        self.wait("Running and Ready", SOON, |pod| pod.phase() == "Running" && pod.is_ready())
    }

    /// Waits until the pod has this phase.
    #[track_caller]
    pub fn phase(&self, phase: &str) -> PodView {
        self.wait(phase, SOON, |pod| pod.phase() == phase)
    }

    /// The events about a pod.
    pub fn events(&self, uid: &str) -> Result<Vec<Event>, String> {
        Ok(self.node.events()?.into_iter().filter(|event| event.pod == uid).collect())
    }

    fn trouble(&self, uid: &str) -> String {
        let events = self.events(uid).unwrap_or_default();
        let warnings = events.into_iter().filter(|event| event.kind == "Warning");
        warnings.map(|event| format!("{}: {}", event.reason, event.message)).collect::<Vec<_>>().join("; ")
    }

    /// Waits for an event about the pod whose message begins with this text.
    #[track_caller]
    pub fn event(&self, pod: &PodView, kind: &str, reason: &str, message: &str) -> Event {
        let what = format!("{}: event {kind} {reason} {message:?}", self.base);
        eventually(&what, SOON, || {
            let events = self.events(pod.uid())?;
            let found = events.iter().find(|event| {
                event.kind == kind && event.reason == reason && event.message.starts_with(message)
            });
            found.cloned().ok_or_else(|| format!("{events:?}"))
        })
    }

    /// The directory of the pod's logs.
    pub fn log_dir(&self, pod: &PodView) -> PathBuf {
        self.node.logs().join(format!("{}_{}_{}", pod.namespace(), pod.name(), pod.uid()))
    }

    /// The lines that a container has written, without time and stream.
    pub fn log(&self, pod: &PodView, container: &str, attempt: u32) -> Result<Vec<String>, String> {
        let file = self.log_dir(pod).join(container).join(format!("{attempt}.log"));
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(text.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap_or(line).to_owned()).collect())
    }

    // ---- the runtime and the machine ----

    /// The pod's sandboxes.
    pub fn sandboxes(&self, uid: &str) -> Vec<PodSandbox> {
        self.node.cri.sandboxes(UID_LABEL, uid)
    }

    /// The pod's only sandbox that is ready.
    #[track_caller]
    pub fn sandbox(&self, uid: &str) -> PodSandbox {
        let mut all = self.sandboxes(uid);
        all.retain(|sandbox| sandbox.state() == PodSandboxState::SandboxReady);
        assert_eq!(all.len(), 1, "one sandbox for the pod {}: {all:?}", self.base);
        all.remove(0)
    }

    /// The pod's running containers.
    pub fn running(&self, uid: &str) -> Vec<Container> {
        self.node.cri.running(UID_LABEL, uid)
    }

    /// Waits until nothing of the pod runs, and the kubelet no longer lists it.
    #[track_caller]
    pub fn stopped(&self, uid: &str, within: Duration) {
        eventually(&format!("{}: nothing of it runs", self.base), within, || {
            let known = self.node.pods()?.iter().any(|pod| pod.uid() == uid);
            let running = self.running(uid).len();
            let ready = PodSandboxState::SandboxReady;
            let sandboxes = self.sandboxes(uid).iter().filter(|sandbox| sandbox.state() == ready).count();
            match (known, running, sandboxes) {
                (false, 0, 0) => Ok(()),
                _ => {
                    Err(format!("listed: {known}, {running} containers run, {sandboxes} sandboxes are ready"))
                }
            }
        });
    }

    /// What is left of a pod: sandboxes, containers, directories, cgroups.
    pub fn left(&self, pod: &PodView) -> Vec<String> {
        let uid = pod.uid();
        let mut left = Vec::new();
        left.extend(self.sandboxes(uid).iter().map(|sandbox| format!("sandbox {}", sandbox.id)));
        let containers = self.node.cri.containers(UID_LABEL, uid);
        left.extend(containers.iter().map(|container| format!("container {}", container.id)));
        let dirs = [self.node.root().join("pods").join(uid), self.log_dir(pod)];
        left.extend(dirs.iter().filter(|dir| dir.exists()).map(|dir| dir.display().to_string()));
        let cgroups = cgroups::named(&self.node.cgroup(), &format!("pod{uid}"));
        left.extend(cgroups.iter().map(|dir| dir.display().to_string()));
        left
    }

    /// Waits until nothing is left of a pod.
    #[track_caller]
    pub fn gone(&self, pod: &PodView) {
        eventually(&format!("{}: nothing is left of it", self.base), LATER, || {
            let left = self.left(pod);
            if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
        });
    }
}

impl Drop for PodFile<'_> {
    fn drop(&mut self) {
        let _removed_before = fs::remove_file(&self.file);
    }
}
