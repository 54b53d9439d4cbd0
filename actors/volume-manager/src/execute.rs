//! Carries out plans through the bridge, volume by volume: one that fails or hangs is its own trouble.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use bridge_node::mounts::MountPoint;
use futures::FutureExt;
use k8s_openapi::api::core::v1::{Pod, Volume};
use messages::PodUid;
use messages::volume_manager::VolumeError;
use pod_rules::reasons::no_pod_directories;
use tokio::time::Instant;

use crate::backends::Backends;
use crate::devices::Labelled;
use crate::kinds::{self, Mounted, SetUp, VolumeKind, Wanted, few_at_once};
use crate::metrics::{Operation, Timed};
use crate::resolve::Claims;
use crate::selinux::{Asked, Judged, What, Wish};
use crate::source::{self, Persistent, Source, Uses};
use crate::steps::{SetUpError, VolumePlan, in_time};
use crate::{checks, expand, memory, notices, plan, resolve};

/// The result of mounting a pod's volumes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MountOutcome {
    /// Paths on the host of the volumes that are ready, by the volume's name.
    pub mounted: BTreeMap<String, String>,
    /// The plugins of the ready volumes.
    pub plugins: Vec<String>,
    /// The groups of the ready PersistentVolumes.
    pub groups: BTreeSet<i64>,
    /// The errors of the volumes that are not ready, each with the volume's name; an empty name stands for
    /// the pod's directory.
    pub errors: Vec<VolumeError>,
    /// The errors of the volumes of which it is not known what they are made of, each with the volume's name: their claims
    /// are not bound, or cannot be read.
    pub unprocessed: Vec<VolumeError>,
    /// The earlier errors of the volumes that were not tried because their delay is not over, by name.
    pub held: BTreeMap<String, VolumeError>,
    /// The errors of volumes of objects that are mounted from before and could not be refreshed.
    pub stale: Vec<VolumeError>,
    /// How upstream names what failed, by the volume's name.
    pub failures: BTreeMap<String, Failure>,
    /// The volumes that keep the SELinux labels of their files, by name.
    pub keep_labels: BTreeSet<String>,
    /// What was judged of the volumes' SELinux labels, for the metrics.
    pub judged: Vec<Judged>,
    /// Whether the node takes no more volumes of a driver that a volume is of: then the pod cannot run here (row 10.28).
    pub exhausted: bool,
    /// The operations on each volume, for the metrics.
    pub timed: Vec<Timed>,
}

/// How upstream names what failed of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The operation; `None` if no event is recorded.
    pub operation: Option<&'static str>,
    /// The volume's name in the pod spec, or that of its PersistentVolume.
    pub spec_name: String,
}

impl MountOutcome {
    /// The errors of all volumes that were tried and are not ready.
    pub fn failed(&self) -> impl Iterator<Item = &VolumeError> {
        self.errors.iter().chain(&self.unprocessed)
    }
}

pub(crate) fn failed(volume: &str) -> impl Fn(&dyn std::fmt::Display) -> VolumeError {
    let volume = volume.to_owned();
    move |error| VolumeError { volume: volume.clone(), message: error.to_string() }
}

/// Mounts every volume that a container of the pod uses, except those in `held`.
pub async fn mount(
    backends: Backends,
    uid: PodUid,
    pod: Arc<Pod>,
    held: BTreeMap<String, VolumeError>,
) -> MountOutcome {
    if let Some(of_pod) = held.get("") {
        let held = BTreeMap::from([(String::new(), of_pod.clone())]);
        return MountOutcome { held, ..MountOutcome::default() };
    }
    let broken = |error: &dyn std::fmt::Display| MountOutcome {
        errors: vec![failed("")(&no_pod_directories(error))],
        ..MountOutcome::default()
    };
    let pod_dir = match backends.pod_dirs.ensure_pod_dirs(uid.as_str()).await {
        Ok(pod_dir) => pod_dir,
        Err(error) => return broken(&error),
    };
    let mounts = match backends.mounts.list_below(&pod_dir).await {
        Ok(mounts) => mounts,
        Err(error) => return broken(&error),
    };
    if let Some(spec) = &pod.spec
        && let Err(error) = backends.have_room(plan::mounts_of(spec), mounts.len()).await
    {
        return MountOutcome { errors: vec![failed("")(&error)], ..MountOutcome::default() };
    }
    let mut outcome = MountOutcome { held, ..MountOutcome::default() };
    let of_pod = OfPod::new(&backends, &pod, &uid, &mounts);
    let mut remote = Vec::new();
    for (volume, uses) in used(&pod) {
        if outcome.held.contains_key(&volume.name) {
            continue;
        }
        match of_pod.prepared(volume, uses, &mut outcome).await {
            Some(prepared) if prepared.kind.is_remote() => remote.push(prepared),
            Some(prepared) => of_pod.set_up(prepared).await.noted_in(&mut outcome),
            None => {}
        }
    }
    for done in few_at_once(remote.into_iter().map(|prepared| of_pod.set_up(prepared).boxed())).await {
        done.noted_in(&mut outcome);
    }
    outcome
}

