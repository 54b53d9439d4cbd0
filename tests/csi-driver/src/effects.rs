//! What the driver does on the machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use bridge_csi::fake::{DriverEffects, Held};
use bridge_csi::wire::volume_capability::AccessType;
use bridge_csi::wire::{NodePublishVolumeRequest, NodeStageVolumeRequest, VolumeCapability};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};

/// The size of a device that was never expanded, bytes; its file is sparse.
const DEVICE_BYTES: u64 = 1 << 30;

/// Mounts for real, from a directory of its own.
#[derive(Clone, Debug)]
pub struct Mounts {
    directory: PathBuf,
}

fn named(what: &str, path: &Path, error: impl std::fmt::Display) -> String {
    format!("{what} {}: {error}", path.display())
}

fn is_block(capability: Option<&VolumeCapability>) -> bool {
    capability.is_some_and(|capability| matches!(capability.access_type, Some(AccessType::Block(_))))
}

/// Whether something is mounted at a path.
///
/// # Panics
/// When the kernel's table cannot be read.
pub fn is_mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the kernel has a mount table");
    let wanted = path.display().to_string().replace('\\', "\\134").replace(' ', "\\040");
    table.lines().any(|line| line.split(' ').nth(4) == Some(wanted.as_str()))
}

/// Takes every mount off a path; well if there is none.
fn unmount_all(path: &Path) -> Result<(), String> {
    loop {
        match unmount(path, UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
            Err(error) => return Err(named("unmount", path, error)),
        }
    }
}

fn removed(outcome: io::Result<()>, path: &Path) -> Result<(), String> {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(named("remove", path, error)),
        _ => Ok(()),
    }
}

impl Mounts {
    /// Volumes and notes lie below `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    fn notes(&self) -> PathBuf {
        self.directory.join("held.json")
    }

    /// What an earlier process held.
    pub fn held(&self) -> Held {
        let text = fs::read(self.notes()).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    fn volume(&self, volume_id: &str) -> PathBuf {
        self.directory.join("volumes").join(volume_id.replace('/', "~"))
    }

    fn image(&self, volume_id: &str) -> PathBuf {
        self.volume(volume_id).with_extension("img")
    }

    /// The directory of a volume, made if it is missing.
    fn made(&self, volume_id: &str) -> Result<PathBuf, String> {
        let path = self.volume(volume_id);
        fs::create_dir_all(&path).map_err(|error| named("make", &path, error))?;
        Ok(path)
    }

    /// The loop device of a volume, if it has one.
    fn device(&self, volume_id: &str) -> Result<Option<PathBuf>, String> {
        let image = self.image(volume_id);
        if !image.exists() {
            return Ok(None);
        }
        let told =
            losetup(&["--noheadings", "--output", "NAME", "--associated", &image.display().to_string()])?;
        Ok(told.lines().next().map(|line| PathBuf::from(line.trim())))
    }

    /// The loop device of a volume, made if it is missing.
    fn attached(&self, volume_id: &str) -> Result<PathBuf, String> {
        if let Some(device) = self.device(volume_id)? {
            return Ok(device);
        }
        self.made(volume_id)?;
        let image = self.image(volume_id);
        let file = fs::OpenOptions::new().create(true).append(true).open(&image);
        let file = file.map_err(|error| named("make", &image, error))?;
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        file.set_len(length.max(DEVICE_BYTES)).map_err(|error| named("size", &image, error))?;
        let told = losetup(&["--find", "--show", &image.display().to_string()])?;
        Ok(PathBuf::from(told.trim()))
    }
}

fn losetup(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("losetup").args(arguments).output();
    let output = output.map_err(|error| format!("losetup: {error}"))?;
    if !output.status.success() {
        return Err(format!("losetup {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl DriverEffects for Mounts {
    fn stage(&self, request: &NodeStageVolumeRequest) -> Result<(), String> {
        if is_block(request.volume_capability.as_ref()) {
            return self.attached(&request.volume_id).map(drop);
        }
        let path = Path::new(&request.staging_target_path);
        if is_mounted(path) {
            return Ok(());
        }
        let volume = self.made(&request.volume_id)?;
        mount_bind(&volume, path).map_err(|error| named("mount", path, error))
    }

    fn unstage(&self, volume_id: &str, path: &str) -> Result<(), String> {
        unmount_all(Path::new(path))?;
        match self.device(volume_id)? {
            Some(device) => losetup(&["--detach", &device.display().to_string()]).map(drop),
            None => Ok(()),
        }
    }

    fn publish(&self, request: &NodePublishVolumeRequest) -> Result<(), String> {
        let target = Path::new(&request.target_path);
        if is_mounted(target) {
            return Ok(());
        }
        if is_block(request.volume_capability.as_ref()) {
            let device = self.attached(&request.volume_id)?;
            fs::write(target, "").map_err(|error| named("make", target, error))?;
            return mount_bind(&device, target).map_err(|error| named("mount", target, error));
        }
        match fs::create_dir(target) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(named("make", target, error));
            }
            _ => {}
        }
        let mounted =
            if request.volume_context.get("csi.storage.k8s.io/ephemeral").is_some_and(|it| it == "true") {
                mount("tmpfs", target, "tmpfs", MountFlags::empty(), c"size=1m")
            } else if request.staging_target_path.is_empty() {
                mount_bind(self.made(&request.volume_id)?, target)
            } else {
                mount_bind(&request.staging_target_path, target)
            };
        mounted.map_err(|error| named("mount", target, error))?;
        if request.readonly {
            let flags = MountFlags::BIND | MountFlags::RDONLY;
            mount_remount(target, flags, c"").map_err(|error| named("remount", target, error))?;
        }
        Ok(())
    }

    fn unpublish(&self, _: &str, target: &str) -> Result<(), String> {
        let target = Path::new(target);
        unmount_all(target)?;
        match fs::symlink_metadata(target) {
            Ok(metadata) if metadata.is_dir() => removed(fs::remove_dir(target), target),
            Ok(_) => removed(fs::remove_file(target), target),
            Err(_) => Ok(()),
        }
    }

    fn expand(&self, volume_id: &str, bytes: i64) -> Result<(), String> {
        let Some(device) = self.device(volume_id)? else { return Ok(()) };
        let image = self.image(volume_id);
        let file = fs::OpenOptions::new().append(true).open(&image);
        let sized = file.and_then(|file| file.set_len(u64::try_from(bytes).unwrap_or_default()));
        sized.map_err(|error| named("size", &image, error))?;
        losetup(&["--set-capacity", &device.display().to_string()]).map(drop)
    }

    fn keep(&self, held: &Held) {
        let beside = self.directory.join("held.json.new");
        let text = serde_json::to_vec(held).expect("texts and numbers are JSON");
        let kept = fs::write(&beside, text).and_then(|()| fs::rename(&beside, self.notes()));
        kept.expect("the driver's directory can be written");
    }
}
