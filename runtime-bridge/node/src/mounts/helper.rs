//! Mounts that the program `mount` makes: file systems that need a helper in user space, such as NFS, and mounts with options
//! that people write.

use std::path::Path;
use std::time::Duration;

use bridge_io::Lane;

use super::sys::{already_mounted, mounted_at, refuse_symlink, run_in, unmount};
use super::{Done, HelperMount, MountError, check_path, program};

/// The program.
pub(super) const MOUNT: &str = "mount";
/// How long the program may take. Below what a volume's set-up may take, so that this error arrives.
pub(super) const WITHIN: Duration = Duration::from_secs(100);
/// How long an unmount of a file system of a server may take before the server's answers are not waited for any more; as
/// upstream has it.
const FORCE_AFTER: Duration = Duration::from_secs(60);

/// Mounts at `target` by the program `mount`. The program has `target`'s turn until it ends, also when it is late.
pub(super) fn mount(lane: &Lane, target: &Path, mount: HelperMount) -> Done<()> {
    mount_by(MOUNT, WITHIN, lane, target, mount)
}

fn mount_by(
    program: &'static str,
    within: Duration,
    lane: &Lane,
    target: &Path,
    mount: HelperMount,
) -> Done<()> {
    let (of, target) = (lane.clone(), target.to_path_buf());
    lane.run_steps(async move {
        refuse_options(&mount)?;
        let turn = of.turn(target.display().to_string()).await?;
        let (place, fs_type) = (target.clone(), mount.fs_type.clone());
        if of.run(move || is_there(&place, &fs_type)).await? {
            return Ok(());
        }
        let fs_type = mount.fs_type.clone();
        make(program, within, &of, &target, &mount, turn, move |place| is_made(place, &fs_type)).await
    })
}

/// Mounts at `target` by the program, which has what is `held` until it ends. Nothing stays there that failed, or that is not
/// what `check` takes for the mount.
pub(super) async fn make<T: Send + 'static>(
    program: &str,
    within: Duration,
    lane: &Lane,
    target: &Path,
    mount: &HelperMount,
    held: T,
    check: impl FnOnce(&Path) -> Result<(), MountError> + Send + 'static,
) -> Result<(), MountError> {
    let place = target.to_path_buf();
    let made = match run(program, within, lane, target, mount, held).await {
        Ok(()) => lane.run(move || check(&place)).await,
        failed => failed,
    };
    if made.is_err() {
        // What a program that failed has mounted is not a volume.
        let target = target.to_path_buf();
        let _ = lane.run(move || unmount(&target)).await;
    }
    made
}

/// Whether such a file system is mounted there already; a bind mount has no type of its own.
fn is_there(target: &Path, fs_type: &str) -> Result<bool, MountError> {
    check_path(target)?;
    match mounted_at(target)? {
        Some(mount) if mount.fs_type.starts_with(fs_type) => Ok(true),
        Some(mount) => Err(already_mounted(&mount)),
        None => refuse_symlink("mount at", target).map(|()| false),
    }
}

/// The program takes what begins with a dash for an option of its own, some of which mount something else.
pub(super) fn refuse_options(mount: &HelperMount) -> Result<(), MountError> {
    let is_option = |word: &String| word.starts_with('-');
    match [&mount.fs_type, &mount.source].into_iter().find(|word| is_option(word)) {
        Some(word) => Err(MountError::Refused { reason: format!("mount {word:?}: it begins with a dash") }),
        None => Ok(()),
    }
}

/// The program may have mounted something else than it was asked for.
fn is_made(target: &Path, fs_type: &str) -> Result<(), MountError> {
    if is_there(target, fs_type)? {
        return Ok(());
    }
    Err(nothing(target))
}

/// The program has not done what it said.
pub(super) fn nothing(target: &Path) -> MountError {
    let reason = format!("mount at {}: the program has mounted nothing there", target.display());
    MountError::Refused { reason }
}

async fn run<T: Send + 'static>(
    program: &str,
    within: Duration,
    lane: &Lane,
    target: &Path,
    mount: &HelperMount,
    turn: T,
) -> Result<(), MountError> {
    let arguments = arguments(target, mount);
    let failed = |why: &str, output: &str| MountError::Refused {
        reason: format!(
            "mount failed: {why}\nMounting command: {program}\nMounting arguments: {}\nOutput: {output}",
            arguments.join(" ")
        ),
    };
    let asked: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = program::run(lane, program, &asked, within, turn).await;
    ended.map(drop).map_err(|told| failed(&told.why, &told.output))
}

fn arguments(target: &Path, mount: &HelperMount) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut add = |more: &[&str]| arguments.extend(more.iter().map(|one| (*one).to_owned()));
    if !mount.fs_type.is_empty() {
        add(&["-t", &mount.fs_type]);
    }
    if !mount.options.is_empty() {
        add(&["-o", &mount.options.join(",")]);
    }
    add(&["--", &mount.source, &target.to_string_lossy()]);
    arguments
}

