//! Makes volumes larger on the node after their controller (row 10.25): when they are set up, and while pods use them. What
//! follows from the claim is decided in [`expansion`](crate::expansion).

use std::sync::Arc;
use std::time::Duration;

use bridge_kube::{ClaimStatuses, Patch};
use bridge_pace::Backoff;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use messages::PodUid;
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use pod_spec::quantity::Quantity;
use tokio::time::Instant;

use crate::backends::Backends;
use crate::devices::{Known, Pause};
use crate::expansion::{self, Decision, Expansion, When};
use crate::kinds::{ExpandError, VolumeKind, Wanted};
use crate::metrics::{Operation, Timed};
use crate::notices;
use crate::source::Persistent;
use crate::steps::{SetUpError, VolumePlan};

const SUCCEEDED: &str = "FileSystemResizeSuccessful";
const READ_ONLY: &str = "FileSystemResizeFailed";
const FAILED: &str = "VolumeResizeFailed";

/// The delays after failures while a pod runs: as those of mounts.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(500), Duration::from_secs(122));

/// A volume that is looked at.
struct Job<'a> {
    backends: &'a Backends,
    kind: &'a dyn VolumeKind,
    wanted: &'a Wanted<'a>,
    plan: &'a VolumePlan,
    persistent: &'a Persistent,
    statuses: Arc<dyn ClaimStatuses>,
}

/// Makes a volume that has just been set up as large as its controller has made it; the pod waits for that.
///
/// # Errors
/// Upstream's text: the volume has not the size that was asked for, and its pod is not started.
pub(crate) async fn set_up(
    backends: &Backends,
    kind: &dyn VolumeKind,
    wanted: &Wanted<'_>,
    plan: &VolumePlan,
) -> Result<(), SetUpError> {
    let Some(job) = Job::of(backends, kind, wanted, plan) else { return Ok(()) };
    let expanded = async {
        if !job.persistent.has_grown() {
            return Ok(());
        }
        let claim = job
            .claim()
            .await
            .map_err(|error| format!("mountVolume.NodeExpandVolume get PVC failed : {error}"))?;
        job.look(&claim, When::SetUp).await.unwrap_or(Ok(()))
    };
    let operation = if wanted.source.is_block() {
        "MapVolume.MarkVolumeAsMounted failed while expanding volume"
    } else {
        "MountVolume.Setup failed while expanding volume"
    };
    expanded.await.map_err(|why| SetUpError::Unfit { operation, why })
}

/// Makes a volume that a running pod has as large as its controller has made it. A failure is told, and tried again. Returns
/// the operation, for the metrics, if there was something to do.
pub(crate) async fn in_use(
    backends: &Backends,
    kind: &dyn VolumeKind,
    wanted: &Wanted<'_>,
    plan: &VolumePlan,
) -> Option<Timed> {
    let job = Job::of(backends, kind, wanted, plan)?;
    let name = job.persistent.name();
    if backends.devices.pause(wanted.uid, name).is_some_and(|pause| pause.until > Instant::now()) {
        return None;
    }
    let began = Instant::now();
    // The claim is the one that the look began with.
    let looked = job.look(&job.persistent.claim, When::InUse).await;
    let timed = looked.as_ref().map(|done| Timed {
        operation: Operation::Resize,
        plugin: kind.label(wanted.source),
        ok: done.is_ok(),
        took: began.elapsed(),
    });
    let Some(Err(error)) = looked else {
        backends.devices.set_pause(wanted.uid, name, None);
        return timed;
    };
    let before = backends.devices.pause(wanted.uid, name);
    let delay = before.map_or(BACKOFF.first(), |pause| BACKOFF.following(pause.delay));
    backends.devices.set_pause(wanted.uid, name, Some(Pause { delay, until: Instant::now() + delay }));
    let text = format!("NodeExpandVolume.NodeExpandVolume failed for volume {name:?} : {error}");
    notices::warn(&backends.events, wanted.pod, FAILED, text);
    timed
}

/// Whether the claim says that the volume behind it may have to grow.
pub(crate) fn is_hinted(backends: &Backends, uid: &PodUid, claim: &PersistentVolumeClaim) -> bool {
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
    let known = expansion::first_seen(backends.devices.expansion(uid, name), claim);
    backends.devices.set_expansion(uid, name, known.clone());
    expansion::is_hinted(claim, &known)
}

impl<'a> Job<'a> {
    /// The volume, if the node may have to make it larger.
    fn of(
        backends: &'a Backends,
        kind: &'a dyn VolumeKind,
        wanted: &'a Wanted<'a>,
        plan: &'a VolumePlan,
    ) -> Option<Self> {
        let persistent = wanted.source.persistent().filter(|_| kind.expands())?;
        let statuses = backends.claim_statuses.clone()?;
        Some(Self { backends, kind, wanted, plan, persistent, statuses })
    }

