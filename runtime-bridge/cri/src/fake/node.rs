//! The fake's state, and waiting for it to change.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bridge_io::watch;
use tokio::time::Instant;

use super::calls::CallLog;
use super::containers::FakeContainer;
use super::sandboxes::FakeSandbox;
use super::script::{Behaviour, ExecScript, Fault, Match, RegistryImage};
use crate::client::MESSAGE_BYTES_MAX;
use crate::deadlines::Deadlines;
use crate::error::{CriError, CriErrorKind};
use crate::rpc::Rpc;
use crate::wire;
use bridge_node::host::FakeDisk;

/// Events kept for streams that are read slowly.
const EVENTS_MAX: usize = 10_000;

pub(super) struct Node {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

pub(super) struct State {
    seed: u64,
    ids: u64,
    pub(super) pids: u32,
    pub(super) tells_pids: bool,
    pub(super) tells_statuses: bool,
    pub(super) born: Instant,
    pub(super) epoch_ns: i64,
    pub(super) deadlines: Deadlines,
    pub(super) writes_logs: bool,
    pub(super) log_disk: Option<FakeDisk>,
    pub(super) image_directory: String,
    pub(super) streaming_address: Option<String>,
    pub(super) dual_stack: bool,
    pub(super) open_registry: bool,
    pub(super) mounts_images: bool,
    pub(super) down: bool,
    pub(super) message_bytes_max: usize,
    pub(super) conditions: Vec<wire::RuntimeCondition>,
    pub(super) handlers: Vec<wire::RuntimeHandler>,
    pub(super) cgroup_driver: Option<wire::CgroupDriver>,
    pub(super) sandboxes: BTreeMap<String, FakeSandbox>,
    pub(super) containers: BTreeMap<String, FakeContainer>,
    pub(super) names: BTreeMap<String, String>,
    pub(super) addresses: BTreeSet<u16>,
    pub(super) images: BTreeMap<String, wire::Image>,
    pub(super) registry: BTreeMap<String, RegistryImage>,
    pub(super) behaviours: Vec<(Match, Vec<Behaviour>)>,
    pub(super) execs: Vec<(String, ExecScript)>,
    pub(super) faults: BTreeMap<Rpc, VecDeque<Fault>>,
    pub(super) events: Events,
    pub(super) log: CallLog,
    pub(super) pulls: Vec<wire::PullImageRequest>,
}

/// The numbered events so far, of which the last [`EVENTS_MAX`] are kept.
pub(super) struct Events {
    pub(super) on: bool,
    pub(super) next: u64,
    kept: VecDeque<(u64, wire::ContainerEventResponse)>,
}

impl Events {
    pub(super) fn push(&mut self, event: wire::ContainerEventResponse) {
        if self.kept.len() == EVENTS_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back((self.next, event));
        self.next += 1;
    }

    /// The first kept event numbered `from` or later.
    pub(super) fn at(&self, from: u64) -> Option<(u64, wire::ContainerEventResponse)> {
        let at = self.kept.partition_point(|(number, _)| *number < from);
        self.kept.get(at).cloned()
    }
}

impl Node {
    pub(super) fn new(seed: u64, epoch_ns: i64) -> Self {
        let ready = |kind: &str| wire::RuntimeCondition {
            r#type: kind.to_owned(),
            status: true,
            ..Default::default()
        };
        let features =
            wire::RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces: true };
        let state = State {
            seed,
            ids: 0,
            pids: 1000,
            tells_pids: true,
            tells_statuses: true,
            born: Instant::now(),
            epoch_ns,
            deadlines: Deadlines::default(),
            writes_logs: false,
            log_disk: None,
            image_directory: "/var/lib/containerd".to_owned(),
            streaming_address: None,
            dual_stack: false,
            open_registry: false,
            mounts_images: true,
            down: false,
            message_bytes_max: MESSAGE_BYTES_MAX,
            conditions: vec![ready("RuntimeReady"), ready("NetworkReady")],
            handlers: vec![wire::RuntimeHandler { name: String::new(), features: Some(features) }],
            cgroup_driver: Some(wire::CgroupDriver::Cgroupfs),
            sandboxes: BTreeMap::new(),
            containers: BTreeMap::new(),
            names: BTreeMap::new(),
            addresses: BTreeSet::new(),
            images: BTreeMap::new(),
            registry: BTreeMap::new(),
            behaviours: Vec::new(),
            execs: Vec::new(),
            faults: BTreeMap::new(),
            events: Events { on: true, next: 0, kept: VecDeque::new() },
            log: CallLog::default(),
            pulls: Vec::new(),
        };
        Self { state: Mutex::new(state), changed: watch::Sender::new(()) }
    }

    /// Runs `f` on the state after what is due has happened, without waking waiters.
    fn look<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.advance(Instant::now());
        f(&mut state)
    }

    /// The same as `look`, and wakes the waiters for a change.
    pub(super) fn update<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        let result = self.look(f);
        self.changed.send_replace(());
        result
    }

    /// The answer, unless it is longer than a message may be.
    pub(super) fn fitting<T: prost::Message>(&self, rpc: Rpc, answer: T) -> Result<T, CriError> {
        let (length, max) = (answer.encoded_len(), self.look(|state| state.message_bytes_max));
        let words = || format!("trying to send message larger than max ({length} vs. {max})");
        if length <= max {
            Ok(answer)
        } else {
            Err(CriError::new(rpc, CriErrorKind::ResourceExhausted, words()))
        }
    }

    /// Waits until `f` returns a value.
    pub(super) async fn wait_for<T>(self: Arc<Self>, mut f: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        loop {
            let (found, next_exit) = self.look(|state| (f(state), state.next_exit()));
            if let Some(found) = found {
                return found;
            }
            let due = async {
                match next_exit {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = changed.changed() => {}
                () = due => {}
            }
        }
    }
}

impl State {
    pub(super) fn elapsed_ns(&self) -> i64 {
        self.ns_of(Instant::now()) - self.epoch_ns
    }

    /// Wall time of an instant, nanoseconds since the epoch.
    pub(super) fn ns_of(&self, instant: Instant) -> i64 {
        let since = instant.saturating_duration_since(self.born).as_nanos();
        self.epoch_ns.saturating_add(i64::try_from(since).unwrap_or(i64::MAX))
    }

    pub(super) fn now_ns(&self) -> i64 {
        self.ns_of(Instant::now())
    }

    /// A new ID of 64 hexadecimal digits, as containerd's.
    pub(super) fn new_id(&mut self) -> String {
        self.ids += 1;
        hex64(self.seed ^ self.ids.rotate_left(32))
    }

    pub(super) fn event(
        &mut self,
        sandbox_id: &str,
        container_id: &str,
        kind: wire::ContainerEventType,
        at_ns: i64,
    ) {
        if !self.events.on {
            return;
        }
        let statuses = self.containers.values().filter(|container| container.sandbox_id == sandbox_id);
        let event = wire::ContainerEventResponse {
            container_id: container_id.to_owned(),
            container_event_type: kind.into(),
            created_at: at_ns,
            pod_sandbox_status: self.sandboxes.get(sandbox_id).map(FakeSandbox::status),
            containers_statuses: statuses.map(FakeContainer::status).collect(),
        };
        self.events.push(event);
    }
}

/// 64 hexadecimal digits from a number: four steps of splitmix64.
pub(super) fn hex64(mut number: u64) -> String {
    let mut digits = String::with_capacity(64);
    for _ in 0..4 {
        number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = number;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        digits.push_str(&format!("{:016x}", word ^ (word >> 31)));
    }
    digits
}
