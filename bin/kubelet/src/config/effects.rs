//! What this program does with each field and flag, so that nothing is ignored in silence.

use serde_json::{Map, Value as Json};

use super::KubeletConfiguration;
use super::section::FieldRow;

/// What a field or flag does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It works.
    Used,
    /// Upstream accepts it and does nothing with it, and so does this program.
    AcceptedNoEffectUpstream,
    /// It is parsed, validated and shown, but nothing acts on it yet.
    NotYet,
}

/// Fields of `config` without effect yet that differ from `baseline`, by their names in the file.
pub fn not_yet_away_from(
    config: &KubeletConfiguration,
    baseline: &KubeletConfiguration,
) -> Vec<&'static str> {
    let (ours, theirs) = (config.to_object(), baseline.to_object());
    KubeletConfiguration::rows()
        .filter(|row| row.effect == Effect::NotYet)
        .filter(differs(&ours, &theirs))
        .map(|row| row.name)
        .collect()
}

fn differs<'a>(
    ours: &'a Map<String, Json>,
    theirs: &'a Map<String, Json>,
) -> impl Fn(&&'static FieldRow) -> bool + 'a {
    |row| ours.get(row.name) != theirs.get(row.name)
}
