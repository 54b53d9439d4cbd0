//! The downward API's values as text: fields and resource amounts of a pod that its containers are told, the same in
//! environment variables and in files.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};

use crate::quantity::Quantity;
use crate::resources::{Amounts, amounts, is_huge_pages, parsed};

/// The resources for which a container without a limit is told what is allocatable instead.
const DEFAULTED: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Splits a field path such as `metadata.labels['app']` into the map's path and the key.
pub fn subscripted(path: &str) -> Option<(&str, &str)> {
    let (map, key) = path.strip_suffix("']")?.split_once("['")?;
    (!map.is_empty()).then_some((map, key))
}

/// The text of a field of a pod's metadata, as files of a downwardAPI volume show it.
///
/// # Errors
/// A message for people: the path names no field that can be shown.
pub fn metadata_text(pod: &Pod, path: &str) -> Result<String, String> {
    let meta = &pod.metadata;
    let text = |field: Option<&String>| Ok(field.cloned().unwrap_or_default());
    if let Some((map, key)) = subscripted(path) {
        return match map {
            "metadata.labels" => text(meta.labels.as_ref().and_then(|map| map.get(key))),
            "metadata.annotations" => text(meta.annotations.as_ref().and_then(|map| map.get(key))),
            _ => Err(format!("fieldPath {map:?} does not support subscript")),
        };
    }
    match path {
        "metadata.name" => text(meta.name.as_ref()),
        "metadata.namespace" => text(meta.namespace.as_ref()),
        "metadata.uid" => text(meta.uid.as_ref()),
        "metadata.labels" => Ok(map_text(&meta.labels)),
        "metadata.annotations" => Ok(map_text(&meta.annotations)),
        _ => Err(format!("unsupported fieldPath: {path}")),
    }
}

/// A map as downwardAPI volumes show it: one `key="value"` per line, sorted by key, values quoted as Go does.
pub fn map_text(map: &Option<BTreeMap<String, String>>) -> String {
    let lines = map.iter().flatten().map(|(key, value)| format!("{key}={}", go_quoted(value)));
    lines.collect::<Vec<_>>().join("\n")
}

/// `text` in double quotes, escaped as Go's `%q` does.
pub fn go_quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if c.is_control() || (c.is_whitespace() && c != ' ') => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Which containers without a limit of their own are told the pod's limit or the node's allocatable amount instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defaults {
    /// Regular containers alone, as in variables that name another container.
    Regular,
    /// Every container, as in files.
    All,
}

/// A resource amount of the named container of a pod, in units of the divisor, rounded up.
///
/// # Errors
/// A message for people: the pod has no such container, or the container no such amount.
pub fn named_resource_text(
    selector: &ResourceFieldSelector,
    pod: &Pod,
    allocatable: &BTreeMap<String, Quantity>,
    defaults: Defaults,
) -> Result<String, String> {
    let name = selector.container_name.as_deref().unwrap_or_default();
    let spec = pod.spec.as_ref();
    let regular = spec.into_iter().flat_map(|spec| &spec.containers);
    let mut init = spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten());
    if let Some(container) = regular.into_iter().find(|one| one.name == name) {
        resource_text(selector, pod, container, true, allocatable)
    } else if let Some(container) = init.find(|one| one.name == name) {
        resource_text(selector, pod, container, defaults == Defaults::All, allocatable)
    } else {
        Err(format!("container {name} not found"))
    }
}

/// A resource amount of a container of the pod, in units of the divisor, rounded up. With `defaulted`, a container
/// without a limit is given the pod's limit or the node's allocatable amount.
///
/// # Errors
/// A message for people: the container has no such amount.
pub fn resource_text(
    selector: &ResourceFieldSelector,
    pod: &Pod,
    container: &Container,
    defaulted: bool,
    allocatable: &BTreeMap<String, Quantity>,
) -> Result<String, String> {
    let unsupported = || format!("unsupported container resource : {}", selector.resource);
    let (list, name) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    let which = match list {
        "limits" => Amounts::Limits,
        "requests" => Amounts::Requests,
        _ => return Err(unsupported()),
    };
    if !DEFAULTED.contains(&name) && !is_huge_pages(name) {
        return Err(unsupported());
    }
    let own = amounts(container, which).get(name).copied();
    let amount = match own.filter(|amount| amount.signum() != 0) {
        None if defaulted && which == Amounts::Limits => limit_of_all(pod, name, allocatable),
        own => own,
    };
    Ok(units(name, amount.unwrap_or(Quantity::ZERO), divisor(selector)).to_string())
}

/// The amount that bounds a container without a limit: the pod's own limit if it has one, else what is allocatable on
/// the node.
fn limit_of_all(pod: &Pod, name: &str, allocatable: &BTreeMap<String, Quantity>) -> Option<Quantity> {
    if !DEFAULTED.contains(&name) {
        return None;
    }
    let node = allocatable.get(name).copied()?;
    let of_pod = || {
        let resources = pod.spec.as_ref()?.resources.as_ref()?;
        let own = *parsed(resources.limits.as_ref()).get(name)?;
        // Upstream knows pod-level limits of cpu and memory alone.
        (matches!(name, "cpu" | "memory") && own.signum() != 0).then_some(own)
    };
    Some(of_pod().unwrap_or(node))
}

fn divisor(selector: &ResourceFieldSelector) -> Quantity {
    let given = selector.divisor.as_ref().and_then(|text| Quantity::parse(&text.0).ok());
    let one = || Quantity::parse("1").expect("one is a quantity");
    given.filter(|divisor| divisor.signum() > 0).unwrap_or_else(one)
}

/// CPU in thousandths, all else in whole units, each rounded up before it is divided, as upstream has it.
pub fn units(name: &str, amount: Quantity, divisor: Quantity) -> i128 {
    let whole = |quantity: Quantity| {
        if name == "cpu" { quantity.millis_rounded_up() } else { i128::from(quantity.units_rounded_up()) }
    };
    let (amount, divisor) = (whole(amount), whole(divisor).max(1));
    amount.div_euclid(divisor) + i128::from(amount.rem_euclid(divisor) != 0)
}
