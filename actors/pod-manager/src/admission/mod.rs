//! PURE: whether the node admits a pod: every check in upstream's order, each with upstream's reason and
//! message (row 16).
//!
//! It differs from upstream in two things. The classes `system-node-critical` and `system-cluster-critical`
//! have their priorities without an API server, and a static pod without a class has the priority 0, so that
//! static pods of these classes find room among the others. And no pod is ended for a pod that a later check
//! would refuse.

mod affinity;
mod app_armor;
#[cfg(test)]
pub(crate) mod fixtures;
mod ports;
pub mod preemption;
pub mod pressure;
mod resources;
mod room;
mod sysctl;
mod taints;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, PodSpec, Taint};
use messages::facts::{Rejection, Source};
use pod_rules::{labels, reasons};
use pod_spec::resources::NodeResources;

use self::resources::Insufficient;
pub use self::room::Room;
pub use self::sysctl::{PatternError, SysctlAllowlist};

/// The node that pods are admitted to, and its settings.
#[derive(Clone, Debug, Default)]
pub struct NodeView {
    /// `metadata.name` of the Node.
    pub name: String,
    /// `metadata.labels` of the Node.
    pub labels: BTreeMap<String, String>,
    /// `spec.taints` of the Node.
    pub taints: Vec<Taint>,
    /// The amounts that pods may have of it; empty if they are not known.
    pub resources: Arc<NodeResources>,
    /// From kubelet's configuration `maxPods`; an allocatable amount of pods in `resources` takes precedence.
    pub pods_max: usize,
    /// Kernel parameters that pods may set (`allowedUnsafeSysctls`, and the safe ones).
    pub sysctls: SysctlAllowlist,
    /// Whether the kernel enforces AppArmor profiles.
    pub app_armor: bool,
}

impl NodeView {
    /// The same node with the labels and taints of the API server's Node, if there is one.
    #[must_use]
    pub fn as_observed(&self, node: Option<&Node>) -> Self {
        let mut view = self.clone();
        if let Some(node) = node {
            view.labels = node.metadata.labels.clone().unwrap_or_default();
            view.taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        }
        view
    }

    /// The node has these resources from now on.
    pub fn set_resources(&mut self, amounts: &Arc<NodeResources>) {
        let pods = amounts.capacity.get(resources::PODS).map(|pods| pods.units_rounded_up());
        self.pods_max = pods.and_then(|pods| usize::try_from(pods).ok()).unwrap_or(self.pods_max);
        self.resources = amounts.clone();
    }
}

/// The labels that every node has, and those of `--node-labels`, which override them.
pub fn node_labels(
    name: &str,
    architecture: &str,
    further: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    labels::of_node(name, architecture).chain(further.clone()).collect()
}

/// The result of judging a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum AdmissionVerdict {
    /// The node admits the pod.
    Admit,
    /// The node refuses the pod.
    Reject(Rejection),
    /// The node admits the pod once these other pods have ended.
    Preempt {
        /// The indices of the pods to end.
        victims: Vec<usize>,
        /// The first resource of which too little is left.
        resource: String,
    },
    /// The result depends on an ability of the runtime that is not known yet.
    AskAgain,
    /// The node refuses the pod for its labels alone, which may have changed by now (row 16.2).
    AskNode(Rejection),
}

/// Judges a pod beside what all others take that are admitted and have not ended. A critical pod may end some of these
/// `others`; for any other pod they are not listed. `strict_groups` tells whether the runtime can do the supplemental
/// groups policy `Strict`, once it has.
pub fn judge<'a>(
    pod: &Pod,
    source: Source,
    room: &Room,
    others: impl FnOnce() -> Vec<&'a Pod>,
    node: &NodeView,
    strict_groups: Option<bool>,
) -> AdmissionVerdict {
    let none = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&none);
    let early = node.sysctls.check(spec).and_then(|()| os(pod, spec));
    if let Err(rejection) = early {
        return AdmissionVerdict::Reject(rejection);
    }
    if wants_strict_groups(spec) {
        match strict_groups {
            Some(true) => {}
            Some(false) => return AdmissionVerdict::Reject(no_strict_groups()),
            None => return AdmissionVerdict::AskAgain,
        }
    }
    let lacks = resources::insufficient(pod, room, &node.resources, node.pods_max);
    let (misfits, by_labels_alone) = misfits(pod, spec, source, room, node);
    let app_armor = app_armor::check(pod, node.app_armor);
    let outcome = match (lacks.first(), misfits) {
        (None, None) => Ok(AdmissionVerdict::Admit),
        // A pod that another check refuses as well is refused for that, instead of ending other pods first.
        (None, Some(misfit)) if by_labels_alone => Ok(AdmissionVerdict::AskNode(misfit)),
        (None, Some(misfit)) => Err(misfit),
        (Some(_), Some(misfit)) if preemption::is_critical(pod) => Err(misfit),
        (Some(_), None) if preemption::is_critical(pod) => make_room(pod, &others(), &lacks),
        (Some(lack), _) => Err(lack.rejection()),
    };
    match (outcome, app_armor) {
        (Ok(verdict @ AdmissionVerdict::AskNode(_)), _) => verdict,
        (Err(rejection), _) | (Ok(_), Err(rejection)) => AdmissionVerdict::Reject(rejection),
        (Ok(verdict), Ok(())) => verdict,
    }
}

