//! What a test writes down for the fake to play: how containers behave, what a registry holds, how calls fail.

use std::time::Duration;

use super::super::error::CriErrorKind;

/// Which containers a script is for. Of several that fit, the one added last is played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// Every container.
    Any,
    /// Containers of this image, as named in their configuration.
    Image(String),
    /// Containers whose command and arguments, joined by spaces, contain this.
    Command(String),
    /// Containers of this name in any pod.
    Container(String),
}

/// What SIGTERM does to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnTerm {
    /// It exits with `code` after `after`.
    Exits {
        /// From the signal on.
        after: Duration,
        /// 143 for a process without a handler.
        code: i32,
    },
    /// Nothing: it is killed when the grace period ends, with exit code 137.
    Ignored,
}

/// How a container behaves once it is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Runs this long and then exits by itself; forever when absent.
    pub runs_for: Option<Duration>,
    /// The exit code after `runs_for`.
    pub exit_code: i32,
    /// Whether that exit is the kernel's OOM killer's doing.
    pub oom: bool,
    /// What SIGTERM does.
    pub on_term: OnTerm,
    /// `CreateContainer` fails with this.
    pub create_error: Option<String>,
    /// `StartContainer` fails with this; the container is then exited with code 128, reason `StartError`.
    pub start_error: Option<String>,
    /// Lines of standard output, written to the log when it starts, if the fake writes logs.
    pub log: Vec<String>,
    /// CPU used while it runs, thousandths of a core.
    pub cpu_millis: u64,
    /// Memory in use while it runs, bytes.
    pub memory_bytes: u64,
}

impl Behaviour {
    /// Runs until it is stopped, and exits with 143 at SIGTERM.
    #[must_use]
    pub fn forever() -> Self {
        Self {
            runs_for: None,
            exit_code: 0,
            oom: false,
            on_term: OnTerm::Exits { after: Duration::ZERO, code: 143 },
            create_error: None,
            start_error: None,
            log: Vec::new(),
            cpu_millis: 1,
            memory_bytes: 1 << 20,
        }
    }

    /// Exits with `code` after `runs_for`. Played for every attempt it is a crash loop.
    #[must_use]
    pub fn exits(runs_for: Duration, code: i32) -> Self {
        Self { runs_for: Some(runs_for), exit_code: code, ..Self::forever() }
    }

    /// Runs until it is killed: SIGTERM does nothing.
    #[must_use]
    pub fn stubborn() -> Self {
        Self { on_term: OnTerm::Ignored, ..Self::forever() }
    }
}

/// What a command run by `ExecSync` does. It is chosen by a part of the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecScript {
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// Its exit code.
    pub exit_code: i32,
    /// How long it runs; past the request's timeout the call fails with `DeadlineExceeded`.
    pub takes: Duration,
}

/// An image that can be pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryImage {
    /// Bytes.
    pub size_bytes: u64,
    /// How long a pull takes.
    pub takes: Duration,
    /// A pull fails with this when it would be complete.
    pub error: Option<(CriErrorKind, String)>,
    /// The user name and password without which a pull is refused.
    pub credentials: Option<(String, String)>,
    /// The numeric user of the image's configuration.
    pub uid: Option<i64>,
    /// The user's name, where it is not numeric.
    pub username: String,
}

impl Default for RegistryImage {
    fn default() -> Self {
        Self {
            size_bytes: 1 << 20,
            takes: Duration::ZERO,
            error: None,
            credentials: None,
            uid: None,
            username: String::new(),
        }
    }
}

/// How a call fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It begins this much later.
    Latency(Duration),
    /// It fails and does nothing.
    Error(CriErrorKind, String),
    /// It does nothing; the asker sees `DeadlineExceeded` when its deadline has passed.
    Hang,
    /// It acts; the asker sees `DeadlineExceeded` when its deadline has passed.
    LostReply,
    /// It acts; the asker sees `Unavailable` at once, as when the connection breaks.
    BrokenConnection,
    /// It acts only after this long, even when its asker saw `DeadlineExceeded` before.
    ActsLate(Duration),
}
