//! Wires the way of pods' steps to the collector of traces, where one is configured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_traces::{AskNames, PodName, TraceExport, TraceMetrics, export};
use messages::PodUid;
use messages::pod_manager::GetPods;
use supervision::{AskPort, Outside};

use super::Wiring;

/// How long the names of pods are waited for; spans of pods without a name have their UID.
const NAMES_WITHIN: Duration = Duration::from_secs(5);

pub(super) fn wire(wiring: &Wiring<'_>) -> prometheus::Result<()> {
    let Wiring { tree, bridge, settings, actors, .. } = wiring;
    let sampling = settings.trace_sampling;
    let Some(collector) = bridge.traces.clone().filter(|_| !sampling.is_never()) else { return Ok(()) };
    let metrics = TraceMetrics::new()?;
    metrics.register(wiring.registry)?;
    let traces = TraceExport {
        history: tree.history().clone(),
        clock: bridge.clock.clone(),
        collector,
        names: names(actors.manager.asked()),
        node: settings.node.clone(),
        sampling,
        metrics,
    };
    export(&bridge.io, traces);
    Ok(())
}

/// The names of desired pods, of which PodManager knows.
fn names(pods: AskPort<Outside, GetPods>) -> AskNames {
    Arc::new(move |uids: Vec<Arc<str>>| {
        let pods = pods.clone();
        Box::pin(async move {
            let Ok(desired) = pods.ask(GetPods, NAMES_WITHIN).await else { return BTreeMap::new() };
            let named = uids.into_iter().filter_map(|uid| {
                let pod = &desired.pods.get(&PodUid::new(&uid))?.pod_ref;
                Some((uid, PodName { namespace: pod.namespace.clone(), name: pod.name.clone() }))
            });
            named.collect::<BTreeMap<_, _>>()
        })
    })
}
