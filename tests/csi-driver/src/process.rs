//! The driver's process, from within and from a test.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bridge_csi::Deadlines;
use bridge_csi::fake::{FakeDriver, Serving, ServingRegistration, serve_driver, serve_registration};
use bridge_csi::plugins::{PluginFacts, PluginKind};

use crate::effects::Mounts;
use crate::orders::obey;

/// The process's own hang ends after this; its callers' deadlines are shorter.
const HANG: Duration = Duration::from_secs(600);

struct Running {
    driver: FakeDriver,
    socket: PathBuf,
    registry: Option<PathBuf>,
    serving: Option<Serving>,
    registration: Option<ServingRegistration>,
}

fn argument(arguments: &[String], name: &str) -> Option<String> {
    let at = arguments.iter().position(|argument| argument == name)?;
    arguments.get(at + 1).cloned()
}

/// Serves the driver and obeys orders until its input ends. Errors: a message when it cannot serve.
fn serve(arguments: &[String]) -> Result<(), String> {
    let needed = |name: &str| argument(arguments, name).ok_or_else(|| format!("{name} is missing"));
    let directory = PathBuf::from(needed("--directory")?);
    std::fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mounts = Mounts::new(&directory);
    let held = mounts.held();
    let driver = FakeDriver::with_effects(&needed("--name")?, Arc::new(mounts))
        .with_deadlines(Deadlines { operation: HANG, about: HANG });
    driver.set_held(held);
    let mut running = Running {
        driver,
        socket: directory.join("csi.sock"),
        registry: argument(arguments, "--registry").map(PathBuf::from),
        serving: None,
        registration: None,
    };
    running.serve()?;
    running.register()?;
    println!("ok ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = obey(&running.driver, &words).unwrap_or_else(|| running.obey(&words));
        match answer {
            Ok(told) => println!("ok {told}"),
            Err(error) => println!("error {error}"),
        }
    }
    Ok(())
}

/// The first argument with which a test program is asked to be a driver.
const ASKED: &str = "csi-driver";

/// Serves a driver if that is what this test program is asked for.
#[must_use]
pub fn asked() -> Option<ExitCode> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    if given.first().map(String::as_str) != Some(ASKED) {
        return None;
    }
    Some(match serve(&given[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{ASKED}: {error}");
            ExitCode::FAILURE
        }
    })
}

impl Running {
    fn serve(&mut self) -> Result<(), String> {
        // The old one goes first, or it would take the new one's socket with it.
        self.serving = None;
        let served = serve_driver(&self.socket, Arc::new(self.driver.clone()));
        self.serving = Some(served.map_err(|error| format!("{}: {error}", self.socket.display()))?);
        Ok(())
    }

    fn register(&mut self) -> Result<(), String> {
        let Some(registry) = &self.registry else { return Ok(()) };
        let name = self.driver.name();
        // The kernel takes no path of more than 107 bytes, and a test's directory may be deep.
        let socket = registry.join("reg.sock");
        let facts = PluginFacts {
            kind: PluginKind::Csi.word().to_owned(),
            name,
            endpoint: self.socket.display().to_string(),
            versions: vec!["1.0.0".to_owned()],
        };
        self.registration = None;
        let served = serve_registration(&socket, facts);
        self.registration = Some(served.map_err(|error| format!("{}: {error}", socket.display()))?);
        Ok(())
    }

    fn obey(&mut self, words: &[&str]) -> Result<String, String> {
        match words {
            ["register"] => self.register().map(|()| String::new()),
            ["unregister"] => {
                self.registration = None;
                Ok(String::new())
            }
            ["restart"] => self.serve().map(|()| String::new()),
            ["statuses"] => {
                let told = self.registration.as_ref().map(ServingRegistration::statuses).unwrap_or_default();
                let words: Vec<String> =
                    told.into_iter().map(|status| status.err().unwrap_or_default()).collect();
                serde_json::to_string(&words).map_err(|error| error.to_string())
            }
            ["die"] => std::process::abort(),
            other => Err(format!("{other:?} is no order")),
        }
    }
}

/// A driver in a process of its own. Dropping it kills the process; what it holds and has mounted stays.
#[derive(Debug)]
pub struct DriverProcess {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    directory: PathBuf,
}

impl DriverProcess {
    /// Starts this test program anew, as a driver, and waits until it serves; its `main` has to call [`asked`] first.
    ///
    /// # Errors
    /// A message when it does not start.
    pub fn spawn(name: &str, directory: &Path, registry: Option<&Path>) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
        let mut program = Command::new(program);
        program.arg(ASKED);
        program.args(["--name", name, "--directory"]).arg(directory);
        if let Some(registry) = registry {
            program.arg("--registry").arg(registry);
        }
        let child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("{program:?}: {error}"))?;
        let orders = child.stdin.take().ok_or("the process has an input")?;
        let answers = BufReader::new(child.stdout.take().ok_or("the process has an output")?);
        let mut process = Self { child, orders, answers, directory: directory.to_owned() };
        process.answer()?;
        Ok(process)
    }

    /// The socket of the driver.
    #[must_use]
    pub fn endpoint(&self) -> PathBuf {
        self.directory.join("csi.sock")
    }

    /// The ID of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order; returns what the process tells.
    ///
    /// # Errors
    /// The process's words, or that it has ended.
    pub fn order(&mut self, line: &str) -> Result<String, String> {
        writeln!(self.orders, "{line}").map_err(|error| error.to_string())?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|error| error.to_string())?;
        match line.trim_end().split_once(' ').unwrap_or((line.trim_end(), "")) {
            ("ok", told) => Ok(told.to_owned()),
            ("error", words) => Err(words.to_owned()),
            _ => Err(format!("the driver has ended: {line:?}")),
        }
    }
}

impl Drop for DriverProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
