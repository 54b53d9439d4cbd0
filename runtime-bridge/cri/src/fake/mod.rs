//! A container runtime in memory, on tokio's time alone: no sockets, no tasks while nothing is asked, the same answers
//! for the same seed and script. It answers as containerd does, in its words where somebody reads them.
//!
//! Containers do not run: a [`Behaviour`] says when they exit. What has happened by now is worked out whenever somebody
//! asks, so that on a paused clock nothing moves but the clock.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::deadlines::Deadlines;
use super::rpc::Rpc;
use super::wire;

mod about;
mod calls;
mod containers;
mod exec;
mod exits;
mod images;
mod node;
mod sandboxes;
mod script;
mod serve;
mod stats;

pub use calls::Call;
pub use exits::FakeExits;
use node::Node;
pub use script::{Behaviour, ExecScript, Fault, Match, OnTerm, RegistryImage};
pub use serve::{Serving, serve_fake};

/// The wall time at which a fake is made unless told otherwise, nanoseconds since the epoch.
const EPOCH_NS: i64 = 1_800_000_000_000_000_000;

/// A container runtime in memory. Cheap to clone; clones are the same runtime.
///
/// The methods here are the test's hand; what the kubelet sees goes through [`Runtime`](super::Runtime).
#[derive(Clone)]
pub struct FakeRuntime {
    node: Arc<Node>,
}

