//! Builds the process' settings from the command line: defaults, then the file, then the drop-ins, then the flags.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};

use crate::config::document::read_document;
use crate::config::error::{ConfigError, field_errors};
use crate::config::eviction::EVICTION_HARD_DEFAULT;
use crate::config::logging::FormatOptions;
use crate::config::merge::merge_patch;
use crate::config::validation::{self, Host};
use crate::config::{
    API_VERSION, FeatureGates, KIND, KubeletConfiguration, UnderstudyConfiguration, effects,
};
use crate::flags::{self, KubeletFlags, Settings, VersionRequest};

/// The most drop-in files.
const DROP_INS_MAX: usize = 1000;
/// The deepest nesting of directories below `--config-dir`.
const DROP_IN_DEPTH_MAX: usize = 16;

/// What the command line asks for.
#[derive(Debug, PartialEq)]
pub enum Invocation {
    /// `--help`.
    Help,
    /// `--version`.
    Version(VersionRequest),
    /// Run the kubelet.
    Run(Box<Loaded>),
}

/// All settings of the process.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The command line, without the program's name.
    pub args: Vec<String>,
    /// The effective configuration, as `/configz` shows it.
    pub config: KubeletConfiguration,
    /// The settings of `--understudy-config`.
    pub understudy: UnderstudyConfiguration,
    /// Settings that exist as flags only.
    pub flags: KubeletFlags,
    /// Every flag of the command line with its value there, or its default, by name.
    pub given: BTreeMap<String, String>,
    /// The feature gates in force.
    pub gates: FeatureGates,
    /// Lines for the log: settings without effect yet, gates that will go.
    pub warnings: Vec<String>,
    /// Files in `--config-dir` that were skipped because their names do not end in `.conf`.
    pub skipped_drop_ins: Vec<PathBuf>,
}

/// Reads the command line `args` (without the program's name) and every file that it names. Notes on deprecated flags
/// are written to `notices` meanwhile.
///
/// # Errors
/// All problems, as far as the errors of one step do not hide those of the next.
pub fn load(args: &[String], host: &Host, notices: &mut dyn Write) -> Result<Invocation, Vec<ConfigError>> {
    let parsed = flags::parse(args).map_err(|error| vec![error])?;
    for line in parsed.deprecations() {
        // The start continues with a closed standard error.
        let _ = writeln!(notices, "{line}");
    }
    if let Some(stray) = parsed.positional.first() {
        return Err(vec![ConfigError::Positional(stray.clone())]);
    }
    if parsed.settings.flags.help {
        return Ok(Invocation::Help);
    }
    if parsed.settings.flags.version != VersionRequest::No {
        return Ok(Invocation::Version(parsed.settings.flags.version));
    }
    FeatureGates::from_settings(&parsed.settings.config.process.feature_gates).map_err(gate_errors)?;
    flags::validate(&parsed.settings.flags).map_err(|error| vec![ConfigError::FlagValue(error)])?;
    let loaded = run(parsed, host)?;
    Ok(Invocation::Run(Box::new(Loaded { args: args.to_vec(), ..loaded })))
}

