//! The labels of containers by this machine's SELinux policy, from which follows how the files of a container are labelled
//! (row 10.24).

use std::fs;
use std::path::{Path, PathBuf};

/// Where the package of container policies keeps the labels of containers.
const CONTEXTS: &str = "usr/share/containers/selinux/contexts";
/// The directory of policies, with the file that names the one in force.
const POLICIES: &str = "etc/selinux";

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
}
