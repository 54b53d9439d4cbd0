//! A kubelet as a node of the cluster, and its pods. Dropping them leaves nothing behind.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bridge_kube::Select;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node as NodeObject, Pod, ServiceAccount};
use serde_json::{Value, json};
use testkit::process::eventually;

use crate::api::Api;
use crate::audit::{Mark, Requests};
use crate::kubectl::Kubectl;
use crate::node::{LATER, Node, Options, SOON};
use crate::pod::PodFile;
use crate::setting::Setting;
use crate::spec::with;
use crate::view::PodView;

/// A node. All its pods are in one namespace, which has its name.
pub struct Member {
    pub setting: Arc<Setting>,
    pub api: Api,
    /// The process with its directories.
    pub node: Node,
    /// The name of the Node object and of the namespace.
    pub name: String,
    pods: AtomicU32,
}

impl Member {
    /// Starts the kubelet and waits until its Node is Ready at the API server; the error is for people.
    pub fn start(setting: &Arc<Setting>, case: &str) -> Result<Self, String> {
        Self::begin(setting, case, json!({}), |_| ())
    }

    fn begin(
        setting: &Arc<Setting>,
        case: &str,
        kubelet: Value,
        before: impl FnOnce(&Node),
    ) -> Result<Self, String> {
        static MEMBERS: AtomicU32 = AtomicU32::new(0);
        let number = MEMBERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("{case}-{}-{number}", std::process::id());
        let ip = setting.ip.to_string();
        let kubeconfig = setting.control_plane("node", &[&name]);
        let certificate = setting.control_plane("serving", &[&name, &ip]);
        let authority = setting.plane.join("pki/ca.crt");
        let flags = ["--kubeconfig", &kubeconfig, "--hostname-override", &name, "--node-ip", &ip];
        let options = Options {
            kubelet: with(
                kubelet,
                json!({
                    "address": ip,
                    "tlsCertFile": certificate,
                    "tlsPrivateKeyFile": format!("{}key", certificate.trim_end_matches("crt")),
                    "authentication": {
                        "anonymous": {"enabled": false},
                        "webhook": {"enabled": true},
                        "x509": {"clientCAFile": authority},
                    },
                    "authorization": {"mode": "Webhook"},
                }),
            ),
            name: Some(name.clone()),
            flags: flags.map(Into::into).to_vec(),
            ..Options::default()
        };
        let api = Api::new(&setting.admin);
        make_namespace(&api, &name, &fs::read_to_string(&authority).map_err(|error| error.to_string())?);
        let node = Node::prepare(&setting.runtime, case, options);
        before(&node);
        let node = node.started()?;
        let member = Self { setting: Arc::clone(setting), api, node, name, pods: AtomicU32::new(0) };
        member.becomes_ready();
        Ok(member)
    }

    /// # Panics
    /// It does not become ready.
    pub fn alone(setting: &Arc<Setting>, case: &str) -> Self {
        Self::start(setting, case).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`alone`](Self::alone), with additional fields of the KubeletConfiguration, and a step before the start.
    ///
    /// # Panics
    /// It does not become ready.
    pub fn prepared(setting: &Arc<Setting>, case: &str, kubelet: Value, before: impl FnOnce(&Node)) -> Self {
        Self::begin(setting, case, kubelet, before).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The namespace of its pods.
    pub fn ns(&self) -> Option<&str> {
        Some(&self.name)
    }

    /// kubectl in the namespace of this node's pods.
    pub fn kubectl(&self) -> Kubectl {
        let program = self.setting.kubectl().expect("only run where there is one");
        Kubectl::new(program, &self.setting.admin, &self.name)
    }

    // ---- the Node ----

    /// The Node object.
    pub fn object(&self) -> Result<Value, String> {
        self.node.assert_alive();
        self.api.get::<NodeObject>(None, &self.name)?.ok_or_else(|| format!("no Node {}", self.name))
    }

    /// Waits until the Node is Ready, and returns it.
    #[track_caller]
    pub fn becomes_ready(&self) -> Value {
        eventually("the Node is Ready", SOON, || {
            let object = self.object()?;
            match condition(&object, "Ready")["status"].as_str() {
                Some("True") => Ok(object),
                _ => Err(format!("{}\n{}", object["status"]["conditions"], self.node.log_tail())),
            }
        })
    }

    /// The time of the last renewal of its lease.
    pub fn renewed(&self) -> Result<String, String> {
        let lease = self.api.get::<Lease>(Some("kube-node-lease"), &self.name)?.ok_or("no lease")?;
        assert_eq!(lease["spec"]["holderIdentity"], json!(self.name));
        lease["spec"]["renewTime"].as_str().map(str::to_owned).ok_or_else(|| lease.to_string())
    }

    /// A place in the API server's audit log.
    pub fn mark(&self) -> Mark {
        Mark::here(&self.setting.plane)
    }

    /// The kubelet's requests to the API server since then.
    pub fn requests(&self, since: &Mark) -> Requests {
        since.requests_of(&format!("system:node:{}", self.name))
    }

    /// How often the kubelet has written pods' statuses since then, by pod name.
    pub fn status_writes(&self, since: &Mark) -> std::collections::BTreeMap<String, usize> {
        since.status_writes_of(&format!("system:node:{}", self.name))
    }

    // ---- pods ----

    /// A name that no other pod of this node has.
    pub fn pod_name(&self, base: &str) -> String {
        format!("{base}-{}", self.pods.fetch_add(1, Ordering::Relaxed))
    }

    /// Creates a pod on this node, with a name of its own.
    #[track_caller]
    pub fn pod(&self, base: &str, spec: Value) -> OwnPod<'_> {
        let pod = self.named_pod(self.pod_name(base));
        pod.create(spec);
        pod
    }

