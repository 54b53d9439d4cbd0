//! Brings a volume of a FlexVolume driver to a pod.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bridge_node::mounts::HelperMount;
use pod_rules::volume_plugins::is_flex_driver;

use super::volume::{self, FlexVolume};
use super::{SetUp, Wanted};
use crate::backends::Backends;
use crate::flex::{Able, Status, Undone, named};
use crate::kinds::is_free_for;
use crate::steps::{self, SetUpError};
use crate::{fs_group, source::Source};

/// How long the controller may take to attach a volume before its pod is told so; then the wait goes on after a back-off.
const ATTACHED_WITHIN: Duration = Duration::from_secs(120);

/// A volume on its way to a pod.
pub(super) struct Job<'a> {
    pub backends: &'a Backends,
    pub wanted: &'a Wanted<'a>,
    pub volume: FlexVolume,
    /// Where the pod has it.
    pub path: &'a Path,
    /// Where it is mounted for the node, if its driver mounts devices.
    pub place: PathBuf,
}

/// Whether there is a driver for the volume.
///
/// # Errors
/// Upstream's text, with what is wrong with the driver.
pub(super) async fn has_driver(backends: &Backends, source: &Source) -> Result<(), String> {
    let driver = volume::driver_of(source).unwrap_or_default();
    let able = backends.flex.able(driver).await;
    able.map(drop).map_err(|why| {
        let name = source.spec_name();
        format!(
            "failed to get Plugin from volumeSpec for volume {name:?} err=no volume plugin matched: {why}"
        )
    })
}

/// Brings a volume to a pod, from wherever things are.
pub(super) async fn set_up(
    backends: &Backends,
    wanted: &Wanted<'_>,
    path: &Path,
) -> Result<SetUp, SetUpError> {
    let job = Job::of(backends, wanted, path)?;
    let able = backends.flex.able(&job.volume.driver).await.map_err(SetUpError::Refused)?;
    let is_there = wanted.mounts.has(path);
    if able.attach {
        if is_there {
            backends.devices.join(&job.volume.device(), wanted.uid);
            return Ok(SetUp::Ready);
        }
        job.stage().await?;
    }
    if !is_there {
        job.mount(able).await?;
    }
    Ok(SetUp::Ready)
}

impl<'a> Job<'a> {
    /// The job of a volume that is at `path` for its pod.
    pub fn of(backends: &'a Backends, wanted: &'a Wanted<'a>, path: &'a Path) -> Result<Self, SetUpError> {
        let volume = FlexVolume::of(wanted.source, wanted.pod).filter(|flex| is_flex_driver(&flex.driver));
        let volume = volume.ok_or_else(|| SetUpError::Refused("not a flex volume".to_owned()))?;
        let place = volume::place(wanted.node, &volume.driver, &volume.name);
        Ok(Self { backends, wanted, place: place.map_err(SetUpError::Refused)?, volume, path })
    }

    /// Calls the driver.
    pub async fn call(&self, place: &Path, command: &str, arguments: Vec<String>) -> Result<Status, Undone> {
        let place = place.to_string_lossy();
        self.backends.flex.call(&self.volume.driver, &place, command, arguments).await
    }

    fn told(&self) -> Result<String, SetUpError> {
        self.volume.told(Default::default()).map_err(SetUpError::Refused)
    }

    /// The path of the device, as the Node reports it.
    pub fn device_path(&self) -> String {
        self.backends.attachments.device_path(&self.volume.unique_name())
    }

