//! Validation of the scheduler's fields: affinity, tolerations, topology, gates. The kubelet does not schedule, but a
//! pod that the API server would refuse gets no mirror pod.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm, PodSpec, Toleration,
    TopologySpreadConstraint, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use pod_rules::taints;

use super::field::{Errors, Path, items, text};
use super::names;
use super::selectors::{label_key, label_selector};

pub(super) fn validate(spec: &PodSpec, path: &Path, errors: &mut Errors) {
    if let Some(affinity) = &spec.affinity {
        let path = path.child("affinity");
        if let Some(nodes) = &affinity.node_affinity {
            node_affinity(nodes, &path.child("nodeAffinity"), errors);
        }
        if let Some(pods) = &affinity.pod_affinity {
            pod_affinity(
                items(&pods.required_during_scheduling_ignored_during_execution),
                items(&pods.preferred_during_scheduling_ignored_during_execution),
                &path.child("podAffinity"),
                errors,
            );
        }
        if let Some(pods) = &affinity.pod_anti_affinity {
            pod_affinity(
                items(&pods.required_during_scheduling_ignored_during_execution),
                items(&pods.preferred_during_scheduling_ignored_during_execution),
                &path.child("podAntiAffinity"),
                errors,
            );
        }
    }
    let mut seen = BTreeSet::new();
    for (index, gate) in items(&spec.scheduling_gates).iter().enumerate() {
        let path = path.child("schedulingGates").index(index);
        label_key(&gate.name, &path, errors);
        if !seen.insert(gate.name.as_str()) {
            errors.duplicate(&path, &gate.name);
        }
    }
    let constraints = items(&spec.topology_spread_constraints);
    spread_constraints(constraints, &path.child("topologySpreadConstraints"), errors);
    tolerations(items(&spec.tolerations), &path.child("tolerations"), errors);
}

pub(super) fn tolerations(tolerations: &[Toleration], path: &Path, errors: &mut Errors) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let path = path.index(index);
        let (key, value) = (text(&toleration.key), text(&toleration.value));
        let (operator, effect) = (text(&toleration.operator), text(&toleration.effect));
        if !key.is_empty() {
            label_key(key, &path.child("key"), errors);
        }
        let operator_path = path.child("operator");
        if key.is_empty() && operator != "Exists" {
            let message =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&operator_path, operator, message);
        }
        if toleration.toleration_seconds.is_some() && effect != taints::NO_EXECUTE {
            let message = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&path.child("effect"), effect, message);
        }
        match operator {
            "Equal" | "" => {
                let messages = names::label_value(value);
                if !messages.is_empty() {
                    errors.invalid(&operator_path, value, messages.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                errors.invalid(&operator_path, value, "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            other => errors.unsupported(&operator_path, other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            let effects = &taints::EFFECTS;
            errors.one_of(&path.child("effect"), effect, effects);
        }
    }
}

fn node_affinity(affinity: &NodeAffinity, path: &Path, errors: &mut Errors) {
    if let Some(selector) = &affinity.required_during_scheduling_ignored_during_execution {
        let path = path.child("requiredDuringSchedulingIgnoredDuringExecution").child("nodeSelectorTerms");
        if selector.node_selector_terms.is_empty() {
            errors.required(&path, "must have at least one node selector term");
        }
        for (index, term) in selector.node_selector_terms.iter().enumerate() {
            node_selector_term(term, true, &path.index(index), errors);
        }
    }
    let path = path.child("preferredDuringSchedulingIgnoredDuringExecution");
    for (index, term) in
        items(&affinity.preferred_during_scheduling_ignored_during_execution).iter().enumerate()
    {
        let path = path.index(index);
        weight(term.weight, &path, errors);
        // A preference for values that no label can have is valid and never satisfied.
        node_selector_term(&term.preference, false, &path.child("preference"), errors);
    }
}

fn weight(weight: i32, path: &Path, errors: &mut Errors) {
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.child("weight"), &weight, "must be in the range 1-100");
    }
}

fn node_selector_term(term: &NodeSelectorTerm, check_values: bool, path: &Path, errors: &mut Errors) {
    for (index, requirement) in items(&term.match_expressions).iter().enumerate() {
        let path = path.child("matchExpressions").index(index);
        node_expression(requirement, check_values, &path, errors);
    }
    for (index, requirement) in items(&term.match_fields).iter().enumerate() {
        node_field(requirement, &path.child("matchFields").index(index), errors);
    }
}

fn node_expression(
    requirement: &NodeSelectorRequirement,
    check_values: bool,
    path: &Path,
    errors: &mut Errors,
) {
    let (values, values_path) = (items(&requirement.values), path.child("values"));
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(&values_path, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let message = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.forbidden(&values_path, message);
        }
        "Gt" | "Lt" if values.len() != 1 => {
            let message = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.required(&values_path, message);
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
    }
    label_key(&requirement.key, &path.child("key"), errors);
    if check_values {
        for (index, value) in values.iter().enumerate() {
            errors.all_invalid(&values_path.index(index), value, names::label_value(value));
        }
    }
}

fn node_field(requirement: &NodeSelectorRequirement, path: &Path, errors: &mut Errors) {
    let values = items(&requirement.values);
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.len() != 1 => errors.required(
            &path.child("values"),
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        ),
        "In" | "NotIn" => {}
        other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
    }
    if requirement.key != "metadata.name" {
        return errors.invalid(&path.child("key"), &requirement.key, "not a valid field selector key");
    }
    for (index, value) in values.iter().enumerate() {
        errors.all_invalid(&path.child("values").index(index), value, names::dns_subdomain(value));
    }
}

