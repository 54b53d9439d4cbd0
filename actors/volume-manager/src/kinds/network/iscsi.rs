//! Brings a disk of an iSCSI target to the node and takes it away again (row 10.11). The order of calls is upstream's; what other
//! volumes, or the node itself, have of a target stays as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bridge_node::host::{IscsiAnswer, IscsiCall, IscsiRecord, IscsiSession, SecretContent, SeenDisks};
use pod_rules::volume_plugins::ISCSI;
use tokio::time::{Instant, sleep};

use super::disk::{Disk, Places, SecretName, Target};
use super::iscsiadm::{self as admin, Maker, judged};
use super::note::{self, Note};
use super::{Ways, away, uses};
use crate::backends::Backends;
use crate::devices::Turn;
use crate::steps::SetUpError;

/// How often the portals are tried, and from which try on two ways are enough; upstream's.
const TRIES_MAX: usize = 5;
const TRIES_FOR_TWO: usize = 2;
const FEW_WAYS: usize = 2;
/// How often, a second apart, a disk is looked for, and a map of several ways to it; upstream's.
const LOOKS_FOR_DISK: usize = 30;
const LOOKS_FOR_MAP: usize = 10;
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long further ways are tried for once there is one.
const MORE_WAYS_WITHIN: Duration = Duration::from_secs(120);

type Settings = Vec<(String, SecretContent)>;

/// A disk on its way to the node.
struct Login<'a> {
    backends: &'a Backends,
    target: &'a Target,
    places: &'a Places,
    dir: &'a str,
    note: Note,
    /// What the Secret has, once it was read.
    secrets: Option<BTreeMap<String, SecretContent>>,
    /// Whether the last login has not ended: a session may be made yet, which is the kubelet's then.
    is_in_doubt: bool,
}

async fn run(backends: &Backends, turn: &str, args: Vec<String>) -> Result<String, (String, String)> {
    let call = IscsiCall { args, turn: turn.to_owned() };
    judged(backends.network_disks.iscsiadm(call).await)
}

async fn look(backends: &Backends) -> Result<SeenDisks, String> {
    backends.network_disks.look().await.map_err(|error| error.to_string())
}

/// The turn to work on the session with a target through one portal and interface: what does not answer there holds up nothing
/// else.
async fn session_turn(backends: &Backends, iqn: &str, portal: &str, iface: &str) -> Turn {
    backends.devices.turn(&format!("{ISCSI} session {iqn} {portal} {iface}")).await
}

async fn iface_turn(backends: &Backends, iface: &str) -> Turn {
    backends.devices.turn(&format!("{ISCSI} interface {iface}")).await
}

/// Brings the disk to the node: logs in to its target where the node is not, and waits for the disk. The caller has the disk's
/// turn, and `note` is what was noted of the disk so far.
///
/// # Errors
/// Upstream's text.
pub(super) async fn attach(
    backends: &Backends,
    disk: &Disk,
    target: &Target,
    places: &Places,
    note: Note,
) -> Result<Ways, SetUpError> {
    let dir = &disk.dir;
    let mut login = Login { backends, target, places, dir, note, secrets: None, is_in_doubt: false };
    login.has_interface().await.map_err(SetUpError::Attach)?;
    let (begun, mut last) = (Instant::now(), String::new());
    let mut found: BTreeMap<&str, String> = BTreeMap::new();
    'tries: for number in 1..=TRIES_MAX {
        for portal in &target.portals {
            if found.contains_key(portal.as_str()) {
                continue;
            }
            if !found.is_empty() && begun.elapsed() >= MORE_WAYS_WITHIN {
                break 'tries;
            }
            match login.way(portal).await {
                Ok(name) => {
                    found.insert(portal, name);
                }
                Err(Failed::Way(why)) => last = why,
                Err(Failed::All(error)) => return Err(error),
            }
        }
        let few = found.len() >= FEW_WAYS && number >= TRIES_FOR_TWO;
        if found.is_empty() || found.len() == target.portals.len() || few {
            break;
        }
    }
    if found.is_empty() {
        login.forget_interface().await;
        let why = format!("failed to get any path for iscsi disk, last err seen:\n{last}");
        return Err(SetUpError::Attach(why));
    }
    if !last.is_empty() {
        tracing::warn!(why = last, disk = disk.dir, "A disk has fewer ways than its volume names");
    }
    let names: BTreeSet<String> = found.into_values().collect();
    let looks = if target.portals.len() > 1 { LOOKS_FOR_MAP } else { 1 };
    for number in 1..=looks {
        let seen = look(backends).await.map_err(SetUpError::Attach)?;
        if let Some(map) = uses::map_of(&seen, &names) {
            return Ok(Ways { top: map.name.clone(), names });
        }
        if number < looks {
            sleep(LOOK_EVERY).await;
        }
    }
    let top = names.first().cloned().unwrap_or_default();
    Ok(Ways { top, names })
}

