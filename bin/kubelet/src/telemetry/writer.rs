//! The thread that writes the log. A standard error that takes nothing, such as a pipe that is not read, holds up this
//! thread alone: what does not fit into the memory meanwhile is lost, and counted in the line that follows.

use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The most bytes of lines that wait to be written.
const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How long the end of the process waits for the last lines.
const LAST_LINES_WITHIN: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Waiting {
    lines: Vec<u8>,
    /// Lines that were lost since the last ones were taken.
    lost: u64,
    /// Whether the thread is writing what it has taken.
    is_writing: bool,
}

/// Takes lines and has them written in order. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Writer(Arc<(Mutex<Waiting>, Condvar)>);

impl Writer {
    /// Writes to `sink` on a thread of its own, for as long as the process lives.
    pub fn start(sink: impl Write + Send + 'static) -> Result<Self, std::io::Error> {
        let writer = Self::default();
        let own = writer.clone();
        std::thread::Builder::new().name("log".to_owned()).spawn(move || own.run(sink))?;
        Ok(writer)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line, and never waits for the sink.
    pub fn write(&self, line: &[u8]) {
        let mut waiting = self.waiting();
        if waiting.lines.len().saturating_add(line.len()) > WAITING_BYTES_MAX {
            waiting.lost = waiting.lost.saturating_add(1);
            return;
        }
        waiting.lines.extend_from_slice(line);
        drop(waiting);
        self.0.1.notify_all();
    }

    /// Waits until all lines have been written, but not for long.
    pub fn flush(&self, within: Duration) {
        let is_busy = |waiting: &mut Waiting| waiting.is_writing || !waiting.lines.is_empty();
        let all = self.0.1.wait_timeout_while(self.waiting(), within, is_busy);
        drop(all.unwrap_or_else(PoisonError::into_inner));
    }

    fn run(&self, mut sink: impl Write) {
        loop {
            let is_idle = |waiting: &mut Waiting| waiting.lines.is_empty();
            let waiting = self.0.1.wait_while(self.waiting(), is_idle);
            let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
            waiting.is_writing = true;
            let (lines, lost) = (std::mem::take(&mut waiting.lines), std::mem::take(&mut waiting.lost));
            drop(waiting);
            // A closed standard error cannot be reported.
            let _ = sink.write_all(&lines);
            self.waiting().is_writing = false;
            self.0.1.notify_all();
            if lost > 0 {
                tracing::warn!(lines = lost, "Lines of the log are lost: they were not taken in time");
            }
        }
    }
}

/// The writer of the process's log.
static STDERR: OnceLock<Writer> = OnceLock::new();

/// The writer to standard error.
pub(super) fn stderr() -> Result<Writer, std::io::Error> {
    if let Some(writer) = STDERR.get() {
        return Ok(writer.clone());
    }
    let writer = Writer::start(std::io::stderr())?;
    Ok(STDERR.get_or_init(|| writer).clone())
}

/// Waits a second at most until the log has been written, before the process ends.
pub fn flush() {
    if let Some(writer) = STDERR.get() {
        writer.flush(LAST_LINES_WITHIN);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Says when a write begins, and takes it only when it is let.
    struct Gated {
        begun: Sender<()>,
        gate: Receiver<()>,
        written: Sender<Vec<u8>>,
    }

    impl Write for Gated {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            // At the end of the test it takes all.
            let _ = self.begun.send(());
            let _ = self.gate.recv();
            let _ = self.written.send(bytes.to_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_logs_does_not_wait_for_a_sink_that_takes_nothing() {
        let ((begun, begins), (open, gate), (write, written)) = (channel(), channel(), channel());
        let writer = Writer::start(Gated { begun, gate, written: write }).expect("a thread");
        writer.write(b"first\n");
        begins.recv().expect("the thread writes");
        let line = [b'x'; 1024];
        for _ in 0..2 * WAITING_BYTES_MAX / line.len() {
            writer.write(&line);
        }
        assert_eq!(writer.waiting().lost, 4096);
        assert_eq!(writer.waiting().lines.len(), WAITING_BYTES_MAX);
        writer.flush(Duration::from_millis(10));
        for expected in [6, WAITING_BYTES_MAX] {
            open.send(()).expect("the thread waits");
            assert_eq!(written.recv().expect("it is written").len(), expected);
        }
        drop(open);
        writer.write(b"last\n");
        writer.flush(Duration::from_secs(60));
        let rest: Vec<u8> = written.try_iter().flatten().collect();
        assert!(rest.ends_with(b"last\n"));
    }
}
