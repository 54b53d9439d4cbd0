//! WebSockets as a server speaks them (RFC 6455). No message is held as a whole: its bytes are passed on as they come.

use std::io;

use axum::http::header::{SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE};
use axum::http::{HeaderMap, Method};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The most bytes that are read, and written in a frame, at once.
pub const CHUNK_BYTES: usize = 8 * 1024;
/// The most bytes of the body of a frame that controls the connection (RFC 6455, 5.5).
const CONTROL_BYTES_MAX: u64 = 125;
/// What RFC 6455 (1.3) puts behind the caller's key.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const FINAL: u8 = 0x80;

/// The reasons for which a server closes a WebSocket (RFC 6455, 7.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Everything was said.
    Done = 1000,
    /// The caller broke the protocol.
    Violation = 1002,
}

/// What a caller's request to speak over a WebSocket says.
#[derive(Debug, PartialEq, Eq)]
pub struct Handshake {
    /// The answer to the caller's key.
    pub accept: String,
    /// The protocols that the caller offers, the dearest first.
    pub offered: Vec<String>,
}

impl Handshake {
    /// Reads a request.
    ///
    /// # Errors
    /// The text of a refusal.
    pub fn of(method: &Method, headers: &HeaderMap) -> Result<Self, &'static str> {
        if method != Method::GET {
            return Err("a WebSocket is opened with GET");
        }
        if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
            return Err("Sec-WebSocket-Version must be 13");
        }
        let key = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok()).map(str::trim);
        let key = key.filter(|key| STANDARD.decode(key).is_ok_and(|key| key.len() == 16));
        let key = key.ok_or("Sec-WebSocket-Key must be 16 bytes in base64")?;
        Ok(Self { accept: accept(key), offered: offered(headers).map(str::to_owned).collect() })
    }
}

/// Whether a request for a WebSocket offers such a protocol.
pub fn offers(headers: &HeaderMap, is_it: impl Fn(&str) -> bool) -> bool {
    headers.get(UPGRADE).is_some_and(|upgrade| upgrade.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && offered(headers).any(is_it)
}

/// The WebSocket protocols that a request offers.
fn offered(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|one| !one.is_empty())
}

fn accept(key: &str) -> String {
    // RFC 6455 demands SHA-1: it shows that the server speaks WebSockets, and keeps no secret.
    let algorithm = &ring::digest::SHA1_FOR_LEGACY_USE_ONLY;
    STANDARD.encode(ring::digest::digest(algorithm, format!("{key}{GUID}").as_bytes()))
}

fn violation(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// What comes next from a caller.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of a message: so many of them are at the start of the buffer.
    Bytes {
        /// How many.
        len: usize,
        /// They are its last ones.
        ends: bool,
    },
    /// The caller asks for these bytes back.
    Ping(Vec<u8>),
    /// The caller closes the WebSocket.
    Close,
}

/// Reads a caller's frames.
#[derive(Debug)]
pub struct Frames<R> {
    stream: R,
    takes_text: bool,
    /// How many bytes of the present frame are to come.
    left: u64,
    mask: [u8; 4],
    /// At which byte of the mask the next byte of the frame is.
    at: usize,
    /// The present frame is the last one of its message.
    is_final: bool,
    in_message: bool,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    /// Reads from a stream. Messages of text are a violation unless they are taken, as bytes.
    pub fn new(stream: R, takes_text: bool) -> Self {
        Self { stream, takes_text, left: 0, mask: [0; 4], at: 0, is_final: true, in_message: false }
    }

    /// What comes next; its bytes are put into `buffer`, which has room for some.
    ///
    /// # Errors
    /// The stream's error, `UnexpectedEof` if it ends, or `InvalidData` for what breaks the protocol.
    pub async fn next(&mut self, buffer: &mut [u8]) -> io::Result<Piece> {
        loop {
            if self.left > 0 {
                return self.bytes(buffer).await;
            }
            let mut head = [0; 2];
            self.stream.read_exact(&mut head).await?;
            let [first, second] = head;
            if first & 0x70 != 0 {
                return Err(violation("a frame has reserved bits"));
            }
            if second & 0x80 == 0 {
                return Err(violation("a frame is not masked"));
            }
            let len = match second & 0x7f {
                126 => u64::from(self.stream.read_u16().await?),
                127 => self.stream.read_u64().await?,
                len => u64::from(len),
            };
            self.stream.read_exact(&mut self.mask).await?;
            self.at = 0;
            let (opcode, is_final) = (first & 0x0f, first & FINAL != 0);
            match opcode {
                CONTINUATION | TEXT | BINARY => {
                    self.data_frame(opcode, is_final, len)?;
                    if len == 0 {
                        return Ok(self.piece(0));
                    }
                }
                CLOSE | PING | PONG => match self.control_frame(opcode, is_final, len).await? {
                    Some(piece) => return Ok(piece),
                    None => continue,
                },
                _ => return Err(violation("a frame is of no known kind")),
            }
        }
    }

