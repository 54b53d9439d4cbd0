//! Images from registries: a real one (Debian's), and one that misbehaves.

mod credentials;
mod http;
mod image_volumes;
mod nasty;
mod policies;
mod pulls;
mod server;
mod trouble;

use std::path::Path;

use crate::Alone;
use crate::environment::Missing;

pub fn all() -> Vec<(&'static str, Alone)> {
    [policies::ALL, credentials::ALL, image_volumes::ALL, pulls::ALL, trouble::ALL].concat()
}

/// Whether a registry can be started.
pub fn available() -> Result<(), Missing> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).any(|dir: std::path::PathBuf| dir.join("docker-registry").is_file());
    if found || Path::new("/usr/bin/docker-registry").is_file() {
        return Ok(());
    }
    Err(Missing {
        reason: "no docker-registry: tests/env/install-runtime --tests installs it".to_owned(),
        fails: std::env::var_os("CI").is_some()
            && std::env::var("UNDERSTUDY_REQUIRE_RUNTIME").as_deref() == Ok("1"),
    })
}

/// A sleeping container with this image and pull policy.
fn sleeper_of(image: &str, policy: &str) -> serde_json::Value {
    let more = serde_json::json!({"image": image, "imagePullPolicy": policy});
    crate::spec::with(crate::spec::sleeper("main"), more)
}
