//! GET on the loopback, one connection per request, and the contents of `/pods` and `/metrics`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest wait for one answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Longest answer, bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The body of a 200; `None` for everything else, also while no server listens.
pub async fn get(port: u16, path: &str) -> Option<Vec<u8>> {
    let answer = tokio::time::timeout(ANSWER_WITHIN, async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        // HTTP/1.0, so that the answer ends with the connection and comes in one piece.
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await.ok()?;
        Some(answer)
    });
    let answer = answer.await.ok()??;
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let status = answer.get(9..12)?;
    (status == b"200").then(|| answer[head + 4..].to_vec())
}

/// The part of a `PodList` that is read; the rest is skipped, which is fast.
#[derive(Debug, Default, Deserialize)]
pub struct PodList {
    /// The pods.
    #[serde(default)]
    pub items: Option<Vec<PodItem>>,
}

/// One pod.
#[derive(Debug, Deserialize)]
pub struct PodItem {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    phase: String,
    #[serde(default)]
    conditions: Vec<Condition>,
    #[serde(default)]
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Deserialize)]
struct Condition {
    r#type: String,
    status: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatus {
    #[serde(default)]
    restart_count: u32,
    #[serde(default)]
    state: BTreeMap<String, serde::de::IgnoredAny>,
}

impl PodItem {
    /// The value of the label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.metadata.labels.get(name).map(String::as_str)
    }

    /// Whether the pod is Running, and its condition Ready is True.
    pub fn is_ready(&self) -> bool {
        let ready = |condition: &Condition| condition.r#type == "Ready" && condition.status == "True";
        self.status.phase == "Running" && self.status.conditions.iter().any(ready)
    }

    /// The number of restarts of its containers.
    pub fn restarts(&self) -> u32 {
        self.status.container_statuses.iter().map(|container| container.restart_count).sum()
    }

    /// Whether a container does not run, or has run before.
    pub fn shows_an_exit(&self) -> bool {
        self.restarts() > 0
            || self.status.container_statuses.iter().any(|container| !container.state.contains_key("running"))
    }

    /// The pod's state in a few words.
    pub fn summary(&self) -> String {
        let states: Vec<&str> =
            self.status.container_statuses.iter().flat_map(|c| c.state.keys().map(String::as_str)).collect();
        format!("{} [{}]", self.status.phase, states.join(" "))
    }
}

/// `/pods` of the read-only port; `None` while it does not answer.
pub async fn pods(port: u16) -> Option<Vec<PodItem>> {
    let body = get(port, "/pods").await?;
    let list: PodList = serde_json::from_slice(&body).ok()?;
    Some(list.items.unwrap_or_default())
}

/// How often each kind of call was made to the runtime, by upstream's `kubelet_runtime_operations_total`.
pub async fn runtime_operations(port: u16) -> Option<BTreeMap<String, f64>> {
    let text = String::from_utf8(get(port, "/metrics").await?).ok()?;
    let sample = |line: &str| {
        let rest = line.strip_prefix("kubelet_runtime_operations_total{")?;
        let (labels, value) = rest.split_once("} ")?;
        let operation = labels.split("operation_type=\"").nth(1)?.split('"').next()?;
        Some((operation.to_owned(), value.trim().parse().ok()?))
    };
    Some(text.lines().filter_map(sample).collect())
}
