//! The effect of each field and flag in this program, so that no setting is ignored silently.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};

use super::KubeletConfiguration;

/// The effect of a field or flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The setting works.
    Used,
    /// The setting is accepted and has no effect, as upstream.
    AcceptedNoEffectUpstream,
    /// The setting is parsed, validated and shown, but has no effect yet.
    NotYet,
    /// The same as [`Effect::NotYet`], and upstream acts on it even at its default.
    NotYetByDefault,
    /// The default works; any other value has no effect yet.
    DefaultAlone,
}

impl Effect {
    /// Whether the setting has no effect yet.
    pub fn is_missing(self) -> bool {
        matches!(self, Self::NotYet | Self::NotYetByDefault | Self::DefaultAlone)
    }
}

/// The fields without effect yet, by their names in the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Missing {
    /// Fields that are set, or differ from their default.
    pub set: Vec<&'static str>,
    /// Fields that are not set and on whose default upstream acts.
    pub by_default: Vec<&'static str>,
}

/// The fields of `config` without effect yet: those that are in `named` or differ from `baseline`, and those with a
/// default on which upstream acts. A field whose default works is named only if it has another value.
pub fn missing(
    config: &KubeletConfiguration,
    baseline: &KubeletConfiguration,
    named: &BTreeSet<String>,
) -> Missing {
    let (ours, theirs) = (config.to_object(), baseline.to_object());
    let mut missing = Missing::default();
    for row in KubeletConfiguration::rows().filter(|row| row.effect.is_missing()) {
        let is_named = named.contains(row.name) && row.effect != Effect::DefaultAlone;
        if is_named || ours.get(row.name) != theirs.get(row.name) {
            missing.set.push(row.name);
        } else if row.effect == Effect::NotYetByDefault {
            missing.by_default.push(row.name);
        }
    }
    missing
}

/// The fields that a file sets: a value that is zero in Go leaves its field unset.
pub fn names_set(object: &Map<String, Json>) -> impl Iterator<Item = &String> {
    let is_set = |json: &Json| match json {
        Json::Null => false,
        Json::Bool(value) => *value,
        Json::Number(number) => number.as_f64() != Some(0.0),
        Json::String(text) => !text.is_empty() && text != "0s",
        Json::Array(items) => !items.is_empty(),
        Json::Object(fields) => !fields.is_empty(),
    };
    object.iter().filter(move |(_, json)| is_set(json)).map(|(name, _)| name)
}
