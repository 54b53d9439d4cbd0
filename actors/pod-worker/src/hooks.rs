//! PURE: lifecycle hooks (row 5.19), without running them: the hooks of a container, their HTTP requests, and
//! the messages of their failures.

use std::sync::Arc;
use std::time::Duration;

use bridge_http::probes::{HttpProbe, Scheme};
use k8s_openapi::api::core::v1::{Container, ContainerPort, HTTPGetAction, LifecycleHandler};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use messages::PodRef;
use messages::runtime::RuntimeContainer;

use crate::spec::{ByName, ContainerKind};

/// The header `User-Agent` of a hook that sets none of its own.
const USER_AGENT: &str = "kube-lifecycle/1.36";
/// The longest run of a hook without a grace period, against a peer that never answers. Upstream waits for
/// ever.
pub const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// The most bytes of each output of a command that are kept for its error.
const OUTPUT_BYTES_MAX: usize = 4096;

const PRE_STOP_ANNOTATION: &str = "io.kubernetes.container.preStopHandler";
const PORTS_ANNOTATION: &str = "io.kubernetes.container.ports";

/// A hook of one container instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Hook {
    /// The pod, for messages and for HTTP requests.
    pub pod: PodRef,
    /// The runtime's ID of the instance.
    pub container_id: Arc<str>,
    /// The container's name.
    pub container: String,
    /// The container's kind, for the event's field path.
    pub kind: ContainerKind,
    /// The container's ports, which the hook may refer to by name.
    pub ports: Vec<ContainerPort>,
    /// The pod's address; empty if it has none.
    pub pod_ip: String,
    /// The action of the hook.
    pub handler: LifecycleHandler,
}

impl Hook {
    /// The postStart hook of an instance that has just been started, if its container has one.
    pub fn post_start(
        pod: &PodRef,
        kind: ContainerKind,
        container: &Container,
        id: &str,
        pod_ip: &str,
    ) -> Option<Self> {
        let handler = container.lifecycle.as_ref()?.post_start.clone()?;
        Some(Self {
            pod: pod.clone(),
            container_id: Arc::from(id),
            container: container.name.clone(),
            kind,
            ports: container.ports.clone().unwrap_or_default(),
            pod_ip: pod_ip.to_owned(),
            handler,
        })
    }

    /// The preStop hook of an instance: from the pod's spec, or, if the pod is not known any more, from the
    /// annotations that the instance was created with.
    pub fn pre_stop(
        spec: Option<&ByName<'_>>,
        pod_ref: &PodRef,
        instance: &RuntimeContainer,
        pod_ip: &str,
    ) -> Option<Self> {
        let (kind, ports, handler) = match spec.and_then(|spec| spec.find(&instance.name)) {
            Some((kind, container)) => {
                let handler = container.lifecycle.as_ref()?.pre_stop.clone()?;
                (kind, container.ports.clone().unwrap_or_default(), handler)
            }
            None => {
                let written = |key: &str| instance.annotations.get(key).map(String::as_str);
                let handler = serde_json::from_slice(written(PRE_STOP_ANNOTATION)?.as_bytes()).ok()?;
                let ports = written(PORTS_ANNOTATION).map(str::as_bytes);
                let ports = ports.and_then(|ports| serde_json::from_slice(ports).ok());
                (ContainerKind::Regular, ports.unwrap_or_default(), handler)
            }
        };
        Some(Self {
            pod: pod_ref.clone(),
            container_id: instance.id.clone(),
            container: instance.name.to_string(),
            kind,
            ports,
            pod_ip: pod_ip.to_owned(),
            handler,
        })
    }

    /// Whether the hook only sleeps, so that cutting it off is no failure.
    pub fn is_sleep(&self) -> bool {
        self.handler.exec.is_none() && self.handler.http_get.is_none() && self.handler.sleep.is_some()
    }

    /// The message of a hook that failed with `error`; `output` is that of its command.
    pub fn failed(&self, error: &str, output: &str) -> String {
        let of = format!("for Container {:?} in Pod {:?} failed", self.container, self.pod.to_string());
        let handler = &self.handler;
        if let Some(exec) = &handler.exec {
            let command = exec.command.as_deref().unwrap_or_default().join(" ");
            format!("Exec lifecycle hook ([{command}]) {of} - error: {error}, message: {output:?}")
        } else if let Some(get) = &handler.http_get {
            let path = get.path.as_deref().unwrap_or_default();
            format!("HTTP lifecycle hook ({path}) {of} - error: {error}")
        } else if let Some(sleep) = &handler.sleep {
            format!("Sleep lifecycle hook ({}) {of} - error: {error}", sleep.seconds)
        } else {
            format!("Cannot run handler: {error}")
        }
    }