/// Why there is no way to a disk.
enum Failed {
    /// Through one portal.
    Way(String),
    /// Through any: what was found out cannot be kept.
    All(SetUpError),
}

impl From<SetUpError> for Failed {
    fn from(error: SetUpError) -> Self {
        Self::All(error)
    }
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Self::Way(why)
    }
}

impl Login<'_> {
    async fn others(&self) -> Result<BTreeMap<String, Note>, SetUpError> {
        note::others(self.backends, ISCSI, self.dir).await
    }

    async fn write(&self) -> Result<(), SetUpError> {
        note::write(self.backends, self.places, &self.note).await
    }

    /// Whether the interface is there; one of the volume's own is made.
    async fn has_interface(&self) -> Result<(), String> {
        let Self { backends, target, .. } = self;
        let show = admin::iface(&target.init_iface, &["-o", "show"]);
        let shown = run(backends, &target.init_iface, show).await.map_err(|(_, why)| why)?;
        if !admin::has_transport(&shown) {
            return Err(format!("could not parse iface file for {}", target.iface));
        }
        let others = self.others().await.map_err(|error| error.to_string())?;
        admin::may_use(target, &self.note, others.values())?;
        let Some(initiator) = &target.initiator else { return Ok(()) };
        if target.init_iface == target.iface {
            return Err(format!("iscsi: cannot clone iface with same name: {}", target.init_iface));
        }
        let failed =
            |why: String| format!("iscsi: failed to parse iface records: {} ({why})", admin::said(&shown));
        let mut settings = admin::settings(&shown).map_err(failed)?;
        settings.insert("iface.initiatorname".to_owned(), initiator.clone());
        let _turn = iface_turn(backends, &target.iface).await;
        let call =
            IscsiCall { args: admin::iface(&target.iface, &["-o", "new"]), turn: target.iface.clone() };
        match backends.network_disks.iscsiadm(call).await {
            Ok(answer) if admin::is_made(&answer) => {}
            other => {
                let (output, why) = judged(other).err().unwrap_or_default();
                return Err(format!("iscsi: failed to create new iface: {output} ({why})"));
            }
        }
        for (name, value) in &settings {
            let args = admin::iface(&target.iface, &admin::set(name, value));
            if let Err((output, why)) = run(backends, &target.iface, args).await {
                return Err(format!("iscsi: failed to update iface records: {output} ({why})"));
            }
        }
        Ok(())
    }

    /// Removes the interface that was made for the volume, unless another volume has it or a session was made through it.
    async fn forget_interface(&self) {
        if self.note.logged_in.is_empty()
            && let Err(error) = remove_interface(self.backends, self.dir, &self.note).await
        {
            tracing::debug!(%error, "An interface of the initiator stays");
        }
    }

    /// The kernel's name of the disk through one portal.
    async fn way(&mut self, portal: &str) -> Result<String, Failed> {
        let Target { iqn, iface, .. } = self.target;
        let turn = session_turn(self.backends, iqn, portal, iface).await;
        let host = self.session(portal).await?;
        drop(turn);
        let disks = &self.backends.network_disks;
        disks.scan(host, Some(self.target.lun)).await.map_err(|error| error.to_string())?;
        for number in 1..=LOOKS_FOR_DISK {
            let seen = look(self.backends).await?;
            let session = admin::session(&seen, self.target, portal);
            let name = session.and_then(|session| session.disks.get(&self.target.lun));
            if let Some(name) = name.filter(|name| seen.disks.contains_key(*name)) {
                return Ok(name.clone());
            }
            if number < LOOKS_FOR_DISK {
                sleep(LOOK_EVERY).await;
            }
        }
        let path = self.target.by_path(portal);
        Err(Failed::Way(format!("Timed out waiting for device at path {path} after {LOOKS_FOR_DISK}s")))
    }

    /// The SCSI host of the session through one portal, which is made if there is none. The caller has the session's turn.
    async fn session(&mut self, portal: &str) -> Result<u32, Failed> {
        let (backends, target) = (self.backends, self.target);
        let seen = look(backends).await?;
        if let Some(session) = admin::session(&seen, target, portal) {
            let others = self.others().await?;
            match admin::maker(session, target, portal, &self.note, others.values())? {
                Maker::Kubelet => {
                    self.note.logged_in.insert(portal.to_owned());
                }
                // Once: what the node has at a later try the kubelet may have brought.
                Maker::Node if self.note.found.insert(portal.to_owned()) => self.keep(&seen, session),
                Maker::Node => {}
            }
            self.write().await?;
            return Ok(session.host);
        }
        // First, so that a kubelet that ends in between does not take the session for the node's.
        self.note.logged_in.insert(portal.to_owned());
        self.write().await?;
        let logged_in = self.log_in(portal).await;
        let seen = look(backends).await?;
        match (admin::session(&seen, target, portal), logged_in) {
            (Some(session), _) => Ok(session.host),
            (None, done) => {
                if !self.is_in_doubt {
                    self.note.logged_in.remove(portal);
                    self.write().await?;
                }
                done?;
                Err(Failed::Way(format!(
                    "Could not get SCSI host number for portal {portal} after logging in"
                )))
            }
        }
    }

    /// Notes that the node had the disk before.
    fn keep(&mut self, seen: &SeenDisks, session: &IscsiSession) {
        let name = session.disks.get(&self.target.lun);
        let disk = name.and_then(|name| seen.disks.get(name));
        self.note.kept.extend(disk.map(|disk| disk.address.clone()));
    }

    /// Logs in through one portal.
    async fn log_in(&mut self, portal: &str) -> Result<(), String> {
        let (backends, target) = (self.backends, self.target);
        let Target { iqn, iface, .. } = target;
        self.is_in_doubt = false;
        self.discover(portal).await?;
        let about = |more: &[&str]| admin::node(portal, iqn, iface, more);
        let turn = format!("{iqn} {portal} {iface}");
        // Or the kernel would show all disks of the target.
        let manual = about(&admin::set("node.session.scan", "manual"));
        if let Err((output, why)) = run(backends, &turn, manual).await {
            tracing::warn!(
                portal,
                output,
                why,
                "All disks of a target may appear, and not only the volume's"
            );
        }
        let failed =
            |why: String| format!("iscsi: failed to update iscsi node to portal {portal} error: {why}");
        if target.chap_session {
            let chap = about(&admin::set("node.session.auth.authmethod", "CHAP"));
            run(backends, &turn, chap).await.map_err(|(output, _)| {
                failed(format!("iscsi: failed to update node with CHAP, output: {output}"))
            })?;
            let record =
                IscsiRecord::Node { target: iqn.clone(), portal: portal.to_owned(), iface: iface.clone() };
            let settings = self.settings(&admin::OF_SESSION).await?;
            let set = backends.network_disks.set_secrets(record, settings).await;
            if let Err(error) = set {
                self.forget_record(portal).await;
                return Err(failed(error.to_string()));
            }
        }
        if let Err((output, why)) = run(backends, &turn, about(&["--login"])).await {
            self.is_in_doubt = !admin::has_ended(&why);
            self.forget_record(portal).await;
            return Err(format!("iscsi: failed to attach disk: Error: {output} ({why})"));
        }
        // A node that starts does not wait for it.
        let manual = about(&admin::set("node.startup", "manual"));
        if let Err((output, why)) = run(backends, &turn, manual).await {
            tracing::warn!(portal, output, why, "The node may log in to a target when it starts");
        }
        Ok(())
    }

    /// Removes what a login was tried with, which may have a password in it.
    async fn forget_record(&self, portal: &str) {
        let Target { iqn, iface, .. } = self.target;
        let args = admin::node(portal, iqn, iface, &["-o", "delete"]);
        let _left = run(self.backends, &format!("{iqn} {portal} {iface}"), args).await;
    }

    /// Asks a portal for its targets, in the portal's turn: whatever else asks it does so with other names.
    async fn discover(&mut self, portal: &str) -> Result<(), String> {
        let (backends, target) = (self.backends, self.target);
        let settings = match target.chap_discovery {
            true => Some(self.settings(&admin::OF_DISCOVERY).await?),
            false => None,
        };
        let _turn = backends.devices.turn(&format!("{ISCSI} portal {portal}")).await;
        let about = |more: &[&str]| admin::discovery(portal, &target.iface, more);
        // As upstream: the record may be there.
        let _there = run(backends, portal, about(&["-o", "new"])).await;
        let with_chap = settings.is_some();
        let mut done = Ok(());
        if let Some(settings) = settings {
            let failed =
                |why: String| format!("iscsi: failed to update discoverydb to portal {portal} error: {why}");
            let chap = about(&admin::set("discovery.sendtargets.auth.authmethod", "CHAP"));
            done = match run(backends, portal, chap).await {
                Ok(_) => {
                    let record = IscsiRecord::Discovery { portal: portal.to_owned() };
                    let set = backends.network_disks.set_secrets(record, settings).await;
                    set.map_err(|error| failed(error.to_string()))
                }
                Err((output, _)) => {
                    Err(failed(format!("iscsi: failed to update discoverydb with CHAP, output: {output}")))
                }
            };
        }
        if done.is_ok() {
            let discovered = run(backends, portal, about(&["--discover"])).await;
            done = discovered.map(drop).map_err(|(output, why)| {
                format!("iscsi: failed to sendtargets to portal {portal} output: {output}, err {why}")
            });
        }
        // No password stays in it.
        if done.is_err() || with_chap {
            let _left = run(backends, portal, about(&["-o", "delete"])).await;
        }
        done
    }

    /// These settings of the volume's Secret. It is read for a login alone: a disk that is there needs it no longer.
    async fn settings(&mut self, names: &[&str]) -> Result<Settings, String> {
        if self.secrets.is_none() {
            self.secrets = Some(secrets(self.backends, self.target.secret.as_ref()).await?);
        }
        let all = self.secrets.iter().flatten();
        let chosen = all.filter(|(name, value)| names.contains(&name.as_str()) && !value.expose().is_empty());
        Ok(chosen.map(|(name, value)| (name.clone(), value.clone())).collect())
    }
}

