use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bridge_io::{Lane, SharedPlaces};
use rustix::fs::OFlags;
use tokio::process::Command;
use tokio::runtime::Handle;

use super::sysfs::Roots;
use super::{
    BlockDisk, DisksError, DisksReply, FLUSH_WITHIN, ISCSIADM_OUTPUT_BYTES_MAX, ISCSIADM_PLACE_WITHIN,
    ISCSIADM_WITHIN, IscsiAnswer, IscsiCall, IscsiRecord, NetworkDisks, SCAN_WITHIN, SeenDisks, records,
};
use crate::host::SecretContent;
use crate::mounts::program::{self, Input, Left, run_whole};

/// At most so many runs of `iscsiadm` at once on the node.
const RUNS_MAX: usize = 16;
const ISCSIADM: &str = "iscsiadm";

/// The disks of this machine. Programs run in process groups of their own.
#[derive(Clone, Debug)]
pub struct SystemDisks {
    roots: Roots,
    records: Vec<PathBuf>,
    lane: Lane,
    /// For what a disk or a host that does not answer may hold up.
    touching: Lane,
    places: SharedPlaces,
    tenant: Arc<str>,
}

impl SystemDisks {
    /// The disks, with work on this runtime.
    pub fn new(io: Handle) -> Self {
        let lane = Lane::new("disks of networks", io);
        Self {
            roots: Roots::default(),
            records: records::ROOTS.map(PathBuf::from).to_vec(),
            touching: lane.beside("disks of networks, at disks"),
            lane,
            places: SharedPlaces::new(RUNS_MAX),
            tenant: Arc::default(),
        }
    }

    async fn answer(self, program: &'static str, call: IscsiCall) -> Result<IscsiAnswer, DisksError> {
        let turn = self.lane.turn(format!("iscsiadm {}", call.turn)).await?;
        let place = tokio::time::timeout(ISCSIADM_PLACE_WITHIN, self.places.place(&self.tenant)).await;
        let Ok(Some(place)) = place else { return Err(DisksError::NoPlace) };
        let mut command = Command::new(program);
        command.args(call.args.iter());
        let input = Input { command, program, bytes: None, left: Left::Alone };
        // One byte more tells that there is more.
        let bytes_max = ISCSIADM_OUTPUT_BYTES_MAX + 1;
        let ended = run_whole(bytes_max, &self.lane, input, ISCSIADM_WITHIN, (turn, place)).await;
        let (_held, ended) = ended.map_err(|failed| DisksError::NotEnded { why: failed.why })?;
        if ended.out.len().max(ended.err.len()) > ISCSIADM_OUTPUT_BYTES_MAX {
            return Err(DisksError::TooMuch);
        }
        let Some(code) = ended.status.code() else {
            return Err(DisksError::NotEnded { why: program::told(ended.status) });
        };
        let said = String::from_utf8_lossy(&[ended.out, ended.err].concat()).into_owned();
        Ok(IscsiAnswer { code, said })
    }

    async fn removed(self, disk: BlockDisk) -> Result<(), DisksError> {
        let turn = self.touching.turn(format!("disk {}", disk.name)).await?;
        let (roots, wanted) = (self.roots.clone(), disk.clone());
        let claimed = self.touching.run(move || claim(&roots, &wanted)).await?;
        let Some(claimed) = claimed else { return Ok(()) };
        let path = self.roots.dev.join(&disk.name).to_string_lossy().into_owned();
        // As upstream: a disk that takes no more writes goes all the same.
        let held = Arc::new((turn, claimed));
        let flushed =
            program::run(&self.touching, "blockdev", &["--flushbufs", &path], FLUSH_WITHIN, held.clone())
                .await;
        if let Err(told) = flushed {
            tracing::warn!(disk = path, why = told.why, "The last writes of a disk may be lost");
        }
        let file = self.roots.sys.join("block").join(&disk.name).join("device/delete");
        self.touching
            .run(move || {
                // Nothing else can claim the disk before it is gone.
                let _held = held;
                match write(&file, "1") {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    done => done.map_err(failed("write", &file)),
                }
            })
            .await
    }
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DisksError {
    let path = path.to_path_buf();
    move |error| DisksError::Io { operation, path, reason: error.to_string() }
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(file)?.write_all(text.as_bytes())
}

/// Opens a disk as the kernel lets only one user of it open it: not while it is mounted, swapped to or a part of another device.
fn open_alone(path: &Path) -> io::Result<fs::File> {
    let flags = (OFlags::EXCL | OFlags::NONBLOCK).bits().cast_signed();
    fs::OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}

/// Claims the disk; `None` if it is gone. A disk that does not answer can have no user that the kernel would not tell of.
fn claim(roots: &Roots, disk: &BlockDisk) -> Result<Option<Option<fs::File>>, DisksError> {
    let Some(now) = roots.disk(&disk.name) else { return Ok(None) };
    if (now.number, &now.address, &now.wwid) != (disk.number, &disk.address, &disk.wwid) {
        return Err(DisksError::Changed { disk: disk.name.clone() });
    }
    if !now.holders.is_empty() {
        return Err(DisksError::InUse { disk: disk.name.clone() });
    }
    match open_alone(&roots.dev.join(&disk.name)) {
        Ok(file) => Ok(Some(Some(file))),
        Err(error) if is_busy(&error) => Err(DisksError::InUse { disk: disk.name.clone() }),
        Err(_) => Ok(Some(None)),
    }
}

async fn in_time<T>(within: Duration, what: String, work: DisksReply<T>) -> Result<T, DisksError> {
    let late = || DisksError::NotEnded { why: format!("{what} has not ended within {} s", within.as_secs()) };
    tokio::time::timeout(within, work).await.unwrap_or_else(|_| Err(late()))
}

impl NetworkDisks for SystemDisks {
    fn for_namespace(&self, namespace: &str) -> Arc<dyn NetworkDisks> {
        Arc::new(Self {
            tenant: Arc::from(namespace),
            touching: self.touching.of_tenant(namespace),
            ..self.clone()
        })
    }

