//! Brings a volume of a driver to a pod.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bridge_csi::rules::access::Access;
use bridge_csi::rules::attachment::{self, Attachment};
use bridge_csi::rules::capabilities::Capabilities;
use bridge_csi::rules::context::{self, PodFacts, Token};
use bridge_csi::rules::paths::notes_of;
use bridge_csi::rules::plan::{self, Facts, Kind, Known, Step};
use bridge_csi::rules::policy::{DriverPolicy, Grouped, kubelet_sets_group};
use bridge_csi::rules::requests::{self, Publishing, SecretValues, Staging};
use bridge_csi::rules::says;
use bridge_csi::rules::vol_data::{Noted, VolData};
use bridge_csi::{CsiError, CsiErrorKind, Volume};
use bridge_kube::VolumeObjects;
use k8s_openapi::api::core::v1::Pod;
use messages::object_cache::GetToken;
use messages::{PodRef, PodUid};

use super::super::block::{self, Places};
use super::super::is_free_for;
use super::device::Device;
use super::notes::Told;
use super::volume::{CsiVolume, SecretName};
use super::{SetUp, Wanted, label, notes, paths};
use crate::backends::Backends;
use crate::devices::Turn;
use crate::drivers;
use crate::fs_group;
use crate::steps::{self, SetUpError};

/// How long the controller may take to attach a volume before its pod is told so; then the wait goes on after a back-off.
const ATTACHED_WITHIN: Duration = Duration::from_secs(120);
/// How long ObjectCache may take for a token.
const TOKEN_WITHIN: Duration = Duration::from_secs(60);

/// A volume on its way to a pod.
pub(super) struct Job<'a> {
    backends: &'a Backends,
    wanted: &'a Wanted<'a>,
    pub volume: CsiVolume,
    pub unique_name: String,
    /// Where the driver shows the volume to the pod.
    pub target: PathBuf,
    /// Where the volume is staged.
    pub device_mount: PathBuf,
    /// The note on the staged volume, and that on the pod's. All pods of a block device share one.
    notes: (PathBuf, PathBuf),
    /// Where the volume is, if pods have it as a block device.
    device: Option<(Device, Places)>,
    /// The directory of the note that the pod's group has been given the volume.
    marker: PathBuf,
    group: Option<u32>,
}

/// What is known of the driver before a volume is touched.
struct Driver {
    policy: DriverPolicy,
    able: Capabilities,
    /// What the VolumeAttachment tells.
    context: BTreeMap<String, String>,
}

/// Brings a volume to a pod, from wherever things are.
pub(super) async fn set_up(
    backends: &Backends,
    wanted: &Wanted<'_>,
    target: &Path,
) -> Result<SetUp, SetUpError> {
    let job = Job::of(backends, wanted, target)?;
    if job.is_done().await? {
        if !job.volume.is_inline() {
            backends.devices.join(&job.unique_name, wanted.uid);
        }
        return Ok(SetUp::Ready);
    }
    job.carry_out(false).await?;
    Ok(SetUp::Ready)
}

/// Publishes a volume anew if its driver asks for that (`requiresRepublish`): its tokens may be about to expire.
pub(super) async fn publish_anew(
    backends: &Backends,
    wanted: &Wanted<'_>,
    target: &Path,
) -> Result<(), SetUpError> {
    let job = Job::of(backends, wanted, target)?;
    // Nothing is made for a pod whose volumes are undone or not mounted yet.
    if job.published().await? != Known::Yes {
        return Ok(());
    }
    if backends.devices.renews(wanted.uid, &job.unique_name).is_none() {
        // An earlier run has set it up, and its pod does not ask for it again.
        let policy = job.policy().await?;
        backends.devices.set_renews(wanted.uid, &job.unique_name, policy.requires_republish);
    }
    if backends.devices.renews(wanted.uid, &job.unique_name) == Some(true) {
        job.carry_out(true).await?;
    }
    Ok(())
}

