//! Reads what the kernel tells of disks and of sessions with iSCSI targets. What goes while it is read is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{BlockDisk, DiskLink, DisksError, IscsiSession, LinksBy, Partition, SeenDisks};

/// The most entries of one directory that are read.
const ENTRIES_MAX: usize = 1 << 16;
/// How the number of a map that joins several ways to one disk begins.
const MULTIPATH: &str = "mpath-";

/// Where the kernel and udev tell.
#[derive(Clone, Debug)]
pub(super) struct Roots {
    /// `/sys`.
    pub sys: PathBuf,
    /// `/dev`.
    pub dev: PathBuf,
    /// `/proc/swaps`.
    pub swaps: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { sys: "/sys".into(), dev: "/dev".into(), swaps: "/proc/swaps".into() }
    }
}

fn names(dir: &Path) -> Result<Vec<String>, DisksError> {
    match fs::read_dir(dir) {
        Ok(entries) => {
            let names = entries.flatten().take(ENTRIES_MAX);
            let mut names: Vec<String> =
                names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
            names.sort();
            Ok(names)
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => {
            let (path, reason) = (dir.to_path_buf(), error.to_string());
            Err(DisksError::Io { operation: "read", path, reason })
        }
    }
}

/// The names in a directory that may go at any time.
fn some_names(dir: &Path) -> Vec<String> {
    names(dir).unwrap_or_default()
}

fn text(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}

/// PURE: the number of a name such as `host7`.
fn numbered(name: &str, kind: &str) -> Option<u32> {
    name.strip_prefix(kind)?.parse().ok()
}

/// PURE: address and port together, an address of IPv6 in brackets.
fn portal(address: &str, port: &str) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// PURE: a device's number as the kernel writes it.
fn number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

impl Roots {
    /// Everything.
    pub fn look(&self) -> Result<SeenDisks, DisksError> {
        let mut disks = BTreeMap::new();
        let mut loops = BTreeSet::new();
        for name in names(&self.sys.join("block"))? {
            let dir = self.sys.join("block").join(&name);
            if let Some(file) = text(&dir.join("loop/backing_file")) {
                loops.insert(PathBuf::from(file));
            }
            if let Some(disk) = self.disk(&name) {
                disks.insert(name, disk);
            }
        }
        let hosts = names(&self.sys.join("class/scsi_host"))?;
        Ok(SeenDisks {
            sessions: self.sessions()?,
            links: self.links()?,
            disks,
            hosts: hosts.iter().filter_map(|name| numbered(name, "host")).collect(),
            swaps: self.swaps()?,
            loops,
        })
    }

    /// One block device; `None` if it is gone.
    pub fn disk(&self, name: &str) -> Option<BlockDisk> {
        let dir = self.sys.join("block").join(name);
        let number = number(&text(&dir.join("dev"))?)?;
        let device = fs::read_link(dir.join("device")).ok();
        let address = device.and_then(|device| Some(device.file_name()?.to_str()?.to_owned()));
        let is_address = |address: &String| {
            address.split(':').count() == 4
                && address.bytes().all(|byte| byte.is_ascii_digit() || byte == b':')
        };
        let set = |below: &str| some_names(&dir.join(below)).into_iter().collect();
        let parts = some_names(&dir).into_iter().filter_map(|part| {
            let below = dir.join(&part);
            text(&below.join("partition"))?;
            let number = self::number(&text(&below.join("dev"))?)?;
            let holders = some_names(&below.join("holders")).into_iter().collect();
            Some((part, Partition { number, holders }))
        });
        Some(BlockDisk {
            name: name.to_owned(),
            number,
            address: address.filter(is_address).unwrap_or_default(),
            wwid: text(&dir.join("device/wwid")).unwrap_or_default(),
            holders: set("holders"),
            slaves: set("slaves"),
            mapper: text(&dir.join("dm/name")).unwrap_or_default(),
            is_multipath: text(&dir.join("dm/uuid")).is_some_and(|uuid| uuid.starts_with(MULTIPATH)),
            parts: parts.collect(),
        })
    }

    fn links(&self) -> Result<Vec<DiskLink>, DisksError> {
        let mut links = Vec::new();
        for (by, dir) in [(LinksBy::Path, "disk/by-path"), (LinksBy::Id, "disk/by-id")] {
            let dir = self.dev.join(dir);
            for name in names(&dir)? {
                let real = fs::canonicalize(dir.join(&name)).ok();
                let disk = real.and_then(|real| Some(real.file_name()?.to_str()?.to_owned()));
                links.extend(disk.map(|disk| DiskLink { by, name, disk }));
            }
        }
        Ok(links)
    }

    fn swaps(&self) -> Result<BTreeSet<PathBuf>, DisksError> {
        let table = match fs::read_to_string(&self.swaps) {
            Ok(table) => table,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
            Err(error) => {
                let (path, reason) = (self.swaps.clone(), error.to_string());
                return Err(DisksError::Io { operation: "read", path, reason });
            }
        };
        let lines = table.lines().skip(1);
        Ok(lines.filter_map(|line| line.split_whitespace().next()).map(PathBuf::from).collect())
    }

    fn sessions(&self) -> Result<Vec<IscsiSession>, DisksError> {
        let class = self.sys.join("class/iscsi_host");
        let mut sessions = Vec::new();
        for name in names(&class)? {
            let Some(host) = numbered(&name, "host") else { continue };
            let device = class.join(&name).join("device");
            let of_host = some_names(&device).into_iter().filter(|name| numbered(name, "session").is_some());
            sessions.extend(of_host.filter_map(|session| session_at(host, &device.join(&session), &session)));
        }
        Ok(sessions)
    }
}

/// A session by its directory.
fn session_at(host: u32, dir: &Path, name: &str) -> Option<IscsiSession> {
    let told = dir.join("iscsi_session").join(name);
    let mut portals = BTreeSet::new();
    let mut disks = BTreeMap::new();
    for below in some_names(dir) {
        if below.starts_with("connection") {
            let of = dir.join(&below).join("iscsi_connection").join(&below);
            for (address, port) in [("address", "port"), ("persistent_address", "persistent_port")] {
                if let (Some(address), Some(port)) = (text(&of.join(address)), text(&of.join(port))) {
                    portals.insert(portal(&address, &port));
                }
            }
        } else if below.starts_with("target") {
            for address in some_names(&dir.join(&below)) {
                let Some(lun) = address.rsplit_once(':').and_then(|(_, lun)| lun.parse().ok()) else {
                    continue;
                };
                let block = dir.join(&below).join(&address).join("block");
                disks.extend(some_names(&block).into_iter().next().map(|disk| (lun, disk)));
            }
        }
    }
    // What the kernel does not have it writes in brackets.
    let known = |file: &str| text(&told.join(file)).filter(|text| text != "(null)" && text != "<NULL>");
    Some(IscsiSession {
        host,
        target: known("targetname")?,
        iface: known("ifacename").unwrap_or_default(),
        username: known("username").unwrap_or_default(),
        portals,
        disks,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn sessions_disks_and_links_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (sys, dev) = (root.join("sys"), root.join("dev"));
        let session = sys.join("class/iscsi_host/host3/device/session1");
        let told = session.join("iscsi_session/session1");
        write(told.join("targetname"), "iqn.2020-01.test:a\n");
        write(told.join("ifacename"), "default\n");
        write(told.join("username"), "(null)\n");
        let connection = session.join("connection1:0/iscsi_connection/connection1:0");
        for (file, text) in [("address", "fd00::1"), ("port", "3260"), ("persistent_address", "10.0.0.1")] {
            write(connection.join(file), text);
        }
        write(connection.join("persistent_port"), "3260\n");
        fs::create_dir_all(session.join("target3:0:0/3:0:0:7/block/sdb")).unwrap();
        write(sys.join("class/scsi_host/host3/scan"), "");
        let sdb = sys.join("block/sdb");
        write(sdb.join("dev"), "8:16\n");
        let of_device = sys.join("devices/3:0:0:7");
        write(of_device.join("wwid"), "naa.6001\n");
        symlink(&of_device, sdb.join("device")).unwrap();
        write(sdb.join("sdb1/partition"), "1");
        write(sdb.join("sdb1/dev"), "8:17");
        write(sdb.join("holders/dm-0"), "");
        write(sys.join("block/dm-0/dev"), "253:0");
        write(sys.join("block/dm-0/dm/uuid"), "mpath-36001");
        write(sys.join("block/dm-0/dm/name"), "mpatha");
        write(sys.join("block/dm-0/slaves/sdb"), "");
        write(sys.join("block/loop0/loop/backing_file"), "/dev/sdc\n");
        write(dev.join("sdb"), "");
        fs::create_dir_all(dev.join("disk/by-path")).unwrap();
        symlink("../../sdb", dev.join("disk/by-path/ip-x-lun-7")).unwrap();
        symlink("../../gone", dev.join("disk/by-path/dangling")).unwrap();
        write(root.join("swaps"), "Filename Type Size Used Priority\n/dev/sdd2 partition 1 0 -2\n");

        let seen = Roots { sys, dev, swaps: root.join("swaps") }.look().unwrap();
        let one = &seen.sessions[0];
        assert_eq!((one.host, one.target.as_str(), one.iface.as_str()), (3, "iqn.2020-01.test:a", "default"));
        assert_eq!((one.username.as_str(), one.disks[&7].as_str()), ("", "sdb"));
        assert_eq!(one.portals, ["10.0.0.1:3260", "[fd00::1]:3260"].map(str::to_owned).into());
        let disk = &seen.disks["sdb"];
        assert_eq!(
            (disk.number, disk.address.as_str(), disk.wwid.as_str()),
            ((8, 16), "3:0:0:7", "naa.6001")
        );
        assert_eq!((disk.parts["sdb1"].number, disk.holders.contains("dm-0")), ((8, 17), true));
        assert!(seen.disks["dm-0"].is_multipath && seen.disks["dm-0"].slaves.contains("sdb"));
        assert_eq!(seen.links.len(), 1, "a link that leads nowhere is none: {:?}", seen.links);
        assert_eq!(seen.links[0].disk, "sdb");
        assert!(seen.swaps.contains(Path::new("/dev/sdd2")) && seen.loops.contains(Path::new("/dev/sdc")));
        assert_eq!(seen.hosts, [3].into());
    }

    #[test]
    fn a_node_without_such_disks_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let roots = Roots { sys: at("sys"), dev: at("dev"), swaps: at("swaps") };
        assert_eq!(roots.look(), Ok(SeenDisks::default()));
    }
}
