//! When the processes of a group are dead.

use std::fs;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process_group};
use tokio::runtime::Handle;

/// The first pause between two looks, which doubles, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_secs(1));

/// Waits until no process of this group lives.
pub(super) async fn dead(io: &Handle, group: Pid) {
    let (mut pause, longest) = PAUSES;
    while lives(io, group).await {
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(longest);
    }
}

async fn lives(io: &Handle, group: Pid) -> bool {
    if test_kill_process_group(group) == Err(Errno::SRCH) {
        return false;
    }
    // Those that have died and whose parent has not fetched their status are there still.
    io.spawn_blocking(move || has_living(group)).await.unwrap_or(false)
}

fn has_living(group: Pid) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    let is_process = |name: &str| name.bytes().all(|digit| digit.is_ascii_digit());
    processes.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_process)).any(|process| {
        let stat = fs::read(process.path().join("stat")).unwrap_or_default();
        is_living(&String::from_utf8_lossy(&stat), group)
    })
}

/// Whether this text of `/proc/<number>/stat` is that of a living process of the group.
fn is_living(stat: &str, group: Pid) -> bool {
    // The name of the program stands in brackets, and may have any in it.
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    let mut words = rest.split(' ');
    let (state, _parent, of) = (words.next(), words.next(), words.next());
    let is_dead = matches!(state, Some("Z" | "X"));
    !is_dead && of.and_then(|of| of.parse().ok()) == Some(group.as_raw_pid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_the_group_lives_until_it_is_dead() {
        let group = Pid::from_raw(40).unwrap();
        for (stat, lives) in [
            ("41 (sleep) S 1 40 40 0", true),
            ("41 (a) Z (b) D 1 40 40 0", true),
            ("40 (sh) Z 7 40 40 0", false),
            ("40 (sh) X 7 40 40 0", false),
            ("41 (sleep) S 40 41 40 0", false),
            ("", false),
        ] {
            assert_eq!(is_living(stat, group), lives, "{stat:?}");
        }
        assert!(has_living(rustix::process::getpgrp()), "this test");
    }
}
