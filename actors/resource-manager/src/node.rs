//! What is asked of the node's own cgroups, and what is said about it (row 14.7).

use bridge_node::cgroups::{CgroupError, CgroupNames, CgroupValues};
use messages::event_recorder::{EventObject, EventType, RecordEvent};

use crate::capacity::Amounts;
use crate::values::node_values;

/// Whose processes a cgroup of the administrator's holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservedFor {
    /// `systemReservedCgroup`
    System,
    /// `kubeReservedCgroup`
    Kube,
}

/// A cgroup of the administrator's that is held to what is reserved for it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReservedCgroup {
    /// Whose it is.
    pub reserved_for: ReservedFor,
    /// As configured.
    pub name: String,
    /// What is reserved.
    pub amounts: Amounts,
    /// Only what can be taken away again is enforced: CPU.
    pub compressible_only: bool,
}

/// One cgroup of the node's, its values, and what to say.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Enforcement {
    /// Its name.
    pub cgroup: String,
    /// What it holds.
    pub values: CgroupValues,
    /// It is ours and is made; others must be there.
    pub ours: bool,
    done: String,
    failed: String,
}

impl Enforcement {
    /// The event that tells how it went.
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

/// Everything that is enforced on the node's cgroups, that of all pods first.
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
            // A name that cannot be one names no cgroup that is there.
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
