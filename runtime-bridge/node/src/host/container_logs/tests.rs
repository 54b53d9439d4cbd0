//! Logs on a real disk, also with files that a hostile pod may put in their place, and the fake with the same contract.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use tokio::runtime::Handle;

use super::*;
use crate::host::FakeDisk;

fn place(root: &Path) -> LogPlace {
    LogPlace { root: root.to_owned(), pod: "n_p_u".into(), container: "c".into(), file: "0.log".into() }
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

async fn size(logs: &dyn ContainerLogs, place: &LogPlace) -> Result<Option<u64>, LogError> {
    logs.sizes(vec![place.clone()]).await.unwrap().remove(0)
}

/// The contract of both implementations.
async fn contract(logs: &dyn ContainerLogs, place: &LogPlace, write: &dyn Fn(&str, &str)) {
    assert_eq!(size(logs, place).await, Ok(None), "there is no file yet");
    assert_eq!(logs.rotated(place).await, Ok(Vec::new()));
    write("0.log", "0123456789");
    write("1.log", "another instance's");
    assert_eq!(size(logs, place).await, Ok(Some(10)));
    logs.rename(place, "0.log", "0.log.20260102-150405").await.unwrap();
    assert_eq!(size(logs, place).await, Ok(None));
    write("0.log", "new");
    let taken = logs.rename(place, "0.log", "0.log.20260102-150405").await;
    assert!(taken.unwrap_err().to_string().ends_with("File exists (os error 17)"));
    assert!(logs.rename(place, "none", "0.log.x").await.is_err(), "nothing is there to rename");
    assert_eq!(logs.compress(place, "0.log.20260102-150405").await, Ok(Compressed::Done));
    assert_eq!(logs.compress(place, "0.log.20260102-150405").await, Ok(Compressed::Nothing));
    write("0.log.20250101-000000.tmp", "left over");
    let rotated = logs.rotated(place).await.unwrap();
    assert_eq!(rotated, ["0.log.20250101-000000.tmp", "0.log.20260102-150405.gz"]);
    logs.remove(place, rotated).await.unwrap();
    logs.remove(place, vec!["0.log.20250101-000000.tmp".to_owned()]).await.unwrap();
    assert_eq!(logs.rotated(place).await, Ok(Vec::new()));
    assert_eq!(size(logs, place).await, Ok(Some(3)));
}

#[tokio::test]
async fn both_keep_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let real = DiskContainerLogs::new(Handle::current());
    let place_on_disk = place(dir.path());
    contract(&real, &place_on_disk, &|name, text| {
        let dir = dir.path().join("n_p_u/c");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(name), text).unwrap();
    })
    .await;
    let disk = FakeDisk::new();
    let place = place(Path::new("/var/log/pods"));
    contract(&FakeContainerLogs::new(disk.clone()), &place, &|name, text| {
        disk.write(Path::new("/var/log/pods/n_p_u/c").join(name), text, 0o640);
    })
    .await;
}

#[tokio::test]
async fn what_is_compressed_reads_the_same_and_has_the_same_mode() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("n_p_u/c");
    fs::create_dir_all(&dir).unwrap();
    let text: String = (0..200_000).map(|number| format!("line {number}\n")).collect();
    let source = dir.join("0.log.20260102-150405");
    fs::write(&source, &text).unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o640)).unwrap();
    fs::write(dir.join("0.log.20260102-150405.tmp"), "half of an earlier try").unwrap();
    let logs = DiskContainerLogs::new(Handle::current());
    let (one, other) = tokio::join!(
        logs.compress(&place(root.path()), "0.log.20260102-150405"),
        logs.compress(&place(root.path()), "0.log.20260102-150405"),
    );
    let outcomes = [one.unwrap(), other.unwrap()];
    assert!(outcomes.contains(&Compressed::Done) && outcomes.contains(&Compressed::Nothing), "{outcomes:?}");
    assert_eq!(names(&dir), ["0.log.20260102-150405.gz"]);
    let compressed = dir.join("0.log.20260102-150405.gz");
    assert_eq!(fs::metadata(&compressed).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(fs::metadata(&compressed).unwrap().len() < text.len() as u64 / 3);
    let mut read = String::new();
    flate2::read::GzDecoder::new(fs::File::open(compressed).unwrap()).read_to_string(&mut read).unwrap();
    assert!(read == text);
}

