//! The flags that describe node objects: taints, reserved memory, and the request for a version.

use std::collections::{BTreeMap, BTreeSet};

use pod_rules::label_syntax::{label_value_errors, qualified_name_errors};
use pod_rules::taints;
use pod_spec::resources::is_huge_pages;

use super::VersionRequest;
use super::kind::{FlagKind, parse_bool};
use crate::config::Quantity;
use crate::config::node::Taint;
use crate::config::resources::MemoryReservation;
use crate::config::validation::quoted;

/// Taints: `key=value:effect,…`.
pub(super) struct Taints;
impl FlagKind for Taints {
    type Target = Vec<Taint>;
    const NAME: &'static str = "[]v1.Taint";
    fn set(target: &mut Self::Target, text: &str, _first: bool) -> Result<(), String> {
        let mut taints = Vec::new();
        let mut seen = BTreeSet::new();
        for spec in text.split(',').filter(|_| !text.is_empty()) {
            // A taint to remove is checked and dropped, since there is none to be removed.
            let (spec, removed) = spec.strip_suffix('-').map_or((spec, false), |kept| (kept, true));
            let taint = parse_taint(spec)?;
            if removed {
                continue;
            }
            if taint.effect.is_empty() {
                return Err(format!("invalid taint spec: {spec}"));
            }
            if !seen.insert((taint.key.clone(), taint.effect.clone())) {
                return Err(format!(
                    "duplicated taints with the same key and effect: {{{} {} {} <nil>}}",
                    taint.key, taint.value, taint.effect
                ));
            }
            taints.push(taint);
        }
        *target = taints;
        Ok(())
    }
    fn show(target: &Self::Target) -> String {
        let taints: Vec<String> =
            target.iter().map(|taint| format!("{}={}:{}", taint.key, taint.value, taint.effect)).collect();
        taints.join(",")
    }
}

fn parse_taint(spec: &str) -> Result<Taint, String> {
    let malformed = || format!("invalid taint spec: {spec}");
    let (subject, effect) = match spec.split(':').collect::<Vec<_>>()[..] {
        [key] => (key, ""),
        [subject, effect] => (subject, effect),
        _ => return Err(malformed()),
    };
    let (key, value) = match subject.split('=').collect::<Vec<_>>()[..] {
        [key] => (key, ""),
        [key, value] if spec.contains(':') => (key, value),
        _ => return Err(malformed()),
    };
    if spec.contains(':') && !taints::EFFECTS.contains(&effect) {
        return Err(format!("invalid taint effect: {effect}, unsupported taint effect"));
    }
    for errors in [label_value_errors(value), qualified_name_errors(key)] {
        if !errors.is_empty() {
            return Err(format!("invalid taint spec: {spec}, {}", errors.join("; ")));
        }
    }
    Ok(Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned(), time_added: None })
}

/// Reserved memory: `numa:type=quantity,…;numa:…`, repeatable.
pub(super) struct ReservedMemory;
impl FlagKind for ReservedMemory {
    type Target = Vec<MemoryReservation>;
    const NAME: &'static str = "reserved-memory";
    fn set(target: &mut Self::Target, text: &str, first: bool) -> Result<(), String> {
        if text.is_empty() {
            return Ok(());
        }
        let added = text.split(';').map(parse_reservation).collect::<Result<Vec<_>, _>>()?;
        if first {
            target.clear();
        }
        target.extend(added);
        Ok(())
    }
    fn show(target: &Self::Target) -> String {
        let shown = target.iter().map(|reservation| {
            let limits: Vec<String> =
                reservation.limits.iter().map(|(name, quantity)| format!("{name}={quantity}")).collect();
            format!("{}:{}", reservation.numa_node, limits.join(","))
        });
        shown.collect::<Vec<_>>().join(",")
    }
}

fn parse_reservation(text: &str) -> Result<MemoryReservation, String> {
    let [node, list] = text.split(':').collect::<Vec<_>>()[..] else {
        return Err(format!(
            "the reserved memory has incorrect format, expected numaNodeID:type=quantity[,type=quantity...], got \
             {text}"
        ));
    };
    let numa_node = node
        .parse()
        .map_err(|_| format!("failed to convert the NUMA node ID, expected integer, got {node}"))?;
    let mut limits = BTreeMap::new();
    for limit in list.split(',') {
        let [name, quantity] = limit.split('=').collect::<Vec<_>>()[..] else {
            return Err(format!(
                "the reserved limit has incorrect value, expected type=quantity, got {limit}"
            ));
        };
        if name != "memory" && !is_huge_pages(name) {
            return Err(format!("memory type conversion error, unknown type: {}", quoted(name)));
        }
        let quantity =
            Quantity::parse(quantity).map_err(|_| format!("failed to parse the quantity: {quantity}"))?;
        limits.insert(name.to_owned(), quantity);
    }
    Ok(MemoryReservation { numa_node, limits })
}

/// `--version` and `--version=raw`.
pub(super) struct Version;
impl FlagKind for Version {
    type Target = VersionRequest;
    const NAME: &'static str = "version";
    const WITHOUT_VALUE: Option<&'static str> = Some("true");
    fn set(target: &mut VersionRequest, text: &str, _first: bool) -> Result<(), String> {
        *target = match text {
            "raw" => VersionRequest::Raw,
            _ if parse_bool(text)? => VersionRequest::Plain,
            _ => VersionRequest::No,
        };
        Ok(())
    }
    fn show(target: &VersionRequest) -> String {
        match target {
            VersionRequest::No => "false",
            VersionRequest::Plain => "true",
            VersionRequest::Raw => "raw",
        }
        .to_owned()
    }
}
