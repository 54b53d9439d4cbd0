//! The scripts of `understudy completion` have every command and flag, shells can read them, and bash completes by its own.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::io::ErrorKind;
use std::process::{Command, Output};

use clap::CommandFactory;
use understudy::cli::Cli;
use understudy::completion::table::{Table, Value, table};

fn script(shell: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_understudy")).args(["completion", shell]).output().unwrap();
    assert!(output.status.success(), "{shell}");
    String::from_utf8(output.stdout).unwrap()
}

fn known() -> Table {
    let table = table(Cli::command());
    let names: Vec<&str> = table.commands.iter().map(|command| command.name.as_str()).collect();
    let expected = ["top", "why", "timeline", "pods", "describe", "logs", "demo", "completion", "help"];
    assert_eq!(names, expected);
    let logs = table.commands.iter().find(|command| command.name == "logs").unwrap();
    let flags: Vec<String> = logs.flags.iter().flat_map(|flag| flag.names()).collect();
    for flag in ["-f", "--follow", "--tail", "--since", "--token-file", "--kubeconfig", "-h", "--help"] {
        assert!(flags.iter().any(|name| name == flag), "{flag}: {flags:?}");
    }
    let value =
        |name: &str| &logs.flags.iter().find(|flag| flag.long.as_deref() == Some(name)).unwrap().value;
    assert_eq!(*value("token-file"), Value::File);
    assert_eq!(*value("output"), Value::Words(vec!["json".to_owned()]));
    assert_eq!(*value("follow"), Value::Nothing);
    table
}

/// The part of a script between two marks.
fn part<'a>(script: &'a str, from: &str, to: &str) -> &'a str {
    let at = script.find(from).unwrap_or_else(|| panic!("no {from:?}: {script}"));
    let rest = &script[at + from.len()..];
    &rest[..rest.find(to).unwrap_or_else(|| panic!("no {to:?} after {from:?}"))]
}

#[test]
fn each_command_and_flag_is_in_the_script_for_bash() {
    let script = script("bash");
    for command in known().commands {
        let own = part(&script, &format!("\n    {})\n", command.name), "\n        ;;\n");
        let words: Vec<&str> = own.split(|c: char| c.is_whitespace() || c == '\'').collect();
        for name in command.flags.iter().flat_map(|flag| flag.names()).chain(command.words) {
            assert!(words.contains(&name.as_str()), "{} {name}: {own}", command.name);
        }
    }
}

#[test]
fn each_command_and_flag_is_in_the_script_for_zsh() {
    let script = script("zsh");
    for command in known().commands {
        assert!(script.contains(&format!("            '{}:", command.name)), "{}", command.name);
        let own = part(&script, &format!("\n        {})\n", command.name), "\n            ;;\n");
        for flag in &command.flags {
            for name in flag.names() {
                assert!(own.contains(&name), "{} {name}: {own}", command.name);
            }
        }
    }
}

#[test]
fn each_command_and_flag_is_in_the_script_for_fish() {
    let script = script("fish");
    for command in known().commands {
        let own = format!("-n __fish_use_subcommand -a {} ", command.name);
        assert!(script.lines().any(|line| line.contains(&own)), "{}", command.name);
        let seen = format!("-n '__fish_seen_subcommand_from {}'", command.name);
        for flag in &command.flags {
            let short = flag.short.map(|letter| format!(" -s {letter}")).unwrap_or_default();
            let long = flag.long.as_ref().map(|name| format!(" -l {name} ")).unwrap_or_default();
            let own = format!("{seen}{short}{long}");
            assert!(script.lines().any(|line| line.contains(&own)), "{own}: {script}");
        }
    }
}

/// Lets a shell read a script without running it; `None` if there is no such shell.
fn parsed(shell: &str) -> Option<Output> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("script");
    std::fs::write(&path, script(shell)).unwrap();
    match Command::new(shell).arg("-n").arg(&path).output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("{shell}: {error}"),
    }
}

#[test]
fn shells_can_read_their_scripts() {
    for shell in ["bash", "zsh", "fish"] {
        match parsed(shell) {
            Some(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success() && said.is_empty(), "{shell}: {said}");
            }
            None if shell == "bash" => panic!("there is no bash"),
            None => println!("skipped for {shell}: it is not installed"),
        }
    }
}

/// What bash completes the last of these words to.
fn completed(words: &[&str]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("script");
    std::fs::write(&path, script("bash")).unwrap();
    std::fs::write(directory.path().join("token of jane"), "").unwrap();
    let run = "source ./script; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _understudy; \
               for one in \"${COMPREPLY[@]}\"; do printf '%s\\n' \"$one\"; done";
    let output = Command::new("bash")
        .args(["--norc", "--noprofile", "-c", run, "bash"])
        .args(words)
        .current_dir(directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{words:?}: {said}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_flags_and_values() {
    assert_eq!(completed(&["understudy", "lo"]), ["logs"]);
    assert_eq!(completed(&["understudy", "t"]), ["top", "timeline"]);
    assert_eq!(completed(&["understudy", "logs", "--ta"]), ["--tail"]);
    assert_eq!(completed(&["understudy", "pods", "-o", ""]), ["json", "wide"]);
    assert_eq!(completed(&["understudy", "pods", "--output", "=", "w"]), ["wide"]);
    assert_eq!(completed(&["understudy", "pods", "--output", "="]), ["json", "wide"]);
    assert_eq!(completed(&["understudy", "completion", "f"]), ["fish"]);
    assert_eq!(completed(&["understudy", "logs", "--token-file", "tok"]), ["token of jane"]);
    // What only a kubelet or the caller knows is not guessed.
    assert!(completed(&["understudy", "logs", "-n", "t"]).is_empty());
    assert!(completed(&["understudy", "why", "w"]).is_empty());
    let flags = completed(&["understudy", "why", "-"]);
    assert!(flags.contains(&"--kubeconfig".to_owned()) && flags.contains(&"-n".to_owned()), "{flags:?}");
    assert!(!flags.contains(&"--follow".to_owned()), "{flags:?}");
}
