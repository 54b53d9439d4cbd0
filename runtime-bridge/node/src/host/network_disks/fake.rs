use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;

use super::{
    BlockDisk, DiskLink, DisksError, DisksReply, ISCSIADM_WITHIN, IscsiAnswer, IscsiCall, IscsiRecord,
    IscsiSession, LinksBy, NetworkDisks, SeenDisks,
};
use crate::host::{FakeDisk, SecretContent};

/// The exit statuses of `iscsiadm` that the fake knows: a wrong use, a login that is refused, a session or record that is there
/// already, and none that is.
const INVALID: i32 = 7;
const AUTH_FAILED: i32 = 24;
const EXISTS: i32 = 15;
const NO_OBJECTS: i32 = 21;

/// A target's portal.
#[derive(Clone, Debug, Default)]
struct Target {
    /// Name and password of CHAP; none are asked for without.
    chap: Option<(String, String)>,
    /// The numbers of its disks and by which number each disk knows itself.
    disks: BTreeMap<u32, String>,
}

type Settings = BTreeMap<String, String>;

#[derive(Default)]
struct State {
    is_missing: bool,
    targets: BTreeMap<(String, String), Target>,
    ifaces: BTreeMap<String, Settings>,
    discoveries: BTreeMap<String, Settings>,
    nodes: BTreeMap<(String, String, String), Settings>,
    sessions: Vec<IscsiSession>,
    /// Disks of Fibre Channel: the links of their ways, and by which number each knows itself. A scan finds them.
    fabric: Vec<(String, String)>,
    disks: BTreeMap<String, BlockDisk>,
    links: Vec<DiskLink>,
    /// What is on the disks, by the number by which they know themselves.
    contents: BTreeMap<String, Vec<u8>>,
    swaps: BTreeSet<PathBuf>,
    joins_ways: bool,
    made: u32,
    calls: Vec<Vec<String>>,
    hangs: BTreeSet<String>,
    removed: Vec<String>,
}

/// Targets and their disks in memory. The disks are files of a [`FakeDisk`], whose content is the type of their file system.
#[derive(Clone)]
pub struct FakeNetworkDisks {
    disk: FakeDisk,
    state: Arc<Mutex<State>>,
}

impl fmt::Debug for FakeNetworkDisks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FakeNetworkDisks")
    }
}

