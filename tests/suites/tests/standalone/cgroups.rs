//! Cgroups for the kubelets of the suite, in version 2 or in each hierarchy of version 1.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MOUNT: &str = "/sys/fs/cgroup";

/// The directories of a cgroup, one per hierarchy.
fn hierarchies() -> Vec<PathBuf> {
    if version_2() {
        return vec![MOUNT.into()];
    }
    let entries = fs::read_dir(MOUNT).expect("cgroups are mounted").flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir() && !path.is_symlink()).collect()
}

fn below(hierarchy: &Path, cgroup: &str) -> PathBuf {
    hierarchy.join(cgroup.trim_start_matches('/'))
}

/// Creates a cgroup whose parent exists.
pub fn make(cgroup: &str) {
    for hierarchy in hierarchies() {
        let dir = below(&hierarchy, cgroup);
        fs::create_dir_all(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        // A new cpuset of version 1 is empty, and then takes no process.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if dir.join(file).exists() && !dir.join("cgroup.controllers").exists() {
                let inherited = fs::read(dir.join("..").join(file)).expect("the parent has it, too");
                fs::write(dir.join(file), inherited).expect("a cpuset takes its parent's");
            }
        }
        if let Ok(controllers) = fs::read_to_string(dir.join("cgroup.controllers")) {
            let all: Vec<String> = controllers.split_whitespace().map(|name| format!("+{name}")).collect();
            let _partly = fs::write(dir.join("cgroup.subtree_control"), all.join(" "));
        }
    }
}

/// Whether all controllers share one hierarchy.
pub fn version_2() -> bool {
    Path::new(MOUNT).join("cgroup.controllers").exists()
}

/// The content of a file of a cgroup, in the hierarchy that has it.
pub fn value(cgroup: &str, file: &str) -> Option<String> {
    let mut files = hierarchies().into_iter().map(|hierarchy| below(&hierarchy, cgroup).join(file));
    let text = fs::read_to_string(files.find(|file| file.exists())?).ok()?;
    Some(text.trim().to_owned())
}

/// Writes a file of a cgroup, in whichever hierarchy has it.
pub fn write(cgroup: &str, file: &str, text: &str) {
    let mut files = hierarchies().into_iter().map(|hierarchy| below(&hierarchy, cgroup).join(file));
    let file = files.find(|file| file.exists()).unwrap_or_else(|| panic!("{cgroup} has no {file}"));
    fs::write(&file, text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

/// Whether there is a cgroup in any hierarchy.
pub fn exists(cgroup: &str) -> bool {
    hierarchies().into_iter().any(|hierarchy| below(&hierarchy, cgroup).is_dir())
}

/// The cgroups below `cgroup` whose directory's name contains `part`, in any hierarchy.
pub fn named(cgroup: &str, part: &str) -> Vec<PathBuf> {
    let all = hierarchies().into_iter().flat_map(|hierarchy| tree(&below(&hierarchy, cgroup)));
    all.filter(|dir| dir.file_name().is_some_and(|name| name.to_string_lossy().contains(part))).collect()
}

/// The first line of a file of the cgroup below `cgroup` whose directory is named `name`; in version 1 of whichever
/// hierarchy has the file.
pub fn value_of(cgroup: &str, name: &str, file: &str) -> Result<String, String> {
    let dirs = named(cgroup, name);
    let text = dirs.iter().find_map(|dir| fs::read_to_string(dir.join(file)).ok());
    let line = text.and_then(|text| text.lines().next().map(str::to_owned));
    line.ok_or_else(|| format!("no {file} in {dirs:?}"))
}

/// Removes a cgroup with all below it; the error is for people. No process may be in them any more.
pub fn remove(cgroup: &str) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let all = hierarchies().into_iter().flat_map(|hierarchy| tree(&below(&hierarchy, cgroup)));
        let left = all.collect::<Vec<_>>().into_iter().rev().find(|dir| fs::remove_dir(dir).is_err());
        match left {
            None => return Ok(()),
            // The kernel lets go of a cgroup some time after its last process has gone.
            Some(_) if begun.elapsed() < Duration::from_secs(10) => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Some(dir) => return Err(format!("{} cannot be removed", dir.display())),
        }
    }
}

/// A directory and all below it, parents first; empty if it does not exist.
fn tree(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if dir.is_dir() {
        found.push(dir.to_owned());
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        for inner in entries.map(|entry| entry.path()).filter(|path| path.is_dir()) {
            found.extend(tree(&inner));
        }
    }
    found
}
