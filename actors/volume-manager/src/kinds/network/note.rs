//! What this kubelet notes of a disk that it has brought to the node, so that it, and the next kubelet, takes away what it has
//! brought and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::disk::{self, Disk, Ids, Places, Target, Way};
use crate::backends::Backends;
use crate::steps::SetUpError;

/// The Go kubelet's own note in the directory of a disk of iSCSI.
const OF_GO: &str = "iscsi.json";

/// What is noted. Names of volumes are bounded, and so is the note.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Note {
    /// By which names the target is asked for the disk.
    pub access: String,
    /// The target's name, its portals, the disk's number and the initiator's interface; of iSCSI.
    pub iqn: String,
    pub portals: Vec<String>,
    pub lun: u32,
    pub iface: String,
    /// Whether the interface was made for the volume.
    pub has_own_iface: bool,
    /// The portals whose sessions the kubelet has made, or is about to make.
    pub logged_in: BTreeSet<String>,
    /// The portals whose sessions the node had before, and where it was looked which disks it had.
    pub found: BTreeSet<String>,
    /// The ports of targets, or the disk's own numbers; of Fibre Channel.
    pub wwns: Vec<String>,
    pub wwids: Vec<String>,
    /// The places among the SCSI devices of the ways to the disk that the node had before: they stay.
    pub kept: BTreeSet<String>,
}

impl Note {
    /// What is noted before the disk is looked for.
    pub fn of(disk: &Disk) -> Self {
        let access = disk.access.clone();
        match &disk.way {
            Way::Iscsi(target) => Self {
                access,
                iqn: target.iqn.clone(),
                portals: target.portals.clone(),
                lun: target.lun,
                iface: target.iface.clone(),
                has_own_iface: target.initiator.is_some(),
                ..Self::default()
            },
            Way::Fc(Ids::Ports(wwns, lun)) => {
                Self { access, wwns: wwns.clone(), lun: *lun, ..Self::default() }
            }
            Way::Fc(Ids::Own(wwids)) => Self { access, wwids: wwids.clone(), ..Self::default() },
        }
    }

    /// Whether it is about this disk: the directories of two disks with odd names may be the same.
    pub fn is_of(&self, disk: &Disk) -> bool {
        let other = Self::of(disk);
        let of =
            |note: &Self| (note.iqn.clone(), note.portals.first().cloned(), note.lun, note.iface.clone());
        of(self) == of(&other) && (&self.wwns, &self.wwids) == (&other.wwns, &other.wwids)
    }

    /// The portals through which the disk may have come.
    pub fn all_portals(&self) -> BTreeSet<&String> {
        self.portals.iter().chain(&self.logged_in).collect()
    }

    /// The disk of Fibre Channel.
    pub fn ids(&self) -> Ids {
        match self.wwns.is_empty() {
            true => Ids::Own(self.wwids.clone()),
            false => Ids::Ports(self.wwns.clone(), self.lun),
        }
    }

    /// Whether the kubelet has made, or is about to make, the session of this target, portal and interface for the disk.
    pub fn has_session(&self, iqn: &str, portal: &str, iface: &str) -> bool {
        self.iqn == iqn && self.iface == iface && self.logged_in.contains(portal)
    }

    fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The note on a disk; `None` if there is none.
///
/// # Errors
/// It cannot be read.
pub(super) async fn read(backends: &Backends, places: &Places) -> Result<Option<Note>, SetUpError> {
    let Some(text) = backends.mounts.read_note(&places.note).await? else { return Ok(None) };
    let read = serde_json::from_str(&text);
    read.map(Some).map_err(|error| {
        SetUpError::Refused(format!("cannot read the note {}: {error}", places.note.display()))
    })
}

/// Writes the note on a disk.
///
/// # Errors
/// It cannot be written.
pub(super) async fn write(backends: &Backends, places: &Places, note: &Note) -> Result<(), SetUpError> {
    Ok(backends.mounts.write_note(&places.note, &note.text()).await?)
}

/// Writes the Go kubelet's note, by which it could take the disk away.
///
/// # Errors
/// It cannot be written.
pub(super) async fn write_for_go(
    backends: &Backends,
    disk: &Disk,
    target: &Target,
    places: &Places,
    spec_name: &str,
) -> Result<(), SetUpError> {
    let text = json!({
        "VolName": spec_name, "Portals": target.portals, "Iqn": target.iqn, "Lun": target.lun.to_string(),
        "InitIface": target.init_iface, "Iface": target.iface,
        "InitiatorName": target.initiator.as_deref().unwrap_or_default(),
    });
    let dir = if disk.is_block { &places.maps } else { &places.mount };
    Ok(backends.mounts.write_note(&dir.join(OF_GO), &text.to_string()).await?)
}

/// Removes both notes on a disk that is not on the node, and its directories as far as they are empty.
///
/// # Errors
/// They cannot be removed.
pub(super) async fn forget(backends: &Backends, places: &Places) -> Result<(), SetUpError> {
    let mounts = backends.mounts.as_ref();
    let none = places.note.with_file_name("none");
    mounts.forget(&places.note, &none).await?;
    for dir in [&places.mount, &places.maps] {
        mounts.forget(&dir.join(OF_GO), &dir.join("none")).await?;
    }
    // The directories of interfaces go with their last disks.
    for dir in [Some(places.mount.as_path()), Some(places.maps.as_path()), places.note.parent()] {
        let Some(dir) = dir else { continue };
        if let Err(error) = mounts.forget(dir, &dir.with_file_name("none")).await {
            tracing::debug!(%error, "The directory of a disk stays");
        }
    }
    Ok(())
}

/// The directories of all disks of the plugin that are on the node, below the plugin's directory.
///
/// # Errors
/// They cannot be listed.
pub(super) async fn dirs(backends: &Backends, plugin: &str) -> Result<BTreeSet<String>, SetUpError> {
    let found = backends.pod_dirs.other_volumes(None, &[]).await;
    let found = found.map_err(|error| SetUpError::Refused(error.to_string()))?;
    let of_node = found.into_iter().filter(|volume| volume.pod.is_none() && volume.plugin == plugin);
    Ok(of_node.map(|volume| volume.name).collect())
}

/// The notes on all disks of the plugin but the one with the directory `own`, by their directories. One that cannot be read is
/// no hindrance to the others: what is in use stays without it, too.
///
/// # Errors
/// The directories cannot be listed.
pub(super) async fn others(
    backends: &Backends,
    plugin: &str,
    own: &str,
) -> Result<BTreeMap<String, Note>, SetUpError> {
    let mut notes = BTreeMap::new();
    for dir in dirs(backends, plugin).await?.into_iter().filter(|dir| dir != own) {
        let Ok(places) = disk::places(backends.node(), plugin, &dir) else { continue };
        match read(backends, &places).await {
            Ok(note) => notes.extend(note.map(|note| (dir, note))),
            Err(error) => tracing::warn!(%error, "The note on a disk is left out"),
        }
    }
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use pod_rules::volume_plugins::{FC, ISCSI};

    use super::*;
    use crate::kinds::tests::{inline, pod};

    #[test]
    fn disks_with_the_same_directory_are_told_apart() {
        let of = |plugin: &'static str, source: serde_json::Value| {
            let mut volume = json!({"name": "v"});
            volume[if plugin == FC { "fc" } else { "iscsi" }] = source;
            Disk::of(plugin, &inline(&volume), &pod()).expect("a disk")
        };
        let iscsi = |portal: &str, iqn: &str, more: &[&str]| {
            of(ISCSI, json!({"targetPortal": portal, "iqn": iqn, "lun": 1, "portals": more}))
        };
        let pairs = [
            (of(FC, json!({"wwids": ["a-lun-1"]})), of(FC, json!({"targetWWNs": ["a"], "lun": 1}))),
            (of(FC, json!({"wwids": ["a-b"]})), of(FC, json!({"wwids": ["a", "b"]}))),
            (iscsi("p:1", "iqn.2020-01.test:a", &[]), iscsi("p:1-iqn.2020", "01.test:a", &[])),
        ];
        for (one, other) in &pairs {
            assert_eq!(one.dir, other.dir);
            assert!(Note::of(one).is_of(one) && !Note::of(one).is_of(other), "{one:?}");
        }
        let one = iscsi("p:1", "iqn.2020-01.test:a", &[]);
        assert!(
            Note::of(&one).is_of(&iscsi("p:1", "iqn.2020-01.test:a", &["q:1"])),
            "by another portal, too"
        );
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_has_room_for_the_longest_names() {
        let portals: Vec<String> = (0..16).map(|n| format!("{n:0>250}:3260")).collect();
        let note = Note {
            access: "a".repeat(4 * 255),
            iqn: "i".repeat(223),
            logged_in: portals.iter().cloned().collect(),
            portals,
            lun: 255,
            iface: "f".repeat(200),
            has_own_iface: true,
            kept: (0..64).map(|n| format!("{n}:0:0:255")).collect(),
            ..Note::default()
        };
        let text = note.text();
        assert!(text.len() < 32 << 10, "{}", text.len());
        assert_eq!(serde_json::from_str::<Note>(&text).expect("a note"), note);
        assert!(note.has_session(&note.iqn, &note.portals[3], &note.iface));
        assert!(!note.has_session(&note.iqn, &note.portals[3], "default"));
    }
}
