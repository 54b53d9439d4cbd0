//! The credential providers of `--image-credential-provider-config`: a file, or a directory of files, of the kind
//! CredentialProviderConfig. The kubelet does not start with one that it does not understand, or whose program is missing.

mod decode;
mod rules;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use bridge_node::host::check_plugin;
use image_manager::{CredentialProvider, CredentialProviders, TokenAttributes, TokenCache};

use self::decode::{Entry, Tokens};
use crate::config::FeatureGates;
use crate::flags::KubeletFlags;

/// The largest file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The most files of a directory.
const FILES_MAX: usize = 100;
/// The most providers.
const PROVIDERS_MAX: usize = 100;

/// What is wrong with the providers: each problem names its file and field, or its flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct ProvidersError(pub Vec<String>);

impl From<String> for ProvidersError {
    fn from(problem: String) -> Self {
        Self(vec![problem])
    }
}

/// Reads the configured providers; none if neither flag is set.
///
/// # Errors
/// Every problem that can be seen at once.
pub fn load(flags: &KubeletFlags, gates: &FeatureGates) -> Result<CredentialProviders, ProvidersError> {
    let (config, programs) =
        (&*flags.image_credential_provider_config, &*flags.image_credential_provider_bin_dir);
    if config.is_empty() && programs.is_empty() {
        return Ok(CredentialProviders::default());
    }
    if let Err(error) = std::fs::metadata(programs) {
        return Err(format!("--image-credential-provider-bin-dir: {programs:?}: {error}").into());
    }
    let with_tokens = gates.enabled("KubeletServiceAccountTokenForCredentialProviders");
    let (mut contents, mut entries, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for file in files(config)? {
        let content = read(&file)?;
        match decode::entries(&file, &content) {
            Ok(of_file) => entries.extend(of_file),
            Err(of_file) => problems.extend(of_file),
        }
        contents.push(content);
    }
    if entries.len() > PROVIDERS_MAX {
        problems.push(format!("{config}: {} providers, of at most {PROVIDERS_MAX}", entries.len()));
    }
    if problems.is_empty() {
        problems = rules::problems(config, &entries, with_tokens);
    }
    if problems.is_empty() {
        let program = |entry: &Entry| Path::new(programs).join(&entry.name);
        problems = entries.iter().filter_map(|entry| missing(&entry.place, &program(entry))).collect();
    }
    if !problems.is_empty() {
        return Err(ProvidersError(problems));
    }
    let providers = entries.into_iter().map(|entry| provider(entry, Path::new(programs))).collect();
    Ok(CredentialProviders::new(&contents, providers))
}

fn missing(place: &str, program: &Path) -> Option<String> {
    let why = check_plugin(program).err()?;
    Some(format!("{place}.name: plugin binary executable {}: {why}", program.display()))
}

/// The files of a path: itself, or those of the directory whose names end as YAML or JSON, sorted.
fn files(config: &str) -> Result<Vec<PathBuf>, ProvidersError> {
    let failed = |error: std::io::Error| format!("--image-credential-provider-config: {config:?}: {error}");
    if !std::fs::metadata(config).map_err(failed)?.is_dir() {
        return Ok(vec![PathBuf::from(config)]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(config).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let is_named =
            path.extension().is_some_and(|end| ["json", "yaml", "yml"].iter().any(|one| end == *one));
        if is_named && !entry.file_type().map_err(failed)?.is_dir() {
            found.push(path);
        }
        if found.len() > FILES_MAX {
            let problem =
                format!("--image-credential-provider-config: {config:?}: more than {FILES_MAX} files");
            return Err(problem.into());
        }
    }
    if found.is_empty() {
        return Err(
            format!("--image-credential-provider-config: {config:?}: no configuration files found").into()
        );
    }
    found.sort();
    Ok(found)
}

fn read(file: &Path) -> Result<Vec<u8>, ProvidersError> {
    let failed = |error: std::io::Error| format!("{}: {error}", file.display());
    let mut content = Vec::new();
    let opened = File::open(file).map_err(failed)?;
    let bytes = opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut content).map_err(failed)?;
    if bytes as u64 > FILE_BYTES_MAX {
        return Err(format!("{}: the file is larger than {FILE_BYTES_MAX} bytes", file.display()).into());
    }
    Ok(content)
}

/// An entry that breaks no rule, as ImageManager has it.
fn provider(entry: Entry, programs: &Path) -> CredentialProvider {
    CredentialProvider {
        program: programs.join(&entry.name),
        name: entry.name,
        match_images: entry.match_images,
        default_cache: entry.default_cache.unwrap_or_default().as_std(),
        api_version: entry.api_version,
        args: entry.args.into(),
        env: entry.env.into(),
        tokens: entry.tokens.map(tokens),
    }
}

fn tokens(tokens: Tokens) -> TokenAttributes {
    TokenAttributes {
        audience: tokens.audience.into(),
        cache: if tokens.cache == "Token" { TokenCache::Token } else { TokenCache::ServiceAccount },
        required: tokens.required.unwrap_or_default(),
        required_keys: tokens.required_keys,
        optional_keys: tokens.optional_keys,
    }
}