impl FakeRuntime {
    /// An empty runtime that is ready, has a network, sends events and knows no image. IDs follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { node: Arc::new(Node::new(seed, EPOCH_NS)) }
    }

    /// Sets the wall time of this moment, nanoseconds since the epoch: for a fake that is served to another process.
    #[must_use]
    pub fn at_wall_time(self, now_ns: i64) -> Self {
        self.node.update(|state| state.epoch_ns = now_ns - state.elapsed_ns());
        self
    }

    /// Sets how long callers wait.
    #[must_use]
    pub fn with_deadlines(self, deadlines: Deadlines) -> Self {
        self.node.update(|state| state.deadlines = deadlines);
        self
    }

    /// Writes container logs where the sandbox and container configurations say.
    #[must_use]
    pub fn writing_logs(self) -> Self {
        self.node.update(|state| state.writes_logs = true);
        self
    }

    /// Makes container logs, empty, on a disk in memory.
    #[must_use]
    pub fn with_logs_on(self, disk: &bridge_node::host::FakeDisk) -> Self {
        self.node.update(|state| state.log_disk = Some(disk.clone()));
        self
    }

    /// Where images are said to lie; the default is `/var/lib/containerd`.
    #[must_use]
    pub fn with_image_directory(self, directory: PathBuf) -> Self {
        self.node.update(|state| state.image_directory = directory.display().to_string());
        self
    }

    /// The address given out for Exec, Attach and PortForward, for example `http://127.0.0.1:1234`; without one they
    /// are unimplemented.
    #[must_use]
    pub fn with_streaming_address(self, address: impl Into<String>) -> Self {
        self.node.update(|state| state.streaming_address = Some(address.into()));
        self
    }

    /// Gives sandboxes an IPv6 address too.
    #[must_use]
    pub fn dual_stack(self) -> Self {
        self.node.update(|state| state.dual_stack = true);
        self
    }

    /// Tells no process IDs, as a runtime that keeps them to itself: whoever watches processes of this machine must
    /// not take a made-up one for a container's.
    #[must_use]
    pub fn without_pids(self) -> Self {
        self.node.update(|state| state.tells_pids = false);
        self
    }

    /// Pulls of images that no script names succeed at once.
    #[must_use]
    pub fn with_open_registry(self) -> Self {
        self.node.update(|state| state.open_registry = true);
        self
    }

    /// How the containers that match behave: the first element for attempt 0 and so on, the last for all later ones.
    ///
    /// # Panics
    /// Without a behaviour.
    pub fn behave(&self, which: Match, by_attempt: Vec<Behaviour>) {
        assert!(!by_attempt.is_empty(), "a script needs a behaviour");
        self.node.update(|state| state.behaviours.push((which, by_attempt)));
    }

    /// What `ExecSync` of a command that contains `part` does. Others exit with 0 at once.
    pub fn script_exec(&self, part: impl Into<String>, script: ExecScript) {
        self.node.update(|state| state.execs.push((part.into(), script)));
    }

    /// Puts an image into the registry.
    pub fn publish(&self, reference: &str, image: RegistryImage) {
        self.node.update(|state| state.registry.insert(images::normalised(reference), image));
    }

    /// Puts an image into the runtime, as if pulled; its ID.
    pub fn add_image(&self, reference: &str, image: RegistryImage) -> String {
        self.node.update(|state| state.add_image(reference, &image))
    }

    /// The next `times` calls of `rpc` fail so; after the faults that were ordered before.
    pub fn fault(&self, rpc: Rpc, times: u32, fault: Fault) {
        self.node.update(|state| {
            state.faults.entry(rpc).or_default().extend((0..times).map(|_| fault.clone()));
        });
    }

    /// Forgets the faults that were not played yet.
    pub fn clear_faults(&self) {
        self.node.update(|state| state.faults.clear());
    }

    /// Every call fails with `Unavailable`, as while the runtime restarts; event streams end.
    pub fn set_down(&self, down: bool) {
        self.node.update(|state| state.down = down);
    }

    /// Switches the event stream on or off; without it `GetContainerEvents` is unimplemented.
    pub fn set_events(&self, on: bool) {
        self.node.update(|state| state.events.on = on);
    }

    /// Sets a condition of `Status`, for example `NetworkReady`.
    pub fn set_condition(&self, kind: &str, status: bool, reason: &str, message: &str) {
        let condition = wire::RuntimeCondition {
            r#type: kind.to_owned(),
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        self.node.update(|state| {
            state.conditions.retain(|known| known.r#type != kind);
            state.conditions.push(condition);
        });
    }

    /// Sets the runtime handlers and what they can do; the default one has the empty name.
    pub fn set_handlers(&self, handlers: Vec<wire::RuntimeHandler>) {
        self.node.update(|state| state.handlers = handlers);
    }

    /// Sets the cgroup driver that `RuntimeConfig` tells; without one it is unimplemented, as in containerd 1.6.
    pub fn set_cgroup_driver(&self, driver: Option<wire::CgroupDriver>) {
        self.node.update(|state| state.cgroup_driver = driver);
    }

    /// Holds a name for an object that no list shows, as a runtime does that is still rolling back. The name of a
    /// sandbox is `name_namespace_uid_attempt`, of a container `container_name_namespace_uid_attempt`.
    pub fn reserve_name(&self, name: &str) {
        self.node.update(|state| {
            let holder = state.new_id();
            state.names.insert(name.to_owned(), holder)
        });
    }

    /// Frees a name held by [`reserve_name`](Self::reserve_name).
    pub fn release_name(&self, name: &str) {
        self.node.update(|state| state.names.remove(name));
    }

    /// Ends a running container as if its process had exited by itself; whether one was running.
    pub fn exit_container(&self, container_id: &str, code: i32, oom: bool) -> bool {
        self.node.update(|state| state.exit_now(container_id, code, oom))
    }

    /// Ends a sandbox and its containers as if its pause process had been killed; whether it was ready.
    pub fn kill_sandbox(&self, sandbox_id: &str) -> bool {
        self.node.update(|state| state.end_sandbox(sandbox_id))
    }

    /// Sets what a running container uses, from now on: thousandths of a core, bytes.
    pub fn set_usage(&self, container_id: &str, cpu_millis: u64, memory_bytes: u64) {
        self.node.update(|state| state.set_usage(container_id, cpu_millis, memory_bytes));
    }

    /// The sandboxes there are, by ID.
    #[must_use]
    pub fn sandboxes(&self) -> Vec<wire::PodSandbox> {
        self.node.update(|state| state.sandboxes.values().map(|sandbox| sandbox.listed()).collect())
    }

    /// The first pulls that were asked for, up to 1000, in order.
    #[must_use]
    pub fn pulls(&self) -> Vec<wire::PullImageRequest> {
        self.node.update(|state| state.pulls.clone())
    }

    /// The containers there are, by ID.
    #[must_use]
    pub fn containers(&self) -> Vec<wire::ContainerStatus> {
        self.node.update(|state| state.containers.values().map(|container| container.status()).collect())
    }

    /// The first calls that were made, up to 100,000, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.node.update(|state| state.log.calls.clone())
    }

    /// How often each RPC was called.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<Rpc, u64> {
        self.node.update(|state| state.log.counts.clone())
    }

    /// The most mutating calls that were ever under way at the same time for one sandbox, container or pod that
    /// exists.
    #[must_use]
    pub fn most_at_once(&self) -> usize {
        self.node.update(|state| state.log.most_at_once)
    }

    /// Reports the ends of this fake's processes.
    #[must_use]
    pub fn exit_watcher(&self) -> FakeExits {
        FakeExits::new(Arc::clone(&self.node))
    }

    /// When the next container exits by itself, from now; none while nothing is due.
    #[must_use]
    pub fn next_exit_in(&self) -> Option<Duration> {
        let now = tokio::time::Instant::now();
        self.node.update(|state| state.next_exit().map(|at| at.saturating_duration_since(now)))
    }
}

impl std::fmt::Debug for FakeRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeRuntime").finish_non_exhaustive()
    }
}
