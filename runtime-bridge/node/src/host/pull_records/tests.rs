use std::os::unix::fs::PermissionsExt;

use futures::{StreamExt, TryStreamExt};

use super::*;
use crate::host::FakeDisk;

const IMAGE: &str = "docker.io/library/busybox:1";
/// The file name for the image above, by `sha256sum`.
const FILE: &str = "sha256-601084643101c1cee774bcec1349e105083587bf663d1269a540d34679854a0b";

fn write(content: &str) -> Decide {
    let content = content.as_bytes().to_vec();
    Box::new(|_| RecordChange::Write(content))
}

async fn listed(records: &dyn PullRecords, kind: RecordKind) -> Vec<RecordFile> {
    records.list(kind).try_collect().await.unwrap()
}

/// The contract of both the disk and the fake.
async fn contract(records: &dyn PullRecords) {
    use RecordKind::{Pulled, Pulling};
    assert_eq!(listed(records, Pulled).await, []);
    assert_eq!(records.read(Pulled, IMAGE).await.unwrap(), None);
    assert_eq!(records.change(Pulled, IMAGE, write("one")).await, Ok(1));
    // The changes take effect in the order of the calls, in whichever order they are awaited.
    let second = records.change(Pulled, IMAGE, write("two"));
    let third = Box::new(|before: Option<&[u8]>| {
        assert_eq!(before, Some(&b"two"[..]));
        RecordChange::Keep
    });
    assert_eq!(records.change(Pulled, IMAGE, third).await, Ok(1));
    assert_eq!(second.await, Ok(1));
    assert_eq!(records.change(Pulled, "other", write("three")).await, Ok(2));
    assert_eq!(records.read(Pulled, IMAGE).await.unwrap().as_deref(), Some(&b"two"[..]));
    assert_eq!(records.read(Pulling, IMAGE).await.unwrap(), None, "the kinds are apart");
    let all = listed(records, Pulled).await;
    assert_eq!(all.iter().filter_map(|file| file.content.as_deref().ok()).count(), 2);
    // Each is read when its turn comes.
    let mut files = records.list(Pulled);
    let first = files.next().await.unwrap().unwrap();
    let (left, content) = if first.path.ends_with(FILE) { ("other", "three") } else { (IMAGE, "two") };
    assert_eq!(records.change(Pulled, left, Box::new(|_| RecordChange::Remove)).await, Ok(1));
    assert!(files.next().await.is_none());
    assert_eq!(records.change(Pulled, left, write(content)).await, Ok(2));
    assert_eq!(records.change(Pulled, "other", Box::new(|_| RecordChange::Remove)).await, Ok(1));
    assert_eq!(records.change(Pulled, "other", Box::new(|_| RecordChange::Remove)).await, Ok(1));
}

#[tokio::test]
async fn records_on_disk_are_private_whole_and_named_as_upstream_names_them() {
    let root = tempfile::tempdir().unwrap();
    let records = DiskPullRecords::new(root.path(), tokio::runtime::Handle::current());
    contract(&records).await;
    let directory = root.path().join("image_manager/pulled");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let file = path_of(root.path(), RecordKind::Pulled, IMAGE);
    assert_eq!((mode(&directory), mode(&file)), (0o700, 0o600));
    std::fs::write(directory.join("sha256-00.tmp"), "half").unwrap();
    std::fs::write(directory.join("notes"), "none of ours").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", directory.join("sha256-ff")).unwrap();
    let listed = listed(&records, RecordKind::Pulled).await;
    let broken: Vec<_> = listed.iter().filter(|file| file.content.is_err()).map(|file| &file.path).collect();
    assert_eq!(
        (listed.len(), broken),
        (2, vec![&directory.join("sha256-ff")]),
        "a broken one hides no other"
    );
}

#[tokio::test]
async fn the_fake_keeps_the_contract() {
    contract(&FakePullRecords::new(FakeDisk::new())).await;
}

#[test]
fn files_are_named_by_the_hash_of_the_image() {
    let path = path_of(Path::new("/r"), RecordKind::Pulling, IMAGE);
    assert_eq!(path, Path::new("/r/image_manager/pulling").join(FILE));
}
