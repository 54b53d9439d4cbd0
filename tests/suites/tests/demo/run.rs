//! One `make run`, ended in every case, so that nothing of it stays when a test fails.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use testkit::process::{Input, Running, Said};

use crate::remains::processes;
use crate::{root, table};

/// Longest wait for the first table, the building of what the tests have not built included.
pub const BUILT_WITHIN: Duration = Duration::from_secs(600);
/// Longest wait for what the samples do once they run.
pub const SHOWN_WITHIN: Duration = Duration::from_secs(180);
/// Longest wait for the end: pods have thirty seconds, the kubelet ten, and the rest is quick.
pub const ENDS_WITHIN: Duration = Duration::from_secs(120);

/// Settings of `make run` that the caller may have for himself.
const SETTINGS: [&str; 8] = [
    "RUNTIME_ENDPOINT",
    "MANIFESTS",
    "CGROUP_DRIVER",
    "TAKE_OVER",
    "FAKE_RUNTIME",
    "DEMO_SECONDS",
    "KUBELET",
    "UNDERSTUDY",
];

/// A `make run`.
pub struct Demo {
    /// None when it has ended.
    running: Option<Running>,
    /// A variable that everything it starts inherits.
    mark: String,
}

impl Demo {
    /// Starts it with these settings, with pipes or on a terminal.
    pub fn start(settings: &[(&str, &str)], on_terminal: bool) -> Self {
        static DEMOS: AtomicU32 = AtomicU32::new(0);
        let number = DEMOS.fetch_add(1, Ordering::Relaxed);
        let (name, value) = ("UNDERSTUDY_DEMO_OF_A_TEST", format!("{}-{number}", std::process::id()));
        let program = if on_terminal { "make" } else { "setsid" };
        let mut command = Command::new(program);
        if !on_terminal {
            command.args(["--wait", "make"]);
        }
        command.arg("run").current_dir(root()).env(name, &value).env("TERM", "xterm");
        for inherited in SETTINGS.iter().chain(&["MAKEFLAGS", "MAKELEVEL", "MFLAGS"]) {
            command.env_remove(inherited);
        }
        command.envs(settings.iter().copied());
        let what = "make run".to_owned();
        let running = if on_terminal {
            Running::on_terminal(&command, 100, 180, what)
        } else {
            Running::start(command, Input::Empty, what)
        };
        Self { running: Some(running), mark: format!("{name}={value}") }
    }

    fn running(&mut self) -> &mut Running {
        self.running.as_mut().expect("it has not ended")
    }

    /// The lines that it has written.
    pub fn lines(&mut self) -> Vec<String> {
        table::lines(&self.running().out())
    }

    /// Presses a key.
    pub fn press(&mut self, key: u8) {
        self.running().feed(&[key]);
    }

    /// Waits until a look at its lines finds something.
    ///
    /// # Panics
    /// It does not, or `make run` has ended.
    #[track_caller]
    pub fn until<T>(
        &mut self,
        what: &str,
        within: Duration,
        look: impl Fn(&[String]) -> Result<T, String>,
    ) -> T {
        let begun = Instant::now();
        loop {
            let ended = self.running().has_ended();
            let lines = self.lines();
            match look(&lines) {
                Ok(found) => return found,
                Err(instead) if ended || begun.elapsed() >= within => {
                    let said = self.stopped();
                    panic!("{what}: {instead}; it wrote\n{}\n{}", said.out, said.err);
                }
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// The directory of a kubelet that runs on containers.
    pub fn directory(&mut self) -> Option<PathBuf> {
        let name = std::fs::read_dir("/proc").expect("/proc is there").flatten().find_map(|entry| {
            let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
            if !read("environ").split('\0').any(|one| one == self.mark) {
                return None;
            }
            let line = read("cmdline");
            let mut words = line.split('\0').skip_while(|word| *word != "--config").skip(1);
            words.next().map(PathBuf::from)
        })?;
        name.parent().map(PathBuf::from)
    }

    /// The companion program that shows the table.
    pub fn program(&mut self) -> Option<PathBuf> {
        std::fs::read_dir("/proc").expect("/proc is there").flatten().find_map(|entry| {
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            if !environment.split(|byte| *byte == 0).any(|one| one == self.mark.as_bytes()) {
                return None;
            }
            let program = std::fs::read_link(entry.path().join("exe")).ok()?;
            program.file_name().is_some_and(|name| name == "understudy").then_some(program)
        })
    }

    /// Waits until it ends by itself, and looks whether a process of it is left.
    ///
    /// # Panics
    /// It does not end in this time, and is stopped then; or something of it still runs.
    #[track_caller]
    pub fn ends(mut self, within: Duration) -> Said {
        let begun = Instant::now();
        while !self.running().has_ended() {
            if begun.elapsed() >= within {
                let said = self.stopped();
                panic!("it does not end within {within:?}; it wrote {}{}", said.out, said.err);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let said = self.running.take().expect("it has not been taken").ends(within);
        let left = processes(&self.mark);
        assert!(left.is_empty(), "still running: {left:#?}; it wrote {}{}", said.out, said.err);
        said
    }

    /// Stops it as a signal of the user does: what it has made goes with it.
    fn stopped(&mut self) -> Said {
        let mut running = self.running.take().expect("it has not been taken");
        let group =
            i32::try_from(running.id()).ok().and_then(Pid::from_raw).expect("process IDs are positive");
        let _gone = kill_process_group(group, Signal::TERM);
        let begun = Instant::now();
        while !running.has_ended() && begun.elapsed() < ENDS_WITHIN {
            std::thread::sleep(Duration::from_millis(100));
        }
        if !running.has_ended() {
            let _gone = kill_process_group(group, Signal::KILL);
        }
        let said = running.ends(ENDS_WITHIN);
        if [&said.out, &said.err].iter().any(|text| text.contains("the kubelet has ended")) {
            eprintln!("KUBELET ENDED by itself in make run");
        }
        said
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if self.running.is_some() {
            self.stopped();
        }
    }
}