    /// The message for a handler with no action that a hook can have; TCP is none.
    pub fn invalid(&self) -> String {
        let given = if self.handler.tcp_socket.is_some() { "tcpSocket" } else { "none" };
        self.failed(&format!("invalid handler: {given}"), "")
    }

    /// The request of an HTTP hook.
    ///
    /// # Errors
    /// Why there is no request: the pod has no address, or there is no such port.
    pub fn request(&self, get: &HTTPGetAction) -> Result<HttpProbe, String> {
        let host = match get.host.as_deref() {
            None | Some("") if self.pod_ip.is_empty() => {
                return Err(format!("failed to find networking container: {}", self.pod));
            }
            None | Some("") => self.pod_ip.clone(),
            Some(host) => host.to_owned(),
        };
        let scheme = match get.scheme.as_deref().unwrap_or_default().to_ascii_lowercase().as_str() {
            "" | "http" => Scheme::Http,
            "https" => Scheme::Https,
            other => return Err(format!("unsupported protocol scheme {other:?}")),
        };
        let mut headers: Vec<(String, String)> = get
            .http_headers
            .iter()
            .flatten()
            .map(|header| (header.name.clone(), header.value.clone()))
            .collect();
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("user-agent")) {
            headers.push(("User-Agent".to_owned(), USER_AGENT.to_owned()));
        }
        Ok(HttpProbe {
            scheme,
            host,
            port: self.port(&get.port)?,
            path: get.path.clone().unwrap_or_default(),
            headers,
            timeout: LONGEST,
            asker: Arc::from(self.pod.uid.as_str()),
        })
    }

    /// A port given as a number, as the name of a port of the container, or as a number in a text.
    fn port(&self, port: &IntOrString) -> Result<u16, String> {
        let number = match port {
            IntOrString::Int(number) => i64::from(*number),
            IntOrString::String(name) => {
                let named = self.ports.iter().find(|port| port.name.as_deref() == Some(name));
                match named {
                    Some(port) => i64::from(port.container_port),
                    None => name
                        .parse()
                        .map_err(|_not_a_number| format!("strconv.Atoi: parsing {name:?}: invalid syntax"))?,
                }
            }
        };
        let valid = u16::try_from(number).ok().filter(|port| *port > 0);
        valid.ok_or_else(|| format!("invalid port number: {number}"))
    }
}

/// The same request over plain HTTP, if a server that was addressed over TLS has answered in plain HTTP. The
/// header `Authorization` is left out, since it must not be sent unencrypted.
pub fn in_plain_http(request: &HttpProbe, error: &str) -> Option<HttpProbe> {
    let fits = request.scheme == Scheme::Https && error.contains("server gave HTTP response to HTTPS client");
    fits.then(|| {
        let mut plain = HttpProbe { scheme: Scheme::Http, ..request.clone() };
        plain.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
        plain
    })
}