/// A volume that can be set up.
struct Prepared<'v> {
    name: &'v str,
    source: Source,
    kind: &'static dyn VolumeKind,
    plan: VolumePlan,
    /// The SELinux label that it is mounted with.
    label: Option<String>,
}

/// What became of a volume.
struct Done<'v> {
    prepared: Prepared<'v>,
    ended: Result<SetUp, SetUpError>,
    took: Duration,
    /// The volume's files keep their SELinux labels.
    keeps_labels: bool,
}

impl Done<'_> {
    fn noted_in(self, outcome: &mut MountOutcome) {
        let Self { prepared: Prepared { name, source, kind, plan, label }, ended, took, keeps_labels } = self;
        let plugin = kind.label(&source);
        let operation = if source.is_block() { Operation::Map } else { Operation::Mount };
        outcome.timed.push(Timed { operation, plugin: plugin.clone(), ok: ended.is_ok(), took });
        let mut note = |error: &SetUpError| {
            let spec_name = source.spec_name().to_owned();
            let failure = Failure { operation: error.operation(), spec_name };
            outcome.failures.insert(name.to_owned(), failure);
            failed(name)(error)
        };
        match ended {
            Ok(set_up) => {
                if let SetUp::Stale(error) = set_up {
                    let error = note(&error);
                    outcome.stale.push(error);
                }
                outcome.mounted.insert(name.to_owned(), plan.host_path.to_string_lossy().into_owned());
                outcome.plugins.push(plugin);
                if label.is_some() || keeps_labels {
                    outcome.keep_labels.insert(name.to_owned());
                }
                outcome.groups.extend(source.persistent().and_then(Persistent::group));
            }
            Err(error) => {
                outcome.exhausted |= matches!(error, SetUpError::Exhausted(_));
                let error = note(&error);
                outcome.errors.push(error);
            }
        }
    }
}

/// The volumes that containers of the pod use, in the pod spec's order.
fn used(pod: &Pod) -> Vec<(&Volume, Uses)> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let uses = plan::uses(spec);
    let volumes = spec.volumes.iter().flatten();
    volumes.filter_map(|volume| Some((volume, *uses.get(volume.name.as_str())?))).collect()
}

/// A pod whose volumes are worked on.
struct OfPod<'a> {
    backends: &'a Backends,
    pod: &'a Arc<Pod>,
    uid: &'a PodUid,
    /// The mounts below the pod's directory.
    mounts: Mounted<'a>,
    memory_bytes_max: u64,
    room_for_files: AtomicUsize,
    claims: Claims,
}

impl<'a> OfPod<'a> {
    fn new(backends: &'a Backends, pod: &'a Arc<Pod>, uid: &'a PodUid, mounts: &'a [MountPoint]) -> Self {
        Self {
            backends,
            pod,
            uid,
            mounts: Mounted::of(mounts),
            memory_bytes_max: memory::bytes_max(pod, backends.node().allocatable_memory_bytes),
            room_for_files: kinds::POD_BYTES_MAX.into(),
            claims: Claims::default(),
        }
    }

    fn wanted<'w>(&'w self, name: &'w str, source: &'w Source, label: Option<&'w str>) -> Wanted<'w> {
        let Self { backends, pod, uid, mounts, memory_bytes_max, room_for_files, .. } = self;
        let (node, memory_bytes_max) = (backends.node(), *memory_bytes_max);
        Wanted { name, source, pod, uid, node, mounts, memory_bytes_max, label, room_for_files }
    }

    /// The SELinux label of the volume. `Err` has what is wrong with it; what was judged of it is added in either case.
    async fn wish(
        &self,
        name: &str,
        source: &Source,
        kind: &'static dyn VolumeKind,
        judged: &mut Vec<Judged>,
    ) -> Result<Wish, String> {
        let Some(selinux) = &self.backends.selinux else { return Ok(Wish::default()) };
        let plugin = kind.label(source);
        let asked = Asked { selinux, pod: self.pod, name, source, plugin: &plugin };
        let label = match asked.of_containers() {
            Ok(label) => label,
            Err((text, of_pod)) => {
                let is_error = of_pod.is_error;
                judged.push(of_pod);
                return if is_error { Err(text) } else { Ok(Wish::default()) };
            }
        };
        let label = match label {
            // An inline volume is never mounted with one.
            Some(label)
                if source.persistent().is_some() && kind.takes_label(self.backends, source).await? =>
            {
                label
            }
            _ => String::new(),
        };
        Ok(Wish { label, is_mounted: asked.is_eligible() })
    }

