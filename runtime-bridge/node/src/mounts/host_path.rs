use std::str::FromStr;

use super::MountError;

/// The kinds of files, as far as volumes distinguish them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A UNIX domain socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A symbolic link.
    Symlink,
}

/// The field `type` of a hostPath volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostPathType {
    /// Empty: the path is not checked.
    Unset,
    /// A directory that exists.
    Directory,
    /// A directory, made when missing.
    DirectoryOrCreate,
    /// A regular file that exists.
    File,
    /// A regular file, made empty when missing.
    FileOrCreate,
    /// A UNIX domain socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// The outcome of checking a hostPath volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathVerdict {
    Fine,
    MakeDirectory,
    MakeFile,
    /// The path is not of this kind, which is named in the error's words.
    Wrong(&'static str),
}

impl HostPathType {
    /// Judges the kind of file at the path, with links followed; `None` when there is no file.
    pub(super) fn judge(self, found: Option<FileKind>) -> PathVerdict {
        let (wanted, words) = match self {
            Self::Unset => return PathVerdict::Fine,
            Self::DirectoryOrCreate if found.is_none() => return PathVerdict::MakeDirectory,
            Self::FileOrCreate if found.is_none() => return PathVerdict::MakeFile,
            Self::Directory | Self::DirectoryOrCreate => (FileKind::Directory, "directory"),
            Self::File | Self::FileOrCreate => (FileKind::File, "file"),
            Self::Socket => (FileKind::Socket, "socket file"),
            Self::CharDevice => (FileKind::CharDevice, "character device"),
            Self::BlockDevice => (FileKind::BlockDevice, "block device"),
        };
        if found == Some(wanted) { PathVerdict::Fine } else { PathVerdict::Wrong(words) }
    }
}

impl FromStr for HostPathType {
    type Err = MountError;

    /// Reads the API's name of a type; the empty string is [`HostPathType::Unset`].
    fn from_str(word: &str) -> Result<Self, MountError> {
        Ok(match word {
            "" => Self::Unset,
            "Directory" => Self::Directory,
            "DirectoryOrCreate" => Self::DirectoryOrCreate,
            "File" => Self::File,
            "FileOrCreate" => Self::FileOrCreate,
            "Socket" => Self::Socket,
            "CharDevice" => Self::CharDevice,
            "BlockDevice" => Self::BlockDevice,
            _ => return Err(MountError::InvalidHostPathType(word.to_owned())),
        })
    }
}