impl<'a> Job<'a> {
    pub fn of(backends: &'a Backends, wanted: &'a Wanted<'a>, target: &'a Path) -> Result<Self, SetUpError> {
        let refused = |error: String| SetUpError::Refused(error);
        let volume =
            CsiVolume::of(wanted.source, wanted.pod).ok_or_else(|| refused("no volume".to_owned()))?;
        let layout = wanted.node.layout;
        let (name, uid) = (wanted.source.spec_name(), wanted.uid.as_str());
        let (target, device_mount, notes, device) = if volume.is_block {
            let device = Device::of(wanted.node, name)?;
            let places = device.places(wanted.node, uid, name)?;
            let notes = (device.note.clone(), device.note.clone());
            (device.publish_dir.join(uid), device.staging.clone(), notes, Some((device, places)))
        } else {
            let device_mount = paths(wanted.node).device_mount(&volume.driver, &volume.handle);
            let device_mount = device_mount.map_err(|error| refused(error.to_string()))?;
            let notes = (notes_of(&device_mount), notes_of(target));
            (target.to_path_buf(), device_mount, notes, None)
        };
        let marker = layout.pod_plugin(wanted.uid.as_str(), super::CSI, &name.replace('/', "~"));
        Ok(Self {
            backends,
            wanted,
            unique_name: volume.unique_name(),
            volume,
            target,
            device_mount,
            notes,
            marker: marker.map_err(|error| refused(error.to_string()))?,
            // A device has no files.
            group: if device.is_some() { None } else { fs_group::of_pod(wanted.pod) },
            device,
        })
    }

    /// Carries out what is missing; `anew`: a volume that is published is published again, if its driver asks for that.
    async fn carry_out(&self, anew: bool) -> Result<(), SetUpError> {
        let driver = self.driver().await?;
        let renews = driver.policy.requires_republish;
        self.backends.devices.set_renews(self.wanted.uid, &self.unique_name, renews);
        if anew && !renews {
            return Ok(());
        }
        // What an earlier try has asked of the driver may be under way still: for this pod, which holds up no other, and then
        // for all pods.
        let (volume, target) = (Volume::new(&self.volume.driver, &self.volume.handle), text(&self.target));
        self.backends.csi.volumes.settled(&volume, Some(&target)).await;
        let turn = self.join(anew).await?;
        self.backends.csi.volumes.settled(&volume, Some(&target)).await;
        self.steps(&driver, turn, anew).await
    }

    /// Waits for the turn to work on what the volume's pods share. The pod uses the volume from then on.
    async fn join(&self, anew: bool) -> Result<Turn, SetUpError> {
        let turn = self.backends.devices.turn(&self.unique_name).await;
        if self.volume.is_inline() {
            return Ok(turn);
        }
        is_free_for(self.backends, self.wanted, &self.unique_name)?;
        if !anew && self.device.is_none() {
            label::is_alike(self.backends, self.wanted, &self.unique_name, &self.notes.0).await?;
        }
        turn.joined_by(self.wanted.uid);
        Ok(turn)
    }

    /// How the volume is used by the pod.
    fn access(&self) -> Access {
        label::with(self.volume.access(self.group.map(i64::from)), self.wanted.label)
    }

    /// Whether the volume is shown to the pod and given to its group.
    async fn is_done(&self) -> Result<bool, SetUpError> {
        if self.published().await? != Known::Yes {
            return Ok(false);
        }
        match self.group {
            Some(_) => Ok(self.backends.mounts.is_ready(&self.target, &self.marker).await?),
            None => Ok(true),
        }
    }

    pub async fn published(&self) -> Result<Known, SetUpError> {
        match notes::told(self.backends, &self.notes.1).await? {
            Told::Nothing => return Ok(Known::No),
            // The note of a device is about its stage: the pod's link and map tell of the publish.
            Told::Doubt if self.device.is_none() => return Ok(Known::Maybe),
            Told::Doubt | Told::Done => {}
        }
        let mounts = self.backends.mounts.as_ref();
        let shown = match &self.device {
            Some((_, places)) => mounts.is_device_mapped(&places.map, &places.link).await?,
            None => mounts.is_mount_point(&self.target).await?,
        };
        Ok(if shown { Known::Yes } else { Known::Maybe })
    }

