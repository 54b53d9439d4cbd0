//! Files that appear and change all at once, as containers and the Go kubelet know them (FEATURES 10.6): they lie in a
//! directory named after the time, `..data` is a link to it that is renamed over the earlier one, and what containers
//! read are links through `..data`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};

use super::sys::failed;
use super::{GroupChange, MountError, Projection, VolumeGroup, ownership};

/// The link to the directory that counts.
pub(super) const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";
/// Tries to find a name that is free.
const NAMES_MAX: usize = 16;
const OPERATION: &str = "write the files of the volume";

/// A path within a volume must stay in it, and names with two dots in front are for the machinery. In upstream's words.
pub(super) fn check_name(path: &str) -> Result<(), String> {
    if path.is_empty() {
        return Err("invalid path: must not be empty: \"\"".to_owned());
    }
    if path.starts_with('/') {
        return Err(format!("invalid path: must be relative path: {path}"));
    }
    if path.len() > 4096 {
        return Err("invalid path: must be less than or equal to 4096 characters".to_owned());
    }
    for part in path.split('/') {
        if part == ".." {
            return Err(format!("invalid path: must not contain '..': {path}"));
        }
        if part.len() > 255 {
            return Err("invalid path: filenames must be less than or equal to 255 characters".to_owned());
        }
    }
    if path.starts_with("..") {
        return Err(format!("invalid path: must not start with '..': {path}"));
    }
    Ok(())
}

/// The first parts of all paths: what is seen in the volume's directory.
pub(super) fn visible<'a>(paths: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let first = |path: &'a str| path.split('/').find(|part| !part.is_empty() && *part != ".");
    paths.filter_map(first).collect()
}

/// Does it. Says whether anything had to be written.
pub(super) fn project(volume: &Path, projection: &Projection) -> Result<bool, MountError> {
    for path in projection.files.keys() {
        check_name(path).map_err(|reason| MountError::Refused { reason })?;
    }
    let refused = |error: io::Error| failed(OPERATION, volume)(error);
    let before = match fs::read_link(volume.join(DATA)) {
        Ok(before) => Some(before),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(refused(error)),
    };
    let current = before.as_ref().map(|before| volume.join(before));
    let is_current = match &current {
        Some(current) => shows(current, projection).map_err(refused)?,
        None => false,
    };
    if !is_current {
        publish(volume, projection)?;
    }
    show(volume, projection).map_err(refused)?;
    if let Some(before) = before.filter(|_| !is_current) {
        unshow(volume, &before, projection).map_err(refused)?;
    }
    Ok(!is_current)
}

/// Whether a directory holds these files with this content, and no others.
fn shows(current: &Path, projection: &Projection) -> io::Result<bool> {
    let mut found = BTreeSet::new();
    if !list(current, Path::new(""), &mut found)? {
        return Ok(false);
    }
    let wanted: BTreeSet<PathBuf> = projection.files.keys().map(|path| clean(path)).collect();
    if found != wanted {
        return Ok(false);
    }
    for (path, file) in &projection.files {
        if fs::read(current.join(clean(path)))? != *file.content.expose() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The files below a directory, relative to it. False if there is no such directory.
fn list(root: &Path, below: &Path, found: &mut BTreeSet<PathBuf>) -> io::Result<bool> {
    let entries = match fs::read_dir(root.join(below)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            list(root, &path, found)?;
        } else {
            found.insert(path);
        }
    }
    Ok(true)
}

fn clean(path: &str) -> PathBuf {
    path.split('/').filter(|part| !part.is_empty() && *part != ".").collect()
}

/// Writes all files into a new directory and makes it the one that counts.
fn publish(volume: &Path, projection: &Projection) -> Result<(), MountError> {
    let refused = |error: io::Error| failed(OPERATION, volume)(error);
    let (name, directory) = new_directory(volume).map_err(refused)?;
    let written = write(&directory, projection).map_err(refused).and_then(|()| match projection.group {
        Some(gid) => {
            let group = VolumeGroup { gid, read_only: true, change: GroupChange::Always };
            ownership::set_group(volume, group)
        }
        None => Ok(()),
    });
    let renamed = written.and_then(|()| {
        let next = volume.join(NEW_DATA);
        // Left by a kubelet that ended just here.
        match fs::remove_file(&next) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(refused(error)),
            _ => {}
        }
        symlink(&name, &next).map_err(refused)?;
        fs::rename(&next, volume.join(DATA)).map_err(refused)
    });
    if renamed.is_err() {
        // The earlier files stay; of the new ones nothing is left behind.
        let _ = fs::remove_dir_all(&directory);
    }
    renamed
}

