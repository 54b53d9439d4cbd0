//! Validation of environment variables and of the sources of their values.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    EnvFromSource, EnvVar, EnvVarSource, FileKeySelector, ObjectFieldSelector, PodSpec,
    ResourceFieldSelector, Volume,
};

use super::field::{Errors, Path, items, text};
use super::{names, paths};
use pod_spec::quantity::Quantity;

/// Fields of the pod that a variable may hold.
const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields of the pod that a file may hold.
pub(super) const FILE_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// Fields that the downward API knows, and another name of one of them.
const KNOWN_FIELDS: [&str; 15] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
    "spec.host",
];
const CONTAINER_RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

pub(super) fn variables(variables: &[EnvVar], path: &Path, errors: &mut Errors) {
    for (index, variable) in variables.iter().enumerate() {
        let path = path.index(index);
        if variable.name.is_empty() {
            errors.required(&path.child("name"), "");
        } else {
            errors.all_invalid(&path.child("name"), &variable.name, names::env_name(&variable.name));
        }
        if let Some(source) = &variable.value_from {
            value_from(source, text(&variable.value), &path.child("valueFrom"), errors);
        }
    }
}

fn value_from(source: &EnvVarSource, value: &str, path: &Path, errors: &mut Errors) {
    let mut sources = 0;
    if let Some(field) = &source.field_ref {
        sources += 1;
        field_ref(field, &ENV_FIELDS, &path.child("fieldRef"), errors);
    }
    if let Some(resource) = &source.resource_field_ref {
        sources += 1;
        resource_ref(resource, false, &path.child("resourceFieldRef"), errors);
    }
    if let Some(selector) = &source.config_map_key_ref {
        sources += 1;
        key_ref(&selector.name, &selector.key, &path.child("configMapKeyRef"), errors);
    }
    if let Some(selector) = &source.secret_key_ref {
        sources += 1;
        key_ref(&selector.name, &selector.key, &path.child("secretKeyRef"), errors);
    }
    if let Some(selector) = &source.file_key_ref {
        sources += 1;
        file_ref(selector, &path.child("fileKeyRef"), errors);
    }
    if sources == 0 {
        let message = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or \
                       `fileKeyRef`";
        errors.invalid(path, "", message);
    } else if !value.is_empty() {
        errors.invalid(path, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid(path, "", "may not have more than one field specified at a time");
    }
}

fn key_ref(name: &str, key: &str, path: &Path, errors: &mut Errors) {
    errors.all_invalid(&path.child("name"), name, names::dns_subdomain(name));
    if key.is_empty() {
        errors.required(&path.child("key"), "");
    } else {
        errors.all_invalid(&path.child("key"), key, names::config_map_key(key));
    }
}

fn file_ref(selector: &FileKeySelector, path: &Path, errors: &mut Errors) {
    if selector.key.is_empty() {
        errors.required(&path.child("key"), "");
    } else {
        errors.all_invalid(&path.child("key"), &selector.key, names::env_name(&selector.key));
    }
    if selector.volume_name.is_empty() {
        errors.required(&path.child("volumeName"), "");
    } else {
        let messages = names::dns_label(&selector.volume_name);
        errors.all_invalid(&path.child("volumeName"), &selector.volume_name, messages);
    }
    errors.not_empty(&path.child("path"), &selector.path);
    paths::no_backsteps(&selector.path, &path.child("path"), errors);
}

/// A field of the pod, perhaps with the key of one label or annotation: `metadata.labels['app']`.
pub(super) fn field_ref(field: &ObjectFieldSelector, allowed: &[&str], path: &Path, errors: &mut Errors) {
    let version = text(&field.api_version);
    if version.is_empty() {
        return errors.required(&path.child("apiVersion"), "");
    }
    let field_path = field.field_path.as_str();
    if field_path.is_empty() {
        return errors.required(&path.child("fieldPath"), "");
    }
    let path_path = path.child("fieldPath");
    let unknown = |errors: &mut Errors, reason: String| {
        errors.invalid(&path_path, field_path, format!("error converting fieldPath: {reason}"));
    };
    if version != "v1" {
        return unknown(errors, format!("unsupported pod version: {version}"));
    }
    if let Some((map, key)) = subscripted(field_path) {
        return match map {
            "metadata.annotations" => {
                errors.all_invalid(path, key, names::qualified_name(&key.to_lowercase()));
            }
            "metadata.labels" => errors.all_invalid(path, key, names::qualified_name(key)),
            _ => unknown(errors, format!("field label does not support subscript: {field_path}")),
        };
    }
    if !KNOWN_FIELDS.contains(&field_path) {
        return unknown(errors, format!("field label not supported: {field_path}"));
    }
    let field_path = if field_path == "spec.host" { "spec.nodeName" } else { field_path };
    errors.one_of(&path_path, field_path, allowed);
}

/// `a.b['key']` as (`a.b`, `key`).
fn subscripted(field_path: &str) -> Option<(&str, &str)> {
    let (map, key) = field_path.strip_suffix("']")?.split_once("['")?;
    (!map.is_empty()).then_some((map, key))
}

/// A resource amount of a container. For a file (`in_volume`) the container must be named.
pub(super) fn resource_ref(field: &ResourceFieldSelector, in_volume: bool, path: &Path, errors: &mut Errors) {
    let resource = field.resource.as_str();
    let huge_pages = resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if in_volume && text(&field.container_name).is_empty() {
        errors.required(&path.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(&path.child("resource"), "");
    } else if !huge_pages {
        errors.one_of(&path.child("resource"), resource, &CONTAINER_RESOURCES);
    }
    let divisor = field.divisor.as_ref().map_or(Ok(Quantity::ZERO), |text| Quantity::parse(&text.0));
    let path = path.child("divisor");
    let divisor = match divisor {
        Ok(divisor) if divisor == Quantity::ZERO => return,
        Ok(divisor) => divisor.to_string(),
        Err(error) => return errors.invalid(&path, &error.text, error.to_string()),
    };
    const SIZES: [&str; 13] =
        ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let (what, allowed) = match resource {
        "limits.cpu" | "requests.cpu" => ("cpu", &["1m", "1"][..]),
        "limits.memory" | "requests.memory" => ("memory", &SIZES[..]),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => ("local ephemeral storage", &SIZES[..]),
        _ if huge_pages => ("hugepages", &SIZES[..]),
        _ => return,
    };
    if !allowed.contains(&divisor.as_str()) {
        let list = if what == "cpu" { "1m and 1".to_owned() } else { SIZES.join(", ") };
        let message = format!("only divisor's values {list} are supported with the {what} resource");
        errors.invalid(&path, resource, message);
    }
}

pub(super) fn sources(sources: &[EnvFromSource], path: &Path, errors: &mut Errors) {
    for (index, source) in sources.iter().enumerate() {
        let path = path.index(index);
        let prefix = text(&source.prefix);
        if !prefix.is_empty() {
            errors.all_invalid(&path.child("prefix"), prefix, names::env_name(prefix));
        }
        let references = [
            ("configMapRef", source.config_map_ref.as_ref().map(|reference| reference.name.as_str())),
            ("secretRef", source.secret_ref.as_ref().map(|reference| reference.name.as_str())),
        ];
        let mut count = 0;
        for (field, name) in references.into_iter().filter_map(|(field, name)| Some((field, name?))) {
            count += 1;
            let path = path.child(field).child("name");
            if name.is_empty() {
                errors.required(&path, "");
            } else {
                errors.all_invalid(&path, name, names::dns_subdomain_prefix(name));
            }
        }
        match count {
            0 => errors.invalid(&path, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(&path, "", "may not have more than one field specified at a time"),
        }
    }
}

/// Variables read from files: the volume must be an emptyDir of this pod.
pub(super) fn files_from_empty_dirs(spec: &PodSpec, path: &Path, errors: &mut Errors) {
    let init = items(&spec.init_containers).iter().enumerate();
    let init = init.map(|(index, container)| ("initContainers", index, items(&container.env)));
    let regular = spec.containers.iter().enumerate();
    let regular = regular.map(|(index, container)| ("containers", index, items(&container.env)));
    let ephemeral = items(&spec.ephemeral_containers).iter().enumerate();
    let ephemeral = ephemeral.map(|(index, container)| ("ephemeralContainers", index, items(&container.env)));
    // Of several volumes of one name the last one counts.
    let volumes: BTreeMap<&str, &Volume> =
        items(&spec.volumes).iter().map(|volume| (volume.name.as_str(), volume)).collect();
    for (list, index, env) in init.chain(regular).chain(ephemeral) {
        for (env_index, variable) in env.iter().enumerate() {
            let source = variable.value_from.as_ref().and_then(|source| source.file_key_ref.as_ref());
            let Some(name) = source.map(|source| source.volume_name.as_str()) else { continue };
            let path = path.child(list).index(index).child("env").index(env_index);
            let path = path.child("valueFrom").child("fileKeyRef").child("volumeName");
            match volumes.get(name) {
                None => errors.not_found(&path, name, ""),
                Some(volume) if volume.empty_dir.is_none() => {
                    errors.invalid(&path, name, "referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    }
}