    /// The SELinux label of a volume that is about to be set up; pods cannot have one volume with several.
    async fn label(
        &self,
        name: &str,
        source: &Source,
        kind: &'static dyn VolumeKind,
        judged: &mut Vec<Judged>,
    ) -> Result<Option<String>, String> {
        let Some(selinux) = &self.backends.selinux else { return Ok(None) };
        let wish = self.wish(name, source, kind, judged).await?;
        let plugin = kind.label(source);
        let asked = Asked { selinux, pod: self.pod, name, source, plugin: &plugin };
        if source.persistent().is_none() {
            // No other pod has it.
            return Ok(None);
        }
        let volume = format!("{plugin}/{}", source.spec_name());
        // A pod that has the volume keeps it: whatever waits for another label waits for this pod's end.
        let plan = kind.plan(&self.wanted(name, source, None));
        let has_it = plan.is_ok_and(|plan| self.mounts.has(&plan.host_path));
        let yields = has_it || !wish.is_mounted;
        match self.backends.devices.want_label(&volume, self.uid, &wish.label, yields) {
            Labelled::First if !wish.label.is_empty() => judged.push(asked.judged(What::Admitted)),
            Labelled::First | Labelled::Agreed => {}
            Labelled::Otherwise(_) if has_it => {}
            Labelled::Otherwise(found) => {
                let (text, conflict) = asked.conflict(&found, &wish.label);
                let is_error = conflict.is_error;
                judged.push(conflict);
                if is_error {
                    return Err(text);
                }
            }
        }
        Ok(wish.effective().map(str::to_owned))
    }