    async fn staged(&self, turn: &Turn) -> Result<Known, SetUpError> {
        match notes::told(self.backends, &self.notes.0).await? {
            Told::Nothing => return Ok(Known::No),
            Told::Doubt => return Ok(Known::Maybe),
            Told::Done => {}
        }
        let there = turn.is_staged()
            || self.backends.mounts.is_mount_point(&self.device_mount).await?
            // Some drivers mount nothing when they stage.
            || notes::is_shown_to_a_pod(self.backends, &self.unique_name).await?;
        Ok(if there { Known::Yes } else { Known::Maybe })
    }

    fn objects(&self) -> Result<&dyn VolumeObjects, String> {
        let objects = self.backends.volume_objects.as_deref();
        objects.ok_or_else(|| "this node has no API server to read it from".to_owned())
    }

    /// What the driver says of itself, and that the volume is attached where it has to be.
    async fn driver(&self) -> Result<Driver, SetUpError> {
        let inline = self.volume.is_inline();
        // An inline volume's driver is looked for first, as upstream does.
        let early = if inline { Some(self.capabilities().await?) } else { None };
        let policy = self.policy().await?;
        let mut told = BTreeMap::new();
        if !inline && policy.attach_required {
            told = self.attached(&policy).await?;
        }
        let able = match early {
            Some(able) => able,
            None => self.capabilities().await?,
        };
        policy.supports(&self.volume.driver, self.volume.lifecycle).map_err(|error| {
            SetUpError::Refused(says(&format!(
                "mounter.SetupAt failed to check volume lifecycle mode: {error}"
            )))
        })?;
        Ok(Driver { policy, able, context: told })
    }

    async fn policy(&self) -> Result<DriverPolicy, SetUpError> {
        label::policy(self.backends, &self.volume.driver).await
    }

    async fn capabilities(&self) -> Result<Capabilities, SetUpError> {
        let asked = self.backends.csi.volumes.capabilities(&self.volume.driver).await;
        asked.map_err(|error| match (error.kind, self.volume.is_inline()) {
            (CsiErrorKind::NotRegistered, true) => SetUpError::Refused(says(&format!(
                "mounter.SetUpAt failed to get CSI client: {}",
                error.status_text()
            ))),
            (CsiErrorKind::NotRegistered, false) => {
                let what = match self.device {
                    Some(_) => "blockMapper.SetUpDevice failed to get CSI client",
                    None => "attacher.MountDevice failed to create newCsiDriverClient",
                };
                SetUpError::Device(says(&format!("{what}: {}", error.status_text())))
            }
            (_, true) => SetUpError::Refused(error.status_text()),
            (_, false) => SetUpError::Device(error.status_text()),
        })
    }

    /// Waits for the controller; returns what the VolumeAttachment tells.
    async fn attached(&self, policy: &DriverPolicy) -> Result<BTreeMap<String, String>, SetUpError> {
        let Self { backends, unique_name, .. } = self;
        backends.attachments.want(self.wanted.uid, unique_name);
        let attached = backends.attachments.attached(self.wanted.uid, unique_name, ATTACHED_WITHIN).await;
        if let Err(why) = attached {
            let full = policy.update_period.is_some() && self.is_full().await;
            let why = why.to_owned();
            return Err(if full { SetUpError::Exhausted(why) } else { SetUpError::NotAttached(why) });
        }
        match self.attachment().await? {
            Attachment::Attached(told) => Ok(told),
            Attachment::Not { message, .. } => Err(SetUpError::Attach(message)),
        }
    }

