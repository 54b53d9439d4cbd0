//! The addresses of pods that the configuration names (`podCIDR`), which a kubelet without an API server tells the runtime.

use std::sync::Arc;
use std::time::Duration;

use bridge_cri::Runtime;
use bridge_cri::wire::{NetworkConfig, RuntimeConfig, UpdateRuntimeConfigRequest};

/// Between two attempts.
const PAUSE: Duration = Duration::from_secs(2);

/// Tells the runtime, and does so until it has heard: upstream gives up at the first failure, and then pods have addresses
/// that nobody meant.
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
