//! A registry that misbehaves: it stands between the runtime and a real one, and misbehaves for each repository as
//! ordered.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use testkit::process::eventually;

use super::http::{self, Head};
use crate::node::SOON;

/// Period of looks of threads that wait here.
const PERIOD: Duration = Duration::from_millis(20);
/// The first byte of a client that wants TLS.
const TLS_HANDSHAKE: u8 = 0x16;
/// Bytes that a slow registry sends at once.
const FIRST: usize = 4096;

/// How it answers requests for blobs or, with `Status`, for anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Sends a byte now and then.
    Slow,
    /// Answers with this status, and no content.
    Status(u16),
    /// Tells a content length that is too large, and closes the connection at the end of the content.
    LongLength,
    /// Sends half of the content as if that were all; the rest cannot be had.
    ShortLength,
    /// Closes the connection in the middle of a layer, and every later one for the rest of the layer.
    GoesAway,
}

#[derive(Default)]
struct State {
    moods: BTreeMap<String, Mood>,
    ends: bool,
    slow: usize,
    blobs: BTreeMap<String, usize>,
}

/// The misbehaving registry. Dropping it closes its port.
pub struct Nasty {
    pub port: u16,
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Nasty {
    /// Listens on `port`, and passes requests on to the registry at `real`.
    pub fn start(port: u16, real: u16) -> Self {
        // Another process' connection may have the port as its own end for a moment.
        let listener = eventually("the port is free", SOON, || {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| error.to_string())
        });
        listener.set_nonblocking(true).expect("sockets can be so");
        let port = listener.local_addr().expect("it is bound").port();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let thread = thread::spawn(move || accept(&listener, real, &shared));
        Self { port, state, thread: Some(thread) }
    }

    /// Serves a repository in this mood from now on; connections that are slowed down notice.
    pub fn be(&self, repository: &str, mood: Mood) {
        lock(&self.state).moods.insert(repository.to_owned(), mood);
    }

    /// Serves everything well from now on.
    pub fn be_good(&self) {
        lock(&self.state).moods.clear();
    }

    /// The number of blobs that are being sent slowly.
    pub fn slow(&self) -> usize {
        lock(&self.state).slow
    }

    /// The number of requests for a blob.
    pub fn asked_for(&self, digest: &str) -> usize {
        lock(&self.state).blobs.get(digest).copied().unwrap_or(0)
    }
}

impl Drop for Nasty {
    fn drop(&mut self) {
        lock(&self.state).ends = true;
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, real: u16, state: &Arc<Mutex<State>>) {
    let mut serving: Vec<JoinHandle<()>> = Vec::new();
    while !lock(state).ends {
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(PERIOD);
            continue;
        };
        let state = Arc::clone(state);
        serving.retain(|thread| !thread.is_finished());
        serving.push(thread::spawn(move || {
            // The client may have closed the connection: that is no failure of the registry.
            let _gone = serve(&stream, real, &state);
            let _closed = stream.shutdown(Shutdown::Both);
        }));
    }
    for thread in serving {
        let _panicked = thread.join();
    }
}

fn serve(stream: &TcpStream, real: u16, state: &Mutex<State>) -> Result<(), String> {
    stream.set_nonblocking(false).map_err(text)?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(text)?;
    stream.set_write_timeout(Some(Duration::from_secs(30))).map_err(text)?;
    let mut to = stream;
    let mut first = [0];
    if stream.peek(&mut first).map_err(text)? == 1 && first[0] == TLS_HANDSHAKE {
        // containerd 2 tries https first, and http after this answer.
        let mut hello = [0; 16 * 1024];
        let _hello = to.read(&mut hello).map_err(text)?;
        return to.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").map_err(text);
    }
    let asked = Head::read(&mut BufReader::new(stream))?;
    let mut words = asked.first.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let blob = target.split_once("/blobs/").map(|(_, digest)| digest.to_owned());
    let repository = target.strip_prefix("/v2/").and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let mood = {
        let mut state = lock(state);
        if let Some(digest) = blob.as_ref().filter(|_| method == "GET") {
            *state.blobs.entry(digest.clone()).or_default() += 1;
        }
        state.moods.get(repository).copied()
    };
    if let Some(Mood::Status(status)) = mood {
        let answer = format!("HTTP/1.1 {status} Nasty\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        return to.write_all(answer.as_bytes()).map_err(text);
    }
    let passed = ["accept", "authorization", "range"];
    let fields: Vec<(&str, String)> =
        passed.iter().filter_map(|name| Some((*name, asked.field(name)?.to_owned()))).collect();
    let mut answer = http::begin(real, method, target, &fields, b"").map_err(text)?;
    let mut head = Head::read(&mut answer)?;
    head.first = head.first.replacen("HTTP/1.0", "HTTP/1.1", 1);
    head.fields.retain(|(name, _)| name != "connection");
    head.fields.push(("connection".to_owned(), "close".to_owned()));
    let mut body = Vec::new();
    answer.read_to_end(&mut body).map_err(text)?;
    let (method, of_blob) = (method.to_owned(), blob.is_some());
    match mood {
        Some(Mood::Slow) if of_blob && method == "GET" => {
            head.write(&mut to).map_err(text)?;
            drip(stream, &body, repository, state)
        }
        Some(Mood::LongLength) if of_blob => {
            for (_, value) in head.fields.iter_mut().filter(|(name, _)| name == "content-length") {
                *value = (body.len() + 1000).to_string();
            }
            head.write(&mut to).and_then(|()| to.write_all(&body)).map_err(text)
        }
        Some(Mood::GoesAway | Mood::ShortLength) if of_blob && asked.field("range").is_some() => Ok(()),
        Some(Mood::ShortLength) if of_blob => {
            let half = &body[..body.len() / 2];
            for (_, value) in head.fields.iter_mut().filter(|(name, _)| name == "content-length") {
                *value = half.len().to_string();
            }
            head.write(&mut to).and_then(|()| to.write_all(half)).map_err(text)
        }
        Some(Mood::GoesAway) if of_blob => {
            head.write(&mut to).and_then(|()| to.write_all(&body[..body.len() / 2])).map_err(text)
        }
        _ => head.write(&mut to).and_then(|()| to.write_all(&body)).map_err(text),
    }
}

/// Sends the rest at once when the repository is served well again.
fn drip(mut stream: &TcpStream, body: &[u8], repository: &str, state: &Mutex<State>) -> Result<(), String> {
    let mut given = FIRST.min(body.len());
    lock(state).slow += 1;
    let mut done = stream.write_all(&body[..given]).map_err(text);
    while done.is_ok() && given < body.len() {
        let slow = {
            let state = lock(state);
            !state.ends && state.moods.get(repository) == Some(&Mood::Slow)
        };
        let end = if slow { given + 1 } else { body.len() };
        done = stream.write_all(&body[given..end]).map_err(text);
        given = end;
        if slow {
            thread::sleep(PERIOD);
        }
    }
    lock(state).slow -= 1;
    done
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}
