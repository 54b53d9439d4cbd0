//! Feature gates: which ones exist, which are on, and which settings are refused.

mod table;

use std::collections::{BTreeMap, BTreeSet};

use bridge_metrics::Registry;
use prometheus::{IntGaugeVec, Opts};

use table::{GATES, NEEDS};

/// The maturity of a gate's feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The feature may change or be removed; off by default.
    Alpha,
    /// The feature is mature enough to be on in most clusters.
    Beta,
    /// The feature is stable; setting the gate is pointless and will become an error.
    Ga,
    /// The feature will be removed.
    Deprecated,
}

impl Stage {
    /// The stage as help texts and the metric `kubernetes_feature_enabled` print it.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Alpha => "ALPHA",
            Stage::Beta => "BETA",
            Stage::Ga => "",
            Stage::Deprecated => "DEPRECATED",
        }
    }
}

/// One feature gate of this release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gate {
    /// The gate's name.
    pub name: &'static str,
    /// Whether the gate is on by default.
    pub default: bool,
    /// The stage of its feature.
    pub stage: Stage,
    /// Whether the gate cannot be changed from its default.
    pub locked: bool,
}

/// The pseudo-gate that sets every alpha gate not set by name.
const ALL_ALPHA: &str = "AllAlpha";
/// The pseudo-gate that sets every beta gate not set by name.
const ALL_BETA: &str = "AllBeta";

/// The gates that this program acts on; a test compares them with the sources.
const EFFECTIVE: &[&str] = &[
    "CSIVolumeHealth",
    "ComponentFlagz",
    "ComponentStatusz",
    "ContainerCheckpoint",
    "ContainerRestartRules",
    "ContainerStopSignals",
    "CustomCPUCFSQuotaPeriod",
    "EnvFiles",
    "ExtendWebSocketsToKubelet",
    "HostnameOverride",
    "ImageVolumeWithDigest",
    "KubeletCrashLoopBackOffMax",
    "KubeletEnsureSecretPulledImages",
    "KubeletServiceAccountTokenForCredentialProviders",
    "NodeDeclaredFeatures",
    "PodLogsQuerySplitStreams",
    "PodReadyToStartContainersCondition",
    "ReduceDefaultCrashLoopBackOffDecay",
    "RestartAllContainersOnContainerExits",
    "RotateKubeletServerCertificate",
    "RuntimeClassInImageCriApi",
    "SELinuxMount",
];

/// The state of every gate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeatureGates {
    set: BTreeMap<String, bool>,
    warnings: Vec<String>,
}

impl FeatureGates {
    /// Applies `settings` over the defaults.
    ///
    /// # Errors
    /// Every unknown gate, every locked gate that is set to the other value, and every gate that is on while a gate
    /// that it needs is off; in upstream's words.
    pub fn from_settings(settings: &BTreeMap<String, bool>) -> Result<Self, Vec<String>> {
        let mut gates = Self::default();
        let mut errors = Vec::new();
        for (name, &value) in settings {
            match find(name) {
                None if name == ALL_ALPHA || name == ALL_BETA => {
                    gates.set.insert(name.clone(), value);
                }
                None => errors.push(format!("unrecognized feature gate: {name}")),
                Some(gate) if gate.locked && gate.default != value => errors.push(format!(
                    "cannot set feature gate {name} to {value}, feature is locked to {}",
                    gate.default
                )),
                Some(gate) => {
                    if matches!(gate.stage, Stage::Ga | Stage::Deprecated) {
                        let stage = if gate.stage == Stage::Ga { "GA" } else { "deprecated" };
                        gates.warnings.push(format!(
                            "setting {stage} feature gate {name}={value}: it will be removed in a future release"
                        ));
                    }
                    gates.set.insert(name.clone(), value);
                }
            }
        }
        gates.set_whole_stage(settings.get(ALL_ALPHA), Stage::Alpha);
        gates.set_whole_stage(settings.get(ALL_BETA), Stage::Beta);
        if errors.is_empty() {
            errors = gates.missing_needs();
        }
        if errors.is_empty() { Ok(gates) } else { Err(errors) }
    }