/// Unmounts, in lanes of its own: unmounts of file systems whose servers do not answer hold up no other work on mounts, nor the
/// force that ends them.
#[derive(Clone, Debug)]
pub(super) struct Unmounting {
    plain: Lane,
    by_force: Lane,
}

impl Unmounting {
    /// No unmounts, in lanes beside this one.
    pub(super) fn new(lane: &Lane) -> Self {
        Self {
            plain: lane.beside("VolumeManager, unmounting"),
            by_force: lane.beside("VolumeManager, unmounting by force"),
        }
    }

    /// The same for the work of one namespace.
    pub(super) fn of_tenant(&self, namespace: &str) -> Self {
        Self { plain: self.plain.of_tenant(namespace), by_force: self.by_force.of_tenant(namespace) }
    }

    /// Unmounts what is mounted at `target`. A file system of a server that does not answer is told after a minute not to wait
    /// for it, which ends the unmount.
    pub(super) fn unmount(&self, target: &Path) -> Done<()> {
        self.unmount_by(target, unmount)
    }

    fn unmount_by(
        &self,
        target: &Path,
        work: impl FnOnce(&Path) -> Result<(), MountError> + Send + 'static,
    ) -> Done<()> {
        let (by_force, place) = (self.by_force.clone(), target.to_path_buf());
        let mut plain = run_in(&self.plain, target, work);
        Box::pin(async move {
            if let Ok(done) = tokio::time::timeout(FORCE_AFTER, &mut plain).await {
                return done;
            }
            // Not in the target's turn, which the unmount has that hangs.
            if let Err(error) = by_force.run(move || force(&place)).await {
                tracing::warn!(%error, "A volume cannot be unmounted by force");
            }
            plain.await
        })
    }
}

