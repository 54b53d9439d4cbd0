//! Manifests of pods, and the files from which a pod's settings come.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use pod_sources::decode::{Decoded, decode_pod, decode_pods};
use pod_sources::default::with_defaults;
use pod_sources::static_pod::{Source, static_pods};
use pod_sources::unsupported::{Supported, unsupported};
use pod_sources::{PodSecurity, SecurityLevel, StandardVersion};
use pod_worker::dns::{ClusterDns, check_resolv_conf, pod_dns};
use pod_worker::env::file::EnvVariables;

/// A longer pod may have more than a manifest may have: aliases of YAML expand.
const WRITTEN_BYTES_MAX: usize = 1 << 20;

/// A file of the directory of static pods.
pub fn manifest_file(bytes: &[u8]) {
    if let Ok(decoded) = decode_pod("/manifests/pod.yaml", bytes) {
        is_decoded_again(&decoded);
    }
    placed(bytes, &Source::File("/manifests/pod.yaml".to_owned()));
}

/// The answer of a manifest URL.
pub fn manifest_url(bytes: &[u8]) {
    if let Ok(decoded) = decode_pods("http://host/pods", bytes) {
        is_decoded_again(&decoded);
    }
    placed(bytes, &Source::Http("http://host/pods".to_owned()));
}

/// A pod that a client submits.
pub fn submitted_pod(bytes: &[u8]) {
    placed(bytes, &Source::Submission("the submitted pod".to_owned()));
}

fn placed(bytes: &[u8], source: &Source) {
    let Ok(decoded) = static_pods(bytes, source, "node-1", Timestamp::UNIX_EPOCH) else { return };
    for pod in &decoded.pods {
        let unsupported = unsupported(pod, &Supported::this_version());
        assert!(unsupported.iter().all(|field| !field.path.is_empty()), "{unsupported:?}");
    }
}

/// The pod as JSON, without what has a form of its own there: moments lose their fractions, and what managers own may be any
/// value.
fn written(pod: &Pod) -> Vec<u8> {
    let mut pod = pod.clone();
    pod.metadata.managed_fields = None;
    pod.metadata.creation_timestamp = None;
    pod.metadata.deletion_timestamp = None;
    serde_json::to_vec(&pod).expect("a Pod has string keys only, hence is JSON")
}

fn is_decoded_again(decoded: &Decoded) {
    for pod in &decoded.pods {
        let once = written(pod);
        if once.len() > WRITTEN_BYTES_MAX {
            continue;
        }
        let again = decode_pod("written", &once).expect("what was decoded is decoded again");
        assert!(again.ignored_fields.is_empty(), "a Pod has the fields of a Pod: {:?}", again.ignored_fields);
        let again: Vec<String> = again.pods.iter().map(|pod| lossy(&written(pod))).collect();
        assert_eq!(again, [lossy(&once)]);
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The checks of the Pod Security Standards.
pub fn pod_security(bytes: &[u8]) {
    let Ok(decoded) = decode_pod("pod", bytes) else { return };
    for pod in decoded.pods {
        let most = 10_000 + 1000 * written(&pod).len();
        let pod = with_defaults(pod);
        for level in [SecurityLevel::Baseline, SecurityLevel::Restricted] {
            for version in [StandardVersion::Latest, StandardVersion::Minor(0), StandardVersion::Minor(24)] {
                let standard = PodSecurity { level, version };
                let violation = standard.violation(&pod);
                assert_eq!(violation, standard.violation(&pod));
                assert!(violation.is_none_or(|told| told.len() <= most), "more is told than there is");
            }
        }
    }
}

/// A file of variables in a volume.
pub fn env_file(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let wanted = BTreeSet::from(["A".to_owned(), "NAME".to_owned()]);
    let found = EnvVariables::parse(&text, &wanted);
    for name in &wanted {
        assert!(found.value(name).map_or(0, str::len) <= text.len());
    }
}

/// The node's `/etc/resolv.conf`.
pub fn resolv_conf(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = check_resolv_conf("/etc/resolv.conf", &text, "cluster.local");
    let cluster = ClusterDns { servers: vec!["10.96.0.10".to_owned()], domain: "cluster.local".to_owned() };
    for policy in ["Default", "ClusterFirst", "None"] {
        let spec = PodSpec { dns_policy: Some(policy.to_owned()), ..PodSpec::default() };
        let pod = Pod { spec: Some(spec), ..Pod::default() };
        let Ok(dns) = pod_dns(&pod, Some(&*text), &cluster, &[]) else { return };
        assert!(dns.config.servers.len() <= 3 && dns.config.searches.len() <= 32, "{dns:?}");
    }
}