    fn set_whole_stage(&mut self, value: Option<&bool>, stage: Stage) {
        let Some(&value) = value else { return };
        for gate in GATES.iter().filter(|gate| gate.stage == stage) {
            self.set.entry(gate.name.to_owned()).or_insert(value);
        }
    }

    fn missing_needs(&self) -> Vec<String> {
        let off = |needed: &&&str| !self.enabled(needed);
        NEEDS
            .iter()
            .filter(|(name, _)| self.enabled(name))
            .filter_map(|(name, needs)| {
                let missing: Vec<&str> = needs.iter().filter(off).copied().collect();
                (!missing.is_empty()).then(|| {
                    format!(
                        "{name} is enabled, but depends on features that are disabled: [{}]",
                        missing.join(" ")
                    )
                })
            })
            .collect()
    }

    /// Whether the gate `name` is on. An unknown gate is off.
    pub fn enabled(&self, name: &str) -> bool {
        self.set.get(name).copied().unwrap_or_else(|| find(name).is_some_and(|gate| gate.default))
    }

    /// Every gate with its state, by name, for the metric `kubernetes_feature_enabled`.
    pub fn states(&self) -> impl Iterator<Item = (&'static Gate, bool)> + '_ {
        GATES.iter().map(|gate| (gate, self.enabled(gate.name)))
    }

    /// The gates that differ from their default and on which this program does not act, with their state.
    pub fn without_effect(&self) -> impl Iterator<Item = (&'static Gate, bool)> + '_ {
        self.states().filter(|(gate, on)| *on != gate.default && !EFFECTIVE.contains(&gate.name))
    }

    /// The metric that shows the stage and the state of every gate (row 23.4).
    ///
    /// # Errors
    /// The registry already has a metric of that name.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        let gauge = IntGaugeVec::new(
            Opts::new(
                "kubernetes_feature_enabled",
                "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
            ),
            &["name", "stage"],
        )?;
        let show = |name, stage: Stage, on| {
            gauge.with_label_values(&[name, stage.as_str()]).set(i64::from(on));
        };
        for (gate, on) in self.states() {
            show(gate.name, gate.stage, on);
        }
        show(ALL_ALPHA, Stage::Alpha, self.enabled(ALL_ALPHA));
        show(ALL_BETA, Stage::Beta, self.enabled(ALL_BETA));
        registry.register(Box::new(gauge))
    }

    /// Warnings about settings that are accepted but will be refused by a later release.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The names of all gates.
    pub fn known() -> BTreeSet<&'static str> {
        GATES.iter().map(|gate| gate.name).collect()
    }

    /// The lines of `--help` that list the gates, in upstream's form. Stable gates are left out, as upstream.
    pub fn help_lines() -> Vec<String> {
        let special = [(ALL_ALPHA, "ALPHA"), (ALL_BETA, "BETA")]
            .map(|(name, stage)| format!("{name}=true|false ({stage} - default=false)"));
        let ordinary =
            GATES.iter().filter(|gate| matches!(gate.stage, Stage::Alpha | Stage::Beta)).map(|gate| {
                format!("{}=true|false ({} - default={})", gate.name, gate.stage.as_str(), gate.default)
            });
        let mut lines: Vec<String> = special.into_iter().chain(ordinary).collect();
        lines.sort();
        lines
    }
}

