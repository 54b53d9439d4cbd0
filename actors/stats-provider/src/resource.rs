//! PURE: the page `/metrics/resource`, from the summary (row 22.3): upstream's series and no others.

use std::sync::Arc;

use jiff::Timestamp;
use messages::stats::{
    ContainerStats, CpuStats, Families, Family, FamilyKind, MemoryStats, PodStats, Sample, Summary, SwapStats,
};

use FamilyKind::{Counter, Gauge};

/// The help text, and the kind, of each family by name.
const FAMILIES: [(&str, &str, FamilyKind); 12] = [
    (
        "container_cpu_usage_seconds_total",
        "CPU time that the container has used so far, in core-seconds",
        Counter,
    ),
    ("container_memory_working_set_bytes", "Working set of the container, in bytes", Gauge),
    ("container_start_time_seconds", "When the container was made, in seconds since the epoch", Gauge),
    ("container_swap_limit_bytes", "Swap that the container may use, in bytes", Gauge),
    ("container_swap_usage_bytes", "Swap that the container uses, in bytes", Gauge),
    ("node_cpu_usage_seconds_total", "CPU time that the node has used so far, in core-seconds", Counter),
    ("node_memory_working_set_bytes", "Working set of the node, in bytes", Gauge),
    ("node_swap_usage_bytes", "Swap that the node uses, in bytes", Gauge),
    ("pod_cpu_usage_seconds_total", "CPU time that the pod has used so far, in core-seconds", Counter),
    ("pod_memory_working_set_bytes", "Working set of the pod, in bytes", Gauge),
    ("pod_swap_usage_bytes", "Swap that the pod uses, in bytes", Gauge),
    ("resource_scrape_error", "1 if the figures could not be read, otherwise 0", Gauge),
];

/// Labels of a series.
type Labels = Vec<(&'static str, Arc<str>)>;

struct Page(Vec<Family>);

impl Page {
    fn new() -> Self {
        let family = |(name, help, kind): (&'static str, &'static str, _)| Family {
            name,
            help: help.into(),
            kind,
            samples: Vec::new(),
        };
        Self(FAMILIES.map(family).into())
    }

    fn add(&mut self, name: &str, labels: &Labels, value: f64, at: Option<Timestamp>) {
        // The table is in order.
        if let Ok(place) = self.0.binary_search_by(|family| family.name.cmp(name)) {
            self.0[place].samples.push(Sample { labels: labels.clone(), value, at });
        }
    }

    fn cpu(&mut self, name: &str, labels: &Labels, cpu: Option<&CpuStats>) {
        let Some((cpu, nanos)) = cpu.and_then(|cpu| Some((cpu, cpu.usage_core_nano_seconds?))) else {
            return;
        };
        self.add(name, labels, seconds(nanos), Some(cpu.time.0));
    }

    fn memory(&mut self, name: &str, labels: &Labels, memory: Option<&MemoryStats>) {
        let Some((memory, bytes)) = memory.and_then(|memory| Some((memory, memory.working_set_bytes?)))
        else {
            return;
        };
        self.add(name, labels, float(bytes), Some(memory.time.0));
    }

    fn swap(&mut self, name: &str, labels: &Labels, swap: Option<&SwapStats>) {
        let Some((swap, bytes)) = swap.and_then(|swap| Some((swap, swap.swap_usage_bytes?))) else { return };
        self.add(name, labels, float(bytes), Some(swap.time.0));
    }

    fn container(&mut self, pod: &PodStats, container: &ContainerStats) {
        let labels: Labels =
            [("container", Arc::from(container.name.as_str()))].into_iter().chain(of(pod)).collect();
        if let Some(start) = container.start_time.filter(|start| start.0.as_second() > 0) {
            self.add("container_start_time_seconds", &labels, start.0.as_duration().as_secs_f64(), None);
        }
        self.cpu("container_cpu_usage_seconds_total", &labels, container.cpu.as_ref());
        self.memory("container_memory_working_set_bytes", &labels, container.memory.as_ref());
        self.swap("container_swap_usage_bytes", &labels, container.swap.as_ref());
        let bound = container.swap.as_ref().and_then(|swap| {
            let used = swap.swap_usage_bytes.unwrap_or(0);
            Some((swap.time.0, swap.swap_available_bytes?.saturating_add(used)))
        });
        if let Some((at, bytes)) = bound {
            self.add("container_swap_limit_bytes", &labels, float(bytes), Some(at));
        }
    }

    fn pod(&mut self, pod: &PodStats) {
        for container in &pod.containers {
            self.container(pod, container);
        }
        let labels: Labels = of(pod).into();
        self.cpu("pod_cpu_usage_seconds_total", &labels, pod.cpu.as_ref());
        self.memory("pod_memory_working_set_bytes", &labels, pod.memory.as_ref());
        self.swap("pod_swap_usage_bytes", &labels, pod.swap.as_ref());
    }
}

fn of(pod: &PodStats) -> [(&'static str, Arc<str>); 2] {
    [("namespace", Arc::from(pod.pod_ref.namespace.as_str())), ("pod", Arc::from(pod.pod_ref.name.as_str()))]
}

#[allow(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

pub(crate) fn seconds(nanos: u64) -> f64 {
    float(nanos) / 1e9
}

/// The page; without a summary it tells only that there are no figures.
pub(crate) fn page(summary: Option<&Summary>) -> Families {
    let mut page = Page::new();
    if let Some(Summary { node, pods }) = summary {
        page.cpu("node_cpu_usage_seconds_total", &Vec::new(), node.cpu.as_ref());
        page.memory("node_memory_working_set_bytes", &Vec::new(), node.memory.as_ref());
        page.swap("node_swap_usage_bytes", &Vec::new(), node.swap.as_ref());
        for pod in pods {
            page.pod(pod);
        }
    }
    let failed = if summary.is_none() { 1.0 } else { 0.0 };
    page.add("resource_scrape_error", &Vec::new(), failed, None);
    page.0.retain(|family| !family.samples.is_empty());
    Arc::new(page.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_a_page_without_figures_says_so() {
        assert!(FAMILIES.is_sorted_by_key(|(name, _, _)| *name));
        let page = page(None);
        let shown: Vec<_> = page.iter().map(|family| (family.name, family.samples[0].value)).collect();
        assert_eq!(shown, [("resource_scrape_error", 1.0)]);
    }
}
