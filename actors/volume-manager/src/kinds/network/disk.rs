//! PURE: a disk of an iSCSI target or of Fibre Channel as a volume describes it: its ways, its places, and by which access it
//! is had.

use std::collections::BTreeSet;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{FCVolumeSource, Pod};
use pod_rules::volume_plugins::{FC, ISCSI};
use serde_json::json;

use crate::backends::NodeFacts;
use crate::devices::Device;
use crate::source::{Persistent, Source};

/// The most portals, names or numbers that a volume may have.
const WAYS_MAX: usize = 16;
/// The longest name of a file, bytes.
const FILE_NAME_BYTES_MAX: usize = 255;
/// The longest name of a target or an initiator, as iSCSI has it, bytes.
const NAME_BYTES_MAX: usize = 223;
/// The longest name of an interface, bytes.
const IFACE_BYTES_MAX: usize = 200;
/// The highest number of a disk.
const NUMBER_MAX: i32 = 255;
/// The port of a portal that names none.
const PORT: &str = "3260";
/// The file systems that a disk may have: `mount` has no program of its own for any of them, which a pod's author could have
/// it run.
const FS_TYPES: [&str; 12] =
    ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "jfs", "vfat", "iso9660", "udf", "squashfs", "erofs"];

/// A Secret's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SecretName {
    pub namespace: String,
    pub name: String,
}

/// A disk of an iSCSI target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The portals with their ports, each once.
    pub portals: Vec<String>,
    pub iqn: String,
    pub lun: u32,
    /// The interface that the volume names.
    pub init_iface: String,
    /// The interface that is used: one of the volume's own if it has an initiator's name.
    pub iface: String,
    pub initiator: Option<String>,
    pub chap_discovery: bool,
    pub chap_session: bool,
    pub secret: Option<SecretName>,
}

/// A disk of Fibre Channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ids {
    /// Ports of targets and the disk's number there.
    Ports(Vec<String>, u32),
    /// Numbers by which disks know themselves.
    Own(Vec<String>),
}

/// By which way a disk comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Iscsi(Target),
    Fc(Ids),
}

/// A disk as its volume describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Disk {
    pub plugin: &'static str,
    pub way: Way,
    /// Its directory below the plugin's; the Go kubelet's.
    pub dir: String,
    /// The name by which Nodes report it.
    pub reported: String,
    pub fs_type: String,
    pub read_only: bool,
    pub is_block: bool,
    /// The options that people want it mounted with.
    pub options: BTreeSet<String>,
    /// By which names the target is asked for it: volumes with other names share neither the disk nor its sessions. Empty if the
    /// volume names none.
    pub access: String,
}

/// Where a disk is on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// Where its file system is mounted for all pods.
    pub mount: PathBuf,
    /// The directory in which it is mounted for each pod that has it as a block device.
    pub maps: PathBuf,
    /// What this kubelet notes of it.
    pub note: PathBuf,
}

/// The places of a disk with this directory.
///
/// # Errors
/// The directory is none of a disk's.
pub(super) fn places(node: NodeFacts<'_>, plugin: &str, dir: &str) -> Result<Places, String> {
    let is_name =
        |part: &str| !part.is_empty() && !part.starts_with('.') && part.len() <= FILE_NAME_BYTES_MAX;
    let parts = if plugin == ISCSI { 2 } else { 1 };
    if dir.split('/').count() != parts || !dir.split('/').all(is_name) || dir == "volumeDevices" {
        return Err(format!("{dir:?} is not the directory of a disk"));
    }
    let plugins = node.layout.root().join("plugins");
    Ok(Places {
        mount: plugins.join(plugin).join(dir),
        maps: plugins.join(plugin).join("volumeDevices").join(dir),
        note: plugins.join(plugin.replace('/', "~")).join("notes").join(dir).join("note.json"),
    })
}

/// The name of the device of a disk with this directory.
pub(super) fn device(plugin: &str, dir: &str) -> Device {
    format!("{plugin}/{dir}")
}

/// The directory of a device's disk.
pub(super) fn dir_of<'a>(plugin: &str, device: &'a str) -> Option<&'a str> {
    device.strip_prefix(plugin)?.strip_prefix('/')
}