    /// What the VolumeAttachment says.
    async fn attachment(&self) -> Result<Attachment, SetUpError> {
        let Self { backends, volume, .. } = self;
        let name = attachment::name(&volume.handle, &volume.driver, &backends.csi.node);
        let object = match self.objects().map_err(SetUpError::Attach)?.attachment(&name).await {
            Ok(object) => Some(object),
            Err(error) if error.is_not_found() => None,
            Err(error) => {
                return Err(SetUpError::Attach(format!(
                    "volume {} has GET error for volume attachment {name}: {error}",
                    volume.handle
                )));
            }
        };
        Ok(attachment::attached(&volume.handle, &name, object.as_ref()))
    }

    /// Whether the driver said that the node takes no more volumes (row 10.28). The scheduler believed otherwise, so the driver
    /// is asked anew what it tells the CSINode.
    async fn is_full(&self) -> bool {
        let is_full = matches!(self.attachment().await, Ok(Attachment::Not { exhausted: true, .. }));
        if is_full {
            drivers::refresh(self.backends, &self.volume.driver).await;
        }
        is_full
    }

    /// Carries out the steps that are missing: what is for all pods in the volume's turn, so that what is for this one holds up
    /// no other.
    async fn steps(&self, driver: &Driver, turn: Turn, republish: bool) -> Result<(), SetUpError> {
        let published = self.published().await?;
        // What is published has been staged before.
        let staged = if published == Known::Yes { Known::Yes } else { self.staged(&turn).await? };
        let sets_group = self.sets_group(driver)?;
        let facts = Facts {
            kind: match (self.volume.is_inline(), &self.device) {
                (true, _) => Kind::Inline,
                (false, Some(_)) => Kind::Block,
                (false, None) => Kind::Filesystem,
            },
            attach_required: false,
            able: driver.able,
            staged,
            published,
            republish,
            sets_group,
            others: false,
        };
        let mut turn = Some(turn);
        let begun = |pod| self.backends.devices.begin(&self.unique_name, pod);
        for step in plan::set_up(&facts) {
            match (step, &turn) {
                (Step::NoteStaged, _) => {
                    if staged == Known::No {
                        begun(None);
                    }
                    self.note_staged(driver).await?;
                }
                (Step::Stage, Some(turn)) => self.stage(driver, turn).await?,
                (Step::NotePublished, _) => {
                    drop(turn.take());
                    if published == Known::No {
                        begun(Some(self.wanted.uid));
                    }
                    self.note_published(published).await?;
                }
                (Step::Publish, _) => self.publish(driver).await?,
                (Step::MapDevice, _) => self.map_device().await?,
                // The group comes below: it may also be all that is missing.
                _ => {}
            }
        }
        // Also after a publish that was not the first: the driver may have written files anew.
        if sets_group && let Some(step) = fs_group::change(self.wanted.pod, &self.target) {
            steps::run(self.backends.mounts.as_ref(), &step).await.map_err(|error| {
                SetUpError::Refused(format!("applyFSGroup failed for vol {}: {error}", self.volume.handle))
            })?;
        }
        if self.group.is_some() {
            self.backends.mounts.set_ready(&self.marker).await?;
        }
        Ok(())
    }

    fn sets_group(&self, driver: &Driver) -> Result<bool, SetUpError> {
        if self.device.is_some() {
            return Ok(false);
        }
        let policy = driver.policy.group_policy().map_err(|error| {
            SetUpError::Refused(says(&format!("mounter.SetupAt failed to check fsGroup policy: {error}")))
        })?;
        let grouped = Grouped {
            group: self.group.map(i64::from),
            readonly: self.volume.read_only,
            fs_type: &self.volume.fs_type,
            modes: self.volume.modes.as_deref(),
        };
        Ok(kubelet_sets_group(policy, &driver.able, &grouped))
    }

    fn staged_note(&self) -> VolData {
        match self.device {
            Some(_) => VolData::block(&self.noted()),
            None => VolData::staged(&self.volume.driver, &self.volume.handle, self.wanted.label),
        }
    }

    async fn write_staged(&self, note: &VolData) -> Result<(), SetUpError> {
        let written = notes::write(self.backends, &self.notes.0, note).await;
        written.map_err(|error| SetUpError::Device(error.to_string()))
    }

