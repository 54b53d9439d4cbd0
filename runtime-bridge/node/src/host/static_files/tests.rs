use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::runtime::Handle;

use super::*;
use crate::host::FakeDisk;
use crate::mounts::FileKind;
use crate::mounts::tests::{Disk, TempDisk};

fn names(files: &[ManifestFile]) -> Vec<&str> {
    files.iter().map(|file| file.path.file_name().unwrap().to_str().unwrap()).collect()
}

async fn reading_contract(files: Arc<dyn StaticFiles>, disk: &dyn Disk) {
    let dir = disk.root().join("manifests");
    assert_eq!(files.read(&dir).await, Ok(vec![]));
    disk.mkdir(&dir);
    assert_eq!(files.read(&dir).await, Ok(vec![]));

    disk.write(&dir.join("b.yaml"), b"b");
    disk.write(&dir.join("a.yaml"), b"a");
    disk.write(&dir.join("no-extension"), b"");
    disk.write(&dir.join(".hidden.yaml"), b"x");
    disk.write(&dir.join("sub/c.yaml"), b"x");
    disk.symlink(&dir.join("link.yaml"), &dir.join("a.yaml"));
    disk.symlink(&dir.join("dangling.yaml"), &dir.join("nothing"));
    disk.special(&dir.join("fifo"), FileKind::Fifo);
    disk.special(&dir.join("zero"), FileKind::CharDevice);
    disk.write(&dir.join("too-large"), &vec![b' '; MANIFEST_BYTES_MAX as usize]);
    let read = files.read(&dir).await.unwrap();
    let names_read = names(&read);
    assert_eq!(names_read, ["a.yaml", "b.yaml", "fifo", "link.yaml", "no-extension", "too-large", "zero"]);
    let contents: Vec<_> = read.iter().map(|file| file.content.clone()).collect();
    assert_eq!(contents[0], Ok(b"a".to_vec()));
    assert_eq!(contents[2], Err(ReadError::NotRegular));
    assert_eq!(contents[3], Ok(b"a".to_vec()));
    assert_eq!(contents[4], Ok(vec![]));
    assert_eq!(contents[5], Err(ReadError::TooLarge));
    assert_eq!(contents[6], Err(ReadError::NotRegular));

    let single = dir.join("b.yaml");
    let read = files.read(&single).await.unwrap();
    assert_eq!(read, [ManifestFile { path: single, content: Ok(b"b".to_vec()) }]);
    let fifo = dir.join("fifo");
    assert_eq!(files.read(&fifo).await, Err(StaticFilesError::NotFileOrDirectory { path: fifo.clone() }));

    // The total is bounded: six files of 9.99 MiB fit, the seventh does not.
    let large = disk.root().join("large");
    for n in 0..7 {
        disk.write(&large.join(format!("{n}")), &vec![b' '; MANIFEST_BYTES_MAX as usize - 1]);
    }
    let read = files.read(&large).await.unwrap();
    let refused: Vec<_> = read.iter().map(|file| file.content.as_ref().err()).collect();
    assert_eq!(refused[..6], [None; 6]);
    assert_eq!(refused[6], Some(&ReadError::TotalTooLarge));

    let many = disk.root().join("many");
    for n in 0..=MANIFESTS_MAX {
        disk.write(&many.join(format!("{n}")), b"");
    }
    assert_eq!(files.read(&many).await, Err(StaticFilesError::TooMany { path: many }));
}

/// The number of files of a burst.
const BURST: usize = 50;
/// Long enough for a change to be reported, even on a busy machine.
const QUIET: Duration = Duration::from_secs(2);

/// Takes items until none comes any more; returns their number.
async fn drained(watch: &mut BoxStream<'static, FilesChanged>) -> usize {
    let mut items = 0;
    while let Ok(Some(_)) = tokio::time::timeout(QUIET, watch.next()).await {
        items += 1;
    }
    items
}

/// The next item; a watch that misses a change fails the test rather than hanging it.
async fn item(watch: &mut BoxStream<'static, FilesChanged>, what: &str) -> FilesChanged {
    tokio::time::timeout(Duration::from_secs(30), watch.next())
        .await
        .unwrap_or_else(|_| panic!("no item after: {what}"))
        .unwrap_or_else(|| panic!("the watch ended after: {what}"))
}

