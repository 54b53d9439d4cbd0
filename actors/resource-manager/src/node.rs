//! The values of the node's own cgroups, the events about them (row 14.7), and the cgroups of processes that are no pod's.

use bridge_node::cgroups::{CgroupError, CgroupNames, CgroupValues};
use messages::event_recorder::{EventObject, EventType, RecordEvent};

use crate::capacity::Amounts;
use crate::values::node_values;

/// Which processes a cgroup of the administrator's holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservedFor {
    /// `systemReservedCgroup`
    System,
    /// `kubeReservedCgroup`
    Kube,
}

/// A cgroup of the administrator's that is limited to what is reserved for it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReservedCgroup {
    /// The processes in it.
    pub reserved_for: ReservedFor,
    /// Its name, as configured.
    pub name: String,
    /// The reserved amounts, which become its limits.
    pub amounts: Amounts,
    /// Whether only compressible resources are enforced, which can be taken away again: CPU.
    pub compressible_only: bool,
}

/// The cgroups of processes that are no pod's (row 14.10), by their whole names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessCgroups {
    /// `kubeletCgroups`: that of the kubelet's own process; `None` leaves it where it is.
    pub kubelet: Option<String>,
    /// `systemCgroups`: that of all processes that are in the root cgroup; `None` leaves them there.
    pub system: Option<String>,
    /// `oomScoreAdj`: the OOM score adjustment of the kubelet's own process, -1000 to 1000.
    pub oom_score_adj: i32,
}

impl ProcessCgroups {
    /// Whether any process is moved.
    pub(crate) fn moves_any(&self) -> bool {
        self.kubelet.is_some() || self.system.is_some()
    }
}

/// One of the node's cgroups, its values, and the texts of its events.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Enforcement {
    /// Its name.
    pub cgroup: String,
    /// The values to write.
    pub values: CgroupValues,
    /// Whether the cgroup is the kubelet's and is made; one of the administrator's must exist.
    pub ours: bool,
    done: String,
    failed: String,
}

impl Enforcement {
    /// The event about the result.
    pub(crate) fn event(&self, result: &Result<(), CgroupError>) -> RecordEvent {
        let (event_type, reason, message) = match result {
            Ok(()) => (EventType::Normal, "NodeAllocatableEnforced", self.done.clone()),
            Err(error) => {
                let message = format!("{}: {error}", self.failed);
                (EventType::Warning, "FailedNodeAllocatableEnforcement", message)
            }
        };
        RecordEvent { object: EventObject::Node, event_type, reason: reason.into(), message: message.into() }
    }
}

/// The cgroups of the node that are enforced, the one of all pods first.
pub(crate) fn enforcements(
    names: &CgroupNames,
    pods: &Amounts,
    reserved: &[ReservedCgroup],
) -> Vec<Enforcement> {
    let kubepods = names.kubepods();
    let of_pods = Enforcement {
        values: node_values(pods, false),
        ours: true,
        done: "Updated Node Allocatable limit across pods".to_owned(),
        failed: format!("Failed to update Node Allocatable Limits {}", names.in_words(&kubepods)),
        cgroup: kubepods,
    };
    let of_others = reserved.iter().map(|reserved| {
        let (name, compressible) =
            (&reserved.name, if reserved.compressible_only { " Compressible" } else { "" });
        let (field, small, large) = match reserved.reserved_for {
            ReservedFor::System => ("systemReservedCgroup", "system", "System"),
            ReservedFor::Kube => ("kubeReservedCgroup", "kube", "Kube"),
        };
        Enforcement {
            // A name that is not a valid one belongs to no cgroup, and the attempt says so.
            cgroup: names.configured(field, name).unwrap_or_else(|_| name.clone()),
            values: node_values(&reserved.amounts, reserved.compressible_only),
            ours: false,
            done: format!("Updated limits on {small} reserved cgroup {name}"),
            failed: format!("Failed to enforce {large} Reserved{compressible} Cgroup Limits on {name:?}"),
        }
    });
    std::iter::once(of_pods).chain(of_others).collect()
}

#[cfg(test)]
mod tests {
    use bridge_node::cgroups::CgroupDriver;
    use pod_spec::quantity::Quantity;

    use super::*;

    #[test]
    fn texts_are_upstreams() {
        let names = CgroupNames::new(CgroupDriver::Systemd, "/").unwrap();
        let cpu = Amounts::from([("cpu".to_owned(), Quantity::decimal(1))]);
        let reserved = |reserved_for, name: &str, compressible_only| ReservedCgroup {
            reserved_for,
            name: name.to_owned(),
            amounts: cpu.clone(),
            compressible_only,
        };
        let all = enforcements(
            &names,
            &cpu,
            &[
                reserved(ReservedFor::System, "/system.slice", false),
                reserved(ReservedFor::Kube, "/kube.slice", true),
            ],
        );
        let told = |result: Result<(), CgroupError>| -> Vec<String> {
            let text = |one: &Enforcement| {
                let event = one.event(&result);
                format!("{} {}", event.reason, event.message)
            };
            all.iter().map(text).collect()
        };
        assert_eq!(
            told(Ok(())),
            [
                "NodeAllocatableEnforced Updated Node Allocatable limit across pods",
                "NodeAllocatableEnforced Updated limits on system reserved cgroup /system.slice",
                "NodeAllocatableEnforced Updated limits on kube reserved cgroup /kube.slice",
            ]
        );
        let reason = "FailedNodeAllocatableEnforcement";
        let why = "no cgroup hierarchy is mounted";
        assert_eq!(
            told(Err(CgroupError::NotMounted)),
            [
                format!("{reason} Failed to update Node Allocatable Limits [\"kubepods\"]: {why}"),
                format!(
                    "{reason} Failed to enforce System Reserved Cgroup Limits on \"/system.slice\": {why}"
                ),
                format!(
                    "{reason} Failed to enforce Kube Reserved Compressible Cgroup Limits on \"/kube.slice\": {why}"
                ),
            ]
        );
        assert_eq!(all.iter().map(|one| one.ours).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(all[1].values.huge_pages, all[0].values.huge_pages);
        assert_eq!(all[2].values.huge_pages, None);
    }
}
