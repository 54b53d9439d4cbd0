//! The control plane that the node is a member of: calls to it, its objects, and the requests in its audit log.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bridge_io::Io;
use bridge_kube::{
    ApiClient, ApiError, ConnectSettings, Delete, FileIdentity, Followed, Kubeconfig, Object, RateLimit,
    Select,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde::Deserialize;
use tokio::time::Instant;

use crate::error::BenchError;

const CALL_WITHIN: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "default";

/// A control plane of `tests/env/control-plane`, with the rights of its administrator.
pub struct Plane {
    dir: PathBuf,
    script: PathBuf,
    /// The administrator's client, without a rate limit.
    pub admin: ApiClient,
}

fn refused(error: &ApiError) -> BenchError {
    BenchError::Wrong(format!("API server: {error}"))
}

impl Plane {
    /// The control plane in `dir`; nothing is connected yet.
    pub fn new(dir: &Path, script: &Path) -> Result<Self, BenchError> {
        let path = dir.join("admin.kubeconfig");
        let text = std::fs::read_to_string(&path).map_err(BenchError::io("read", &path))?;
        let kubeconfig =
            Kubeconfig::read(&path, &text).map_err(|error| BenchError::Wrong(error.to_string()))?;
        let identity = Arc::new(FileIdentity::new(kubeconfig.user.clone()));
        let settings = ConnectSettings {
            kubeconfig,
            identity,
            user_agent: "understudy-bench/1".to_owned(),
            http1_only: false,
        };
        let unlimited = RateLimit { per_second: 0.0, burst: 0 };
        let admin = ApiClient::connected(&settings, &Io::current(), unlimited, CALL_WITHIN);
        let admin = admin.map_err(|error| BenchError::Wrong(error.to_string()))?;
        Ok(Self { dir: dir.to_owned(), script: script.to_owned(), admin })
    }

    /// Runs the script and returns its output. Blocks.
    pub fn script(&self, verb: &str, arguments: &[&str]) -> Result<String, BenchError> {
        let output = Command::new(&self.script).arg(verb).arg(&self.dir).args(arguments).output();
        let output = output.map_err(BenchError::io("run", &self.script))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(BenchError::Wrong(format!("control-plane {verb}: {said}")))
    }

    /// Creates the pod.
    pub async fn create(&self, pod: serde_json::Value) -> Result<(), BenchError> {
        let pod: Pod = serde_json::from_value(pod).map_err(|error| BenchError::Wrong(error.to_string()))?;
        self.admin.create(&pod).await.map(|_| ()).map_err(|error| refused(&error))
    }

    /// Asks for the pod's deletion with its own grace.
    pub async fn delete(&self, name: &str) -> Result<(), BenchError> {
        let deleted = self.admin.delete::<Pod>(Some(NAMESPACE), name, &Delete::default()).await;
        deleted.map_err(|error| refused(&error))
    }

    /// Deletes the Node, if it exists.
    pub async fn forget(&self, node: &str) -> Result<(), BenchError> {
        match self.admin.delete::<Node>(None, node, &Delete::default()).await {
            Err(error) if !error.is_not_found() => Err(refused(&error)),
            _ => Ok(()),
        }
    }

    /// Deletes the node's pods at once, whatever its kubelet says.
    pub async fn clear(&self, node: &str) -> Result<(), BenchError> {
        let pods = self.admin.list::<Pod>(&Select::pods_of(node)).await.map_err(|error| refused(&error))?;
        let now = Delete { grace_seconds: Some(0), uid: None };
        for pod in pods {
            let name = pod.metadata.name.unwrap_or_default();
            match self.admin.delete::<Pod>(Some(NAMESPACE), &name, &now).await {
                Err(error) if !error.is_not_found() => return Err(refused(&error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// The end of the audit log, as a mark for [`Plane::asked_since`].
    pub fn mark(&self) -> u64 {
        std::fs::metadata(self.audit_log()).map(|file| file.len()).unwrap_or_default()
    }

    fn audit_log(&self) -> PathBuf {
        self.dir.join("audit.log")
    }

    /// The requests of the node since the mark.
    pub fn asked_since(&self, mark: u64, node: &str) -> Result<Asked, BenchError> {
        let path = self.audit_log();
        let mut file = std::fs::File::open(&path).map_err(BenchError::io("open", &path))?;
        let mut text = String::new();
        file.seek(SeekFrom::Start(mark))
            .and_then(|_| file.read_to_string(&mut text))
            .map_err(BenchError::io("read", &path))?;
        let user = format!("system:node:{node}");
        let events = text.lines().filter_map(|line| serde_json::from_str::<AuditEvent>(line).ok());
        let mut asked = Asked::default();
        for event in events.filter(|event| event.user.username == user && event.counts()) {
            *asked.by_kind.entry(event.kind()).or_default() += 1;
        }
        Ok(asked)
    }
}

/// Requests of one node.
#[derive(Debug, Default, serde::Serialize)]
pub struct Asked {
    /// By verb and resource, such as `patch pods/status`.
    pub by_kind: BTreeMap<String, usize>,
}

impl Asked {
    /// The number of all requests.
    pub fn count(&self) -> usize {
        self.by_kind.values().sum()
    }

    /// Writes of pods' status.
    pub fn status_writes(&self) -> usize {
        ["patch pods/status", "update pods/status"].iter().filter_map(|kind| self.by_kind.get(*kind)).sum()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditEvent {
    stage: String,
    verb: String,
    user: AuditUser,
    object_ref: Option<AuditObject>,
}

#[derive(Deserialize)]
struct AuditUser {
    username: String,
}

#[derive(Deserialize)]
struct AuditObject {
    resource: String,
    subresource: Option<String>,
}

impl AuditEvent {
    /// A watch is counted when it begins, every other request when it ends.
    fn counts(&self) -> bool {
        (self.stage == "ResponseStarted") == (self.verb == "watch")
    }

    fn kind(&self) -> String {
        match &self.object_ref {
            None => self.verb.clone(),
            Some(AuditObject { resource, subresource: None }) => format!("{} {resource}", self.verb),
            Some(AuditObject { resource, subresource: Some(part) }) => {
                format!("{} {resource}/{part}", self.verb)
            }
        }
    }
}

/// Objects by name, as the API server's watch tells them.
pub struct View<K> {
    stream: BoxStream<'static, Followed<K>>,
    /// The present objects.
    pub objects: BTreeMap<String, K>,
}

impl<K: Object> View<K> {
    /// Follows the objects; returns once the list has been read.
    pub async fn open(plane: &Plane, select: Select) -> Result<Self, BenchError> {
        let mut view = Self { stream: plane.admin.follow(select), objects: BTreeMap::new() };
        let listed = async {
            loop {
                if let Followed::All(_) = view.hear().await? {
                    return Ok::<(), BenchError>(());
                }
            }
        };
        let listed = tokio::time::timeout(CALL_WITHIN, listed).await;
        listed.map_err(|_| BenchError::Wrong(format!("{}: no list", K::plural(&()))))??;
        Ok(view)
    }

    async fn hear(&mut self) -> Result<Followed<K>, BenchError> {
        let news = self.stream.next().await.ok_or_else(|| BenchError::Wrong("a watch ended".to_owned()))?;
        let name = |object: &K| object.meta().name.clone().unwrap_or_default();
        match &news {
            Followed::All(all) => {
                self.objects = all.iter().map(|object| (name(object), object.clone())).collect();
            }
            Followed::Changed(object) => drop(self.objects.insert(name(object), object.clone())),
            Followed::Gone(object) => drop(self.objects.remove(&name(object))),
            Followed::Unreadable(_) | Followed::Trouble(_) => {}
        }
        Ok(news)
    }

    /// Waits until `holds` is true of the objects; returns the time since `since`.
    pub async fn until(
        &mut self,
        what: &str,
        since: Instant,
        within: Duration,
        holds: impl Fn(&BTreeMap<String, K>) -> bool,
    ) -> Result<Duration, BenchError> {
        while !holds(&self.objects) {
            let left = within.saturating_sub(since.elapsed());
            match tokio::time::timeout(left, self.hear()).await {
                Ok(news) => drop(news?),
                Err(_) => {
                    let seen = format!("{} objects", self.objects.len());
                    return Err(BenchError::Late { what: what.to_owned(), within, seen });
                }
            }
        }
        Ok(since.elapsed())
    }
}

/// Whether the Node's condition Ready is True.
pub fn node_is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether the pod's condition Ready is True.
pub fn pod_is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether a container does not run, or has run before.
pub fn shows_an_exit(pod: &Pod) -> bool {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let ran = |status: &k8s_openapi::api::core::v1::ContainerStatus| {
        status.restart_count > 0 || status.state.as_ref().is_some_and(|state| state.running.is_none())
    };
    statuses.into_iter().any(ran)
}
