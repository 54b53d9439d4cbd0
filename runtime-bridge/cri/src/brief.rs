//! Answers of ExecSync of which little is kept: a container may write 16 MiB for every probe, and many probes run at once.
//! What is beyond the bound is dropped while it arrives, so that an answer never exists whole.

use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use prost::Message;
use tonic::body::Body;
use tonic::transport::Channel;
use tower::Service;

use super::wire::ExecSyncResponse;

/// The most bytes of each output of a command that are kept: as many as upstream's exec probe keeps.
pub const OUTPUT_KEPT_MAX: usize = 10 * 1024;

/// The bytes before each message of gRPC: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// Cuts both outputs of an answer that is there already.
pub(crate) fn cut(mut answer: ExecSyncResponse) -> ExecSyncResponse {
    answer.stdout.truncate(OUTPUT_KEPT_MAX);
    answer.stderr.truncate(OUTPUT_KEPT_MAX);
    answer
}

/// A number of protobuf, of which all bytes but the last have the highest bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Varint {
    value: u64,
    bytes: u32,
}

impl Varint {
    /// Takes the next byte; `Ok(Some)` with the last one.
    fn take(&mut self, byte: u8) -> Result<Option<u64>, Unreadable> {
        if self.bytes >= 10 {
            return Err(Unreadable);
        }
        self.value |= u64::from(byte & 0x7f).wrapping_shl(7 * self.bytes);
        self.bytes += 1;
        Ok((byte & 0x80 == 0).then_some(self.value))
    }
}

/// The bytes are no answer to ExecSync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unreadable;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Prefix(usize),
    Tag(Varint),
    Number(u64, Varint),
    Length(u64, Varint),
    /// So many bytes of the field.
    Bytes(u64, u64),
}

/// An answer that arrives in pieces.
#[derive(Debug)]
struct Arriving {
    next: Next,
    kept: ExecSyncResponse,
}

impl Default for Arriving {
    fn default() -> Self {
        Self { next: Next::Prefix(0), kept: ExecSyncResponse::default() }
    }
}

impl Arriving {
    fn output(&mut self, field: u64) -> Option<&mut Vec<u8>> {
        match field {
            1 => Some(&mut self.kept.stdout),
            2 => Some(&mut self.kept.stderr),
            _ => None,
        }
    }

    fn bytes(&mut self, field: u64, length: u64) -> Next {
        if let Some(output) = self.output(field) {
            // Of a field that comes twice the last one holds.
            output.clear();
        }
        Next::Bytes(field, length)
    }

    fn take(&mut self, mut piece: &[u8]) -> Result<(), Unreadable> {
        let tag = || Next::Tag(Varint::default());
        loop {
            if let Next::Bytes(field, left) = self.next {
                let here = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
                let (taken, rest) = piece.split_at(here);
                if let Some(output) = self.output(field) {
                    let room = OUTPUT_KEPT_MAX - output.len();
                    output.extend(taken.iter().take(room));
                }
                let left = left - here as u64;
                self.next = if left == 0 { tag() } else { Next::Bytes(field, left) };
                piece = rest;
                if left > 0 {
                    return Ok(());
                }
            }
            let Some((&byte, rest)) = piece.split_first() else { return Ok(()) };
            piece = rest;
            self.next = match self.next {
                Next::Prefix(0) if byte != 0 => return Err(Unreadable),
                Next::Prefix(before) if before + 1 < PREFIX_BYTES => Next::Prefix(before + 1),
                Next::Prefix(_) => tag(),
                Next::Tag(mut number) => match number.take(byte)? {
                    None => Next::Tag(number),
                    Some(tag) => match tag & 7 {
                        0 => Next::Number(tag >> 3, Varint::default()),
                        1 => Next::Bytes(0, 8),
                        2 => Next::Length(tag >> 3, Varint::default()),
                        5 => Next::Bytes(0, 4),
                        _ => return Err(Unreadable),
                    },
                },
                Next::Number(field, mut number) => match number.take(byte)? {
                    None => Next::Number(field, number),
                    Some(value) => {
                        if field == 3 {
                            // A negative number has ten bytes, of which the lowest 32 bits count.
                            self.kept.exit_code = value as i32;
                        }
                        tag()
                    }
                },
                Next::Length(field, mut number) => match number.take(byte)? {
                    None => Next::Length(field, number),
                    Some(length) => self.bytes(field, length),
                },
                Next::Bytes(..) => return Err(Unreadable),
            };
        }
    }

