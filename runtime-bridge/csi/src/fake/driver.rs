//! The fake driver, and what a test sets and sees of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::acts::{DriverEffects, Held, NoEffects, World};
use super::calls::{About, CALLS_MAX, Call, Fault};
use crate::deadlines::Deadlines;
use crate::error::CsiError;
use crate::rpc::Rpc;
use crate::wire::node_service_capability::rpc::Type as Can;
use crate::wire::{NodeGetInfoResponse, Topology, VolumeCondition};

/// A CSI driver in memory. Cheap to clone; clones are the same driver.
///
/// The methods here are for the test that controls the driver; the kubelet sees it through [`Driver`](crate::Driver).
#[derive(Clone)]
pub struct FakeDriver {
    state: Arc<Mutex<State>>,
    effects: Arc<dyn DriverEffects>,
}

struct State {
    world: World,
    born: Instant,
    deadlines: Deadlines,
    is_down: bool,
    faults: BTreeMap<Rpc, VecDeque<Fault>>,
    calls: Vec<Call>,
    counts: BTreeMap<Rpc, u64>,
    under_way: Vec<(u64, About)>,
    /// The turn of each volume: as a real driver, this one works on a volume once at a time.
    turns: BTreeMap<String, Arc<tokio::sync::Mutex<()>>>,
    next: u64,
}

/// A call under way; it ends when dropped.
pub(super) struct UnderWay {
    driver: FakeDriver,
    number: Option<u64>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.driver.lock().under_way.retain(|(number, _)| Some(*number) != self.number);
    }
}

