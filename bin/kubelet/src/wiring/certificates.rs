//! CertificateManager, where the cluster signs the node's certificates.

use certificate_manager::{CertificateManager, CertificateManagerDeps, CertificateMetrics};
use messages::facts::NodeAddressesObserved;
use messages::node_status::ResendNode;
use prometheus::Registry;
use supervision::{Address, Place, Tree, Vitality};

use super::{Bridge, Settings};

/// Starts it if there is anything for it to do. Gives who wants to hear of the node's addresses.
pub(super) fn start(
    tree: &Tree,
    place: &Place,
    registry: &Registry,
    bridge: &Bridge,
    settings: &Settings,
    node: Option<Address<ResendNode>>,
) -> prometheus::Result<Vec<Address<NodeAddressesObserved>>> {
    if bridge.certificates.is_empty() {
        return Ok(Vec::new());
    }
    let metrics = CertificateMetrics::new()?;
    let purposes: Vec<_> = bridge.certificates.iter().map(|role| role.purpose).collect();
    metrics.register(registry, &purposes)?;
    let manager = tree.seat::<CertificateManager>(Vitality::Degradable);
    let addresses = manager.address();
    let deps = CertificateManagerDeps {
        node_name: settings.node.clone(),
        roles: bridge.certificates.clone(),
        clock: bridge.clock.clone(),
        node,
        lost: bridge.lost.clone(),
        metrics,
    };
    manager.start(place, move || CertificateManager::new(deps.clone()));
    Ok(vec![addresses])
}