    fn place(&self) -> (&str, &str) {
        let metadata = &self.persistent.claim.metadata;
        (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
    }

    async fn claim(&self) -> Result<PersistentVolumeClaim, String> {
        let (namespace, name) = self.place();
        let Some(objects) = &self.backends.volume_objects else {
            return Err("this node has no API server to read it from".to_owned());
        };
        objects.claim(namespace, name).await.map_err(|error| error.to_string())
    }

    /// Makes the volume larger if its claim asks for that; `None`: nothing is to be done.
    async fn look(&self, claim: &PersistentVolumeClaim, when: When) -> Option<Result<(), String>> {
        let Self { backends, wanted, persistent, .. } = self;
        let devices = &backends.devices;
        let name = persistent.name();
        let known = expansion::first_seen(devices.expansion(wanted.uid, name), claim);
        devices.set_expansion(wanted.uid, name, known.clone());
        match expansion::decide(claim, &persistent.volume, &known, persistent.read_only, when) {
            Decision::Nothing => None,
            Decision::ReadOnly => {
                let text = "MountVolume.NodeExpandVolume failed for volume";
                let text = format!("{text} {name:?} requested read-only file system");
                self.tell(claim, EventType::Warning, READ_ONLY, &text);
                None
            }
            Decision::Done(size) => {
                self.has_size(size);
                None
            }
            Decision::Expand(asked) => Some(self.expand(claim.clone(), &asked).await),
        }
    }

    fn has_size(&self, size: Quantity) {
        let (devices, uid, name) = (&self.backends.devices, self.wanted.uid, self.persistent.name());
        let known = devices.expansion(uid, name);
        devices.set_expansion(uid, name, Known { size: Some(size), failed: false, ..known });
    }

    async fn expand(&self, mut claim: PersistentVolumeClaim, asked: &Expansion) -> Result<(), String> {
        if asked.told_in_steps && !asked.already {
            claim = self.patched(Patch::Merge(expansion::begun(&claim))).await?;
        }
        let grown = self.kind.expand(self.backends, self.wanted, self.plan, asked.bytes).await;
        match grown {
            Ok(false) => return Ok(()),
            Ok(true) => {}
            Err(error) => return self.failed(&claim, asked, &error).await,
        }
        let name = self.persistent.name();
        let text = "MountVolume.NodeExpandVolume succeeded for volume";
        let text = format!("{text} {name:?} {}", node_of(self.wanted.pod));
        self.tell(&claim, EventType::Normal, SUCCEEDED, &text);
        if !asked.already {
            let told = self.patched(Patch::Merge(expansion::finished(&claim, &asked.to))).await;
            // What the claim does not tell is not done: the driver is asked again, which changes nothing, and the claim is told.
            told.map_err(|error| format!("mountVolume.NodeExpandVolume update pvc status failed: {error}"))?;
        }
        if let Ok(size) = Quantity::parse(&asked.to.0) {
            self.has_size(size);
        }
        Ok(())
    }

    async fn failed(
        &self,
        claim: &PersistentVolumeClaim,
        asked: &Expansion,
        error: &ExpandError,
    ) -> Result<(), String> {
        let is_unable = matches!(error, ExpandError::NotSupported(_));
        if is_unable && (asked.already || !asked.told_in_steps) {
            // The controller has done it all.
            if let Ok(size) = Quantity::parse(&asked.to.0) {
                self.has_size(size);
            }
            return Ok(());
        }
        let (devices, uid, name) = (&self.backends.devices, self.wanted.uid, self.persistent.name());
        let mut known = devices.expansion(uid, name);
        let is_final = !matches!(error, ExpandError::Transient(_) | ExpandError::Uncertain(_));
        known.failed |= is_final;
        known.in_use |= matches!(error, ExpandError::InUse(_));
        devices.set_expansion(uid, name, known);
        if asked.told_in_steps && !matches!(error, ExpandError::Transient(_)) {
            let for_good = matches!(error, ExpandError::Infeasible(_)) || (is_final && asked.gives_up);
            let now = self.backends.clock.now().to_string();
            if let Some(patch) = expansion::failed(claim, error, for_good, &now)
                && let Err(untold) = self.patched(Patch::Strategic(patch)).await
            {
                tracing::warn!(
                    error = untold,
                    volume = name,
                    "A claim does not tell that its volume cannot grow"
                );
            }
        }
        if matches!(error, ExpandError::InUse(_)) {
            // Neither holds it up its pod, nor is it asked for again while the pod has it.
            tracing::warn!(%error, volume = name, "A volume cannot grow while it is in use");
            return Ok(());
        }
        Err(error.to_string())
    }

    async fn patched(&self, patch: Patch) -> Result<PersistentVolumeClaim, String> {
        let (namespace, name) = self.place();
        let patched = self.statuses.patch_status(namespace, name, &patch).await;
        patched.map_err(|error| format!("patchPVCStatus failed to patch PVC {name:?}: {error}"))
    }

    /// Tells of the pod and of the claim.
    fn tell(&self, claim: &PersistentVolumeClaim, event_type: EventType, reason: &'static str, text: &str) {
        let events = &self.backends.events;
        notices::record(events, self.wanted.pod, event_type, reason, text.to_owned());
        let part = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
        let object = EventObject::Claim {
            namespace: part(&claim.metadata.namespace),
            name: part(&claim.metadata.name),
            uid: part(&claim.metadata.uid),
        };
        events.tell_or_count(RecordEvent { object, event_type, reason: reason.into(), message: text.into() });
    }
}

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}
