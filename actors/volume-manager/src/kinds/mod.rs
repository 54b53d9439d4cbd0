//! The kinds of volumes, one module each. The rest of VolumeManager knows no kind by name: it finds the one that serves a
//! volume in [`ALL`]. A new kind is a module and a line there.

mod block;
mod csi;
mod empty_dir;
mod flex;
mod host_path;
mod image;
mod local;
mod network;
mod nfs;
mod objects;
mod refused;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use bridge_node::mounts::{Measure, MountPoint};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use messages::PodUid;
use messages::volume_manager::VolumeUsage;

pub(crate) use self::objects::POD_BYTES_MAX;
use crate::backends::{Backends, NodeFacts};
use crate::devices::Device;
use crate::source::{Persistent, Source, USED_BY_ANOTHER};
use crate::steps::{self, SetUpError, VolumePlan};

/// How long one volume, or one part of a volume, may take. What is not ready by then is told as its error and tried again
/// after its back-off; what has begun goes on in the bridge, and the next try waits for it there. Longer than what a volume
/// waits for, a call to the API server and a turn on a thread that may block.
pub(crate) const VOLUME_WITHIN: Duration = Duration::from_secs(120);

/// How many volumes of one pod are worked on at once. A pod has as many as its author likes: more of them would be that many
/// calls to drivers and to the API server, for which other pods wait, too.
const VOLUMES_AT_ONCE: usize = 16;

/// Does a pod's work volume by volume, a few at once; the results come in the order of the work.
pub(crate) async fn few_at_once<'a, T>(work: impl IntoIterator<Item = BoxFuture<'a, T>>) -> Vec<T> {
    let work: Vec<BoxFuture<'a, T>> = work.into_iter().collect();
    stream::iter(work).buffered(VOLUMES_AT_ONCE).collect().await
}

/// The sources that no plugin of upstream serves.
const WITHOUT_PLUGIN: [&str; 8] =
    ["cephfs", "flocker", "glusterfs", "photonPersistentDisk", "quobyte", "rbd", "scaleIO", "storageos"];

/// Every kind, in the order in which they are asked whether they serve a source.
pub(crate) const ALL: &[&dyn VolumeKind] = &[
    &objects::CONFIG_MAP,
    &objects::DOWNWARD_API,
    &objects::PROJECTED,
    &objects::SECRET,
    &empty_dir::EmptyDir,
    &host_path::HostPath,
    &image::Image,
    &local::Local,
    &network::FC,
    &network::ISCSI,
    &nfs::Nfs,
    &csi::Csi,
    &flex::Flex,
    &refused::GIT_REPO,
];

/// One kind of volume: its plan for a volume, and how the plan is carried out and undone.
///
/// Everything may be called again: after a crash of VolumeManager, after a restart of the kubelet, and when an earlier try
/// has failed half-way.
pub(crate) trait VolumeKind: Sync {
    /// The name of upstream's plugin, such as `kubernetes.io/nfs`. Directories, metrics and messages contain it.
    fn plugin(&self) -> &'static str;

    /// The label of metrics about a volume; upstream's.
    fn label(&self, _source: &Source) -> String {
        self.plugin().to_owned()
    }

    /// The label of metrics about a volume that is found, by the name under which Nodes report it.
    fn label_of(&self, _unique_name: &str) -> String {
        self.plugin().to_owned()
    }

    /// Whether volumes in directories of this plugin are of this kind.
    fn has_plugin(&self, plugin: &str) -> bool {
        self.plugin() == plugin
    }

    /// Whether a volume with this source is of this kind.
    fn serves(&self, source: &Source) -> bool;