    /// The volume with its kind and plan; `None` if it cannot be had, which the outcome says then.
    async fn prepared<'v>(
        &self,
        volume: &'v Volume,
        uses: Uses,
        outcome: &mut MountOutcome,
    ) -> Option<Prepared<'v>> {
        let name = &volume.name;
        let source = match resolve::resolve(self.backends, &self.claims, self.pod, volume, uses).await {
            Ok(source) => source,
            Err(error) => {
                outcome.unprocessed.push(failed(name)(&error));
                return None;
            }
        };
        if let Err(error) = kinds::serving(&source).and_then(|kind| kinds::has_form(kind, &source)) {
            let failure = Failure { operation: None, spec_name: source.spec_name().to_owned() };
            outcome.failures.insert(name.clone(), failure);
            outcome.errors.push(failed(name)(&error));
            return None;
        }
        let kind = kinds::serving(&source).ok()?;
        let label = match self.label(name, &source, kind, &mut outcome.judged).await {
            Ok(label) => label,
            Err(error) => {
                outcome.unprocessed.push(failed(name)(&error));
                return None;
            }
        };
        let plan = kind.plan(&self.wanted(name, &source, label.as_deref()));
        match plan {
            Ok(plan) => Some(Prepared { name, source, kind, plan, label }),
            Err(error) => {
                outcome.errors.push(failed(name)(&error));
                None
            }
        }
    }

    async fn set_up<'v>(&self, prepared: Prepared<'v>) -> Done<'v> {
        let began = Instant::now();
        let Prepared { name, source, kind, plan, label } = &prepared;
        let wanted = self.wanted(name, source, label.as_deref());
        let set_up = async {
            checks::check(self.backends, *kind, &wanted).await?;
            let ready = kind.set_up(self.backends, &wanted, plan).await?;
            expand::set_up(self.backends, *kind, &wanted, plan).await.map(|()| ready)
        };
        let set_up = in_time(kind.within(), set_up);
        let mut ended = notices::watched(self.backends, self.pod, &plan.host_path, set_up).await;
        if source.is_block() {
            ended = ended.map_err(SetUpError::of_block_device);
        }
        let keeps_labels = ended.is_ok() && self.keeps_labels(&prepared).await;
        Done { prepared, ended, took: began.elapsed(), keeps_labels }
    }

    /// Whether the volume's files keep the SELinux labels that they have, and a runtime is not to change them.
    async fn keeps_labels(&self, prepared: &Prepared<'_>) -> bool {
        let Prepared { source, kind, plan, .. } = prepared;
        if kind.keeps_labels_of(self.backends, source) || source.is_read_only() {
            return true;
        }
        if self.backends.selinux.is_none() || !kind.may_lack_labels() || source.is_block() {
            return false;
        }
        let mounts = self.backends.mounts.list_below(&plan.host_path).await.unwrap_or_default();
        let shown = mounts.iter().rfind(|mount| mount.path == plan.host_path);
        let takes = |mount: &MountPoint| {
            mount.options.iter().chain(&mount.fs_options).any(|option| option == "seclabel")
        };
        !shown.is_some_and(takes)
    }

    /// Shows what has changed in a volume that was ready before; `None` for volumes that never change by themselves.
    async fn refresh(
        &self,
        volume: &Volume,
        uses: Uses,
        with_claims: bool,
        refreshed: &mut Refreshed,
    ) -> Option<Result<(), SetUpError>> {
        let source = match source::claim_of(volume, self.pod) {
            None => {
                let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
                source::migrated(Source::Inline(Box::new(volume.clone())), namespace).ok()?
            }
            // Only few volumes behind claims change, and to find out about the others costs calls to the server.
            Some(claim) if !with_claims && !self.may_grow(volume, &claim.name).await => return None,
            Some(_) => match resolve::resolve(self.backends, &self.claims, self.pod, volume, uses).await {
                Ok(source) => source,
                Err(error) => return Some(Err(SetUpError::Refused(error))),
            },
        };
        let kind = kinds::serving(&source).ok()?;
        if !kind.refreshes() && source.persistent().is_none() {
            return None;
        }
        let wish = self.wish(&volume.name, &source, kind, &mut Vec::new()).await.unwrap_or_default();
        let wanted = self.wanted(&volume.name, &source, wish.effective());
        let plan = kind.plan(&wanted).ok()?;
        refreshed.timed.extend(expand::in_use(self.backends, kind, &wanted, &plan).await);
        if source.persistent().is_some() {
            let path = plan.host_path.to_string_lossy().into_owned();
            refreshed.claimed.insert(volume.name.clone(), path);
        }
        if source.persistent().is_some() && !with_claims {
            return None;
        }
        let ended = in_time(kind.within(), kind.refresh(self.backends, &wanted, &plan)?).await;
        let ended = if source.is_block() { ended.map_err(SetUpError::of_block_device) } else { ended };
        if let Err(error) = &ended {
            let failure = Failure { operation: error.operation(), spec_name: source.spec_name().to_owned() };
            refreshed.failures.insert(volume.name.clone(), failure);
        }
        Some(ended)
    }

    /// Whether the volume behind the claim may have to grow, by the claim alone.
    async fn may_grow(&self, volume: &Volume, claim: &str) -> bool {
        let Some(objects) = &self.backends.volume_objects else { return false };
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        match self.claims.claim(objects.as_ref(), namespace, claim).await {
            Ok(claim) => expand::is_hinted(self.backends, self.uid, &claim),
            Err(error) => {
                tracing::debug!(%error, volume = volume.name, "It is not known whether a volume is to grow");
                false
            }
        }
    }
}

/// The result of refreshing a pod's volumes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Refreshed {
    /// The errors, by volume.
    pub errors: Vec<VolumeError>,
    /// How upstream names what failed, by the volume's name.
    pub failures: BTreeMap<String, Failure>,
    /// The paths on the host of the volumes behind claims that were looked at, by the volume's name.
    pub claimed: BTreeMap<String, String>,
    /// The operations on each volume, for the metrics.
    pub timed: Vec<Timed>,
}

/// Refreshes the files of the pod's volumes that follow objects. Only volumes that have shown files before are
/// touched, so that nothing is made for a pod whose volumes are undone or not mounted yet.
pub async fn refresh(backends: Backends, uid: PodUid, pod: Arc<Pod>, with_claims: bool) -> Refreshed {
    let mut refreshed = Refreshed::default();
    let Ok(pod_dir) = backends.pod_dirs.layout().pod(uid.as_str()) else { return refreshed };
    // Without the list of mounts a tmpfs could be mounted on top of the existing one.
    let Ok(mounts) = backends.mounts.list_below(&pod_dir).await else { return refreshed };
    let of_pod = OfPod::new(&backends, &pod, &uid, &mounts);
    for (volume, uses) in used(&pod) {
        if let Some(Err(error)) = of_pod.refresh(volume, uses, with_claims, &mut refreshed).await {
            refreshed.errors.push(failed(&volume.name)(&error));
        }
    }
    refreshed
}
