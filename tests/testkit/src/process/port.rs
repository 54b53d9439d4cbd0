//! A port of the kubelet on the loopback address, asked over HTTP/1.0: one request, one connection.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

/// How long one request may take to connect, and each read of its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longer answers are cut; the kubelet gives none.
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// An HTTP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port(pub SocketAddr);

/// An HTTP answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body as text.
    pub body: String,
}

impl Port {
    /// A port on 127.0.0.1.
    pub fn local(number: u16) -> Self {
        Self(SocketAddr::from((Ipv4Addr::LOCALHOST, number)))
    }

    /// Gets `path`, whatever the status of the answer.
    ///
    /// # Errors
    /// For people: no server listens, or the answer is not HTTP.
    pub fn get(&self, path: &str) -> Result<Answer, String> {
        let failed = |error: std::io::Error| format!("GET {}{path}: {error}", self.0);
        let mut stream = TcpStream::connect_timeout(&self.0, PATIENCE).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.0);
        stream.write_all(request.as_bytes()).map_err(failed)?;
        let mut bytes = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
        parse(&String::from_utf8_lossy(&bytes)).ok_or_else(|| format!("GET {}{path}: no HTTP answer", self.0))
    }

    /// Gets the body of an answer 200.
    ///
    /// # Errors
    /// As [`Port::get`], and any other status with its body.
    pub fn text(&self, path: &str) -> Result<String, String> {
        match self.get(path)? {
            Answer { status: 200, body } => Ok(body),
            Answer { status, body } => Err(format!("GET {}{path}: {status}: {body}", self.0)),
        }
    }

    /// Gets JSON.
    ///
    /// # Errors
    /// As [`Port::text`], and text that is no JSON.
    pub fn json(&self, path: &str) -> Result<serde_json::Value, String> {
        let text = self.text(path)?;
        serde_json::from_str(&text).map_err(|error| format!("GET {}{path}: {error} in {text}", self.0))
    }
}

fn parse(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.lines().next()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, body: body.to_owned() })
}

/// Ports that tests listen on: below the kernel's range for outgoing connections, so that no connection of another
/// process takes one before the test's server does.
const FIRST_PORT: u16 = 12_000;
const LAST_PORT: u16 = 31_999;

/// The most ports that one process holds; the oldest are given back.
const HELD_MAX: usize = 512;

/// So many different ports that no process has, on any address. Each is held from its choice on, for a server of the caller:
/// the server may listen beside the holder, as often as it is started anew, and no other caller is given its port. No port is
/// chosen twice before all have been, and suites that run at once begin at different places.
///
/// # Panics
/// The machine has none.
pub fn free_ports<const N: usize>() -> [u16; N] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static HELD: Mutex<VecDeque<OwnedFd>> = Mutex::new(VecDeque::new());
    let count = u32::from(LAST_PORT - FIRST_PORT) + 1;
    // Process IDs are consecutive: a stride keeps their ranges apart.
    let begin = std::process::id().wrapping_mul(617) % count;
    let mut tries = 0..count;
    [(); N].map(|()| {
        let free = tries.find_map(|_| {
            let offset = (begin + NEXT.fetch_add(1, Ordering::Relaxed)) % count;
            let port = FIRST_PORT + u16::try_from(offset).expect("less than the number of ports");
            hold(port).ok().map(|socket| (port, socket))
        });
        let (port, socket) = free.expect("a free port");
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        held.push_back(socket);
        if held.len() > HELD_MAX {
            held.pop_front();
        }
        port
    })
}

/// Binds a socket that never listens. It can be bound only where no other is, since it does not reuse; a server that reuses,
/// as they all do, may then bind and listen beside it, since it does now.
fn hold(port: u16) -> rustix::io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))?;
    set_socket_reuseaddr(&socket, true)?;
    Ok(socket)
}

/// The bytes read until they are `enough`, the stream ends, or nothing comes any more.
pub fn heard(stream: &mut impl Read, enough: impl Fn(&str) -> bool) -> String {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    while !enough(&text(&bytes)) {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => break,
            Ok(count) => bytes.extend_from_slice(&part[..count]),
        }
    }
    text(&bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    use super::*;

    fn answering(answer: &'static str) -> (Port, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = Port(listener.local_addr().unwrap());
        let asked = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            // The whole request: a connection closed with bytes unread is reset, and the answer lost with it.
            let request: Vec<String> = BufReader::new(&stream)
                .lines()
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            (&stream).write_all(answer.as_bytes()).unwrap();
            request.join("\r\n") + "\r\n"
        });
        (port, asked)
    }

    #[test]
    fn json_comes_from_an_answer_that_is_well() {
        let (port, asked) = answering("HTTP/1.0 200 OK\r\nA: b\r\n\r\n{\"a\": 1}");
        assert_eq!(port.json("/pods").unwrap(), serde_json::json!({"a": 1}));
        assert!(asked.join().unwrap().starts_with("GET /pods HTTP/1.0\r\n"));
    }

    #[test]
    fn another_status_is_an_error_with_the_body() {
        let (port, _asked) = answering("HTTP/1.1 503 Nope\r\n\r\nPodManager: lost");
        let error = port.text("/pods").unwrap_err();
        assert!(error.ends_with("/pods: 503: PodManager: lost"), "{error}");
    }

    #[test]
    fn free_ports_differ_and_are_held_for_a_server() {
        let [one, other] = free_ports();
        assert_ne!(one, other);
        assert!(Port::local(one).get("/").is_err());
        for address in [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED] {
            assert_eq!(hold(one).map(drop), Err(rustix::io::Errno::ADDRINUSE), "nobody else is given it");
            let server = TcpListener::bind((address, one)).expect("a server may listen beside the holder");
            assert!(TcpListener::bind((address, one)).is_err(), "but only one");
            assert_eq!(hold(one).map(drop), Err(rustix::io::Errno::ADDRINUSE), "a server has it");
            drop(server);
        }
    }
}