    /// Whether the node has what serves the volume, where that is not the kubelet itself.
    ///
    /// # Errors
    /// Upstream's text: there is nothing that does.
    fn is_there<'a>(
        &'a self,
        _backends: &'a Backends,
        _source: &'a Source,
    ) -> BoxFuture<'a, Result<(), String>> {
        std::future::ready(Ok(())).boxed()
    }

    /// PURE: the plan that makes the volume ready.
    ///
    /// # Errors
    /// Upstream's text: the volume cannot be had in this form.
    fn plan(&self, wanted: &Wanted<'_>) -> Result<VolumePlan, String>;

    /// Makes the volume ready, within [`within`](Self::within).
    ///
    /// # Errors
    /// [`SetUpError`]: the volume is not ready; what was done so far stays for the next try.
    fn set_up<'a>(
        &'a self,
        backends: &'a Backends,
        _wanted: &'a Wanted<'a>,
        plan: &'a VolumePlan,
    ) -> BoxFuture<'a, Result<SetUp, SetUpError>> {
        Box::pin(async {
            steps::set_up(backends.mounts.as_ref(), plan).await?;
            Ok(SetUp::Ready)
        })
    }

    /// How long a set-up may take in all.
    fn within(&self) -> Duration {
        VOLUME_WITHIN
    }

    /// Whether a PersistentVolume of this kind may have mount options.
    fn takes_mount_options(&self) -> bool {
        false
    }

    /// Whether the volume can be mounted with a label of SELinux (row 10.24): with the option of [`Wanted::label`].
    ///
    /// # Errors
    /// Upstream's text: it cannot be found out.
    fn takes_label<'a>(
        &'a self,
        _backends: &'a Backends,
        _source: &'a Source,
    ) -> BoxFuture<'a, Result<bool, String>> {
        std::future::ready(Ok(false)).boxed()
    }

    /// Whether the files of its volumes are not the pod's alone, and keep the SELinux labels that they have.
    fn keeps_labels(&self) -> bool {
        false
    }

    /// The same of one volume, where it depends on what serves it.
    fn keeps_labels_of(&self, _backends: &Backends, _source: &Source) -> bool {
        self.keeps_labels()
    }

    /// Whether its volumes may be of file systems that take no SELinux labels: the mount says so.
    fn may_lack_labels(&self) -> bool {
        false
    }

    /// Whether pods may have its PersistentVolumes as block devices.
    fn has_block_devices(&self) -> bool {
        false
    }

    /// Whether its volumes are devices that the pods of a node share, so that the node knows whether another pod has one.
    fn shares_devices(&self) -> bool {
        false
    }

    /// Measures a volume that is ready at `path`; `None` for kinds whose volumes are not measured (row 10.27).
    fn measure<'a>(
        &'a self,
        _backends: &'a Backends,
        _path: &'a Path,
    ) -> Option<BoxFuture<'a, Result<Measured, SetUpError>>> {
        None
    }

    /// Whether the kind has volumes that [`VolumeKind::refresh`] may have work for.
    fn refreshes(&self) -> bool {
        false
    }

    /// Shows what has changed in a volume that is ready; `None` for kinds whose volumes never change by themselves.
    fn refresh<'a>(
        &'a self,
        _backends: &'a Backends,
        _wanted: &'a Wanted<'a>,
        _plan: &'a VolumePlan,
    ) -> Option<BoxFuture<'a, Result<(), SetUpError>>> {
        None
    }

    /// Whether the node has to make its PersistentVolumes larger after their controller.
    fn expands(&self) -> bool {
        false
    }

    /// Makes a volume larger that its pod has; false if the pod does not have it yet.
    ///
    /// # Errors
    /// [`ExpandError`]: what follows is the caller's.
    fn expand<'a>(
        &'a self,
        _backends: &'a Backends,
        _wanted: &'a Wanted<'a>,
        _plan: &'a VolumePlan,
        _bytes: i64,
    ) -> BoxFuture<'a, Result<bool, ExpandError>> {
        std::future::ready(Ok(true)).boxed()
    }

    /// Whether a volume may be a directory alone, without a mount of its own. What an earlier run has left of such volumes is
    /// found by their directories.
    fn may_lack_mounts(&self) -> bool {
        false
    }

    /// Whether a set-up waits for others than this node: a controller, a driver or a server. The volumes of such kinds are
    /// set up side by side, after those of all other kinds.
    fn is_remote(&self) -> bool {
        false
    }

    /// Undoes a volume that is found in the pod's directory, and tells of which device it was. The containers of the pod are
    /// gone, and so are the mounts of parts of its volumes. `None` for kinds whose volumes are undone by unmounting what is
    /// mounted below their directories.
    ///
    /// # Errors
    /// [`SetUpError`]: something of the volume may be left, and the pod's directory stays.
    fn tear_down<'a>(
        &'a self,
        _backends: &'a Backends,
        _found: &'a FoundVolume<'a>,
    ) -> Option<BoxFuture<'a, Result<TornDown, SetUpError>>> {
        None
    }

    /// The devices of this kind that are mounted for the whole node and that no pod uses, found on the disk and among the
    /// mounts: also those that another kubelet or an earlier run has left.
    ///
    /// # Errors
    /// [`SetUpError`]: they cannot be listed.
    fn idle_devices<'a>(&'a self, _backends: &'a Backends) -> BoxFuture<'a, Result<Vec<Device>, SetUpError>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }

    /// Takes a device from the node, unless a pod uses it again. Work on one device is done in its turn
    /// ([`Devices`](crate::devices::Devices)), so that a device is neither taken away under a pod that is being set up nor set up
    /// twice.
    ///
    /// # Errors
    /// [`SetUpError`]: it is tried again after its back-off.
    fn release<'a>(
        &'a self,
        _backends: &'a Backends,
        _device: &'a Device,
    ) -> BoxFuture<'a, Result<(), SetUpError>> {
        std::future::ready(Ok(())).boxed()
    }
}

