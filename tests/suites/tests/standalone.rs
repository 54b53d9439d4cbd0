//! A node without an API server: the kubelet's binary on a real runtime, with static pods.
//!
//! The environment says where both are (`tests/env/run-tests` sets it): `UNDERSTUDY_KUBELET` is the binary,
//! `UNDERSTUDY_CRI_SOCKET` the runtime's socket, `UNDERSTUDY_TEST_IMAGE` an image that it holds,
//! `UNDERSTUDY_CGROUP_PARENT` a cgroup for what is started here and `UNDERSTUDY_CONTAINERD_DIR` the private containerd
//! that may be stopped. Without them everything is skipped, which fails instead where `CI` is set and
//! `UNDERSTUDY_REQUIRE_RUNTIME=1`. `UNDERSTUDY_TEST_PODS` (50) is how many pods a killed kubelet finds again, and
//! `UNDERSTUDY_OUTAGE_SECONDS` (35) how long the runtime is away. `UNDERSTUDY_KILLS` is how many deaths kubelets die that
//! are killed at every step (40), `UNDERSTUDY_FREEZE_SECONDS` (33) how long a kubelet is stopped.
//!
//! A kubelet takes every pod of its runtime to be its own, so only one may run at a time. The cases of [`side_by_side`]
//! share one kubelet and run in parallel. Those of [`alone`], [`registry`] and [`outages`] each start their own: the second
//! beside a registry, the last take the runtime away. They run one after another, or, where `UNDERSTUDY_MORE_RUNTIMES` names
//! files of `tests/env/containerd up` of the same version, as many at once as there are runtimes.
//!
//! `UNDERSTUDY_SAMPLE=1` runs the cases of [`SAMPLE`] alone: on a further version of the runtime they show what may differ.

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

use environment::{Environment, Missing, Runtimes};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use node::{Node, Options};
use testkit::cases;

/// A case that shares its node with others.
pub type Shared = fn(&Node);
/// A case that makes nodes of its own.
pub type Alone = fn(&Arc<Environment>);

/// Cases at once on the shared node: most of the time they wait.
const SIDE_BY_SIDE: usize = 6;

/// Cases in which the runtime has most to say: how it makes, changes, ends and loses containers, their logs, events and images.
const SAMPLE: &[&str] = &[
    "side_by_side::a_pod_runs_from_manifest_to_ready_and_away",
    "side_by_side::a_container_that_ignores_sigterm_is_killed_after_its_grace",
    "side_by_side::a_failed_liveness_probe_restarts_the_container",
    "side_by_side::an_image_that_cannot_be_pulled_backs_off",
    "side_by_side::requests_and_limits_reach_the_containers_cgroup",
    "side_by_side::read_only_reaches_as_far_as_the_runtime_can",
    "side_by_side::the_user_is_told_where_the_runtime_tells_it",
    "alone::a_killed_process_is_seen_without_a_relist",
    "alone::a_sandbox_stopped_behind_its_back_is_recreated",
    "alone::a_killed_kubelet_finds_all_its_pods_again",
    "alone::a_log_that_grows_is_rotated_and_followed_without_a_gap",
    "alone::figures_are_those_of_the_kernel",
    "alone::configz_shows_the_cgroup_driver_in_use",
    "alone::logs_and_commands_come_over_https",
    "alone::no_death_at_any_step_loses_or_doubles_anything",
    "registry::policies_decide_when_an_image_is_pulled",
    "registry::the_files_of_an_image_are_a_volume",
    "outages::a_killed_runtime_harms_no_pod",
];

fn main() -> ExitCode {
    if let Some(code) = testkit::mortal::run_if_asked() {
        return code;
    }
    let arguments = Arguments::from_args();
    let environment = Environment::from_variables().map(Arc::new);
    let mut well = true;
    for name in SAMPLE {
        assert!(is_a_case(name), "there is no case {name}");
    }

    let shared = Arc::new(OnceLock::new());
    let trials = side_by_side::all().into_iter().filter_map(|(name, case)| {
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

    let runtimes = environment.clone().map(|first| Arc::new(Runtimes::with(&first)));
    let with_registry = runtimes.clone().and_then(|found| registry::available().map(|()| found));
    // Those that take longest come first, so that none is left at the end to run beside nothing.
    let groups = [
        ("outages", outages::ALL.to_vec(), &runtimes),
        ("alone", alone::all(), &runtimes),
        ("registry", registry::all(), &with_registry),
    ];
    let trials = groups.into_iter().flat_map(|(group, cases, runtimes)| {
        cases.into_iter().filter_map(move |(name, case)| {
            let runtimes = runtimes.clone();
            trial(group, name, &runtimes.clone(), move || {
                let lent = runtimes.expect("only run where there is one").lend();
                case(&lent);
            })
        })
    });
    let threads = runtimes.as_ref().map_or(1, |runtimes| runtimes.number);
    well &= run(&Arguments { test_threads: Some(threads), ..arguments }, trials.collect());
    cases::conclude(well)
}

/// Whether the group has such a case.
fn is_a_case(name: &str) -> bool {
    let has = |cases: &[(&str, Alone)], case: &str| cases.iter().any(|(name, _)| *name == case);
    match name.split_once("::") {
        Some(("side_by_side", case)) => side_by_side::all().iter().any(|(name, _)| *name == case),
        Some(("outages", case)) => has(outages::ALL, case),
        Some(("alone", case)) => has(&alone::all(), case),
        Some(("registry", case)) => has(&registry::all(), case),
        _ => false,
    }
}

/// The case as a trial, if it is wanted.
fn trial<T>(
    group: &str,
    name: &str,
    needed: &Result<Arc<T>, Missing>,
    case: impl FnOnce() + Send + 'static,
) -> Option<Trial> {
    let name = format!("{group}::{name}");
    if std::env::var("UNDERSTUDY_SAMPLE").as_deref() == Ok("1") && !SAMPLE.contains(&&*name) {
        return None;
    }
    let missing = needed.as_ref().err().cloned();
    let trial = cases::trial(name, move || match missing {
        Some(Missing { reason, fails: true }) => Err(Failed::from(reason)),
        Some(Missing { reason, fails: false }) => Ok(Completion::ignored_with(reason)),
        None => {
            case();
            Ok(Completion::Completed)
        }
    });
    Some(trial)
}

fn run(arguments: &Arguments, trials: Vec<Trial>) -> bool {
    !libtest_mimic::run(arguments, trials).has_failed()
}
