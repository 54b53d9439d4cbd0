//! Variables for the cluster's services (row 11.4).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use pod_spec::expansion::Budget;

/// Namespace and name of the API server's service, which every pod is told of.
const API_SERVER: (&str, &str) = ("default", "kubernetes");

/// The service variables of a pod: those of the services of its namespace if `links` is set
/// (`enableServiceLinks`), and always those of the API server's service.
pub fn variables(services: &[Arc<Service>], namespace: &str, links: bool) -> BTreeMap<String, String> {
    let mut told: BTreeMap<&str, (&Service, &str)> = BTreeMap::new();
    for service in services {
        let meta = &service.metadata;
        let ip = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()).unwrap_or_default();
        if matches!(ip, "" | "None") {
            continue;
        }
        let of = meta.namespace.as_deref().unwrap_or_default();
        let name = meta.name.as_deref().unwrap_or_default();
        if (of, name) == API_SERVER {
            // A service of the pod's own namespace with the same name takes precedence.
            told.entry(name).or_insert((service, ip));
        } else if of == namespace && links {
            told.insert(name, (service, ip));
        }
    }
    let mut variables = BTreeMap::new();
    let mut budget = Budget::of_container();
    for (name, (service, ip)) in told {
        let mut set = |name: String, value: String| {
            let taken = budget.take(name.len() + value.len());
            variables.insert(name, value);
            taken.ok()
        };
        // With the variable that did not fit, the environment will be refused for its length: no more of it is made.
        if of_service(&variable(name), service, ip, &mut set).is_none() {
            break;
        }
    }
    variables
}

/// The name in the form of a variable: `my-db` becomes `MY_DB`.
fn variable(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

/// Sets a service's variables, until one of them is not taken.
fn of_service(
    prefix: &str,
    service: &Service,
    ip: &str,
    set: &mut impl FnMut(String, String) -> Option<()>,
) -> Option<()> {
    set(format!("{prefix}_SERVICE_HOST"), ip.to_owned())?;
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let bracketed = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
    for (index, port) in ports.iter().enumerate() {
        let number = port.port;
        if index == 0 {
            set(format!("{prefix}_SERVICE_PORT"), number.to_string())?;
        }
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            set(format!("{prefix}_SERVICE_PORT_{}", variable(name)), number.to_string())?;
        }
        let protocol = port.protocol.as_deref().filter(|protocol| !protocol.is_empty()).unwrap_or("TCP");
        let scheme = protocol.to_lowercase();
        let url = format!("{scheme}://{bracketed}:{number}");
        // The variable of Docker's links, which has the first port only.
        if index == 0 {
            set(format!("{prefix}_PORT"), url.clone())?;
        }
        let of_port = format!("{prefix}_PORT_{number}_{}", protocol.to_uppercase());
        set(format!("{of_port}_PROTO"), scheme)?;
        set(format!("{of_port}_PORT"), number.to_string())?;
        set(format!("{of_port}_ADDR"), ip.to_owned())?;
        set(of_port, url)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(namespace: &str, name: &str, ip: &str, ports: serde_json::Value) -> Arc<Service> {
        let service = serde_json::json!({
            "metadata": {"namespace": namespace, "name": name}, "spec": {"clusterIP": ip, "ports": ports},
        });
        Arc::new(serde_json::from_value(service).expect("a service"))
    }

    fn shown(services: &[Arc<Service>], namespace: &str, links: bool) -> Vec<String> {
        let variables = variables(services, namespace, links);
        variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn a_service_is_told_of_in_both_ways() {
        let ports = serde_json::json!([{"port": 5432, "name": "sql"}, {"port": 53, "protocol": "UDP", "name": "my-dns"}]);
        assert_eq!(
            shown(&[service("ns", "my-db", "10.0.0.7", ports)], "ns", true),
            [
                "MY_DB_PORT=tcp://10.0.0.7:5432",
                "MY_DB_PORT_53_UDP=udp://10.0.0.7:53",
                "MY_DB_PORT_53_UDP_ADDR=10.0.0.7",
                "MY_DB_PORT_53_UDP_PORT=53",
                "MY_DB_PORT_53_UDP_PROTO=udp",
                "MY_DB_PORT_5432_TCP=tcp://10.0.0.7:5432",
                "MY_DB_PORT_5432_TCP_ADDR=10.0.0.7",
                "MY_DB_PORT_5432_TCP_PORT=5432",
                "MY_DB_PORT_5432_TCP_PROTO=tcp",
                "MY_DB_SERVICE_HOST=10.0.0.7",
                "MY_DB_SERVICE_PORT=5432",
                "MY_DB_SERVICE_PORT_MY_DNS=53",
                "MY_DB_SERVICE_PORT_SQL=5432",
            ]
        );
    }

    #[test]
    fn no_more_variables_are_made_than_an_environment_may_have() {
        let ports: Vec<_> = (1..30_000).map(|port| serde_json::json!({ "port": port })).collect();
        let made = shown(&[service("ns", &"x".repeat(63), "10.0.0.7", ports.into())], "ns", true);
        let bytes: usize = made.iter().map(|one| one.len() - 1).sum();
        let mut budget = Budget::of_container();
        assert!(budget.take(bytes).is_err(), "the environment is refused");
        assert!(budget.take(bytes - 200).is_ok(), "{bytes}");
    }

    #[test]
    fn who_is_told_of_which() {
        let port = || serde_json::json!([{"port": 443}]);
        let services = [
            service("default", "kubernetes", "10.0.0.1", port()),
            service("default", "web", "10.0.0.2", port()),
            service("ns", "own", "fd00::3", port()),
            service("ns", "headless", "None", port()),
            service("ns", "external", "", port()),
        ];
        let hosts = |namespace: &str, links: bool| {
            let variables = variables(&services, namespace, links);
            let hosts = variables.into_iter().filter(|(name, _)| name.ends_with("_SERVICE_HOST"));
            hosts.map(|(_, value)| value).collect::<Vec<_>>()
        };
        assert_eq!(hosts("ns", true), ["10.0.0.1", "fd00::3"]);
        assert_eq!(hosts("ns", false), ["10.0.0.1"]);
        assert_eq!(hosts("default", true), ["10.0.0.1", "10.0.0.2"]);
        assert!(shown(&services, "ns", true).contains(&"OWN_PORT=tcp://[fd00::3]:443".to_owned()));
        // A service of the same name in the pod's namespace takes precedence, in either order.
        let own = service("ns", "kubernetes", "10.9.9.9", port());
        let server = service("default", "kubernetes", "10.0.0.1", port());
        for services in [[own.clone(), server.clone()], [server, own]] {
            assert!(shown(&services, "ns", true).contains(&"KUBERNETES_SERVICE_HOST=10.9.9.9".to_owned()));
            assert!(shown(&services, "ns", false).contains(&"KUBERNETES_SERVICE_HOST=10.0.0.1".to_owned()));
        }
    }
}
