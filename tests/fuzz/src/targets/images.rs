//! Images: their names, credentials and records.

use std::path::PathBuf;
use std::time::Duration;

use bridge_node::host::{DockerConfigFile, DockerConfigFormat, SecretContent};
use bridge_text::image;
use image_manager::{CredentialProvider, Intent, PulledRecord, check_pattern, from_files, provider_answer};

/// The names of images, and patterns of them.
pub fn image_name(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = (check_pattern(&text), image::is_latest(&text), image::without_tag(&text));
    let Ok(name) = image::parse(&text) else { return };
    let tagged = image::with_default_tag(&text).expect("it is a name");
    assert_eq!(image::with_default_tag(&tagged), Ok(tagged.clone()));
    assert_eq!(image::parse(&tagged).map(|name| name.repository), Ok(name.repository));
}

/// The answer of a credential provider's program.
pub fn credential_answer(bytes: &[u8]) {
    let provider = CredentialProvider {
        name: "provider".to_owned(),
        program: PathBuf::from("/bin/provider"),
        match_images: vec!["*.example.com".to_owned()],
        default_cache: Duration::from_secs(60),
        api_version: "credentialprovider.kubelet.k8s.io/v1".to_owned(),
        args: Vec::new().into(),
        env: Vec::new().into(),
        tokens: None,
    };
    match provider_answer(&provider, None, &SecretContent::new(bytes)) {
        Ok(answer) => assert!(answer.holds.is_none_or(|holds| !holds.is_zero())),
        Err(why) => assert!(why.len() < 1000, "{why}"),
    }
}

/// Docker's files of credentials, in both layouts.
pub fn docker_config(bytes: &[u8]) {
    for format in [DockerConfigFormat::ConfigJson, DockerConfigFormat::Dockercfg] {
        let path = PathBuf::from("/root/.docker/config.json");
        let content = Ok(SecretContent::new(bytes));
        let found = from_files(&[DockerConfigFile { path, format, content }]);
        assert!(found.warnings.len() <= bytes.len() + 1);
        for repository in ["docker.io/library/busybox", "registry.example.com:5000/a/b", "[::1]/a", ""] {
            for credential in found.keyring.lookup(repository) {
                assert_eq!(credential.hash().len(), 64);
            }
        }
    }
}

/// The records of pulls.
pub fn pull_records(bytes: &[u8]) {
    if let Ok(record) = PulledRecord::read(bytes) {
        let once = record.to_json();
        let again = PulledRecord::read(&once).expect("what was written is read");
        assert_eq!(again.to_json(), once);
    }
    if let Ok(intent) = Intent::read(bytes) {
        let again = Intent::read(&intent.to_json()).expect("what was written is read");
        assert_eq!(again.image, intent.image);
    }
}