fn make_room(pod: &Pod, others: &[&Pod], lacks: &[Insufficient]) -> Result<AdmissionVerdict, Rejection> {
    match preemption::victims(pod, others, lacks) {
        Ok(victims) => Ok(AdmissionVerdict::Preempt { victims, resource: lacks[0].resource.clone() }),
        Err(why) => Err(Rejection::new(
            "UnexpectedAdmissionError",
            format!(
                "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: {why}"
            ),
        )),
    }
}

fn os(pod: &Pod, spec: &PodSpec) -> Result<(), Rejection> {
    let labelled = pod.metadata.labels.as_ref().and_then(|labels| labels.get(labels::OS));
    let refuse = |reason: &str, message: &str| Err(Rejection::new(reason, message));
    if labelled.is_some_and(|os| os != labels::LINUX) {
        let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return refuse("PodOSSelectorNodeLabelDoesNotMatch", message);
    }
    if spec.os.as_ref().is_some_and(|os| os.name != labels::LINUX) {
        return refuse("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS");
    }
    Ok(())
}

fn wants_strict_groups(spec: &PodSpec) -> bool {
    let policy =
        spec.security_context.as_ref().and_then(|context| context.supplemental_groups_policy.as_ref());
    policy.is_some_and(|policy| policy == "Strict")
}

fn no_strict_groups() -> Rejection {
    Rejection::new(
        "SupplementalGroupsPolicyNotSupported",
        "SupplementalGroupsPolicy=Strict is not supported in this node",
    )
}

/// The first check besides resources that refuses the pod, and whether the node's labels are the only cause.
fn misfits(
    pod: &Pod,
    spec: &PodSpec,
    source: Source,
    room: &Room,
    node: &NodeView,
) -> (Option<Rejection>, bool) {
    let named =
        |name: &str| spec.node_name.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == name);
    let failed = [
        (
            !affinity::fits(spec, &node.name, &node.labels),
            "NodeAffinity",
            "node(s) didn't match Pod's node affinity/selector",
        ),
        (!named(&node.name), "NodeName", "node(s) didn't match the requested node name"),
        (
            ports::conflict(pod, room),
            "NodePorts",
            "node(s) didn't have free ports for the requested pod ports",
        ),
        (
            source == Source::Api && taints::untolerated(pod, &node.taints),
            "TaintToleration",
            "node(s) had taints that the pod didn't tolerate",
        ),
    ];
    let mut failed = failed.into_iter().filter(|(fails, ..)| *fails);
    let Some((_, predicate, why)) = failed.next() else { return (None, false) };
    let message = format!("Predicate {predicate} failed: {why}");
    let rejection = Rejection::new(predicate, message);
    (Some(rejection), predicate == "NodeAffinity" && failed.next().is_none())
}

/// The reasons that have a label of their own in the metric; all others share one.
const COUNTED: [&str; 13] = [
    "AppArmor",
    reasons::EVICTED,
    reasons::OUT_OF_KUBELET_ROOM,
    "PodOSSelectorNodeLabelDoesNotMatch",
    "PodOSNotSupported",
    "SupplementalGroupsPolicyNotSupported",
    "UnexpectedAdmissionError",
    "OutOfcpu",
    "OutOfmemory",
    "OutOfephemeral-storage",
    "OutOfpods",
    "PodFeatureUnsupported",
    "SysctlForbidden",
];

/// The metric's label for a refusal (row 3.5): the reasons of resources are shared, since resource names are
/// unbounded.
pub fn counted_as(reason: &str) -> &str {
    match reason {
        known if COUNTED.contains(&known) => known,
        resource if resource.starts_with("OutOf") => "OutOfExtendedResources",
        _ => "Other",
    }
}

#[cfg(test)]
mod tests;
