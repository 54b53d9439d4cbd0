//! Programs of the node that mounts and disks need.

mod group;

use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bridge_io::Lane;
use futures::future::{Either, select};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::process::{Child, Command};

/// The most bytes of each stream of a program's output that are kept.
const OUTPUT_BYTES_MAX: usize = 4096;
/// How long the output is read on after a program has ended: a server that it has left behind may keep its streams open.
const REST_WITHIN: Duration = Duration::from_secs(1);
/// How long a program's end is put off for processes that were killed with it: what does not die so soon waits in the kernel.
const DEAD_WITHIN: Duration = Duration::from_secs(5);

/// Why a program has failed.
#[derive(Debug)]
pub(crate) struct Failed {
    /// How it has ended, or why it could not be run.
    pub why: String,
    /// What it said.
    pub output: String,
    /// Its exit status; `None` if it was not found, did not end by itself or not in time.
    pub code: Option<i32>,
    /// It is not there.
    pub is_missing: bool,
}

/// Runs a program, which has what is `held` until it ends, also when it is late: then it is killed, with all programs of its
/// process group, and what is held is let go when they are dead. Returns what was held and what the program said.
pub(crate) async fn run<T: Send + 'static>(
    lane: &Lane,
    program: &str,
    arguments: &[&str],
    within: Duration,
    held: T,
) -> Result<(T, String), Failed> {
    run_saying(OUTPUT_BYTES_MAX, lane, program, arguments, within, held).await
}

/// As [`run`], with so many bytes of each stream of the program's output.
pub(crate) async fn run_saying<T: Send + 'static>(
    bytes_max: usize,
    lane: &Lane,
    program: &str,
    arguments: &[&str],
    within: Duration,
    held: T,
) -> Result<(T, String), Failed> {
    let mut command = Command::new(program);
    command.args(arguments);
    let input = Input { command, program, bytes: None, left: Left::Alone };
    let (held, ended) = run_whole(bytes_max, lane, input, within, held).await?;
    let output = String::from_utf8_lossy(&[ended.out, ended.err].concat()).into_owned();
    match ended.status.success() {
        true => Ok((held, output)),
        false => Err(Failed { output, code: ended.status.code(), ..failed(told(ended.status)) }),
    }
}

/// A program to be run.
pub(crate) struct Input<'a> {
    /// The program with its arguments and its environment.
    pub command: Command,
    /// Its name, for errors.
    pub program: &'a str,
    /// What it is told on its standard input.
    pub bytes: Option<Vec<u8>>,
    /// What becomes of what it leaves behind.
    pub left: Left,
}

/// What becomes of the processes of a program's group that are there when it ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// They live on: a file system's server.
    Alone,
    /// They are killed, and what is held is let go when they are dead.
    Killed,
}

/// A program that has ended by itself.
#[derive(Debug)]
pub(crate) struct Ended {
    /// How.
    pub status: ExitStatus,
    /// The beginning of what it wrote on its standard output.
    pub out: Vec<u8>,
    /// The beginning of what it wrote on its standard error.
    pub err: Vec<u8>,
}

/// As [`run`], with so many bytes of each stream, which are told apart, and whatever the program's exit status.
pub(crate) async fn run_whole<T: Send + 'static>(
    bytes_max: usize,
    lane: &Lane,
    input: Input<'_>,
    within: Duration,
    held: T,
) -> Result<(T, Ended), Failed> {
    let Input { mut command, program, bytes, left } = input;
    let stdin = if bytes.is_some() { Stdio::piped() } else { Stdio::null() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.process_group(0).spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            let why = format!("exec: {program:?}: executable file not found in $PATH");
            Failed { is_missing: true, ..failed(why) }
        }
        _ => failed(error.to_string()),
    })?;
    let group = group_of(&child).filter(|_| left == Left::Killed);
    let (why, dying) = match tokio::time::timeout(within, ended(&mut child, bytes, bytes_max, left)).await {
        Ok(Ok(ended)) => {
            let Some(group) = group else { return Ok((held, ended)) };
            if tokio::time::timeout(DEAD_WITHIN, group::dead(lane.io(), group)).await.is_ok() {
                return Ok((held, ended));
            }
            ("what it has left behind does not die".to_owned(), Some(group))
        }
        Ok(Err(error)) => return Err(failed(error.to_string())),
        Err(_) => {
            // One that has ended meanwhile has no group to be killed any more.
            let killed = kill(&mut child);
            (format!("it has not ended within {} s", within.as_secs()), killed.or(group))
        }
    };
    // A process that waits in the kernel does not die at once.
    let io = lane.io().clone();
    lane.io().spawn(async move {
        let _ = child.wait().await;
        if let Some(group) = dying {
            group::dead(&io, group).await;
        }
        drop(held);
    });
    Err(failed(why))
}

fn failed(why: String) -> Failed {
    Failed { why, output: String::new(), code: None, is_missing: false }
}

/// The process group of a program whose status was not fetched yet: it has the number of its process.
fn group_of(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| Pid::from_raw(id.cast_signed()))
}

