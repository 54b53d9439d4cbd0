//! Waiting for work on the I/O runtime before actors have started.

use anyhow::anyhow;
use bridge_io::Io;

/// Blocks until the I/O runtime has finished this work; returns its result.
///
/// # Errors
/// The I/O runtime has ended.
pub fn wait<T: Send + 'static>(io: &Io, work: impl Future<Output = T> + Send + 'static) -> anyhow::Result<T> {
    let (done, answer) = std::sync::mpsc::channel();
    drop(io.spawn(async move { done.send(work.await) }));
    answer.recv().map_err(|_| anyhow!("the I/O runtime ended"))
}
