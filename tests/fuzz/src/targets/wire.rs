//! Messages of the runtime, of plugins and of the API server.

use std::path::Path;

use bridge_cri::wire::{
    ContainerEventResponse, ContainerStatusResponse, ImageStatusResponse, ListContainersResponse,
    ListImagesResponse, ListPodSandboxResponse, PodSandboxConfig, PodSandboxStatusResponse, StatusResponse,
    container_state, is_ready,
};
use bridge_csi::plugins::PluginKind;
use bridge_csi::rules::capabilities::Capabilities;
use bridge_csi::rules::figures::Figures;
use bridge_csi::rules::versions::admit;
use bridge_csi::wire::registration::PluginInfo;
use bridge_csi::wire::{NodeGetCapabilitiesResponse, NodeGetInfoResponse, NodeGetVolumeStatsResponse};
use bridge_kube::Object;
use bridge_tls::certificates::{KeyPem, Pair};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use prost::Message;

/// A message, if it is one: what was decoded and encoded is decoded as the same again.
fn message<M: Message + Default + PartialEq>(bytes: &[u8]) -> Option<M> {
    let decoded = M::decode(bytes).ok()?;
    let again = M::decode(decoded.encode_to_vec().as_slice());
    assert!(again.is_ok_and(|again| again == decoded), "what was decoded is decoded as another again");
    Some(decoded)
}

/// Answers of the container runtime.
pub fn cri_messages(bytes: &[u8]) {
    for sandbox in message::<ListPodSandboxResponse>(bytes).into_iter().flat_map(|told| told.items) {
        let _ = is_ready(sandbox.state);
    }
    for container in message::<ListContainersResponse>(bytes).into_iter().flat_map(|told| told.containers) {
        let _ = container_state(container.state);
    }
    let _ = message::<ContainerStatusResponse>(bytes);
    let _ = message::<PodSandboxStatusResponse>(bytes);
    let _ = message::<ContainerEventResponse>(bytes);
    let _ = message::<ListImagesResponse>(bytes);
    let _ = message::<ImageStatusResponse>(bytes);
    let _ = message::<StatusResponse>(bytes);
    if let Some(config) = PodSandboxConfig::from_bytes(bytes) {
        assert!(PodSandboxConfig::from_bytes(&config.to_bytes()).is_some_and(|again| again == config));
    }
}

/// Answers of CSI drivers.
pub fn csi_answers(bytes: &[u8]) {
    if let Some(told) = message::<NodeGetVolumeStatsResponse>(bytes) {
        let figures = [false, true].map(|with_health| Figures::of(&told, with_health));
        assert_eq!(figures[0].is_ok(), !told.usage.is_empty());
        assert!(figures[1].is_ok());
    }
    if let Some(told) = message::<NodeGetCapabilitiesResponse>(bytes) {
        assert!(!told.capabilities.is_empty() || Capabilities::of(&told) == Capabilities::default());
    }
    let _ = message::<NodeGetInfoResponse>(bytes);
}

/// What a plugin says of itself when it registers.
pub fn plugin_registration(bytes: &[u8]) {
    let Some(info) = message::<PluginInfo>(bytes) else { return };
    if let Some(kind) = PluginKind::named(&info.r#type) {
        assert_eq!(kind.word(), info.r#type);
    }
    let Ok(version) = admit(&info.name, &info.supported_versions, None) else { return };
    assert_eq!(admit(&info.name, &[version.to_string()], None), Ok(version.clone()));
    assert!(
        admit(&info.name, &info.supported_versions, Some(&version)).is_err(),
        "it is no newer than itself"
    );
}

/// An object of this kind: what was decoded and encoded is decoded as the same again, unless it nests too much then: what was left out
/// and has a default is written.
fn object<K: Object>(bytes: &[u8]) {
    let Ok(object) = bridge_kube::decode::<K>(bytes) else { return };
    let once = serde_json::to_string(&object).expect("an object is JSON");
    match bridge_kube::decode::<K>(once.as_bytes()) {
        Ok(again) => assert_eq!(serde_json::to_string(&again).expect("an object is JSON"), once),
        Err(why) => assert!(nests_too_much(&why), "what was decoded is not decoded again: {why}"),
    }
}

/// Whether an object was refused for that alone.
fn nests_too_much(why: &str) -> bool {
    let parts = ["its spec nests ", "its metadata nests ", "its status nests "];
    parts.iter().any(|part| why.starts_with(part)) && why.contains("this kubelet takes at most ")
}

/// Objects of the API server.
pub fn api_objects(bytes: &[u8]) {
    object::<Pod>(bytes);
    object::<Node>(bytes);
    object::<ConfigMap>(bytes);
    object::<Secret>(bytes);
}

/// Certificates and keys as PEM.
pub fn certificates(bytes: &[u8]) {
    let named = Path::new("/var/lib/kubelet/pki/pair.pem");
    if let Ok(pair) = Pair::read(bytes, bytes, named) {
        assert!(pair.first_end <= pair.leaf.not_after);
    }
    if let Ok(key) = KeyPem::read(bytes, named) {
        assert!(!format!("{key:?}").contains("PRIVATE"));
        let _ = key.public();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_nests_too_much_once_its_defaults_are_written_may_be_refused_then() {
        let volumes = vec!["{}"; 5500].join(",");
        api_objects(format!(r#"{{"spec":{{"containers":[],"volumes":[{volumes}]}}}}"#).as_bytes());
        let why = bridge_kube::decode::<Pod>(
            format!(r#"{{"spec":{{"a":[{}{{}}]}}}}"#, "{},".repeat(70_000)).as_bytes(),
        );
        assert!(why.is_err_and(|why| nests_too_much(&why)));
        let wrong = bridge_kube::decode::<Pod>(br#"{"spec":{"containers":1}}"#);
        assert!(wrong.is_err_and(|why| !nests_too_much(&why)));
    }
}