/// What the Secret has.
async fn secrets(
    backends: &Backends,
    secret: Option<&SecretName>,
) -> Result<BTreeMap<String, SecretContent>, String> {
    let Some(SecretName { namespace, name }) = secret else { return Ok(BTreeMap::new()) };
    let objects = backends.volume_objects.as_deref().ok_or("cannot get kube client")?;
    let read = objects.secret(namespace, name).await;
    let read = read.map_err(|error| format!("couldn't get secret {namespace}/{name} error: {error}"))?;
    let data = read.data.unwrap_or_default().into_iter();
    Ok(data.map(|(key, value)| (key, SecretContent::new(value.0))).collect())
}

/// Takes a disk from the node, and ends the sessions that the kubelet has made for it and that no other disk needs. The caller
/// has the disk's turn.
///
/// # Errors
/// Something stays; it is tried again.
pub(super) async fn detach(backends: &Backends, dir: &str, note: &Note) -> Result<(), SetUpError> {
    let Note { iqn, iface, lun, .. } = note;
    let seen = look(backends).await.map_err(SetUpError::Refused)?;
    let sessions =
        note.all_portals().into_iter().filter_map(|portal| admin::session_of(&seen, iqn, iface, portal));
    let names: BTreeSet<String> = sessions.filter_map(|session| session.disks.get(lun)).cloned().collect();
    away::remove(backends, &names, &note.kept).await?;
    for portal in &note.logged_in {
        log_out(backends, dir, note, portal).await?;
    }
    remove_interface(backends, dir, note).await.map_err(SetUpError::Refused)
}

