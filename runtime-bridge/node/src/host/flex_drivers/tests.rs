use std::fs;
use std::os::unix::fs::PermissionsExt;

use tokio::runtime::Handle;

use super::*;

const LONG: Duration = Duration::from_secs(60);

/// Writes the program of the driver `vendor/tool`.
fn write(dir: &Path, script: &str) {
    let above = dir.join("vendor~tool");
    fs::create_dir_all(&above).unwrap();
    let text = format!("#!/bin/sh\n{script}\n");
    // Written by a process of its own: a program that a process has open for writing cannot be run.
    let write = r#"printf %s "$1" >"$2.new"; chmod 755 "$2.new"; mv "$2.new" "$2""#;
    let mut written = std::process::Command::new("sh");
    written.args(["-c", write, "sh", &text]).arg(above.join("tool"));
    assert!(written.status().unwrap().success());
}

fn call(args: &[&str]) -> FlexCall {
    FlexCall {
        driver: Arc::from("vendor/tool"),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        turn: "one volume".to_owned(),
        tenant: Arc::from("team"),
    }
}

fn drivers(dir: &Path, within: Duration) -> ExecFlexDrivers {
    ExecFlexDrivers::bounded(dir, Handle::current(), 8, within)
}

#[test]
fn a_driver_lies_in_a_directory_with_its_name() {
    let place = |driver: &str| program(Path::new("/d"), driver).map(|path| path.display().to_string());
    assert_eq!(place("vendor/tool"), Ok("/d/vendor~tool/tool".to_owned()));
    assert_eq!(place("tool"), Ok("/d/tool/tool".to_owned()));
    for name in ["", "/", "..", "a/..", "../a", "a/b/c", ".a/b", "a~b", "kubernetes.io/nfs", "a/\nb"] {
        assert_eq!(place(name), Err(FlexError::InvalidName(name.to_owned())));
    }
}

#[tokio::test]
async fn a_driver_is_found_when_it_appears_and_another_one_after_it_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let drivers = drivers(dir.path(), LONG);
    assert_eq!(drivers.find("vendor/tool").await, Ok(None));
    write(dir.path(), "echo one");
    let first = drivers.find("vendor/tool").await.unwrap();
    assert!(first.is_some());
    assert_eq!(drivers.find("vendor/tool").await, Ok(first));
    write(dir.path(), "echo two");
    let second = drivers.find("vendor/tool").await.unwrap();
    assert!(second.is_some() && second != first);
    let program = dir.path().join("vendor~tool/tool");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(drivers.find("vendor/tool").await, Ok(None), "it cannot be run");
    assert!(drivers.find("../tool").await.is_err());
}

#[tokio::test]
async fn a_driver_has_its_arguments_and_its_streams_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), r#"echo "$1 $2"; echo oh >&2; [ "$1" = init ]"#);
    let drivers = drivers(dir.path(), LONG);
    let init = drivers.call(call(&["init", "{}"])).await.unwrap();
    let said = |failed: Option<&str>, out: &str| FlexAnswer {
        failed: failed.map(str::to_owned),
        out: out.as_bytes().to_vec(),
        err: b"oh\n".to_vec(),
    };
    assert_eq!(init, said(None, "init {}\n"));
    let other = drivers.call(call(&["mount", "a b"])).await.unwrap();
    assert_eq!(other, said(Some("exit status 1"), "mount a b\n"));
    let missing = FlexCall { driver: Arc::from("vendor/none"), ..call(&["init"]) };
    let missing = drivers.call(missing).await.unwrap_err().to_string();
    assert!(missing.contains("vendor~none/none") && missing.contains("not found"), "{missing}");
    let shown = format!("{:?}", call(&["mount", "hush"]));
    assert!(shown.contains("mount") && !shown.contains("hush"), "{shown}");
}

#[tokio::test]
async fn what_a_driver_says_is_bounded_and_one_that_hangs_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "head -c 1000000 /dev/zero");
    let much = drivers(dir.path(), LONG).call(call(&["init"])).await.unwrap_err();
    assert_eq!(much.to_string(), "it wrote more than 65536 bytes");
    write(dir.path(), "[ \"$1\" = init ] || exec sleep 600; echo done");
    let drivers = drivers(dir.path(), Duration::from_secs(2));
    let late = drivers.call(call(&["mount"])).await.unwrap_err();
    assert_eq!(late.to_string(), "it has not ended within 2 s");
    let next = drivers.call(call(&["init"])).await.unwrap();
    assert_eq!(next.out, b"done\n", "its turn is over when it has died");
}

#[tokio::test]
async fn calls_of_one_turn_run_one_after_another_and_go_on_without_their_asker() {
    let dir = tempfile::tempdir().unwrap();
    let (log, go) = (dir.path().join("log"), dir.path().join("go"));
    let script = format!(
        "echo begins >>{0}; until [ -e {1} ]; do sleep 0.01; done; echo ends >>{0}",
        log.display(),
        go.display()
    );
    write(dir.path(), &script);
    let lines = || fs::read_to_string(&log).unwrap_or_default().lines().count();
    let drivers = drivers(dir.path(), LONG);
    let first = tokio::spawn(drivers.call(call(&["mount"])));
    while lines() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    first.abort();
    let second = tokio::spawn(drivers.call(call(&["unmount"])));
    let other = FlexCall { turn: "another volume".to_owned(), ..call(&["mount"]) };
    let other = tokio::spawn(drivers.call(other));
    while lines() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fs::write(&go, "").unwrap();
    second.await.unwrap().unwrap();
    other.await.unwrap().unwrap();
    let log = fs::read_to_string(&log).unwrap();
    assert_eq!(log.lines().take(2).collect::<Vec<_>>(), ["begins", "begins"], "of two volumes");
    assert_eq!(log.lines().filter(|line| *line == "ends").count(), 3, "{log}");
}
