//! `make run`, the first command of README, as a user runs it: on containers without a terminal and on one, and on the fake
//! runtime. It builds both programs, and brings a containerd of its own. And what stays of runs that are killed.
//!
//! `UNDERSTUDY_TRY_DEMO=1` says that it may (`tests/env/run-tests` sets it): the command builds programs, and on a machine
//! that lacks packages it would install them, so there the cases with containers are skipped, which fails instead where `CI`
//! is set.

// The suite stands outside the actors: it watches a real kubelet in wall time.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real kubelets are watched in wall time"
)]

mod cases;
mod killed;
mod remains;
mod run;
mod table;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Completion, Failed};
use testkit::cases::{conclude, trial};

fn main() -> ExitCode {
    let trials = cases::ALL.iter().map(|(name, on_containers, case)| {
        trial(*name, move || {
            if std::env::var("UNDERSTUDY_TRY_DEMO").as_deref() != Ok("1") {
                return Ok(Completion::ignored_with("UNDERSTUDY_TRY_DEMO is not 1"));
            }
            if *on_containers && let Some(reason) = obstacle() {
                return match std::env::var_os("CI") {
                    Some(_) => Err(Failed::from(reason)),
                    None => Ok(Completion::ignored_with(reason)),
                };
            }
            case();
            Ok(Completion::Completed)
        })
    });
    let trials = trials.collect();
    // What is left behind is looked for on the whole machine.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    conclude(!libtest_mimic::run(&arguments, trials).has_failed())
}

/// The workspace's root.
fn root() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../..").into()
}

/// Why containers cannot run here, or what would have to be installed for them.
fn obstacle() -> Option<String> {
    let asked = |script: &str, arguments: &[&str]| {
        let output = Command::new(root().join("tests/env").join(script)).args(arguments).output();
        let output = output.unwrap_or_else(|error| panic!("{script}: {error}"));
        (!output.status.success()).then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    if let Some(reason) = asked("can-run-containers", &[]) {
        return Some(format!("containers cannot run here: {reason}"));
    }
    let missing = asked("install-runtime", &["--check", "--build"])?;
    Some(format!("these packages would be installed: {}", missing.replace('\n', " ")))
}