/// Makes a directory named after the time, such as `..2026_01_31_12_00_00.1234567890`.
fn new_directory(volume: &Path) -> io::Result<(String, PathBuf)> {
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    for _ in 0..NAMES_MAX {
        let mut random = [0; 4];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let name = format!("..{}.{}", now.strftime("%Y_%m_%d_%H_%M_%S"), u32::from_le_bytes(random));
        let directory = volume.join(&name);
        match fs::DirBuilder::new().mode(0o700).create(&directory) {
            Ok(()) => {
                // Everybody may enter, whatever the umask.
                fs::set_permissions(&directory, fs::Permissions::from_mode(0o755))?;
                return Ok((name, directory));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("no name is free"))
}

fn write(directory: &Path, projection: &Projection) -> io::Result<()> {
    for (path, file) in &projection.files {
        let path = directory.join(clean(path));
        if let Some(above) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o777).create(above)?;
        }
        let mut options = fs::OpenOptions::new();
        let mut open = options.write(true).create_new(true).mode(0o600).open(&path)?;
        io::Write::write_all(&mut open, file.content.expose())?;
        if let Some(uid) = file.owner {
            std::os::unix::fs::fchown(&open, Some(uid), None)?;
        }
        open.set_permissions(fs::Permissions::from_mode(file.mode & 0o7777))?;
    }
    Ok(())
}

/// Makes the links that containers read through.
fn show(volume: &Path, projection: &Projection) -> io::Result<()> {
    for name in visible(projection.files.keys().map(String::as_str)) {
        let link = volume.join(name);
        if let Err(error) = fs::read_link(&link) {
            if error.kind() != io::ErrorKind::NotFound {
                return Err(error);
            }
            symlink(Path::new(DATA).join(name), &link)?;
        }
    }
    Ok(())
}