fn run(parsed: flags::Parsed, host: &Host) -> Result<Loaded, Vec<ConfigError>> {
    let flags = &parsed.settings.flags;
    let mut baseline = KubeletConfiguration::legacy();
    let mut config = baseline.clone();
    let mut named = BTreeSet::new();
    if !flags.config.is_empty() {
        config = load_file(&absolute(&flags.config), &mut named)?;
        baseline = KubeletConfiguration::default();
        baseline.eviction.eviction_hard = default_eviction_hard();
    }
    let mut skipped_drop_ins = Vec::new();
    if !flags.config_dir.is_empty() {
        config = merge_drop_ins(&config, &absolute(&flags.config_dir), &mut skipped_drop_ins, &mut named)?;
    }
    let understudy = match flags.understudy_config.as_str() {
        "" => UnderstudyConfiguration::default(),
        file => UnderstudyConfiguration::load(&absolute(file))?,
    };

    let gates_of_files = config.process.feature_gates.clone();
    let mut settings = Settings { config, flags: KubeletFlags::default() };
    parsed.apply(&mut settings).map_err(|error| vec![error])?;
    let Settings { mut config, flags } = settings;
    for (gate, value) in gates_of_files {
        config.process.feature_gates.entry(gate).or_insert(value);
    }

    let gates = FeatureGates::from_settings(&config.process.feature_gates).map_err(gate_errors)?;
    for settled in [&mut config, &mut baseline] {
        settled.apply_gated_defaults(&gates);
        settled.images.settle_parallel_pulls();
    }
    let mut problems = validation::validate(&config, &gates, host);
    problems.extend(understudy.validate());
    let errors: Vec<ConfigError> = problems.into_iter().map(ConfigError::Invalid).collect();
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut warnings = gates.warnings().to_vec();
    let cgroups = &config.cgroups;
    if !cgroups.kubelet_cgroups.is_empty()
        && !cgroups.kubelet_cgroups.starts_with(&cgroups.kube_reserved_cgroup)
    {
        warnings.push("unsupported configuration:KubeletCgroups is not within KubeReservedCgroup".to_owned());
    }
    warnings.extend(gates_without_effect(&gates));
    let process = without_effect_beside_fields(&parsed, &config, &named, &understudy);
    named.extend(parsed.fields_set().map(str::to_owned));
    let missing = effects::missing(&config, &baseline, &named);
    let set: Vec<String> = missing.set.into_iter().map(str::to_owned).chain(process).collect();
    if !set.is_empty() {
        warnings.push(format!("these settings are accepted but have no effect yet: {}", set.join(", ")));
    }
    if !missing.by_default.is_empty() {
        let fields = missing.by_default.join(", ");
        warnings.push(format!("these fields have no effect yet, not even at their defaults: {fields}"));
    }
    let given = flags::rows().into_iter().map(|row| (row.name.to_owned(), row.value(&parsed.settings)));
    let given = given.collect();
    Ok(Loaded { args: Vec::new(), config, understudy, flags, given, gates, warnings, skipped_drop_ins })
}

/// The settings without effect yet that are no top-level fields of the KubeletConfiguration.
fn without_effect_beside_fields(
    parsed: &flags::Parsed,
    config: &KubeletConfiguration,
    named_in_files: &BTreeSet<String>,
    understudy: &UnderstudyConfiguration,
) -> Vec<String> {
    let routing =
        named_in_files.contains("logging") && config.process.logging.options != FormatOptions::default();
    let mut names: Vec<String> = routing.then(|| "logging.options".to_owned()).into_iter().collect();
    names.extend(understudy.not_yet_away_from_default());
    names.extend(parsed.flags_without_effect().map(|name| format!("--{name}")));
    names
}

/// One line that names every feature gate without effect that differs from its default.
fn gates_without_effect(gates: &FeatureGates) -> Option<String> {
    let names: Vec<String> = gates.without_effect().map(|(gate, on)| format!("{}={on}", gate.name)).collect();
    (!names.is_empty()).then(|| {
        format!("these feature gates are away from their default and have no effect: {}", names.join(", "))
    })
}

fn gate_errors(errors: Vec<String>) -> Vec<ConfigError> {
    errors.into_iter().map(ConfigError::Gate).collect()
}

pub(crate) fn absolute(path: &str) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path))
}

fn default_eviction_hard() -> std::collections::BTreeMap<String, String> {
    EVICTION_HARD_DEFAULT.map(|(signal, threshold)| (signal.to_owned(), threshold.to_owned())).into()
}

