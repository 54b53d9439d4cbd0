//! Runs kubectl: to its end, beside the case, and on a terminal.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use testkit::process::eventually;

use crate::node::{LATER, SOON};

/// kubectl in one namespace.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    common: Vec<String>,
}

/// The exit code and outputs of a kubectl that has ended.
#[derive(Clone, Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// A kubectl that runs beside the case. Dropping it kills it.
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

impl Kubectl {
    pub fn new(program: &Path, kubeconfig: &Path, namespace: &str) -> Self {
        let common =
            [format!("--kubeconfig={}", kubeconfig.display()), format!("--namespace={namespace}")].into();
        Self { program: program.to_owned(), common }
    }

    /// Runs kubectl to its end, with an empty input.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> Said {
        self.start(arguments).ends(LATER)
    }

    /// The output of kubectl, which must succeed.
    ///
    /// # Panics
    /// kubectl fails.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments);
        assert_eq!(said.code, Some(0), "kubectl {arguments:?}: {}{}", said.out, said.err);
        said.out
    }

    /// Starts kubectl with an empty input.
    pub fn start(&self, arguments: &[&str]) -> Running {
        self.spawn(arguments, false)
    }

    /// Starts kubectl with an input that stays open.
    pub fn start_fed(&self, arguments: &[&str]) -> Running {
        self.spawn(arguments, true)
    }

    fn spawn(&self, arguments: &[&str], fed: bool) -> Running {
        let mut child = Command::new(&self.program)
            .args(&self.common)
            .args(arguments)
            .stdin(if fed { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl can be run");
        let out = gather(child.stdout.take().expect("piped"));
        let err = gather(child.stderr.take().expect("piped"));
        let stdin = child.stdin.take();
        Running { child, stdin, terminal: None, out, err, what: format!("kubectl {}", arguments.join(" ")) }
    }

    /// Starts kubectl on a terminal of its own with so many rows and columns.
    pub fn start_on_terminal(&self, arguments: &[&str], rows: u16, columns: u16) -> Running {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("a terminal of ours");
        let name = ptsname(&terminal, Vec::new()).expect("a terminal has a name");
        let path = Path::new(OsStr::new(name.to_str().expect("/dev/pts and a number")));
        let side = || File::options().read(true).write(true).open(path).expect("the terminal's other side");
        let terminal = File::from(terminal);
        set_size(&terminal, rows, columns);
        // It has a session of its own with this as the terminal, so that it gets the signal when the size changes.
        let child = Command::new("setsid")
            .args(["--ctty", "--wait"])
            .arg(&self.program)
            .args(&self.common)
            .args(arguments)
            .env("TERM", "dumb")
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .expect("setsid can be run");
        let out = gather(terminal.try_clone().expect("another handle"));
        let what = format!("kubectl {} on a terminal", arguments.join(" "));
        Running { child, stdin: None, terminal: Some(terminal), out, err: Output::default(), what }
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

impl Running {
    /// The output so far; with a terminal, both outputs.
    pub fn out(&self) -> String {
        text(&self.out)
    }

    /// Waits until the output contains these words.
    #[track_caller]
    pub fn says(&mut self, words: &str) {
        let what = format!("{} writes {words:?}", self.what);
        eventually(&what, SOON, || {
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
    pub fn resize(&self, rows: u16, columns: u16) {
        set_size(self.terminal.as_ref().expect("started on a terminal"), rows, columns);
    }

    /// Waits until kubectl ends by itself.
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
        if self.terminal.is_none() {
            eventually("all that kubectl wrote is read", SOON, || {
                let readers = Arc::strong_count(&out) + Arc::strong_count(&err) - 4;
                if readers == 0 { Ok(()) } else { Err(format!("{readers} read")) }
            });
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