    /// A pod that is not created yet, or was created by another client.
    pub fn named_pod(&self, name: String) -> OwnPod<'_> {
        OwnPod { member: self, file: PodFile::new(&self.node, name) }
    }

    /// The pods of this node as the API server has them.
    pub fn pods(&self) -> Result<Vec<PodView>, String> {
        self.node.assert_alive();
        let all = self.api.list::<Pod>(&Select::pods_of(&self.name))?;
        Ok(all.into_iter().map(PodView).collect())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Whatever the kubelet is doing, its process ends now, and its sandboxes are removed.
        for pod in self.api.list::<Pod>(&Select::pods_of(&self.name)).unwrap_or_default() {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            self.api.delete::<Pod>(Some(&self.name), &name, Some(0));
        }
    }
}

/// A condition of an object; null if it has none of this type.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions.and_then(|all| all.iter().find(|one| one["type"] == kind)).unwrap_or(&Value::Null)
}

/// Creates what a controller-manager creates in every namespace, and waits until admission knows of it.
fn make_namespace(api: &Api, name: &str, authority: &str) {
    api.create::<Namespace>(json!({"metadata": {"name": name}}));
    api.create::<ServiceAccount>(json!({"metadata": {"name": "default", "namespace": name}}));
    api.create::<ConfigMap>(json!({
        "metadata": {"name": "kube-root-ca.crt", "namespace": name},
        "data": {"ca.crt": authority},
    }));
    // The pod is bound to no node: it is only admitted.
    let trial = json!({
        "metadata": {"name": "admitted", "namespace": name},
        "spec": {"containers": [{"name": "none", "image": "none"}]},
    });
    eventually("admission has heard of the service account", SOON, || {
        api.try_create::<Pod>(trial.clone()).map_err(|error| error.to_string())
    });
    api.delete::<Pod>(Some(name), "admitted", Some(0));
}

/// A pod that the API server has. Dropping it deletes it at once.
pub struct OwnPod<'a> {
    member: &'a Member,
    /// The pod's gate, and its objects in the runtime; there is no manifest file of it.
    pub file: PodFile<'a>,
}

impl OwnPod<'_> {
    pub fn name(&self) -> &str {
        &self.file.base
    }

    /// Creates the pod; fields that [`PodFile::write`] sets may be left out of the spec.
    #[track_caller]
    pub fn create(&self, spec: Value) -> PodView {
        let mut pod = self.file.manifest(spec);
        pod["spec"]["nodeName"] = json!(self.member.name);
        PodView(self.member.api.create::<Pod>(pod))
    }

    /// The pod at the API server.
    pub fn look(&self) -> Result<PodView, String> {
        self.member.node.assert_alive();
        let pod = self.member.api.get::<Pod>(self.member.ns(), self.name())?;
        pod.map(PodView).ok_or_else(|| format!("no pod {}", self.name()))
    }

    /// Waits until `is` is true of the pod.
    #[track_caller]
    pub fn wait(&self, what: &str, within: Duration, is: impl Fn(&PodView) -> bool) -> PodView {
        eventually(&format!("{}: {what}", self.name()), within, || match self.look()? {
            pod if is(&pod) => Ok(pod),
            pod => Err(format!("{}; events: {:?}", pod.status(), self.events(&pod))),
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

    /// Reasons and messages of the events about the pod at the API server.
    pub fn events(&self, pod: &PodView) -> Vec<(String, String)> {
        let select = Select {
            namespace: Some(self.member.name.clone()),
            fields: Some(format!("involvedObject.uid={}", pod.uid())),
            ..Select::default()
        };
        let events = self.member.api.list::<Event>(&select).unwrap_or_default();
        let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        events.iter().map(|event| (text(event, "reason"), text(event, "message"))).collect()
    }

    /// Waits for an event about the pod whose message contains these words.
    #[track_caller]
    pub fn event(&self, pod: &PodView, reason: &str, words: &str) {
        eventually(&format!("{}: event {reason} {words:?}", self.name()), SOON, || {
            let events = self.events(pod);
            let found = events.iter().any(|(one, message)| one == reason && message.contains(words));
            if found { Ok(()) } else { Err(format!("{events:?}")) }
        });
    }

    /// Asks the API server to delete it.
    pub fn delete(&self, grace: Option<i64>) {
        self.member.api.delete::<Pod>(self.member.ns(), self.name(), grace);
    }

    /// Waits until the API server no longer has the pod and the node has nothing left of it.
    #[track_caller]
    pub fn gone(&self, pod: &PodView) {
        eventually(&format!("{} is gone", self.name()), LATER, || {
            match self.member.api.get::<Pod>(self.member.ns(), self.name())? {
                Some(now) if now["metadata"]["uid"] == pod.uid() => Err(now.to_string()),
                _ => Ok(()),
            }
        });
        self.file.gone(pod);
    }
}

impl Drop for OwnPod<'_> {
    fn drop(&mut self) {
        self.delete(Some(0));
    }
}

/// A Secret, ConfigMap or the like of this node's namespace.
pub fn named(member: &Member, name: &str, rest: Value) -> Value {
    with(json!({"metadata": {"name": name, "namespace": member.name}}), rest)
}

/// Whether a program can be run.
pub fn has_program(name: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {name}")])
        .output()
        .is_ok_and(|out| out.status.success())
}
