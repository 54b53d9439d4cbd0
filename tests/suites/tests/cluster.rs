//! A node of a real cluster: the kubelet's binary between a real kube-apiserver and a real runtime, with a real
//! kubectl. The cases do the work of a controller-manager and a scheduler.
//!
//! The environment says where they are (`tests/env/run-tests` sets it): beside what the suite `standalone` needs
//! (`UNDERSTUDY_KUBELET`, `UNDERSTUDY_CRI_SOCKET`, `UNDERSTUDY_TEST_IMAGE`, `UNDERSTUDY_CGROUP_PARENT`,
//! `UNDERSTUDY_CONTAINERD_DIR`) the control plane of `tests/env/control-plane up DIR --audit`
//! (`UNDERSTUDY_CONTROL_PLANE_DIR`, `UNDERSTUDY_ADMIN_KUBECONFIG`) and `KUBECTL`, which else is looked for in `PATH` and
//! in the cache directory (`UNDERSTUDY_CACHE`). Without them everything is skipped, which fails instead where `CI` is set
//! and `UNDERSTUDY_REQUIRE_CLUSTER=1`. Without kubectl the cases of [`kubectl`] are skipped: [`protocol`] asks for logs and
//! commands as kubectl does, and nothing forwards a port. The cases of `hostpath` run where kubernetes-csi's hostpath driver
//! and node-driver-registrar are (`CSI_HOSTPATH`, `CSI_REGISTRAR`, or the cache directory).
//!
//! A kubelet takes every pod of its runtime to be its own, so only one may run at a time. The cases of [`pods`],
//! [`protocol`] and [`kubectl`] share one and run in parallel; those of [`alone`] each start their own, one after another.
//! `UNDERSTUDY_GROUPS` names the groups of cases that are run, so that two control planes can share them.

// The suite stands outside the actors: it measures a real kubelet in wall time.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real kubelets are measured in wall time"
)]

// Shared with the suite of nodes without an API server, which uses all of it.
#[path = "standalone/cgroups.rs"]
#[allow(dead_code, reason = "the other suite uses all of it")]
mod cgroups;
#[path = "standalone/cri.rs"]
#[allow(dead_code, reason = "the other suite uses all of it")]
mod cri;
#[path = "standalone/environment.rs"]
#[allow(dead_code, reason = "the other suite uses all of it")]
mod environment;
#[path = "standalone/node.rs"]
#[allow(dead_code, reason = "the other suite uses all of it")]
mod node;
#[path = "standalone/pod.rs"]
#[allow(dead_code, reason = "the other suite uses all of it")]
mod pod;
#[path = "standalone/spec.rs"]
#[allow(dead_code, reason = "the other suite uses all of it")]
mod spec;
#[path = "standalone/view.rs"]
#[allow(dead_code, reason = "the other suite uses all of it")]
mod view;

#[path = "cluster/alone/mod.rs"]
mod alone;
#[path = "cluster/api.rs"]
mod api;
#[path = "cluster/audit.rs"]
mod audit;
#[path = "cluster/kubectl/mod.rs"]
mod kubectl;
#[path = "cluster/member.rs"]
mod member;
#[path = "cluster/pods/mod.rs"]
mod pods;
#[path = "cluster/protocol.rs"]
mod protocol;
#[path = "cluster/registry.rs"]
mod registry;
#[path = "cluster/setting.rs"]
mod setting;

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use environment::Missing;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use member::Member;
use setting::Setting;
use testkit::cases;

/// A case that shares its node with others.
pub type Shared = fn(&Member);
/// A case that makes nodes of its own.
pub type Alone = fn(&Arc<Setting>);

/// Cases at once on the shared node: most of the time they wait.
const SIDE_BY_SIDE: usize = 6;

fn main() -> ExitCode {
    if let Some(code) = csi_driver::asked() {
        return code;
    }
    let arguments = Arguments::from_args();
    let setting = Setting::from_variables().map(Arc::new);
    let with_kubectl = setting.clone().and_then(|found| found.kubectl().map(drop).map(|()| found));
    let with_registry = setting.clone().and_then(|found| registry::available().map(|()| found));
    let mut well = true;

    let shared = Arc::new(OnceLock::new());
    let mut trials = Vec::new();
    for (group, cases, setting) in [
        ("pods", pods::all(), &setting),
        ("registry", registry::ALL.to_vec(), &with_registry),
        ("protocol", protocol::ALL.to_vec(), &setting),
        ("kubectl", kubectl::all(), &with_kubectl),
    ] {
        if !is_wanted(group) {
            continue;
        }
        trials.extend(cases.into_iter().map(|(name, case)| {
            let shared = Arc::clone(&shared);
            trial(group, name, setting, move |setting| {
                match shared.get_or_init(|| Member::start(&setting, "shared")) {
                    Ok(member) => case(member),
                    Err(error) => panic!("the shared node: {error}"),
                }
            })
        }));
    }
    let threads = arguments.test_threads.or(Some(SIDE_BY_SIDE));
    well &= run(&Arguments { test_threads: threads, ..arguments.clone() }, trials);
    drop(shared);

    let one_by_one = Arguments { test_threads: Some(1), ..arguments };
    // They are looked for, never built; another driver is tested where they are not there.
    let absent = |reason| Missing { reason, fails: false };
    let with_hostpath = setting
        .clone()
        .and_then(|found| csi_driver::hostpath::Programs::find().map_err(absent).map(|_| found));
    let groups = [
        ("alone", alone::ALL, &setting),
        ("volumes", alone::VOLUMES, &setting),
        ("hostpath", alone::WITH_HOSTPATH, &with_hostpath),
    ];
    let groups = groups.into_iter().filter(|(group, ..)| is_wanted(group));
    let trials = groups.flat_map(|(group, cases, setting)| {
        cases.iter().map(move |(name, case)| {
            let case = *case;
            trial(group, name, setting, move |setting| case(&setting))
        })
    });
    well &= run(&one_by_one, trials.collect());
    cases::conclude(well)
}

/// Whether a group is among those of `UNDERSTUDY_GROUPS`, separated by blanks; without it all are run.
fn is_wanted(group: &str) -> bool {
    std::env::var("UNDERSTUDY_GROUPS").map_or(true, |groups| groups.split(' ').any(|wanted| wanted == group))
}

fn trial(
    group: &str,
    name: &str,
    setting: &Result<Arc<Setting>, Missing>,
    case: impl FnOnce(Arc<Setting>) + Send + 'static,
) -> Trial {
    let setting = setting.clone();
    cases::trial(format!("{group}::{name}"), move || match setting {
        Err(Missing { reason, fails: true }) => Err(Failed::from(reason)),
        Err(Missing { reason, fails: false }) => Ok(Completion::ignored_with(reason)),
        Ok(setting) => {
            case(setting);
            Ok(Completion::Completed)
        }
    })
}

fn run(arguments: &Arguments, trials: Vec<Trial>) -> bool {
    !libtest_mimic::run(arguments, trials).has_failed()
}
