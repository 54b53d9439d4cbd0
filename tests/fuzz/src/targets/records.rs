//! What a kubelet wrote to its disk, perhaps another release of it, or the Go kubelet.

use bridge_csi::rules::vol_data::VolData;
use bridge_node::checkpoint::file;
use probe_manager::SavedPod;
use serde_json::Value;
use status_manager::decode_checkpoint;

/// The file of a checkpoint.
pub fn checkpoint_file(bytes: &[u8]) {
    let _ = file::unwrap(bytes);
    let content = serde_json::from_slice::<Value>(bytes);
    assert_eq!(file::unwrap(&file::wrap(bytes)).ok(), content.ok(), "any JSON comes back");
}

/// The checkpoint of a pod's status.
pub fn pod_status(bytes: &[u8]) {
    let Ok(content) = serde_json::from_slice::<Value>(bytes) else { return };
    let name = format!("pod-status/{}", content["pod"]["uid"].as_str().unwrap_or_default());
    let Ok(checkpoint) = decode_checkpoint(&name, content) else { return };
    let once = serde_json::to_value(&checkpoint).expect("a status is JSON");
    let again = decode_checkpoint(&name, once.clone()).expect("what was written is read");
    assert_eq!(serde_json::to_value(&again).expect("a status is JSON"), once);
}

/// The checkpoint of the verdicts on a pod's probes.
pub fn probe_results(bytes: &[u8]) {
    let Ok(saved) = serde_json::from_slice::<Value>(bytes).and_then(serde_json::from_value::<SavedPod>)
    else {
        return;
    };
    let written = serde_json::to_value(&saved).expect("verdicts are JSON");
    assert_eq!(serde_json::from_value::<SavedPod>(written).ok(), Some(saved));
}

/// The notes beside the mount of a CSI volume.
pub fn csi_notes(bytes: &[u8]) {
    let Ok(data) = VolData::read(bytes) else { return };
    assert_eq!(VolData::read(data.text().as_bytes()), Ok(data.clone()));
    let _ = (data.driver(), data.volume_id(), data.spec_name(), data.lifecycle(), data.se_linux());
    assert!(data.unfinished().is_unfinished());
}
