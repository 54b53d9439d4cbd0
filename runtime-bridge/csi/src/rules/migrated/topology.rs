//! PURE: where a migrated volume is: in-tree plugins told it by the zones and regions of nodes, drivers by labels of their own.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume};
use pod_rules::labels::{REGION, REGION_BETA, ZONE, ZONE_BETA};

/// Between several zones in the label of a volume.
pub(super) const ZONES_DELIMITER: &str = "__";

/// A label of the volume; empty if it is absent.
fn label<'a>(volume: &'a PersistentVolume, key: &str) -> Option<&'a str> {
    volume.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// The zones of the volume by its labels, the older name first.
pub(super) fn zones_of(volume: &PersistentVolume) -> &str {
    let of = |key| label(volume, key).filter(|zones| !zones.is_empty());
    of(ZONE_BETA).or_else(|| of(ZONE)).unwrap_or_default()
}

fn terms(volume: &PersistentVolume) -> &[NodeSelectorTerm] {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.map(|required| required.node_selector_terms.as_slice()).unwrap_or_default()
}

fn expressions(volume: &PersistentVolume) -> impl Iterator<Item = &NodeSelectorRequirement> {
    terms(volume).iter().flat_map(|term| term.match_expressions.iter().flatten())
}

fn has_key(volume: &PersistentVolume, key: &str) -> bool {
    expressions(volume).any(|expression| expression.key == key)
}

/// The names of the zone's and the region's label that the volume uses.
fn names(volume: &PersistentVolume) -> (&'static str, &'static str) {
    let is_beta = if has_key(volume, ZONE) {
        false
    } else if has_key(volume, ZONE_BETA) {
        true
    } else {
        label(volume, ZONE).is_none() && label(volume, ZONE_BETA).is_some()
    };
    if is_beta { (ZONE_BETA, REGION_BETA) } else { (ZONE, REGION) }
}

/// Whether the volume says values for this key.
fn says(volume: &PersistentVolume, key: &str) -> bool {
    expressions(volume).any(|expression| {
        expression.key == key && expression.values.as_ref().is_some_and(|values| !values.is_empty())
    })
}

fn rename(volume: &mut PersistentVolume, from: &str, to: &str) {
    let affinity = volume.spec.as_mut().and_then(|spec| spec.node_affinity.as_mut());
    let terms = affinity.and_then(|affinity| affinity.required.as_mut());
    let terms = terms.into_iter().flat_map(|required| &mut required.node_selector_terms);
    for expression in terms.flat_map(|term| term.match_expressions.iter_mut().flatten()) {
        if expression.key == from {
            to.clone_into(&mut expression.key);
        }
    }
}

/// Adds the places to each term; nothing without any.
fn add<'a>(volume: &mut PersistentVolume, key: &str, places: impl Iterator<Item = &'a str>) {
    let places: BTreeSet<String> =
        places.map(|place| place.trim().to_owned()).filter(|place| !place.is_empty()).collect();
    if places.is_empty() {
        return;
    }
    let here = NodeSelectorRequirement {
        key: key.to_owned(),
        operator: "In".to_owned(),
        values: Some(places.into_iter().collect()),
    };
    let spec = volume.spec.get_or_insert_default();
    let required = spec.node_affinity.get_or_insert_default().required.get_or_insert_default();
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        term.match_expressions.get_or_insert_default().push(here.clone());
    }
}

/// Says the volume's zone by the driver's label `key`.
pub(super) fn of_zone(volume: &mut PersistentVolume, key: &str) {
    let (zone, region) = names(volume);
    if says(volume, zone) {
        rename(volume, zone, key);
    } else if let Some(zones) = label(volume, zone).map(str::to_owned) {
        add(volume, key, zones.split(ZONES_DELIMITER));
    }
    // New nodes have the newer label alone.
    if region == REGION_BETA && says(volume, region) {
        rename(volume, region, REGION);
    }
}

/// Says the volume's zone and region by the driver's labels.
pub(super) fn of_zone_and_region(volume: &mut PersistentVolume, zone_key: &str, region_key: &str) {
    let (zone, region) = names(volume);
    for (from, to) in [(zone, zone_key), (region, region_key)] {
        if says(volume, from) {
            rename(volume, from, to);
        } else if let Some(place) = label(volume, from).map(str::to_owned) {
            add(volume, to, std::iter::once(place.as_str()));
        }
    }
}