/// Loads the file of `--config`, with two rules for such a file: it gets default hard eviction thresholds, and its
/// relative paths start at its own directory.
fn load_file(file: &Path, named: &mut BTreeSet<String>) -> Result<KubeletConfiguration, Vec<ConfigError>> {
    let object = read_document(file, KIND, API_VERSION).map_err(|error| vec![error])?;
    named.extend(effects::names_set(&object).cloned());
    let names_eviction_hard = object.get("evictionHard").is_some_and(|json| !json.is_null());
    let mut config = decode(object, file)?;
    if !names_eviction_hard || config.eviction.merge_default_eviction_settings {
        for (signal, threshold) in default_eviction_hard() {
            config.eviction.eviction_hard.entry(signal).or_insert(threshold);
        }
    }
    let directory = file.parent().unwrap_or(Path::new("/"));
    for path in [
        &mut config.sources.static_pod_path,
        &mut config.server.authentication.x509.client_ca_file,
        &mut config.server.tls_cert_file,
        &mut config.server.tls_private_key_file,
        &mut config.pods.resolv_conf,
        &mut config.node.volume_plugin_dir,
        &mut config.pods.pod_logs_dir,
    ] {
        if !path.is_empty() && !path.starts_with('/') {
            *path = validation::clean_path(&format!("{}/{path}", directory.display()));
        }
    }
    Ok(config)
}

fn decode(object: Map<String, Json>, file: &Path) -> Result<KubeletConfiguration, Vec<ConfigError>> {
    let mut errors = Vec::new();
    let config = KubeletConfiguration::from_object(object, &mut errors);
    if errors.is_empty() { Ok(config) } else { Err(field_errors(file, errors)) }
}

/// Merges every `*.conf` below `directory` in lexical order. Each is first checked by itself, so that an error names
/// its file.
fn merge_drop_ins(
    config: &KubeletConfiguration,
    directory: &Path,
    skipped: &mut Vec<PathBuf>,
    named: &mut BTreeSet<String>,
) -> Result<KubeletConfiguration, Vec<ConfigError>> {
    let mut files = Vec::new();
    list_drop_ins(directory, 0, &mut files, skipped).map_err(|error| vec![error])?;
    let mut merged = config.to_object();
    let mut errors = Vec::new();
    for file in &files {
        match read_document(file, KIND, API_VERSION) {
            Ok(object) => match decode(without_nulls(&object), file) {
                Ok(_) => {
                    named.extend(effects::names_set(&object).cloned());
                    merge_patch(&mut merged, object);
                }
                Err(found) => errors.extend(found),
            },
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { decode(merged, directory) } else { Err(errors) }
}

/// The object without nulls: in a drop-in, `null` removes a setting of any type.
fn without_nulls(object: &Map<String, Json>) -> Map<String, Json> {
    let kept = object.iter().filter(|(_, json)| !json.is_null());
    kept.map(|(name, json)| match json {
        Json::Object(inner) => (name.clone(), Json::Object(without_nulls(inner))),
        other => (name.clone(), other.clone()),
    })
    .collect()
}

fn list_drop_ins(
    directory: &Path,
    depth: usize,
    files: &mut Vec<PathBuf>,
    skipped: &mut Vec<PathBuf>,
) -> Result<(), ConfigError> {
    let failed = |reason: String| ConfigError::Read { file: directory.into(), reason };
    if depth > DROP_IN_DEPTH_MAX {
        return Err(failed(format!("directories are nested deeper than {DROP_IN_DEPTH_MAX}")));
    }
    let mut entries = std::fs::read_dir(directory)
        .and_then(|entries| entries.take(DROP_INS_MAX + 1).collect::<Result<Vec<_>, _>>())
        .map_err(|error| failed(error.to_string()))?;
    if entries.len() > DROP_INS_MAX {
        return Err(failed(format!("there are more than {DROP_INS_MAX} files")));
    }
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let is_directory = entry.file_type().map_err(|error| failed(error.to_string()))?.is_dir();
        if is_directory {
            list_drop_ins(&path, depth + 1, files, skipped)?;
        } else if entry.file_name().as_encoded_bytes().ends_with(b".conf") {
            files.push(path);
        } else {
            skipped.push(path);
        }
        if files.len() + skipped.len() > DROP_INS_MAX {
            return Err(failed(format!("there are more than {DROP_INS_MAX} files")));
        }
    }
    Ok(())
}
