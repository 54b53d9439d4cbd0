//! Frames of clients, and of the runtime's streaming server.

use std::io;

use bridge_serve::spdy::{Head, control_of, next_head};
use bridge_serve::websocket::{Frames, Piece};
use futures::FutureExt;

/// What was read of frames: the bytes of messages, how many of these ended, what else there was, and the error at the end.
type Read = (Vec<u8>, usize, Vec<Piece>, io::ErrorKind);

fn read(bytes: &[u8], room: usize) -> Read {
    let mut frames = Frames::new(bytes, true);
    let (mut data, mut ends, mut others, mut buffer) = (Vec::new(), 0, Vec::new(), vec![0; room]);
    loop {
        match frames.next(&mut buffer).now_or_never().expect("bytes that are there are not waited for") {
            Ok(Piece::Bytes { len, ends: is_last }) => {
                data.extend_from_slice(&buffer[..len]);
                ends += usize::from(is_last);
            }
            Ok(other) => others.push(other),
            Err(error) => return (data, ends, others, error.kind()),
        }
    }
}

/// Frames of a WebSocket: they mean the same in pieces of any size.
pub fn websocket_frames(bytes: &[u8]) {
    let whole = read(bytes, 64 * 1024);
    assert!(whole.0.len() <= bytes.len());
    for room in [1, 7] {
        assert_eq!(read(bytes, room), whole, "{room}");
    }
}

/// Frames of SPDY.
pub fn spdy_frames(bytes: &[u8]) {
    let mut from = bytes;
    while let Some(Ok(Some(head))) = next_head(&mut from).now_or_never() {
        match head {
            Head::Data { len, .. } => from = &from[len.min(from.len())..],
            Head::Control { kind, ends, len } => {
                let control = control_of(&mut from, kind, ends, len).now_or_never();
                if control.expect("bytes that are there are not waited for").is_err() {
                    break;
                }
            }
        }
    }
}
