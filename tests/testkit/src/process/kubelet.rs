//! Starting, ending and killing the kubelet's process, always by its own process ID.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a killed process may take to be gone.
const KILLED_WITHIN: Duration = Duration::from_secs(30);
/// Period of looks at whether the process has ended.
const PERIOD: Duration = Duration::from_millis(10);

/// How a kubelet is started; it can be started again and again.
#[derive(Clone, Debug)]
pub struct KubeletCommand {
    /// The binary.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables beside those of the caller.
    pub environment: Vec<(OsString, OsString)>,
    /// Both its outputs are appended here.
    pub log: PathBuf,
}

/// A kubelet that was started. Dropping it kills it.
#[derive(Debug)]
pub struct KubeletProcess {
    child: Child,
    log: PathBuf,
}

impl KubeletCommand {
    /// Starts the process; it has done nothing yet when this returns.
    ///
    /// # Errors
    /// The log cannot be opened or the program not be run.
    pub fn start(&self) -> io::Result<KubeletProcess> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(KubeletProcess { child, log: self.log.clone() })
    }
}

impl KubeletProcess {
    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The log file.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The exit status, if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child of ours can be waited for")
    }

    /// The exit status, if the process ends `within` that time.
    pub fn wait(&mut self, within: Duration) -> Option<ExitStatus> {
        let begun = Instant::now();
        loop {
            match self.ended() {
                Some(status) => return Some(status),
                None if begun.elapsed() >= within => return None,
                None => std::thread::sleep(PERIOD),
            }
        }
    }

    /// Sends a signal; nothing happens if the process has ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.ended().is_some() {
            return;
        }
        let pid = i32::try_from(self.id()).ok().and_then(Pid::from_raw);
        // If it ends right now, its ID is still ours until it is waited for, and the signal is lost without harm.
        let _lost = kill_process(pid.expect("process IDs are positive"), signal);
    }

    /// Asks it to end with SIGTERM.
    pub fn terminate(&mut self, within: Duration) -> Option<ExitStatus> {
        self.signal(Signal::TERM);
        self.wait(within)
    }

    /// Ends the process with SIGKILL.
    ///
    /// # Panics
    /// It still exists 30 s later.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait(KILLED_WITHIN).expect("a killed process is gone");
    }
}

impl Drop for KubeletProcess {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ended = self.wait(KILLED_WITHIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, log: &Path) -> KubeletProcess {
        let arguments = ["-c", script].map(OsString::from).into();
        let environment = Vec::new();
        KubeletCommand { program: "/bin/sh".into(), arguments, environment, log: log.into() }.start().unwrap()
    }

    #[test]
    fn a_process_is_ended_and_its_output_kept() {
        let log = std::env::temp_dir().join(format!("testkit-process-{}", std::process::id()));
        let mut process =
            shell("trap 'echo gone >&2; exit 3' TERM; echo here; while :; do sleep 0.05; done", &log);
        super::super::eventually("the first line", Duration::from_secs(10), || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            if text == "here\n" { Ok(()) } else { Err(text) }
        });
        assert_eq!(process.ended(), None);
        assert_eq!(process.terminate(Duration::from_secs(10)).unwrap().code(), Some(3));
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "here\ngone\n");
        std::fs::remove_file(&log).unwrap();
    }
}
