//! A real kube-apiserver that is stopped, frozen, or restored to an earlier time under a node of its cluster: the
//! kubelet's binary on a real runtime, and its requests by the API server's own audit log.
//!
//! The environment is that of the suite `cluster`. Here an outage is as long as it takes for waits and time-outs to show;
//! `UNDERSTUDY_API_OUTAGE_SECONDS` makes it longer, as the soak does. What lasts ten minutes runs in the sandbox (`node`,
//! `api_outages`).

// The suite stands outside the actors: it measures a real kubelet in wall time.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real kubelets are measured in wall time"
)]

// Shared with other suites, which use all of it.
#[path = "standalone/cgroups.rs"]
#[allow(dead_code, reason = "another suite uses all of it")]
mod cgroups;
#[path = "standalone/cri.rs"]
#[allow(dead_code, reason = "another suite uses all of it")]
mod cri;
#[path = "standalone/environment.rs"]
#[allow(dead_code, reason = "another suite uses all of it")]
mod environment;
#[path = "standalone/node.rs"]
#[allow(dead_code, reason = "another suite uses all of it")]
mod node;
#[path = "standalone/pod.rs"]
#[allow(dead_code, reason = "another suite uses all of it")]
mod pod;
#[path = "standalone/spec.rs"]
#[allow(dead_code, reason = "another suite uses all of it")]
mod spec;
#[path = "standalone/view.rs"]
#[allow(dead_code, reason = "another suite uses all of it")]
mod view;

#[path = "cluster/api.rs"]
#[allow(dead_code, reason = "another suite uses all of it")]
mod api;
#[path = "cluster/audit.rs"]
#[allow(dead_code, reason = "another suite uses all of it")]
mod audit;
#[path = "cluster/kubectl/mod.rs"]
#[allow(dead_code, reason = "another suite uses all of it")]
mod kubectl;
#[path = "cluster/member.rs"]
#[allow(dead_code, reason = "another suite uses all of it")]
mod member;
#[path = "cluster/setting.rs"]
#[allow(dead_code, reason = "another suite uses all of it")]
mod setting;

#[path = "outages/cases.rs"]
mod cases;

use std::process::ExitCode;
use std::sync::Arc;

use environment::Missing;
use libtest_mimic::{Arguments, Completion, Failed};
use member::Member;
use setting::Setting;
use testkit::cases::{conclude, trial};

/// Cases of the suite `cluster`.
pub type Shared = fn(&Member);
/// A case that makes a node of its own.
pub type Alone = fn(&Arc<Setting>);

fn main() -> ExitCode {
    let setting = Setting::from_variables().map(Arc::new);
    let trials = cases::ALL.iter().map(|(name, case)| {
        let (setting, case) = (setting.clone(), *case);
        trial(*name, move || match setting {
            Err(Missing { reason, fails: true }) => Err(Failed::from(reason)),
            Err(Missing { reason, fails: false }) => Ok(Completion::ignored_with(reason)),
            Ok(setting) => {
                case(&setting);
                Ok(Completion::Completed)
            }
        })
    });
    // There is one API server, so one outage at a time.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    conclude(!libtest_mimic::run(&arguments, trials.collect()).has_failed())
}
