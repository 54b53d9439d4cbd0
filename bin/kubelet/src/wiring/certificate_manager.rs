//! Wires CertificateManager, which requests and renews the node's certificates where the cluster signs them.

use certificate_manager::{CertificateManager, CertificateManagerDeps, CertificateMetrics};
use supervision::Seated;

use super::Wiring;

pub(super) fn wire(wiring: &Wiring<'_>, seat: Seated<CertificateManager>) -> prometheus::Result<()> {
    let Wiring { bridge, settings, actors, .. } = wiring;
    let metrics = CertificateMetrics::new()?;
    let purposes: Vec<_> = bridge.certificates.iter().map(|role| role.purpose).collect();
    metrics.register(wiring.registry, &purposes)?;
    let deps = CertificateManagerDeps {
        node_name: settings.node.clone(),
        roles: bridge.certificates.clone(),
        clock: bridge.clock.clone(),
        node: actors.resend_node(),
        lost: bridge.lost.clone(),
        metrics,
    };
    seat.start(&wiring.places.actors, move || CertificateManager::new(deps.clone()));
    Ok(())
}
