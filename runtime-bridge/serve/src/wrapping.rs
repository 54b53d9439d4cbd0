//! Port-forward for callers that speak SPDY inside a WebSocket: its messages are the bytes of a connection, which the
//! runtime's streaming server has without the WebSocket (row 21.4).

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, split};
use tokio::sync::Mutex;

use super::websocket::{CHUNK_BYTES, Frames, Piece, Reason, Sink};

/// What a caller puts before the name of a protocol that it speaks inside a WebSocket.
const PREFIX: &str = "SPDY/3.1+";
/// How all such protocols end.
const SUFFIX: &str = ".k8s.io";
/// How long a caller may take to hear that the WebSocket is closed.
const FAREWELL: Duration = Duration::from_secs(5);

/// The name of the protocol that is inside, if this is such a WebSocket protocol.
pub fn inner(protocol: &str) -> Option<&str> {
    protocol.strip_prefix(PREFIX).filter(|inner| inner.ends_with(SUFFIX))
}

/// The WebSocket protocol that has this one inside.
pub fn outer(protocol: &str) -> String {
    format!("{PREFIX}{protocol}")
}

/// Passes bytes on between the messages of a caller and the runtime's connection, until one of them ends. Nothing is kept
/// but what was just read.
///
/// # Errors
/// Either side's error, or what the caller sends breaks the protocol.
pub async fn talk<A, B>(caller: A, runtime: B) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (from_caller, to_caller) = split(caller);
    let (mut from_runtime, mut to_runtime) = split(runtime);
    let sink = Mutex::new(Sink::new(to_caller));
    let mut callers = Frames::new(BufReader::with_capacity(CHUNK_BYTES, from_caller), false);
    let ended = {
        let input = async {
            let (mut buffer, mut is_taken) = (vec![0; CHUNK_BYTES], true);
            loop {
                match callers.next(&mut buffer).await? {
                    // What the runtime does not take is forgotten: it may yet have something to say.
                    Piece::Bytes { len, .. } => {
                        is_taken = is_taken
                            && to_runtime.write_all(&buffer[..len]).await.is_ok()
                            && to_runtime.flush().await.is_ok();
                    }
                    Piece::Ping(body) => sink.lock().await.pong(&body).await?,
                    Piece::Close => return Ok::<(), io::Error>(()),
                }
            }
        };
        let output = async {
            let mut buffer = vec![0; CHUNK_BYTES];
            loop {
                match from_runtime.read(&mut buffer).await? {
                    0 => return Ok::<(), io::Error>(()),
                    len => sink.lock().await.message(&[], &buffer[..len]).await?,
                }
            }
        };
        tokio::select! {
            biased;
            done = output => done,
            done = input => done,
        }
    };
    farewell(ended, &mut sink.into_inner(), &mut callers).await
}

/// Closes the WebSocket and returns how the conversation `ended`. What the caller still sends is read for a moment:
/// a connection that is dropped with bytes unread takes away what the caller has not read yet.
pub async fn farewell<R, W>(
    ended: io::Result<()>,
    sink: &mut Sink<W>,
    callers: &mut Frames<R>,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let reason = match &ended {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Reason::Violation,
        _ => Reason::Done,
    };
    let parting = async {
        if sink.close(reason).await.is_ok() {
            callers.drain(&mut [0; 1024]).await;
        }
    };
    // A caller that does not listen goes without.
    let _ = tokio::time::timeout(FAREWELL, parting).await;
    ended
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;
    use crate::websocket::masked;

    #[test]
    fn a_protocol_of_kubernetes_may_be_inside() {
        assert_eq!(inner("SPDY/3.1+portforward.k8s.io"), Some("portforward.k8s.io"));
        assert_eq!(outer("portforward.k8s.io"), "SPDY/3.1+portforward.k8s.io");
        for other in ["portforward.k8s.io", "SPDY/3.1+portforward", "SPDY/3+a.k8s.io", "v5.channel.k8s.io"] {
            assert_eq!(inner(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn messages_are_bytes_of_the_connection() {
        let (mut caller, ours) = duplex(64);
        let (theirs, mut runtime) = duplex(64);
        let conversation = async {
            caller.write_all(&masked(0x02, b"he")).await.unwrap();
            caller.write_all(&masked(0x89, b"?")).await.unwrap();
            caller.write_all(&masked(0x80, b"llo")).await.unwrap();
            let mut heard = [0; 5];
            runtime.read_exact(&mut heard).await.unwrap();
            assert_eq!(&heard, b"hello");
            let mut pong = [0; 3];
            caller.read_exact(&mut pong).await.unwrap();
            assert_eq!(pong, [0x8a, 1, b'?']);
            runtime.write_all(b"bye").await.unwrap();
            drop(runtime);
            let mut rest = Vec::new();
            caller.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, [0x82, 3, b'b', b'y', b'e', 0x88, 2, 0x03, 0xe8]);
            drop(caller);
        };
        let (ended, ()) = tokio::join!(talk(ours, theirs), conversation);
        ended.unwrap();
    }

    #[tokio::test]
    async fn a_caller_that_closes_or_breaks_the_protocol_ends_the_connection() {
        for (frame, is_closed, code) in
            [(masked(0x88, &[3, 0xe8]), true, 0xe8), (masked(0x81, b"text"), false, 0xea)]
        {
            let (mut caller, ours) = duplex(64);
            let (theirs, mut runtime) = duplex(64);
            let conversation = async {
                caller.write_all(&frame).await.unwrap();
                let mut rest = Vec::new();
                caller.read_to_end(&mut rest).await.unwrap();
                assert_eq!(rest, [0x88, 2, 0x03, code]);
                drop(caller);
            };
            let (ended, ()) = tokio::join!(talk(ours, theirs), conversation);
            assert_eq!(ended.is_ok(), is_closed);
            let mut rest = Vec::new();
            runtime.read_to_end(&mut rest).await.unwrap();
            assert!(rest.is_empty());
        }
    }

    /// What one side does not take is not taken from the other side either.
    #[tokio::test(start_paused = true)]
    async fn a_slow_side_holds_up_the_other() {
        let (mut caller, ours) = duplex(1024);
        let (theirs, _runtime) = duplex(1024);
        let sending = async {
            let frame = masked(0x82, &[7; 1000]);
            let mut sent = 0;
            while caller.write_all(&frame).await.is_ok() {
                sent += 1;
                assert!(sent < 100, "the tunnel keeps what the runtime does not read");
            }
        };
        let stuck = async { tokio::join!(talk(ours, theirs), sending) };
        let waited = tokio::time::timeout(Duration::from_secs(60), stuck).await;
        assert!(waited.is_err(), "both wait");
    }
}
