//! Variables from the pod's own fields (row 11.5).

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ObjectFieldSelector, Pod};
use pod_spec::downward::{map_text, subscripted};

use super::{EnvError, EnvSources};

/// The text of a field of the pod.
pub(super) fn field_value(
    selector: &ObjectFieldSelector,
    sources: &EnvSources<'_>,
) -> Result<String, EnvError> {
    let path = selector.field_path.as_str();
    if let Some(version) = selector.api_version.as_deref().filter(|version| *version != "v1") {
        return Err(EnvError::Field(format!("unsupported pod version: {version}")));
    }
    let (pod, spec) = (sources.pod, sources.pod.spec.as_ref());
    let text = |field: Option<&String>| field.cloned().unwrap_or_default();
    if let Some((map, key)) = subscripted(path) {
        let lookup = |map: &Option<BTreeMap<String, String>>| text(map.as_ref().and_then(|map| map.get(key)));
        return match map {
            "metadata.labels" => Ok(lookup(&pod.metadata.labels)),
            "metadata.annotations" => Ok(lookup(&pod.metadata.annotations)),
            _ => Err(EnvError::Field(format!("field label does not support subscript: {path}"))),
        };
    }
    match path {
        "metadata.name" => Ok(text(pod.metadata.name.as_ref())),
        "metadata.namespace" => Ok(text(pod.metadata.namespace.as_ref())),
        "metadata.uid" => Ok(text(pod.metadata.uid.as_ref())),
        "metadata.labels" => Ok(map_text(&pod.metadata.labels)),
        "metadata.annotations" => Ok(map_text(&pod.metadata.annotations)),
        "spec.nodeName" | "spec.host" => Ok(text(spec.and_then(|spec| spec.node_name.as_ref()))),
        "spec.serviceAccountName" => Ok(service_account(pod)),
        "status.hostIP" => host_ips(sources).map(|ips| ips[0].clone()),
        "status.hostIPs" => host_ips(sources).map(|ips| ips.join(",")),
        "status.podIP" => Ok(text(pod_ips(sources).first())),
        "status.podIPs" => Ok(pod_ips(sources).join(",")),
        // Fields that pods can be selected by, but that have no value for a variable.
        "spec.restartPolicy" | "spec.schedulerName" | "status.phase" => {
            Err(EnvError::Field(format!("unsupported fieldPath: {path}")))
        }
        _ => Err(EnvError::Field(format!("field label not supported: {path}"))),
    }
}

fn service_account(pod: &Pod) -> String {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default()
}

fn host_ips<'a>(sources: &EnvSources<'a>) -> Result<&'a [String], EnvError> {
    if sources.host_ips.is_empty() {
        return Err(EnvError::Field("host IP unknown; known addresses: []".to_owned()));
    }
    Ok(sources.host_ips)
}

/// The pod's first address of the same family as the node's primary address, then the first of the other
/// family.
fn pod_ips(sources: &EnvSources<'_>) -> Vec<String> {
    let ips: Vec<IpAddr> = sources.pod_ips.iter().filter_map(|ip| ip.parse().ok()).collect();
    let node_is_v6 = sources.host_ips.first().is_some_and(|ip| ip.contains(':'));
    let first = |v6: bool| ips.iter().find(|ip| ip.is_ipv6() == v6);
    [first(node_is_v6), first(!node_is_v6)].into_iter().flatten().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::tests::with_sources;
    use crate::fixtures::pod;

    #[test]
    fn fields_have_the_pods_values() {
        let mut pod = pod("Always", vec![], vec![]);
        pod.metadata.labels = Some([("app".into(), "web".into()), ("a.b/c".into(), "d\"\n".into())].into());
        pod.metadata.annotations = Some([("n['x']".into(), "1".into())].into());
        let spec = pod.spec.as_mut().expect("spec");
        (spec.node_name, spec.service_account_name) = (Some("node-1".into()), Some("robot".into()));
        with_sources(&pod, |sources| {
            let of = |path: &str| {
                let selector = ObjectFieldSelector { api_version: None, field_path: path.to_owned() };
                field_value(&selector, sources).map_err(|error| error.to_string())
            };
            for (path, expected) in [
                ("metadata.name", "web"),
                ("metadata.namespace", "ns"),
                ("metadata.uid", "uid-1"),
                ("metadata.labels['app']", "web"),
                ("metadata.labels['none']", ""),
                ("metadata.annotations['n['x']']", "1"),
                ("metadata.labels", "a.b/c=\"d\\\"\\n\"\napp=\"web\""),
                ("spec.nodeName", "node-1"),
                ("spec.serviceAccountName", "robot"),
                ("status.hostIP", "192.0.2.1"),
                ("status.hostIPs", "192.0.2.1,2001:db8::1"),
                // The address of the node's family comes first, in whatever order the runtime has them.
                ("status.podIP", "10.0.0.1"),
                ("status.podIPs", "10.0.0.1,fd00::1"),
            ] {
                assert_eq!(of(path), Ok(expected.to_owned()), "{path}");
            }
            assert_eq!(of("spec.containers"), Err("field label not supported: spec.containers".into()));
            assert_eq!(of("spec.a['b']"), Err("field label does not support subscript: spec.a['b']".into()));
            let mut nameless = sources.clone();
            nameless.host_ips = &[];
            let selector = ObjectFieldSelector { api_version: None, field_path: "status.hostIP".into() };
            let error = field_value(&selector, &nameless).expect_err("no address").to_string();
            assert_eq!(error, "host IP unknown; known addresses: []");
        });
    }
}
