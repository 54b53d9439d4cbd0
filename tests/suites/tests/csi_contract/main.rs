//! The contract of a CSI driver: the same cases against the fake in memory, the fake behind a socket, and a driver in a process
//! of its own that really mounts; and the registration of plugins with that process.
//!
//! The process is this test's binary, called with `csi-driver` as its first argument. Without root it cannot mount, and its
//! cases are skipped, which fails instead where `CI` is set.

// The suite stands outside the actors: it measures real drivers in wall time.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "real drivers are measured in wall time")]

mod cases;
mod registration;
mod subject;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed};
use subject::{Outcome, Place};
use testkit::cases::{conclude, trial};

fn main() -> ExitCode {
    if let Some(code) = csi_driver::asked() {
        return code;
    }
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for (name, case) in cases::ALL {
        for place in [Place::Fake, Place::Socket, Place::Process] {
            let name = format!("{}::{name}", place.name());
            trials.push(trial(name, move || finish(subject::run(place, *case))));
        }
    }
    for (name, test) in registration::ALL {
        let name = format!("registration::{name}");
        trials.push(trial(name, move || finish(registration::run(*test))));
    }
    conclude(!libtest_mimic::run(&arguments, trials).has_failed())
}

fn finish(outcome: Outcome) -> Result<Completion, Failed> {
    match outcome {
        Outcome::Passed => Ok(Completion::Completed),
        Outcome::Skipped(reason) => Ok(Completion::ignored_with(reason)),
        Outcome::Failed(reason) => Err(reason.into()),
    }
}
