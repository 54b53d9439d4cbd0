use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::runtime::Handle;

use super::*;

const LONG: Duration = Duration::from_secs(60);

/// A shell script as a plugin.
fn script(script: &str, input: &str) -> PluginRun {
    PluginRun {
        program: PathBuf::from("/bin/sh"),
        args: ["-c".to_owned(), script.to_owned(), "plugin".to_owned(), "argument".to_owned()].into(),
        env: [("GIVEN".to_owned(), "by the configuration".to_owned())].into(),
        input: SecretContent::new(input.as_bytes()),
        tenant: Arc::from("team"),
        needed: Needed::always(),
    }
}

fn plugins(places: usize, within: Duration) -> ExecCredentialPlugins {
    ExecCredentialPlugins::bounded(Handle::current(), places, within)
}

async fn output(run: PluginRun) -> Result<String, PluginError> {
    let output = plugins(8, LONG).run(run).await?;
    Ok(String::from_utf8(output.content().expose().to_vec()).unwrap())
}

/// Whether the process of this number lives: what has died is no process any longer, or waits for its new parent.
fn lives(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", pid.trim())).is_ok_and(|stat| !stat.contains(") Z "))
}

fn lines(file: &Path) -> usize {
    fs::read_to_string(file).unwrap_or_default().lines().count()
}

#[tokio::test]
async fn a_plugin_has_its_arguments_input_and_both_environments() {
    let told = output(script("cat; echo \" $1 $GIVEN ${PATH:+path}\"", "{asked}")).await.unwrap();
    assert_eq!(told, "{asked} argument by the configuration path\n");
    let deaf = output(script("exec <&-; echo done", &"x".repeat(1 << 20))).await.unwrap();
    assert_eq!(deaf, "done\n", "a plugin need not read its input");
}

#[tokio::test]
async fn a_plugin_that_fails_shows_nothing_of_what_it_wrote() {
    let failed = output(script("echo hush; echo hush >&2; exit 7", "")).await.unwrap_err();
    assert_eq!(failed, PluginError::Failed { status: "exit status 7".to_owned(), said: 5 });
    let shown = format!("{failed} {failed:?} {:?}", script("hush", "hush"));
    assert!(!shown.contains("hush"), "{shown}");
    let killed = output(script("kill -9 $$", "")).await.unwrap_err().to_string();
    assert!(killed.contains("signal: 9"), "{killed}");
    let missing = PluginRun { program: PathBuf::from("/no/such/plugin"), ..script("", "") };
    let missing = output(missing).await.unwrap_err().to_string();
    assert!(missing.contains("/no/such/plugin") && missing.contains("not found"), "{missing}");
}

#[tokio::test]
async fn what_a_plugin_writes_is_bounded() {
    let much = output(script("head -c 100000000 /dev/zero", "")).await.unwrap_err();
    assert_eq!(much.to_string(), "it wrote more than 1048576 bytes on its standard output");
    let said = output(script("head -c 100000000 /dev/zero >&2; echo given", "")).await.unwrap();
    assert_eq!(said, "given\n", "its standard error is read to the end and kept nowhere");
    let most = output(script("head -c 1048576 /dev/zero", "")).await.unwrap();
    assert_eq!(most.len(), PLUGIN_OUTPUT_BYTES_MAX);
}

#[tokio::test]
async fn a_plugin_that_hangs_is_killed_with_what_it_has_started() {
    let dir = tempfile::tempdir().unwrap();
    let pid = dir.path().join("pid");
    let hangs = format!("sleep 600 & echo $! > {0}.new; mv {0}.new {0}; wait", pid.display());
    let plugins = plugins(1, Duration::from_secs(2));
    let late = plugins.run(script(&hangs, "")).await.unwrap_err();
    assert_eq!(late.to_string(), "it has not ended within 2 s");
    let child = fs::read_to_string(&pid).unwrap();
    while lives(&child) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let next = plugins.run(script("echo next", "")).await.unwrap();
    assert_eq!(next.content().expose(), b"next\n", "its place is free again");
}

#[tokio::test]
async fn the_same_question_is_asked_once_at_a_time_and_goes_on_without_its_asker() {
    let dir = tempfile::tempdir().unwrap();
    let (count, go) = (dir.path().join("count"), dir.path().join("go"));
    let waits = format!(
        "cat >>{0}; echo >>{0}; until [ -e {1} ]; do sleep 0.01; done; echo given",
        count.display(),
        go.display()
    );
    let plugins = plugins(8, LONG);
    let gives_up = plugins.run(script(&waits, "one"));
    while lines(&count) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(gives_up);
    assert!(plugins.is_under_way(&script(&waits, "one")) && !plugins.is_under_way(&script(&waits, "two")));
    let (again, other) = (plugins.run(script(&waits, "one")), plugins.run(script(&waits, "two")));
    while lines(&count) < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fs::write(&go, "").unwrap();
    let (again, other) = tokio::join!(again, other);
    assert_eq!(
        (again.unwrap().content().expose(), other.unwrap().content().expose()),
        (&b"given\n"[..], &b"given\n"[..])
    );
    assert_eq!(lines(&count), 2, "the first and the last joined one run");
    plugins.run(script(&waits, "one")).await.unwrap();
    assert_eq!(lines(&count), 3, "what has ended is not joined");
}

