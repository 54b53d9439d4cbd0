//! PURE: which file systems a node has, and so which files count and which reclaims help for each signal (rows 19.4,
//! 19.5).

use bridge_node::stats::NodeUsage;

use crate::signal::Signal;

/// The file systems of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FileSystems {
    /// One file system for everything.
    #[default]
    One,
    /// Images and writable layers have a file system of their own.
    SeparateImages,
    /// Images alone have a file system of their own; writable layers lie on the node's.
    Split,
}

impl FileSystems {
    /// The node's file systems. One that is unknown is taken for the node's own.
    pub(crate) fn of(usage: &NodeUsage) -> Self {
        let (Some(node), Some(images)) = (usage.node_fs, usage.image_fs) else { return Self::One };
        let containers = usage.container_fs.unwrap_or(images);
        match (images.device == containers.device, images.device == node.device) {
            (true, true) => Self::One,
            (true, false) => Self::SeparateImages,
            (false, _) => Self::Split,
        }
    }

    /// Whether images, and what containers write, lie on the node's own disk; `None` while that is unknown.
    pub(crate) fn is_one_disk(usage: &NodeUsage) -> Option<bool> {
        Some(usage.node_fs?.device == usage.image_fs?.device)
    }

    /// Which of a pod's files lie on the file system of this signal.
    pub(crate) fn parts(self, signal: Signal) -> Parts {
        let volumes_and_logs = Parts { layers: false, logs: true, volumes: true };
        let layers = Parts { layers: true, logs: false, volumes: false };
        let all = Parts { layers: true, logs: true, volumes: true };
        let of_images = matches!(signal, Signal::ImageFsAvailable | Signal::ImageFsInodesFree);
        let of_node = matches!(signal, Signal::NodeFsAvailable | Signal::NodeFsInodesFree);
        match self {
            Self::One => all,
            Self::SeparateImages if of_node => volumes_and_logs,
            Self::SeparateImages => layers,
            Self::Split if of_images => Parts::default(),
            Self::Split => all,
        }
    }

    /// What can be removed from this signal's file system before a pod has to end.
    pub(crate) fn reclaims(self, signal: Signal) -> Reclaims {
        let both = Reclaims { containers: true, images: true };
        let of_images = matches!(signal, Signal::ImageFsAvailable | Signal::ImageFsInodesFree);
        match (self, signal) {
            (_, Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable | Signal::PidAvailable) => {
                Reclaims::default()
            }
            (Self::SeparateImages, Signal::NodeFsAvailable | Signal::NodeFsInodesFree) => Reclaims::default(),
            (Self::One | Self::SeparateImages, _) => both,
            (Self::Split, _) => Reclaims { containers: !of_images, images: of_images },
        }
    }
}

/// Which of a pod's files count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Writable layers of containers.
    pub(crate) layers: bool,
    /// Logs of containers.
    pub(crate) logs: bool,
    /// Volumes on the node's disk.
    pub(crate) volumes: bool,
}

/// What is removed, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reclaims {
    /// Dead containers.
    pub(crate) containers: bool,
    /// Unused images.
    pub(crate) images: bool,
}

impl Reclaims {
    pub(crate) fn any(self) -> bool {
        self.containers || self.images
    }
}

#[cfg(test)]
mod tests {
    use bridge_node::stats::FileSystemRoom;

    use super::*;

    #[test]
    fn devices_tell_file_systems_apart() {
        let room = |device: u64| Some(FileSystemRoom { device, ..FileSystemRoom::default() });
        let of = |node, image_fs, container_fs| {
            FileSystems::of(&NodeUsage {
                node_fs: room(node),
                image_fs,
                container_fs,
                ..NodeUsage::default()
            })
        };
        assert_eq!(of(1, room(1), room(1)), FileSystems::One);
        assert_eq!(of(1, None, None), FileSystems::One);
        let one_disk = |image_fs| {
            FileSystems::is_one_disk(&NodeUsage { node_fs: room(1), image_fs, ..NodeUsage::default() })
        };
        assert_eq!([one_disk(room(1)), one_disk(room(2)), one_disk(None)], [Some(true), Some(false), None]);
        assert_eq!(of(1, room(2), None), FileSystems::SeparateImages);
        assert_eq!(of(1, room(2), room(2)), FileSystems::SeparateImages);
        assert_eq!(of(1, room(2), room(1)), FileSystems::Split);
    }

    #[test]
    fn what_counts_and_what_helps() {
        use FileSystems::{One, SeparateImages, Split};
        use Signal::{
            ContainerFsAvailable, ImageFsInodesFree, MemoryAvailable, NodeFsAvailable, PidAvailable,
        };
        // Digits: layers, logs, volumes; then containers, images.
        for (file_systems, signal, counts, helps) in [
            (One, NodeFsAvailable, "111", "11"),
            (One, ImageFsInodesFree, "111", "11"),
            (SeparateImages, NodeFsAvailable, "011", "00"),
            (SeparateImages, ImageFsInodesFree, "100", "11"),
            (SeparateImages, ContainerFsAvailable, "100", "11"),
            (Split, NodeFsAvailable, "111", "10"),
            (Split, ContainerFsAvailable, "111", "10"),
            (Split, ImageFsInodesFree, "000", "01"),
            (One, MemoryAvailable, "111", "00"),
            (One, PidAvailable, "111", "00"),
        ] {
            let bits = |bits: &[bool]| bits.iter().map(|on| if *on { '1' } else { '0' }).collect::<String>();
            let parts = file_systems.parts(signal);
            let reclaims = file_systems.reclaims(signal);
            let what = format!("{file_systems:?} {}", signal.as_str());
            assert_eq!(bits(&[parts.layers, parts.logs, parts.volumes]), counts, "{what}");
            assert_eq!(bits(&[reclaims.containers, reclaims.images]), helps, "{what}");
        }
    }
}