fn text(text: Option<&String>) -> String {
    text.cloned().unwrap_or_default()
}

/// What inline and persistent volumes of iSCSI both say.
struct Described<'a> {
    portal: &'a str,
    portals: &'a [String],
    iqn: &'a str,
    lun: i32,
    iface: Option<&'a String>,
    initiator: Option<&'a String>,
    chap_discovery: bool,
    chap_session: bool,
    secret: Option<SecretName>,
    fs_type: Option<&'a String>,
    read_only: bool,
}

fn described<'a>(source: &'a Source, namespace: &str) -> Option<Described<'a>> {
    macro_rules! described {
        ($iscsi:expr, $secret:expr, $read_only:expr) => {
            Described {
                portal: &$iscsi.target_portal,
                portals: $iscsi.portals.as_deref().unwrap_or_default(),
                iqn: &$iscsi.iqn,
                lun: $iscsi.lun,
                iface: $iscsi.iscsi_interface.as_ref(),
                initiator: $iscsi.initiator_name.as_ref(),
                chap_discovery: $iscsi.chap_auth_discovery == Some(true),
                chap_session: $iscsi.chap_auth_session == Some(true),
                secret: $secret,
                fs_type: $iscsi.fs_type.as_ref(),
                read_only: $read_only,
            }
        };
    }
    match source {
        Source::Inline(volume) => {
            let iscsi = volume.iscsi.as_ref()?;
            let secret = iscsi.secret_ref.as_ref();
            let secret = secret
                .map(|secret| SecretName { namespace: namespace.to_owned(), name: secret.name.clone() });
            Some(described!(iscsi, secret, iscsi.read_only == Some(true)))
        }
        Source::Persistent(persistent) => {
            let iscsi = persistent.spec()?.iscsi.as_ref()?;
            let secret = iscsi.secret_ref.as_ref().map(|secret| {
                let other = text(secret.namespace.as_ref());
                let namespace = if other.is_empty() { namespace.to_owned() } else { other };
                SecretName { namespace, name: text(secret.name.as_ref()) }
            });
            // Of a PersistentVolume its claim says so, as upstream has it.
            Some(described!(iscsi, secret, persistent.read_only))
        }
    }
}

fn fc(source: &Source) -> Option<(&FCVolumeSource, bool)> {
    match source {
        Source::Inline(volume) => volume.fc.as_ref().map(|fc| (fc, fc.read_only == Some(true))),
        Source::Persistent(persistent) => Some((persistent.spec()?.fc.as_ref()?, persistent.read_only)),
    }
}

/// Whether a source is of this plugin.
pub(super) fn serves(plugin: &str, source: &Source) -> bool {
    if plugin == ISCSI { described(source, "").is_some() } else { fc(source).is_some() }
}

fn refuse<T>(what: &str, value: &str) -> Result<T, String> {
    let shown: String = value.chars().take(NAME_BYTES_MAX).collect();
    Err(format!("{shown:?} is no {what}"))
}

fn is_word(text: &str, more: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '[')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
}

fn iscsi_name(what: &str, name: &str) -> Result<String, String> {
    if name.len() > NAME_BYTES_MAX || !is_word(name, "-._:+@=") || name.starts_with('[') {
        return refuse(what, name);
    }
    Ok(name.to_owned())
}

/// A portal with its port.
fn portal(portal: &str) -> Result<String, String> {
    if portal.len() > FILE_NAME_BYTES_MAX || !is_word(portal, "-._:[]") {
        return refuse("portal of a target", portal);
    }
    let has_port = portal.contains(':') && !portal.ends_with(']');
    Ok(if has_port { portal.to_owned() } else { format!("{portal}:{PORT}") })
}

fn number(number: i32) -> Result<u32, String> {
    let found = u32::try_from(number).ok().filter(|_| number <= NUMBER_MAX);
    found.ok_or_else(|| format!("{number} is no number of a disk: it must be between 0 and {NUMBER_MAX}"))
}

