//! PURE: where the collector is, as `tracing.endpoint` says it: a name of gRPC, as the Go kubelet's client takes it.

use std::net::IpAddr;
use std::path::PathBuf;

/// The endpoint that holds without one in the configuration.
pub const DEFAULT_ENDPOINT: &str = "localhost:4317";
/// The port of an address that names none, as of gRPC's names.
const DEFAULT_PORT: u16 = 443;

/// Where the collector listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectorAddress {
    /// A TCP port.
    Tcp {
        /// A host's name, or an address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
    /// A Unix socket that is no file, by its name.
    Abstract(String),
}

/// An endpoint to which nothing can be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tracing.endpoint {endpoint:?}: {why}")]
pub struct EndpointError {
    endpoint: String,
    why: &'static str,
}

impl CollectorAddress {
    /// Reads `host:port`, `dns:///host:port`, `unix:///path` or `unix-abstract:///name`; `dns:`, `unix:` and `unix-abstract:`
    /// may do without the two slashes.
    ///
    /// # Errors
    /// The endpoint names no address, or a DNS server of its own, which is not supported.
    pub fn parse(endpoint: &str) -> Result<Self, EndpointError> {
        let error = |why| EndpointError { endpoint: endpoint.to_owned(), why };
        let Some((scheme, rest)) = scheme(endpoint) else { return host_port(endpoint).map_err(error) };
        let path = match rest.strip_prefix("//") {
            None => rest.to_owned(),
            Some(behind) => match (scheme, behind.split_once('/')) {
                (Scheme::Dns, None | Some((_, ""))) => return Err(error("it has no address behind dns:///")),
                (Scheme::Dns, Some(("", address))) => address.to_owned(),
                (Scheme::Dns, Some(_)) => return Err(error("a DNS server of its own is not supported")),
                (_, Some(("", path))) => format!("/{path}"),
                (_, None | Some(_)) => return Err(error("a socket has no host")),
            },
        };
        match scheme {
            Scheme::Dns => host_port(&path).map_err(error),
            _ if path.trim_matches('/').is_empty() => Err(error("it has no path")),
            Scheme::Unix => Ok(Self::Unix(PathBuf::from(path))),
            Scheme::Abstract => Ok(Self::Abstract(path)),
        }
    }

    /// What calls name the collector: the host and port, or a word for a socket.
    #[must_use]
    pub fn authority(&self) -> String {
        match self {
            Self::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Self::Tcp { host, port } => format!("{host}:{port}"),
            Self::Unix(_) | Self::Abstract(_) => "localhost".to_owned(),
        }
    }
}

/// How the rest of an endpoint is to be read.
#[derive(Clone, Copy)]
enum Scheme {
    Dns,
    Unix,
    Abstract,
}

/// The scheme of an endpoint, if it begins with one, and the rest.
fn scheme(endpoint: &str) -> Option<(Scheme, &str)> {
    let (scheme, rest) = endpoint.split_once(':')?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "dns" => Scheme::Dns,
        "unix" => Scheme::Unix,
        "unix-abstract" => Scheme::Abstract,
        _ => return None,
    };
    Some((scheme, rest))
}

fn host_port(text: &str) -> Result<CollectorAddress, &'static str> {
    let tcp = |host: &str, port| {
        let host = if host.is_empty() { "localhost" } else { host };
        Ok(CollectorAddress::Tcp { host: host.to_owned(), port })
    };
    if text.is_empty() {
        return Err("it is empty");
    }
    if text.parse::<IpAddr>().is_ok() {
        return tcp(text, DEFAULT_PORT);
    }
    let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((host, rest))) => (host, rest.strip_prefix(':').or(rest.is_empty().then_some("443"))),
        Some(None) => return Err("a bracket is not closed"),
        None => text.rsplit_once(':').map_or((text, Some("443")), |(host, port)| (host, Some(port))),
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._~:%".contains(c);
    if !host.chars().all(is_host) || (host.contains(':') && !text.starts_with('[')) {
        return Err("its host is no name and no address");
    }
    let port = port.and_then(|port| port.parse().ok()).ok_or("its port is no number from 0 to 65535")?;
    tcp(host, port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> CollectorAddress {
        CollectorAddress::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn endpoints_are_names_of_grpc() {
        let cases = [
            (DEFAULT_ENDPOINT, tcp("localhost", 4317)),
            ("collector.observability.svc", tcp("collector.observability.svc", 443)),
            (":4317", tcp("localhost", 4317)),
            ("192.0.2.1:1", tcp("192.0.2.1", 1)),
            ("[2001:db8::1]:4317", tcp("2001:db8::1", 4317)),
            ("[2001:db8::1]", tcp("2001:db8::1", 443)),
            ("2001:db8::1", tcp("2001:db8::1", 443)),
            ("dns:///collector:4317", tcp("collector", 4317)),
            ("DNS:///collector:4317", tcp("collector", 4317)),
            ("dns:collector:4317", tcp("collector", 4317)),
            ("unix:/run/collector.sock", CollectorAddress::Unix(PathBuf::from("/run/collector.sock"))),
            ("unix-abstract:collector", CollectorAddress::Abstract("collector".to_owned())),
            ("unix:///run/collector.sock", CollectorAddress::Unix(PathBuf::from("/run/collector.sock"))),
            ("unix-abstract:///collector", CollectorAddress::Abstract("/collector".to_owned())),
        ];
        for (endpoint, expected) in cases {
            assert_eq!(CollectorAddress::parse(endpoint), Ok(expected), "{endpoint}");
        }
        assert_eq!(tcp("2001:db8::1", 1).authority(), "[2001:db8::1]:1");
        assert_eq!(tcp("collector", 4317).authority(), "collector:4317");
    }

    #[test]
    fn an_endpoint_without_an_address_is_an_error_that_says_why() {
        let said = |endpoint: &str| CollectorAddress::parse(endpoint).expect_err(endpoint).to_string();
        assert_eq!(
            said("dns://collector:4317"),
            "tracing.endpoint \"dns://collector:4317\": it has no address behind dns:///"
        );
        assert!(said("dns://192.0.2.53/collector:4317").contains("not supported"));
        for wrong in [
            "",
            "a:b",
            "a:",
            "a:65536",
            "a b:1",
            "[::1",
            "[::1]x",
            "a:b:1",
            "unix://run/x",
            "unix://",
            "http:///a",
        ] {
            assert!(CollectorAddress::parse(wrong).is_err(), "{wrong}");
        }
    }
}
