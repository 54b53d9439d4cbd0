//! The part of a reading that touches file systems, any of which may hang: each look has a deadline, after which its figures
//! are missing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bridge_io::{Lane, NotRun};
use futures::future::join_all;

use super::super::{DiskUsage, files};
use super::{Reading, Space, WantedPod, Wish, parse};
use crate::du::{self, Budget};
use crate::tenant_files;
use crate::under_way::UnderWay;

/// The longest time for the files of all pods; of logs only files directly in a container's directory are counted.
const LOGS_MAX: Duration = Duration::from_secs(2);
/// How long a look at pods' files may take in all, and one at a file system.
const LOGS_WITHIN: Duration = Duration::from_secs(3);
const SPACE_WITHIN: Duration = Duration::from_secs(1);

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Look {
    /// All containers' logs, and what else containers fill beside volumes.
    Logs,
    /// The file system that a path is on.
    Space(PathBuf),
}

/// The files of a pod.
#[derive(Debug, Default)]
pub(super) struct PodFiles {
    /// A container's logs, by its name.
    logs: BTreeMap<String, DiskUsage>,
    /// What else containers fill beside volumes.
    own: DiskUsage,
    /// Whether there are too many to count, so that none are told of.
    cut: bool,
}

/// The files of each pod, by its UID.
pub(super) type Logs = BTreeMap<String, PodFiles>;

/// What file systems tell.
#[derive(Debug, Default)]
pub(super) struct DiskReading {
    /// `None` if the logs could not be looked at.
    pub(super) logs: Option<Logs>,
    pub(super) spaces: BTreeMap<PathBuf, Space>,
}

impl DiskReading {
    /// Adds these figures to a reading; `root` is the kubelet's directory.
    pub(super) fn add_to(mut self, found: &mut Reading, root: &Path) {
        found.node_space = self.spaces.get(root).cloned();
        found.spaces = self.spaces;
        for (uid, pod) in &mut found.pods {
            match &mut self.logs {
                Some(logs) => {
                    let files = logs.remove(uid).unwrap_or_default();
                    (pod.logs, pod.own, pod.logs_cut) = (files.logs, files.own, files.cut);
                }
                None => pod.logs_cut = true,
            }
        }
    }
}

/// Looks at file systems.
#[derive(Clone, Debug)]
pub(super) struct Disks {
    root: PathBuf,
    proc: PathBuf,
    lane: Lane,
    under_way: UnderWay<Look>,
}

impl Disks {
    pub(super) fn new(root: PathBuf, proc: PathBuf, lane: Lane) -> Self {
        Self { root, proc, lane, under_way: UnderWay::default() }
    }

    /// Looks at what is wished, all at the same time.
    pub(super) async fn read(&self, wish: &Wish) -> DiskReading {
        let parts = wish.parts;
        let logs = async {
            if !parts.storage {
                return Some(Logs::new());
            }
            let (root, pods) = (self.root.clone(), wish.pods.clone());
            self.look(Look::Logs, LOGS_WITHIN, move || Some(logs(&root, &pods, LOGS_MAX))).await
        };
        let wished = (parts.storage || parts.details).then(|| wish.spaces.iter().chain([&self.root]));
        let paths: BTreeSet<&PathBuf> = wished.into_iter().flatten().collect();
        let spaces = join_all(paths.into_iter().map(async |path| {
            let (of, proc) = (path.clone(), self.proc.clone());
            let found = self.look(Look::Space(path.clone()), SPACE_WITHIN, move || space(&of, &proc)).await?;
            Some((path.clone(), found))
        }));
        let (logs, spaces) = tokio::join!(logs, spaces);
        DiskReading { logs, spaces: spaces.into_iter().flatten().collect() }
    }

    /// The result of `work`; `None` if it takes longer, or if the look of this name before has not ended.
    async fn look<T: Send + 'static>(
        &self,
        what: Look,
        within: Duration,
        work: impl FnOnce() -> Option<T> + Send + 'static,
    ) -> Option<T> {
        let turn = self.under_way.begin(what)?;
        let looking = self.lane.run(move || {
            let found = work();
            drop(turn);
            Ok::<_, NotRun>(found)
        });
        tokio::time::timeout(within, looking).await.ok()?.ok()?
    }
}

/// Counts pods' files within a time; `root` is the kubelet's directory. Each pod has its share of the time that those before it
/// have left, so that one with very many files has no other pod's left out.
fn logs(root: &Path, pods: &BTreeMap<String, WantedPod>, within: Duration) -> Logs {
    let until = Instant::now() + within;
    let mut found = Logs::new();
    for (before, (uid, pod)) in pods.iter().enumerate() {
        let left = until.saturating_duration_since(Instant::now());
        let mut budget = Budget::of_time(share(left, pods.len() - before));
        let counted = pod.logs.iter().filter_map(|(name, dir)| {
            let used = du::files(dir, &mut budget)?;
            Some((name.clone(), used))
        });
        let logs = counted.collect();
        let own = files::filled_by_containers(root, uid, &mut budget);
        // Of a pod with more files than could be counted, no part is told.
        let cut = budget.is_exceeded();
        let none = PodFiles { cut, ..PodFiles::default() };
        found.insert(uid.clone(), if cut { none } else { PodFiles { logs, own, cut } });
    }
    found
}