    fn iscsiadm(&self, call: IscsiCall) -> DisksReply<IscsiAnswer> {
        self.lane.run_steps(self.clone().answer(ISCSIADM, call))
    }

    fn set_secrets(&self, record: IscsiRecord, secrets: Vec<(String, SecretContent)>) -> DisksReply<()> {
        let roots = self.records.clone();
        self.lane.run_alone("records of iscsiadm", move || records::set(&roots, &record, &secrets))
    }

    fn look(&self) -> DisksReply<SeenDisks> {
        let roots = self.roots.clone();
        self.lane.run(move || roots.look())
    }

    fn scan(&self, host: u32, number: Option<u32>) -> DisksReply<()> {
        let file = self.roots.sys.join(format!("class/scsi_host/host{host}/scan"));
        // The channel and the target of a session are 0.
        let told = number.map_or_else(|| "- - -".to_owned(), |number| format!("0 0 {number}"));
        let work = self.touching.run_alone(format!("scan of host{host}"), move || {
            write(&file, &told).map_err(failed("write", &file))
        });
        Box::pin(in_time(SCAN_WITHIN, format!("the scan of host{host}"), work))
    }

    fn is_free(&self, disk: &str) -> DisksReply<bool> {
        let path = self.roots.dev.join(disk);
        let work = self.touching.run(move || match open_alone(&path) {
            Ok(_) => Ok(true),
            Err(error) if is_busy(&error) => Ok(false),
            Err(error) => Err(failed("open", &path)(error)),
        });
        Box::pin(in_time(SCAN_WITHIN, format!("the look at {disk}"), work))
    }

    fn flush_map(&self, map: &str) -> DisksReply<()> {
        let (lane, map) = (self.touching.clone(), map.to_owned());
        self.touching.run_steps(async move {
            let turn = lane.turn(format!("disk {map}")).await?;
            let path = format!("/dev/{map}");
            let ended = program::run(&lane, "multipath", &["-f", &path], FLUSH_WITHIN, turn).await;
            ended.map(drop).map_err(|told| DisksError::Failed {
                why: format!("failed to flush multipath device {path}: {}\n{}", told.why, told.output),
            })
        })
    }

    fn remove(&self, disk: BlockDisk) -> DisksReply<()> {
        self.touching.run_steps(self.clone().removed(disk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disks(root: &Path) -> SystemDisks {
        let at = |name: &str| root.join(name);
        let roots = Roots { sys: at("sys"), dev: at("dev"), swaps: at("swaps") };
        SystemDisks { roots, records: vec![at("iscsi")], ..SystemDisks::new(Handle::current()) }
    }

    fn put(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn call(args: &[&str]) -> IscsiCall {
        IscsiCall { args: args.iter().map(|arg| (*arg).to_owned()).collect(), turn: "one".to_owned() }
    }

    #[tokio::test]
    async fn a_program_that_is_missing_or_fails_is_told_in_upstreams_words() {
        let dir = tempfile::tempdir().unwrap();
        let disks = disks(dir.path());
        let missing = disks.clone().answer("no-such-iscsiadm", call(&[])).await.unwrap_err();
        assert_eq!(missing.to_string(), "exec: \"no-such-iscsiadm\": executable file not found in $PATH");
        let script = ["-c", "echo out; echo err >&2; exit 21"];
        let failed = disks.clone().answer("sh", call(&script)).await.unwrap();
        assert_eq!(failed, IscsiAnswer { code: 21, said: "out\nerr\n".to_owned() });
        let much = disks.answer("sh", call(&["-c", "head -c 100000 /dev/zero"])).await.unwrap_err();
        assert_eq!(much, DisksError::TooMuch);
    }

    #[tokio::test]
    async fn a_host_looks_for_one_disk_or_for_all() {
        let dir = tempfile::tempdir().unwrap();
        let disks = disks(dir.path());
        let file = dir.path().join("sys/class/scsi_host/host2/scan");
        put(file.clone(), "");
        disks.scan(2, Some(7)).await.unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "0 0 7");
        disks.scan(2, None).await.unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "- - -");
        assert!(disks.scan(3, None).await.is_err(), "there is no such host");
    }

    #[tokio::test]
    async fn a_disk_that_is_used_or_another_by_now_stays() {
        let dir = tempfile::tempdir().unwrap();
        let disks = disks(dir.path());
        let sdb = dir.path().join("sys/block/sdb");
        put(sdb.join("dev"), "8:16");
        put(sdb.join("device/delete"), "");
        put(dir.path().join("dev/sdb"), "");
        let disk = disks.look().await.unwrap().disks["sdb"].clone();
        let other = BlockDisk { number: (8, 32), ..disk.clone() };
        assert_eq!(disks.remove(other).await, Err(DisksError::Changed { disk: "sdb".to_owned() }));
        put(sdb.join("holders/dm-1"), "");
        let held = disks.remove(disk.clone()).await;
        assert_eq!(held, Err(DisksError::InUse { disk: "sdb".to_owned() }));
        assert_eq!(fs::read_to_string(sdb.join("device/delete")).unwrap(), "", "it is there still");
        fs::remove_file(sdb.join("holders/dm-1")).unwrap();
        disks.remove(disk.clone()).await.unwrap();
        assert_eq!(fs::read_to_string(sdb.join("device/delete")).unwrap(), "1");
        fs::remove_dir_all(sdb).unwrap();
        assert_eq!(disks.remove(disk).await, Ok(()), "it is gone");
    }
}
