//! The labels of containers by this machine's SELinux policy, from which follows how the files of a container are labelled
//! (row 10.24), and the label of the directories in which containers put the sockets of plugins (row 17.4).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the package of container policies keeps the labels of containers.
const CONTEXTS: &str = "usr/share/containers/selinux/contexts";
/// The directory of policies, with the file that names the one in force.
const POLICIES: &str = "etc/selinux";

/// The label of directories that plugins in unprivileged containers use.
const PLUGINS_LABEL: &str = "system_u:object_r:container_file_t:s0";

/// Labels the directories of plugins, and returns a warning for each that could not be. `set` sets a label.
pub(super) fn label_plugin_dirs(
    dirs: &[PathBuf],
    set: impl Fn(&Path, &str) -> io::Result<()>,
) -> Vec<String> {
    let label = |dir: &PathBuf| {
        let error = set(dir, PLUGINS_LABEL).err()?;
        let dir = dir.display();
        Some(format!(
            "unprivileged containerized plugins might not work: could not set the SELinux label {PLUGINS_LABEL} \
             of {dir}: {error}"
        ))
    };
    dirs.iter().filter_map(label).collect()
}

/// Sets the label of a file or directory.
pub(super) fn set_label(path: &Path, label: &str) -> io::Result<()> {
    let flags = rustix::fs::XattrFlags::empty();
    Ok(rustix::fs::setxattr(path, "security.selinux", label.as_bytes(), flags)?)
}

/// A label: user, role, type and, where the policy has levels, the level.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Label {
    user: String,
    role: String,
    kind: String,
    level: Option<String>,
}

impl Label {
    /// A level has colons of its own.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ':').map(str::to_owned);
        let label =
            Self { user: parts.next()?, role: parts.next()?, kind: parts.next()?, level: parts.next() };
        Some(label).filter(|label| !label.user.is_empty() && !label.kind.is_empty())
    }
}

/// The labels that container runtimes give to containers and to their files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelinuxLabels {
    file: Label,
    /// Whether the runtime draws the categories of a container's level unless the container says them.
    draws_levels: bool,
}

impl SelinuxLabels {
    /// The labels of this machine's policy; `None` if it has none, or one that cannot be understood.
    pub fn of_this_machine() -> Option<Self> {
        Self::below(Path::new("/"))
    }

    /// Reads them below another root.
    pub fn below(root: &Path) -> Option<Self> {
        let text = fs::read_to_string(root.join(CONTEXTS));
        Self::parse(&text.or_else(|_| fs::read_to_string(of_policy(root)?)).ok()?)
    }

    /// The labels in a file of them: lines of `key = "label"`, of which `process` and `file` count.
    pub fn parse(text: &str) -> Option<Self> {
        let process = Label::parse(&value(text, "process")?)?;
        Some(Self { file: Label::parse(&value(text, "file")?)?, draws_levels: process.level.is_some() })
    }

    /// The label of the files of a container that asks for this user and level, where it asks for them; `None` if the runtime
    /// draws a part of it. What a container says of role and type is about its processes.
    #[must_use]
    pub fn of_files(&self, user: Option<&str>, level: Option<&str>) -> Option<String> {
        let (user, level) = (user.filter(|user| !user.is_empty()), level.filter(|level| !level.is_empty()));
        if self.draws_levels && level.is_none() {
            return None;
        }
        let Label { user: usual, role, kind, level: usual_level } = &self.file;
        let mut label = format!("{}:{role}:{kind}", user.unwrap_or(usual));
        if let Some(level) = level.or(usual_level.as_deref()) {
            label.push(':');
            label.push_str(level);
        }
        Some(label)
    }
}

/// The file of the policy that is in force.
fn of_policy(root: &Path) -> std::io::Result<PathBuf> {
    let policies = root.join(POLICIES);
    let policy = value(&fs::read_to_string(policies.join("config"))?, "SELINUXTYPE").unwrap_or_default();
    Ok(policies.join(policy).join("contexts/lxc_contexts"))
}

