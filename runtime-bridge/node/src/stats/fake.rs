use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::{
    DiskUsage, FileSystemRoom, NodeStats, NodeUsage, PodDisk, PodPlaces, PodUsage, Room, RuntimePlaces,
    Wanted,
};
use bridge_io::NotRun;

/// A node with the figures that a test sets. Clones share them.
#[derive(Clone, Debug)]
pub struct FakeStats {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    node: NodeUsage,
    /// Usage by the pod's UID.
    pods: BTreeMap<String, PodUsage>,
    looks: u64,
    /// How long counting a pod's files takes, by its UID.
    slow: BTreeMap<String, Duration>,
    /// How often a pod's files were counted, by its UID.
    counts: BTreeMap<String, u64>,
}

impl Default for FakeStats {
    /// A node with ample resources on one file system, and pods that use none.
    fn default() -> Self {
        let node = NodeUsage {
            memory: Some(Room::used(8 << 30, 2 << 30)),
            pods_memory: Some(Room::used(7680 << 20, 1 << 30)),
            pids: Some(Room::used(32_768, 300)),
            ..NodeUsage::default()
        };
        let state =
            State { node, pods: BTreeMap::new(), looks: 0, slow: BTreeMap::new(), counts: BTreeMap::new() };
        let stats = Self { state: Arc::new(Mutex::new(state)) };
        stats.set_disk(60 << 30);
        stats
    }
}

impl FakeStats {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the bytes of memory that are left.
    pub fn set_memory(&self, available: u64) {
        self.change(|state| state.node.memory = Some(Room::used(8 << 30, (8 << 30) - available)));
    }

    /// Sets the bytes that are left on the only disk, of 100 GiB.
    pub fn set_disk(&self, available: u64) {
        let room = FileSystemRoom {
            device: 1,
            bytes: Room::used(100 << 30, (100 << 30) - available),
            inodes: Some(Room::used(1_000_000, 1000)),
        };
        self.change(|state| {
            state.node.node_fs = Some(room);
            state.node.image_fs = Some(room);
            state.node.container_fs = Some(room);
        });
    }

    /// Sets how many processes may still be started.
    pub fn set_pids(&self, available: i64) {
        self.change(|state| state.node.pids = Some(Room { available, capacity: 32_768 }));
    }

    /// Sets all figures of the node.
    pub fn set_node(&self, node: NodeUsage) {
        self.change(|state| state.node = node);
    }

    /// Sets the usage of a pod; by default a pod uses nothing.
    pub fn set_pod(&self, uid: &str, usage: PodUsage) {
        self.change(|state| state.pods.insert(uid.to_owned(), usage));
    }

    /// Sets how long counting a pod's files takes; by default no time.
    pub fn set_slow(&self, uid: &str, takes: Duration) {
        self.change(|state| state.slow.insert(uid.to_owned(), takes));
    }

    /// The number of times that a pod's files were counted.
    pub fn counts(&self, uid: &str) -> u64 {
        self.change(|state| state.counts.get(uid).copied().unwrap_or(0))
    }

    /// The number of times that the node was measured.
    pub fn looks(&self) -> u64 {
        self.change(|state| state.looks)
    }
}

impl NodeStats for FakeStats {
    fn node(&self, _: RuntimePlaces) -> BoxFuture<'static, Result<NodeUsage, NotRun>> {
        let node = self.change(|state| {
            state.looks += 1;
            state.node.clone()
        });
        std::future::ready(Ok(node)).boxed()
    }

    fn pods(
        &self,
        pods: Vec<PodPlaces>,
        wanted: Wanted,
    ) -> BoxFuture<'static, Result<BTreeMap<String, PodUsage>, NotRun>> {
        let usage = self.change(|state| {
            let of = |pod: PodPlaces| {
                let mut usage = state.pods.get(&pod.uid).cloned().unwrap_or_default();
                usage.memory_bytes = usage.memory_bytes.filter(|_| wanted.memory);
                if !wanted.disk {
                    usage.logs.clear();
                    usage.volumes.clear();
                    usage.own = DiskUsage::default();
                }
                (pod.uid, usage)
            };
            pods.into_iter().map(of).collect()
        });
        std::future::ready(Ok(usage)).boxed()
    }

    fn disk(&self, pod: PodPlaces, time_max: Duration) -> BoxFuture<'static, Result<PodDisk, NotRun>> {
        let (usage, takes) = self.change(|state| {
            *state.counts.entry(pod.uid.clone()).or_default() += 1;
            let usage = state.pods.get(&pod.uid).cloned().unwrap_or_default();
            (usage, state.slow.get(&pod.uid).copied().unwrap_or_default())
        });
        async move {
            tokio::time::sleep(takes.min(time_max)).await;
            let (mut logs, mut volumes) = (usage.logs, usage.volumes);
            logs.retain(|name, _| pod.logs.contains_key(name));
            volumes.retain(|name, _| pod.volumes.contains_key(name));
            Ok(PodDisk { logs, volumes, own: usage.own, cut: takes > time_max })
        }
        .boxed()
    }
}
