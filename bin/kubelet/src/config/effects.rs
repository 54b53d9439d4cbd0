//! What this program does with each field and flag, so that nothing is ignored in silence.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};

use super::KubeletConfiguration;

/// What a field or flag does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It works.
    Used,
    /// Upstream accepts it and does nothing with it, and so does this program.
    AcceptedNoEffectUpstream,
    /// It is parsed, validated and shown, but nothing acts on it yet.
    NotYet,
    /// The same, and upstream does something even where it is left at its default.
    NotYetByDefault,
}

impl Effect {
    /// Whether nothing acts on it yet.
    pub fn is_missing(self) -> bool {
        matches!(self, Self::NotYet | Self::NotYetByDefault)
    }
}

/// Fields without effect yet, by their names in the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Missing {
    /// Those that were set, or are away from their default.
    pub set: Vec<&'static str>,
    /// Those that nobody spoke of and that upstream acts on all the same.
    pub by_default: Vec<&'static str>,
}

/// Fields of `config` without effect yet: those that `named` has or that differ from `baseline`, and those whose default
/// has an effect upstream.
pub fn missing(
    config: &KubeletConfiguration,
    baseline: &KubeletConfiguration,
    named: &BTreeSet<String>,
) -> Missing {
    let (ours, theirs) = (config.to_object(), baseline.to_object());
    let mut missing = Missing::default();
    for row in KubeletConfiguration::rows().filter(|row| row.effect.is_missing()) {
        if named.contains(row.name) || ours.get(row.name) != theirs.get(row.name) {
            missing.set.push(row.name);
        } else if row.effect == Effect::NotYetByDefault {
            missing.by_default.push(row.name);
        }
    }
    missing
}

/// The fields that a file sets: what is zero in Go's eyes leaves a field unset.
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
