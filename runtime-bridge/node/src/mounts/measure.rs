//! How large a volume is and what it holds (row 10.27). Looks have threads of their own: a file system that does not answer
//! holds up neither mounts nor the looks at other volumes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bridge_io::Lane;
use futures::FutureExt;

use super::sys::failed;
use super::{Done, Measure, MountError, VolumeFigures, check_path};
use crate::du;
use crate::under_way::{Turn, UnderWay};

/// Each volume's files are first counted for at most so long, so that no look waits long for its place.
const QUICK_MAX: Duration = Duration::from_millis(500);
/// The longest time for which the files of one volume are counted.
const COUNT_MAX: Duration = Duration::from_secs(30);
/// What an error of a look says that was done.
const OPERATION: &str = "measure";

/// The looks at volumes.
#[derive(Debug, Clone)]
pub(super) struct Looks {
    lane: Lane,
    /// The volumes whose files take longer than [`QUICK_MAX`]: one of each pod at a time, for they share the time that a
    /// pod's figures may take.
    large: Lane,
    under_way: UnderWay<PathBuf>,
}

impl Looks {
    /// No looks, in lanes of their own.
    pub(super) fn new(lane: &Lane) -> Self {
        Self {
            lane: lane.beside("VolumeManager, measuring"),
            large: lane.beside("VolumeManager, measuring large volumes"),
            under_way: UnderWay::default(),
        }
    }

    /// The same for the work of one namespace.
    pub(super) fn of_tenant(&self, namespace: &str) -> Self {
        Self {
            lane: self.lane.of_tenant(namespace),
            large: self.large.of_tenant(namespace),
            under_way: self.under_way.clone(),
        }
    }

    pub(super) fn measure(&self, path: &Path, how: Measure) -> Done<VolumeFigures> {
        match (self.under_way.begin(path.to_path_buf()), how) {
            (Some(look), Measure::Tree) => self.tree(look),
            (Some(look), Measure::FileSystem) => self.lane.run(move || {
                check_path(look.what())?;
                file_system(look.what())
            }),
            (None, _) => {
                let error = std::io::Error::other("the look before this one has not ended");
                std::future::ready(Err(failed(OPERATION, path)(error))).boxed()
            }
        }
    }

    /// Counts files, quickly if that is possible. Large volumes wait for one another, and none for them.
    fn tree(&self, look: Turn<PathBuf>) -> Done<VolumeFigures> {
        let looks = self.clone();
        async move {
            // `<root>/pods/<uid>/volumes/<plugin>/<name>`
            let pod = look.what().ancestors().nth(3).unwrap_or(look.what()).display().to_string();
            let quick = looks.lane.run_long("measure-volume", move || {
                check_path(look.what())?;
                Ok::<_, MountError>((counted(look.what(), QUICK_MAX)?, look))
            });
            match quick.await? {
                (Some(figures), _) => Ok(figures),
                (None, look) => {
                    let work = move || match counted(look.what(), COUNT_MAX)? {
                        Some(figures) => Ok(figures),
                        None => Err(other(look.what(), "it has more files than can be counted in 30 s")),
                    };
                    looks.large.run_long_alone(pod, "measure-volume", work).await
                }
            }
        }
        .boxed()
    }
}

fn other(path: &Path, reason: &str) -> MountError {
    failed(OPERATION, path)(std::io::Error::other(reason.to_owned()))
}

/// What the file system that `path` is on tells of itself.
fn file_system(path: &Path) -> Result<VolumeFigures, MountError> {
    let told = rustix::fs::statvfs(path).map_err(|errno| failed(OPERATION, path)(errno.into()))?;
    let bytes = |blocks: u64| blocks.saturating_mul(told.f_frsize);
    Ok(VolumeFigures {
        used_bytes: bytes(told.f_blocks.saturating_sub(told.f_bfree)),
        inodes_used: told.f_files.saturating_sub(told.f_ffree),
        available_bytes: bytes(told.f_bavail),
        capacity_bytes: bytes(told.f_blocks),
        inodes: told.f_files,
        inodes_free: told.f_ffree,
    })
}

