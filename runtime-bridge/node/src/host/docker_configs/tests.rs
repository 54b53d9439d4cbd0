use std::fs;
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::host::FakeDisk;

fn content(file: &DockerConfigFile) -> &[u8] {
    file.content.as_ref().expect("it can be read").expose()
}

fn shown(candidates: Vec<(PathBuf, DockerConfigFormat)>) -> Vec<String> {
    candidates.into_iter().map(|(path, _)| path.display().to_string()).collect()
}

#[test]
fn files_are_looked_for_where_the_go_kubelet_looks() {
    let all = candidates(Path::new("/var/lib/kubelet"), Some(Path::new("/work")), Some(Path::new("/root")));
    assert_eq!(
        shown(all),
        [
            "/var/lib/kubelet/config.json",
            "/work/config.json",
            "/root/.docker/config.json",
            "/.docker/config.json",
            "/var/lib/kubelet/.dockercfg",
            "/work/.dockercfg",
            "/root/.dockercfg",
            "/.dockercfg",
        ]
    );
    // A service runs in `/`: no path is searched twice.
    let all = candidates(Path::new("/k"), Some(Path::new("/")), None);
    assert_eq!(
        shown(all),
        ["/k/config.json", "/config.json", "/.docker/config.json", "/k/.dockercfg", "/.dockercfg"]
    );
}

#[tokio::test]
async fn a_file_is_read_again_once_it_has_changed() {
    let dir = tempfile::tempdir().unwrap();
    let (root, home) = (dir.path().join("root"), dir.path().join("home"));
    fs::create_dir_all(home.join(".docker")).unwrap();
    fs::create_dir(&root).unwrap();
    let configs = DiskDockerConfigs::new(&root, Some(&root), Some(&home), tokio::runtime::Handle::current());
    // Files of this machine in `/` are left out.
    let ours = async || {
        let mut found = configs.read().await.unwrap();
        found.retain(|file| file.path.starts_with(dir.path()));
        found
    };
    assert_eq!(ours().await, []);
    fs::write(home.join(".docker/config.json"), "first").unwrap();
    assert_eq!(content(&ours().await[0]), b"first");
    // The file is replaced by one of the same length, with another inode.
    fs::write(home.join("new"), "other").unwrap();
    fs::rename(home.join("new"), home.join(".docker/config.json")).unwrap();
    assert_eq!(content(&ours().await[0]), b"other");
    fs::write(root.join(".dockercfg"), "old").unwrap();
    let found = ours().await;
    assert_eq!(found.iter().map(content).collect::<Vec<_>>(), [&b"other"[..], b"old"]);
    assert_eq!(found[1].format, DockerConfigFormat::Dockercfg);
    fs::remove_file(home.join(".docker/config.json")).unwrap();
    assert_eq!(ours().await.len(), 1);
}

#[tokio::test]
async fn what_is_no_file_or_too_large_is_told_and_hangs_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let configs = DiskDockerConfigs::new(dir.path(), None, None, tokio::runtime::Handle::current());
    let error = async || {
        let found = configs.read().await.unwrap().remove(0);
        assert_eq!(found.path, dir.path().join("config.json"));
        found.content.unwrap_err()
    };
    let file = dir.path().join("config.json");
    fs::create_dir(&file).unwrap();
    assert_eq!(error().await, "not a regular file");
    fs::remove_dir(&file).unwrap();
    let made =
        rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0);
    made.unwrap();
    assert_eq!(error().await, "not a regular file");
    fs::remove_file(&file).unwrap();
    let bytes = usize::try_from(DOCKER_CONFIG_BYTES_MAX).unwrap() + 1;
    fs::write(&file, vec![b' '; bytes]).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().size(), DOCKER_CONFIG_BYTES_MAX + 1);
    assert!(error().await.starts_with("larger than"));
}

#[tokio::test]
async fn the_fake_has_the_same_order() {
    let disk = FakeDisk::new();
    disk.write("/root/.docker/config.json", "home", 0o600);
    disk.write("/var/lib/kubelet/config.json", "root", 0o600);
    let found = FakeDockerConfigs::new(disk).read().await.unwrap();
    assert_eq!(found.iter().map(content).collect::<Vec<_>>(), [&b"root"[..], b"home"]);
}

#[test]
fn secrets_are_not_shown() {
    let file = DockerConfigFile {
        path: PathBuf::from("/x"),
        format: DockerConfigFormat::ConfigJson,
        content: Ok(SecretContent::new(*b"hush")),
    };
    let shown = format!("{file:?}");
    assert!(!shown.contains("hush") && shown.contains("4 secret bytes"), "{shown}");
}
