//! Answers the pods' probes. The fake's pods have addresses that lead nowhere, so network probes are redirected to
//! listeners of the demo, which answer well while the probed container runs.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use bridge_cri::fake::FakeRuntime;
use bridge_cri::wire::ContainerState;
use pod_rules::labels;
use serde_json::{Map, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::configuration::NODE;

/// The most listeners of one demo; further probes go to the fake addresses and fail.
const LISTENERS_MAX: usize = 256;
/// The fields of a container that are probes.
const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];
/// The most connections that one listener serves at once.
const CONNECTIONS_MAX: usize = 32;
/// How long a probe may take to send its request.
const DEADLINE: Duration = Duration::from_secs(5);
const WELL: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\nok\n";
const ABSENT: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// The listeners, which close when this is dropped.
pub struct Responder {
    runtime: FakeRuntime,
    listeners: JoinSet<()>,
}

/// The container for which a listener answers probes.
#[derive(Clone)]
struct Probed {
    runtime: FakeRuntime,
    pod: String,
    namespace: String,
    container: String,
}

impl Responder {
    /// A responder without listeners.
    pub fn new(runtime: FakeRuntime) -> Self {
        Self { runtime, listeners: JoinSet::new() }
    }

    /// Redirects the HTTP and TCP probes in a pod's manifest to listeners. Probes that name a host stay as they are,
    /// and so do all other fields, even invalid ones, which the kubelet reports.
    ///
    /// # Errors
    /// The operating system's error, if there is no free port.
    pub async fn take_over_probes(&mut self, manifest: &mut Value) -> io::Result<()> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let pod = text(&manifest["metadata"]["name"]).unwrap_or_default();
        let namespace = text(&manifest["metadata"]["namespace"]).unwrap_or_else(|| "default".to_owned());
        for list in ["initContainers", "containers"] {
            let containers = manifest.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                let probed = Probed {
                    runtime: self.runtime.clone(),
                    pod: pod.clone(),
                    namespace: namespace.clone(),
                    container: text(&container["name"]).unwrap_or_default(),
                };
                let actions = open_actions(container);
                if actions.is_empty() || self.listeners.len() >= LISTENERS_MAX {
                    continue;
                }
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
                let port = listener.local_addr()?.port();
                for action in actions {
                    action.insert("host".to_owned(), Ipv4Addr::LOCALHOST.to_string().into());
                    action.insert("port".to_owned(), port.into());
                    // The listener has no certificate for HTTPS.
                    action.remove("scheme");
                }
                self.listeners.spawn(answer(listener, probed));
            }
        }
        Ok(())
    }
}

/// The actions of the container's network probes that name no host.
fn open_actions(container: &mut Value) -> Vec<&mut Map<String, Value>> {
    let probes = container.as_object_mut().into_iter().flatten();
    let probes = probes.filter(|(field, _)| PROBES.contains(&field.as_str()));
    let actions = probes.filter_map(|(_, probe)| probe.as_object_mut()).flatten();
    actions
        .filter(|(kind, _)| matches!(kind.as_str(), "httpGet" | "tcpSocket"))
        .filter_map(|(_, action)| action.as_object_mut())
        .filter(|action| action.get("host").is_none_or(|host| host == ""))
        .collect()
}

impl Probed {
    fn runs(&self) -> bool {
        let running = i32::from(ContainerState::ContainerRunning);
        // A static pod's name ends in the node's name.
        let pod = format!("{}-{NODE}", self.pod);
        self.runtime.containers().iter().any(|container| {
            let labelled = |key: &str, value: &str| container.labels.get(key).is_some_and(|it| it == value);
            container.state == running
                && labelled(labels::CONTAINER_NAME, &self.container)
                && labelled(labels::POD_NAMESPACE, &self.namespace)
                && labelled(labels::POD_NAME, &pod)
        })
    }
}

async fn answer(listener: TcpListener, probed: Probed) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                let probed = probed.clone();
                connections.spawn(async move {
                    // The kubelet notices a probe without an answer by itself.
                    let _ = tokio::time::timeout(DEADLINE, reply(stream, &probed)).await;
                });
            }
            // No file descriptors are left: accepting again at once would spin.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn reply(mut stream: TcpStream, probed: &Probed) -> io::Result<()> {
    // A request's head fits one read; a TCP probe closes without sending.
    let mut head = [0; 4096];
    let mut filled = 0;
    while filled < head.len() && !head[..filled].ends_with(b"\r\n\r\n") {
        match stream.read(&mut head[filled..]).await? {
            0 => return Ok(()),
            bytes => filled += bytes,
        }
    }
    stream.write_all(if probed.runs() { WELL } else { ABSENT }).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn probes_lead_to_a_listener_that_knows_the_container() {
        let mut manifest = serde_json::json!({
            "metadata": { "name": "web" },
            "spec": { "unknown": 1, "containers": [{
                "name": "server",
                "readinessProbe": { "httpGet": { "path": "/time", "port": "http", "scheme": "HTTPS" } },
                "livenessProbe": { "tcpSocket": { "host": "elsewhere", "port": 1 } },
            }] },
        });
        let mut responder = Responder::new(FakeRuntime::new(1));
        responder.take_over_probes(&mut manifest).await.unwrap();
        assert_eq!(manifest["spec"]["unknown"], 1);
        let server = &manifest["spec"]["containers"][0];
        assert_eq!(server["livenessProbe"]["tcpSocket"]["host"], "elsewhere");
        let get = &server["readinessProbe"]["httpGet"];
        let port = u16::try_from(get["port"].as_u64().unwrap()).unwrap();
        assert_eq!(*get, serde_json::json!({ "path": "/time", "host": "127.0.0.1", "port": port }));
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(b"GET /time HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.unwrap();
        // No container runs yet.
        assert_eq!(said, ABSENT);
    }
}