/// The value of a key in lines of `key = "value"`, with comments that begin with `#` or `;`. The last line counts.
fn value(text: &str, key: &str) -> Option<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']));
    let pairs = lines.filter_map(|line| line.split_once('='));
    let mut values = pairs.filter(|(name, _)| name.trim() == key).map(|(_, value)| value);
    values.next_back().map(|value| value.trim().trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::container_facts::tests::machine;

    const LXC: &str = "process = \"system_u:system_r:container_t:s0\"\n; old\n# file = \"x\"\n\n\
                       file = \"system_u:object_r:container_file_t:s0\"\nro_file=\"system_u:object_r:x:s0\"\n";

    #[test]
    fn the_label_of_files_is_known_once_the_container_says_its_level() {
        let policy = "etc/selinux/targeted/contexts/lxc_contexts";
        let root =
            machine(&[("etc/selinux/config", "SELINUX=enforcing\nSELINUXTYPE=targeted\n"), (policy, LXC)]);
        let labels = SelinuxLabels::below(root.path()).unwrap();
        let level = Some("s0:c1,c2");
        let usual = labels.of_files(None, level).unwrap();
        assert_eq!(usual, "system_u:object_r:container_file_t:s0:c1,c2");
        assert_eq!(labels.of_files(Some("u"), level).unwrap(), "u:object_r:container_file_t:s0:c1,c2");
        assert_eq!([labels.of_files(None, None), labels.of_files(Some("u"), Some(""))], [None, None]);
    }

    #[test]
    fn the_package_of_container_policies_goes_first_and_a_policy_may_have_no_levels() {
        let contexts = "process = \"u:r:p_t\"\nfile = \"u:object_r:f_t\"\n";
        let root = machine(&[
            (CONTEXTS, contexts),
            ("etc/selinux/config", "SELINUXTYPE=targeted\n"),
            ("etc/selinux/targeted/contexts/lxc_contexts", LXC),
        ]);
        let labels = SelinuxLabels::below(root.path()).unwrap();
        assert_eq!(labels.of_files(None, None).as_deref(), Some("u:object_r:f_t"));
        assert_eq!(labels.of_files(Some("v"), Some("s1")).as_deref(), Some("v:object_r:f_t:s1"));
    }

    #[test]
    fn a_machine_without_labels_of_containers() {
        for files in
            [&[][..], &[(CONTEXTS, "file = \"u:r:t\"\n")], &[(CONTEXTS, "process = \"x\"\nfile = \"u\"\n")]]
        {
            assert_eq!(SelinuxLabels::below(machine(files).path()), None);
        }
    }

    #[test]
    fn the_directories_of_plugins_are_labelled_and_a_failure_is_told() {
        let labelled = std::cell::RefCell::new(Vec::new());
        let dirs = [PathBuf::from("/k/plugins_registry"), PathBuf::from("/k/plugins")];
        let warnings = label_plugin_dirs(&dirs, |dir, label| {
            if dir.ends_with("plugins") {
                return Err(io::Error::from(io::ErrorKind::ReadOnlyFilesystem));
            }
            labelled.borrow_mut().push((dir.to_path_buf(), label.to_owned()));
            Ok(())
        });
        let label = "system_u:object_r:container_file_t:s0";
        assert_eq!(labelled.into_inner(), [(dirs[0].clone(), label.to_owned())]);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("/k/plugins: read-only"), "{warnings:?}");
    }

    #[test]
    fn a_label_is_an_attribute_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let label = "system_u:object_r:container_file_t:s0";
        match set_label(dir.path(), label) {
            Ok(()) => {
                let mut read = [0; 256];
                let length = rustix::fs::getxattr(dir.path(), "security.selinux", &mut read).unwrap();
                assert_eq!(&read[..length], label.as_bytes());
            }
            // Without privileges, or where the file system keeps no such attributes.
            Err(error) => assert!(
                matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported),
                "{error}"
            ),
        }
        assert!(set_label(&dir.path().join("none"), label).is_err());
    }
}
