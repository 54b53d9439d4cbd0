//! A CSI driver that mounts on the disk in memory.

use std::sync::Arc;

use bridge_csi::fake::{DriverEffects, FakeDriver};
use bridge_csi::wire::volume_capability::AccessType;
use bridge_csi::wire::{NodePublishVolumeRequest, NodeStageVolumeRequest, VolumeCapability};
use bridge_node::host::FakeDisk;
use bridge_node::mounts::{FileKind, MountPoint};

/// What the driver does on the disk.
struct OnDisk(FakeDisk);

impl OnDisk {
    fn mount(&self, path: &str, root: &str, read_only: bool) {
        if self.0.mounts().iter().any(|mount| mount.path.as_os_str() == path) {
            return;
        }
        self.0.add_mount(MountPoint {
            path: path.into(),
            root: root.into(),
            fs_type: "ext4".to_owned(),
            source: "/dev/csi".to_owned(),
            options: vec![if read_only { "ro" } else { "rw" }.to_owned()],
            device: (9, 1),
            // As on a node with SELinux, where the file system takes labels.
            fs_options: vec!["seclabel".to_owned()],
        });
    }
}

fn is_block(capability: Option<&VolumeCapability>) -> bool {
    capability.is_some_and(|capability| matches!(capability.access_type, Some(AccessType::Block(_))))
}

impl DriverEffects for OnDisk {
    fn stage(&self, request: &NodeStageVolumeRequest) -> Result<(), String> {
        if is_block(request.volume_capability.as_ref()) {
            return Ok(());
        }
        self.mount(&request.staging_target_path, &format!("/{}", request.volume_id), false);
        Ok(())
    }

    fn unstage(&self, _: &str, path: &str) -> Result<(), String> {
        self.0.remove_mounts_at(path);
        Ok(())
    }

    fn publish(&self, request: &NodePublishVolumeRequest) -> Result<(), String> {
        if is_block(request.volume_capability.as_ref()) {
            let target = std::path::Path::new(&request.target_path);
            if target.parent().is_none_or(|above| self.0.kind(above).is_none()) {
                return Err(format!("{}: no such directory", request.target_path));
            }
            self.0.special(target, FileKind::BlockDevice);
        } else {
            self.0.mkdir(&request.target_path, 0o755);
        }
        self.mount(&request.target_path, &format!("/{}", request.volume_id), request.readonly);
        Ok(())
    }

    fn unpublish(&self, _: &str, target: &str) -> Result<(), String> {
        self.0.remove_mounts_at(target);
        self.0.remove(target);
        Ok(())
    }
}

/// A driver of this name that mounts on the disk.
#[must_use]
pub fn driver_on(disk: &FakeDisk, name: &str) -> FakeDriver {
    FakeDriver::with_effects(name, Arc::new(OnDisk(disk.clone())))
}
