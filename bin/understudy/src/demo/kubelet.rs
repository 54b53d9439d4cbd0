//! The kubelet's process: started, its log read, stopped.

use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::configuration::{NODE, Places};
use crate::view::text::neutralised;

/// How long the kubelet may take to stop before it is killed.
const STOP_DEADLINE: Duration = Duration::from_secs(10);
/// The number of the log's last lines that are kept.
const LINES_MAX: usize = 20;
/// The longest line, bytes; the rest of a longer one becomes a line of its own.
const LINE_BYTES_MAX: u64 = 4096;

/// The kubelet's process; killed if it is dropped.
pub struct Kubelet {
    child: Child,
    lines: Arc<Mutex<VecDeque<String>>>,
    reading: JoinHandle<()>,
}

impl Kubelet {
    /// Starts the kubelet with the prepared configuration.
    ///
    /// # Errors
    /// The program cannot be started, or the log's file cannot be opened.
    pub fn start(binary: &Path, places: &Places, log: Option<&Path>) -> anyhow::Result<Self> {
        let log = match log {
            Some(path) => {
                let file = std::fs::File::create(path);
                Some(file.with_context(|| format!("make the log {}", path.display()))?)
            }
            None => None,
        };
        let mut child = Command::new(binary)
            .arg("--config")
            .arg(&places.kubelet_config)
            .arg("--understudy-config")
            .arg(&places.understudy_config)
            .arg("--root-dir")
            .arg(&places.root)
            .arg("--cert-dir")
            .arg(&places.certificates)
            .arg(format!("--hostname-override={NODE}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Ctrl-C on the terminal must not reach the kubelet, which the demo stops in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", binary.display()))?;
        let lines = Arc::default();
        let stderr = child.stderr.take().context("the kubelet's log is a pipe")?;
        let reading = tokio::spawn(listen(stderr, Arc::clone(&lines), log));
        Ok(Self { child, lines, reading })
    }

    /// Waits until the kubelet ends by itself and its log is read to the end; returns the exit status as text.
    pub async fn ended(&mut self) -> String {
        let status = self.child.wait().await;
        // A process that has inherited the pipe may hold it open.
        let _ = tokio::time::timeout(Duration::from_secs(1), &mut self.reading).await;
        status.map_or_else(|error| error.to_string(), |status| status.to_string())
    }

    /// The last lines of the log.
    pub fn last_words(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
    }

    /// Sends SIGTERM, and SIGKILL after a deadline.
    ///
    /// # Errors
    /// The kubelet had to be killed.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let Some(pid) = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) else {
            return Ok(());
        };
        // This fails if the kubelet has just ended by itself.
        let _ = kill_process(pid, Signal::TERM);
        match tokio::time::timeout(STOP_DEADLINE, self.child.wait()).await {
            Ok(status) => status.map(|_: ExitStatus| ()).context("wait for the kubelet"),
            Err(_) => {
                self.child.kill().await.context("kill the kubelet")?;
                bail!("the kubelet did not end within {} s and was killed", STOP_DEADLINE.as_secs())
            }
        }
    }
}

async fn listen(
    log: impl AsyncRead + Unpin,
    lines: Arc<Mutex<VecDeque<String>>>,
    mut file: Option<std::fs::File>,
) {
    let mut log = BufReader::new(log);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut log).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        // A full disk must not end the demo.
        if file.as_mut().is_some_and(|file| file.write_all(&line).is_err()) {
            file = None;
        }
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(neutralised(String::from_utf8_lossy(&line).trim_end()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_lines_are_kept() {
        let lines = Arc::default();
        let mut log: String = (0..30).map(|line| format!("line {line}\n")).collect();
        log.push_str(&"x".repeat(5000));
        listen(log.as_bytes(), Arc::clone(&lines), None).await;
        let lines = lines.lock().unwrap();
        assert_eq!(lines.len(), LINES_MAX);
        assert_eq!(lines[0], "line 12");
        assert!(lines.iter().all(|line| line.len() <= LINE_BYTES_MAX as usize));
    }
}
