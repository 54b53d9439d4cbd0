//! The Go kubelet replaced by this one on a node of a cluster, and this one by the Go kubelet: with the same files and
//! flags, and without a container of a pod from the API server being restarted.
//!
//! Besides what the suite `standalone` finds in its environment (`UNDERSTUDY_KUBELET`, `UNDERSTUDY_CRI_SOCKET`,
//! `UNDERSTUDY_TEST_IMAGE`, `UNDERSTUDY_CGROUP_PARENT`) it needs the control plane of `tests/env/control-plane`
//! (`UNDERSTUDY_CONTROL_PLANE_DIR`, `UNDERSTUDY_ADMIN_KUBECONFIG`, `UNDERSTUDY_CLUSTER_CA`), kubectl, a Go kubelet
//! and a registrar of CSI drivers that it accepts (`UNDERSTUDY_KUBECTL`, `UNDERSTUDY_GO_KUBELET`, `UNDERSTUDY_CSI_REGISTRAR`,
//! else from `UNDERSTUDY_CACHE`, default `~/.cache/understudy/bin`; `tests/env/go-kubelet` builds the last two), and root. Without any of these it is skipped.
//!
//! The Go kubelet has a few paths that no flag moves. It runs in a mount namespace in which `/var/lib/kubelet` is a
//! directory of its own; the root directory, which is another one, is shared between the namespaces.

// The suite stands outside the actors: it watches real kubelets in wall time.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real kubelets are watched in wall time"
)]

#[path = "standalone/cgroups.rs"]
#[allow(dead_code, reason = "shared with the suite standalone")]
mod cgroups;
#[path = "swap/cluster.rs"]
mod cluster;
#[path = "standalone/cri.rs"]
#[allow(dead_code, reason = "shared with the suite standalone")]
mod cri;
#[path = "swap/environment.rs"]
mod environment;
#[path = "swap/machine.rs"]
mod machine;
#[path = "swap/pods.rs"]
mod pods;
#[path = "swap/scenes.rs"]
mod scenes;
#[path = "swap/state.rs"]
mod state;
#[path = "swap/storage.rs"]
mod storage;

use std::process::ExitCode;

use environment::Environment;
use libtest_mimic::{Arguments, Completion};
use testkit::cases::{conclude, trial};

fn main() -> ExitCode {
    if let Some(ended) = csi_driver::asked() {
        return ended;
    }
    let mut arguments = Arguments::from_args();
    // A kubelet takes every pod of its runtime to be its own.
    arguments.test_threads = Some(1);
    let environment = Environment::find();
    let trials = scenes::ALL.iter().map(|(name, scene)| {
        let environment = environment.clone();
        trial(*name, move || match environment {
            Ok(environment) => {
                scene(&environment);
                Ok(Completion::Completed)
            }
            Err(reason) => Ok(Completion::ignored_with(reason)),
        })
    });
    conclude(!libtest_mimic::run(&arguments, trials.collect()).has_failed())
}
