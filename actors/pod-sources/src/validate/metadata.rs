//! Validation of a pod's metadata, and of annotations that concern its spec.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{AppArmorProfile, PodSpec, SeccompProfile, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_rules::annotations::{
    APPARMOR_PREFIX, CONFIG_MIRROR, PROFILE_LOCALHOST_PREFIX, PROFILE_RUNTIME_DEFAULT, PROFILE_UNCONFINED,
};

use super::field::{Errors, Path, items, text};
use super::{names, paths, scheduling, spec};

/// At most so many bytes in all annotations together.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";

pub(super) fn validate(meta: &ObjectMeta, path: &Path, errors: &mut Errors) {
    if !text(&meta.generate_name).is_empty() {
        let generate_name = text(&meta.generate_name);
        let messages = names::dns_subdomain_prefix(generate_name);
        errors.all_invalid(&path.child("generateName"), generate_name, messages);
    }
    let (name, namespace) = (text(&meta.name), text(&meta.namespace));
    if name.is_empty() {
        errors.required(&path.child("name"), "name or generateName is required");
    } else {
        errors.all_invalid(&path.child("name"), name, names::dns_subdomain(name));
    }
    if namespace.is_empty() {
        errors.required(&path.child("namespace"), "");
    } else {
        errors.all_invalid(&path.child("namespace"), namespace, names::dns_label(namespace));
    }
    errors.not_negative(&path.child("generation"), meta.generation.unwrap_or(0));
    labels(meta.labels.as_ref(), &path.child("labels"), errors);
    annotations(meta.annotations.as_ref(), &path.child("annotations"), errors);
    owners(meta, &path.child("ownerReferences"), errors);
    finalizers(items(&meta.finalizers), &path.child("finalizers"), errors);
}

pub(super) fn labels(labels: Option<&BTreeMap<String, String>>, path: &Path, errors: &mut Errors) {
    for (key, value) in labels.into_iter().flatten() {
        errors.all_invalid(path, key, names::qualified_name(key));
        errors.all_invalid(&path.key(key), value, names::label_value(value));
    }
}

pub(super) fn annotations(annotations: Option<&BTreeMap<String, String>>, path: &Path, errors: &mut Errors) {
    let mut bytes = 0;
    for (key, value) in annotations.into_iter().flatten() {
        // Case does not matter in an annotation's key.
        errors.all_invalid(path, key, names::qualified_name(&key.to_lowercase()));
        bytes += key.len() + value.len();
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.too_long(path, ANNOTATIONS_BYTES_MAX);
    }
}

fn owners(meta: &ObjectMeta, path: &Path, errors: &mut Errors) {
    let mut controllers = 0;
    for (index, owner) in items(&meta.owner_references).iter().enumerate() {
        let path = path.index(index);
        for (name, value) in [
            ("apiVersion", &owner.api_version),
            ("kind", &owner.kind),
            ("name", &owner.name),
            ("uid", &owner.uid),
        ] {
            if value.is_empty() {
                errors.invalid(&path.child(name), value, "must not be empty");
            }
        }
        controllers += usize::from(owner.controller == Some(true));
    }
    if controllers > 1 {
        errors.invalid(path, &controllers, "Only one reference can have Controller set to true");
    }
}

fn finalizers(finalizers: &[String], path: &Path, errors: &mut Errors) {
    for (index, finalizer) in finalizers.iter().enumerate() {
        errors.all_invalid(path, finalizer, names::qualified_name(finalizer));
        let standard = matches!(finalizer.as_str(), "kubernetes" | "orphan" | "foregroundDeletion");
        if !finalizer.contains('/') && !standard {
            let message = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid(&path.index(index), finalizer, message);
        }
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let message = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.invalid(path, &finalizers.to_vec(), message);
    }
}

