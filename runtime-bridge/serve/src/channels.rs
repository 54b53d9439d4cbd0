//! exec and attach for callers that speak version 5 of the channels over a WebSocket. The runtime's streaming server knows
//! version 4 there, which has no end of input alone, so each channel becomes a stream of SPDY (row 21.4).

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, split};
use tokio::sync::{Mutex, mpsc};

use super::spdy::{self, Control, Head};
use super::websocket::{CHUNK_BYTES, Frames, Piece, Sink};
use super::wrapping::farewell;

/// The WebSocket protocol that the caller speaks.
pub const CALLERS: &str = "v5.channel.k8s.io";
/// The protocol of the streams that the runtime's server is asked for.
pub const RUNTIMES: &str = "v4.channel.k8s.io";
/// The header that says what a stream carries.
const STREAM_TYPE: &str = "streamtype";

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;
/// How many channels there are.
const CHANNELS: usize = 5;
/// In the place of a channel: the channel whose number follows has ended.
const END: u8 = 255;
/// At most so many answers to the runtime's server wait to be written; further pings are not answered.
const REPLIES_MAX: usize = 16;

const SUCCESS: &[u8] = br#"{"metadata":{},"status":"Success"}"#;
const CUT_OFF: &[u8] = br#"{"metadata":{},"status":"Failure","message":"Internal error occurred: the runtime's streaming server ended the connection","reason":"InternalError","details":{"causes":[{"message":"the runtime's streaming server ended the connection"}]},"code":500}"#;

/// The streams that exec or attach has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
    /// Whether the process has a terminal, whose size the caller may change.
    pub tty: bool,
}

impl Channels {
    /// The channels with what their streams are called, in the order in which they are opened.
    fn opened(self) -> impl Iterator<Item = (u8, &'static str)> {
        let all = [
            (STATUS, "error", true),
            (STDIN, "stdin", self.stdin),
            (STDOUT, "stdout", self.stdout),
            (STDERR, "stderr", self.stderr),
            (RESIZE, "resize", self.tty),
        ];
        all.into_iter().filter(|(.., is_open)| *is_open).map(|(channel, name, _)| (channel, name))
    }

    /// The channel on which the caller learns that it is connected: the first one that it reads.
    fn first_read(self) -> u8 {
        match self {
            Self { stdout: true, .. } => STDOUT,
            Self { stderr: true, .. } => STDERR,
            _ => STATUS,
        }
    }
}

/// The channels' streams, and which of them have ended.
struct Streams {
    /// The number of each channel's stream.
    numbers: [Option<u32>; CHANNELS],
    /// Nothing more is sent to the runtime on these channels.
    sent: [AtomicBool; CHANNELS],
    /// Nothing more comes from the runtime on these channels.
    heard: [AtomicBool; CHANNELS],
}

impl Streams {
    /// The streams, and the frames that open them.
    fn open(channels: Channels) -> (Self, Vec<u8>) {
        let (mut numbers, mut frames) = ([None; CHANNELS], Vec::new());
        for ((channel, name), number) in channels.opened().zip((1..).step_by(2)) {
            numbers[usize::from(channel)] = Some(number);
            frames.extend(spdy::opening(number, number == 1, STREAM_TYPE, name));
        }
        (Self { numbers, sent: Default::default(), heard: Default::default() }, frames)
    }

    fn channel(&self, stream: u32) -> Option<u8> {
        let at = self.numbers.iter().position(|number| *number == Some(stream))?;
        u8::try_from(at).ok()
    }

    /// The stream on which this channel's bytes go to the runtime, unless it has ended.
    fn input(&self, channel: u8) -> Option<u32> {
        let at = usize::from(channel);
        if !matches!(channel, STDIN | RESIZE) || self.sent[at].load(Ordering::Relaxed) {
            return None;
        }
        self.numbers[at]
    }

    /// The runtime takes nothing more. It may yet have something to say.
    fn refused(&self) {
        for channel in [STDIN, RESIZE] {
            self.sent[usize::from(channel)].store(true, Ordering::Relaxed);
        }
    }

    /// Whether the runtime has ended everything that the caller reads.
    fn all_heard(&self) -> bool {
        [STDOUT, STDERR, STATUS]
            .map(usize::from)
            .into_iter()
            .all(|at| self.numbers[at].is_none() || self.heard[at].load(Ordering::Relaxed))
    }
}

/// What the client of the runtime's server has to write besides the caller's bytes.
enum Reply {
    Pong(u32),
    /// The runtime has ended this stream, and takes no more on it.
    End(u32),
}

/// Passes the channels of a caller on to streams of the runtime, and back, until all output has ended or the caller has
/// gone. Nothing is kept but what was just read.
///
/// # Errors
/// Either side's error, or what the caller sends breaks the protocol.
pub async fn talk<A, B>(caller: A, runtime: B, channels: Channels) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (from_caller, to_caller) = split(caller);
    let (from_runtime, mut to_runtime) = split(runtime);
    let (streams, frames) = Streams::open(channels);
    to_runtime.write_all(&frames).await?;
    to_runtime.flush().await?;
    let (sink, onward) = (Mutex::new(Sink::new(to_caller)), Mutex::new(to_runtime));
    sink.lock().await.message(&[channels.first_read()], &[]).await?;
    let mut callers = Frames::new(BufReader::with_capacity(CHUNK_BYTES, from_caller), true);
    let (reply, mut replies) = mpsc::channel(REPLIES_MAX);
    let ended = {
        let input = input(&mut callers, &sink, &onward, &streams);
        let output = output(from_runtime, &sink, &streams, &reply);
        let replying = async {
            while let Some(reply) = replies.recv().await {
                let frame = match reply {
                    Reply::Pong(number) => spdy::pong(number),
                    Reply::End(stream) => spdy::data_head(stream, true, 0).to_vec(),
                };
                if written(&onward, &frame, &[]).await.is_err() {
                    streams.refused();
                }
            }
        };
        tokio::select! {
            biased;
            done = output => done,
            done = input => done,
            () = replying => Ok(()),
        }
    };
    farewell(ended, &mut sink.into_inner(), &mut callers).await
}