/// The figures of a volume that shares its file system; `None` if its files take longer to count.
fn counted(path: &Path, time_max: Duration) -> Result<Option<VolumeFigures>, MountError> {
    let whole = file_system(path)?;
    let mut budget = du::Budget::of_time(time_max);
    let counted = du::tree(path, &mut budget).ok_or_else(|| other(path, "it is no directory"))?;
    let figures = VolumeFigures { used_bytes: counted.bytes, inodes_used: counted.inodes, ..whole };
    Ok((!budget.is_exceeded()).then_some(figures))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::tests::small_tmpfs;

    fn looks() -> Looks {
        Looks::new(&Lane::new("test", tokio::runtime::Handle::current()))
    }

    #[test]
    fn the_files_of_a_volume_are_counted_and_its_file_system_tells_of_its_room() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), vec![1; 100_000]).unwrap();
        let tree = counted(dir.path(), COUNT_MAX).unwrap().unwrap();
        assert_eq!(counted(dir.path(), Duration::ZERO).unwrap(), None, "a part is no figure");
        assert_eq!(tree.inodes_used, 2, "the directory and the file");
        assert!((100_000..200_000).contains(&tree.used_bytes), "{tree:?}");
        assert!(tree.capacity_bytes > tree.available_bytes && tree.available_bytes > 0, "{tree:?}");
        let missing = file_system(&dir.path().join("none")).unwrap_err();
        assert!(missing.to_string().starts_with("cannot measure"), "{missing}");
        let Some(_guard) = small_tmpfs(dir.path(), 1 << 20) else { return };
        std::fs::write(dir.path().join("file"), vec![1; 8192]).unwrap();
        let in_memory = counted(dir.path(), COUNT_MAX).unwrap().unwrap();
        assert_eq!((in_memory.capacity_bytes, in_memory.used_bytes), (1 << 20, 8192));
        assert_eq!(in_memory.available_bytes, (1 << 20) - 8192);
        let whole = file_system(dir.path()).unwrap();
        assert_eq!((whole.capacity_bytes, whole.used_bytes), (1 << 20, 8192));
        assert_eq!(whole.inodes, whole.inodes_free + whole.inodes_used);
    }

    #[tokio::test]
    async fn a_volume_is_not_looked_at_twice_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let looks = looks();
        let first = looks.measure(dir.path(), Measure::FileSystem);
        let second = looks.measure(dir.path(), Measure::FileSystem).await.unwrap_err();
        assert!(second.to_string().contains("has not ended"), "{second}");
        first.await.unwrap();
        drop(looks.measure(dir.path(), Measure::FileSystem));
        looks.measure(dir.path(), Measure::FileSystem).await.unwrap();
    }

    #[tokio::test]
    async fn large_volumes_of_one_pod_hold_up_no_other_pods() {
        let dir = tempfile::tempdir().unwrap();
        let volume =
            |pod: &str, name: &str| dir.path().join("pods").join(pod).join("volumes/empty-dir").join(name);
        let looks = looks();
        // The pod's large volume that is being counted.
        let key = volume("huge", "x").ancestors().nth(3).unwrap().display().to_string();
        let held = looks.large.turn(key).await.unwrap();
        let mut huge = Vec::new();
        for number in 0..8 {
            let path = volume("huge", &number.to_string());
            std::fs::create_dir_all(&path).unwrap();
            let look = looks.under_way.begin(path).unwrap();
            let waits = looks.large.run_long_alone(
                dir.path().join("pods/huge").display().to_string(),
                "measure-volume",
                move || counted(look.what(), COUNT_MAX),
            );
            huge.push(tokio::spawn(waits));
        }
        let small = volume("small", "v");
        std::fs::create_dir_all(&small).unwrap();
        assert_eq!(looks.measure(&small, Measure::Tree).await.unwrap().inodes_used, 1);
        let large = looks
            .large
            .run_long_alone("other".to_owned(), "measure-volume", move || counted(&small, COUNT_MAX));
        assert!(large.await.unwrap().is_some(), "nor other large ones");
        assert!(huge.iter().all(|one| !one.is_finished()));
        drop(held);
        for one in huge {
            assert!(one.await.unwrap().unwrap().is_some());
        }
    }
}