/// Unmounts a file system of a server without waiting for the server; others are left alone.
fn force(target: &Path) -> Result<(), MountError> {
    let is_of_server = mounted_at(target)?.is_some_and(|mount| mount.fs_type.starts_with("nfs"));
    if !is_of_server {
        return Ok(());
    }
    let flags = rustix::mount::UnmountFlags::FORCE | rustix::mount::UnmountFlags::NOFOLLOW;
    rustix::mount::unmount(target, flags)
        .map_err(|errno| super::sys::failed("unmount by force", target)(errno.into()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::mounts::tests::small_tmpfs;
    use tokio::runtime::Handle;

    fn nfs(options: &[&str]) -> HelperMount {
        HelperMount {
            fs_type: "nfs".to_owned(),
            source: "127.0.0.1:/x".to_owned(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
        }
    }

    fn lane() -> Lane {
        Lane::new("test", Handle::current())
    }

    #[test]
    fn the_program_is_called_as_upstream_calls_it() {
        let target = Path::new("/t");
        assert_eq!(
            arguments(target, &nfs(&["hard", "ro"])),
            ["-t", "nfs", "-o", "hard,ro", "--", "127.0.0.1:/x", "/t"]
        );
        let bind = HelperMount { fs_type: String::new(), ..nfs(&[]) };
        assert_eq!(arguments(target, &bind), ["--", "127.0.0.1:/x", "/t"]);
    }

    #[tokio::test]
    async fn a_server_is_no_option_of_the_program_and_its_word_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let of = |source: &str| HelperMount { source: source.to_owned(), ..nfs(&[]) };
        let made = mount_by("true", WITHIN, &lane(), dir.path(), of("-T/dir/fs:/tab")).await.unwrap_err();
        assert_eq!(made.to_string(), "mount \"-T/dir/fs:/tab\": it begins with a dash");
        let made =
            mount_by("true", WITHIN, &lane(), dir.path(), of("server:/x")).await.unwrap_err().to_string();
        assert!(made.ends_with("the program has mounted nothing there"), "{made}");
        let Some(_guard) = small_tmpfs(dir.path(), 4096) else { return };
        let other = dir.path().join("other");
        std::fs::create_dir(&other).unwrap();
        let script = dir.path().join("mounts-something-else");
        let text = format!("#!/bin/sh\nexec mount --bind /etc {}\n", other.display());
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let script: &'static str = script.to_str().unwrap().to_owned().leak();
        let made = mount_by(script, WITHIN, &lane(), &other, of("server:/x")).await.unwrap_err().to_string();
        assert!(made.contains("is mounted there"), "{made}");
        assert_eq!(mounted_at(&other), Ok(None), "it is taken away again");
    }

    /// Unmounts of places below a directory, which hang until they are let go.
    struct Hung {
        go: std::sync::mpsc::Sender<()>,
        begun: Arc<AtomicUsize>,
        tasks: Vec<tokio::task::JoinHandle<Result<(), MountError>>>,
    }

    impl Hung {
        fn begin(unmounting: &Unmounting, dir: &Path, count: usize) -> Self {
            let (go, gone) = std::sync::mpsc::channel::<()>();
            let gone = Arc::new(Mutex::new(gone));
            let begun = Arc::new(AtomicUsize::new(0));
            let hang = |number: usize| {
                let (gone, begun) = (gone.clone(), begun.clone());
                let work = move |_: &Path| {
                    begun.fetch_add(1, Ordering::Relaxed);
                    let _ = gone.lock().unwrap().recv();
                    Ok(())
                };
                tokio::spawn(unmounting.unmount_by(&dir.join(number.to_string()), work))
            };
            let tasks = (0..count).map(hang).collect();
            Self { go, begun, tasks }
        }

        fn begun(&self) -> usize {
            self.begun.load(Ordering::Relaxed)
        }

        async fn until_begun(&self, count: usize) {
            while self.begun() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }

        async fn end(self) {
            drop(self.go);
            for task in self.tasks {
                task.await.unwrap().unwrap();
            }
        }
    }

    #[tokio::test]
    async fn unmounts_that_hang_hold_up_no_other_work_nor_the_force() {
        let dir = tempfile::tempdir().unwrap();
        let lane = lane();
        let unmounting = Unmounting::new(&lane);
        let all = bridge_io::LANE_THREADS_MAX;
        let hung = Hung::begin(&unmounting, dir.path(), all);
        hung.until_begun(all).await;
        let place = dir.path().to_path_buf();
        assert_eq!(lane.run(move || mounted_at(&place)).await, Ok(None));
        assert_eq!(unmounting.by_force.run(|| Ok::<_, MountError>(1)).await, Ok(1));
        hung.end().await;
    }

    #[tokio::test]
    async fn unmounts_of_one_namespace_that_hang_hold_up_no_other_namespace() {
        let dir = tempfile::tempdir().unwrap();
        let unmounting = Unmounting::new(&lane());
        let crowd = unmounting.of_tenant("crowd");
        let half = bridge_io::LANE_THREADS_MAX / 2;
        let hung = Hung::begin(&crowd, dir.path(), 2 * half);
        hung.until_begun(half).await;
        let other = unmounting.of_tenant("other").unmount(&dir.path().join("quiet"));
        assert_eq!(tokio::time::timeout(Duration::from_secs(60), other).await, Ok(Ok(())));
        assert_eq!(hung.begun(), half, "the rest has no place");
        hung.end().await;
    }

    #[tokio::test]
    async fn what_the_program_says_is_told_and_a_missing_program_too() {
        let dir = tempfile::tempdir().unwrap();
        let lane = lane();
        let failed =
            mount_by("false", WITHIN, &lane, dir.path(), nfs(&["ro"])).await.unwrap_err().to_string();
        let arguments = format!("-t nfs -o ro -- 127.0.0.1:/x {}", dir.path().display());
        let expected = format!(
            "mount failed: exit status 1\nMounting command: false\nMounting arguments: {arguments}\nOutput: "
        );
        assert_eq!(failed, expected);
        let missing = mount_by("no-such-program", WITHIN, &lane, dir.path(), nfs(&[])).await.unwrap_err();
        let missing = missing.to_string();
        let text = "mount failed: exec: \"no-such-program\": executable file not found in $PATH\n";
        assert!(missing.starts_with(text), "{missing}");
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_killed_and_the_next_one_waits_for_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("hangs");
        std::fs::write(&program, "#!/bin/sh\nexec sleep 600\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let program: &'static str = program.to_str().unwrap().to_owned().leak();
        let (lane, short) = (lane(), Duration::from_millis(50));
        for _ in 0..2 {
            let late = mount_by(program, short, &lane, dir.path(), nfs(&[])).await.unwrap_err().to_string();
            assert!(late.starts_with("mount failed: it has not ended within 0 s"), "{late}");
        }
    }

    #[tokio::test]
    async fn the_real_program_mounts_and_finds_its_mount_again() {
        let dir = tempfile::tempdir().unwrap();
        let Some(guard) = small_tmpfs(dir.path(), 4096) else { return };
        drop(guard);
        let tmpfs = HelperMount { fs_type: "tmpfs".to_owned(), ..nfs(&["noexec", "size=64k"]) };
        let lane = lane();
        mount(&lane, dir.path(), tmpfs.clone()).await.unwrap();
        mount(&lane, dir.path(), tmpfs).await.unwrap();
        let there = mounted_at(dir.path()).unwrap().expect("it is mounted");
        assert!(there.options.iter().any(|option| option == "noexec"), "{there:?}");
        let other = mount(&lane, dir.path(), nfs(&[])).await.unwrap_err();
        assert!(other.to_string().contains("is mounted there"), "{other}");
        Unmounting::new(&lane).unmount(dir.path()).await.unwrap();
        assert_eq!(mounted_at(dir.path()), Ok(None), "stacked mounts would be left");
    }
}
