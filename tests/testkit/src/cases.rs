//! Cases of the suites that are programs of their own. Each has a limit of time, so that one that hangs costs minutes and
//! says where, and leaves no kubelet behind.

use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use libtest_mimic::{Completion, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};

/// The limit: more than the longest case takes on a slow machine under load. `UNDERSTUDY_CASE_SECONDS` is another one.
const LIMIT: Duration = Duration::from_secs(1200);
/// The exit code of a suite with a case that has not ended, as of `timeout`.
const OVERDUE: i32 = 124;

/// A case that may end the whole suite: with exit code 124 when it has not ended within the limit.
pub fn trial(
    name: impl Into<String>,
    case: impl FnOnce() -> Result<Completion, Failed> + Send + 'static,
) -> Trial {
    let name = name.into();
    Trial::ignorable_test(name.clone(), move || {
        let limit = limit();
        let overdue = move || {
            eprintln!("OVERDUE: {name} has not ended within {} s; the suite ends here", limit.as_secs());
            end_children(std::process::id());
            std::process::exit(OVERDUE);
        };
        within(limit, overdue, case)
    })
}

/// The end of a suite's main function: it says that all groups of cases have been run, and whether they did well.
pub fn conclude(well: bool) -> ExitCode {
    println!("suite ended");
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn limit() -> Duration {
    let seconds = std::env::var("UNDERSTUDY_CASE_SECONDS").ok();
    let number = |text: String| text.parse().unwrap_or_else(|_| panic!("UNDERSTUDY_CASE_SECONDS={text}"));
    seconds.map_or(LIMIT, |text| Duration::from_secs(number(text)))
}

/// Runs the case; if it has not ended within the limit, also `overdue`, on another thread.
fn within<T>(limit: Duration, overdue: impl FnOnce() + Send + 'static, case: impl FnOnce() -> T) -> T {
    let (running, ended) = channel::<()>();
    std::thread::spawn(move || {
        if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            overdue();
        }
    });
    let result = case();
    // A panic drops it, too.
    drop(running);
    result
}

/// Ends the processes that this one has started itself.
fn end_children(of: u32) {
    let of = of.to_string();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name in parentheses may have any letters in it; behind it are the state and the parent.
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| parent == Some(&of)) {
            // It may have ended a moment ago.
            let _gone = kill_process(pid, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_case_that_does_not_end_is_noticed_and_one_that_has_ended_is_not() {
        let (noticed, notice) = channel();
        within(
            Duration::from_millis(10),
            move || noticed.send(()).unwrap(),
            || {
                notice.recv_timeout(Duration::from_secs(60)).expect("it is noticed while it runs");
            },
        );
        let (noticed, notice) = channel::<()>();
        assert_eq!(within(Duration::from_secs(3600), move || noticed.send(()).unwrap(), || 7), 7);
        // The watch ends with the case, and drops its end.
        assert!(notice.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Disconnected));
    }

    #[test]
    fn children_are_ended() {
        let script = "sleep 1000 & echo begun; wait $!; exit $?";
        let mut shell = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut begun = [0; 6];
        shell.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
        end_children(shell.id());
        assert_eq!(shell.wait().unwrap().code(), Some(128 + 9));
    }
}