impl FakeNetworkDisks {
    /// A node with `iscsiadm`, whose disks appear on `disk`.
    pub fn new(disk: FakeDisk) -> Self {
        let usual = [("iface.transport_name", "tcp"), ("iface.initiatorname", "<empty>")];
        let usual = usual.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let ifaces = BTreeMap::from([("default".to_owned(), usual)]);
        Self { disk, state: Arc::new(Mutex::new(State { ifaces, ..State::default() })) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the node has no `iscsiadm`, or has it again.
    pub fn set_missing(&self, is_missing: bool) {
        self.state().is_missing = is_missing;
    }

    /// A portal of a target with a disk of this number, which knows itself as `wwid`.
    pub fn add_target(&self, portal: &str, target: &str, number: u32, wwid: &str) {
        let mut state = self.state();
        let key = (portal.to_owned(), target.to_owned());
        state.targets.entry(key).or_default().disks.insert(number, wwid.to_owned());
    }

    /// From now on the target asks for this name and password.
    pub fn ask_for(&self, portal: &str, target: &str, name: &str, password: &str) {
        let mut state = self.state();
        let key = (portal.to_owned(), target.to_owned());
        state.targets.entry(key).or_default().chap = Some((name.to_owned(), password.to_owned()));
    }

    /// Logs in to a target as people do, with all of its disks.
    pub fn log_in(&self, portal: &str, target: &str, name: &str) {
        self.open(portal, target, "default", name);
        let numbers: Vec<u32> =
            self.state().targets[&(portal.to_owned(), target.to_owned())].disks.keys().copied().collect();
        let host = self.state().sessions.last().map_or(0, |session| session.host);
        numbers.into_iter().for_each(|number| self.found(host, Some(number)));
    }

    /// A disk of Fibre Channel that a scan finds by a way of this name, such as `fc-0x50-lun-1`.
    pub fn add_fabric(&self, link: &str, wwid: &str) {
        self.state().fabric.push((link.to_owned(), wwid.to_owned()));
    }

    /// From now on several ways to a disk are joined.
    pub fn join_ways(&self) {
        self.state().joins_ways = true;
    }

    /// The node swaps to this device.
    pub fn swap_to(&self, device: &str) {
        self.state().swaps.insert(PathBuf::from(device));
    }

    /// Calls that ask something of this portal hang until they are killed.
    pub fn hang(&self, portal: &str) {
        self.state().hangs.insert(portal.to_owned());
    }

    /// No later call hangs.
    pub fn go_on(&self) {
        self.state().hangs.clear();
    }

    /// The arguments of all calls, oldest first.
    pub fn calls(&self) -> Vec<Vec<String>> {
        self.state().calls.clone()
    }

    /// Target, portal and interface of each session.
    pub fn sessions(&self) -> Vec<(String, String, String)> {
        let sessions = self.state().sessions.clone();
        let told = sessions.into_iter().map(|session| {
            let portal = session.portals.into_iter().next().unwrap_or_default();
            (session.target, portal, session.iface)
        });
        told.collect()
    }

    /// How many records there are of what `iscsiadm` has found: of nodes and of discoveries, and of interfaces beside the usual.
    pub fn records(&self) -> (usize, usize, usize) {
        let state = self.state();
        (state.nodes.len(), state.discoveries.len(), state.ifaces.len() - 1)
    }

    /// The kernel's names of the disks that are on the node.
    pub fn names(&self) -> Vec<String> {
        self.state().disks.keys().cloned().collect()
    }

    /// The disks that were removed, oldest first.
    pub fn removed(&self) -> Vec<String> {
        self.state().removed.clone()
    }

    fn open(&self, portal: &str, target: &str, iface: &str, username: &str) {
        let mut state = self.state();
        state.made += 1;
        let session = IscsiSession {
            host: state.made,
            target: target.to_owned(),
            iface: iface.to_owned(),
            username: username.to_owned(),
            portals: [portal.to_owned()].into(),
            disks: BTreeMap::new(),
        };
        state.sessions.push(session);
    }

    /// A disk appears.
    fn appears(&self, state: &mut State, address: String, wwid: &str, link: Option<&str>) -> String {
        let taken = |name: &String| state.disks.contains_key(name);
        let name = (b'b'..=b'z').map(|letter| format!("sd{}", char::from(letter))).find(|name| !taken(name));
        let name = name.unwrap_or_default();
        state.made += 1;
        let number = (8, 16 * state.made);
        let wwid = wwid.to_owned();
        let disk =
            BlockDisk { name: name.clone(), number, address, wwid: wwid.clone(), ..BlockDisk::default() };
        self.disk.write(
            format!("/dev/{name}"),
            state.contents.get(&wwid).cloned().unwrap_or_default(),
            0o660,
        );
        let links =
            [link.map(|link| (LinksBy::Path, link.to_owned())), Some((LinksBy::Id, format!("scsi-{wwid}")))];
        let links = links.into_iter().flatten();
        state.links.extend(links.map(|(by, link)| DiskLink { by, name: link, disk: name.clone() }));
        state.disks.insert(name.clone(), disk);
        if state.joins_ways {
            self.joined(state, &wwid);
        }
        name
    }

    /// The ways to a disk are one, once there are two.
    fn joined(&self, state: &mut State, wwid: &str) {
        let is_way = |disk: &&BlockDisk| !disk.is_multipath && disk.wwid == wwid;
        let ways: BTreeSet<String> =
            state.disks.values().filter(is_way).map(|disk| disk.name.clone()).collect();
        if ways.len() < 2 {
            return;
        }
        let known = state.disks.values().find(|disk| disk.is_multipath && disk.mapper == wwid);
        let name = known.map_or_else(|| format!("dm-{}", state.made), |disk| disk.name.clone());
        let path = format!("/dev/{name}");
        if self.disk.kind(&path).is_none() {
            self.disk.write(&path, state.contents.get(wwid).cloned().unwrap_or_default(), 0o660);
        }
        for way in &ways {
            if let Some(disk) = state.disks.get_mut(way) {
                disk.holders.insert(name.clone());
            }
        }
        let map = BlockDisk {
            name: name.clone(),
            number: (253, state.made),
            slaves: ways,
            mapper: wwid.to_owned(),
            is_multipath: true,
            ..BlockDisk::default()
        };
        state.disks.insert(name, map);
    }

    /// A host looks for disks.
    fn found(&self, host: u32, number: Option<u32>) {
        let mut state = self.state();
        let session = state.sessions.iter().position(|session| session.host == host);
        let Some(at) = session else {
            let new: Vec<(String, String)> = state
                .fabric
                .iter()
                .filter(|(link, _)| !state.links.iter().any(|known| known.name == *link))
                .cloned()
                .collect();
            for (lun, (link, wwid)) in new.into_iter().enumerate() {
                let address = format!("{host}:0:{}:{lun}", state.made);
                self.appears(&mut state, address, &wwid, Some(&link));
            }
            return;
        };
        let IscsiSession { target, portals, disks, .. } = state.sessions[at].clone();
        let portal = portals.into_iter().next().unwrap_or_default();
        let Some(of) = state.targets.get(&(portal.clone(), target.clone())).cloned() else { return };
        for (lun, wwid) in of.disks {
            if number.is_some_and(|number| number != lun) || disks.contains_key(&lun) {
                continue;
            }
            let link = format!("ip-{portal}-iscsi-{target}-lun-{lun}");
            let name = self.appears(&mut state, format!("{host}:0:0:{lun}"), &wwid, Some(&link));
            state.sessions[at].disks.insert(lun, name);
        }
    }

    /// A disk goes, and what is on it stays with it.
    fn goes(&self, state: &mut State, name: &str) {
        let Some(disk) = state.disks.remove(name) else { return };
        let path = format!("/dev/{name}");
        let key = if disk.is_multipath { disk.mapper } else { disk.wwid };
        if let Some(content) = self.disk.read(&path).filter(|content| !content.is_empty()) {
            state.contents.insert(key, content);
        }
        self.disk.remove(&path);
        state.links.retain(|link| link.disk != name);
        for session in &mut state.sessions {
            session.disks.retain(|_, disk| disk != name);
        }
        for other in state.disks.values_mut() {
            other.holders.remove(name);
            other.slaves.remove(name);
        }
    }

    fn is_used(&self, state: &State, name: &str) -> bool {
        let path = format!("/dev/{name}");
        let is_mounted = self.disk.mounts().iter().any(|mount| mount.source == path);
        let is_held = state.disks.get(name).is_some_and(|disk| !disk.holders.is_empty());
        is_mounted || is_held || state.swaps.contains(&PathBuf::from(path))
    }

    fn said(&self, args: &[String]) -> IscsiAnswer {
        let value = |flag: &str| {
            let at = args.iter().position(|arg| arg == flag)?;
            args.get(at + 1).cloned()
        };
        let has = |flag: &str| args.iter().any(|arg| arg == flag);
        let (portal, target) = (value("-p").unwrap_or_default(), value("-T").unwrap_or_default());
        let iface = value("-I").unwrap_or_else(|| "default".to_owned());
        let of = |code: i32, said: &str| IscsiAnswer { code, said: said.to_owned() };
        let operation = value("-o").unwrap_or_default();
        match value("-m").unwrap_or_default().as_str() {
            "iface" => self.of_iface(&iface, &operation, value("-n"), value("-v")),
            "discoverydb" if has("--discover") => {
                let found: Vec<String> = self.targets_at(&portal);
                if found.is_empty() {
                    return of(NO_OBJECTS, "iscsiadm: No portals found\n");
                }
                let mut state = self.state();
                for target in found {
                    state.nodes.entry((target, portal.clone(), iface.clone())).or_default();
                }
                of(0, "")
            }
            "discoverydb" if operation == "delete" => {
                self.state().discoveries.remove(&portal);
                of(0, "")
            }
            "discoverydb" => {
                self.state().discoveries.entry(portal).or_default();
                of(0, "")
            }
            "node" if has("--login") => self.logs_in((target, portal, iface)),
            "node" if has("--logout") => self.logs_out(&target, &portal, &iface),
            "node" if operation == "delete" => {
                let gone = self.state().nodes.remove(&(target, portal, iface));
                of(if gone.is_some() { 0 } else { NO_OBJECTS }, "")
            }
            "node" => of(0, ""),
            _ => of(INVALID, "iscsiadm: unknown mode\n"),
        }
    }

    fn targets_at(&self, portal: &str) -> Vec<String> {
        let state = self.state();
        let at = state.targets.keys().filter(|(at, _)| at == portal);
        at.map(|(_, target)| target.clone()).collect()
    }

    fn of_iface(
        &self,
        iface: &str,
        operation: &str,
        key: Option<String>,
        value: Option<String>,
    ) -> IscsiAnswer {
        let mut state = self.state();
        let of = |code: i32, said: String| IscsiAnswer { code, said };
        match operation {
            "show" => match state.ifaces.get(iface) {
                Some(settings) => {
                    let lines = settings.iter().map(|(key, value)| format!("{key} = {value}\n"));
                    let name = format!("# BEGIN RECORD 2.1\niface.iscsi_ifacename = {iface}\n");
                    of(0, name + &lines.collect::<String>() + "# END RECORD\n")
                }
                None => of(NO_OBJECTS, format!("iscsiadm: Could not read iface {iface}\n")),
            },
            "new" if state.ifaces.contains_key(iface) => of(EXISTS, String::new()),
            "new" => {
                state.ifaces.insert(iface.to_owned(), Settings::new());
                of(0, String::new())
            }
            "delete" => {
                let gone = state.ifaces.remove(iface);
                of(if gone.is_some() { 0 } else { NO_OBJECTS }, String::new())
            }
            _ => match (state.ifaces.get_mut(iface), key, value) {
                (Some(settings), Some(key), Some(value)) => {
                    settings.insert(key, value);
                    of(0, String::new())
                }
                _ => of(NO_OBJECTS, String::new()),
            },
        }
    }

    fn logs_in(&self, record: (String, String, String)) -> IscsiAnswer {
        let of = |code: i32, said: &str| IscsiAnswer { code, said: said.to_owned() };
        let (known, wanted) = {
            let state = self.state();
            let Some(known) = state.nodes.get(&record).cloned() else {
                return of(NO_OBJECTS, "iscsiadm: No records found\n");
            };
            let is_open = state.sessions.iter().any(|session| {
                (&session.target, &session.iface) == (&record.0, &record.2)
                    && session.portals.contains(&record.1)
            });
            if is_open {
                return of(EXISTS, "iscsiadm: session exists\n");
            }
            let wanted =
                state.targets.get(&(record.1.clone(), record.0.clone())).cloned().unwrap_or_default();
            (known, wanted)
        };
        let set = |key: &str| known.get(key).cloned().unwrap_or_default();
        let (name, password) = (set("node.session.auth.username"), set("node.session.auth.password"));
        if wanted.chap.is_some_and(|chap| chap != (name.clone(), password)) {
            return of(
                AUTH_FAILED,
                "iscsiadm: initiator reported error (24 - iSCSI login failed due to authorization failure)\n",
            );
        }
        self.open(&record.1, &record.0, &record.2, &name);
        of(0, "")
    }

    fn logs_out(&self, target: &str, portal: &str, iface: &str) -> IscsiAnswer {
        let mut state = self.state();
        let is_it = |session: &IscsiSession| {
            session.target == target && session.iface == iface && session.portals.contains(portal)
        };
        let Some(at) = state.sessions.iter().position(is_it) else {
            return IscsiAnswer {
                code: NO_OBJECTS,
                said: "iscsiadm: No matching sessions found\n".to_owned(),
            };
        };
        let disks: Vec<String> = state.sessions[at].disks.values().cloned().collect();
        disks.iter().for_each(|disk| self.goes(&mut state, disk));
        state.sessions.remove(at);
        IscsiAnswer { code: 0, said: String::new() }
    }
}

impl NetworkDisks for FakeNetworkDisks {
    fn for_namespace(&self, _: &str) -> Arc<dyn NetworkDisks> {
        Arc::new(self.clone())
    }

    fn iscsiadm(&self, call: IscsiCall) -> DisksReply<IscsiAnswer> {
        let this = self.clone();
        async move {
            let hangs = {
                let mut state = this.state();
                if state.is_missing {
                    let why = "exec: \"iscsiadm\": executable file not found in $PATH".to_owned();
                    return Err(DisksError::NotEnded { why });
                }
                state.calls.push(call.args.clone());
                let asks = ["--discover", "--login", "--logout"];
                call.args.iter().any(|arg| asks.contains(&arg.as_str()))
                    && call.args.iter().any(|arg| state.hangs.contains(arg))
            };
            if hangs {
                tokio::time::sleep(ISCSIADM_WITHIN).await;
                let why = format!("it has not ended within {} s", ISCSIADM_WITHIN.as_secs());
                return Err(DisksError::NotEnded { why });
            }
            Ok(this.said(&call.args))
        }
        .boxed()
    }

    fn set_secrets(&self, record: IscsiRecord, secrets: Vec<(String, SecretContent)>) -> DisksReply<()> {
        let mut state = self.state();
        let settings = match &record {
            IscsiRecord::Discovery { portal } => state.discoveries.get_mut(portal),
            IscsiRecord::Node { target, portal, iface } => {
                state.nodes.get_mut(&(target.clone(), portal.clone(), iface.clone()))
            }
        };
        let done = match settings {
            Some(settings) => {
                let text = |value: &SecretContent| String::from_utf8_lossy(value.expose()).into_owned();
                settings.extend(secrets.iter().map(|(key, value)| (key.clone(), text(value))));
                Ok(())
            }
            None => Err(DisksError::Failed { why: "iscsiadm has no such record".to_owned() }),
        };
        std::future::ready(done).boxed()
    }

    fn look(&self) -> DisksReply<SeenDisks> {
        let state = self.state();
        let loops = self.disk.files_below("/sys/block").into_values();
        let seen = SeenDisks {
            sessions: state.sessions.clone(),
            links: state.links.clone(),
            disks: state.disks.clone(),
            // One host of Fibre Channel.
            hosts: state.sessions.iter().map(|session| session.host).chain([0]).collect(),
            swaps: state.swaps.clone(),
            loops: loops.map(|file| PathBuf::from(String::from_utf8_lossy(&file).into_owned())).collect(),
        };
        std::future::ready(Ok(seen)).boxed()
    }

    fn scan(&self, host: u32, number: Option<u32>) -> DisksReply<()> {
        self.found(host, number);
        std::future::ready(Ok(())).boxed()
    }

    fn is_free(&self, disk: &str) -> DisksReply<bool> {
        let is_used = self.is_used(&self.state(), disk);
        std::future::ready(Ok(!is_used)).boxed()
    }

    fn flush_map(&self, map: &str) -> DisksReply<()> {
        let mut state = self.state();
        let done = if self.is_used(&state, map) {
            let why = format!("failed to flush multipath device /dev/{map}: exit status 1\nmap in use");
            Err(DisksError::Failed { why })
        } else {
            self.goes(&mut state, map);
            Ok(())
        };
        std::future::ready(done).boxed()
    }

    fn remove(&self, disk: BlockDisk) -> DisksReply<()> {
        let mut state = self.state();
        let now = state.disks.get(&disk.name).map(|now| now.number);
        let done = if now.is_some_and(|number| number != disk.number) {
            Err(DisksError::Changed { disk: disk.name })
        } else if self.is_used(&state, &disk.name) {
            Err(DisksError::InUse { disk: disk.name })
        } else {
            if now.is_some() {
                self.goes(&mut state, &disk.name);
                state.removed.push(disk.name);
            }
            Ok(())
        };
        std::future::ready(done).boxed()
    }
}
