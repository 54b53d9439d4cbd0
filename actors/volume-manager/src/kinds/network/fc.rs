//! Finds a disk of Fibre Channel on the node, where its hosts have to look for it, and takes away what they have found (row
//! 10.12).

use std::collections::BTreeSet;
use std::time::Duration;

use bridge_node::host::{DiskLink, LinksBy, SeenDisks};
use futures::FutureExt;
use tokio::time::sleep;

use super::disk::{Ids, Places};
use super::note::{self, Note};
use super::{Ways, away, uses};
use crate::backends::Backends;
use crate::kinds::few_at_once;
use crate::steps::SetUpError;

/// How often, a second apart, a disk is looked for that the hosts may have found.
const LOOKS: usize = 5;
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// PURE: whether a link leads to the disk.
fn is_of(ids: &Ids, link: &DiskLink) -> bool {
    match ids {
        Ids::Ports(wwns, lun) => {
            let is_way = |wwn: &String| {
                let way = format!("fc-0x{wwn}-lun-{lun}");
                let of_host = || link.name.starts_with("pci-") && link.name.ends_with(&format!("-{way}"));
                link.name == way || of_host()
            };
            link.by == LinksBy::Path && wwns.iter().any(is_way)
        }
        Ids::Own(wwids) => {
            let number = link.name.strip_prefix("scsi-");
            link.by == LinksBy::Id && number.is_some_and(|number| wwids.iter().any(|wwid| wwid == number))
        }
    }
}

/// PURE: all ways to the disk that the node has.
fn ways(seen: &SeenDisks, ids: &Ids) -> BTreeSet<String> {
    let linked = seen.links.iter().filter(|link| is_of(ids, link)).map(|link| &link.disk);
    let mut ways = BTreeSet::new();
    for disk in linked.filter_map(|name| seen.disks.get(name)) {
        if disk.is_multipath {
            ways.extend(disk.slaves.iter().cloned());
        } else {
            ways.insert(disk.name.clone());
        }
    }
    if let Some(map) = uses::map_of(seen, &ways) {
        ways.extend(map.slaves.iter().cloned());
    }
    ways
}

async fn look(backends: &Backends) -> Result<SeenDisks, SetUpError> {
    let seen = backends.network_disks.look().await;
    seen.map_err(|error| SetUpError::Attach(error.to_string()))
}

/// Finds the disk. The caller has the disk's turn, and `note` is what was noted of the disk so far, if anything was.
///
/// # Errors
/// Upstream's text.
pub(super) async fn attach(
    backends: &Backends,
    ids: &Ids,
    places: &Places,
    noted: Option<Note>,
    new: Note,
) -> Result<Ways, SetUpError> {
    let mut seen = look(backends).await?;
    if noted.is_none() {
        // What the node had before stays.
        let had = ways(&seen, ids);
        let kept = had.iter().filter_map(|name| seen.disks.get(name)).map(|disk| disk.address.clone());
        note::write(backends, places, &Note { kept: kept.collect(), ..new }).await?;
    }
    let mut names = ways(&seen, ids);
    if uses::map_of(&seen, &names).is_none() {
        scan(backends, &seen).await;
        for number in 1..=LOOKS {
            seen = look(backends).await?;
            names = ways(&seen, ids);
            if !names.is_empty() {
                break;
            }
            if number < LOOKS {
                sleep(LOOK_EVERY).await;
            }
        }
    }
    let Some(first) = names.first() else { return Err(SetUpError::Attach("no fc disk found".to_owned())) };
    let top = uses::map_of(&seen, &names).map_or_else(|| first.clone(), |map| map.name.clone());
    Ok(Ways { top, names })
}

/// Has all hosts look for disks, a few at once. One that does not answer holds up none of the others.
async fn scan(backends: &Backends, seen: &SeenDisks) {
    let scans = seen.hosts.iter().map(|host| {
        let scanned = backends.network_disks.scan(*host, None);
        async move {
            if let Err(error) = scanned.await {
                tracing::warn!(%error, host, "A host may have disks that are not found");
            }
        }
        .boxed()
    });
    few_at_once(scans).await;
}

/// Takes the disk from the node, with all ways to it, unless the node had it before.
///
/// # Errors
/// Something uses it.
pub(super) async fn detach(backends: &Backends, note: &Note) -> Result<(), SetUpError> {
    if !note.kept.is_empty() {
        return Ok(());
    }
    let names = ways(&look(backends).await?, &note.ids());
    away::remove(backends, &names, &note.kept).await
}

#[cfg(test)]
mod tests {
    use bridge_node::host::BlockDisk;

    use super::*;

    fn link(by: LinksBy, name: &str, disk: &str) -> DiskLink {
        DiskLink { by, name: name.to_owned(), disk: disk.to_owned() }
    }

    #[test]
    fn a_disk_is_found_by_its_port_and_number_or_by_its_own_number() {
        let ports = Ids::Ports(vec!["50a".to_owned(), "50b".to_owned()], 1);
        let own = Ids::Own(vec!["3600".to_owned()]);
        let path = |name: &str| link(LinksBy::Path, name, "sdb");
        for name in ["fc-0x50a-lun-1", "pci-0000:05:00.0-fc-0x50b-lun-1"] {
            assert!(is_of(&ports, &path(name)), "{name}");
        }
        for name in [
            "fc-0x50a-lun-10",
            "fc-0x50a-lun-1-part1",
            "fc-0x150a-lun-1",
            "xpci-fc-0x50a-lun-1",
            "usb-0-fc-0x50a-lun-1",
            "fc-0x50c-lun-1",
        ] {
            assert!(!is_of(&ports, &path(name)), "{name}");
        }
        assert!(is_of(&own, &link(LinksBy::Id, "scsi-3600", "sdb")));
        for other in
            [path("scsi-3600"), link(LinksBy::Id, "scsi-36001", "sdb"), link(LinksBy::Id, "wwn-3600", "sdb")]
        {
            assert!(!is_of(&own, &other), "{other:?}");
        }
    }

    #[test]
    fn all_ways_of_a_map_are_the_disks() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let disk = |name: &str, holders: &[&str]| BlockDisk {
            name: name.to_owned(),
            holders: names(holders),
            ..BlockDisk::default()
        };
        let map = BlockDisk { is_multipath: true, slaves: names(&["sdb", "sdc"]), ..disk("dm-0", &[]) };
        let all = [disk("sdb", &["dm-0"]), disk("sdc", &["dm-0"]), disk("sdd", &[]), map];
        let seen = SeenDisks {
            disks: all.into_iter().map(|disk| (disk.name.clone(), disk)).collect(),
            links: vec![
                link(LinksBy::Path, "fc-0x50a-lun-1", "sdb"),
                link(LinksBy::Id, "scsi-3600", "dm-0"),
                link(LinksBy::Id, "scsi-3700", "sdd"),
                link(LinksBy::Id, "scsi-3800", "gone"),
            ],
            ..SeenDisks::default()
        };
        let own = |wwid: &str| Ids::Own(vec![wwid.to_owned()]);
        assert_eq!(ways(&seen, &Ids::Ports(vec!["50a".to_owned()], 1)), names(&["sdb", "sdc"]));
        assert_eq!(ways(&seen, &own("3600")), names(&["sdb", "sdc"]));
        assert_eq!(ways(&seen, &own("3700")), names(&["sdd"]));
        assert_eq!(ways(&seen, &own("3800")), names(&[]));
    }
}