    async fn note_staged(&self, driver: &Driver) -> Result<(), SetUpError> {
        if !driver.able.stage_unstage {
            return self.write_staged(&self.staged_note()).await;
        }
        self.write_staged(&self.staged_note().unfinished()).await?;
        let made = self.backends.mounts.make_mount_point(&self.device_mount).await;
        made.map_err(|error| SetUpError::Device(error.to_string()))
    }

    async fn stage(&self, driver: &Driver, turn: &Turn) -> Result<(), SetUpError> {
        let secrets = self.secrets("NodeStageSecretRef", self.volume.stage_secret.as_ref());
        let staging = Staging {
            volume_id: self.volume.handle.clone(),
            path: text(&self.device_mount),
            access: self.access(),
            publish_context: driver.context.clone(),
            attributes: self.volume.attributes.clone(),
            secrets: secrets.await.map_err(SetUpError::Device)?,
        };
        let request = requests::stage(&staging, &driver.able);
        let staged = self.backends.csi.volumes.stage(&self.volume.driver, request).await;
        turn.set_staged(staged.is_ok());
        let Err(error) = staged else {
            self.finish(None);
            return self.write_staged(&self.staged_note()).await;
        };
        if self.clear_away(Step::Stage, self.has_begun(None), &error).await {
            self.finish(None);
        }
        Err(SetUpError::Device(error.status_text()))
    }

