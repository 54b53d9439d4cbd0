//! What a probe asks, and at which address: ports by name, the pod's address if the probe gives none, commands with the
//! container's literal environment filled in (rows 7.3 and 7.4).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use pod_spec::expansion::{Budget, PROBE_BYTES_MAX, TooLong, expand};

/// A probe with everything resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Run a command in the container.
    Exec {
        /// Program and arguments.
        command: Vec<String>,
    },
    /// Send an HTTP GET.
    Http {
        /// `http` or `https`.
        scheme: String,
        /// Name or address, without brackets.
        host: String,
        /// Port.
        port: u16,
        /// Path with query, as the pod spec writes it.
        path: String,
        /// Headers in the pod spec's order; a name may come more than once.
        headers: Vec<(String, String)>,
    },
    /// Open a TCP connection.
    Tcp {
        /// Name or address, without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// Call grpc.health.v1.
    Grpc {
        /// Name or address, without brackets.
        host: String,
        /// Port.
        port: u16,
        /// The service asked about; empty for the server as a whole.
        service: String,
    },
}

/// Why a probe has no target. That is an error of the probe, not a failure of the container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The port is neither a name of the container's ports nor a number.
    #[error("port {0} not found")]
    UnknownPort(String),
    /// The port is not between 1 and 65535.
    #[error("invalid port number: {0}")]
    InvalidPort(i64),
    /// The command with its variables filled in is too long.
    #[error("container {container:?}: command of the probe: {error}")]
    TooLong {
        /// The container.
        container: String,
        /// The size that was reached, and the limit.
        error: TooLong,
    },
    /// The headers of the probe's request are too long.
    #[error(
        "the headers of the probe's request to container {container:?} have more than {PROBE_BYTES_MAX} bytes"
    )]
    LongHeaders {
        /// The container.
        container: String,
    },
    /// The probe has no handler that the kubelet knows.
    #[error("missing probe handler for {pod}:{container}")]
    NoHandler {
        /// The pod, as events name it.
        pod: String,
        /// The container.
        container: String,
    },
}

/// The target of `probe` in `container` of the pod named `pod`; `pod_ip` is empty while the pod has no address.
///
/// # Errors
/// [`TargetError`], if a port does not resolve or there is no handler.
pub fn target(probe: &Probe, container: &Container, pod: &str, pod_ip: &str) -> Result<Target, TargetError> {
    let host_or_pod =
        |host: &Option<String>| host.clone().filter(|host| !host.is_empty()).unwrap_or(pod_ip.to_owned());
    if let Some(exec) = &probe.exec {
        let command = exec.command.as_deref().unwrap_or_default();
        let command = expand_all(command, container.env.as_deref().unwrap_or_default());
        return command
            .map(|command| Target::Exec { command })
            .map_err(|error| TargetError::TooLong { container: container.name.clone(), error });
    }
    if let Some(get) = &probe.http_get {
        return Ok(Target::Http {
            scheme: scheme(get),
            host: host_or_pod(&get.host),
            port: resolve_port(&get.port, container)?,
            path: get.path.clone().unwrap_or_default(),
            headers: headers(get)
                .ok_or_else(|| TargetError::LongHeaders { container: container.name.clone() })?,
        });
    }
    if let Some(socket) = &probe.tcp_socket {
        let port = resolve_port(&socket.port, container)?;
        return Ok(Target::Tcp { host: host_or_pod(&socket.host), port });
    }
    if let Some(grpc) = &probe.grpc {
        let port = checked_port(i64::from(grpc.port))?;
        let service = grpc.service.clone().unwrap_or_default();
        return Ok(Target::Grpc { host: pod_ip.to_owned(), port, service });
    }
    Err(TargetError::NoHandler { pod: pod.to_owned(), container: container.name.clone() })
}

fn scheme(get: &HTTPGetAction) -> String {
    let scheme = get.scheme.as_deref().unwrap_or_default().to_lowercase();
    if scheme.is_empty() { "http".to_owned() } else { scheme }
}

/// A port given as a number, by its name in the container, or as a number written as text.
fn resolve_port(port: &IntOrString, container: &Container) -> Result<u16, TargetError> {
    let name = match port {
        IntOrString::Int(number) => return checked_port(i64::from(*number)),
        IntOrString::String(name) => name,
    };
    let named = container.ports.iter().flatten().find(|port| port.name.as_deref() == Some(name));
    match named {
        Some(port) => checked_port(i64::from(port.container_port)),
        None => {
            checked_port(name.parse::<i64>().map_err(|_not_a_number| TargetError::UnknownPort(name.clone()))?)
        }
    }
}

fn checked_port(number: i64) -> Result<u16, TargetError> {
    match u16::try_from(number) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(TargetError::InvalidPort(number)),
    }
}

/// What an argument or a header counts beside its text: each run of a probe copies all of them.
const TEXT_BYTES: usize = 16;

/// Replaces `$(NAME)` by the variables that the pod spec gives a literal value; probes know no others. An unknown name
/// stays as it is, and `$$` becomes `$`.
fn expand_all(command: &[String], env: &[EnvVar]) -> Result<Vec<String>, TooLong> {
    let refers = command.iter().any(|argument| argument.contains("$("));
    let values: BTreeMap<&str, &str> = env
        .iter()
        .filter(|_| refers)
        .map(|var| (var.name.as_str(), var.value.as_deref().unwrap_or_default()))
        .collect();
    let mut budget = Budget::of_probe();
    let expanded = command.iter().map(|argument| {
        budget.take(TEXT_BYTES)?;
        expand(argument, |name| values.get(name).copied(), &mut budget)
    });
    expanded.collect()
}

