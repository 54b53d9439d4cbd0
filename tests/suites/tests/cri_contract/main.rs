//! The contract of a container runtime: the same cases against the fake in process, the fake behind its socket, and a
//! real runtime.
//!
//! The real one is taken from the environment: `UNDERSTUDY_CRI_SOCKET` names its socket and `UNDERSTUDY_TEST_IMAGE` an
//! image that it holds and that has `/bin/busybox`. Without them its cases are skipped, which fails instead where `CI`
//! is set and `UNDERSTUDY_REQUIRE_RUNTIME=1`.

// The suite stands outside the actors: it measures real runtimes in wall time.
#![allow(clippy::disallowed_methods, reason = "real runtimes are measured in wall time")]

mod cases;
mod connection;
mod subject;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed};
use subject::{Outcome, Place};
use testkit::cases::{conclude, trial};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let real = subject::RealRuntime::from_environment();
    let mut trials = Vec::new();
    for (name, case) in cases::ALL {
        for place in [Place::Fake, Place::Socket, Place::Real] {
            let real = real.clone();
            let name = format!("{}::{name}", place.name());
            trials.push(trial(name, move || finish(subject::run(place, &real, *case))));
        }
    }
    for (name, test) in connection::ALL {
        trials.push(trial(format!("connection::{name}"), move || {
            test();
            Ok(Completion::Completed)
        }));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    subject::remove_cgroups();
    conclude(!conclusion.has_failed())
}

fn finish(outcome: Outcome) -> Result<Completion, Failed> {
    match outcome {
        Outcome::Passed => Ok(Completion::Completed),
        Outcome::Skipped(reason) => Ok(Completion::ignored_with(reason)),
        Outcome::Failed(reason) => Err(reason.into()),
    }
}