/// Why a volume could not be made larger; the texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExpandError {
    /// The node need not do that, or cannot.
    #[error("{0}")]
    NotSupported(String),
    /// It cannot be done while a pod has the volume.
    #[error("{0}")]
    InUse(String),
    /// It is of no use to try again.
    #[error("{0}")]
    Infeasible(String),
    /// It has failed.
    #[error("{0}")]
    Final(String),
    /// It may be under way still.
    #[error("{0}")]
    Uncertain(String),
    /// It was not begun.
    #[error("{0}")]
    Transient(String),
}

/// A volume that is found in a pod's directory, whichever kubelet has made it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundVolume<'a> {
    /// The pod's UID.
    pub uid: &'a PodUid,
    /// The name of the volume's directory: the volume's, or that of its PersistentVolume.
    pub name: &'a str,
    /// Whether containers have it as a block device.
    pub is_block: bool,
    /// The volume's directory; of a block device the link to the device.
    pub dir: &'a Path,
}

/// What became of a volume that was undone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TornDown {
    /// The device that it was of, which may be idle now.
    pub device: Option<Device>,
}

/// A volume that a pod wants, and the facts on which its plan depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// The volume's name in the pod spec.
    pub name: &'a str,
    /// What it is made of.
    pub source: &'a Source,
    /// Its pod.
    pub pod: &'a Arc<Pod>,
    /// The pod's UID.
    pub uid: &'a PodUid,
    /// The facts about the node.
    pub node: NodeFacts<'a>,
    /// The mounts below the pod's directory.
    pub mounts: &'a Mounted<'a>,
    /// The most memory that a volume of the pod may take, by the pod's limits and the node, bytes; 0 for no bound.
    pub memory_bytes_max: u64,
    /// The SELinux label that the volume is mounted with.
    pub label: Option<&'a str>,
    /// How many more bytes the pod's volumes of objects may hold; they count in the pod spec's order.
    pub room_for_files: &'a AtomicUsize,
}

impl Wanted<'_> {
    /// The volume's directory below the pod's: `volumes/<plugin>/<name>`.
    pub fn path(&self, plugin: &str) -> Result<PathBuf, String> {
        let name = self.source.spec_name();
        self.node.layout.pod_volume(self.uid.as_str(), plugin, name).map_err(|error| error.to_string())
    }

    /// Whether a file system of this type is mounted at the path.
    pub fn is_mounted(&self, path: &Path, fs_type: &str) -> bool {
        self.mounts.is(path, fs_type)
    }
}

/// The mounts below a pod's directory, by their paths: a pod may have as many volumes as mounts.
#[derive(Debug, Default)]
pub(crate) struct Mounted<'a>(BTreeMap<&'a Path, Vec<&'a str>>);

impl<'a> Mounted<'a> {
    /// Of a list of mounts.
    pub fn of(mounts: &'a [MountPoint]) -> Self {
        let mut by_path: BTreeMap<&Path, Vec<&str>> = BTreeMap::new();
        for mount in mounts {
            by_path.entry(&mount.path).or_default().push(&mount.fs_type);
        }
        Self(by_path)
    }

    /// Whether anything is mounted at the path.
    pub fn has(&self, path: &Path) -> bool {
        self.0.contains_key(path)
    }

    fn is(&self, path: &Path, fs_type: &str) -> bool {
        self.0.get(path).is_some_and(|types| types.contains(&fs_type))
    }
}

