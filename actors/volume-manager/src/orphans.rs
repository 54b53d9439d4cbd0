//! Orphaned pod directories (row 10.26): the directory of a pod that was removed while no kubelet ran. A
//! removal cannot be undone, so in doubt a directory is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use bridge_node::mounts::MountPoint;
use messages::PodUid;
use supervision::blame;

/// When orphaned directories are looked for and removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepPolicy {
    /// The time between two looks. While a directory is kept only because its pod was known a short while ago, the next look
    /// comes when that is over.
    pub every: Duration,
    /// A directory is kept at least this long after its pod was last known.
    pub quiet: Duration,
}

impl Default for SweepPolicy {
    fn default() -> Self {
        Self { every: Duration::from_secs(60), quiet: Duration::from_secs(10) }
    }
}

/// The facts about the pods of the node at one moment.
#[derive(Clone, Copy, Debug)]
pub struct KnownPods<'a> {
    /// The desired pods, with the rejected ones; `None` before every source has been heard.
    pub desired: Option<&'a BTreeSet<PodUid>>,
    /// The pods that the runtime holds; `None` if Pleg did not answer.
    pub in_runtime: Option<&'a BTreeSet<PodUid>>,
    /// Pods of which a worker has asked for mounts that are not undone yet.
    pub asked_for: &'a BTreeSet<PodUid>,
    /// All mounts of the machine.
    pub mounts: &'a [MountPoint],
}

/// Why a directory is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepReason {
    /// Not every source of facts has answered.
    NotSure,
    /// A source, the runtime or a worker has the pod.
    Known,
    /// The pod was known a short while ago, or this incarnation has not run long enough.
    Recent,
    /// Something of the directory is mounted outside of it.
    InUse,
}

/// Since when each directory has had no known pod.
#[derive(Debug)]
pub struct Orphans {
    quiet: Duration,
    since: BTreeMap<PodUid, Duration>,
}

impl Orphans {
    /// No directories.
    pub fn new(policy: SweepPolicy) -> Self {
        Self { quiet: policy.quiet, since: BTreeMap::new() }
    }

    /// Decides which of the directories on disk may be removed. `now` is the time since one fixed moment.
    pub fn judge(
        &mut self,
        on_disk: &BTreeSet<PodUid>,
        pods_dir: &Path,
        known: KnownPods<'_>,
        now: Duration,
    ) -> BTreeMap<PodUid, Result<(), KeepReason>> {
        self.since.retain(|uid, _| on_disk.contains(uid));
        let shown = shown_elsewhere(known.mounts, pods_dir);
        let mut judge = |uid: &PodUid| blame::for_pod(uid, || self.judge_one(uid, &shown, known, now));
        on_disk.iter().map(|uid| (uid.clone(), judge(uid))).collect()
    }

    fn judge_one(
        &mut self,
        uid: &PodUid,
        shown: &BTreeSet<&str>,
        known: KnownPods<'_>,
        now: Duration,
    ) -> Result<(), KeepReason> {
        let (Some(desired), Some(in_runtime)) = (known.desired, known.in_runtime) else {
            self.since.remove(uid);
            return Err(KeepReason::NotSure);
        };
        if desired.contains(uid) || in_runtime.contains(uid) || known.asked_for.contains(uid) {
            self.since.remove(uid);
            return Err(KeepReason::Known);
        }
        let since = *self.since.entry(uid.clone()).or_insert(now);
        if now.saturating_sub(since) < self.quiet {
            return Err(KeepReason::Recent);
        }
        if shown.contains(uid.as_str()) {
            return Err(KeepReason::InUse);
        }
        Ok(())
    }
}

