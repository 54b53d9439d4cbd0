//! Validation of restart and resize policies of containers.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule};

use pod_rules::restart::{RESTART, RESTART_ALL, RestartPolicy};

use super::field::{Errors, Path, items};

const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;

pub(super) fn of_container(container: &Container, path: &Path, errors: &mut Errors) {
    let given = items(&container.restart_policy_rules);
    match &container.restart_policy {
        None if given.is_empty() => return,
        None => errors
            .required(&path.child("restartPolicy"), "must specify restartPolicy when restart rules are used"),
        Some(policy) => {
            errors.one_of(
                &path.child("restartPolicy"),
                policy,
                &RestartPolicy::ALL.map(RestartPolicy::as_str),
            );
        }
    }
    rules(given, &path.child("restartPolicyRules"), errors);
}

/// Validates the restart policy and rules of an init container. Rules without a policy are one error, and are not
/// checked further.
pub(super) fn of_init_container(container: &Container, path: &Path, errors: &mut Errors) {
    if container.restart_policy.is_some() {
        return of_container(container, path, errors);
    }
    if !items(&container.restart_policy_rules).is_empty() {
        let message = "must specify restartPolicy when restart rules are used";
        errors.required(&path.child("restartPolicy"), message);
    }
}

fn rules(rules: &[ContainerRestartRule], path: &Path, errors: &mut Errors) {
    if rules.len() > RULES_MAX {
        errors.too_many(path, rules.len(), RULES_MAX);
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        errors.one_of(&path.child("action"), &rule.action, &[RESTART, RESTART_ALL]);
        let path = path.child("exitCodes");
        let Some(codes) = &rule.exit_codes else {
            errors.required(&path, "must be specified");
            continue;
        };
        errors.one_of(&path.child("operator"), &codes.operator, &["In", "NotIn"]);
        let values = items(&codes.values);
        if values.len() > EXIT_CODES_MAX {
            errors.too_many(&path.child("values"), values.len(), EXIT_CODES_MAX);
        }
    }
}

pub(super) fn resize(container: &Container, pod_restart_policy: &str, path: &Path, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, policy) in items(&container.resize_policy).iter().enumerate() {
        let path = path.index(index);
        if !seen.insert(policy.resource_name.as_str()) {
            errors.duplicate(&path, &policy.resource_name);
        }
        errors.required_one_of(&path.child("resourceName"), &policy.resource_name, &["cpu", "memory"]);
        let (policy, path) = (&policy.restart_policy, path.child("restartPolicy"));
        errors.required_one_of(&path, policy, &["NotRequired", "RestartContainer"]);
        if pod_restart_policy == RestartPolicy::Never.as_str() && policy != "NotRequired" {
            let message = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.invalid(&path, policy, message);
        }
    }
}
