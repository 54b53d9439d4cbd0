//! PURE: the page `/metrics/cadvisor` (row 22.2): the series of the cgroups that cAdvisor knows by the same names, labels and
//! kinds. What is absent, and why, stands in docs/metrics.md.

mod machine;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bridge_node::stats::usage::{GroupUse, Interface, PodReading, Reading, Space};
use bridge_pace::panics::{self, Carried};
use jiff::Timestamp;
use messages::PodUid;
use messages::runtime::RuntimeContainer;
use messages::stats::{Families, Family, FamilyKind, Sample};
use supervision::blame;

use crate::images::SandboxImages;
use crate::select::RunningPod;
pub use machine::Machine;
pub(crate) use rows::ROWS;
use rows::Row;

/// Labels of a series besides the cgroup's own.
type More = Vec<(&'static str, Arc<str>)>;

/// A cgroup with what is shown of it.
#[derive(Clone, Debug)]
pub(crate) struct Subject<'a> {
    group: &'a GroupUse,
    /// The label `id`.
    id: Arc<str>,
    /// The labels `container`, `image`, `name`, `namespace`, `pod`: empty where they do not apply.
    container: Arc<str>,
    image: Arc<str>,
    name: Arc<str>,
    namespace: Arc<str>,
    pod: Arc<str>,
    /// The interfaces of the namespace that belongs to the cgroup.
    network: &'a [Interface],
    /// The machine's file systems; of the root alone.
    spaces: Vec<&'a Space>,
    devices: &'a BTreeMap<String, String>,
    /// Memory and swap of the machine bound the root, which has no bounds of its own.
    limits: (Option<u64>, Option<u64>),
}

impl<'a> Subject<'a> {
    fn of_system(group: &'a GroupUse, reading: &'a Reading) -> Self {
        let none: Arc<str> = Arc::from("");
        let limits = group.memory.map_or((None, None), |memory| (memory.limit, memory.swap_limit));
        Self {
            group,
            id: Arc::from(group.name.as_str()),
            container: none.clone(),
            image: none.clone(),
            name: none.clone(),
            namespace: none.clone(),
            pod: none,
            network: &[],
            spaces: Vec::new(),
            devices: &reading.devices,
            limits,
        }
    }

    fn of_pod(group: &'a GroupUse, pod: &RunningPod, reading: &'a Reading) -> Self {
        let id = &pod.held.pod;
        Self { namespace: id.namespace.clone(), pod: id.name.clone(), ..Self::of_system(group, reading) }
    }

    fn sample(&self, (mut labels, value): (More, f64), at: Option<Timestamp>) -> Sample {
        labels.extend([
            ("container", self.container.clone()),
            ("id", self.id.clone()),
            ("image", self.image.clone()),
            ("name", self.name.clone()),
            ("namespace", self.namespace.clone()),
            ("pod", self.pod.clone()),
        ]);
        labels.sort_by_key(|(name, _)| *name);
        Sample { labels, value, at }
    }
}

fn of_container<'a>(
    container: &RuntimeContainer,
    pod: &RunningPod,
    read: &'a PodReading,
    reading: &'a Reading,
) -> Option<Subject<'a>> {
    Some(Subject {
        container: container.name.clone(),
        image: container.image.clone(),
        name: container.id.clone(),
        ..Subject::of_pod(read.containers.get(&*container.id)?, pod, reading)
    })
}

/// The cgroups of a pod: its own, that of its sandbox, and those of its containers. The interfaces belong to the sandbox, as
/// the network namespace does.
fn of_pod<'a>(pod: &RunningPod, reading: &'a Reading, images: &SandboxImages) -> Vec<Subject<'a>> {
    let Some(read) = reading.pods.get(pod.uid().as_str()) else { return Vec::new() };
    let network = read.network.as_ref().map_or(&[][..], |(_, all)| all);
    let mut found = Vec::new();
    found.extend(read.group.as_ref().map(|group| Subject::of_pod(group, pod, reading)));
    if let Some(group) = &read.sandbox {
        let none = || Arc::from("");
        let name = pod.sandbox_id().cloned().unwrap_or_else(none);
        let image = images.get(&name).cloned().unwrap_or_else(none);
        found.push(Subject { name, image, network, ..Subject::of_pod(group, pod, reading) });
    } else if let Some(own) = found.first_mut() {
        own.network = network;
    }
    found.extend(pod.containers().filter_map(|container| of_container(container, pod, read, reading)));
    found
}

/// The cgroups of the page.
///
/// # Errors
/// The pod whose cgroups cannot be told, and the panic.
pub(crate) fn subjects<'a>(
    pods: &[RunningPod],
    reading: &'a Reading,
    images: &SandboxImages,
) -> Result<Vec<Subject<'a>>, Poisoned> {
    let root = Subject {
        network: reading.network.as_deref().unwrap_or_default(),
        spaces: spaces(reading),
        limits: (reading.memory_bytes, reading.swap_bytes),
        ..Subject::of_system(&reading.root, reading)
    };
    let groups = reading.pod_groups.iter().chain(reading.systems.values());
    let mut found = vec![root];
    for pod in pods {
        let of_pod = panics::catch(|| blame::for_pod(pod.uid(), || of_pod(pod, reading, images)));
        found.extend(of_pod.map_err(|panic| (pod.uid().clone(), panic))?);
    }
    found.extend(groups.map(|group| Subject::of_system(group, reading)));
    // Kubelet and runtime may share a cgroup, even that of a pod.
    let mut seen = BTreeSet::new();
    found.retain(|subject| seen.insert(&subject.group.name));
    Ok(found)
}

/// The file systems of kubelet and runtime; one that both use counts once.
fn spaces(reading: &Reading) -> Vec<&Space> {
    let mut by_source = BTreeMap::new();
    for space in reading.node_space.iter().chain(reading.spaces.values()) {
        by_source.entry(space.source.as_str()).or_insert(space);
    }
    by_source.into_values().collect()
}

/// One family of the page.
pub(crate) fn family(row: &Row, subjects: &[Subject<'_>]) -> Family {
    let samples = subjects.iter().flat_map(|subject| {
        let at = row.timed.then_some(subject.group.at);
        (row.values)(subject).into_iter().map(move |value| subject.sample(value, at))
    });
    Family { name: row.name, help: row.help.into(), kind: row.kind, samples: samples.collect() }
}

/// A pod, and the panic of work for it.
pub(crate) type Poisoned = (PodUid, Carried);

/// The page without a reading, which tells that there are no figures.
pub(crate) fn empty_page(machine: &Machine) -> Families {
    finished(machine.families(None), true)
}

/// The page of these families, and whether they are all that could be had.
pub(crate) fn finished(mut page: Vec<Family>, failed: bool) -> Families {
    page.push(Family {
        name: "container_scrape_error",
        help: "1 if the figures could not be read, otherwise 0".into(),
        kind: FamilyKind::Gauge,
        samples: vec![Sample { labels: Vec::new(), value: if failed { 1.0 } else { 0.0 }, at: None }],
    });
    page.retain(|family| !family.samples.is_empty());
    page.sort_by_key(|family| family.name);
    Arc::new(page)
}