async fn watching_contract(files: Arc<dyn StaticFiles>, disk: &dyn Disk) {
    let dir = disk.root().join("manifests");
    disk.mkdir(&dir);
    let mut watch = files.watch(&dir);
    item(&mut watch, "the start").await;
    disk.write(&dir.join("a.yaml"), b"1");
    item(&mut watch, "a new file").await;
    disk.write(&dir.join("a.yaml"), b"2");
    item(&mut watch, "new content").await;
    disk.remove(&dir.join("a.yaml"));
    let removed = |name: &str| FilesChanged { removed: [dir.join(name)].into() };
    assert_eq!(item(&mut watch, "a removal").await, removed("a.yaml"));
    // A file that is there again at once was removed all the same.
    disk.write(&dir.join("a.yaml"), b"1");
    assert_eq!(item(&mut watch, "its return").await, FilesChanged::default());
    drained(&mut watch).await;
    disk.remove(&dir.join("a.yaml"));
    disk.write(&dir.join("a.yaml"), b"1");
    assert_eq!(item(&mut watch, "a removal and a return at once").await, removed("a.yaml"));

    // A busy machine may have reported one change twice.
    drained(&mut watch).await;
    // A burst yields few items, one unless it is drawn out; dot-files yield none.
    for n in 0..BURST {
        disk.write(&dir.join(format!("burst-{n}")), b"");
    }
    let items = drained(&mut watch).await;
    assert!((1..=BURST / 5).contains(&items), "{items} items for a burst of {BURST}");
    disk.write(&dir.join(".hidden"), b"1");
    assert_eq!(drained(&mut watch).await, 0, "an item for a dot-file");

    // The directory is removed and made again.
    disk.remove(&dir);
    item(&mut watch, "removal of the directory").await;
    disk.mkdir(&dir);
    item(&mut watch, "return of the directory").await;
    disk.write(&dir.join("b.yaml"), b"1");
    item(&mut watch, "a file in the new directory").await;

    let file = disk.root().join("single.yaml");
    let mut watch = files.watch(&file);
    item(&mut watch, "the start with a missing file").await;
    disk.write(&file, b"1");
    item(&mut watch, "the file's coming").await;
    disk.write(&file, b"2");
    item(&mut watch, "the file's change").await;
}

#[tokio::test(start_paused = true)]
async fn fake_static_files_keep_the_contract() {
    let disk = FakeDisk::new();
    reading_contract(Arc::new(FakeStaticFiles::new(disk.clone())), &disk).await;
    let disk = FakeDisk::new();
    watching_contract(Arc::new(FakeStaticFiles::new(disk.clone())), &disk).await;
}

#[tokio::test]
async fn real_static_files_are_read_by_the_contract() {
    reading_contract(Arc::new(DiskStaticFiles::new(Handle::current())), &TempDisk::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_static_files_are_watched_by_the_contract() {
    watching_contract(Arc::new(DiskStaticFiles::new(Handle::current())), &TempDisk::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_file_replaced_by_rename_and_a_replaced_directory_are_seen() {
    let disk = TempDisk::new();
    let (dir, file) = (disk.root().join("d"), disk.root().join("d/pod.yaml"));
    disk.write(&file, b"1");
    let files = DiskStaticFiles::new(Handle::current());
    let mut watch = files.watch(&file);
    item(&mut watch, "the start").await;
    disk.write(&dir.join("pod.yaml.new"), b"2");
    fs::rename(dir.join("pod.yaml.new"), &file).unwrap();
    item(&mut watch, "a rename over the file").await;

    let mut watch = files.watch(&dir);
    item(&mut watch, "the start").await;
    fs::rename(&dir, disk.root().join("old")).unwrap();
    disk.write(&dir.join("pod.yaml"), b"3");
    item(&mut watch, "the directory's replacement").await;
    // The watch is on the new directory, and reports its changes.
    item(&mut watch, "arming on the new directory").await;
    disk.write(&dir.join("other.yaml"), b"4");
    item(&mut watch, "a change in the new directory").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_a_watch_ends_its_task() {
    let disk = TempDisk::new();
    let handle = Handle::current();
    let before = handle.metrics().num_alive_tasks();
    let files = DiskStaticFiles::new(handle.clone());
    let mut watches: Vec<_> = (0..3).map(|_| files.watch(&disk.root())).collect();
    watches.push(files.watch(Path::new("/nowhere/at/all")));
    for watch in &mut watches {
        item(watch, "the start").await;
    }
    assert_eq!(handle.metrics().num_alive_tasks(), before + 4);
    drop(watches);
    let gone = async {
        while handle.metrics().num_alive_tasks() > before {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("the tasks end");
}

#[tokio::test]
async fn scripted_read_failures() {
    let disk = FakeDisk::new();
    disk.write("/m/a", b"1", 0o644);
    let files = FakeStaticFiles::new(disk.clone());
    disk.fail("read", "/m/a", 1, "Input/output error");
    let read = files.read(Path::new("/m")).await.unwrap();
    assert_eq!(read[0].content, Err(ReadError::Io("Input/output error".into())));
    disk.fail("read", "/m", 1, "Input/output error");
    assert!(matches!(files.read(Path::new("/m")).await, Err(StaticFilesError::Io { .. })));
    assert_eq!(files.read(Path::new("/m")).await.unwrap().len(), 1);
}
