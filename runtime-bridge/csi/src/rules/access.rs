//! PURE: how a volume is used, and how that is said to a driver.

use super::capabilities::Capabilities;
use crate::wire::VolumeCapability;
use crate::wire::volume_capability::access_mode::Mode;
use crate::wire::volume_capability::{AccessMode as ModeOnWire, AccessType, BlockVolume, MountVolume};

/// An access mode of a persistent volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum AccessMode {
    #[default]
    ReadWriteOnce,
    ReadOnlyMany,
    ReadWriteMany,
    ReadWriteOncePod,
    /// A mode that Kubernetes does not have.
    Unknown,
}

impl AccessMode {
    /// The mode that drivers are told: the first of a volume's modes; without any, and for inline volumes,
    /// `ReadWriteOnce`.
    #[must_use]
    pub fn of_volume(modes: Option<&[String]>) -> Self {
        modes.and_then(<[String]>::first).map_or(Self::ReadWriteOnce, |mode| Self::named(mode))
    }

    /// The mode of this name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            "ReadWriteOnce" => Self::ReadWriteOnce,
            "ReadOnlyMany" => Self::ReadOnlyMany,
            "ReadWriteMany" => Self::ReadWriteMany,
            "ReadWriteOncePod" => Self::ReadWriteOncePod,
            _ => Self::Unknown,
        }
    }

    /// The mode as this driver understands it: drivers without `SINGLE_NODE_MULTI_WRITER` know one writer of a node alone.
    #[must_use]
    pub fn on_wire(self, able: &Capabilities) -> Mode {
        match (self, able.single_node_multi_writer) {
            (Self::ReadWriteOnce | Self::ReadWriteOncePod, false) => Mode::SingleNodeWriter,
            (Self::ReadWriteOnce, true) => Mode::SingleNodeMultiWriter,
            (Self::ReadWriteOncePod, true) => Mode::SingleNodeSingleWriter,
            (Self::ReadOnlyMany, _) => Mode::MultiNodeReaderOnly,
            (Self::ReadWriteMany, _) => Mode::MultiNodeMultiWriter,
            (Self::Unknown, _) => Mode::Unknown,
        }
    }
}

/// What a volume is used as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// A file system.
    Mount {
        /// Its type; empty: the driver's choice.
        fs_type: String,
        /// Mount options, with the SELinux context where the driver takes it.
        flags: Vec<String>,
        /// The pod's group, told to drivers that apply it.
        group: Option<i64>,
    },
    /// A block device.
    Block,
}

/// How a volume is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The access mode.
    pub mode: AccessMode,
    /// File system or block device.
    pub used_as: Use,
}

impl Default for Access {
    fn default() -> Self {
        Self::mount(AccessMode::default(), "")
    }
}

impl Access {
    /// A file system without mount options.
    #[must_use]
    pub fn mount(mode: AccessMode, fs_type: impl Into<String>) -> Self {
        Self { mode, used_as: Use::Mount { fs_type: fs_type.into(), flags: Vec::new(), group: None } }
    }

    /// A block device.
    #[must_use]
    pub fn block(mode: AccessMode) -> Self {
        Self { mode, used_as: Use::Block }
    }

    /// What a driver with these capabilities is told. The pod's group is told where the driver applies it and
    /// `with_group` is given: an expansion does not name it.
    pub(super) fn capability(&self, able: &Capabilities, with_group: bool) -> VolumeCapability {
        let access_type = match &self.used_as {
            Use::Block => AccessType::Block(BlockVolume {}),
            Use::Mount { fs_type, flags, group } => {
                let group = group.filter(|_| with_group && able.volume_mount_group);
                AccessType::Mount(MountVolume {
                    fs_type: fs_type.clone(),
                    mount_flags: flags.clone(),
                    volume_mount_group: group.map(|group| group.to_string()).unwrap_or_default(),
                })
            }
        };
        let mode = ModeOnWire { mode: self.mode.on_wire(able).into() };
        VolumeCapability { access_mode: Some(mode), access_type: Some(access_type) }
    }
}

/// The mount option that labels a file system with an SELinux context, quoted since a context may have a comma in it.
#[must_use]
pub fn se_linux_option(context: &str) -> String {
    format!("context={}", go_quoted(context))
}

/// A text as Go's `%q` writes it, for the characters that a context may have.
pub(super) fn go_quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_told_as_the_driver_understands_them() {
        let plain = Capabilities::default();
        let fine = Capabilities { single_node_multi_writer: true, ..plain };
        let rows = [
            ("ReadWriteOnce", Mode::SingleNodeWriter, Mode::SingleNodeMultiWriter),
            ("ReadOnlyMany", Mode::MultiNodeReaderOnly, Mode::MultiNodeReaderOnly),
            ("ReadWriteMany", Mode::MultiNodeMultiWriter, Mode::MultiNodeMultiWriter),
            ("ReadWriteOncePod", Mode::SingleNodeWriter, Mode::SingleNodeSingleWriter),
            ("Other", Mode::Unknown, Mode::Unknown),
        ];
        for (name, without, with) in rows {
            let mode = AccessMode::named(name);
            assert_eq!((mode.on_wire(&plain), mode.on_wire(&fine)), (without, with), "{name}");
        }
        let modes = ["ReadWriteMany".to_owned(), "ReadOnlyMany".to_owned()];
        assert_eq!(AccessMode::of_volume(Some(&modes)), AccessMode::ReadWriteMany);
        assert_eq!(AccessMode::of_volume(None), AccessMode::ReadWriteOnce);
    }

    #[test]
    fn the_group_is_told_to_drivers_that_apply_it() {
        let used_as = Use::Mount { fs_type: "ext4".into(), flags: vec!["noatime".into()], group: Some(2000) };
        let access = Access { mode: AccessMode::ReadWriteOnce, used_as };
        let group = |able: Capabilities, with| match access.capability(&able, with).access_type {
            Some(AccessType::Mount(mount)) => mount.volume_mount_group,
            other => panic!("{other:?}"),
        };
        let applies = Capabilities { volume_mount_group: true, ..Default::default() };
        let told = [group(applies, true), group(applies, false), group(Capabilities::default(), true)];
        assert_eq!(told, ["2000", "", ""]);
    }

    #[test]
    fn a_context_is_a_quoted_option() {
        let option = se_linux_option("system_u:object_r:container_file_t:s0:c15,c25");
        assert_eq!(option, "context=\"system_u:object_r:container_file_t:s0:c15,c25\"");
    }
}