    fn noted(&self) -> Noted<'_> {
        Noted {
            spec_name: self.wanted.source.spec_name(),
            volume_id: &self.volume.handle,
            driver: &self.volume.driver,
            node: &self.backends.csi.node,
            se_linux: self.wanted.label,
        }
    }

    /// Of a block device the link in the pod's directory tells that the driver may have been asked for it.
    async fn note_published(&self, before: Known) -> Result<(), SetUpError> {
        if let Some((device, places)) = &self.device {
            let mounts = self.backends.mounts.as_ref();
            mounts.make_mount_point(&device.publish_dir).await?;
            if !mounts.is_device_mapped(&places.map, &places.link).await? {
                mounts.link_device(&self.target, &places.link).await?;
            }
            return Ok(());
        }
        let note = self.published_note();
        // What is published again stays published, whatever comes of it.
        let note = if before == Known::Yes { note } else { note.unfinished() };
        notes::write(self.backends, &self.notes.1, &note).await
    }

    fn published_note(&self) -> VolData {
        VolData::published(&self.noted(), self.volume.lifecycle)
    }

    async fn map_device(&self) -> Result<(), SetUpError> {
        let Some((_, places)) = &self.device else { return Ok(()) };
        block::map(self.backends, self.wanted, &self.target, places).await
    }

    async fn publish(&self, driver: &Driver) -> Result<(), SetUpError> {
        let mut secrets = self
            .secrets("NodePublishSecretRef", self.volume.publish_secret.as_ref())
            .await
            .map_err(SetUpError::Refused)?;
        let mut attributes = self.volume.attributes.clone();
        let pod = facts_of(self.wanted.pod);
        if driver.policy.pod_info {
            attributes.extend(context::pod_info(&pod, self.volume.is_inline()));
        }
        let tokens = context::tokens(&self.tokens(driver, &pod).await?);
        if driver.policy.tokens_in_secrets {
            secrets.extend(tokens);
        } else {
            attributes.extend(tokens);
        }
        let publishing = Publishing {
            volume_id: self.volume.handle.clone(),
            staging_path: text(&self.device_mount),
            target_path: text(&self.target),
            access: self.access(),
            readonly: self.volume.read_only,
            publish_context: driver.context.clone(),
            attributes,
            secrets,
            inline: self.volume.is_inline(),
        };
        let request = requests::publish(&publishing, &driver.able);
        let published = self.backends.csi.volumes.publish(&self.volume.driver, request).await;
        let pod = Some(self.wanted.uid);
        let Err(error) = published else {
            self.finish(pod);
            return match self.device {
                Some(_) => Ok(()),
                None => notes::write(self.backends, &self.notes.1, &self.published_note()).await,
            };
        };
        if self.clear_away(Step::Publish, self.has_begun(pod), &error).await {
            self.finish(pod);
        }
        Err(SetUpError::Refused(error.status_text()))
    }

    fn has_begun(&self, pod: Option<&PodUid>) -> bool {
        self.backends.devices.has_begun(&self.unique_name, pod)
    }

    fn finish(&self, pod: Option<&PodUid>) {
        self.backends.devices.finish(&self.unique_name, pod);
    }

    /// Removes what a step was prepared with that has failed for sure; returns whether nothing is left of it.
    async fn clear_away(&self, failed: Step, began: bool, error: &CsiError) -> bool {
        let cleared = match (plan::clear_away(failed, began, error.progress()), &self.device) {
            (Some(Step::ForgetStaged), Some((device, _))) => device.forget(self.backends).await,
            (Some(Step::ForgetStaged), None) => notes::forget(self.backends, &self.device_mount).await,
            (Some(_), Some((device, places))) => self.forget_published(device, places).await,
            (Some(_), None) => notes::forget(self.backends, &self.target).await,
            (None, _) => return false,
        };
        if let Err(error) = &cleared {
            let volume = &self.unique_name;
            tracing::warn!(%error, volume, "What a failed volume was prepared with stays");
        }
        cleared.is_ok()
    }

    async fn forget_published(&self, device: &Device, places: &Places) -> Result<(), SetUpError> {
        // A device that was shown before is not taken from containers that may have it.
        if self.backends.mounts.is_mount_point(&places.map).await? {
            return Ok(());
        }
        device.forget_published(self.backends, &self.target).await?;
        Ok(self.backends.mounts.unlink_device(&places.link).await?)
    }

    pub async fn secrets(&self, of: &str, secret: Option<&SecretName>) -> Result<SecretValues, String> {
        let Some(SecretName { namespace, name }) = secret else { return Ok(SecretValues::default()) };
        let failed =
            |error: &dyn std::fmt::Display| format!("fetching {of} {namespace}/{name} failed: {error}");
        let read = self.objects().map_err(|error| failed(&error))?.secret(namespace, name).await;
        let data = read.map_err(|error| failed(&error))?.data.unwrap_or_default();
        Ok(SecretValues::of_data(data.iter().map(|(key, value)| (key, value.0.as_slice()))))
    }

    /// The tokens of the pod's service account that the driver wants.
    async fn tokens(&self, driver: &Driver, pod: &PodFacts) -> Result<Vec<Token>, SetUpError> {
        let mut tokens = Vec::new();
        // Upstream gives none for devices.
        let wanted = if self.device.is_some() { &[] } else { driver.policy.tokens.as_slice() };
        for wanted in wanted {
            let ask = GetToken {
                pod: PodRef::of(self.wanted.pod),
                service_account: pod.service_account.as_str().into(),
                account_uid: Default::default(),
                audience: wanted.audience.as_str().into(),
                expiration_seconds: wanted.seconds,
            };
            let failed = |error: String| {
                let what = "mounter.SetUpAt failed to get service accoount token attributes";
                SetUpError::Refused(says(&format!("{what}: {error}")))
            };
            let answer = self.backends.objects.tokens.ask(ask, TOKEN_WITHIN).await;
            let answer = answer.map_err(|error| failed(format!("ObjectCache: {error}")))?;
            let token = answer.map_err(|error| failed(error.message))?;
            let audience = wanted.audience.clone();
            tokens.push(Token { audience, token: token.text.to_string(), expires: token.expires });
        }
        Ok(tokens)
    }
}

pub(super) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn facts_of(pod: &Pod) -> PodFacts {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    PodFacts {
        name: text(&pod.metadata.name),
        namespace: text(&pod.metadata.namespace),
        uid: text(&pod.metadata.uid),
        service_account: pod.spec.as_ref().map(|spec| text(&spec.service_account_name)).unwrap_or_default(),
    }
}
