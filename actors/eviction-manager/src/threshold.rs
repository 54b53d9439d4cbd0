//! PURE: thresholds as the configuration has them (rows 19.1 to 19.3).

use std::collections::BTreeMap;
use std::time::Duration;

use pod_rules::thresholds::Value;

use crate::file_systems::FileSystems;
use crate::signal::Signal;

/// A threshold: when less than this is available, pods are evicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// The signal.
    pub signal: Signal,
    /// The least amount, absolute or in percent.
    pub value: Value,
    /// How long less has to be available before a pod is evicted; zero for a hard threshold.
    pub grace: Duration,
    /// How much more has to be available before the threshold counts as resolved.
    pub min_reclaim: Option<Value>,
}

impl Threshold {
    /// Whether pods are evicted at once, with [`HARD_GRACE_SECONDS`](crate::candidates::HARD_GRACE_SECONDS).
    pub(crate) fn is_hard(&self) -> bool {
        self.grace.is_zero()
    }
}

/// A text that is not a valid threshold, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// There is no signal of this name.
    #[error("unsupported eviction signal {0}")]
    Unsupported(String),
    /// The text is neither a percentage nor a quantity.
    #[error("eviction threshold {signal}: {text:?}: {reason}")]
    NoNumber {
        /// The signal.
        signal: String,
        /// The text.
        text: String,
        /// Why it is not.
        reason: String,
    },
    /// A percentage below zero.
    #[error("eviction percentage threshold {signal} must be >= 0%: {text}")]
    NegativePercentage {
        /// The signal.
        signal: String,
        /// The text.
        text: String,
    },
    /// A percentage above 100.
    #[error("eviction percentage threshold {signal} must be <= 100%: {text}")]
    AboveAll {
        /// The signal.
        signal: String,
        /// The text.
        text: String,
    },
    /// A quantity of zero or less.
    #[error("eviction threshold {signal} must be positive: {text}")]
    NotPositive {
        /// The signal.
        signal: String,
        /// The text.
        text: String,
    },
    /// A soft threshold has no grace period.
    #[error("grace period must be specified for the soft eviction threshold {0}")]
    NoGracePeriod(String),
    /// A minimum reclaim of zero percent or less.
    #[error("eviction percentage minimum reclaim {signal} must be positive: {text}")]
    ReclaimNotPositive {
        /// The signal.
        signal: String,
        /// The text.
        text: String,
    },
    /// A minimum reclaim below zero.
    #[error("negative eviction minimum reclaim specified for {0}")]
    NegativeReclaim(String),
}

/// The configuration of thresholds, by signal name.
#[derive(Clone, Copy, Debug)]
pub struct Thresholds<'a> {
    /// `evictionHard`
    pub hard: &'a BTreeMap<String, String>,
    /// `evictionSoft`
    pub soft: &'a BTreeMap<String, String>,
    /// `evictionSoftGracePeriod`
    pub soft_grace: &'a BTreeMap<String, Duration>,
    /// `evictionMinimumReclaim`
    pub min_reclaim: &'a BTreeMap<String, String>,
    /// `enforceNodeAllocatable` has `pods`: the memory of all pods together has a threshold like the node's memory.
    pub pods_enforced: bool,
}

impl Thresholds<'_> {
    /// All configured thresholds.
    ///
    /// # Errors
    /// The first text that is not valid.
    pub fn parse(&self) -> Result<Vec<Threshold>, ThresholdError> {
        let mut all = statements(self.hard)?;
        let mut soft = statements(self.soft)?;
        if let Some(unknown) = self.soft_grace.keys().find(|name| Signal::named(name).is_none()) {
            return Err(ThresholdError::Unsupported(unknown.clone()));
        }
        let reclaims = reclaims(self.min_reclaim)?;
        for threshold in &mut soft {
            let name = threshold.signal.as_str();
            let grace = self.soft_grace.get(name);
            threshold.grace = *grace.ok_or_else(|| ThresholdError::NoGracePeriod(name.to_owned()))?;
        }
        all.append(&mut soft);
        for threshold in &mut all {
            threshold.min_reclaim = reclaims.get(&threshold.signal).copied();
        }
        if self.pods_enforced {
            let of_memory = |one: &&Threshold| one.signal == Signal::MemoryAvailable && one.is_hard();
            let copies: Vec<Threshold> = all
                .iter()
                .filter(of_memory)
                .map(|one| Threshold { signal: Signal::AllocatableMemoryAvailable, ..*one })
                .collect();
            all.extend(copies);
        }
        Ok(all)
    }
}