    fn data_frame(&mut self, opcode: u8, is_final: bool, len: u64) -> io::Result<()> {
        if (opcode == CONTINUATION) != self.in_message {
            return Err(violation("a frame is not of the message before it"));
        }
        if opcode == TEXT && !self.takes_text {
            return Err(violation("a message is text"));
        }
        if len > i64::MAX.unsigned_abs() {
            return Err(violation("a frame is longer than frames can be"));
        }
        (self.in_message, self.is_final, self.left) = (!is_final, is_final, len);
        Ok(())
    }

    async fn control_frame(&mut self, opcode: u8, is_final: bool, len: u64) -> io::Result<Option<Piece>> {
        if !is_final || len > CONTROL_BYTES_MAX {
            return Err(violation("a frame that controls is long, or in parts"));
        }
        let mut body = vec![0; usize::try_from(len).unwrap_or(0)];
        self.stream.read_exact(&mut body).await?;
        self.unmask(&mut body);
        Ok(match opcode {
            PING => Some(Piece::Ping(body)),
            CLOSE => Some(Piece::Close),
            _ => None,
        })
    }

    async fn bytes(&mut self, buffer: &mut [u8]) -> io::Result<Piece> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.stream.read(&mut buffer[..most]).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.unmask(&mut buffer[..read]);
        self.left -= read as u64;
        Ok(self.piece(read))
    }

    fn piece(&self, len: usize) -> Piece {
        Piece::Bytes { len, ends: self.is_final && self.left == 0 }
    }

    fn unmask(&mut self, bytes: &mut [u8]) {
        for byte in bytes.iter_mut() {
            *byte ^= self.mask[self.at];
            self.at = (self.at + 1) % 4;
        }
    }

    /// Reads to the end of the stream, whatever comes.
    pub async fn drain(&mut self, buffer: &mut [u8]) {
        while self.stream.read(buffer).await.is_ok_and(|read| read > 0) {}
    }
}

/// Writes frames to a caller.
#[derive(Debug)]
pub struct Sink<W> {
    stream: W,
    /// The bytes of the present frame.
    frame: Vec<u8>,
    /// Every frame that was begun was written to its end.
    is_whole: bool,
}

impl<W: AsyncWrite + Unpin> Sink<W> {
    /// Writes to a stream.
    pub fn new(stream: W) -> Self {
        Self { stream, frame: Vec::new(), is_whole: true }
    }

    /// Writes a message of these bytes, those of `head` first.
    ///
    /// # Errors
    /// The stream's error.
    pub async fn message(&mut self, head: &[u8], body: &[u8]) -> io::Result<()> {
        self.write(BINARY, head, body).await
    }

    /// Answers a ping.
    ///
    /// # Errors
    /// The stream's error.
    pub async fn pong(&mut self, body: &[u8]) -> io::Result<()> {
        self.write(PONG, &[], body).await
    }

    /// Closes the WebSocket and this side of its stream.
    ///
    /// # Errors
    /// The stream's error.
    pub async fn close(&mut self, reason: Reason) -> io::Result<()> {
        if self.is_whole {
            self.write(CLOSE, &(reason as u16).to_be_bytes(), &[]).await?;
        }
        self.stream.shutdown().await
    }

    async fn write(&mut self, opcode: u8, head: &[u8], body: &[u8]) -> io::Result<()> {
        let len = head.len() + body.len();
        self.frame.clear();
        self.frame.push(FINAL | opcode);
        match (u8::try_from(len), u16::try_from(len)) {
            (Ok(len @ ..126), _) => self.frame.push(len),
            (_, Ok(len)) => {
                self.frame.push(126);
                self.frame.extend_from_slice(&len.to_be_bytes());
            }
            _ => {
                self.frame.push(127);
                self.frame.extend_from_slice(&(len as u64).to_be_bytes());
            }
        }
        self.frame.extend_from_slice(head);
        self.frame.extend_from_slice(body);
        self.is_whole = false;
        self.stream.write_all(&self.frame).await?;
        self.stream.flush().await?;
        self.is_whole = true;
        Ok(())
    }
}