/// The headers of a request, within the bound of a command.
fn headers(get: &HTTPGetAction) -> Option<Vec<(String, String)>> {
    let mut budget = Budget::of_probe();
    let headers = get.http_headers.iter().flatten().map(|header| {
        budget.take(header.name.len() + header.value.len() + TEXT_BYTES).ok()?;
        Some((header.name.clone(), header.value.clone()))
    });
    headers.collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ContainerPort, ExecAction, GRPCAction, HTTPHeader, TCPSocketAction};

    use super::*;

    fn container() -> Container {
        let env = |name: &str, value: Option<&str>| EnvVar {
            name: name.to_owned(),
            value: value.map(str::to_owned),
            ..EnvVar::default()
        };
        Container {
            name: "web".to_owned(),
            ports: Some(vec![ContainerPort {
                name: Some("http".to_owned()),
                container_port: 8080,
                ..ContainerPort::default()
            }]),
            env: Some(vec![env("A", Some("1")), env("FROM", None)]),
            ..Container::default()
        }
    }

    fn resolve(port: IntOrString) -> Result<u16, TargetError> {
        let probe = Probe { tcp_socket: Some(TCPSocketAction { port, host: None }), ..Probe::default() };
        match target(&probe, &container(), "p", "10.0.0.1")? {
            Target::Tcp { host, port } => {
                assert_eq!(host, "10.0.0.1");
                Ok(port)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ports_resolve_by_number_name_and_number_as_text() {
        assert_eq!(resolve(IntOrString::Int(80)), Ok(80));
        assert_eq!(resolve(IntOrString::String("http".to_owned())), Ok(8080));
        assert_eq!(resolve(IntOrString::String("81".to_owned())), Ok(81));
        assert_eq!(resolve(IntOrString::Int(0)), Err(TargetError::InvalidPort(0)));
        assert_eq!(resolve(IntOrString::Int(65536)), Err(TargetError::InvalidPort(65536)));
        assert_eq!(
            resolve(IntOrString::String("metrics".to_owned())).map_err(|error| error.to_string()),
            Err("port metrics not found".to_owned())
        );
    }

    #[test]
    fn an_http_probe_takes_the_pods_address_and_plain_http() {
        let mut get = HTTPGetAction {
            port: IntOrString::String("http".to_owned()),
            path: Some("/ok?a=b".to_owned()),
            http_headers: Some(vec![HTTPHeader { name: "X".to_owned(), value: "y".to_owned() }]),
            ..HTTPGetAction::default()
        };
        let of = |get: &HTTPGetAction| {
            target(&Probe { http_get: Some(get.clone()), ..Probe::default() }, &container(), "p", "fd00::1")
        };
        let expected = Target::Http {
            scheme: "http".to_owned(),
            host: "fd00::1".to_owned(),
            port: 8080,
            path: "/ok?a=b".to_owned(),
            headers: vec![("X".to_owned(), "y".to_owned())],
        };
        assert_eq!(of(&get), Ok(expected));
        get.scheme = Some("HTTPS".to_owned());
        get.host = Some("example.org".to_owned());
        let Ok(Target::Http { scheme, host, .. }) = of(&get) else { panic!("it is an HTTP probe") };
        assert_eq!((&*scheme, &*host), ("https", "example.org"));
    }

    #[test]
    fn grpc_and_no_handler() {
        let probe = Probe { grpc: Some(GRPCAction { port: 9, service: None }), ..Probe::default() };
        let expected = Target::Grpc { host: "10.0.0.1".to_owned(), port: 9, service: String::new() };
        assert_eq!(target(&probe, &container(), "p", "10.0.0.1"), Ok(expected));
        assert_eq!(
            target(&Probe::default(), &container(), "p_ns(u)", "").map_err(|error| error.to_string()),
            Err("missing probe handler for p_ns(u):web".to_owned())
        );
    }

    #[test]
    fn commands_see_literal_variables_only() {
        for (given, expected) in [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$(FROM)", ""),
            ("$(NOT)", "$(NOT)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$A", "$A"),
            ("$(A", "$(A"),
            ("a$", "a$"),
            ("$()", "$()"),
        ] {
            let command = Some(vec![given.to_owned()]);
            let probe = Probe { exec: Some(ExecAction { command }), ..Probe::default() };
            let expected = Target::Exec { command: vec![expected.to_owned()] };
            assert_eq!(target(&probe, &container(), "p", ""), Ok(expected), "{given}");
        }
    }

    #[test]
    fn a_command_that_would_fill_the_memory_is_an_error_of_the_probe() {
        let mut container = container();
        container.env.as_mut().expect("set")[0].value = Some("v".repeat(1 << 20));
        let command = Some(vec!["$(A)".repeat(5), "$(A)".repeat(1 << 18)]);
        let probe = Probe { exec: Some(ExecAction { command }), ..Probe::default() };
        let error = target(&probe, &container, "p", "").expect_err("256 GiB").to_string();
        let expected = "container \"web\": command of the probe: environment, command and arguments would have more \
                        than 262144 bytes";
        assert_eq!(error, expected);
    }
}