fn statements(texts: &BTreeMap<String, String>) -> Result<Vec<Threshold>, ThresholdError> {
    let one = |(name, text): (&String, &String)| {
        let value = statement(name, text)?;
        Ok(value.map(|(signal, value)| Threshold { signal, value, grace: Duration::ZERO, min_reclaim: None }))
    };
    texts.iter().filter_map(|entry| one(entry).transpose()).collect()
}

fn statement(name: &str, text: &str) -> Result<Option<(Signal, Value)>, ThresholdError> {
    let signal = Signal::named(name).ok_or_else(|| ThresholdError::Unsupported(name.to_owned()))?;
    let (signal_name, text_owned) = (name.to_owned(), text.to_owned());
    if matches!(text, "0%" | "100%") {
        return Ok(None);
    }
    let value = number(name, text)?;
    match value {
        Value::Part(part) if part < 0.0 => {
            Err(ThresholdError::NegativePercentage { signal: signal_name, text: text_owned })
        }
        Value::Part(part) if part > 1.0 => {
            Err(ThresholdError::AboveAll { signal: signal_name, text: text_owned })
        }
        Value::Amount(amount) if amount.signum() <= 0 => {
            Err(ThresholdError::NotPositive { signal: signal_name, text: text_owned })
        }
        _ => Ok(Some((signal, value))),
    }
}

fn number(name: &str, text: &str) -> Result<Value, ThresholdError> {
    Value::parse(text).map_err(|reason| ThresholdError::NoNumber {
        signal: name.to_owned(),
        text: text.to_owned(),
        reason,
    })
}

fn reclaims(texts: &BTreeMap<String, String>) -> Result<BTreeMap<Signal, Value>, ThresholdError> {
    let one = |(name, text): (&String, &String)| {
        let signal = Signal::named(name).ok_or_else(|| ThresholdError::Unsupported(name.clone()))?;
        match number(name, text)? {
            Value::Part(part) if part <= 0.0 => {
                Err(ThresholdError::ReclaimNotPositive { signal: name.clone(), text: text.clone() })
            }
            Value::Amount(amount) if amount.signum() < 0 => {
                Err(ThresholdError::NegativeReclaim(name.clone()))
            }
            value => Ok((signal, value)),
        }
    };
    texts.iter().map(one).collect()
}

/// The thresholds for a node with these file systems: those of containers' writable layers are taken from the file
/// system that the layers lie on, whatever is configured for them.
pub(crate) fn on(configured: &[Threshold], file_systems: FileSystems) -> Vec<Threshold> {
    let own = |one: &&Threshold| {
        !matches!(one.signal, Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree)
    };
    let with_images = file_systems == FileSystems::SeparateImages;
    let copy = |one: &Threshold| {
        let signal = match (one.signal, with_images) {
            (Signal::ImageFsAvailable, true) | (Signal::NodeFsAvailable, false) => {
                Signal::ContainerFsAvailable
            }
            (Signal::ImageFsInodesFree, true) | (Signal::NodeFsInodesFree, false) => {
                Signal::ContainerFsInodesFree
            }
            _ => return None,
        };
        Some(Threshold { signal, ..*one })
    };
    let kept: Vec<Threshold> = configured.iter().filter(own).copied().collect();
    let copies: Vec<Threshold> = kept.iter().filter_map(copy).collect();
    kept.into_iter().chain(copies).collect()
}

#[cfg(test)]
mod tests {
    use pod_spec::quantity::Quantity;

    use super::*;

