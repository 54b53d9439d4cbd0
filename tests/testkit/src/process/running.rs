//! A program that runs beside a test, with pipes or on a terminal of its own.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::eventually;

/// Longest wait for words of a program, on a slow machine under load.
const SAYS_WITHIN: Duration = Duration::from_secs(90);

/// Longest wait for the last bytes on the terminal of a program that has ended.
const TERMINAL_WITHIN: Duration = Duration::from_secs(10);

/// The exit code and outputs of a program that has ended.
#[derive(Clone, Debug)]
pub struct Said {
    /// The exit code; none after a signal.
    pub code: Option<i32>,
    /// The output; on a terminal both outputs.
    pub out: String,
    /// The error output.
    pub err: String,
}

/// What a program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Nothing.
    Empty,
    /// What the test feeds.
    Fed,
}

/// A program that runs beside the test. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    terminal: Option<File>,
    out: Output,
    err: Output,
    what: String,
}

/// The bytes of one of its outputs.
type Output = Arc<Mutex<Vec<u8>>>;

impl Running {
    /// Starts it with its outputs gathered; `what` names it in errors.
    ///
    /// # Panics
    /// It cannot be run.
    pub fn start(mut command: Command, input: Input, what: String) -> Self {
        let stdin = if input == Input::Fed { Stdio::piped() } else { Stdio::null() };
        let started = command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = started.unwrap_or_else(|error| panic!("{what}: {error}"));
        let out = gather(child.stdout.take().expect("piped"));
        let err = gather(child.stderr.take().expect("piped"));
        let stdin = child.stdin.take();
        Self { child, stdin, terminal: None, out, err, what }
    }

    /// Starts it on a terminal of its own with so many rows and columns. It leads a session with this terminal, so that it
    /// gets the signals of keys and of changes of the size.
    ///
    /// # Panics
    /// The machine gives no terminal, or the program cannot be run.
    pub fn on_terminal(command: &Command, rows: u16, columns: u16, what: String) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("a terminal of ours");
        let name = ptsname(&terminal, Vec::new()).expect("a terminal has a name");
        let path = Path::new(OsStr::new(name.to_str().expect("/dev/pts and a number")));
        let side = || File::options().read(true).write(true).open(path).expect("the terminal's other side");
        let terminal = File::from(terminal);
        set_size(&terminal, rows, columns);
        let mut session = Command::new("setsid");
        session.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => session.env(name, value),
                None => session.env_remove(name),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            session.current_dir(directory);
        }
        let started = session.stdin(side()).stdout(side()).stderr(side()).spawn();
        let child = started.unwrap_or_else(|error| panic!("{what}: setsid: {error}"));
        let out = gather(terminal.try_clone().expect("another handle"));
        let what = format!("{what} on a terminal");
        Self { child, stdin: None, terminal: Some(terminal), out, err: Output::default(), what }
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The output so far; with a terminal, both outputs.
    pub fn out(&self) -> String {
        text(&self.out)
    }

    /// Whether it has ended.
    ///
    /// # Panics
    /// It is no child of this process any more.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours can be waited for").is_some()
    }

    /// Waits until the output contains these words.
    ///
    /// # Panics
    /// It does not write them within 90 s.
    #[track_caller]
    pub fn says(&mut self, words: &str) {
        let what = format!("{} writes {words:?}", self.what);
        eventually(&what, SAYS_WITHIN, || {
            let (out, err) = (text(&self.out), text(&self.err));
            if out.contains(words) || err.contains(words) {
                return Ok(());
            }
            let mut so_far = format!("{out:?} and {err:?}");
            if let Ok(Some(status)) = self.child.try_wait() {
                let _written = write!(so_far, ", ended with {status}");
            }
            Err(so_far)
        });
    }

    /// Writes to its input.
    ///
    /// # Panics
    /// It was started without input, or has closed it.
    pub fn feed(&mut self, bytes: &[u8]) {
        match (&mut self.stdin, &mut self.terminal) {
            (Some(stdin), _) => stdin.write_all(bytes).and_then(|()| stdin.flush()),
            (None, Some(terminal)) => terminal.write_all(bytes),
            (None, None) => panic!("{}: started without input", self.what),
        }
        .unwrap_or_else(|error| panic!("{}: its input: {error}; it said {}", self.what, self.out()));
    }

    /// Closes its input.
    pub fn close(&mut self) {
        self.stdin = None;
    }

    /// Sets the size of its terminal.
    ///
    /// # Panics
    /// It has none.
    pub fn resize(&self, rows: u16, columns: u16) {
        set_size(self.terminal.as_ref().expect("started on a terminal"), rows, columns);
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// It does not end in this time.
    #[track_caller]
    pub fn ends(mut self, within: Duration) -> Said {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours can be waited for") {
                break status;
            }
            let (out, err) = (text(&self.out), text(&self.err));
            assert!(begun.elapsed() < within, "{} does not end; it said {out:?} and {err:?}", self.what);
            std::thread::sleep(Duration::from_millis(20));
        };
        // The reading threads see the end a moment later, and hold the other references until then.
        let out = Arc::clone(&self.out);
        let err = Arc::clone(&self.err);
        let read = || Arc::strong_count(&out) + Arc::strong_count(&err) == 4;
        if self.terminal.is_none() {
            eventually("all that it wrote is read", SAYS_WITHIN, || {
                read().then_some(()).ok_or_else(String::new)
            });
        } else {
            // A process of its own session may keep the terminal open.
            let ended = Instant::now();
            while !read() && ended.elapsed() < TERMINAL_WITHIN {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Said { code: status.code(), out: text(&out), err: text(&err) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn set_size(terminal: &File, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("a terminal has a size");
}

/// Reads all output, in a thread that ends with it.
fn gather(mut from: impl Read + Send + 'static) -> Output {
    let output = Output::default();
    let into = Arc::clone(&output);
    std::thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut part) {
            into.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&part[..count]);
        }
    });
    output
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
}