/// The directories of pods of which a mount outside shows a part, as the mounts in containers do.
fn shown_elsewhere<'m>(mounts: &'m [MountPoint], pods_dir: &Path) -> BTreeSet<&'m str> {
    let Some(pods) = pods_dir.file_name() else { return BTreeSet::new() };
    let of_mount = mounts.iter().flat_map(|mount| {
        // The directory of a pod in which the mount itself is.
        let own = mount.path.strip_prefix(pods_dir).ok().and_then(|below| below.iter().next());
        // The mount's root is relative to its own file system, which may begin at any directory above.
        let parts = mount.root.iter().zip(mount.root.iter().skip(1));
        parts.filter(move |(above, name)| *above == pods && Some(*name) != own).map(|(_, name)| name)
    });
    of_mount.filter_map(|name| name.to_str()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(uids: &[&str]) -> BTreeSet<PodUid> {
        uids.iter().map(|uid| PodUid::new(uid)).collect()
    }

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn two_minutes() -> SweepPolicy {
        SweepPolicy { quiet: secs(120), ..SweepPolicy::default() }
    }

    fn mount(path: &str, root: &str) -> MountPoint {
        MountPoint {
            fs_options: Vec::new(),
            path: path.into(),
            root: root.into(),
            fs_type: "ext4".to_owned(),
            source: "/dev/a".to_owned(),
            options: Vec::new(),
            device: (8, 1),
        }
    }

    const PODS: &str = "/var/lib/kubelet/pods";

    fn judge(orphans: &mut Orphans, known: KnownPods<'_>, now: u64) -> Result<(), KeepReason> {
        let verdicts = orphans.judge(&set(&["u"]), Path::new(PODS), known, secs(now));
        verdicts[&PodUid::new("u")]
    }

    #[test]
    fn a_directory_goes_two_minutes_after_nobody_knows_it() {
        let (nobody, somebody) = (set(&[]), set(&["u"]));
        let known = KnownPods {
            desired: Some(&nobody),
            in_runtime: Some(&nobody),
            asked_for: &nobody,
            mounts: &[mount(PODS, "/var/lib/kubelet/pods")],
        };
        let mut orphans = Orphans::new(two_minutes());
        assert_eq!(judge(&mut orphans, KnownPods { desired: None, ..known }, 0), Err(KeepReason::NotSure));
        assert_eq!(
            judge(&mut orphans, KnownPods { in_runtime: None, ..known }, 500),
            Err(KeepReason::NotSure)
        );
        assert_eq!(judge(&mut orphans, known, 1000), Err(KeepReason::Recent));
        assert_eq!(judge(&mut orphans, known, 1119), Err(KeepReason::Recent));
        assert_eq!(judge(&mut orphans, known, 1120), Ok(()));
        for spoken in [
            KnownPods { desired: Some(&somebody), ..known },
            KnownPods { in_runtime: Some(&somebody), ..known },
            KnownPods { asked_for: &somebody, ..known },
        ] {
            assert_eq!(judge(&mut orphans, spoken, 2000), Err(KeepReason::Known));
            assert_eq!(judge(&mut orphans, known, 2001), Err(KeepReason::Recent));
        }
    }

    #[test]
    fn what_is_mounted_elsewhere_from_it_keeps_it() {
        let nobody = set(&[]);
        for (path, root, expected) in [
            ("/run/x", "/var/lib/kubelet/pods/u/volumes/p/v", Err(KeepReason::InUse)),
            ("/run/x", "/kubelet/pods/u", Err(KeepReason::InUse)),
            ("/run/x", "/var/lib/kubelet/pods/other/u", Ok(())),
            ("/var/lib/kubelet/pods/u/volumes/p/v", "/var/lib/kubelet/pods/u/x", Ok(())),
            ("/run/x", "/", Ok(())),
        ] {
            let mounts = [mount(path, root)];
            let known = KnownPods {
                desired: Some(&nobody),
                in_runtime: Some(&nobody),
                asked_for: &nobody,
                mounts: &mounts,
            };
            let mut orphans = Orphans::new(two_minutes());
            assert_eq!(judge(&mut orphans, known, 0), Err(KeepReason::Recent));
            assert_eq!(judge(&mut orphans, known, 500), expected, "{path} {root}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_anybody_knows_is_removed(
            steps in proptest::collection::vec((0u64..100, any::<[Option<bool>; 2]>(), any::<bool>()), 1..60)
        ) {
            let mut orphans = Orphans::new(two_minutes());
            let (nobody, somebody) = (set(&[]), set(&["u"]));
            let pick = |known: bool| if known { &somebody } else { &nobody };
            let (mut now, mut quiet_since) = (0, None);
            for (gap, [desired, in_runtime], asked) in steps {
                now += gap;
                let known = KnownPods {
                    desired: desired.map(pick),
                    in_runtime: in_runtime.map(pick),
                    asked_for: pick(asked),
                    mounts: &[],
                };
                let unknown = desired == Some(false) && in_runtime == Some(false) && !asked;
                quiet_since = if unknown { quiet_since.or(Some(now)) } else { None };
                let verdict = judge(&mut orphans, known, now);
                prop_assert_eq!(verdict.is_ok(), quiet_since.is_some_and(|since| now - since >= 120));
            }
        }
    }
}