/// A caller's frame with these bytes, masked; they are at most 65535.
#[cfg(test)]
pub fn masked(first: u8, body: &[u8]) -> Vec<u8> {
    let mask = [1, 2, 3, 4];
    let mut frame = vec![first];
    match (u8::try_from(body.len()), u16::try_from(body.len())) {
        (Ok(len @ ..126), _) => frame.push(0x80 | len),
        (_, len) => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&len.expect("a short body").to_be_bytes());
        }
    }
    frame.extend_from_slice(&mask);
    frame.extend(body.iter().zip(mask.into_iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_handshake_is_answered_as_the_rfc_says() {
        let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let version = ("sec-websocket-version", "13");
        let (one, two) =
            (("sec-websocket-protocol", "a , b"), ("sec-websocket-protocol", "SPDY/3.1+portforward.k8s.io"));
        let asked = Handshake::of(&Method::GET, &headers(&[key, version, one, two])).unwrap();
        assert_eq!(asked.accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(asked.offered, ["a", "b", "SPDY/3.1+portforward.k8s.io"]);
        assert!(Handshake::of(&Method::POST, &headers(&[key, version])).is_err());
        assert!(Handshake::of(&Method::GET, &headers(&[key])).is_err());
        assert!(Handshake::of(&Method::GET, &headers(&[key, ("sec-websocket-version", "8")])).is_err());
        for wrong in ["", "x", "dGhlIHNhbXBsZQ=="] {
            let headers = headers(&[("sec-websocket-key", wrong), version]);
            assert!(Handshake::of(&Method::GET, &headers).is_err(), "{wrong}");
        }
    }

    /// All pieces of these bytes, and the error after them.
    async fn read(bytes: &[u8], room: usize) -> (Vec<(Vec<u8>, bool)>, Vec<Piece>, io::ErrorKind) {
        let mut frames = Frames::new(bytes, false);
        let (mut data, mut others, mut buffer) = (Vec::new(), Vec::new(), vec![0; room]);
        loop {
            match frames.next(&mut buffer).await {
                Ok(Piece::Bytes { len, ends }) => data.push((buffer[..len].to_vec(), ends)),
                Ok(other) => others.push(other),
                Err(error) => return (data, others, error.kind()),
            }
        }
    }

    #[tokio::test]
    async fn messages_come_in_pieces_of_any_size() {
        let bytes = [
            masked(FINAL | BINARY, b"hello"),
            masked(BINARY, b""),
            masked(FINAL | PING, b"are you there"),
            masked(CONTINUATION, b"ab"),
            masked(FINAL | PONG, b""),
            masked(FINAL | CONTINUATION, b"c"),
            masked(FINAL | BINARY, &[7; 300]),
            masked(FINAL | CLOSE, &1000_u16.to_be_bytes()),
        ]
        .concat();
        for room in [2, 5, 4096] {
            let (data, others, end) = read(&bytes, room).await;
            let all: Vec<u8> = data.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
            assert_eq!(all, [b"helloabc".to_vec(), vec![7; 300]].concat(), "{room}");
            assert_eq!(data.iter().filter(|(_, ends)| *ends).count(), 3, "{room}");
            assert_eq!(others, [Piece::Ping(b"are you there".to_vec()), Piece::Close]);
            assert_eq!(end, io::ErrorKind::UnexpectedEof);
        }
        let (data, ..) = read(&bytes, 5).await;
        assert_eq!(data[0], (b"hello".to_vec(), true));
        assert_eq!(data[1], (Vec::new(), false));
        assert_eq!(data[3], (b"c".to_vec(), true));
    }

    #[tokio::test]
    async fn what_breaks_the_protocol_is_refused_before_it_is_read() {
        let mut endless = vec![FINAL | BINARY, 0xff];
        endless.extend_from_slice(&u64::MAX.to_be_bytes());
        endless.extend_from_slice(&[0; 4]);
        let hostile: [(&str, Vec<u8>); 8] = [
            ("not masked", vec![FINAL | BINARY, 1, b'x']),
            ("reserved bits", masked(0xc0 | BINARY, b"x")),
            ("no known kind", masked(FINAL | 3, b"x")),
            ("continues nothing", masked(FINAL | CONTINUATION, b"x")),
            ("another message within", [masked(BINARY, b"x"), masked(FINAL | BINARY, b"x")].concat()),
            ("a long ping", masked(FINAL | PING, &[0; 126])),
            ("a ping in parts", masked(PING, b"")),
            ("endless", endless),
        ];
        for (what, bytes) in hostile {
            assert_eq!(read(&bytes, 64).await.2, io::ErrorKind::InvalidData, "{what}");
        }
        assert_eq!(read(&masked(FINAL | TEXT, b"x"), 64).await.2, io::ErrorKind::InvalidData);
        let text = masked(FINAL | TEXT, b"x");
        let mut taking = Frames::new(&text[..], true);
        let piece = taking.next(&mut [0; 8]).await.unwrap();
        assert_eq!(piece, Piece::Bytes { len: 1, ends: true });
    }

    #[tokio::test]
    async fn frames_say_their_length() {
        let written = async |len: usize| {
            let mut sink = Sink::new(Vec::new());
            sink.message(&[9], &vec![0; len]).await.unwrap();
            sink.stream
        };
        assert_eq!(written(0).await, [0x82, 1, 9]);
        assert_eq!(written(124).await[..2], [0x82, 125]);
        assert_eq!(written(125).await[..4], [0x82, 126, 0, 126]);
        assert_eq!(written(70_000).await[..10], [0x82, 127, 0, 0, 0, 0, 0, 1, 0x11, 0x71]);
        let mut sink = Sink::new(Vec::new());
        sink.pong(b"x").await.unwrap();
        sink.close(Reason::Violation).await.unwrap();
        assert_eq!(sink.stream, [0x8a, 1, b'x', 0x88, 2, 3, 0xea]);
    }
}
