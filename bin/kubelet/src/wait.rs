//! Waiting before there is any actor that could be told.

use anyhow::anyhow;
use bridge_io::Io;

/// Blocks until the I/O runtime has done this work, and gives its answer.
///
/// # Errors
/// The I/O runtime has ended.
pub fn wait<T: Send + 'static>(io: &Io, work: impl Future<Output = T> + Send + 'static) -> anyhow::Result<T> {
    let (done, answer) = std::sync::mpsc::channel();
    drop(io.spawn(async move { done.send(work.await) }));
    answer.recv().map_err(|_| anyhow!("the I/O runtime ended"))
}
