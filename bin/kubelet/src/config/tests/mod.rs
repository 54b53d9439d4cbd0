//! Configuration as a whole: defaults, strictness, layers, rules.

mod defaults;
mod kubeadm;
mod layers;
mod rules;
mod strictness;

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::ConfigError;
use super::validation::Host;
use crate::load::{Invocation, Loaded, load};

/// A directory of configuration files.
struct Files {
    directory: TempDir,
}

impl Files {
    fn new() -> Self {
        Self { directory: TempDir::new().expect("a temporary directory") }
    }

    /// Writes a file and its directories; returns its path.
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("below the directory")).expect("writable");
        std::fs::write(&path, text).expect("writable");
        path.display().to_string()
    }

    /// Writes a KubeletConfiguration with `fields`.
    fn kubelet(&self, name: &str, fields: &str) -> String {
        let head = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n";
        self.write(name, &format!("{head}{fields}\n"))
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(self.directory.path()).join(name)
    }
}

const CGROUP_V2: Host = Host { cgroup_v2: true };

fn try_load(args: &[&str]) -> Result<Loaded, Vec<ConfigError>> {
    let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
    match load(&args, &CGROUP_V2, &mut Vec::new())? {
        Invocation::Run(loaded) => Ok(*loaded),
        other => panic!("{args:?} asks for {other:?}"),
    }
}

fn loaded(args: &[&str]) -> Loaded {
    try_load(args).expect("a valid command line and configuration")
}

/// The warnings without the line on defaults, which every kubelet logs.
fn beside_defaults(warnings: &[String]) -> Vec<&str> {
    let beside = warnings.iter().filter(|warning| !warning.contains("not even at their defaults"));
    beside.map(String::as_str).collect()
}

/// The errors' texts.
fn refusal(args: &[&str]) -> Vec<String> {
    let errors = try_load(args).expect_err("an invalid command line or configuration");
    errors.iter().map(ToString::to_string).collect()
}