impl Target {
    fn of(described: &Described<'_>, spec_name: &str) -> Result<Self, String> {
        let mut portals = vec![portal(described.portal)?];
        if described.portals.len() >= WAYS_MAX {
            return Err(format!("a volume may have at most {WAYS_MAX} portals"));
        }
        for one in described.portals {
            let one = portal(one)?;
            if !portals.contains(&one) {
                portals.push(one);
            }
        }
        let named = described.iface.filter(|iface| !iface.is_empty());
        let init_iface = named.map_or("default", String::as_str);
        if init_iface.len() > IFACE_BYTES_MAX || !is_word(init_iface, "-._:") {
            return refuse("interface of an initiator", init_iface);
        }
        let initiator = described.initiator.filter(|name| !name.is_empty());
        let initiator = initiator.map(|name| iscsi_name("name of an initiator", name)).transpose()?;
        let iface = match &initiator {
            Some(_) => format!("{}:{spec_name}", portals[0]),
            None => init_iface.to_owned(),
        };
        if iface.len() > IFACE_BYTES_MAX || iface.contains('/') {
            return refuse("interface of an initiator", &iface);
        }
        Ok(Self {
            iqn: iscsi_name("name of a target", described.iqn)?,
            lun: number(described.lun)?,
            portals,
            init_iface: init_iface.to_owned(),
            iface,
            initiator,
            chap_discovery: described.chap_discovery,
            chap_session: described.chap_session,
            secret: described.secret.clone().filter(|secret| !secret.name.is_empty()),
        })
    }

    /// Whether the target is asked with a name and a password.
    pub fn has_chap(&self) -> bool {
        self.chap_discovery || self.chap_session
    }

    /// The access by which the disk is had, for a pod in this namespace.
    fn access(&self, namespace: &str) -> String {
        if !self.has_chap() && self.initiator.is_none() {
            return String::new();
        }
        let secret = self.secret.as_ref().filter(|_| self.has_chap());
        let owner = match secret {
            Some(SecretName { namespace, name }) => format!("{namespace}/{name}"),
            None => namespace.to_owned(),
        };
        json!([self.initiator, self.init_iface, self.chap_discovery, self.chap_session, owner]).to_string()
    }

    fn dir(&self) -> String {
        format!("iface-{}/{}-{}-lun-{}", self.iface, self.portals[0], self.iqn, self.lun)
    }

    /// The path of the disk at one of the portals, as udev names it.
    pub fn by_path(&self, portal: &str) -> String {
        format!("/dev/disk/by-path/ip-{portal}-iscsi-{}-lun-{}", self.iqn, self.lun)
    }
}

impl Ids {
    fn of(fc: &FCVolumeSource) -> Result<Self, String> {
        let wwns = fc.target_wwns.as_deref().unwrap_or_default();
        let wwids = fc.wwids.as_deref().unwrap_or_default();
        if wwns.len().max(wwids.len()) > WAYS_MAX {
            return Err(format!("a volume may have at most {WAYS_MAX} names of disks"));
        }
        if let Some(lun) = fc.lun.filter(|_| !wwns.is_empty()) {
            if let Some(odd) = wwns.iter().find(|wwn| !is_word(wwn, "")) {
                return refuse("name of a port", odd);
            }
            return Ok(Self::Ports(wwns.to_vec(), number(lun)?));
        }
        let wwids: Vec<String> = wwids.iter().map(|wwid| wwid.replace(' ', "_")).collect();
        if let Some(odd) = wwids.iter().find(|wwid| !is_word(wwid, "-._:+")) {
            return refuse("number of a disk", odd);
        }
        if wwids.is_empty() {
            return Err("fc: no fc disk information found. failed to make a new mounter".to_owned());
        }
        Ok(Self::Own(wwids))
    }

    fn dir(&self) -> String {
        match self {
            Self::Ports(wwns, lun) => format!("{}-lun-{lun}", wwns.join("-")),
            Self::Own(wwids) => wwids.join("-"),
        }
    }

    fn reported(&self) -> String {
        match self {
            Self::Ports(wwns, lun) => format!("{FC}/[{}]:{lun}", wwns.join(" ")),
            Self::Own(wwids) => format!("{FC}/[{}]", wwids.join(" ")),
        }
    }
}

