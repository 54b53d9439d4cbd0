//! Pods, and the facts about them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use messages::facts::{
    DesiredPod, DesiredPods, DesiredPodsChanged, PodObserved, SeenPod, Source, WorkerReport, WorkerReported,
    WorkerState,
};
use messages::runtime::{ContainerState, RuntimeContainer, RuntimeHealth, RuntimePod, RuntimeSandbox};
use messages::{PodRef, PodUid};
use pod_set::Journal;
use serde_json::json;

/// The image of every pod.
pub const IMAGE: &str = "understudy.dev/demo:1";
/// The most pods of any measurement.
const PODS_MAX: usize = 1000;

static PODS: OnceLock<Vec<Arc<DesiredPod>>> = OnceLock::new();

/// The UID of the pod of this number.
pub fn uid(number: usize) -> PodUid {
    PodUid::new(&format!("{number:032x}"))
}

/// The pod of this number: a web server with a volume and a readiness probe.
pub fn pod(number: usize) -> Arc<DesiredPod> {
    let name = format!("web-{number}-node");
    let value = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "uid": uid(number).as_str(), "labels": {"app": "web"},
            "annotations": {"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": uid(number).as_str()},
        },
        "spec": {
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "nodeName": "node",
            "dnsPolicy": "Default", "schedulerName": "default-scheduler", "enableServiceLinks": true,
            "volumes": [{"name": "data", "emptyDir": {}}],
            "containers": [{
                "name": "web", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["/bin/web"],
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "readinessProbe": {
                    "httpGet": {"path": "/", "port": 8080, "scheme": "HTTP"}, "timeoutSeconds": 1,
                    "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
                },
            }],
        },
    });
    let pod: Pod = serde_json::from_value(value).expect("it is a pod");
    Arc::new(DesiredPod {
        pod_ref: PodRef::of(&pod),
        pod: Arc::new(pod),
        source: Source::File,
        rejected: None,
        made_anew: None,
    })
}

/// The pod of this number as the API server gives it to this node: not a static one.
pub fn api_pod(number: usize) -> Arc<DesiredPod> {
    let mut desired = (*pod(number)).clone();
    let metadata = &mut Arc::make_mut(&mut desired.pod).metadata;
    metadata.annotations = None;
    metadata.generation = Some(1);
    Arc::new(DesiredPod { source: Source::Api, ..desired })
}

/// Makes all pods, so that no measurement includes their making.
pub fn prepare(pods: usize) {
    assert!(pods <= PODS_MAX, "at most {PODS_MAX} pods");
    PODS.get_or_init(|| (0..PODS_MAX).map(pod).collect());
}

/// The first so many pods: one web server each, with a volume and a readiness probe. Always the same objects.
pub fn pods(count: usize) -> &'static [Arc<DesiredPod>] {
    prepare(count);
    &PODS.get().expect("they are prepared")[..count]
}

/// The fact that so many of them are desired.
pub fn desired(count: usize) -> DesiredPodsChanged {
    desired_of(pods(count))
}

/// PodManager's answer that so many of them are desired.
pub fn desired_pods(count: usize) -> DesiredPods {
    let pods = pods(count).iter().map(|pod| (pod.pod_ref.uid.clone(), pod.clone())).collect();
    DesiredPods { pods: Arc::new(pods), sources_ready: true }
}

/// The fact that these are desired, and no others: newer than every such fact before.
pub fn desired_of(pods: &[Arc<DesiredPod>]) -> DesiredPodsChanged {
    snapshot_of(pods, true)
}

/// The fact that these are desired while a source has not been heard, so that there may be others.
pub fn desired_so_far(pods: &[Arc<DesiredPod>]) -> DesiredPodsChanged {
    snapshot_of(pods, false)
}

fn snapshot_of(pods: &[Arc<DesiredPod>], complete: bool) -> DesiredPodsChanged {
    static WRITERS: AtomicU64 = AtomicU64::new(1);
    let pods = pods.iter().map(|pod| (pod.pod_ref.uid.clone(), pod.clone()));
    DesiredPodsChanged(pod_set::snapshot(WRITERS.fetch_add(1, Ordering::Relaxed), pods, complete))
}

fn second(number: i64) -> Timestamp {
    Timestamp::from_second(1_799_990_000 + number).expect("a second of this century is a timestamp")
}

