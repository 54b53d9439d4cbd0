//! Every command that a page tells a reader to run is there: targets of make, packages, tests, benches, files and settings.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::arrows::cargo;
use crate::source::{has_word, root};
use crate::tree::read;

/// The pages that tell people what to run.
const PAGES: [&str; 3] = ["README.md", "CONTRIBUTING.md", "config/systemd/README.md"];

/// The commands of a page: its indented lines, its blocks of `sh`, and what is quoted and begins with a program.
fn commands(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut prose = String::new();
    let mut in_block = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block || line.starts_with("    ") {
            found.push(line.trim().to_owned());
        } else {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    found.extend(prose.split('`').skip(1).step_by(2).map(str::to_owned));
    let without_remark = |command: String| command.split(" #").next().unwrap_or_default().trim().to_owned();
    found.into_iter().map(without_remark).filter(|command| program(command).is_some()).collect()
}

/// The program of a command, behind settings as `NAME=value`; none if it is none of ours, or these are no words of a command.
fn program(command: &str) -> Option<&str> {
    let word = command.split_whitespace().find(|word| !is_setting(word))?;
    let ours =
        ["make", "cargo"].contains(&word) || word.starts_with("target/") || word.starts_with("tests/env/");
    ours.then_some(word)
}

fn is_setting(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    })
}

/// Commands of cargo that a page may name.
const CARGO: [&str; 7] = ["bench", "build", "clippy", "fmt", "nextest", "run", "test"];

/// What is wrong with a command.
fn wrong(command: &str, house: &House) -> Option<String> {
    let (settings, words): (Vec<&str>, Vec<&str>) =
        command.split_whitespace().partition(|word| is_setting(word));
    let unknown = settings.iter().find(|setting| {
        let name = setting.split('=').next().unwrap_or_default();
        !has_word(&house.scripts, name)
    });
    if let Some(setting) = unknown {
        return Some(format!("no script reads {setting}"));
    }
    let after = |flag: &str| {
        let at = words.iter().position(|word| *word == flag)?;
        words.get(at + 1).copied().filter(|name| !name.starts_with('<'))
    };
    match words[0] {
        "make" => words[1..]
            .iter()
            .find(|target| !house.targets.contains(**target))
            .map(|target| format!("no target {target} in the Makefile")),
        "cargo" if !words.get(1).is_some_and(|command| CARGO.contains(command)) => {
            Some("cargo has no such command".to_owned())
        }
        "cargo" => {
            let package = after("-p").filter(|name| !house.packages.contains(*name));
            let target =
                after("--test").or_else(|| after("--bench")).filter(|name| !house.programs.contains(*name));
            package.or(target).map(|name| format!("cargo has no {name}"))
        }
        path if path.starts_with("target/") => {
            let name = path.rsplit('/').next().unwrap_or_default();
            (!house.programs.contains(name)).then(|| format!("no program {name}"))
        }
        path if path.starts_with("tests/") => {
            (!root().join(path).is_file()).then(|| format!("no file {path}"))
        }
        _ => None,
    }
}

/// What there is to be run.
struct House {
    /// Targets of the Makefile.
    targets: BTreeSet<String>,
    packages: BTreeSet<String>,
    /// Binaries, tests and benches.
    programs: BTreeSet<String>,
    /// The Makefile and the texts of all scripts.
    scripts: String,
}

impl House {
    fn look() -> Self {
        let makefile = read("Makefile");
        let targets =
            makefile.lines().filter_map(|line| line.split_once(": ##").map(|(name, _)| name.to_owned()));
        let metadata = cargo(&["metadata", "--format-version", "1", "--no-deps", "--offline"]);
        let metadata: Value = serde_json::from_str(&metadata).unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
        let mut scripts = makefile.clone();
        for entry in std::fs::read_dir(root().join("tests/env")).unwrap().flatten() {
            scripts.push_str(&std::fs::read_to_string(entry.path()).unwrap_or_default());
        }
        Self {
            targets: targets.collect(),
            packages: packages.iter().map(name).collect(),
            programs: packages
                .iter()
                .flat_map(|package| package["targets"].as_array().into_iter().flatten())
                .map(name)
                .collect(),
            scripts,
        }
    }
}

#[test]
fn commands_that_a_reader_is_told_to_run_are_there() {
    let house = House::look();
    let (mut number, mut found) = (0, Vec::new());
    for page in PAGES {
        for command in commands(&read(page)) {
            number += 1;
            found.extend(wrong(&command, &house).map(|why| format!("{page}: {command}: {why}")));
        }
    }
    assert!(number > 30, "only {number} commands are found");
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_command_that_is_not_there_would_be_found() {
    let house = House::look();
    for (command, known) in [
        ("make run", true),
        ("make rum", false),
        ("cargo test -p suites --test node", true),
        ("cargo test -p suites --test mode", false),
        ("cargo test -p sweets", false),
        ("cargo tset -p suites", false),
        ("KILLS=5 make soak", false),
        ("cargo bench -p bench --bench <subsystem>", true),
        ("target/debug/kubelet", true),
        ("target/debug/cubelet", false),
        ("DEMO_SECONDS=5 make run", true),
        ("DEMO_SECUNDS=5 make run", false),
    ] {
        assert_eq!(wrong(command, &house).is_none(), known, "{command}");
    }
    let page =
        "Run `make run`, or\n\n    make test    # all\n\n```sh\ncargo build -p x\nls\n```\nnot `some words`.";
    assert_eq!(commands(page), ["make test", "cargo build -p x", "make run"]);
}