impl Disk {
    /// The disk of a source, for a pod.
    ///
    /// # Errors
    /// It is none, or what it says cannot be.
    pub fn of(plugin: &'static str, source: &Source, pod: &Pod) -> Result<Self, String> {
        let namespace = text(pod.metadata.namespace.as_ref());
        let (way, dir, reported, access, fs_type, read_only) = if plugin == ISCSI {
            let described =
                described(source, &namespace).ok_or("Spec does not reference an ISCSI volume type")?;
            let target = Target::of(&described, source.spec_name())?;
            let reported = format!("{ISCSI}/{}:{}:{}", described.portal, target.iqn, target.lun);
            let (dir, access) = (target.dir(), target.access(&namespace));
            let fs_type = text(described.fs_type);
            (Way::Iscsi(target), dir, reported, access, fs_type, described.read_only)
        } else {
            let (fc, read_only) = fc(source).ok_or("Spec does not reference a FibreChannel volume type")?;
            let ids = Ids::of(fc)?;
            let (dir, reported, fs_type) = (ids.dir(), ids.reported(), text(fc.fs_type.as_ref()));
            (Way::Fc(ids), dir, reported, String::new(), fs_type, read_only)
        };
        let is_block = source.is_block();
        if !is_block && !fs_type.is_empty() && !FS_TYPES.contains(&fs_type.as_str()) {
            return refuse("file system that a disk of a network may have", &fs_type);
        }
        if dir.split('/').any(|part| part.len() > FILE_NAME_BYTES_MAX) {
            return Err("the names of the disk are too long to be those of a directory".to_owned());
        }
        let options = source.persistent().map(Persistent::mount_options).unwrap_or_default();
        Ok(Self { plugin, way, dir, reported, fs_type, read_only, is_block, options, access })
    }

