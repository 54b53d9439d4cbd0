use std::time::Duration;

use tokio::io::{DuplexStream, duplex};

use super::*;
use crate::websocket::masked;

const ALL: Channels = Channels { stdin: true, stdout: true, stderr: true, tty: false };
const BYE: [u8; 4] = [0x88, 2, 0x03, 0xe8];

/// Reads the frames that open these streams.
async fn opened(runtime: &mut DuplexStream, names: &[&str]) {
    for (name, number) in names.iter().zip((1..).step_by(2)) {
        let expected = spdy::opening(number, number == 1, "streamtype", name);
        let mut frame = vec![0; expected.len()];
        runtime.read_exact(&mut frame).await.unwrap();
        assert_eq!(frame, expected, "{name}");
    }
}

async fn say(runtime: &mut DuplexStream, stream: u32, ends: bool, bytes: &[u8]) {
    runtime.write_all(&spdy::data_head(stream, ends, bytes.len())).await.unwrap();
    runtime.write_all(bytes).await.unwrap();
}

/// The server's next frame with a stream's bytes: the stream, whether it ends, and the bytes.
async fn told(runtime: &mut DuplexStream) -> (u32, bool, Vec<u8>) {
    let Some(Head::Data { stream, ends, len }) = spdy::next_head(runtime).await.unwrap() else {
        panic!("a frame with bytes")
    };
    let mut bytes = vec![0; len];
    runtime.read_exact(&mut bytes).await.unwrap();
    (stream, ends, bytes)
}

/// The next message of the server: its first byte names the channel.
async fn heard(caller: &mut DuplexStream) -> Vec<u8> {
    let mut head = [0; 2];
    caller.read_exact(&mut head).await.unwrap();
    assert_eq!(head[0], 0x82, "a whole message");
    let len = match head[1] {
        126 => usize::from(caller.read_u16().await.unwrap()),
        len => usize::from(len),
    };
    let mut message = vec![0; len];
    caller.read_exact(&mut message).await.unwrap();
    message
}

fn message(channel: u8, bytes: &[u8]) -> Vec<u8> {
    masked(0x82, &[&[channel][..], bytes].concat())
}

/// Everything up to the end of the connection.
async fn rest(caller: &mut DuplexStream) -> Vec<u8> {
    let mut rest = Vec::new();
    caller.read_to_end(&mut rest).await.unwrap();
    rest
}

fn joined() -> (DuplexStream, DuplexStream, DuplexStream, DuplexStream) {
    let ((caller, ours), (theirs, runtime)) = (duplex(64 * 1024), duplex(64 * 1024));
    (caller, ours, theirs, runtime)
}

