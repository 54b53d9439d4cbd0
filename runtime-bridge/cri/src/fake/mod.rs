//! A container runtime in memory, on tokio's time alone: no sockets, no tasks while no call is under way, and the same
//! answers for the same seed and script. It answers as containerd does, in containerd's words where people or tools
//! read them.
//!
//! Containers have no processes: a [`Behaviour`] says when they exit. Each call first works out what has happened by
//! its time, so that on a paused clock only time moves.

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

/// The wall time at which a fake is made by default, nanoseconds since the epoch.
const EPOCH_NS: i64 = 1_800_000_000_000_000_000;

/// A container runtime in memory. Cheap to clone; clones are the same runtime.
///
/// The methods here are for the test that controls the runtime; the kubelet sees it through
/// [`Runtime`](super::Runtime).
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

    /// Sets the wall time of this moment, nanoseconds since the epoch: needed by a fake that is served to another
    /// process.
    #[must_use]
    pub fn at_wall_time(self, now_ns: i64) -> Self {
        self.node.update(|state| state.epoch_ns = now_ns - state.elapsed_ns());
        self
    }

    /// Sets the deadlines of calls.
    #[must_use]
    pub fn with_deadlines(self, deadlines: Deadlines) -> Self {
        self.node.update(|state| state.deadlines = deadlines);
        self
    }

    /// Writes container logs to the paths that the sandbox and container configurations give.
    #[must_use]
    pub fn writing_logs(self) -> Self {
        self.node.update(|state| state.writes_logs = true);
        self
    }

    /// Creates the containers' logs, empty, on a disk in memory.
    #[must_use]
    pub fn with_logs_on(self, disk: &bridge_node::host::FakeDisk) -> Self {
        self.node.update(|state| state.log_disk = Some(disk.clone()));
        self
    }

    /// Sets the directory that `ImageFsInfo` reports; the default is `/var/lib/containerd`.
    #[must_use]
    pub fn with_image_directory(self, directory: PathBuf) -> Self {
        self.node.update(|state| state.image_directory = directory.display().to_string());
        self
    }

    /// Sets the address that Exec, Attach and PortForward answer with, for example `http://127.0.0.1:1234`; without one
    /// they are unimplemented.
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

    /// Leaves process IDs out of answers, as some runtimes do: a kubelet that watches real processes must not take a
    /// made-up ID for a container's.
    #[must_use]
    pub fn without_pids(self) -> Self {
        self.node.update(|state| state.tells_pids = false);
        self
    }

    /// Answers that are asked for the status of a sandbox or container are empty, or have it again.
    pub fn withhold_statuses(&self, withheld: bool) {
        self.node.update(|state| state.tells_statuses = !withheld);
    }

    /// Lets pulls of images that are not published succeed at once.
    #[must_use]
    pub fn with_open_registry(self) -> Self {
        self.node.update(|state| state.open_registry = true);
        self
    }

    /// The runtime mounts images, as containerd from 2.1 on, or does not know of them.
    pub fn set_mounts_images(&self, mounts: bool) {
        self.node.update(|state| state.mounts_images = mounts);
    }

    /// Scripts the containers that match: the first behaviour is for attempt 0 and so on, the last for all later
    /// attempts.
    ///
    /// # Panics
    /// When `by_attempt` is empty.
    pub fn behave(&self, which: Match, by_attempt: Vec<Behaviour>) {
        assert!(!by_attempt.is_empty(), "a script needs a behaviour");
        self.node.update(|state| state.behaviours.push((which, by_attempt)));
    }

    /// Scripts `ExecSync` for commands that contain `part`. Other commands exit with 0 at once.
    pub fn script_exec(&self, part: impl Into<String>, script: ExecScript) {
        self.node.update(|state| state.execs.push((part.into(), script)));
    }

    /// Puts an image into the registry.
    pub fn publish(&self, reference: &str, image: RegistryImage) {
        self.node.update(|state| state.registry.insert(images::normalised(reference), image));
    }

    /// Puts an image into the runtime, as if it had been pulled; returns its ID.
    pub fn add_image(&self, reference: &str, image: RegistryImage) -> String {
        self.node.update(|state| state.add_image(reference, &image))
    }

    /// Has the runtime ask that the image with this ID is never collected.
    pub fn pin_image(&self, id: &str) {
        self.node.update(|state| {
            if let Some(image) = state.images.get_mut(id) {
                image.pinned = true;
            }
        });
    }

    /// Lets the next `times` calls of `rpc` fail with `fault`, after the faults ordered before.
    pub fn fault(&self, rpc: Rpc, times: u32, fault: Fault) {
        self.node.update(|state| {
            state.faults.entry(rpc).or_default().extend((0..times).map(|_| fault.clone()));
        });
    }

    /// Forgets the faults that have not been played yet.
    pub fn clear_faults(&self) {
        self.node.update(|state| state.faults.clear());
    }

    /// While down, every call fails with `Unavailable`, as during a restart of the runtime; event streams end.
    pub fn set_down(&self, down: bool) {
        self.node.update(|state| state.down = down);
    }

    /// Sets the most bytes of a list of sandboxes or containers, 16 MiB unless set: a longer one is refused, as by a runtime.
    pub fn set_message_bytes_max(&self, bytes: usize) {
        self.node.update(|state| state.message_bytes_max = bytes);
    }

    /// Switches the event stream on or off; without it `GetContainerEvents` is unimplemented.
    pub fn set_events(&self, on: bool) {
        self.node.update(|state| state.events.on = on);
    }

    /// Tells of the start of a container that no list shows, as of one that another client of the runtime has made.
    pub fn tell_of_stranger(&self, container_id: &str) {
        let event = wire::ContainerEventResponse {
            container_id: container_id.to_owned(),
            container_event_type: wire::ContainerEventType::ContainerStartedEvent.into(),
            ..Default::default()
        };
        self.node.update(|state| state.events.push(event));
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

    /// Sets the runtime handlers and their features; the default handler has the empty name.
    pub fn set_handlers(&self, handlers: Vec<wire::RuntimeHandler>) {
        self.node.update(|state| state.handlers = handlers);
    }

    /// Sets the cgroup driver that `RuntimeConfig` answers with; without one the call is unimplemented, as in
    /// containerd 1.6.
    pub fn set_cgroup_driver(&self, driver: Option<wire::CgroupDriver>) {
        self.node.update(|state| state.cgroup_driver = driver);
    }

    /// Holds a name for an object that no list shows, as a runtime does that is still rolling back. A sandbox is named
    /// `name_namespace_uid_attempt`, a container `container_name_namespace_uid_attempt`.
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

    /// Ends a running container as if its process had exited by itself; returns whether it was running.
    pub fn exit_container(&self, container_id: &str, code: i32, oom: bool) -> bool {
        self.node.update(|state| state.exit_now(container_id, code, oom))
    }

    /// Ends a sandbox and its containers as if its pause process had been killed; returns whether it was ready.
    pub fn kill_sandbox(&self, sandbox_id: &str) -> bool {
        self.node.update(|state| state.end_sandbox(sandbox_id))
    }

    /// Removes a container behind the kubelet's back, as `crictl rm --force` does.
    pub fn lose_container(&self, container_id: &str) {
        self.node.update(|state| state.remove_container(container_id));
    }

    /// Forgets every container and sandbox, as a runtime whose store was wiped.
    pub fn wipe(&self) {
        self.node.update(|state| {
            let all: Vec<String> = state.sandboxes.keys().cloned().collect();
            all.iter().for_each(|id| state.remove_pod_sandbox(id));
        });
    }

    /// Sets the usage of a running container from now on: thousandths of a core, and bytes.
    pub fn set_usage(&self, container_id: &str, cpu_millis: u64, memory_bytes: u64) {
        self.node.update(|state| state.set_usage(container_id, cpu_millis, memory_bytes));
    }

    /// All sandboxes, by ID.
    #[must_use]
    pub fn sandboxes(&self) -> Vec<wire::PodSandbox> {
        self.node.update(|state| state.sandboxes.values().map(|sandbox| sandbox.listed()).collect())
    }

    /// The first 1000 pull requests, in order.
    #[must_use]
    pub fn pulls(&self) -> Vec<wire::PullImageRequest> {
        self.node.update(|state| state.pulls.clone())
    }

    /// All containers, by ID.
    #[must_use]
    pub fn containers(&self) -> Vec<wire::ContainerStatus> {
        self.node.update(|state| state.containers.values().map(|container| container.status()).collect())
    }

    /// The first 100,000 calls, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.node.update(|state| state.log.calls.clone())
    }

    /// The number of calls of each RPC.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<Rpc, u64> {
        self.node.update(|state| state.log.counts.clone())
    }

    /// The highest number of mutating calls that were under way at the same time for one existing sandbox, container or
    /// pod.
    #[must_use]
    pub fn most_at_once(&self) -> usize {
        self.node.update(|state| state.log.most_at_once)
    }

    /// A watcher that reports the ends of this fake's processes.
    #[must_use]
    pub fn exit_watcher(&self) -> FakeExits {
        FakeExits::new(Arc::clone(&self.node))
    }

    /// The time until the next container exits by itself; `None` while no exit is planned.
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
