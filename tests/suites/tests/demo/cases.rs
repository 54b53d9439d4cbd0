//! What README says of `make run`.

use std::path::Path;
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

fn on_the_fake() {
    let before = Machine::look();
    let mut demo = Demo::start(&[("FAKE_RUNTIME", "1"), ("DEMO_SECONDS", "30")], false);
    demo.until("the first table", BUILT_WITHIN, first_table);
    let directory = demo.directory().expect("a kubelet runs");
    demo.until("what README promises", SHOWN_WITHIN, shown);
    let said = demo.ends(ENDS_WITHIN + Duration::from_secs(30));
    ended_well(&said);
    assert!(said.out.contains("Demo on the fake runtime"), "{}", said.out);
    assert!(!Path::new(&directory).exists(), "{} is left", directory.display());
    assert_eq!(Machine::look(), before);
}
