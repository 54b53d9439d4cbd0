//! The contract of an API server: the same cases against the server in memory and against a real kube-apiserver, and
//! what the client does with real connections, identities and outages.
//!
//! The real one is the control plane of `tests/env/control-plane env`: `UNDERSTUDY_CONTROL_PLANE_DIR` and
//! `UNDERSTUDY_ADMIN_KUBECONFIG`. Without them its cases are skipped, which fails instead where `CI` is set and
//! `UNDERSTUDY_REQUIRE_CLUSTER=1`.

// The suite stands outside the actors: it measures a real server in wall time.
#![allow(clippy::disallowed_methods, reason = "a real server is measured in wall time")]

mod connection;
mod following;
mod kubeconfigs;
mod objects;
mod subject;
mod tokens;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed};
use subject::{Outcome, Place, RealServer};
use testkit::cases::{conclude, trial};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let real = RealServer::from_environment();
    let mut trials = Vec::new();
    for (name, case) in objects::ALL.iter().chain(tokens::ALL).chain(following::ALL) {
        for place in [Place::Memory, Place::Real] {
            let real = real.clone();
            let name = format!("{}::{name}", place.name());
            trials.push(trial(name, move || finish(subject::run(place, &real, *case))));
        }
    }
    for (name, case) in following::SCRIPTED {
        let (name, real) = (format!("{}::{name}", Place::Memory.name()), real.clone());
        trials.push(trial(name, move || finish(subject::run(Place::Memory, &real, *case))));
    }
    for (name, test) in kubeconfigs::ALL {
        let name = format!("kubeconfig::{name}");
        trials.push(trial(name, move || finish(subject::judged(*test))));
    }
    for (name, test) in connection::ALL {
        let real = real.clone();
        let name = format!("connection::{name}");
        trials.push(trial(name, move || finish(subject::run_alone(&real, *test))));
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
