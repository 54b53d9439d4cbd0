//! Reads a log file into an answer's body, and follows it while its container runs.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::wire::{ContainerState, ContainerStatusRequest, container_state};
use bridge_cri::{CriErrorKind, RuntimeReads};
use bridge_node::host::LogFile;
use tokio::time::Instant;

use super::line::{Format, More, Writer, format_of, parse};
use super::options::LogOptions;
use crate::sending::Chunks;

/// A file with a line longer than this is not read as a log.
const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The runtime may still write to the earlier file for at most so long after a rotation.
const SETTLES: Duration = Duration::from_millis(200);

/// A follower asks the runtime at most once in so long whether the container still runs: a container that writes line by line
/// would have it asked for each line, for each of its followers.
const ASKED_EVERY: Duration = Duration::from_secs(1);

/// A container's log.
#[derive(Clone)]
pub struct LogSource {
    /// The open file.
    pub file: LogFile,
    /// The runtime's ID of the container.
    pub container_id: String,
    /// Asked whether the container still runs.
    pub runtime: Arc<dyn RuntimeReads>,
}

/// The bytes of a log that have been read and not yet written.
struct Reader {
    offset: u64,
    rest: Vec<u8>,
    format: Option<Format>,
    writer: Writer,
}

impl Reader {
    /// Takes whole lines from the bytes read; with `last`, also a line without an end.
    fn lines(&mut self, last: bool) -> io::Result<(Vec<u8>, More)> {
        let mut out = Vec::new();
        let mut from = 0;
        let mut more = More::Yes;
        while more == More::Yes && from < self.rest.len() {
            let end = match self.rest[from..].iter().position(|byte| *byte == b'\n') {
                Some(at) => from + at + 1,
                None if last => self.rest.len(),
                None => break,
            };
            let line = &self.rest[from..end];
            from = end;
            let Some(format) = self.format.or_else(|| format_of(line)) else {
                return Err(io::Error::other("failed to get parse function: unsupported log format"));
            };
            self.format = Some(format);
            match parse(format, line) {
                Some(line) => more = self.writer.write(&line, &mut out),
                None => tracing::debug!("A line of a log cannot be read and is left out"),
            }
        }
        self.rest.drain(..from);
        if self.rest.len() > LINE_BYTES_MAX {
            return Err(io::Error::other("a line of the log has no end"));
        }
        Ok((out, more))
    }
}

/// Sends the part of the log that `options` asks for, until its end or until the receiver of the chunks is dropped.
pub async fn send(source: LogSource, options: LogOptions, chunks: Chunks) {
    if let Err(error) = read(source, options, &chunks).await {
        tracing::warn!(%error, "A container's log cannot be read on");
        let _ = chunks.send(Err(error)).await;
    }
}

async fn read(mut source: LogSource, options: LogOptions, chunks: &Chunks) -> io::Result<()> {
    let follow = options.follow;
    let offset = match options.tail_lines {
        Some(lines) => source.file.tail_start(lines).await?,
        None => 0,
    };
    let mut reader = Reader { offset, rest: Vec::new(), format: None, writer: Writer::new(options) };
    if reader.writer.is_done() {
        return Ok(());
    }
    // The watch begins before the first read, so that no change goes unseen between the two.
    let mut watch = follow.then(|| source.file.watch());
    let mut running = true;
    let mut asked: Option<Instant> = None;
    // The file that replaced this one; this one is read to its end first.
    let mut next = None;
    loop {
        let block = source.file.read_at(reader.offset).await?;
        let at_end = block.is_empty();
        reader.offset += block.len() as u64;
        reader.rest.extend_from_slice(&block);
        let (out, more) = reader.lines(at_end && !follow)?;
        if !out.is_empty() && chunks.send(Ok(out.into())).await.is_err() {
            return Ok(());
        }
        if more == More::No {
            return Ok(());
        }
        let Some(watch) = watch.as_mut().filter(|_| at_end) else {
            if at_end {
                return Ok(());
            }
            continue;
        };
        if let Some(next) = next.take() {
            source.file = next;
            reader.offset = 0;
            reader.rest.clear();
            continue;
        }
        next = source.file.successor().await?;
        if next.is_some() {
            tokio::time::sleep(SETTLES).await;
            continue;
        }
        if !running {
            return Ok(());
        }
        // Lines that the container wrote before it ended are read in one more round.
        if asked.is_none_or(|asked| asked.elapsed() >= ASKED_EVERY) {
            running = is_running(&source).await?;
            asked = Some(Instant::now());
        }
        if running {
            tokio::select! {
                biased;
                () = chunks.closed() => return Ok(()),
                () = watch.changed() => {}
            }
        }
    }
}

/// Whether the container still runs; while the runtime does not answer, it is taken to run.
async fn is_running(source: &LogSource) -> io::Result<bool> {
    let request = ContainerStatusRequest { container_id: source.container_id.clone(), verbose: false };
    match source.runtime.container_status(request).await {
        Ok(answer) => {
            let state = answer.status.map(|status| container_state(status.state));
            Ok(state == Some(ContainerState::ContainerRunning))
        }
        Err(error) if error.kind == CriErrorKind::Unavailable => Ok(true),
        Err(error) if error.kind == CriErrorKind::NotFound => Ok(false),
        Err(error) => Err(io::Error::other(error.to_string())),
    }
}