    /// The name of its device, by which work on it takes its turn.
    pub fn device(&self) -> Device {
        device(self.plugin, &self.dir)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::tests::{inline, persistent, pod};

    fn of(plugin: &'static str, source: &Source) -> Result<Disk, String> {
        let mut pod = pod();
        pod.metadata.namespace = Some("team".to_owned());
        Disk::of(plugin, source, &pod)
    }

    fn iscsi(more: Value) -> Result<Disk, String> {
        let mut source = json!({"targetPortal": "10.0.0.1", "iqn": "iqn.2020-01.test:a", "lun": 3});
        source.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        of(ISCSI, &inline(&json!({"name": "v", "iscsi": source})))
    }

    fn target(disk: Result<Disk, String>) -> Target {
        match disk.expect("a disk").way {
            Way::Iscsi(target) => target,
            Way::Fc(_) => panic!("it is of iSCSI"),
        }
    }

    #[test]
    fn a_disk_of_a_target_lies_and_is_reported_where_the_go_kubelet_has_it() {
        let disk = iscsi(json!({"portals": ["10.0.0.2:3261", "10.0.0.1:3260"]})).expect("a disk");
        assert_eq!(disk.dir, "iface-default/10.0.0.1:3260-iqn.2020-01.test:a-lun-3");
        assert_eq!(disk.reported, "kubernetes.io/iscsi/10.0.0.1:iqn.2020-01.test:a:3");
        assert_eq!(disk.access, "", "it asks for no name");
        let target = target(Ok(disk));
        assert_eq!(target.portals, ["10.0.0.1:3260", "10.0.0.2:3261"], "each once");
        assert_eq!(
            target.by_path("10.0.0.1:3260"),
            "/dev/disk/by-path/ip-10.0.0.1:3260-iscsi-iqn.2020-01.test:a-lun-3"
        );
        let six = iscsi(json!({"targetPortal": "[fd00::1]"})).expect("a disk");
        assert_eq!(six.dir, "iface-default/[fd00::1]:3260-iqn.2020-01.test:a-lun-3");
        let named = iscsi(json!({"initiatorName": "iqn.2020-01.test:me"})).expect("a disk");
        assert!(named.dir.starts_with("iface-10.0.0.1:3260:v/"), "{}", named.dir);
        let layout = bridge_node::host::Layout::new("/r", "/l", "").expect("it is canonical");
        let node = NodeFacts { layout: &layout, allocatable_memory_bytes: 0, in_cluster: true };
        let places = places(node, ISCSI, &named.dir).expect("places");
        assert!(places.mount.starts_with("/r/plugins/kubernetes.io/iscsi/iface-10.0.0.1:3260:v"));
        assert!(super::places(node, ISCSI, "iface-a/..").is_err() && super::places(node, FC, "a/b").is_err());
    }

    #[test]
    fn another_name_is_another_access() {
        let chap = |more: Value| {
            let mut source = json!({"chapAuthSession": true, "secretRef": {"name": "s"}});
            source.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
            iscsi(source).expect("a disk").access
        };
        let usual = chap(json!({}));
        assert!(usual.contains("team/s"), "{usual}");
        for other in [
            json!({"secretRef": {"name": "t"}}),
            json!({"initiatorName": "iqn.2020-01.test:me"}),
            json!({"chapAuthDiscovery": true}),
            json!({"chapAuthSession": false}),
        ] {
            assert_ne!(chap(other.clone()), usual, "{other}");
        }
        let spec = json!({"iscsi": {"targetPortal": "p:1", "iqn": "iqn.2020-01.test:a", "lun": 0, "fsType": "xfs",
            "readOnly": true, "chapAuthSession": true, "secretRef": {"name": "s", "namespace": "other"}},
            "mountOptions": ["noatime"]});
        let disk = of(ISCSI, &persistent(spec, false)).expect("a disk");
        assert!(!disk.read_only && disk.access.contains("other/s"), "its claim decides: {disk:?}");
        assert_eq!(disk.options, ["noatime".to_owned()].into());
    }

    #[test]
    fn what_could_lead_elsewhere_or_run_a_program_is_refused() {
        let many: Vec<String> = (0..16).map(|n| format!("10.0.1.{n}")).collect();
        for odd in [
            json!({"targetPortal": "-x"}),
            json!({"targetPortal": "a/b"}),
            json!({"targetPortal": ""}),
            json!({"portals": ["a b"]}),
            json!({"portals": many}),
            json!({"iqn": "iqn.2020-01.test:../../x"}),
            json!({"iqn": "x".repeat(224)}),
            json!({"iqn": "--login"}),
            json!({"lun": 256}),
            json!({"lun": -1}),
            json!({"iscsiInterface": "../x"}),
            json!({"iscsiInterface": "x".repeat(300)}),
            json!({"initiatorName": "a\nb"}),
            json!({"fsType": "fuse.sh"}),
            json!({"fsType": "ntfs"}),
            json!({"fsType": "nfs"}),
        ] {
            assert!(iscsi(odd.clone()).is_err(), "{odd}");
        }
        assert_eq!(
            iscsi(json!({"fsType": "fuse.sh"})).map(|_| ()),
            Err("\"fuse.sh\" is no file system that a disk of a network may have".to_owned())
        );
        for fine in ["", "ext4", "xfs"] {
            assert!(iscsi(json!({"fsType": fine})).is_ok(), "{fine}");
        }
    }

    #[test]
    fn a_disk_of_fibre_channel_has_ports_and_a_number_or_its_own_number() {
        let fc = |source: Value| of(FC, &inline(&json!({"name": "v", "fc": source})));
        let ports = fc(json!({"targetWWNs": ["50a", "50b"], "lun": 2, "readOnly": true})).expect("a disk");
        assert_eq!(
            (ports.dir.as_str(), ports.reported.as_str()),
            ("50a-50b-lun-2", "kubernetes.io/fc/[50a 50b]:2")
        );
        assert!(ports.read_only);
        let own = fc(json!({"wwids": ["3600", "VENDOR X"]})).expect("a disk");
        assert_eq!(own.way, Way::Fc(Ids::Own(vec!["3600".to_owned(), "VENDOR_X".to_owned()])));
        assert_eq!(own.reported, "kubernetes.io/fc/[3600 VENDOR_X]");
        for odd in [
            json!({}),
            json!({"targetWWNs": ["50a"]}),
            json!({"targetWWNs": ["../x"], "lun": 0}),
            json!({"targetWWNs": ["50a"], "lun": 256}),
            json!({"wwids": ["../x"]}),
            json!({"wwids": ["x".repeat(300)]}),
            json!({"wwids": vec!["a"; 17]}),
        ] {
            assert!(fc(odd.clone()).is_err(), "{odd}");
        }
        assert_eq!(
            fc(json!({})).map(|_| ()),
            Err("fc: no fc disk information found. failed to make a new mounter".to_owned())
        );
    }
}