impl FakeDriver {
    /// A driver of this name that stages, measures and expands any volume, on the node `node-of-<name>`.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::with_effects(name, Arc::new(NoEffects))
    }

    /// The same, with effects of its own.
    #[must_use]
    pub fn with_effects(name: &str, effects: Arc<dyn DriverEffects>) -> Self {
        let able = [Can::StageUnstageVolume, Can::GetVolumeStats, Can::ExpandVolume];
        let world = World {
            name: name.to_owned(),
            info: NodeGetInfoResponse { node_id: format!("node-of-{name}"), ..Default::default() },
            capabilities: able.into_iter().map(i32::from).collect(),
            volumes: None,
            bytes_max: 1 << 40,
            condition: None,
            held: Held::default(),
            broken: Vec::new(),
        };
        let state = State {
            world,
            born: Instant::now(),
            deadlines: Deadlines::default(),
            is_down: false,
            faults: BTreeMap::new(),
            calls: Vec::new(),
            counts: BTreeMap::new(),
            under_way: Vec::new(),
            turns: BTreeMap::new(),
            next: 0,
        };
        Self { state: Arc::new(Mutex::new(state)), effects }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the deadlines of calls, at which hung calls end.
    #[must_use]
    pub fn with_deadlines(self, deadlines: Deadlines) -> Self {
        self.lock().deadlines = deadlines;
        self
    }

    /// The driver's name.
    #[must_use]
    pub fn name(&self) -> String {
        self.lock().world.name.clone()
    }

    /// Sets what the driver can do.
    pub fn set_capabilities(&self, able: &[Can]) {
        self.lock().world.capabilities = able.iter().copied().map(i32::from).collect();
    }

    /// Sets what the driver tells of the node: its name, how many volumes may be attached (0: no limit), its place.
    pub fn set_node(&self, node_id: &str, volumes_max: i64, topology: BTreeMap<String, String>) {
        let topology = (!topology.is_empty()).then_some(Topology { segments: topology });
        self.lock().world.info = NodeGetInfoResponse {
            node_id: node_id.to_owned(),
            max_volumes_per_node: volumes_max,
            accessible_topology: topology,
        };
    }

    /// Lets only these volumes exist.
    pub fn set_volumes(&self, volumes: &[&str]) {
        self.lock().world.volumes = Some(volumes.iter().map(|volume| (*volume).to_owned()).collect());
    }

    /// Sets the size beyond which no volume grows, bytes.
    pub fn set_bytes_max(&self, bytes: i64) {
        self.lock().world.bytes_max = bytes;
    }

    /// Sets the health that the driver tells of every volume, if it can (`VolumeCondition`).
    pub fn set_condition(&self, abnormal: bool, message: &str) {
        self.lock().world.condition = Some(VolumeCondition { abnormal, message: message.to_owned() });
    }

    /// The next `times` calls of an RPC fail so.
    pub fn fault(&self, rpc: Rpc, times: usize, fault: Fault) {
        let mut state = self.lock();
        state.faults.entry(rpc).or_default().extend(std::iter::repeat_n(fault, times));
    }

    /// Takes all faults back that have not met a call.
    pub fn clear_faults(&self) {
        self.lock().faults.clear();
    }

    /// Whether the driver is away: every call fails with `Unavailable`.
    pub fn set_down(&self, is_down: bool) {
        self.lock().is_down = is_down;
    }

    /// What the driver holds on the node.
    #[must_use]
    pub fn held(&self) -> Held {
        self.lock().world.held.clone()
    }

    /// Gives the driver what an earlier process of it held.
    pub fn set_held(&self, held: Held) {
        self.lock().world.held = held;
    }

    /// The calls so far, in the order of their arrival.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.lock().calls.clone()
    }

    /// The number of calls of an RPC.
    #[must_use]
    pub fn count(&self, rpc: Rpc) -> u64 {
        self.lock().counts.get(&rpc).copied().unwrap_or_default()
    }

    /// What the caller did and may not do: publish what is not staged, unstage what is published, change a volume as a whole
    /// while another call changes it.
    #[must_use]
    pub fn broken_rules(&self) -> Vec<String> {
        self.lock().world.broken.clone()
    }

    pub(super) fn acts<T>(
        &self,
        act: impl FnOnce(&mut World, &dyn DriverEffects) -> Result<T, CsiError>,
    ) -> Result<T, CsiError> {
        act(&mut self.lock().world, &*self.effects)
    }

    /// Notes a call; returns its fault, whether the driver is away, the driver's name and the call's deadline.
    pub(super) fn arrived(&self, rpc: Rpc, about: &About) -> (Option<Fault>, bool, String, Instant) {
        let mut state = self.lock();
        let at: Duration = state.born.elapsed();
        *state.counts.entry(rpc).or_default() += 1;
        if state.calls.len() < CALLS_MAX {
            let (volume_id, path) = (about.volume_id.clone(), about.path.clone());
            state.calls.push(Call { rpc, volume_id, path, at });
        }
        if about.is_change {
            let volume = |other: &About| other.volume_id == about.volume_id;
            let excludes = |other: &About| other.is_whole || about.is_whole || other.path == about.path;
            let beside = state.under_way.iter().any(|(_, other)| volume(other) && excludes(other));
            if beside {
                let words = format!("{rpc} of {} began while another call changes it", about.volume_id);
                state.world.broken.push(words);
            }
        }
        let fault = state.faults.get_mut(&rpc).and_then(VecDeque::pop_front);
        let until = Instant::now() + state.deadlines.of(rpc);
        (fault, state.is_down, state.world.name.clone(), until)
    }

    /// Waits until no earlier call works on the volume; the answer holds the others back. `None` for calls that change none.
    pub(super) async fn turn(&self, about: &About) -> Option<tokio::sync::OwnedMutexGuard<()>> {
        if !about.is_change {
            return None;
        }
        let turn = self.lock().turns.entry(about.volume_id.clone()).or_default().clone();
        Some(turn.lock_owned().await)
    }

    pub(super) fn under_way(&self, about: About) -> UnderWay {
        let mut state = self.lock();
        let number = about.is_change.then_some(state.next);
        if let Some(number) = number {
            state.next += 1;
            state.under_way.push((number, about));
        }
        drop(state);
        UnderWay { driver: self.clone(), number }
    }
}