/// What became of a set-up that did not fail.
#[derive(Debug)]
pub(crate) enum SetUp {
    /// The volume is ready.
    Ready,
    /// The volume shows what it showed before: no pod is held up by an object that has gone since.
    Stale(SetUpError),
}

/// A volume's figures, and how they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    /// The figures.
    pub usage: VolumeUsage,
    /// Upstream's name of the way; `None` where nothing was counted: what drivers take is told by the calls to them, and the
    /// size of a file system costs nothing.
    pub counted: Option<&'static str>,
}

impl From<VolumeUsage> for Measured {
    fn from(usage: VolumeUsage) -> Self {
        Self { usage, counted: None }
    }
}

/// Measures a volume that is a directory or a file system of the node.
fn measured<'a>(
    backends: &'a Backends,
    path: &'a Path,
    how: Measure,
) -> BoxFuture<'a, Result<Measured, SetUpError>> {
    Box::pin(async move {
        let found = backends.mounts.measure(path, how).await?;
        let counted = match how {
            Measure::FileSystem => None,
            Measure::Tree => Some("du"),
        };
        let usage = VolumeUsage {
            available_bytes: found.available_bytes,
            capacity_bytes: found.capacity_bytes,
            used_bytes: found.used_bytes,
            inodes: found.inodes,
            inodes_free: found.inodes_free,
            inodes_used: found.inodes_used,
            condition: None,
        };
        Ok(Measured { usage, counted })
    })
}

/// The kind that serves a source.
///
/// # Errors
/// No kind does. For sources whose plugins upstream has lost (row 10.17), the text is upstream's.
pub(crate) fn serving(source: &Source) -> Result<&'static dyn VolumeKind, String> {
    let found = ALL.iter().find(|kind| kind.serves(source)).copied();
    found.ok_or_else(|| match source.field() {
        field if WITHOUT_PLUGIN.contains(&field.as_str()) => {
            let name = source.spec_name();
            format!("failed to get Plugin from volumeSpec for volume {name:?} err=no volume plugin matched")
        }
        field => format!("volume source {field} is not supported by this kubelet yet"),
    })
}

/// All mounts of the machine.
async fn all_mounts(backends: &Backends) -> Result<Vec<MountPoint>, SetUpError> {
    Ok(backends.mounts.list_below(Path::new("/")).await?)
}

/// Whether no other pod uses the device, if its volume is for one pod alone (ReadWriteOncePod). The caller has the device's
/// turn.
///
/// # Errors
/// Upstream's text.
fn is_free_for(backends: &Backends, wanted: &Wanted<'_>, device: &str) -> Result<(), SetUpError> {
    let is_for_one = wanted.source.persistent().is_some_and(Persistent::is_for_one_pod);
    if !is_for_one || !backends.devices.is_used_by_another(device, wanted.uid) {
        return Ok(());
    }
    let why = USED_BY_ANOTHER.to_owned();
    Err(if wanted.source.is_block() { SetUpError::Device(why) } else { SetUpError::Refused(why) })
}

/// Whether the kind has the volume in the form that is asked for.
///
/// # Errors
/// It has no block devices; the text is upstream's.
pub(crate) fn has_form(kind: &dyn VolumeKind, source: &Source) -> Result<(), String> {
    if source.is_block() && !kind.has_block_devices() {
        return Err(
            "MapVolume.FindMapperPluginBySpec failed to find BlockVolumeMapper plugin. Volume plugin is nil."
                .to_owned(),
        );
    }
    Ok(())
}

/// The kind of a device, if this kubelet has it.
pub(crate) fn of_device(device: &str) -> Option<&'static dyn VolumeKind> {
    let is_of = |plugin: &str| device.strip_prefix(plugin).is_some_and(|rest| rest.starts_with('/'));
    ALL.iter().find(|kind| is_of(kind.plugin())).copied()
}

/// The name by which Nodes report a device: that of a FlexVolume driver's volume begins with the driver's name.
pub(crate) fn reported(device: &str) -> &str {
    flex::reported(device).unwrap_or(device)
}

/// The kind of a plugin, if this kubelet has it.
pub(crate) fn of_plugin(plugin: &str) -> Option<&'static dyn VolumeKind> {
    ALL.iter().find(|kind| kind.has_plugin(plugin)).copied()
}

#[cfg(test)]
pub(crate) mod tests;
