use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use tokio::runtime::Handle;

use super::*;

/// The contract that every store keeps. `corrupt` damages the stored checkpoint of that name.
async fn contract(store: Arc<dyn CheckpointStore>, corrupt: impl Fn(&str)) {
    let a = json!({"phase": "Running", "n": 1});
    assert_eq!(store.load("pod-status/a").await, Ok(None));
    assert_eq!(store.list("").await, Ok(vec![]));
    store.save("pod-status/a", &a).await.unwrap();
    store.save("pod-status/b", &json!([1, 2])).await.unwrap();
    store.save("probe/a", &json!("x")).await.unwrap();
    store.save("pod-status", &json!(null)).await.unwrap();
    assert_eq!(store.load("pod-status/a").await, Ok(Some(a.clone())));
    assert_eq!(store.load("pod-status").await, Ok(Some(json!(null))));
    assert_eq!(store.list("pod-status/").await.unwrap(), ["pod-status/a", "pod-status/b"]);
    assert_eq!(store.list("").await.unwrap(), ["pod-status", "pod-status/a", "pod-status/b", "probe/a"]);
    assert_eq!(store.list("pod-s").await.unwrap().len(), 3);
    assert_eq!(store.list("nothing/").await, Ok(vec![]));

    // Saves replace each other in the order of the calls, although they are awaited in another.
    let pending: Vec<_> = (0..50).map(|n| store.save("pod-status/a", &json!(n))).collect();
    for saved in pending.into_iter().rev() {
        saved.await.unwrap();
    }
    assert_eq!(store.load("pod-status/a").await, Ok(Some(json!(49))));

    store.remove("pod-status/b").await.unwrap();
    store.remove("pod-status/b").await.unwrap();
    assert_eq!(store.load("pod-status/b").await, Ok(None));

    // A corrupt checkpoint is reported once, then it is gone and can be saved anew.
    corrupt("pod-status/a");
    match store.load("pod-status/a").await {
        Err(CheckpointError::Corrupt { name, reason }) => {
            assert_eq!(name, "pod-status/a");
            assert!(!reason.is_empty());
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(store.load("pod-status/a").await, Ok(None));
    assert_eq!(store.list("pod-status/").await, Ok(vec![]));
    store.save("pod-status/a", &a).await.unwrap();
    assert_eq!(store.load("pod-status/a").await, Ok(Some(a)));

    let long = "x".repeat(201);
    for name in [
        "",
        "/etc/passwd",
        "a//b",
        "a/",
        "..",
        "a/../b",
        ".hidden",
        "a/.b",
        "a b",
        "a\0",
        "ä",
        "a/b/c/d/e",
        &long,
    ] {
        for error in [
            store.save(name, &json!(1)).await.unwrap_err(),
            store.load(name).await.unwrap_err(),
            store.remove(name).await.unwrap_err(),
        ] {
            assert!(matches!(error, CheckpointError::InvalidName { .. }), "{name:?}: {error}");
        }
    }

    let largest = json!("x".repeat(CHECKPOINT_BYTES_MAX - 2));
    store.save("large", &largest).await.unwrap();
    assert_eq!(store.load("large").await, Ok(Some(largest.clone())));
    let too_large = json!("x".repeat(CHECKPOINT_BYTES_MAX - 1));
    assert_eq!(
        store.save("large", &too_large).await,
        Err(CheckpointError::TooLarge { name: "large".into(), bytes: CHECKPOINT_BYTES_MAX + 1 })
    );
    assert_eq!(store.load("large").await, Ok(Some(largest)));
}

#[tokio::test]
async fn fake_checkpoints_keep_the_contract() {
    let store = FakeCheckpoints::new();
    let spoiled = store.clone();
    contract(Arc::new(store), move |name| spoiled.corrupt(name, "scripted")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoints_in_a_directory_keep_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("checkpoints");
    let store = Arc::new(DirCheckpoints::new(&root, Handle::current()));
    contract(store, |name| {
        let path = root.join(format!("{name}.ckpt"));
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(path, bytes).unwrap();
    })
    .await;
    assert_eq!(fs::metadata(&root).unwrap().permissions().mode() & 0o7777, 0o700);
    assert_eq!(fs::metadata(root.join("large.ckpt")).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(temporary_files(&root), 0);
}

#[tokio::test]
async fn a_scripted_full_disk_keeps_the_old_content() {
    let store = FakeCheckpoints::new();
    store.save("a", &json!(1)).await.unwrap();
    store.set_disk_full(true);
    assert!(matches!(store.save("a", &json!(2)).await, Err(CheckpointError::DiskFull { .. })));
    store.set_disk_full(false);
    assert_eq!(store.load("a").await, Ok(Some(json!(1))));
    assert_eq!(store.saves(), 1);
}

#[tokio::test]
async fn every_way_to_spoil_a_file_is_corrupt_and_none_panics() {
    let dir = tempfile::tempdir().unwrap();
    let store = DirCheckpoints::new(dir.path(), Handle::current());
    let path = dir.path().join("a.ckpt");
    let content = json!({"k": "v"});
    store.save("a", &content).await.unwrap();
    let good = fs::read(&path).unwrap();
    assert!(good.starts_with(b"understudy-checkpoint v1 sha256:"));

    let mut spoiled: Vec<Vec<u8>> = (0..good.len()).map(|end| good[..end].to_vec()).collect();
    for at in 0..good.len() {
        let mut flipped = good.clone();
        flipped[at] ^= 0x20;
        spoiled.push(flipped);
    }
    spoiled.push(String::from_utf8(good.clone()).unwrap().replace(" v1 ", " v2 ").into_bytes());
    spoiled.push(vec![b'x'; file::FILE_BYTES_MAX + 1]);
    for bytes in spoiled {
        fs::write(&path, &bytes).unwrap();
        let loaded = store.load("a").await;
        assert!(matches!(loaded, Err(CheckpointError::Corrupt { .. })), "{loaded:?}");
        assert!(!path.exists());
    }
}

#[tokio::test]
async fn only_a_few_corrupt_files_are_kept_and_the_newest_are() {
    let dir = tempfile::tempdir().unwrap();
    let store = DirCheckpoints::new(dir.path(), Handle::current());
    for n in 0..8 {
        fs::write(dir.path().join(format!("p{n}.ckpt")), b"rubbish").unwrap();
        store.load(&format!("p{n}")).await.unwrap_err();
    }
    let kept: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(kept.len(), CORRUPT_KEPT, "{kept:?}");
    assert!(kept.iter().any(|name| name == ".p7.ckpt.corrupt"), "{kept:?}");
}

const CORRUPT_KEPT: usize = 3;

#[tokio::test]
async fn links_and_fifos_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let store = DirCheckpoints::new(dir.path(), Handle::current());
    store.save("real", &json!(1)).await.unwrap();
    std::os::unix::fs::symlink(dir.path().join("real.ckpt"), dir.path().join("link.ckpt")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.path().join("fifo.ckpt"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    for name in ["link", "fifo"] {
        assert!(matches!(store.load(name).await, Err(CheckpointError::Corrupt { .. })), "{name}");
    }
    assert_eq!(store.load("real").await, Ok(Some(json!(1))));
}

#[tokio::test]
async fn a_temporary_file_of_a_crash_is_replaced_and_never_listed() {
    let dir = tempfile::tempdir().unwrap();
    let store = DirCheckpoints::new(dir.path(), Handle::current());
    fs::write(dir.path().join(".a.ckpt.tmp"), b"half").unwrap();
    assert_eq!(store.list("").await, Ok(vec![]));
    store.save("a", &json!(1)).await.unwrap();
    assert_eq!(temporary_files(dir.path()), 0);
    assert_eq!(fs::metadata(dir.path().join("a.ckpt")).unwrap().mode() & 0o7777, 0o600);
}

#[tokio::test]
async fn a_really_full_disk_keeps_the_old_content() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_mounted) = crate::mounts::tests::small_tmpfs(dir.path(), 64 * 1024) else { return };
    let store = DirCheckpoints::new(dir.path().join("c"), Handle::current());
    store.save("a", &json!("old")).await.unwrap();
    let big = json!("x".repeat(200 * 1024));
    for _ in 0..3 {
        assert_eq!(
            store.save("a", &big).await,
            Err(CheckpointError::DiskFull { name: "a".into(), operation: "write" })
        );
    }
    assert_eq!(store.load("a").await, Ok(Some(json!("old"))));
    store.save("a", &json!("new")).await.unwrap();
    assert_eq!(store.load("a").await, Ok(Some(json!("new"))));
}

fn temporary_files(dir: &Path) -> usize {
    fs::read_dir(dir)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".tmp"))
        .count()
}
