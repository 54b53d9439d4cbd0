//! What a test scripts for the fake: how containers behave, which images a registry holds, how calls fail.

use std::time::Duration;

use super::super::error::CriErrorKind;

/// Which containers a script is for. Of several scripts that match, the one added last applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// Every container.
    Any,
    /// Containers of this image, as named in their configuration.
    Image(String),
    /// Containers with a command line (command and arguments, joined by spaces) that contains this.
    Command(String),
    /// Containers of this name in any pod.
    Container(String),
}

/// What SIGTERM does to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnTerm {
    /// The container exits.
    Exits {
        /// The time from the signal to the exit.
        after: Duration,
        /// The exit code: 143 for a process without a handler.
        code: i32,
    },
    /// The container ignores the signal; it is killed when the grace period ends, with exit code 137.
    Ignored,
}

/// How a container behaves once it is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// How long the container runs before it exits by itself; `None` is forever.
    pub runs_for: Option<Duration>,
    /// The exit code after `runs_for`.
    pub exit_code: i32,
    /// Whether the kernel's OOM killer causes that exit.
    pub oom: bool,
    /// What SIGTERM does.
    pub on_term: OnTerm,
    /// The error with which `CreateContainer` fails.
    pub create_error: Option<String>,
    /// The error with which `StartContainer` fails; the container has then exited with code 128, reason `StartError`.
    pub start_error: Option<String>,
    /// Lines of standard output, written to the log at the start if the fake writes logs.
    pub log: Vec<String>,
    /// CPU use while the container runs, thousandths of a core.
    pub cpu_millis: u64,
    /// Memory use while the container runs, bytes.
    pub memory_bytes: u64,
}

impl Behaviour {
    /// A container that runs until it is stopped, and exits with 143 at SIGTERM.
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

    /// A container that exits with `code` after `runs_for`: for every attempt, that is a crash loop.
    #[must_use]
    pub fn exits(runs_for: Duration, code: i32) -> Self {
        Self { runs_for: Some(runs_for), exit_code: code, ..Self::forever() }
    }

    /// A container that runs until it is killed: it ignores SIGTERM.
    #[must_use]
    pub fn stubborn() -> Self {
        Self { on_term: OnTerm::Ignored, ..Self::forever() }
    }
}

/// What `ExecSync` does for commands that contain a scripted part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecScript {
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// Its exit code.
    pub exit_code: i32,
    /// How long the command runs; beyond the request's timeout the call fails with `DeadlineExceeded`.
    pub takes: Duration,
}

/// An image that can be pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryImage {
    /// The size, bytes.
    pub size_bytes: u64,
    /// How long a pull takes.
    pub takes: Duration,
    /// The error with which a pull fails at its end.
    pub error: Option<(CriErrorKind, String)>,
    /// The user name and password without which a pull is refused.
    pub credentials: Option<(String, String)>,
    /// The numeric user of the image's configuration.
    pub uid: Option<i64>,
    /// The name of the user, where it is not numeric.
    pub username: String,
    /// References with the same content are names of one image; without, each reference has an image of its own.
    pub content: Option<String>,
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
            content: None,
        }
    }
}

/// How a call fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call begins this much later.
    Latency(Duration),
    /// The call fails and changes nothing.
    Error(CriErrorKind, String),
    /// The call changes nothing; its caller gets `DeadlineExceeded` at the deadline.
    Hang,
    /// The call acts; its caller gets `DeadlineExceeded` at the deadline.
    LostReply,
    /// The call acts; its caller gets `Unavailable` at once, as when the connection breaks.
    BrokenConnection,
    /// The call acts only after this time, even if its caller got `DeadlineExceeded` before.
    ActsLate(Duration),
}
