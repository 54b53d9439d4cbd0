//! The part of SPDY/3.1 that a client of the runtime's streaming server needs: it opens streams, sends bytes, and reads
//! bytes and ends. Such servers know no flow control and open no streams, and what their headers say is not needed, so
//! nothing is ever decompressed.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The bit of a stream's last frame.
const FIN: u8 = 0x01;
/// The bit of a frame that controls, and the protocol's version.
const CONTROL: u16 = 0x8003;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
/// The start of headers in zlib's format, without a dictionary.
const ZLIB: [u8; 2] = [0x78, 0x01];
/// The empty block with which zlib makes a reader give out what came before.
const FLUSH: [u8; 5] = [0, 0, 0, 0xff, 0xff];

/// The start of a frame that the server sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// So many bytes of a stream follow.
    Data {
        /// The stream.
        stream: u32,
        /// They are its last ones.
        ends: bool,
        /// How many.
        len: usize,
    },
    /// A frame that controls, with so many bytes to come.
    Control {
        /// Its kind.
        kind: u16,
        /// It is the last frame of its stream.
        ends: bool,
        /// How many bytes.
        len: usize,
    },
}

/// What a frame that controls tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The server sends no more on this stream.
    Ended(u32),
    /// The server takes and sends no more on this stream.
    Reset(u32),
    /// The server asks for this number back.
    Ping(u32),
    /// Nothing that the client acts on.
    Other,
}

fn low_24_bits(len: usize) -> [u8; 3] {
    let [_, rest @ ..] = u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes();
    rest
}

fn control(kind: u16, len: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(8 + len);
    frame.extend_from_slice(&CONTROL.to_be_bytes());
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.push(0);
    frame.extend_from_slice(&low_24_bits(len));
    frame
}

/// The frame that opens a stream with one header. `is_first` says that no stream was opened before on the connection.
/// Name and value are short: a frame has at most 64 KiB of headers.
pub fn opening(stream: u32, is_first: bool, name: &str, value: &str) -> Vec<u8> {
    let mut headers = 1_u32.to_be_bytes().to_vec();
    for text in [name, value] {
        headers.extend_from_slice(&u32::try_from(text.len()).unwrap_or(0).to_be_bytes());
        headers.extend_from_slice(text.as_bytes());
    }
    let len = u16::try_from(headers.len()).unwrap_or(u16::MAX);
    let mut block = if is_first { ZLIB.to_vec() } else { Vec::new() };
    // A block of bytes as they are.
    block.push(0);
    block.extend_from_slice(&len.to_le_bytes());
    block.extend_from_slice(&(!len).to_le_bytes());
    block.extend_from_slice(&headers);
    block.extend_from_slice(&FLUSH);
    let mut frame = control(SYN_STREAM, 10 + block.len());
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(&[0; 6]);
    frame.extend_from_slice(&block);
    frame
}

/// The start of a frame with so many bytes of a stream, which `ends` with them.
pub fn data_head(stream: u32, ends: bool, len: usize) -> [u8; 8] {
    let [a, b, c, d] = stream.to_be_bytes();
    let [e, f, g] = low_24_bits(len);
    [a, b, c, d, if ends { FIN } else { 0 }, e, f, g]
}

/// The answer to a ping.
pub fn pong(number: u32) -> Vec<u8> {
    let mut frame = control(PING, 4);
    frame.extend_from_slice(&number.to_be_bytes());
    frame
}