    /// The message of gRPC with what was kept; empty if none has come.
    fn message(&self) -> Result<Vec<u8>, Unreadable> {
        match self.next {
            Next::Prefix(0) => return Ok(Vec::new()),
            Next::Tag(number) if number == Varint::default() => {}
            _ => return Err(Unreadable),
        }
        let kept = self.kept.encode_to_vec();
        let length = u32::try_from(kept.len()).map_err(|_| Unreadable)?;
        Ok([&[0], &length.to_be_bytes()[..], &kept].concat())
    }
}

/// A channel for ExecSync alone, which keeps little of the answers.
#[derive(Clone, Debug)]
pub(crate) struct Brief(pub Channel);

type Failed = Box<dyn std::error::Error + Send + Sync>;

impl Service<http::Request<Body>> for Brief {
    type Response = http::Response<Body>;
    type Error = Failed;
    type Future = BoxFuture<'static, Result<Self::Response, Failed>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        self.0.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let answer = self.0.call(request);
        async move {
            let (parts, mut body) = answer.await?.into_parts();
            let (mut arriving, mut trailers) = (Arriving::default(), None);
            let unreadable = |_| tonic::Status::internal("the answer to ExecSync cannot be read");
            while let Some(frame) = body.frame().await {
                match frame?.into_data() {
                    Ok(piece) => arriving.take(&piece).map_err(unreadable)?,
                    Err(frame) => trailers = frame.into_trailers().ok(),
                }
            }
            let message = arriving.message().map_err(unreadable)?;
            let message = Full::new(bytes::Bytes::from(message));
            let message = message.with_trailers(async move { trailers.map(Ok) });
            Ok(http::Response::from_parts(parts, Body::new(message)))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap();
        [&[0], &length.to_be_bytes()[..], message].concat()
    }

    fn answer(stdout: usize, stderr: usize, exit_code: i32) -> ExecSyncResponse {
        let bytes = |count: usize| (0..count).map(|n| (n % 251) as u8).collect();
        ExecSyncResponse { stdout: bytes(stdout), stderr: bytes(stderr), exit_code }
    }

    #[test]
    fn an_answer_is_cut_while_it_arrives_in_pieces_of_any_size() {
        let over = OUTPUT_KEPT_MAX + 1;
        for (stdout, stderr, code) in
            [(0, 0, 0), (3, 5, 1), (over, 2, -1), (100_000, 300_000, i32::MAX), (0, over, i32::MIN)]
        {
            let whole = answer(stdout, stderr, code);
            // A field that is not known, and one that comes twice.
            let unknown =
                [&[0x22, 3, 9, 9, 9, 0x28, 0x96, 1, 0x0a, 2, 7, 7][..], &whole.encode_to_vec()].concat();
            for (sent, what) in [(whole.encode_to_vec(), "plain"), (unknown, "unknown")] {
                for size in [1, 7, 4096, 1 << 20] {
                    let mut arriving = Arriving::default();
                    for piece in framed(&sent).chunks(size) {
                        arriving.take(piece).unwrap();
                        assert!(
                            arriving.kept.stdout.len() + arriving.kept.stderr.len() <= 2 * OUTPUT_KEPT_MAX
                        );
                    }
                    let kept = arriving.message().unwrap();
                    let read = ExecSyncResponse::decode(&kept[PREFIX_BYTES..]).unwrap();
                    let mut expected = cut(whole.clone());
                    if what == "unknown" && stdout == 0 {
                        expected.stdout = vec![7, 7];
                    }
                    assert_eq!(read, expected, "{what} {size}");
                    assert_eq!(framed(&kept[PREFIX_BYTES..]), kept);
                }
            }
        }
    }

    #[test]
    fn no_answer_and_a_broken_one_are_told_apart() {
        assert_eq!(Arriving::default().message(), Ok(Vec::new()));
        let mut arriving = Arriving::default();
        arriving.take(&framed(&answer(5, 0, 0).encode_to_vec())[..8]).unwrap();
        assert_eq!(arriving.message(), Err(Unreadable));
        assert_eq!(Arriving::default().take(&[1]), Err(Unreadable), "compressed");
        assert_eq!(Arriving::default().take(&framed(&[0xff; 12])), Err(Unreadable));
    }
}
