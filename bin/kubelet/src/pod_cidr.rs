//! The addresses of pods in the configuration (`podCIDR`): a kubelet without an API server sends them to the runtime.

use std::sync::Arc;
use std::time::Duration;

use bridge_cri::Runtime;
use bridge_cri::wire::{NetworkConfig, RuntimeConfig, UpdateRuntimeConfigRequest};

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_secs(2);

/// Sends the addresses to the runtime until it has accepted them or turns out to lack the RPC. Upstream gives up at the
/// first failure, and pods then get addresses that were not configured.
pub async fn tell(runtime: Arc<dyn Runtime>, cidr: String) {
    let mut said = String::new();
    loop {
        let network_config = Some(NetworkConfig { pod_cidr: cidr.clone() });
        let request = UpdateRuntimeConfigRequest { runtime_config: Some(RuntimeConfig { network_config }) };
        match runtime.update_runtime_config(request).await {
            Ok(_) => {
                tracing::info!(newPodCIDR = cidr, "Updating Pod CIDR");
                return;
            }
            Err(error) if error.is_unimplemented() => {
                tracing::error!(%error, podCIDR = cidr, "Pod CIDR update failed");
                return;
            }
            Err(error) => {
                let text = error.to_string();
                if text != said {
                    tracing::error!(err = text, podCIDR = cidr, "Pod CIDR update failed");
                }
                said = text;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}
