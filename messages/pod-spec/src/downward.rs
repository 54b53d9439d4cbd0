//! What a pod tells its containers of itself, as text: the same in variables and in files.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};

use crate::quantity::Quantity;
use crate::resources::{Amounts, amounts, is_huge_pages, parsed};

/// What a container without a limit may use as much of as there is.
const DEFAULTED: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// `metadata.labels['app']` as the map and the key.
pub fn subscripted(path: &str) -> Option<(&str, &str)> {
    let (map, key) = path.strip_suffix("']")?.split_once("['")?;
    (!map.is_empty()).then_some((map, key))
}

/// The text of a field of a pod's metadata, as files of a downwardAPI volume show it.
///
/// # Errors
/// For people: there is no such field to show.
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

/// One `key="value"` a line, sorted, the value quoted as Go does.
pub fn map_text(map: &Option<BTreeMap<String, String>>) -> String {
    let lines = map.iter().flatten().map(|(key, value)| format!("{key}={}", go_quoted(value)));
    lines.collect::<Vec<_>>().join("\n")
}

/// A text in Go's quotes.
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

/// Which containers without a limit of their own get what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defaults {
    /// Regular ones alone, as in variables that name another container.
    Regular,
    /// All of them, as in files.
    All,
}

/// An amount of the named container of a pod, in units of the divisor, rounded up.
///
/// # Errors
/// For people: there is no such container or amount.
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

/// An amount of a container of the pod, in units of the divisor, rounded up. `defaulted`: without a limit it is what
/// there is.
///
/// # Errors
/// For people: there is no such amount.
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

/// What there is: for the pod as a whole if it has limits of its own, else on the node.
fn limit_of_all(pod: &Pod, name: &str, allocatable: &BTreeMap<String, Quantity>) -> Option<Quantity> {
    if !DEFAULTED.contains(&name) {
        return None;
    }
    let node = allocatable.get(name).copied()?;
    let of_pod = || {
        let resources = pod.spec.as_ref()?.resources.as_ref()?;
        let own = *parsed(resources.limits.as_ref()).get(name)?;
        // Upstream knows pod-level limits of these two alone.
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