#[tokio::test]
async fn a_run_that_waits_behind_those_of_its_namespace_holds_up_no_other_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let (begun, go) = (dir.path().join("begun"), dir.path().join("go"));
    let waits = format!("echo >>{0}; until [ -e {1} ]; do sleep 0.01; done", begun.display(), go.display());
    let plugins = plugins(2, LONG);
    let first = plugins.run(script(&waits, "first"));
    while lines(&begun) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let asked = || script("cat", "the same");
    let queued = plugins.run(asked());
    let quiet = PluginRun { tenant: Arc::from("quiet"), ..asked() };
    assert!(plugins.is_under_way(&asked()) && !plugins.is_under_way(&quiet));
    assert_eq!(plugins.run(quiet).await.unwrap().content().expose(), b"the same");
    assert!(plugins.is_under_way(&asked()), "it waits still");
    fs::write(&go, "").unwrap();
    first.await.unwrap();
    assert_eq!(queued.await.unwrap().content().expose(), b"the same");
}

#[tokio::test]
async fn plugins_have_few_places_and_a_namespace_half_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let (begun, go) = (dir.path().join("begun"), dir.path().join("go"));
    let waits = |number: usize| {
        format!("echo {number} >>{0}; until [ -e {1} ]; do sleep 0.01; done", begun.display(), go.display())
    };
    let plugins = plugins(2, LONG);
    let crowd: Vec<_> =
        (0..3).map(|number| plugins.run(script(&waits(number), &number.to_string()))).collect();
    while lines(&begun) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let quiet = PluginRun { tenant: Arc::from("quiet"), ..script("echo quiet", "") };
    assert_eq!(plugins.run(quiet).await.unwrap().content().expose(), b"quiet\n");
    assert_eq!(lines(&begun), 1);
    fs::write(&go, "").unwrap();
    for run in crowd {
        run.await.unwrap();
    }
    assert_eq!(lines(&begun), 3);
}

#[tokio::test]
async fn a_run_that_is_not_needed_any_more_when_its_turn_comes_starts_no_program() {
    let dir = tempfile::tempdir().unwrap();
    let begun = dir.path().join("begun");
    let begins = |input: &str| script(&format!("echo >>{0}; echo given", begun.display()), input);
    let plugins = plugins(1, LONG);
    let first = plugins.run(begins("first")).await.unwrap();
    let known = Arc::new(AtomicBool::new(false));
    let knows = known.clone();
    let needed = Needed::when(move || !knows.load(Ordering::SeqCst));
    let second = plugins.run(PluginRun { needed, ..begins("second") });
    assert_eq!(first.content().expose(), b"given\n");
    known.store(true, Ordering::SeqCst);
    drop(first);
    assert_eq!(second.await.unwrap_err(), PluginError::NotNeeded);
    assert_eq!(lines(&begun), 1, "the first one kept its place until its output was done with");
    plugins.run(begins("third")).await.unwrap();
    assert_eq!(lines(&begun), 2);
}

#[tokio::test]
async fn a_plugin_may_be_replaced_while_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (file, begun, go) = (dir.path().join("plugin"), dir.path().join("begun"), dir.path().join("go"));
    let old =
        format!("touch {0}; until [ -e {1} ]; do sleep 0.01; done; echo old", begun.display(), go.display());
    fs::write(&file, old).unwrap();
    let of_file = || PluginRun { args: [file.display().to_string()].into(), ..script("", "") };
    let plugins = plugins(8, LONG);
    let first = plugins.run(of_file());
    while !begun.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let new = file.with_extension("new");
    fs::write(&new, "echo new").unwrap();
    fs::rename(&new, &file).unwrap();
    fs::write(&go, "").unwrap();
    assert_eq!(first.await.unwrap().content().expose(), b"old\n");
    assert_eq!(plugins.run(of_file()).await.unwrap().content().expose(), b"new\n");
}

#[tokio::test]
async fn what_a_plugin_leaves_behind_dies_with_it_and_before_its_place_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let pid = dir.path().join("pid");
    let leaves = format!("sleep 600 >/dev/null 2>&1 & echo $! > {}; echo given", pid.display());
    assert_eq!(output(script(&leaves, "")).await.unwrap(), "given\n");
    assert!(!lives(&fs::read_to_string(&pid).unwrap()));
    // One that holds its streams, too, of a plugin that fails.
    let fails = format!("sleep 600 & echo $! > {}; exit 3", pid.display());
    assert!(matches!(output(script(&fails, "")).await, Err(PluginError::Failed { .. })));
    assert!(!lives(&fs::read_to_string(&pid).unwrap()));
}

#[tokio::test]
async fn a_program_that_a_plugin_leaves_behind_holds_it_up_for_a_moment_only() {
    let began = Instant::now();
    let script = script("sleep 30 & echo given", "");
    assert_eq!(output(script).await.unwrap(), "given\n");
    assert!(began.elapsed() < Duration::from_secs(25));
}

#[test]
fn a_plugin_is_an_executable_file() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(check_plugin(dir.path()), Err("it is a directory".to_owned()));
    let file = dir.path().join("plugin");
    assert!(check_plugin(&file).unwrap_err().contains("No such file"));
    fs::write(&file, "").unwrap();
    assert_eq!(check_plugin(&file), Err("it is not executable".to_owned()));
    assert_eq!(check_plugin(Path::new("/bin/sh")), Ok(()));
}
