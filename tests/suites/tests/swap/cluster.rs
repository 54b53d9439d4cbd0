//! The cluster as its users see it: kubectl, and watches.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::environment::Environment;

/// kubectl as the administrator, in a namespace of the test's own.
pub struct Cluster {
    kubectl: PathBuf,
    admin: PathBuf,
    pub namespace: String,
}

impl Cluster {
    /// Creates the namespace and the objects that every pod in it needs, since there are no controllers.
    pub fn with_namespace(environment: &Environment, namespace: &str) -> Self {
        let cluster = Self {
            kubectl: environment.kubectl.clone(),
            admin: environment.admin.clone(),
            namespace: namespace.to_owned(),
        };
        let authority = std::fs::read_to_string(&environment.authority).expect("the cluster's CA");
        cluster.apply(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }));
        cluster.apply(
            &json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } }),
        );
        cluster.apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "kube-root-ca.crt" },
            "data": { "ca.crt": authority }
        }));
        cluster
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(&self.admin).arg("--namespace").arg(&self.namespace).args(arguments);
        command
    }

    /// kubectl's output; the error is its error output.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let output =
            self.command(arguments).stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(format!(
                "kubectl {}: {}{}",
                arguments.join(" "),
                text(&output.stdout),
                text(&output.stderr)
            )),
        }
    }

    /// # Panics
    /// The API server refuses the object.
    pub fn apply(&self, object: &Value) {
        let mut child = self
            .command(&["apply", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("kubectl runs");
        let mut input = child.stdin.take().expect("piped");
        input.write_all(object.to_string().as_bytes()).expect("kubectl reads");
        drop(input);
        assert!(child.wait().expect("a child of ours").success(), "kubectl apply of {object}");
    }

    /// An object, or a list of them.
    pub fn get(&self, arguments: &[&str]) -> Result<Value, String> {
        let text = self.kubectl(&[&["get"], arguments, &["-o", "json"]].concat())?;
        serde_json::from_str(&text).map_err(|error| format!("{error} in {text}"))
    }

    /// Changes an object's status as the controller does whose part the test plays.
    ///
    /// # Panics
    /// The API server refuses that.
    pub fn tell(&self, kind: &str, name: &str, status: &Value) {
        let patch = json!({ "status": status }).to_string();
        let told = ["patch", kind, name, "--subresource=status", "--type=merge", "-p", &patch];
        self.kubectl(&told).expect("a status is taken");
    }

    /// The output of a command in a container.
    pub fn exec(&self, pod: &str, container: &str, script: &str) -> Result<String, String> {
        self.kubectl(&["exec", pod, "-c", container, "--", "sh", "-c", script])
    }

    /// Deletes a pod without waiting.
    ///
    /// # Panics
    /// The API server refuses that.
    pub fn delete(&self, pod: &str) {
        self.kubectl(&["delete", "pod", pod, "--wait=false"]).expect("a pod that is there can be deleted");
    }

    /// Ok when the pod does not exist any more.
    pub fn is_gone(&self, pod: &str) -> Result<(), String> {
        let left = self.kubectl(&["get", "pod", pod, "--ignore-not-found", "-o", "name"])?;
        if left.is_empty() { Ok(()) } else { Err(format!("{pod} is there")) }
    }

    /// Follows objects from now on.
    pub fn watch(&self, what: &[&str], notes: &Path) -> Watch {
        let out = File::create(notes).expect("a file in a directory of ours");
        let arguments = [&["get"], what, &["--watch", "--output-watch-events", "-o", "json"]].concat();
        let child = self.command(&arguments).stdin(Stdio::null()).stdout(out).spawn().expect("kubectl runs");
        Watch { child, notes: notes.to_owned() }
    }
}

/// Objects that are being followed.
pub struct Watch {
    child: Child,
    notes: PathBuf,
}

impl Watch {
    /// Every version of every object that was seen so far, in order.
    pub fn seen(&self) -> Vec<Value> {
        let text = std::fs::read(&self.notes).unwrap_or_default();
        // The last object may be half written.
        let events = serde_json::Deserializer::from_slice(&text).into_iter::<Value>().map_while(Result::ok);
        events.map(|event| event["object"].clone()).filter(|object| object["kind"] != "Status").collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
