//! The real daemon that dies on order: by SIGKILL when a step of a pod worker begins, or with an actor that panics.
//!
//! A test's own binary runs as this kubelet when an environment variable says so ([`run_if_asked`]), so that nothing of
//! this is in the shipped program.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kubelet::config::validation::Host;
use kubelet::daemon::{Hooks, TakeTree, run_with};
use kubelet::load::{Invocation, load};
use kubelet::telemetry;
use kubelet::wiring::Settings;
use messages::supervision::Fault;
use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value, json};
use supervision::Tree;
use volume_manager::SweepPolicy;

/// The environment variable with a [`Fate`] in it.
const VARIABLE: &str = "UNDERSTUDY_MORTAL";
/// Stands before the step at which the kubelet died, in the file of steps.
const DIED: &str = "died ";

/// The orders for one kubelet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// Every step that begins is appended to this file, one a line.
    pub steps: PathBuf,
    /// When it dies; `None` for never.
    pub death: Option<Death>,
    /// A socket that takes names of actors that are to panic; see [`panic_actor`].
    pub orders: Option<PathBuf>,
}

/// A SIGKILL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// The number of the step of this kind at which it dies, from 1.
    pub step: String,
    /// At the how manieth of these steps, from 1.
    pub nth: u64,
    /// The time after the step has begun; with zero the step never begins.
    pub after: Duration,
}

impl Fate {
    /// The environment that makes a test's binary this kubelet, for [`KubeletCommand`](crate::process::KubeletCommand).
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let death = self.death.as_ref().map(|death| {
            let after_us = u64::try_from(death.after.as_micros()).unwrap_or(u64::MAX);
            json!({"step": death.step, "nth": death.nth, "afterUs": after_us})
        });
        let fate = json!({"steps": self.steps, "death": death, "orders": self.orders});
        vec![(VARIABLE.into(), fate.to_string().into())]
    }

    fn from_variable() -> Option<Self> {
        let text = std::env::var(VARIABLE).ok()?;
        let fate: Value = serde_json::from_str(&text).expect("a fate is JSON");
        let path = |name: &str| fate[name].as_str().map(PathBuf::from);
        let death = fate["death"].as_object().map(|death| Death {
            step: death["step"].as_str().unwrap_or_default().to_owned(),
            nth: death["nth"].as_u64().unwrap_or(1),
            after: Duration::from_micros(death["afterUs"].as_u64().unwrap_or(0)),
        });
        Some(Self {
            steps: path("steps").expect("a fate has a file of steps"),
            death,
            orders: path("orders"),
        })
    }
}

/// The kinds of the steps in a file of steps, and the one at which the kubelet died by itself.
pub fn steps_of(file: &Path) -> (Vec<String>, Option<String>) {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let kind = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let died = text.lines().find_map(|line| line.strip_prefix(DIED)).map(kind);
    (text.lines().filter(|line| !line.starts_with(DIED)).map(kind).collect(), died)
}

/// Makes an actor of a running kubelet panic; the order is given when this returns.
///
/// # Errors
/// For people: no kubelet listens at `orders`, or it has no such actor.
pub fn panic_actor(orders: &Path, actor: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", orders.display());
    let mut stream = UnixStream::connect(orders).map_err(failed)?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).map_err(failed)?;
    writeln!(stream, "{actor}").map_err(failed)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(failed)?;
    if answer.trim() == "ordered" { Ok(()) } else { Err(answer) }
}

/// Runs the kubelet, if the environment has a [`Fate`].
pub fn run_if_asked() -> Option<ExitCode> {
    let fate = Fate::from_variable()?;
    let args: Vec<String> =
        std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    let loaded = match load(&args, &Host::probe(), &mut std::io::stderr()) {
        Ok(Invocation::Run(loaded)) => loaded,
        other => panic!("these arguments run no kubelet: {other:?}"),
    };
    let verbosity = telemetry::init(&loaded.config.process.logging).expect("a configuration of the tests");
    let file = OpenOptions::new().create(true).append(true).open(&fate.steps).expect("a file of steps");
    let orders = fate.orders.clone();
    let point = fault_point(Arc::new(file), fate.death);
    let hooks = Hooks {
        verbosity: Some(verbosity),
        settings: Some(Box::new(move |settings: &mut Settings| {
            settings.fault_point = Some(point);
            // Killed kubelets leave much behind, and the tests do not have minutes to wait until it is removed.
            settings.sweep = SweepPolicy { every: Duration::from_secs(3), quiet: Duration::from_secs(5) };
        })),
        started: orders.map(|path| -> TakeTree { Box::new(move |tree| listen(tree, &path)) }),
    };
    Some(run_with(&loaded, hooks))
}

fn fault_point(file: Arc<File>, death: Option<Death>) -> pod_worker::FaultPoint {
    let death = death.map(|death| Arc::new((death, AtomicU64::new(0))));
    Arc::new(move |step| {
        write_line(&file, step);
        if let Some(death) = &death {
            meet(&file, &death.0, &death.1, step);
        }
        Box::pin(std::future::ready(()))
    })
}

/// One write for a line, so that threads and a death do not tear it.
fn write_line(mut file: &File, line: &str) {
    // Some tests fill the disk: then the line is lost and the kubelet goes on.
    let _ = file.write_all(format!("{line}\n").as_bytes());
}

fn meet(file: &Arc<File>, death: &Death, met: &AtomicU64, step: &str) {
    let kind = step.split(' ').next().unwrap_or_default();
    if !death.step.is_empty() && death.step != kind {
        return;
    }
    if met.fetch_add(1, Ordering::SeqCst) + 1 != death.nth {
        return;
    }
    if death.after.is_zero() {
        die(file, step);
    }
    let (file, step, after) = (Arc::clone(file), step.to_owned(), death.after);
    std::thread::spawn(move || {
        std::thread::sleep(after);
        die(&file, &step);
    });
}

fn die(file: &File, step: &str) -> ! {
    write_line(file, &format!("{DIED}{step}"));
    loop {
        // The signal may reach this thread a moment later.
        let _dying = kill_process(getpid(), Signal::KILL);
        std::thread::yield_now();
    }
}

fn listen(tree: &Tree, path: &Path) {
    let _of_the_last_life = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).expect("a place for a socket");
    let tree = tree.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut actor = String::new();
            let Ok(reading) = stream.try_clone() else { continue };
            let _unread = BufReader::new(reading).read_line(&mut actor);
            let answer = match tree.inject(actor.trim(), Fault::PanicNow) {
                Ok(()) => "ordered".to_owned(),
                Err(error) => error.to_string(),
            };
            let _unheard = writeln!(stream, "{answer}");
        }
    });
}
