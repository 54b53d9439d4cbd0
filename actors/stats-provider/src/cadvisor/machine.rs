//! PURE: the machine's series.

use std::sync::Arc;

use bridge_node::stats::usage::Reading;
use messages::stats::{Family, FamilyKind, Sample};

use crate::resource::float;

/// The machine as its series name it. A text that the machine does not state is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// `boot_id`
    pub boot_id: Arc<str>,
    /// `machine_id`
    pub machine_id: Arc<str>,
    /// `system_uuid`
    pub system_uuid: Arc<str>,
    /// The kernel's version.
    pub kernel_version: Arc<str>,
    /// The name of the OS.
    pub os_image: Arc<str>,
}

impl Machine {
    fn gauge(&self, name: &'static str, help: &'static str, value: Option<u64>) -> Family {
        let labels = [
            ("boot_id", self.boot_id.clone()),
            ("machine_id", self.machine_id.clone()),
            ("system_uuid", self.system_uuid.clone()),
        ];
        let sample = |value| Sample { labels: labels.into(), value: float(value), at: None };
        Family {
            name,
            help: help.into(),
            kind: FamilyKind::Gauge,
            samples: value.map(sample).into_iter().collect(),
        }
    }

    fn version(&self) -> Family {
        let labels = [
            ("cadvisorRevision", Arc::from("")),
            ("cadvisorVersion", Arc::from("")),
            ("dockerVersion", Arc::from("")),
            ("kernelVersion", self.kernel_version.clone()),
            ("osVersion", self.os_image.clone()),
        ];
        Family {
            name: "cadvisor_version_info",
            help: "Always 1, labelled with the versions of the machine's kernel and OS".into(),
            kind: FamilyKind::Gauge,
            samples: vec![Sample { labels: labels.into(), value: 1.0, at: None }],
        }
    }

    pub(crate) fn families(&self, reading: Option<&Reading>) -> Vec<Family> {
        let processors = reading.and_then(|reading| reading.processors);
        let of = |figure: fn(&Reading) -> Option<u64>| reading.and_then(figure);
        let failed =
            Sample { labels: Vec::new(), value: if reading.is_none() { 1.0 } else { 0.0 }, at: None };
        vec![
            self.version(),
            self.gauge("machine_cpu_cores", "Logical CPUs", processors.map(|it| it.logical)),
            self.gauge("machine_cpu_physical_cores", "Cores", processors.map(|it| it.cores)),
            self.gauge("machine_cpu_sockets", "Sockets", processors.map(|it| it.sockets)),
            self.gauge("machine_memory_bytes", "Memory, in bytes", of(|reading| reading.memory_bytes)),
            self.gauge("machine_swap_bytes", "Swap, in bytes", of(|reading| reading.swap_bytes)),
            Family {
                name: "machine_scrape_error",
                help: "1 if the machine's figures could not be read, otherwise 0".into(),
                kind: FamilyKind::Gauge,
                samples: vec![failed],
            },
        ]
    }
}