fn find(name: &str) -> Option<&'static Gate> {
    GATES.binary_search_by(|gate| gate.name.cmp(name)).ok().map(|at| &GATES[at])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{EFFECTIVE, FeatureGates, GATES, NEEDS, Registry, Stage, find};

    fn settings(pairs: &[(&str, bool)]) -> BTreeMap<String, bool> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value)).collect()
    }

    #[test]
    fn the_table_is_sorted_and_needs_only_gates_that_exist() {
        assert!(GATES.windows(2).all(|pair| pair[0].name < pair[1].name));
        for (name, needs) in NEEDS {
            assert!(find(name).is_some(), "{name}");
            assert!(needs.iter().all(|needed| find(needed).is_some()), "{name} needs {needs:?}");
        }
        assert_eq!(FeatureGates::from_settings(&BTreeMap::new()), Ok(FeatureGates::default()));
    }

    #[test]
    fn defaults_are_those_of_this_release() {
        let gates = FeatureGates::default();
        for on in [
            "SidecarContainers",
            "InPlacePodVerticalScaling",
            "SystemdWatchdog",
            "KubeletCrashLoopBackOffMax",
            "PodReadyToStartContainersCondition",
            "ComponentFlagz",
            "DisableCPUQuotaWithExclusiveCPUs",
            "NodeSwap",
        ] {
            assert!(gates.enabled(on), "{on}");
        }
        for off in ["EventedPLEG", "MemoryQoS", "SELinuxMount", "GitRepoVolumeDriver", "NoSuchGate"] {
            assert!(!gates.enabled(off), "{off}");
        }
        assert!(find("GitRepoVolumeDriver").is_some_and(|gate| gate.locked));
    }

    #[test]
    fn unknown_and_locked_gates_are_refused_together() {
        let refused = FeatureGates::from_settings(&settings(&[
            ("NoSuchGate", true),
            ("GitRepoVolumeDriver", true),
            ("SidecarContainers", true),
        ]));
        assert_eq!(
            refused,
            Err(vec![
                "cannot set feature gate GitRepoVolumeDriver to true, feature is locked to false".to_owned(),
                "unrecognized feature gate: NoSuchGate".to_owned(),
            ])
        );
    }

    #[test]
    fn a_gate_needs_what_it_depends_on() {
        let refused = FeatureGates::from_settings(&settings(&[("GracefulNodeShutdown", false)]));
        let text = "GracefulNodeShutdownBasedOnPodPriority is enabled, but depends on features that are disabled: \
             [GracefulNodeShutdown]";
        assert!(refused.is_err_and(|errors| errors.contains(&text.to_owned())));
    }

    /// The sources of this crate without tests.
    fn sources(directory: &std::path::Path, text: &mut String) {
        for entry in std::fs::read_dir(directory).expect("sources") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "tests" {
                    sources(&path, text);
                }
            } else if !["gates.rs", "tests.rs"].contains(&name.as_str()) {
                text.push_str(&std::fs::read_to_string(&path).expect("a source"));
            }
        }
    }

    #[test]
    fn a_gate_has_an_effect_only_where_the_sources_ask_for_it() {
        let mut text = String::new();
        sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut text);
        for gate in EFFECTIVE {
            assert!(find(gate).is_some(), "{gate}");
            let asked = text.contains(&format!("enabled(\"{gate}\")"));
            assert!(asked, "{gate} is said to have an effect, and nothing asks for it");
        }
    }

    #[test]
    fn every_gate_is_shown_with_its_stage() {
        let registry = Registry::new();
        let gates = FeatureGates::from_settings(&settings(&[("AllAlpha", true), ("EventedPLEG", false)]));
        gates.expect("known gates").register(&registry).expect("a new metric");
        let family = &registry.gather()[0];
        assert_eq!(family.name(), "kubernetes_feature_enabled");
        let shown = |name: &str| {
            let of = |metric: &&prometheus::proto::Metric| metric.get_label()[0].value() == name;
            let metric = family.get_metric().iter().find(of).expect("every gate is shown");
            (metric.get_label()[1].value().to_owned(), metric.get_gauge().get_value() as i64)
        };
        assert_eq!(family.get_metric().len(), GATES.len() + 2);
        assert_eq!(shown("SidecarContainers"), (String::new(), 1));
        assert_eq!(shown("ContainerRestartRules"), ("BETA".to_owned(), 1));
        assert_eq!(shown("EventedPLEG"), ("ALPHA".to_owned(), 0));
        assert_eq!(shown("GitRepoVolumeDriver"), ("DEPRECATED".to_owned(), 0));
        assert_eq!((shown("AllAlpha").1, shown("AllBeta").1), (1, 0));
    }

    #[test]
    fn a_whole_stage_yields_to_a_gate_set_by_name() {
        let gates = FeatureGates::from_settings(&settings(&[("AllAlpha", true), ("EventedPLEG", false)]))
            .expect("known gates");
        assert!(!gates.enabled("EventedPLEG"));
        let on = GATES.iter().filter(|gate| gate.stage == Stage::Alpha && gates.enabled(gate.name)).count();
        let all = GATES.iter().filter(|gate| gate.stage == Stage::Alpha).count();
        assert_eq!(on + 1, all);
    }
}
