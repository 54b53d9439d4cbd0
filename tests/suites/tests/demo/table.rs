//! What a user reads: the rows of the table, from pipes and from a terminal.

use std::path::Path;

/// A text of a terminal as lines: what moves the cursor begins a new line, what sets colours is left out.
pub fn lines(text: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        let Some(sequence) = after.strip_prefix('[') else {
            rest = after.get(1..).unwrap_or_default();
            continue;
        };
        let end = sequence.find(|letter: char| ('@'..='~').contains(&letter)).unwrap_or(sequence.len());
        if matches!(sequence[end..].chars().next(), Some('A'..='H' | 'f' | 'd')) {
            plain.push('\n');
        }
        rest = sequence.get(end + 1..).unwrap_or_default();
    }
    plain.push_str(rest);
    plain.split(['\n', '\r']).map(|line| line.trim_end().to_owned()).collect()
}

/// What README promises and the lines do not show yet.
pub fn promised(lines: &[String]) -> Vec<&'static str> {
    let row = |begins: &str, words: &[&str]| {
        lines.iter().any(|line| line.starts_with(begins) && words.iter().all(|word| line.contains(word)))
    };
    let promises = [
        ("the table of pods", row("POD ", &["STATUS", "READY", "RESTARTS"])),
        ("the table of actors", row("Pleg ", &["running"])),
        ("web is ready", row("default/web-", &["Running", "2/2"])),
        ("the init container of web has ended", row("  ├ write-page (init)", &["Completed"])),
        ("the sidecar of web runs", row("  ├ clock (sidecar)", &["Running"])),
        ("job has succeeded and does not start again", row("default/job-", &["Completed", " 0/1 ", " 0 "])),
        ("crash waits for its next start", row("default/crash-", &["CrashLoopBackOff"])),
    ];
    promises.iter().filter(|(_, shown)| !shown).map(|(promise, _)| *promise).collect()
}

/// Events that warn of anything but what the pod `crash` is there to show, and that the machine has cgroups of version 1.
pub fn warnings(lines: &[String]) -> Vec<&String> {
    let old_cgroups = !Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let warns = |line: &&String| {
        let words: Vec<&str> = line.split_whitespace().skip(1).take(3).collect();
        let ["Warning", reason, object] = words[..] else { return false };
        match reason {
            "BackOff" => !object.starts_with("default/crash-"),
            "CgroupV1" => !old_cgroups,
            _ => true,
        }
    };
    lines.iter().filter(warns).collect()
}
