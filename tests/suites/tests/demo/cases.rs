//! What README says of `make run`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use testkit::process::{Said, eventually};

use crate::killed::killed;
use crate::remains::{Machine, Made};
use crate::run::{BUILT_WITHIN, Demo, ENDS_WITHIN, SHOWN_WITHIN};
use crate::table;

/// The key combination Ctrl-C.
const CTRL_C: u8 = 3;

/// Name, whether it runs containers, and the case.
pub const ALL: &[(&str, bool, fn())] = &[
    ("on_containers_it_shows_what_is_promised_and_ends_by_itself", true, on_containers),
    ("on_a_terminal_ctrl_c_ends_it", true, on_a_terminal),
    ("on_the_fake_runtime_it_shows_the_same", false, on_the_fake),
    ("nothing_stays_of_a_run_of_tests_that_is_killed", true, killed),
];

/// Everything promised, shown at some time.
fn shown(lines: &[String]) -> Result<(), String> {
    match table::promised(lines).as_slice() {
        [] => Ok(()),
        missing => Err(format!("not shown yet: {missing:?}")),
    }
}

fn first_table(lines: &[String]) -> Result<(), String> {
    lines.iter().any(|line| line.starts_with("POD ")).then_some(()).ok_or_else(|| "no table yet".to_owned())
}

/// It ended well, and said nothing that would frighten.
#[track_caller]
fn ended_well(said: &Said) {
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    let lines = table::lines(&said.out);
    let warnings = table::warnings(&lines);
    assert!(warnings.is_empty(), "{warnings:#?}");
}

#[track_caller]
fn nothing_is_left(made: &Made, before: &Machine) {
    assert_eq!(made.there(), [].into());
    assert_eq!(Machine::look(), *before);
}

/// What it has made, once each part of it can be seen: some of it comes with the first pod.
#[track_caller]
fn made(demo: &mut Demo) -> Made {
    let directory = demo.directory().expect("a kubelet runs");
    let made = Made::on_containers(&directory, "containerd");
    let mut parts =
        vec!["/sys/class/net/us-", "/sys/fs/cgroup/", "/run/understudy/", "mount ", "/tmp/understudy."];
    if Made::sees_rules() {
        parts.push("nat ");
    }
    eventually("all that it makes is there", SHOWN_WITHIN, || {
        let there = made.there();
        let missing: Vec<&&str> =
            parts.iter().filter(|part| !there.iter().any(|one| one.starts_with(**part))).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("no {missing:?} in {there:#?}")) }
    });
    made
}

fn on_containers() {
    let before = Machine::look();
    let mut demo = Demo::start(&[("DEMO_SECONDS", "60")], false);
    demo.until("the first table", BUILT_WITHIN, first_table);
    let made = made(&mut demo);
    demo.until("what README promises", SHOWN_WITHIN, shown);
    let said = demo.ends(ENDS_WITHIN);
    ended_well(&said);
    assert!(said.err.ends_with("stopped; nothing is left but packages and the build\n"), "{}", said.err);
    nothing_is_left(&made, &before);
}

fn on_a_terminal() {
    let before = Machine::look();
    let mut demo = Demo::start(&[], true);
    demo.until("the first table", BUILT_WITHIN, first_table);
    let made = made(&mut demo);
    demo.until("what README promises", SHOWN_WITHIN, shown);
    demo.press(CTRL_C);
    let said = demo.ends(ENDS_WITHIN);
    ended_well(&said);
    assert!(said.out.contains("stopped; nothing is left but packages and the build"), "{}", said.out);
    nothing_is_left(&made, &before);
}

/// The companion program says of the pod `crash` that it crashes.
#[track_caller]
fn explained(demo: &mut Demo) {
    let program = demo.program().expect("the companion program runs");
    let lines = demo.lines();
    let newest = |begins: &str| {
        let line = lines.iter().rev().find(|line| line.starts_with(begins));
        line.and_then(|line| line.split_whitespace().next()).map(str::to_owned)
    };
    let server = newest("http://127.0.0.1:").expect("the table has a heading");
    let pod = newest("default/crash-").expect("the table has the pod");
    eventually("the pod that crashes is explained", SHOWN_WITHIN, || {
        let why = Command::new(&program).args(["why", &pod, "--server", &server]).output();
        let why = why.map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&why.stdout).into_owned();
        let crashes = said.lines().next().is_some_and(|sentence| sentence.contains(" crashes (exit code "));
        // It runs for a moment between two crashes.
        if crashes && why.status.code() == Some(3) { Ok(()) } else { Err(format!("{why:?}")) }
    });
}

fn on_the_fake() {
    let before = Machine::look();
    let mut demo = Demo::start(&[("FAKE_RUNTIME", "1"), ("DEMO_SECONDS", "30")], false);
    demo.until("the first table", BUILT_WITHIN, first_table);
    let directory = demo.directory().expect("a kubelet runs");
    demo.until("what README promises", SHOWN_WITHIN, shown);
    explained(&mut demo);
    let said = demo.ends(ENDS_WITHIN + Duration::from_secs(30));
    ended_well(&said);
    assert!(said.out.contains("Demo on the fake runtime"), "{}", said.out);
    assert!(said.out.contains("In a browser: http://127.0.0.1:"), "{}", said.out);
    assert!(!Path::new(&directory).exists(), "{} is left", directory.display());
    assert_eq!(Machine::look(), before);
}