/// The error of a command that exited with this code, and its two outputs in one text, up to the length that
/// is kept.
pub fn command_failed(command: &[String], exit_code: i32, stdout: &[u8], stderr: &[u8]) -> (String, String) {
    let kept =
        |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(OUTPUT_BYTES_MAX)]).into_owned();
    let error = format!("command '{}' exited with {exit_code}: {}", command.join(" "), kept(stderr));
    (error, kept(stdout) + &kept(stderr))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::{ExecAction, HTTPHeader, Lifecycle, SleepAction, TCPSocketAction};

    use super::*;
    use crate::fixtures::{container, pod, pod_ref, running};
    use crate::spec::PodView;

    fn hook(handler: LifecycleHandler) -> Hook {
        let port = ContainerPort { name: Some("http".into()), container_port: 8080, ..Default::default() };
        let lifecycle = Lifecycle { post_start: Some(handler), ..Default::default() };
        let c = Container { ports: Some(vec![port]), lifecycle: Some(lifecycle), ..container("c") };
        Hook::post_start(&pod_ref(), ContainerKind::Regular, &c, "id", "10.0.0.1").expect("it has one")
    }

    fn get(port: IntOrString) -> HTTPGetAction {
        HTTPGetAction { port, path: Some("/up".into()), ..Default::default() }
    }

    fn request(get: &HTTPGetAction) -> Result<HttpProbe, String> {
        hook(LifecycleHandler { http_get: Some(get.clone()), ..Default::default() }).request(get)
    }

    #[test]
    fn a_request_goes_to_the_pod_and_its_named_port() {
        let mut wanted = get(IntOrString::String("http".into()));
        let made = request(&wanted).expect("it can be made");
        assert_eq!((made.host.as_str(), made.port, made.path.as_str()), ("10.0.0.1", 8080, "/up"));
        assert_eq!(made.headers, [("User-Agent".to_owned(), "kube-lifecycle/1.36".to_owned())]);
        assert_eq!(made.scheme, Scheme::Http);
        wanted.host = Some("example.org".into());
        wanted.scheme = Some("HTTPS".into());
        let own = HTTPHeader { name: "user-agent".into(), value: "me".into() };
        wanted.http_headers = Some(vec![own]);
        let made = request(&wanted).expect("it can be made");
        assert_eq!((made.host.as_str(), made.scheme), ("example.org", Scheme::Https));
        assert_eq!(made.headers, [("user-agent".to_owned(), "me".to_owned())]);
        assert_eq!(request(&get(IntOrString::String("81".into()))).map(|made| made.port), Ok(81));
        for (port, error) in [
            (IntOrString::Int(0), "invalid port number: 0"),
            (IntOrString::Int(70_000), "invalid port number: 70000"),
            (IntOrString::String("x".into()), "strconv.Atoi: parsing \"x\": invalid syntax"),
        ] {
            assert_eq!(request(&get(port)), Err(error.to_owned()));
        }
    }

    #[test]
    fn credentials_stay_out_of_the_plain_request() {
        let mut wanted = get(IntOrString::Int(443));
        wanted.scheme = Some("HTTPS".into());
        let header = |name: &str| HTTPHeader { name: name.into(), value: "v".into() };
        wanted.http_headers = Some(vec![header("Authorization"), header("X")]);
        let made = request(&wanted).expect("it can be made");
        assert_eq!(in_plain_http(&made, "connection refused"), None);
        let error = "Get \"https://h\": http: server gave HTTP response to HTTPS client";
        let plain = in_plain_http(&made, error).expect("it is the server's fault");
        assert_eq!(plain.scheme, Scheme::Http);
        assert_eq!(plain.headers[0].0, "X");
        assert_eq!(in_plain_http(&plain, error), None);
    }

    #[test]
    fn failures_are_told_in_upstreams_words() {
        let command: Vec<String> = ["sh", "-c", "exit 3"].map(str::to_owned).to_vec();
        let exec = ExecAction { command: Some(command.clone()) };
        let (error, output) = command_failed(&command, 3, b"out", b"err");
        let told = hook(LifecycleHandler { exec: Some(exec), ..Default::default() }).failed(&error, &output);
        assert_eq!(
            told,
            "Exec lifecycle hook ([sh -c exit 3]) for Container \"c\" in Pod \"web_ns(uid-1)\" failed - error: command \
             'sh -c exit 3' exited with 3: err, message: \"outerr\""
        );
        let http = get(IntOrString::Int(1));
        let told = hook(LifecycleHandler { http_get: Some(http), ..Default::default() }).failed("no", "");
        assert_eq!(
            told,
            "HTTP lifecycle hook (/up) for Container \"c\" in Pod \"web_ns(uid-1)\" failed - error: no"
        );
        let tcp = TCPSocketAction { port: IntOrString::Int(1), host: None };
        let told = hook(LifecycleHandler { tcp_socket: Some(tcp), ..Default::default() }).invalid();
        assert_eq!(told, "Cannot run handler: invalid handler: tcpSocket");
        assert!(command_failed(&command, 1, &[b'a'; 9000], &[b'b'; 9000]).1.len() <= 2 * OUTPUT_BYTES_MAX);
    }

    #[test]
    fn a_pod_that_only_the_runtime_knows_has_the_hook_that_was_written_down() {
        let handler =
            LifecycleHandler { sleep: Some(SleepAction { seconds: 3 }), ..LifecycleHandler::default() };
        let mut instance = running("c", 0);
        instance.annotations = Arc::new(BTreeMap::from([
            (PRE_STOP_ANNOTATION.to_owned(), serde_json::to_string(&handler).expect("it is data")),
            (PORTS_ANNOTATION.to_owned(), "[{\"containerPort\":80,\"name\":\"http\"}]".to_owned()),
        ]));
        let found = Hook::pre_stop(None, &pod_ref(), &instance, "").expect("it was written down");
        assert!(found.is_sleep());
        assert_eq!((found.handler, found.ports[0].container_port), (handler, 80));
        // If the pod is known its spec counts, not the annotation.
        let spec = pod("Always", vec![], vec![container("c")]);
        assert_eq!(Hook::pre_stop(Some(&PodView::of(&spec).by_name()), &pod_ref(), &instance, ""), None);
        assert_eq!(Hook::pre_stop(None, &pod_ref(), &running("c", 0), ""), None);
    }
}