/// A pod in the runtime after so many exits of its container: each instance has another ID.
pub fn runtime_pod(pod: &PodRef, exits: u32) -> RuntimePod {
    let sandbox: Arc<str> = Arc::from(format!("sandbox-{}", pod.uid));
    let container = RuntimeContainer {
        id: Arc::from(format!("container-{}-{exits}", pod.uid)),
        sandbox_id: sandbox.clone(),
        name: Arc::from("web"),
        attempt: exits,
        state: ContainerState::Running,
        created_at: second(i64::from(exits)),
        started_at: Some(second(i64::from(exits))),
        finished_at: None,
        exit_code: 0,
        reason: Arc::from(""),
        message: Arc::from(""),
        image: Arc::from(IMAGE),
        image_ref: Arc::from("sha256:0123456789abcdef0123456789abcdef"),
        hash: None,
        annotations: Arc::new(BTreeMap::new()),
        log_path: Arc::from(""),
        effective: None,
    };
    RuntimePod {
        pod: pod.clone(),
        sandboxes: vec![RuntimeSandbox {
            id: sandbox,
            attempt: 0,
            ready: true,
            created_at: second(0),
            ips: vec![Arc::from("10.0.0.1")],
            host_network: false,
            runtime_handler: Arc::from(""),
        }],
        containers: vec![container],
    }
}

/// What a look at a pod finds; `look` is its number, which grows.
pub fn seen(pod: &DesiredPod, look: u64) -> SeenPod {
    let exits = u32::try_from(look).unwrap_or(u32::MAX);
    SeenPod { state: Arc::new(runtime_pod(&pod.pod_ref, exits)), touch: look }
}

/// A look at this pod, as a Pleg tells it that has just begun: what earlier ones told of other pods holds.
pub fn observed(pod: &DesiredPod, look: u64) -> PodObserved {
    told([seen(pod, look)])
}

/// What a Pleg tells that has just begun and has looked at these pods.
pub fn told(seen: impl IntoIterator<Item = SeenPod>) -> PodObserved {
    let looks = Looks::default();
    seen.into_iter().for_each(|seen| drop(looks.at(seen)));
    looks.all()
}

/// What one writer of a set tells, which begins after all others.
#[derive(Clone)]
pub struct Writer<V>(Arc<Mutex<Journal<V>>>);

/// Pleg's.
pub type Looks = Writer<SeenPod>;
/// PodWorkerPool's.
pub type Reports = Writer<Arc<WorkerReport>>;

impl<V: Clone> Default for Writer<V> {
    fn default() -> Self {
        static WRITERS: AtomicU64 = AtomicU64::new(1);
        Self(Arc::new(Mutex::new(Journal::new(WRITERS.fetch_add(1, Ordering::Relaxed)))))
    }
}

impl<V> Writer<V> {
    /// The set is complete from the beginning.
    pub fn complete() -> Self
    where
        V: Clone,
    {
        let writer = Self::default();
        writer.journal().completed();
        writer
    }

    fn journal(&self) -> MutexGuard<'_, Journal<V>> {
        self.0.lock().expect("no test panics while it holds the lock")
    }
}

impl Looks {
    /// The fact of one look.
    pub fn at(&self, seen: SeenPod) -> PodObserved {
        PodObserved(self.journal().put(&seen.state.pod.uid.clone(), seen))
    }

    /// Everything that was seen.
    pub fn all(&self) -> PodObserved {
        PodObserved(self.journal().snapshot())
    }
}

impl Reports {
    /// The fact that a pod's worker is in this state; `released` once it has released everything.
    pub fn of(&self, pod: &DesiredPod, state: WorkerState, released: bool) -> WorkerReported {
        let report = WorkerReport { released, deleted: released, ..report(&pod.pod_ref, state) };
        WorkerReported(self.journal().put(&pod.pod_ref.uid, Arc::new(report)))
    }

    /// Every worker's.
    pub fn all(&self) -> WorkerReported {
        WorkerReported(self.journal().snapshot())
    }
}

/// A healthy runtime.
pub fn runtime_well() -> Arc<RuntimeHealth> {
    Arc::new(RuntimeHealth {
        name: Arc::from("containerd"),
        version: Arc::from("2.3.4"),
        ready: true,
        network_ready: true,
        answered: true,
        events: true,
        supplemental_groups_policy: true,
        ..RuntimeHealth::default()
    })
}

/// The report of a worker in this state that has released nothing.
pub fn report(pod: &PodRef, state: WorkerState) -> WorkerReport {
    WorkerReport {
        pod: pod.clone(),
        state,
        last_look: 0,
        released: false,
        starting: Arc::default(),
        replaced: Arc::default(),
        waiting: Arc::default(),
        failed: None,
        deleted: false,
        made_anew: None,
        pulled_ms: 0,
        blocked_on: None,
    }
}

/// The report of a pod's worker, as a pool tells it that has just begun: what earlier ones told of other pods holds.
pub fn reported(pod: &DesiredPod, state: WorkerState, released: bool) -> WorkerReported {
    let reports = Reports::default();
    drop(reports.of(pod, state, released));
    reports.all()
}