/// Whether there is a session that the kubelet has made for the disk with this note.
///
/// # Errors
/// It cannot be told.
pub(super) async fn has_session(backends: &Backends, note: &Note) -> Result<bool, SetUpError> {
    let seen = look(backends).await.map_err(SetUpError::Attach)?;
    let is_open = |portal: &String| admin::session_of(&seen, &note.iqn, &note.iface, portal).is_some();
    Ok(note.logged_in.iter().any(is_open))
}

async fn log_out(backends: &Backends, dir: &str, note: &Note, portal: &str) -> Result<(), SetUpError> {
    let Note { iqn, iface, .. } = note;
    let _turn = session_turn(backends, iqn, portal, iface).await;
    let others = note::others(backends, ISCSI, dir).await?;
    if others.values().any(|other| other.has_session(iqn, portal, iface)) {
        return Ok(());
    }
    let seen = look(backends).await.map_err(SetUpError::Refused)?;
    if let Some(session) = admin::session_of(&seen, iqn, iface, portal) {
        let disks: BTreeSet<String> = session.disks.values().cloned().collect();
        away::is_idle(backends, &seen, &disks).await?;
    }
    for what in [&["--logout"][..], &["-o", "delete"]] {
        let args = admin::node(portal, iqn, iface, what);
        gone(backends, &format!("{iqn} {portal} {iface}"), args, "detach disk")
            .await
            .map_err(SetUpError::Refused)?;
    }
    Ok(())
}

/// Removes the interface that was made for the volume, unless another volume has it.
async fn remove_interface(backends: &Backends, dir: &str, note: &Note) -> Result<(), String> {
    if !note.has_own_iface {
        return Ok(());
    }
    let _turn = iface_turn(backends, &note.iface).await;
    let others = note::others(backends, ISCSI, dir).await.map_err(|error| error.to_string())?;
    if others.values().any(|other| other.iface == note.iface) {
        return Ok(());
    }
    let args = admin::iface(&note.iface, &["-o", "delete"]);
    gone(backends, &note.iface, args, "delete iface").await
}

/// Has something go; that it is gone already is fine.
async fn gone(backends: &Backends, turn: &str, args: Vec<String>, what: &str) -> Result<(), String> {
    let call = IscsiCall { args, turn: turn.to_owned() };
    let answer: Result<IscsiAnswer, _> = backends.network_disks.iscsiadm(call).await;
    match answer {
        Ok(answer) if admin::is_gone(&answer) => Ok(()),
        other => {
            let (output, why) = judged(other).err().unwrap_or_default();
            Err(format!("iscsi: failed to {what} Error: {output} ({why})"))
        }
    }
}
