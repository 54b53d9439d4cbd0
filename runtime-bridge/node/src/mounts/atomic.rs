//! Projects files into a volume so that they all change at once, in the layout of the Go kubelet (row 10.6): the files
//! are in a directory named after the time, `..data` is a link to that directory and is replaced by a rename, and
//! containers read through links that lead through `..data`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::sys::failed;
use super::{GroupChange, MountError, ProjectedFile, Projection, VolumeGroup, ownership, subpath};
use crate::host::remove_tree;
use crate::tenant_files;

/// The link to the current directory.
pub(super) const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";
/// How often a free name is searched for.
const NAMES_MAX: usize = 16;
const OPERATION: &str = "write the files of the volume";
/// The depth and the number of names up to which the present files are compared, unless the wanted files have more.
const DEPTH_MAX: usize = 64;
const ENTRIES_MAX: usize = 100_000;
/// The flags to open a directory itself, never the target of a link.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Checks that a path stays within its volume and does not begin with two dots, which are reserved for this layout. The
/// errors are in upstream's words.
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

/// The first segments of all paths: the names in the volume's directory.
pub(super) fn visible<'a>(paths: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let first = |path: &'a str| path.split('/').find(|part| !part.is_empty() && *part != ".");
    paths.filter_map(first).collect()
}

/// Projects the files into the volume; returns whether anything had to be written.
///
/// A pod that mounts the node's directories may write into any volume, and the kubelet reads and removes there as root.
/// So every access goes through the descriptor of the volume's directory, and no link in it is followed.
pub(super) fn project(volume: &Path, projection: &Projection) -> Result<bool, MountError> {
    for path in projection.files.keys() {
        check_name(path).map_err(|reason| MountError::Refused { reason })?;
    }
    let refused = |errno: Errno| failed(OPERATION, volume)(errno.into());
    let root = rustix::fs::open(volume, DIRECTORY, Mode::empty()).map_err(refused)?;
    let before = current(&root).map_err(refused)?;
    let is_current = match &before {
        Some(before) => shows(&root, before, projection).map_err(refused)?,
        None => false,
    };
    if !is_current {
        publish(volume, &root, projection)?;
    }
    show(&root, projection).map_err(refused)?;
    if let Some(before) = before.filter(|_| !is_current) {
        unshow(&root, &before, projection).map_err(refused)?;
        remove_tree::remove_tree(&volume.join(before))?;
    }
    Ok(!is_current)
}

/// The name of the current directory; `None` if the link leads out of the volume.
fn current(root: &OwnedFd) -> Result<Option<String>, Errno> {
    let target = match rustix::fs::readlinkat(root, DATA, Vec::new()) {
        Err(Errno::NOENT) => return Ok(None),
        target => target?.into_string().unwrap_or_default(),
    };
    let is_ours = target.starts_with("..") && target.len() > 2 && !target.contains('/') && target != DATA;
    Ok(Some(target).filter(|_| is_ours))
}

/// Whether a directory of the volume holds exactly these files with this content.
fn shows(root: &OwnedFd, current: &str, projection: &Projection) -> Result<bool, Errno> {
    let directory = match rustix::fs::openat(root, current, DIRECTORY, Mode::empty()) {
        // The directory is gone, or is none.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
        directory => directory?,
    };
    let wanted: BTreeMap<PathBuf, &ProjectedFile> =
        projection.files.iter().map(|(path, file)| (clean(path), file)).collect();
    let deepest = wanted.keys().map(|path| path.iter().count()).max().unwrap_or(0).max(DEPTH_MAX);
    let names = wanted.keys().map(|path| path.iter().count()).sum::<usize>().max(ENTRIES_MAX);
    let mut seen = Seen { found: 0, entries: 0, names, deepest };
    Ok(compare(&directory, Path::new(""), &wanted, &mut seen)? && seen.found == wanted.len())
}

/// What a comparison has seen.
struct Seen {
    /// The number of files that are as wanted.
    found: usize,
    /// The number of names of any kind.
    entries: usize,
    /// The greatest number of names that are compared.
    names: usize,
    /// The greatest depth that is compared.
    deepest: usize,
}

