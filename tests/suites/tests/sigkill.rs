//! The kubelet is killed with SIGKILL at every step of starting and stopping pods, again and again, on a fake runtime
//! that this process serves over a socket and that lives on. The same on a real runtime is in `standalone`.
//!
//! The kubelet is the real daemon in this very binary (`testkit::mortal`). `UNDERSTUDY_KILLS` (500) is how many deaths
//! there are, `UNDERSTUDY_SEED` replays a script. Without root, or cgroups to write to, it is skipped.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a real kubelet is measured in wall time"
)]

#[allow(dead_code, reason = "shared with the suite standalone")]
#[path = "standalone/cgroups.rs"]
mod cgroups;
#[allow(dead_code, reason = "shared with the suite standalone")]
#[path = "standalone/cri.rs"]
mod cri;
#[path = "sigkill/driver.rs"]
mod driver;
#[allow(dead_code, reason = "shared with the suite standalone")]
#[path = "standalone/environment.rs"]
mod environment;
#[allow(dead_code, reason = "shared with the suite standalone")]
#[path = "standalone/node.rs"]
mod node;
#[allow(dead_code, reason = "shared with the suite standalone")]
#[path = "standalone/pod.rs"]
mod pod;
#[allow(dead_code, reason = "shared with the suite standalone")]
#[path = "standalone/spec.rs"]
mod spec;
#[allow(dead_code, reason = "shared with the suite standalone")]
#[path = "standalone/view.rs"]
mod view;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bridge_cri::Rpc;
use bridge_cri::fake::{Behaviour, FakeRuntime, Fault, Match, OnTerm, RegistryImage, serve_fake};
use libtest_mimic::{Arguments, Completion};
use serde_json::json;
use testkit::cases::{conclude, trial};

use driver::{Task, kill_again_and_again};
use environment::Environment;
use node::{Node, Options};

const IMAGE: &str = "understudy.dev/demo:1";
/// On a slow machine fewer deaths fit in; every step is died at in any case.
const WITHIN: Duration = Duration::from_secs(90);

fn main() -> ExitCode {
    if let Some(code) = testkit::mortal::run_if_asked() {
        return code;
    }
    let case = trial("no_death_at_any_step_loses_or_doubles_anything", || match reason() {
        Some(reason) => Ok(Completion::ignored_with(reason)),
        None => {
            on_the_fake();
            Ok(Completion::Completed)
        }
    });
    conclude(!libtest_mimic::run(&Arguments::from_args(), vec![case]).has_failed())
}

/// The reason why the suite cannot run here, if there is one.
fn reason() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("mounts and cgroups need root".to_owned());
    }
    let cgroup = cgroup();
    let made = std::panic::catch_unwind(|| cgroups::make(&cgroup));
    made.is_err().then(|| format!("the cgroup {cgroup} cannot be made"))
}

fn cgroup() -> String {
    // Below the cgroup of its run, which ends what this process could not.
    let run = std::env::var("UNDERSTUDY_RUN_CGROUP").unwrap_or_default();
    format!("{run}/understudy-sigkill-{}", std::process::id())
}

/// Removes the cgroup, also when the test fails.
struct Cgroup;

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Err(error) = cgroups::remove(&cgroup()) {
            eprintln!("{error}");
        }
    }
}

fn fake() -> FakeRuntime {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    let fake = FakeRuntime::new(1)
        .at_wall_time(i64::try_from(now.as_nanos()).expect("a time of this age"))
        .without_pids();
    fake.add_image(IMAGE, RegistryImage::default());
    let soon = Behaviour {
        on_term: OnTerm::Exits { after: Duration::from_millis(5), code: 0 },
        ..Behaviour::forever()
    };
    fake.behave(Match::Any, vec![soon.clone()]);
    fake.behave(Match::Container("setup".to_owned()), vec![Behaviour::exits(Duration::from_millis(10), 0)]);
    fake.behave(
        Match::Container("flaky".to_owned()),
        vec![Behaviour::exits(Duration::from_millis(20), 1), soon],
    );
    // Long enough for a death to happen in between.
    for (rpc, ms) in [
        (Rpc::RunPodSandbox, 15),
        (Rpc::CreateContainer, 8),
        (Rpc::StartContainer, 8),
        (Rpc::StopPodSandbox, 8),
        (Rpc::RemovePodSandbox, 5),
        (Rpc::RemoveContainer, 3),
    ] {
        fake.fault(rpc, 50_000, Fault::Latency(Duration::from_millis(ms)));
    }
    fake
}

fn on_the_fake() {
    let _cgroup = Cgroup;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let socket = dir.path().join("cri.sock");
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = tokio.enter();
    let _serving = serve_fake(Path::new(&socket), fake()).expect("a socket");
    let environment = Arc::new(Environment {
        kubelet: std::env::current_exe().expect("this binary has a path"),
        socket: socket.display().to_string(),
        image: IMAGE.to_owned(),
        cgroup_parent: cgroup(),
        containerd: dir.path().to_owned(),
        pods: 0,
        outage: Duration::ZERO,
    });
    let node = Node::prepare(
        &environment,
        "sigkill",
        Options {
            kubelet: json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}}),
            ..Options::default()
        },
    );
    let task = Task::from_environment(500, WITHIN);
    kill_again_and_again(&node, task);
}