#[tokio::test]
async fn input_and_its_end_go_to_the_runtime_and_output_and_status_come_back() {
    let (mut caller, ours, theirs, mut runtime) = joined();
    let conversation = async {
        opened(&mut runtime, &["error", "stdin", "stdout", "stderr"]).await;
        assert_eq!(heard(&mut caller).await, [STDOUT], "the caller is connected");
        caller.write_all(&message(STDIN, b"in")).await.unwrap();
        assert_eq!(told(&mut runtime).await, (3, false, b"in".to_vec()));
        // A message in parts, of which the first has no byte.
        caller.write_all(&masked(0x02, b"")).await.unwrap();
        caller.write_all(&masked(0x00, &[STDIN])).await.unwrap();
        caller.write_all(&masked(0x89, b"?")).await.unwrap();
        caller.write_all(&masked(0x80, b"put")).await.unwrap();
        assert_eq!(told(&mut runtime).await, (3, false, b"put".to_vec()));
        let mut pong = [0; 3];
        caller.read_exact(&mut pong).await.unwrap();
        assert_eq!(pong, [0x8a, 1, b'?']);
        caller.write_all(&message(END, &[STDIN])).await.unwrap();
        assert_eq!(told(&mut runtime).await, (3, true, Vec::new()), "the end of input alone");
        // What is said on other channels, or after the end, goes nowhere.
        for channel in [STDOUT, STDERR, STATUS, RESIZE, 9, STDIN] {
            caller.write_all(&message(channel, b"x")).await.unwrap();
        }
        say(&mut runtime, 5, false, b"out").await;
        say(&mut runtime, 7, true, b"err").await;
        say(&mut runtime, 99, true, b"no such stream").await;
        assert_eq!(heard(&mut caller).await, b"\x01out");
        assert_eq!(heard(&mut caller).await, b"\x02err");
        say(&mut runtime, 5, true, b"").await;
        say(&mut runtime, 1, true, br#"{"status":"Failure"}"#).await;
        assert_eq!(heard(&mut caller).await, b"\x03{\"status\":\"Failure\"}");
        assert_eq!(rest(&mut caller).await, BYE);
        drop(caller);
    };
    let (ended, ()) = tokio::join!(talk(ours, theirs, ALL), conversation);
    ended.unwrap();
    assert_eq!(rest(&mut runtime).await, b"", "nothing else was said to the runtime");
}

#[tokio::test]
async fn a_terminal_has_its_size() {
    let (mut caller, ours, theirs, mut runtime) = joined();
    let tty = Channels { stderr: false, tty: true, ..ALL };
    let conversation = async {
        opened(&mut runtime, &["error", "stdin", "stdout", "resize"]).await;
        caller.write_all(&message(RESIZE, br#"{"Width":80,"Height":24}"#)).await.unwrap();
        assert_eq!(told(&mut runtime).await, (7, false, br#"{"Width":80,"Height":24}"#.to_vec()));
        assert_eq!(heard(&mut caller).await, [STDOUT]);
        // Resets end streams, too, and a run that says nothing of its end was good.
        for stream in [1, 3, 5, 7] {
            let reset = [0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, stream, 0, 0, 0, 5];
            runtime.write_all(&reset).await.unwrap();
        }
        assert_eq!(heard(&mut caller).await, [&[STATUS][..], SUCCESS].concat());
        assert_eq!(rest(&mut caller).await, BYE);
        drop(caller);
    };
    let (ended, ()) = tokio::join!(talk(ours, theirs, tty), conversation);
    ended.unwrap();
}

#[tokio::test]
async fn a_runtime_that_breaks_off_is_told_as_a_failure() {
    for cut in [&b""[..], &[0, 0, 0], &[0, 0, 0, 5, 0, 0, 0, 9, b'x']] {
        let (mut caller, ours, theirs, mut runtime) = joined();
        let conversation = async {
            assert_eq!(heard(&mut caller).await, [STDOUT]);
            runtime.write_all(cut).await.unwrap();
            drop(runtime);
            let mut status = heard(&mut caller).await;
            if status == b"\x01x" {
                status = heard(&mut caller).await;
            }
            assert_eq!(status, [&[STATUS][..], CUT_OFF].concat());
            assert_eq!(rest(&mut caller).await, BYE);
            drop(caller);
        };
        let (ended, ()) = tokio::join!(talk(ours, theirs, ALL), conversation);
        ended.unwrap();
    }
}

#[tokio::test]
async fn a_caller_that_goes_ends_the_stream_and_one_that_breaks_the_protocol_hears_so() {
    for (frame, is_closed, code) in [
        (masked(0x88, &[0x03, 0xe8]), true, 0xe8),
        (message(END, &[]), false, 0xea),
        (message(END, &[9]), false, 0xea),
        (message(END, &[0, 0]), false, 0xea),
        (message(END, &[END]), false, 0xea),
        (vec![0x82, 1, 0], false, 0xea),
    ] {
        let (mut caller, ours, theirs, runtime) = joined();
        let conversation = async {
            assert_eq!(heard(&mut caller).await, [STDOUT]);
            caller.write_all(&frame).await.unwrap();
            assert_eq!(rest(&mut caller).await, [0x88, 2, 0x03, code], "{frame:?}");
            drop(caller);
        };
        let (ended, ()) = tokio::join!(talk(ours, theirs, ALL), conversation);
        assert_eq!(ended.is_ok(), is_closed, "{frame:?}");
        drop(runtime);
    }
}

/// The process takes no input, and more pings come than can be answered.
#[tokio::test(start_paused = true)]
async fn output_goes_on_while_input_is_stuck() {
    let ((mut caller, ours), (theirs, mut runtime)) = (duplex(64 * 1024), duplex(1024));
    let conversation = async {
        opened(&mut runtime, &["error", "stdin", "stdout", "stderr"]).await;
        assert_eq!(heard(&mut caller).await, [STDOUT]);
        // The runtime reads none of these, and the connection to it is full.
        for _ in 0..8 {
            caller.write_all(&message(STDIN, &[7; 1000])).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        for number in (0..=255).step_by(2) {
            runtime.write_all(&spdy::pong(number)).await.unwrap();
        }
        say(&mut runtime, 3, true, b"").await;
        say(&mut runtime, 5, true, b"out").await;
        say(&mut runtime, 7, true, b"").await;
        assert_eq!(heard(&mut caller).await, b"\x01out");
        say(&mut runtime, 1, true, b"status").await;
        assert_eq!(heard(&mut caller).await, b"\x03status");
        assert_eq!(rest(&mut caller).await, BYE);
        drop(caller);
    };
    let (ended, ()) = tokio::join!(talk(ours, theirs, ALL), conversation);
    ended.unwrap();
}

#[tokio::test]
async fn pings_are_answered_and_the_runtimes_end_of_input_too() {
    let (mut caller, ours, theirs, mut runtime) = joined();
    let conversation = async {
        opened(&mut runtime, &["error", "stdin", "stdout", "stderr"]).await;
        runtime.write_all(&spdy::pong(2)).await.unwrap();
        let mut pong = [0; 12];
        runtime.read_exact(&mut pong).await.unwrap();
        assert_eq!(pong[..], spdy::pong(2)[..]);
        say(&mut runtime, 3, true, b"").await;
        assert_eq!(told(&mut runtime).await, (3, true, Vec::new()));
        caller.write_all(&masked(0x88, &[])).await.unwrap();
        assert_eq!(heard(&mut caller).await, [STDOUT]);
        assert_eq!(rest(&mut caller).await, BYE);
        drop(caller);
    };
    let (ended, ()) = tokio::join!(talk(ours, theirs, ALL), conversation);
    ended.unwrap();
}

/// The process ended with input under way: what it said before is not lost over that.
#[tokio::test(start_paused = true)]
async fn input_that_is_refused_takes_no_output_away() {
    let ((mut caller, ours), (theirs, mut runtime)) = (duplex(32), duplex(64 * 1024));
    let conversation = async {
        opened(&mut runtime, &["error", "stdin", "stdout", "stderr"]).await;
        say(&mut runtime, 5, true, &[b'o'; 100]).await;
        say(&mut runtime, 7, true, b"").await;
        say(&mut runtime, 1, true, b"status").await;
        drop(runtime);
        // The caller does not read yet, and the output waits for that.
        for _ in 0..3 {
            caller.write_all(&message(STDIN, b"x")).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(heard(&mut caller).await, [STDOUT]);
        assert_eq!(heard(&mut caller).await, [&[STDOUT][..], &[b'o'; 100]].concat());
        assert_eq!(heard(&mut caller).await, b"\x03status");
        assert_eq!(rest(&mut caller).await, BYE);
        drop(caller);
    };
    let (ended, ()) = tokio::join!(talk(ours, theirs, ALL), conversation);
    ended.unwrap();
}