/// Whether every file below a directory is wanted and as wanted. The first difference ends the comparison, so that
/// never more is read than the wanted files have. Empty directories are ignored, since they may be mount points.
fn compare(
    at: &OwnedFd,
    below: &Path,
    wanted: &BTreeMap<PathBuf, &ProjectedFile>,
    seen: &mut Seen,
) -> Result<bool, Errno> {
    if below.iter().count() > seen.deepest {
        return Ok(false);
    }
    for entry in Dir::read_from(at)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        seen.entries += 1;
        let Ok(text) = name.to_str() else { return Ok(false) };
        let path = below.join(text);
        let same = match wanted.get(&path) {
            Some(file) => {
                seen.found += 1;
                holds(at, name, file.content.expose())?
            }
            None => match rustix::fs::openat(at, name, DIRECTORY, Mode::empty()) {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => false,
                child => compare(&child?, &path, wanted, seen)?,
            },
        };
        if !same || seen.entries > seen.names {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the name is a regular file with exactly this content.
fn holds(at: &OwnedFd, name: &CStr, content: &[u8]) -> Result<bool, Errno> {
    let errno = |error: &io::Error| Errno::from_io_error(error).unwrap_or(Errno::IO);
    let file = match tenant_files::read_at(at, name) {
        // A container that leases a file keeps no other content from its volume: the files are written anew, beside it.
        Err(error) if tenant_files::is_no_regular_file(&error) || tenant_files::is_leased(&error) => {
            return Ok(false);
        }
        Err(error) if matches!(errno(&error), Errno::NOENT | Errno::LOOP) => return Ok(false),
        file => file.map_err(|error| errno(&error))?,
    };
    let size = content.len() as u64;
    if file.metadata().map_err(|error| errno(&error))?.len() != size {
        return Ok(false);
    }
    let found = tenant_files::content(file, size).map_err(|error| errno(&error))?;
    Ok(found.is_some_and(|found| found == content))
}

fn clean(path: &str) -> PathBuf {
    path.split('/').filter(|part| !part.is_empty() && *part != ".").collect()
}

/// Writes all files into a new directory and makes it the current one.
fn publish(volume: &Path, root: &OwnedFd, projection: &Projection) -> Result<(), MountError> {
    let refused = |errno: Errno| failed(OPERATION, volume)(errno.into());
    let (name, directory) = new_directory(root).map_err(refused)?;
    let written = write(&directory, projection).map_err(failed(OPERATION, volume)).and_then(|()| {
        match projection.group {
            Some(gid) => {
                let group = VolumeGroup { gid, read_only: true, change: GroupChange::Always };
                ownership::set_group(volume, group, &Default::default())
            }
            None => Ok(()),
        }
    });
    let renamed = written.and_then(|()| {
        // A link that a killed kubelet left behind.
        match rustix::fs::unlinkat(root, NEW_DATA, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(refused(errno)),
        }
        rustix::fs::symlinkat(&name, root, NEW_DATA).map_err(refused)?;
        rustix::fs::renameat(root, NEW_DATA, root, DATA).map_err(refused)
    });
    if renamed.is_err() {
        // The earlier files stay; nothing is left of the new ones.
        let _ = remove_tree::remove_tree(&volume.join(&name));
    }
    renamed
}

/// Makes a directory named after the time, such as `..2026_01_31_12_00_00.1234567890`.
fn new_directory(root: &OwnedFd) -> Result<(String, OwnedFd), Errno> {
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    for _ in 0..NAMES_MAX {
        let mut random = [0; 4];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let name = format!("..{}.{}", now.strftime("%Y_%m_%d_%H_%M_%S"), u32::from_le_bytes(random));
        match rustix::fs::mkdirat(root, &name, Mode::from_raw_mode(0o700)) {
            Ok(()) => {
                let directory = rustix::fs::openat(root, &name, DIRECTORY, Mode::empty())?;
                // Every user may enter, independent of the umask.
                rustix::fs::fchmod(&directory, Mode::from_raw_mode(0o755))?;
                return Ok((name, directory));
            }
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EXIST)
}

fn write(directory: &OwnedFd, projection: &Projection) -> io::Result<()> {
    // Of two spellings of one path the later counts.
    let files: BTreeMap<PathBuf, &_> =
        projection.files.iter().map(|(path, file)| (clean(path), file)).collect();
    for (path, file) in files {
        let mut above = directory.try_clone()?;
        for part in path.parent().into_iter().flat_map(Path::iter) {
            match rustix::fs::mkdirat(&above, part, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            above = rustix::fs::openat(&above, part, DIRECTORY, Mode::empty())?;
        }
        let Some(name) = path.file_name() else { continue };
        let mut open = tenant_files::make_at(&above, name, 0o600)?;
        io::Write::write_all(&mut open, file.content.expose())?;
        if let Some(uid) = file.owner {
            std::os::unix::fs::fchown(&open, Some(uid), None)?;
        }
        open.set_permissions(fs::Permissions::from_mode(file.mode & 0o7777))?;
    }
    Ok(())
}

/// Makes the links through which containers read.
fn show(root: &OwnedFd, projection: &Projection) -> Result<(), Errno> {
    for name in visible(projection.files.keys().map(String::as_str)) {
        match rustix::fs::readlinkat(root, name, Vec::new()) {
            Ok(_) => {}
            Err(Errno::NOENT) => rustix::fs::symlinkat(Path::new(DATA).join(name), root, name)?,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Removes the links to files that are gone.
fn unshow(root: &OwnedFd, before: &str, projection: &Projection) -> Result<(), Errno> {
    let wanted = visible(projection.files.keys().map(String::as_str));
    let earlier = match rustix::fs::openat(root, before, DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        earlier => earlier?,
    };
    for entry in Dir::read_from(&earlier)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") || name.to_str().is_ok_and(|name| wanted.contains(name)) {
            continue;
        }
        // Only links are removed, since only links were made.
        if rustix::fs::readlinkat(root, name, Vec::new()).is_ok() {
            rustix::fs::unlinkat(root, name, AtFlags::empty())?;
        }
    }
    Ok(())
}

/// Makes directories within a volume as mount points of other volumes; containers cannot make them, since this volume
/// is read-only to them.
pub(super) fn make_nested(volume: &Path, nested: &[PathBuf]) -> Result<(), MountError> {
    nested.iter().try_for_each(|path| subpath::make_directory(volume, path, Some(0o755)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use rustix::fs::FileType;

    use super::*;
    use crate::host::SecretContent;
    use crate::tenant_files::tests::Lease;

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
    fn two_spellings_of_a_path_are_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let twice = projection(&[("d//b", "1", 0o644), ("d/b", "2", 0o644)]);
        assert!(project(dir.path(), &twice).unwrap());
        assert_eq!(read(dir.path(), "d/b"), "2");
        assert!(!project(dir.path(), &twice).unwrap());
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

        // The same files again: nothing is written.
        let before = fs::read_link(volume.join(DATA)).unwrap();
        assert!(before.to_str().unwrap().starts_with(".."));
        assert!(!project(volume, &first).unwrap());
        assert_eq!(fs::read_link(volume.join(DATA)).unwrap(), before);

        // Other files: the old directory is removed, and so are links to files that are gone.
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
        // The current directory is gone.
        let current = volume.join(fs::read_link(volume.join(DATA)).unwrap());
        fs::remove_dir_all(current).unwrap();
        assert!(project(volume, &wanted).unwrap());
        assert_eq!(read(volume, "a"), "1");
    }

    #[test]
    fn nothing_outside_the_volume_is_read_or_removed_for_a_link_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("a"), "1").unwrap();
        fs::write(outside.join("other"), "theirs").unwrap();
        let wanted = projection(&[("a", "1", 0o644)]);
        let away = outside.to_str().unwrap();
        for (n, target) in
            [away, "../outside", "..", ".", "..data", "..sub/../../outside", "a"].into_iter().enumerate()
        {
            let volume = dir.path().join(format!("v{n}"));
            fs::create_dir(&volume).unwrap();
            fs::write(volume.join("other"), "stays").unwrap();
            symlink(target, volume.join(DATA)).unwrap();
            // The right files outside the volume do not count.
            assert!(project(&volume, &wanted).unwrap(), "{target}");
            assert_eq!(read(&volume, "a"), "1");
            assert_eq!(read(&volume, "other"), "stays", "{target}");
            assert_eq!(fs::read_dir(&outside).unwrap().count(), 2, "{target}");
        }
        // The current directory is itself a link, or contains one.
        let volume = dir.path().join("linked");
        fs::create_dir(&volume).unwrap();
        symlink(&outside, volume.join("..2026")).unwrap();
        symlink("..2026", volume.join(DATA)).unwrap();
        assert!(project(&volume, &wanted).unwrap());
        assert!(!volume.join("..2026").is_symlink(), "the link itself goes");
        let current = volume.join(fs::read_link(volume.join(DATA)).unwrap());
        fs::remove_file(current.join("a")).unwrap();
        symlink(outside.join("a"), current.join("a")).unwrap();
        assert!(project(&volume, &wanted).unwrap(), "a link is no file");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 2);

        // No directory is made outside either.
        symlink(&outside, volume.join("out")).unwrap();
        make_nested(&volume, &["out/new".into(), "in/new".into()]).unwrap();
        assert!(volume.join("in/new").is_dir() && !outside.join("new").exists());
    }

    #[test]
    fn what_lies_in_the_way_of_a_file_is_neither_waited_for_nor_read_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path();
        let wanted = projection(&[("a", "1", 0o644)]);
        project(volume, &wanted).unwrap();
        let inside = || volume.join(fs::read_link(volume.join(DATA)).unwrap());
        let fifo = inside().join("a");
        fs::remove_file(&fifo).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
        assert!(project(volume, &wanted).unwrap(), "a FIFO");
        // A file without end: sparse, and larger than any memory.
        fs::File::options().write(true).open(inside().join("a")).unwrap().set_len(1 << 42).unwrap();
        assert!(project(volume, &wanted).unwrap(), "a huge file");
        fs::create_dir(inside().join("deep")).unwrap();
        assert!(!project(volume, &wanted).unwrap(), "something may be mounted there");
        fs::write(inside().join("deep/b"), "1").unwrap();
        assert!(project(volume, &wanted).unwrap(), "what nobody wants");
        assert_eq!(read(volume, "a"), "1");
    }

    #[test]
    fn a_lease_on_a_file_is_not_waited_for_and_keeps_no_content_back() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path();
        let wanted = projection(&[("a", "1", 0o644)]);
        project(volume, &wanted).unwrap();
        let leased = fs::canonicalize(volume.join("a")).unwrap();
        let Some(_lease) = Lease::on(&leased) else { return };
        assert!(project(volume, &wanted).unwrap(), "its content is not known: it is written anew");
        assert!(!project(volume, &wanted).unwrap());
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
