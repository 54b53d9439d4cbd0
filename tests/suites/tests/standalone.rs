//! A node without an API server: the kubelet's binary on a real runtime, with static pods.
//!
//! The environment says where both are (`tests/env/run-tests` sets it): `UNDERSTUDY_KUBELET` is the binary,
//! `UNDERSTUDY_CRI_SOCKET` the runtime's socket, `UNDERSTUDY_TEST_IMAGE` an image that it holds,
//! `UNDERSTUDY_CGROUP_PARENT` a cgroup for what is started here and `UNDERSTUDY_CONTAINERD_DIR` the private containerd
//! that may be stopped. Without them everything is skipped, which fails instead where `CI` is set and
//! `UNDERSTUDY_REQUIRE_RUNTIME=1`. `UNDERSTUDY_TEST_PODS` (50) is how many pods a killed kubelet finds again, and
//! `UNDERSTUDY_OUTAGE_SECONDS` (60) how long the runtime is away. `UNDERSTUDY_KILLS` is how many deaths kubelets die that
//! are killed at every step (40), `UNDERSTUDY_FREEZE_SECONDS` (33) how long a kubelet is stopped.
//!
//! A kubelet takes every pod of its runtime to be its own, so only one may run at a time. The cases of [`side_by_side`]
//! share one kubelet and run in parallel; those of [`alone`] and [`registry`] each start their own, one after another, the
//! latter beside a registry; those of [`outages`] do so, too, and come last, since they take the runtime away.

// The suite stands outside the actors: it measures a real kubelet in wall time.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real kubelets are measured in wall time"
)]

#[path = "standalone/alone/mod.rs"]
mod alone;
#[path = "standalone/cgroups.rs"]
mod cgroups;
#[path = "standalone/cri.rs"]
mod cri;
#[path = "standalone/environment.rs"]
mod environment;
#[path = "standalone/node.rs"]
mod node;
#[path = "standalone/outages.rs"]
mod outages;
#[path = "standalone/pod.rs"]
mod pod;
#[path = "standalone/registry/mod.rs"]
mod registry;
#[path = "standalone/side_by_side/mod.rs"]
mod side_by_side;
#[path = "sigkill/driver.rs"]
mod sigkill;
#[path = "standalone/spec.rs"]
mod spec;
#[path = "standalone/view.rs"]
mod view;

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use environment::{Environment, Missing};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use node::{Node, Options};
use testkit::cases;

/// A case that shares its node with others.
pub type Shared = fn(&Node);
/// A case that makes nodes of its own.
pub type Alone = fn(&Arc<Environment>);

/// Cases at once on the shared node: most of the time they wait.
const SIDE_BY_SIDE: usize = 6;

fn main() -> ExitCode {
    if let Some(code) = testkit::mortal::run_if_asked() {
        return code;
    }
    let arguments = Arguments::from_args();
    let environment = Environment::from_variables().map(Arc::new);
    let mut well = true;

    let shared = Arc::new(OnceLock::new());
    let trials = side_by_side::all().into_iter().map(|(name, case)| {
        let (environment, shared) = (environment.clone(), Arc::clone(&shared));
        trial("side_by_side", name, &environment.clone(), move || {
            let environment = environment.expect("only run where there is one");
            let node = shared.get_or_init(|| Node::start(&environment, "shared", Options::default()));
            match node {
                Ok(node) => case(node),
                Err(error) => panic!("the shared node: {error}"),
            }
        })
    });
    let threads = arguments.test_threads.or(Some(SIDE_BY_SIDE));
    well &= run(&Arguments { test_threads: threads, ..arguments.clone() }, trials.collect());
    drop(shared);

    let one_by_one = Arguments { test_threads: Some(1), ..arguments };
    let with_registry = environment.clone().and_then(|found| registry::available().map(|()| found));
    for (group, cases, environment) in [
        ("alone", alone::all(), &environment),
        ("registry", registry::all(), &with_registry),
        ("outages", outages::ALL.to_vec(), &environment),
    ] {
        let trials = cases.into_iter().map(|(name, case)| {
            let environment = environment.clone();
            trial(group, name, &environment.clone(), move || {
                case(&environment.expect("only run where there is one"));
            })
        });
        well &= run(&one_by_one, trials.collect());
    }
    cases::conclude(well)
}

fn trial(
    group: &str,
    name: &str,
    environment: &Result<Arc<Environment>, Missing>,
    case: impl FnOnce() + Send + 'static,
) -> Trial {
    let missing = environment.as_ref().err().cloned();
    cases::trial(format!("{group}::{name}"), move || match missing {
        Some(Missing { reason, fails: true }) => Err(Failed::from(reason)),
        Some(Missing { reason, fails: false }) => Ok(Completion::ignored_with(reason)),
        None => {
            case();
            Ok(Completion::Completed)
        }
    })
}

fn run(arguments: &Arguments, trials: Vec<Trial>) -> bool {
    !libtest_mimic::run(arguments, trials).has_failed()
}