/// Kills a program and what it has started, and returns their group.
fn kill(child: &mut Child) -> Option<Pid> {
    let group = group_of(child);
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.start_kill();
    group
}

/// Waits until the program has ended, and kills what it leaves behind, if that is to be killed.
async fn end(child: &mut Child, left: Left) -> std::io::Result<ExitStatus> {
    // Before the status is fetched: until then the number of the group is that of no other one.
    if left == Left::Killed && has_died(child).await.is_ok() {
        kill(child);
    }
    child.wait().await
}

/// Waits until the program has died, and does not fetch its status.
async fn has_died(child: &Child) -> std::io::Result<()> {
    let Some(process) = group_of(child) else { return Ok(()) };
    let watched = pidfd_open(process, PidfdFlags::empty())?;
    // `AsyncFd::with_interest`'s replacement is unsafe for types that change their descriptor, which an `OwnedFd` does not.
    #[allow(deprecated)]
    let watched = AsyncFd::with_interest(watched, Interest::READABLE)?;
    let _died = watched.readable().await?;
    Ok(())
}

/// The program's end and what it said.
async fn ended(
    child: &mut Child,
    input: Option<Vec<u8>>,
    bytes_max: usize,
    left: Left,
) -> std::io::Result<Ended> {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (to_in, from_out, from_err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let status = {
        let streams = pin!(async {
            tokio::join!(
                write(to_in, input.unwrap_or_default()),
                read(from_out, bytes_max, &mut out),
                read(from_err, bytes_max, &mut err)
            )
        });
        match select(pin!(end(child, left)), streams).await {
            Either::Left((status, streams)) => {
                let _ = tokio::time::timeout(REST_WITHIN, streams).await;
                status?
            }
            Either::Right((_, waiting)) => waiting.await?,
        }
    };
    Ok(Ended { status, out, err })
}

/// Writes the whole input and closes the stream. A program need not read it.
async fn write(to: Option<impl AsyncWrite + Unpin>, input: Vec<u8>) {
    let Some(mut to) = to else { return };
    let _not_read = to.write_all(&input).await;
}

/// Reads a stream to its end. What is too much is read, too, but not kept: a program that cannot write would stop.
async fn read(from: Option<impl AsyncRead + Unpin>, bytes_max: usize, kept: &mut Vec<u8>) {
    let Some(mut from) = from else { return };
    let mut part = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut part).await {
        let wanted = read.min(bytes_max.saturating_sub(kept.len()));
        kept.extend(part.iter().take(wanted));
    }
}

pub(crate) fn told(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exit status {code}"),
        None => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Handle;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn lane() -> Lane {
        Lane::new("test", Handle::current())
    }

    async fn sh(script: &str, within: Duration) -> Result<String, Failed> {
        run(&lane(), "sh", &["-c", script], within, ()).await.map(|((), output)| output)
    }

    #[tokio::test]
    async fn a_program_ends_by_itself_however_much_it_says() {
        assert_eq!(sh("echo said; echo so >&2", LONG).await.unwrap(), "said\nso\n");
        let much = sh("head -c 1000000 /dev/zero; echo end >&2", LONG).await.unwrap();
        assert_eq!(much.len(), OUTPUT_BYTES_MAX + "end\n".len());
        let failed = sh("echo why >&2; exit 3", LONG).await.unwrap_err();
        assert_eq!((failed.why.as_str(), failed.output.as_str()), ("exit status 3", "why\n"));
        assert_eq!((failed.code, failed.is_missing), (Some(3), false));
        let missing = run(&lane(), "no-such-program", &[], LONG, ()).await.unwrap_err();
        assert!(missing.is_missing && missing.code.is_none(), "{missing:?}");
    }

    #[tokio::test]
    async fn what_a_program_leaves_behind_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let said = sh(&format!("echo ready; sleep 600 & echo $! > {}", pid.display()), LONG).await;
        assert_eq!(said.unwrap(), "ready\n");
        let left = std::fs::read_to_string(pid).unwrap().trim().parse().ok().and_then(Pid::from_raw);
        rustix::process::kill_process(left.unwrap(), Signal::KILL).expect("it runs on");
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_killed_with_what_it_has_started() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let (held, let_go) = tokio::sync::oneshot::channel::<()>();
        let script = format!("sleep 600 & echo $! > {0}.new; mv {0}.new {0}; wait", pid.display());
        let lane = lane();
        let hangs = async {
            let arguments = ["-c", script.as_str()];
            run(&lane, "sh", &arguments, Duration::from_secs(2), held).await
        };
        let late = hangs.await.unwrap_err();
        assert_eq!((late.why.as_str(), late.code), ("it has not ended within 2 s", None));
        assert!(let_go.await.is_err(), "what was held is given back when it is dead");
        let child = std::fs::read_to_string(&pid).unwrap().trim().to_owned();
        // What has died is no program any longer, or waits for its new parent.
        let lives = || {
            std::fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
        };
        while lives() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
