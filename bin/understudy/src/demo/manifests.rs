//! The manifests of the demo's pods: the samples, or the files of a directory.

use std::path::Path;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde_json::Value;

/// The most files: no node runs more pods.
const FILES_MAX: usize = 110;
/// The largest manifest, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The file's name.
    pub name: String,
    /// The file's text.
    pub text: String,
}

/// The sample pods of `config/pods`.
pub fn embedded() -> Vec<Sample> {
    let sample = |name: &str, text: &str| Sample { name: name.to_owned(), text: text.to_owned() };
    vec![
        sample("web.yaml", include_str!("../../../../config/pods/web.yaml")),
        sample("job.yaml", include_str!("../../../../config/pods/job.yaml")),
        sample("crash.yaml", include_str!("../../../../config/pods/crash.yaml")),
    ]
}

/// The manifests of a directory, sorted by name.
///
/// # Errors
/// A file cannot be read or is too large, or there are none or too many.
pub fn read(directory: &Path) -> anyhow::Result<Vec<Sample>> {
    let shown = directory.display();
    let mut samples = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(|| format!("read directory {shown}"))? {
        let path = entry.with_context(|| format!("read directory {shown}"))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let extension = path.extension().and_then(|extension| extension.to_str());
        if name.starts_with('.') || !matches!(extension, Some("yaml" | "yml" | "json")) {
            continue;
        }
        let file = path.display();
        let bytes = std::fs::metadata(&path).with_context(|| format!("look at {file}"))?.len();
        if bytes > FILE_BYTES_MAX {
            bail!("{file} has {bytes} bytes; a manifest has at most {FILE_BYTES_MAX}");
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {file}"))?;
        samples.push(Sample { name: name.to_owned(), text });
        if samples.len() > FILES_MAX {
            bail!("directory {shown} has more than {FILES_MAX} manifests");
        }
    }
    if samples.is_empty() {
        bail!("directory {shown} has no .yaml, .yml or .json file");
    }
    samples.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(samples)
}

impl Sample {
    /// The manifest as a value, with unknown and invalid fields.
    ///
    /// # Errors
    /// The text is not YAML.
    pub fn manifest(&self) -> anyhow::Result<Value> {
        bridge_text::value(&self.text)
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("read {} as YAML", self.name))
    }
}

/// The pod in a manifest; `None` if it cannot be decoded, since the kubelet reports such manifests itself.
pub fn pod(manifest: &Value) -> Option<Pod> {
    let named = manifest["kind"] == "Pod";
    named.then(|| Pod::deserialize(manifest).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_samples_are_pods() {
        let names: Vec<String> = embedded()
            .iter()
            .map(|sample| pod(&sample.manifest().unwrap()).unwrap().metadata.name.unwrap())
            .collect();
        assert_eq!(names, ["web", "job", "crash"]);
    }

    #[test]
    fn a_directory_gives_its_manifests_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        assert!(read(directory.path()).unwrap_err().to_string().contains("has no .yaml"));
        write("b.yaml", "kind: Pod\n");
        write("a.json", "{}");
        write(".hidden.yaml", "x");
        write("README", "x");
        let samples = read(directory.path()).unwrap();
        assert_eq!(samples.iter().map(|sample| &*sample.name).collect::<Vec<_>>(), ["a.json", "b.yaml"]);
        assert_eq!(pod(&samples[0].manifest().unwrap()), None);
        assert!(pod(&samples[1].manifest().unwrap()).is_some());
        write("c.yaml", &" ".repeat(FILE_BYTES_MAX as usize + 1));
        assert!(read(directory.path()).unwrap_err().to_string().contains("at most"));
    }
}