/// The time for one of the pods that wait.
fn share(left: Duration, waiting: usize) -> Duration {
    left / u32::try_from(waiting.max(1)).unwrap_or(u32::MAX)
}

/// The file system that a path is on.
fn space(path: &Path, proc: &Path) -> Option<Space> {
    let told = rustix::fs::statvfs(path).ok()?;
    let device = rustix::fs::stat(path).ok()?.st_dev;
    let numbers = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let disk = tenant_files::kernel_text(&proc.join("diskstats")).ok();
    let disk =
        disk.and_then(|text| parse::disk(&text, (rustix::fs::major(device), rustix::fs::minor(device))));
    let mut devices =
        parse::partitions(&tenant_files::kernel_text(&proc.join("partitions")).unwrap_or_default());
    let inodes = told.f_files > 0;
    Some(Space {
        source: devices.remove(&numbers).unwrap_or(numbers),
        capacity: told.f_blocks.saturating_mul(told.f_frsize),
        free: told.f_bfree.saturating_mul(told.f_frsize),
        available: told.f_bavail.saturating_mul(told.f_frsize),
        inodes: inodes.then_some(told.f_files),
        inodes_free: inodes.then_some(told.f_ffree),
        disk,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::tests::silent_mount;

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_is_left_out_in_time_and_not_begun_again() {
        let lane = Lane::new("test", tokio::runtime::Handle::current());
        let disks = Disks::new("/".into(), "/proc".into(), lane);
        let what = || Look::Space("/hangs".into());
        let hanging = disks.under_way.begin(what()).unwrap();
        assert_eq!(disks.look(what(), SPACE_WITHIN, || Some(1)).await, None, "the look before has not ended");
        assert_eq!(disks.look(Look::Logs, SPACE_WITHIN, || Some(2)).await, Some(2), "others go on");
        drop(hanging);
        assert_eq!(disks.look(what(), SPACE_WITHIN, || Some(3)).await, Some(3));
        let never = disks.under_way.begin(what()).unwrap();
        let late = disks.look(Look::Logs, Duration::ZERO, || {
            std::thread::sleep(Duration::from_millis(50));
            Some(4)
        });
        assert_eq!(late.await, None);
        drop(never);
    }

    #[tokio::test]
    async fn a_file_system_that_hangs_has_its_own_figures_missing_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("hangs");
        std::fs::create_dir(&target).unwrap();
        let Some((_guard, server)) = silent_mount(&target) else {
            return eprintln!("skipped: no file system that hangs can be made here");
        };
        let lane = Lane::new("test", tokio::runtime::Handle::current());
        let disks = Disks::new(dir.path().to_owned(), "/proc".into(), lane);
        let parts = super::super::Parts { storage: true, ..Default::default() };
        let wish = Wish { parts, spaces: vec![target.clone()], ..Wish::default() };
        for _ in 0..3 {
            let found = disks.read(&wish).await;
            assert!(found.logs.is_some());
            assert_eq!(found.spaces.keys().collect::<Vec<_>>(), [dir.path()]);
        }
        assert_eq!(disks.under_way.all(), [Look::Space(target)], "one look hangs, and no more");
        // What hangs is let go.
        drop(server);
    }

    #[test]
    fn a_pod_with_very_many_logs_takes_only_its_share_of_the_time() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("0.log"), "words").unwrap();
        let pod =
            WantedPod { logs: [("web".to_owned(), dir.path().to_owned())].into(), ..WantedPod::default() };
        let pods: BTreeMap<String, WantedPod> = [("a".to_owned(), pod.clone()), ("b".to_owned(), pod)].into();
        std::fs::create_dir_all(dir.path().join("pods/a")).unwrap();
        std::fs::write(dir.path().join("pods/a/etc-hosts"), "words").unwrap();
        let files = |within| logs(dir.path(), &pods, within);
        let (whole, none) = (files(Duration::from_secs(600)), files(Duration::ZERO));
        assert!(whole.values().all(|pod| !pod.cut && pod.logs["web"].inodes == 1), "{whole:?}");
        assert_eq!((whole["a"].own.inodes, whole["b"].own), (1, DiskUsage::default()));
        assert!(none.values().all(|pod| pod.cut && pod.logs.is_empty()), "a part is no figure: {none:?}");
        assert_eq!(none["a"].own, DiskUsage::default());
        // However long each of the first takes of its share, as much is left for the last one.
        let mut left = LOGS_MAX;
        for waiting in (1..=100).rev() {
            let own = share(left, waiting);
            assert!(own >= LOGS_MAX / 100 - Duration::from_micros(1), "{own:?}");
            left -= own;
        }
    }

    #[test]
    fn without_the_logs_no_sum_is_taken_for_whole() {
        let mut found = Reading {
            pods: [("u".to_owned(), super::super::PodReading::default())].into(),
            ..Reading::default()
        };
        DiskReading::default().add_to(&mut found, Path::new("/"));
        assert!(found.pods["u"].logs_cut);
    }
}