    /// Waits for the controller, and has the volume mounted for the node. The pod uses it from then on.
    async fn stage(&self) -> Result<(), SetUpError> {
        let Self { backends, wanted, volume, place, .. } = self;
        let failed = |why: &str| named(&volume.driver, &why);
        if !backends.objects.in_cluster {
            let why = "a controller attaches its volumes, and this node is in no cluster";
            return Err(SetUpError::Refused(failed(why)));
        }
        let options = self.told()?;
        // What it says is not used, as upstream has it, but that it fails is.
        let name = self.call(place, "getvolumename", vec![options.clone()]).await;
        if let Err(Undone::Failed(why)) = name {
            return Err(SetUpError::Device(why));
        }
        let unique_name = volume.unique_name();
        backends.attachments.want(wanted.uid, &unique_name);
        let attached = backends.attachments.attached(wanted.uid, &unique_name, ATTACHED_WITHIN).await;
        attached.map_err(|why| SetUpError::NotAttached(why.to_owned()))?;
        let reported = self.device_path();
        let waited = self.call(place, "waitforattach", vec![reported.clone(), options.clone()]).await;
        let device = match waited {
            Ok(status) => status.device,
            Err(Undone::NotSupported) => reported,
            Err(Undone::Failed(why)) => return Err(SetUpError::Attach(why)),
        };
        let turn = backends.devices.turn(&volume.device()).await;
        is_free_for(backends, wanted, &volume.device())?;
        turn.joined_by(wanted.uid);
        if backends.mounts.is_mount_point(place).await? {
            return Ok(());
        }
        backends.mounts.make_mount_point(place).await?;
        let arguments = vec![place.to_string_lossy().into_owned(), device.clone(), options];
        match self.call(place, "mountdevice", arguments).await {
            Ok(_) => Ok(()),
            Err(Undone::Failed(why)) => Err(SetUpError::Device(why)),
            Err(Undone::NotSupported) if device.is_empty() => Ok(()),
            Err(Undone::NotSupported) => {
                let options = vec![if volume.read_only { "ro" } else { "rw" }.to_owned()];
                let mount = HelperMount { fs_type: volume.fs_type.clone(), source: device, options };
                let mounted = backends.mounts.format_and_mount(place, mount).await;
                mounted.map_err(|error| SetUpError::Device(failed(&error.to_string())))
            }
        }
    }

    /// Has the volume mounted for the pod.
    async fn mount(&self, able: Able) -> Result<(), SetUpError> {
        let Self { backends, wanted, volume, path, place } = self;
        backends.mounts.make_mount_point(path).await?;
        let mounted = match self.arguments().await {
            Ok(arguments) => self.call(path, "mount", arguments).await,
            Err(why) => Err(Undone::Failed(why)),
        };
        let mounted = match mounted {
            Ok(_) => Ok(()),
            // The driver has mounted it for the node.
            Err(Undone::NotSupported) => {
                backends.mounts.bind(place, path, false).await.map_err(SetUpError::from)
            }
            Err(Undone::Failed(why)) => Err(SetUpError::Refused(why)),
        };
        if mounted.is_err() {
            let _left = backends.mounts.forget(path, &path.join("none")).await;
            return mounted;
        }
        let group = fs_group::change(wanted.pod, path).filter(|_| able.group && !volume.read_only);
        if let Some(step) = group
            && let Err(error) = steps::run(backends.mounts.as_ref(), &step).await
        {
            // As upstream: not every file system of a driver has groups.
            tracing::warn!(%error, volume = volume.name, "A volume of a FlexVolume driver has not its pod's group");
        }
        Ok(())
    }

    async fn arguments(&self) -> Result<Vec<String>, String> {
        let mut more = volume::of_pod(self.wanted.pod);
        if let Some(volume::SecretName { namespace, name }) = &self.volume.secret {
            let objects = self.backends.volume_objects.as_deref();
            let objects = objects.ok_or("cannot get kube client")?;
            let failed = |error: &dyn std::fmt::Display| {
                format!("couldn't get secret {namespace}/{name} err: {error}")
            };
            let secret = objects.secret(namespace, name).await.map_err(|error| failed(&error))?;
            let told = volume::of_secret(&self.volume.driver, &secret);
            more.extend(told.map_err(|error| failed(&error))?);
        }
        Ok(vec![self.path.to_string_lossy().into_owned(), self.volume.told(more)?])
    }
}