/// Takes away the links to what is no longer there, and the directory that counted before.
fn unshow(volume: &Path, before: &Path, projection: &Projection) -> io::Result<()> {
    let wanted = visible(projection.files.keys().map(String::as_str));
    let earlier = volume.join(before);
    let entries = match fs::read_dir(&earlier) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let name = entry?.file_name();
        if !name.to_str().is_some_and(|name| wanted.contains(name)) {
            match fs::remove_file(volume.join(&name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    fs::remove_dir_all(&earlier)
}

/// Makes directories within a volume for what other volumes are mounted at below it: containers cannot, since they may
/// only read this one.
pub(super) fn make_nested(volume: &Path, nested: &[PathBuf]) -> Result<(), MountError> {
    for path in nested {
        let path = volume.join(path);
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(&path);
        made.map_err(failed("make a nested mount point", &path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::host::SecretContent;
    use crate::mounts::ProjectedFile;

    fn projection(files: &[(&str, &str, u32)]) -> Projection {
        let file = |(path, content, mode): &(&str, &str, u32)| {
            let content = SecretContent::new(content.as_bytes());
            ((*path).to_owned(), ProjectedFile { content, mode: *mode, owner: None })
        };
        Projection { files: files.iter().map(file).collect(), group: None, nested: Vec::new() }
    }

    fn names(volume: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(volume)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .map(|name| if name.starts_with("..2") { "..TIME".to_owned() } else { name })
            .collect();
        names.sort();
        names
    }

    fn read(volume: &Path, path: &str) -> String {
        fs::read_to_string(volume.join(path)).unwrap()
    }

    #[test]
    fn files_are_seen_through_the_link_and_change_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path();
        let first = projection(&[("a", "1", 0o644), ("d/b", "2", 0o400), ("d/e/c", "3", 0o444)]);
        assert!(project(volume, &first).unwrap());
        assert_eq!(names(volume), ["..TIME", "..data", "a", "d"]);
        assert_eq!(fs::read_link(volume.join("a")).unwrap(), Path::new("..data/a"));
        assert_eq!(fs::read_link(volume.join("d")).unwrap(), Path::new("..data/d"));
        assert_eq!((read(volume, "a").as_str(), read(volume, "d/e/c").as_str()), ("1", "3"));
        let mode = |path: &str| fs::metadata(volume.join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("a"), mode("d/b"), mode("..data")), (0o644, 0o400, 0o755));

        // The same again writes nothing.
        let before = fs::read_link(volume.join(DATA)).unwrap();
        assert!(before.to_str().unwrap().starts_with(".."));
        assert!(!project(volume, &first).unwrap());
        assert_eq!(fs::read_link(volume.join(DATA)).unwrap(), before);

        // Something else: the old directory goes, and so do links to what is gone.
        let second = projection(&[("a", "other", 0o600), ("n", "new", 0o644)]);
        assert!(project(volume, &second).unwrap());
        assert_ne!(fs::read_link(volume.join(DATA)).unwrap(), before);
        assert_eq!(names(volume), ["..TIME", "..data", "a", "n"]);
        assert_eq!((read(volume, "a").as_str(), read(volume, "n").as_str()), ("other", "new"));
        assert!(project(volume, &projection(&[])).unwrap());
        assert_eq!(names(volume), ["..TIME", "..data"]);
    }

    #[test]
    fn a_file_that_is_gone_is_a_change_even_below_a_directory_that_stays() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path();
        project(volume, &projection(&[("d/a", "1", 0o644), ("d/b", "2", 0o644)])).unwrap();
        assert!(project(volume, &projection(&[("d/a", "1", 0o644)])).unwrap());
        assert!(!volume.join("d/b").exists());
        assert_eq!(read(volume, "d/a"), "1");
    }

    #[test]
    fn what_a_kubelet_left_half_done_is_done_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path();
        let wanted = projection(&[("a", "1", 0o644)]);
        symlink("..nowhere", volume.join(NEW_DATA)).unwrap();
        assert!(project(volume, &wanted).unwrap());
        fs::remove_file(volume.join("a")).unwrap();
        assert!(!project(volume, &wanted).unwrap());
        assert_eq!(read(volume, "a"), "1", "a link that is missing is made");
        // The directory that counts is gone.
        let current = volume.join(fs::read_link(volume.join(DATA)).unwrap());
        fs::remove_dir_all(current).unwrap();
        assert!(project(volume, &wanted).unwrap());
        assert_eq!(read(volume, "a"), "1");
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["", "/etc/passwd", "../x", "a/../../x", "..data", "..x/y"] {
            let error = project(dir.path(), &projection(&[(path, "", 0o644)])).unwrap_err().to_string();
            assert!(error.starts_with("invalid path: must "), "{path}: {error}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was written");
        assert!(project(dir.path(), &projection(&[("a/..b", "fine", 0o644)])).unwrap());
    }

    #[test]
    fn files_are_their_users_and_their_groups() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root gives files away");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut wanted = projection(&[("token", "t", 0o600), ("shared", "s", 0o600)]);
        wanted.files.get_mut("token").unwrap().owner = Some(1001);
        wanted.group = Some(2002);
        project(dir.path(), &wanted).unwrap();
        let found = |path: &str| {
            let found = fs::metadata(dir.path().join(path)).unwrap();
            (found.uid(), found.gid(), found.permissions().mode() & 0o7777)
        };
        assert_eq!(found("token"), (1001, 2002, 0o640));
        assert_eq!(found("shared"), (0, 2002, 0o640));
        assert_eq!(found("..data").1, 2002);
    }
}
