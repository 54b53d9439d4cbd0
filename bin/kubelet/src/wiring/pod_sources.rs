//! Wires PodSources, which reads pods from manifests, the manifest URL, submissions and the API server.

use bridge_kube::Traffic;
use pod_sources::{Doubts, PodSources, PodSourcesConfig, PodSourcesDeps, SubmissionPorts};
use supervision::Seated;

use super::Wiring;

pub(super) fn wire(wiring: &Wiring<'_>, seat: Seated<PodSources>) {
    let Wiring { bridge, settings, actors, .. } = wiring;
    let submissions = settings.pod_submission.then(|| SubmissionPorts {
        kept: bridge.checkpoints.for_owner(messages::pod_sources::RECEIVER),
        compute: bridge.compute.clone(),
        doubts: Doubts::default(),
    });
    let deps = PodSourcesDeps {
        config: PodSourcesConfig {
            path: settings.static_pod_path.clone(),
            check: settings.file_check,
            url_check: settings.url_check,
            node: settings.node.clone(),
            security: settings.pod_security,
            restart_rules: settings.restart_rules,
        },
        files: bridge.files.clone(),
        url: bridge.url.clone(),
        api: bridge.cluster_api(Traffic::Node).map(|api| api as _),
        submissions,
        node: actors.resend_node(),
        compute: bridge.compute.clone(),
        clock: bridge.clock.clone(),
        manager: actors.manager.address(),
        api_pods: actors.manager.address(),
        events: actors.events.address(),
    };
    seat.start(&wiring.places.actors, move || PodSources::new(deps.clone()));
}
