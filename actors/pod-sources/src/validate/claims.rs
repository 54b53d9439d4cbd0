//! Validation of a pod's resource claims, and of the claim template of a generic ephemeral volume.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    EphemeralVolumeSource, PersistentVolumeClaimSpec, PersistentVolumeClaimTemplate, PodSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::field::{Errors, Path, items, text};
use super::{metadata, names, resources, selectors};
use pod_rules::annotations::CONFIG_MIRROR;
use pod_spec::quantity::Quantity;

/// The names of claims that containers may use.
pub(super) fn names(spec: &PodSpec) -> BTreeSet<&str> {
    let names = items(&spec.resource_claims).iter().map(|claim| claim.name.as_str());
    names.filter(|name| !name.is_empty()).collect()
}

pub(super) fn validate(spec: &PodSpec, meta: &ObjectMeta, path: &Path, errors: &mut Errors) {
    let mirror = meta.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(CONFIG_MIRROR));
    let mut seen = BTreeSet::new();
    for (index, claim) in items(&spec.resource_claims).iter().enumerate() {
        let path = path.index(index);
        if mirror {
            errors.forbidden(&path, "static pods do not support resource claims");
            continue;
        }
        let name = claim.name.as_str();
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        } else if seen.insert(name) {
            errors.all_invalid(&path.child("name"), name, names::dns_label(name));
        } else {
            errors.duplicate(&path.child("name"), name);
        }
        let sources = [
            ("resourceClaimName", &claim.resource_claim_name),
            ("resourceClaimTemplateName", &claim.resource_claim_template_name),
        ];
        match sources.iter().filter(|(_, source)| source.is_some()).count() {
            0 => errors.invalid(
                &path,
                name,
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
            1 => {}
            _ => errors.invalid(
                &path,
                name,
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
        }
        for (field, source) in sources {
            if let Some(source) = source {
                errors.all_invalid(&path.child(field), source, names::dns_subdomain(source));
            }
        }
    }
}

pub(super) fn ephemeral_volume(source: &EphemeralVolumeSource, path: &Path, errors: &mut Errors) {
    let path = path.child("volumeClaimTemplate");
    let Some(template) = &source.volume_claim_template else {
        return errors.required(&path, "");
    };
    template_metadata(template, &path.child("metadata"), errors);
    claim(&template.spec, &path.child("spec"), errors);
}

fn template_metadata(template: &PersistentVolumeClaimTemplate, path: &Path, errors: &mut Errors) {
    let Some(meta) = &template.metadata else { return };
    metadata::annotations(meta.annotations.as_ref(), &path.child("annotations"), errors);
    metadata::labels(meta.labels.as_ref(), &path.child("labels"), errors);
    // Checked as JSON, so that no field of metadata can be forgotten here.
    let written = serde_json::to_value(meta).unwrap_or_default();
    for (field, _) in written.as_object().into_iter().flatten() {
        if !matches!(field.as_str(), "annotations" | "labels") {
            errors.forbidden(&path.child(field), "cannot be set");
        }
    }
}

fn claim(spec: &PersistentVolumeClaimSpec, path: &Path, errors: &mut Errors) {
    access_modes(items(&spec.access_modes), &path.child("accessModes"), errors);
    if let Some(selector) = &spec.selector {
        selectors::label_selector(selector, &path.child("selector"), errors);
    }
    let storage_path = path.child("resources").key("storage");
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    match requests.and_then(|requests| requests.get("storage")).map(|text| Quantity::parse(&text.0)) {
        None => errors.required(&storage_path, ""),
        Some(Err(error)) => errors.invalid(&storage_path, &error.text, error.to_string()),
        Some(Ok(storage)) if storage.signum() <= 0 => {
            errors.invalid(&storage_path, &storage.to_string(), "must be greater than zero");
        }
        Some(Ok(storage)) => resources::value("storage", storage, &storage_path, errors),
    }
    for (field, value) in [
        ("storageClassName", &spec.storage_class_name),
        ("volumeAttributesClassName", &spec.volume_attributes_class_name),
    ] {
        let value = text(value);
        if !value.is_empty() {
            errors.all_invalid(&path.child(field), value, names::dns_subdomain(value));
        }
    }
    if let Some(mode) = &spec.volume_mode {
        errors.one_of(&path.child("volumeMode"), mode, &["Block", "Filesystem"]);
    }
    data_sources(spec, path, errors);
}

fn access_modes(modes: &[String], path: &Path, errors: &mut Errors) {
    const SUPPORTED: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    if modes.is_empty() {
        errors.required(path, "at least 1 access mode is required");
    }
    for mode in modes {
        errors.one_of(path, mode, &SUPPORTED);
    }
    let once_pod = |mode: &&String| *mode == "ReadWriteOncePod";
    let other = |mode: &String| mode != "ReadWriteOncePod" && SUPPORTED.contains(&mode.as_str());
    if modes.iter().any(|mode| once_pod(&mode)) && modes.iter().any(other) {
        errors.forbidden(path, "may not use ReadWriteOncePod with other access modes");
    }
}

fn data_sources(spec: &PersistentVolumeClaimSpec, path: &Path, errors: &mut Errors) {
    if let Some(source) = &spec.data_source {
        let path = path.child("dataSource");
        data_source(&source.name, &source.kind, text(&source.api_group), &path, errors);
    }
    let Some(reference) = &spec.data_source_ref else { return };
    let reference_path = path.child("dataSourceRef");
    data_source(&reference.name, &reference.kind, text(&reference.api_group), &reference_path, errors);
    let namespace = text(&reference.namespace);
    if !namespace.is_empty() {
        errors.all_invalid(&reference_path.child("namespace"), namespace, names::dns_label(namespace));
    }
    let Some(source) = &spec.data_source else { return };
    let source_path = path.child("dataSource");
    if !namespace.is_empty() {
        let message = "may not be specified when dataSourceRef.namespace is specified";
        errors.invalid(&source_path, &source.name, message);
    } else if (&source.api_group, &source.kind, &source.name)
        != (&reference.api_group, &reference.kind, &reference.name)
    {
        errors.invalid(&source_path, &source.name, "must match dataSourceRef");
    }
}

fn data_source(name: &str, kind: &str, group: &str, path: &Path, errors: &mut Errors) {
    errors.not_empty(&path.child("name"), name);
    errors.not_empty(&path.child("kind"), kind);
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let message = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.invalid(path, kind, message);
    }
    if !group.is_empty() {
        errors.all_invalid(&path.child("apiGroup"), group, names::dns_subdomain(group));
    }
}