/// Validates the annotations that have a meaning in Kubernetes.
pub(super) fn pod_annotations(meta: &ObjectMeta, spec: &PodSpec, path: &Path, errors: &mut Errors) {
    let containers: BTreeSet<&str> = spec::containers(spec).map(|(name, ..)| name).collect();
    for (key, value) in meta.annotations.iter().flatten() {
        if key == CONFIG_MIRROR && text(&spec.node_name).is_empty() {
            let message = "must set spec.nodeName if mirror pod annotation is set";
            errors.invalid(&path.key(key), value, message);
        }
        if key == TOLERATIONS && !value.is_empty() {
            match serde_json::from_slice::<Vec<Toleration>>(value.as_bytes()) {
                Ok(list) => scheduling::tolerations(&list, &path.child(key), errors),
                Err(error) => errors.invalid(path, key, error.to_string()),
            }
        }
        let plain = value == "0" || value.starts_with(['-', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
        if key == DELETION_COST && !(plain && value.parse::<i32>().is_ok()) {
            errors.invalid(&path.key(key), value, "must be a 32bit integer");
        }
        if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            seccomp_annotation(value, &path.child(key), errors);
        }
        if let Some(container) = key.strip_prefix(APPARMOR_PREFIX) {
            if !containers.contains(container) {
                errors.invalid(&path.key(key), container, "container not found");
            }
            if !matches!(value.as_str(), "" | PROFILE_RUNTIME_DEFAULT | PROFILE_UNCONFINED)
                && !value.starts_with(PROFILE_LOCALHOST_PREFIX)
            {
                errors.invalid(&path.key(key), value, format!("invalid AppArmor profile name: {value:?}"));
            }
        }
    }
}

fn seccomp_annotation(profile: &str, path: &Path, errors: &mut Errors) {
    if matches!(profile, PROFILE_RUNTIME_DEFAULT | "docker/default" | PROFILE_UNCONFINED) {
        return;
    }
    match profile.strip_prefix(PROFILE_LOCALHOST_PREFIX) {
        Some(file) => paths::local_descending(file, path, errors),
        None => errors.invalid(path, profile, "must be a valid seccomp profile"),
    }
}

/// An old annotation and the field that replaced it must agree.
pub(super) fn annotations_match_fields(meta: &ObjectMeta, spec: &PodSpec, path: &Path, errors: &mut Errors) {
    let annotation = |key: &str| {
        meta.annotations.as_ref().and_then(|annotations| annotations.get(key)).map(String::as_str)
    };
    let pod = spec.security_context.as_ref();
    if let (Some(value), Some(profile)) =
        (annotation(SECCOMP_POD), pod.and_then(|context| context.seccomp_profile.as_ref()))
    {
        seccomp_matches(value, profile, &path.child("securityContext").child("seccompProfile"), errors);
    }
    let windows = spec.os.as_ref().is_some_and(|os| os.name == "windows");
    let pod_apparmor = pod.and_then(|context| context.app_armor_profile.as_ref());
    for (name, context, path) in spec::containers(spec) {
        let context_path = path.child("securityContext");
        let seccomp = context.and_then(|context| context.seccomp_profile.as_ref());
        if let (Some(value), Some(profile)) = (annotation(&format!("{SECCOMP_CONTAINER}{name}")), seccomp) {
            seccomp_matches(value, profile, &context_path.child("seccompProfile"), errors);
        }
        let apparmor = context.and_then(|context| context.app_armor_profile.as_ref()).or(pod_apparmor);
        if let (false, Some(value), Some(profile)) =
            (windows, annotation(&format!("{APPARMOR_PREFIX}{name}")), apparmor)
        {
            apparmor_matches(value, profile, &context_path.child("appArmorProfile"), errors);
        }
    }
}

fn seccomp_matches(value: &str, profile: &SeccompProfile, path: &Path, errors: &mut Errors) {
    let allowed: &[&str] = match profile.type_.as_str() {
        "Unconfined" => &[PROFILE_UNCONFINED],
        "RuntimeDefault" => &[PROFILE_RUNTIME_DEFAULT, "docker/default"],
        "Localhost" => {
            return localhost_matches("seccomp", value, profile.localhost_profile.as_deref(), path, errors);
        }
        _ => return,
    };
    if !allowed.contains(&value) {
        errors.forbidden(&path.child("type"), "seccomp type in annotation and field must match");
    }
}

fn apparmor_matches(value: &str, profile: &AppArmorProfile, path: &Path, errors: &mut Errors) {
    let allowed = match profile.type_.as_str() {
        "Unconfined" => PROFILE_UNCONFINED,
        "RuntimeDefault" => PROFILE_RUNTIME_DEFAULT,
        "Localhost" => {
            return localhost_matches("apparmor", value, profile.localhost_profile.as_deref(), path, errors);
        }
        _ => return,
    };
    if value != allowed {
        errors.forbidden(&path.child("type"), "apparmor type in annotation and field must match");
    }
}

fn localhost_matches(what: &str, value: &str, profile: Option<&str>, path: &Path, errors: &mut Errors) {
    match value.strip_prefix(PROFILE_LOCALHOST_PREFIX) {
        None => {
            errors.forbidden(&path.child("type"), &format!("{what} type in annotation and field must match"));
        }
        Some(file) if Some(file) != profile => errors.forbidden(
            &path.child("localhostProfile"),
            &format!("{what} profile in annotation and field must match"),
        ),
        Some(_) => {}
    }
}