/// Writes a frame to the runtime's server.
async fn written<W: AsyncWrite + Unpin>(onward: &Mutex<W>, head: &[u8], body: &[u8]) -> io::Result<()> {
    let mut onward = onward.lock().await;
    onward.write_all(head).await?;
    onward.write_all(body).await?;
    onward.flush().await
}

/// The part of a message in which the next byte is.
#[derive(Clone, Copy)]
enum Part {
    Start,
    /// Bytes of a channel.
    Of(u8),
    /// The number of a channel that has ended.
    End(Option<u8>),
}

fn violation(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Passes on what the caller sends until the caller closes the WebSocket. What the runtime does not take is forgotten: a
/// process that has ended takes no input, and its status is yet to come.
async fn input<R, W, B>(
    callers: &mut Frames<R>,
    sink: &Mutex<Sink<W>>,
    onward: &Mutex<B>,
    streams: &Streams,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    B: AsyncWrite + Unpin,
{
    let (mut buffer, mut part) = (vec![0; CHUNK_BYTES], Part::Start);
    loop {
        let (len, ends) = match callers.next(&mut buffer).await? {
            Piece::Bytes { len, ends } => (len, ends),
            Piece::Ping(body) => {
                sink.lock().await.pong(&body).await?;
                continue;
            }
            Piece::Close => return Ok(()),
        };
        let mut bytes = &buffer[..len];
        if let (Part::Start, Some((&first, rest))) = (part, bytes.split_first()) {
            part = if first == END { Part::End(None) } else { Part::Of(first) };
            bytes = rest;
        }
        match (part, bytes) {
            (Part::Of(channel), [_, ..]) => {
                if let Some(stream) = streams.input(channel) {
                    let head = spdy::data_head(stream, false, bytes.len());
                    if written(onward, &head, bytes).await.is_err() {
                        streams.refused();
                    }
                }
            }
            (Part::End(None), [channel]) => part = Part::End(Some(*channel)),
            (Part::End(_), [_, ..]) => return Err(violation("more than one channel is told to have ended")),
            (_, []) | (Part::Start, _) => {}
        }
        if ends {
            if let Part::End(channel) = part {
                let channel = channel.filter(|channel| usize::from(*channel) < CHANNELS);
                let channel = channel.ok_or_else(|| violation("no such channel has ended"))?;
                if let Some(stream) = streams.input(channel) {
                    streams.sent[usize::from(channel)].store(true, Ordering::Relaxed);
                    if written(onward, &spdy::data_head(stream, true, 0), &[]).await.is_err() {
                        streams.refused();
                    }
                }
            }
            part = Part::Start;
        }
    }
}

/// Passes on what the runtime sends until it has ended all that the caller reads; the status comes last.
async fn output<R, W>(
    from_runtime: R,
    sink: &Mutex<Sink<W>>,
    streams: &Streams,
    reply: &mpsc::Sender<Reply>,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut runtime = BufReader::with_capacity(CHUNK_BYTES, from_runtime);
    let (mut buffer, mut has_status) = (vec![0; CHUNK_BYTES], false);
    while !streams.all_heard() {
        // A connection that breaks ends all streams, too: the caller is told so by the status.
        let Ok(Some(head)) = spdy::next_head(&mut runtime).await else { break };
        let (ended, is_reset) = match head {
            Head::Data { stream, ends, len } => {
                let channel = streams.channel(stream);
                let channel = channel.filter(|channel| matches!(*channel, STDOUT | STDERR | STATUS));
                let mut left = len;
                while left > 0 {
                    let part = left.min(CHUNK_BYTES);
                    let Ok(read @ 1..) = runtime.read(&mut buffer[..part]).await else { break };
                    if let Some(channel) = channel {
                        has_status |= channel == STATUS;
                        sink.lock().await.message(&[channel], &buffer[..read]).await?;
                    }
                    left -= read;
                }
                if left > 0 {
                    break;
                }
                (ends.then_some(stream), false)
            }
            Head::Control { kind, ends, len } => {
                match spdy::control_of(&mut runtime, kind, ends, len).await {
                    Ok(Control::Ended(stream)) => (Some(stream), false),
                    Ok(Control::Reset(stream)) => (Some(stream), true),
                    Ok(Control::Ping(number)) => {
                        let _ = reply.try_send(Reply::Pong(number));
                        (None, false)
                    }
                    Ok(Control::Other) => (None, false),
                    Err(_) => break,
                }
            }
        };
        if let Some((stream, channel)) = ended.and_then(|stream| Some((stream, streams.channel(stream)?))) {
            let at = usize::from(channel);
            streams.heard[at].store(true, Ordering::Relaxed);
            let was_sent = streams.sent[at].swap(true, Ordering::Relaxed);
            if matches!(channel, STDIN | RESIZE) && !was_sent && !is_reset {
                let _ = reply.try_send(Reply::End(stream));
            }
        }
    }
    if !has_status {
        let status = if streams.all_heard() { SUCCESS } else { CUT_OFF };
        sink.lock().await.message(&[STATUS], status).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