/// The start of the next frame; `None` at the end of the connection.
///
/// # Errors
/// The stream's error, or its end within a frame.
pub async fn next_head(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Head>> {
    let mut head = [0; 8];
    let mut filled = 0;
    while filled < head.len() {
        match from.read(&mut head[filled..]).await? {
            0 if filled == 0 => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
    let [a, b, c, d, flags, e, f, g] = head;
    let (ends, len) = (flags & FIN != 0, u32::from_be_bytes([0, e, f, g]) as usize);
    Ok(Some(if a & 0x80 == 0 {
        Head::Data { stream: u32::from_be_bytes([a, b, c, d]), ends, len }
    } else {
        Head::Control { kind: u16::from_be_bytes([c, d]), ends, len }
    }))
}

/// Reads the rest of a frame that controls.
///
/// # Errors
/// The stream's error, or its end within the frame.
pub async fn control_of(
    from: &mut (impl AsyncRead + Unpin),
    kind: u16,
    ends: bool,
    len: usize,
) -> io::Result<Control> {
    let mut first = [0; 4];
    let has_number = len >= first.len();
    if has_number {
        from.read_exact(&mut first).await?;
    }
    let rest = if has_number { len - first.len() } else { len };
    skip(from, rest).await?;
    let number = u32::from_be_bytes(first);
    Ok(match kind {
        _ if !has_number => Control::Other,
        RST_STREAM => Control::Reset(number),
        SYN_REPLY if ends => Control::Ended(number),
        // The server's numbers are even, and an odd one would answer a ping of the client's.
        PING if number & 1 == 0 => Control::Ping(number),
        _ => Control::Other,
    })
}

/// Reads so many bytes, and forgets them.
async fn skip(from: &mut (impl AsyncRead + Unpin), len: usize) -> io::Result<()> {
    let skipped = tokio::io::copy(&mut from.take(len as u64), &mut tokio::io::sink()).await?;
    if skipped == len as u64 { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_opened_with_headers_that_need_no_dictionary() {
        let first = opening(1, true, "streamtype", "error");
        let mut headers = vec![0, 0, 0, 1, 0, 0, 0, 10];
        headers.extend_from_slice(b"streamtype");
        headers.extend_from_slice(&[0, 0, 0, 5]);
        headers.extend_from_slice(b"error");
        let length = u8::try_from(headers.len()).unwrap();
        let mut expected =
            vec![0x80, 3, 0, 1, 0, 0, 0, 10 + 2 + 5 + length + 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        expected.extend_from_slice(&[0x78, 0x01, 0, length, 0, !length, 0xff]);
        expected.extend_from_slice(&headers);
        expected.extend_from_slice(&FLUSH);
        assert_eq!(first, expected);
        assert_eq!(u16::from_be_bytes(ZLIB) % 31, 0, "as zlib checks it");
        let second = opening(3, false, "streamtype", "stdin");
        assert_eq!((second[11], &second[18..20]), (3, &[0, length][..]), "the format starts once");
    }

    #[tokio::test]
    async fn frames_of_the_server_are_read() {
        let mut bytes = data_head(5, true, 3).to_vec();
        bytes.extend_from_slice(b"abc");
        bytes.extend_from_slice(&pong(2));
        bytes.extend_from_slice(&[0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 5]);
        bytes.extend_from_slice(&[0x80, 3, 0, 2, 1, 0, 0, 6, 0, 0, 0, 1, 9, 9]);
        bytes.extend_from_slice(&[0x80, 3, 0, 7, 0, 0, 0, 2, 9, 9]);
        let mut from = &bytes[..];
        let data = next_head(&mut from).await.unwrap();
        assert_eq!(data, Some(Head::Data { stream: 5, ends: true, len: 3 }));
        skip(&mut from, 3).await.unwrap();
        for expected in [Control::Ping(2), Control::Reset(5), Control::Ended(1), Control::Other] {
            let Some(Head::Control { kind, ends, len }) = next_head(&mut from).await.unwrap() else {
                panic!("a frame that controls")
            };
            assert_eq!(control_of(&mut from, kind, ends, len).await.unwrap(), expected);
        }
        assert_eq!(next_head(&mut from).await.unwrap(), None);
        assert!(next_head(&mut &bytes[..7]).await.is_err(), "an end within a frame");
        assert!(control_of(&mut &bytes[..7], PING, false, 8).await.is_err());
    }
}