#[tokio::test]
async fn links_and_pipes_lead_nowhere() {
    let root = tempfile::tempdir().unwrap();
    let outside = root.path().join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("0.log"), "somebody else's").unwrap();
    fs::write(outside.join("0.log.x"), "somebody else's").unwrap();
    let logs = DiskContainerLogs::new(Handle::current());
    let pods = root.path().join("pods");
    let place = place(&pods);
    let untouched = || {
        assert_eq!(names(&outside), ["0.log", "0.log.x"]);
        assert_eq!(fs::read(outside.join("0.log.x")).unwrap(), b"somebody else's");
    };
    // A link replaces the container's directory, then the pod's.
    for link in ["n_p_u/c", "n_p_u"] {
        let link = pods.join(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let _ = fs::remove_dir_all(&link);
        symlink(&outside, &link).unwrap();
        fs::create_dir_all(outside.join("c")).unwrap();
        fs::remove_dir(outside.join("c")).unwrap();
        assert!(size(&logs, &place).await.is_err(), "{}", link.display());
        assert!(logs.rotated(&place).await.is_err());
        assert!(logs.remove(&place, vec!["0.log.x".to_owned()]).await.is_err());
        assert!(logs.rename(&place, "0.log", "0.log.y").await.is_err());
        assert!(logs.compress(&place, "0.log.x").await.is_err());
        untouched();
        fs::remove_file(&link).unwrap();
    }
    // The files are links or a pipe, or their names lead elsewhere.
    let dir = pods.join("n_p_u/c");
    fs::create_dir_all(&dir).unwrap();
    symlink(outside.join("0.log"), dir.join("0.log")).unwrap();
    symlink(outside.join("0.log.x"), dir.join("0.log.x")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("0.log.pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    assert!(matches!(size(&logs, &place).await, Err(LogError::NotALog { .. })));
    assert_eq!(logs.rotated(&place).await, Ok(Vec::new()), "neither is a log");
    assert!(logs.compress(&place, "0.log.x").await.is_err());
    assert!(logs.compress(&place, "0.log.pipe").await.is_err());
    assert!(logs.rename(&place, "0.log", "0.log.y").await.is_err());
    for elsewhere in ["../../outside/0.log.x", "..", ""] {
        assert!(logs.remove(&place, vec![elsewhere.to_owned()]).await.is_err(), "{elsewhere}");
        assert!(logs.compress(&place, elsewhere).await.is_err(), "{elsewhere}");
    }
    logs.remove(&place, vec!["0.log.x".to_owned()]).await.unwrap();
    untouched();
}

#[tokio::test]
async fn a_link_where_the_compressed_one_is_written_is_replaced_and_not_followed() {
    let root = tempfile::tempdir().unwrap();
    let (dir, victim) = (root.path().join("n_p_u/c"), root.path().join("victim"));
    fs::create_dir_all(&dir).unwrap();
    fs::write(&victim, "precious").unwrap();
    fs::write(dir.join("0.log.x"), "some lines\n").unwrap();
    symlink(&victim, dir.join("0.log.x.tmp")).unwrap();
    symlink(&victim, dir.join("0.log.x.gz")).unwrap();
    let logs = DiskContainerLogs::new(Handle::current());
    assert_eq!(logs.compress(&place(root.path()), "0.log.x").await, Ok(Compressed::Done));
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    assert!(fs::symlink_metadata(dir.join("0.log.x.gz")).unwrap().is_file());
}