fn pod_affinity(
    required: &[PodAffinityTerm],
    preferred: &[WeightedPodAffinityTerm],
    path: &Path,
    errors: &mut Errors,
) {
    for (index, term) in required.iter().enumerate() {
        let path = path.child("requiredDuringSchedulingIgnoredDuringExecution").index(index);
        pod_affinity_term(term, &path, errors);
    }
    for (index, term) in preferred.iter().enumerate() {
        let path = path.child("preferredDuringSchedulingIgnoredDuringExecution").index(index);
        weight(term.weight, &path, errors);
        pod_affinity_term(&term.pod_affinity_term, &path.child("podAffinityTerm"), errors);
    }
}

fn pod_affinity_term(term: &PodAffinityTerm, path: &Path, errors: &mut Errors) {
    for (name, selector) in
        [("labelSelector", &term.label_selector), ("namespaceSelector", &term.namespace_selector)]
    {
        if let Some(selector) = selector {
            label_selector(selector, &path.child(name), errors);
        }
    }
    for (index, namespace) in items(&term.namespaces).iter().enumerate() {
        let path = path.child("namespaces").index(index);
        errors.all_invalid(&path, namespace, names::dns_label(namespace));
    }
    let (matching, mismatching) = (items(&term.match_label_keys), items(&term.mismatch_label_keys));
    match_label_keys(matching, mismatching, term.label_selector.as_ref(), path, errors);
    if term.topology_key.is_empty() {
        errors.required(&path.child("topologyKey"), "can not be empty");
    }
    label_key(&term.topology_key, &path.child("topologyKey"), errors);
}

/// Keys whose values are taken from the pod: they are added to a selector, which must exist and may have each key once.
fn match_label_keys(
    matching: &[String],
    mismatching: &[String],
    selector: Option<&LabelSelector>,
    path: &Path,
    errors: &mut Errors,
) {
    for (name, keys) in [("matchLabelKeys", matching), ("mismatchLabelKeys", mismatching)] {
        let path = path.child(name);
        if !keys.is_empty() && selector.is_none() {
            errors.forbidden(&path, "must not be specified when labelSelector is not set");
        } else {
            keys.iter().enumerate().for_each(|(index, key)| label_key(key, &path.index(index), errors));
        }
    }
    let path = path.child("matchLabelKeys");
    if let Some(selector) = selector {
        let position: BTreeMap<_, _> = matching.iter().enumerate().map(|(index, key)| (key, index)).collect();
        let mut selected: BTreeSet<_> = selector.match_labels.iter().flatten().map(|(key, _)| key).collect();
        for expression in items(&selector.match_expressions) {
            if let (Some(index), true) = (position.get(&expression.key), selected.contains(&expression.key)) {
                let message = "exists in both matchLabelKeys and labelSelector";
                errors.invalid(&path.index(*index), &expression.key, message);
            }
            selected.insert(&expression.key);
        }
    }
    let mismatching: BTreeSet<&String> = mismatching.iter().collect();
    for (index, key) in matching.iter().enumerate().filter(|(_, key)| mismatching.contains(key)) {
        errors.invalid(&path.index(index), key, "exists in both matchLabelKeys and mismatchLabelKeys");
    }
}

fn spread_constraints(constraints: &[TopologySpreadConstraint], path: &Path, errors: &mut Errors) {
    let positive = "must be greater than zero";
    let pair_of = |constraint: &TopologySpreadConstraint| {
        (constraint.topology_key.clone(), constraint.when_unsatisfiable.clone())
    };
    let last: BTreeMap<_, _> =
        constraints.iter().enumerate().map(|(index, constraint)| (pair_of(constraint), index)).collect();
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        if constraint.max_skew <= 0 {
            errors.invalid(&path.child("maxSkew"), &constraint.max_skew, positive);
        }
        if constraint.topology_key.is_empty() {
            errors.required(&path.child("topologyKey"), "can not be empty");
        }
        let action = constraint.when_unsatisfiable.as_str();
        errors.one_of(&path.child("whenUnsatisfiable"), action, &["DoNotSchedule", "ScheduleAnyway"]);
        if last.get(&pair_of(constraint)).is_some_and(|last| *last > index) {
            let pair = format!("{{{}, {action}}}", constraint.topology_key);
            errors.duplicate(&path.child("{topologyKey, whenUnsatisfiable}"), &pair);
        }
        if let Some(domains) = constraint.min_domains {
            let path = path.child("minDomains");
            if domains <= 0 {
                errors.invalid(&path, &domains, positive);
            }
            if action != "DoNotSchedule" {
                let message =
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.invalid(&path, &domains, message);
            }
        }
        for (name, policy) in [
            ("nodeAffinityPolicy", &constraint.node_affinity_policy),
            ("nodeTaintsPolicy", &constraint.node_taints_policy),
        ] {
            if let Some(policy) = policy {
                errors.one_of(&path.child(name), policy, &["Honor", "Ignore"]);
            }
        }
        let selector = constraint.label_selector.as_ref();
        match_label_keys(items(&constraint.match_label_keys), &[], selector, &path, errors);
        if let Some(selector) = selector {
            label_selector(selector, &path.child("labelSelector"), errors);
        }
    }
}