    fn texts(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    fn parse(
        hard: &[(&str, &str)],
        soft: &[(&str, &str)],
        reclaim: &[(&str, &str)],
        pods_enforced: bool,
    ) -> Result<Vec<Threshold>, String> {
        let soft_grace = BTreeMap::from([("memory.available".to_owned(), Duration::from_secs(90))]);
        let (hard, soft, min_reclaim) = (texts(hard), texts(soft), texts(reclaim));
        let all = Thresholds {
            hard: &hard,
            soft: &soft,
            soft_grace: &soft_grace,
            min_reclaim: &min_reclaim,
            pods_enforced,
        };
        all.parse().map_err(|error| error.to_string())
    }

    #[test]
    fn amounts_parts_and_what_is_off() {
        let all = parse(
            &[("memory.available", "100Mi"), ("nodefs.available", "10%"), ("imagefs.available", "0%")],
            &[("memory.available", "1.5Gi")],
            &[("memory.available", "0"), ("nodefs.available", "1%")],
            false,
        )
        .unwrap();
        let shown: Vec<(&str, String, u64, bool)> = all
            .iter()
            .map(|one| {
                let value = one.value.of(Quantity::binary(1000)).to_string();
                (one.signal.as_str(), value, one.grace.as_secs(), one.min_reclaim.is_some())
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("memory.available", "100Mi".to_owned(), 0, true),
                ("nodefs.available", "100".to_owned(), 0, true),
                ("memory.available", "1536Mi".to_owned(), 90, true),
            ]
        );
        assert_eq!(parse(&[("pid.available", "100%")], &[], &[], true), Ok(vec![]));
    }

    #[test]
    fn memory_of_pods_is_watched_like_the_nodes() {
        let all = parse(&[("memory.available", "5%")], &[("memory.available", "10%")], &[], true).unwrap();
        let signals: Vec<(&str, bool)> = all.iter().map(|one| (one.signal.as_str(), one.is_hard())).collect();
        let expected =
            [("memory.available", true), ("memory.available", false), ("allocatableMemory.available", true)];
        assert_eq!(signals, expected, "a copy of the hard one alone");
    }

    #[test]
    fn refusals_are_upstreams() {
        for (name, text, error) in [
            ("cpu.available", "1", "unsupported eviction signal cpu.available"),
            ("memory.available", "0", "eviction threshold memory.available must be positive: 0"),
            ("memory.available", "-1Mi", "eviction threshold memory.available must be positive: -1Mi"),
            ("nodefs.available", "-1%", "eviction percentage threshold nodefs.available must be >= 0%: -1%"),
            (
                "nodefs.available",
                "101%",
                "eviction percentage threshold nodefs.available must be <= 100%: 101%",
            ),
        ] {
            assert_eq!(parse(&[(name, text)], &[], &[], false), Err(error.to_owned()));
        }
        let words = parse(&[("memory.available", "lots")], &[], &[], false).unwrap_err();
        assert!(words.starts_with("eviction threshold memory.available: \"lots\": "), "{words}");
        assert!(parse(&[("memory.available", "NaN%")], &[], &[], false).is_err());
        assert_eq!(
            parse(&[], &[("nodefs.available", "1Gi")], &[], false),
            Err("grace period must be specified for the soft eviction threshold nodefs.available".to_owned())
        );
        assert_eq!(
            parse(&[], &[], &[("memory.available", "0%")], false),
            Err("eviction percentage minimum reclaim memory.available must be positive: 0%".to_owned())
        );
        assert_eq!(
            parse(&[], &[], &[("memory.available", "-1")], false),
            Err("negative eviction minimum reclaim specified for memory.available".to_owned())
        );
    }

    #[test]
    fn writable_layers_go_by_the_file_system_they_lie_on() {
        let hard =
            [("nodefs.available", "10%"), ("imagefs.available", "15%"), ("containerfs.available", "50%")];
        let configured = parse(&hard, &[], &[], false).unwrap();
        let of_layers = |file_systems| {
            let all = on(&configured, file_systems);
            assert_eq!(all.len(), 3);
            all[2]
        };
        for (file_systems, part) in
            [(FileSystems::One, 0.1), (FileSystems::SeparateImages, 0.15), (FileSystems::Split, 0.1)]
        {
            let threshold = of_layers(file_systems);
            assert_eq!(
                (threshold.signal, threshold.value),
                (Signal::ContainerFsAvailable, Value::Part(part))
            );
        }
    }
}
