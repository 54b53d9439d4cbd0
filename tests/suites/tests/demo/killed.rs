//! Runs of the tests that are killed: their keepers, or the next run, end what they have left, and touch no other run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use testkit::process::{Input, Running, eventually, has_ended};

use crate::remains::{Made, processes};
use crate::root;

/// Longest wait for the end of what a run has left.
const ENDED_WITHIN: Duration = Duration::from_secs(90);

/// A run as `tests/env/run-tests` is one: with a containerd, a mount, a lane's shell and a process in a session of its own.
const RUN: &str = r#"
. tests/env/common.sh
. tests/env/runs.sh
begin_run understudy-test
trap end_run EXIT
trap 'exit 130' TERM
"$env_dir/containerd" up "$work/distro" >/dev/null
mkdir -p "$TMPDIR/mount" "$work/lanes"
mount -n -t tmpfs tmpfs "$TMPDIR/mount"
setsid sleep 7200 &
set -m
{ began_at "$BASHPID"; echo "$BASHPID $began" >"$work/lanes/lane.group"; while :; do sleep 1; done; } &
set +m
until [ -s "$work/lanes/lane.group" ]; do sleep 0.1; done
echo "directory $work keeper $keeper."
while :; do sleep 1; done
"#;

/// A directory in which runs are written down, other than that of the run that this is a part of.
fn runs(name: &str) -> PathBuf {
    PathBuf::from(format!("/run/understudy-runs-of-{}-{name}", std::process::id()))
}

/// A run, and what it has made.
struct Run {
    process: Running,
    runs: PathBuf,
    directory: PathBuf,
    keeper: u32,
    lane: u32,
    made: Made,
}

impl Run {
    fn begin(runs: &Path) -> Self {
        let mut command = Command::new("bash");
        command.args(["-c", RUN]).current_dir(root()).env("UNDERSTUDY_RUNS", runs);
        let mut process = Running::start(command, Input::Empty, "a run".to_owned());
        process.says(".\n");
        let said = process.out();
        let words: Vec<&str> = said.trim().trim_end_matches('.').split(' ').collect();
        let &["directory", directory, "keeper", keeper] = &words[..] else { panic!("{said}") };
        let directory = PathBuf::from(directory);
        let made = Made::on_containers(&directory, "distro");
        let lane = std::fs::read_to_string(directory.join("lanes/lane.group")).expect("a lane");
        let number = |text: &str| text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let lane = number(lane.split(' ').next().unwrap_or_default());
        Self { process, runs: runs.to_owned(), keeper: number(keeper), lane, made, directory }
    }

    fn id(&self) -> String {
        self.directory.file_name().expect("a directory has a name").to_string_lossy().into_owned()
    }

    /// What is there of it, in words for people.
    fn there(&self) -> Vec<String> {
        let mut there: Vec<String> = self.made.there().into_iter().collect();
        there.extend(processes(&format!("UNDERSTUDY_RUN={}", self.id())));
        for path in [self.runs.join(self.id()), self.directory.clone()] {
            if path.exists() {
                there.push(path.display().to_string());
            }
        }
        if !has_ended(self.lane) {
            there.push(format!("lane {}", self.lane));
        }
        there
    }

    fn is_whole(&mut self) -> bool {
        let there = self.there();
        let has = |part: &str| there.iter().any(|one| one.contains(part));
        let parts =
            ["/run/understudy/", "mount ", "sleep 7200", "containerd ", "lane ", "/run/understudy-runs-of-"];
        !self.process.has_ended() && parts.iter().all(|part| has(part))
    }

    /// Waits until the killed run has left nothing.
    fn ends(mut self) {
        signal(self.process.id(), Signal::KILL);
        self.leaves_nothing("a killed run");
        assert!(self.process.has_ended());
    }

    #[track_caller]
    fn leaves_nothing(&self, what: &str) {
        eventually(&format!("nothing is left of {what}"), ENDED_WITHIN, || match self.there() {
            none if none.is_empty() => Ok(()),
            there => Err(format!("{there:#?}")),
        });
    }

    /// It is killed together with its keeper: the next run, which is returned, ends what it has left.
    fn swept(mut self) -> Self {
        assert!(self.is_whole(), "{:#?}", self.there());
        signal(self.keeper, Signal::KILL);
        signal(self.process.id(), Signal::KILL);
        eventually("the run has ended", ENDED_WITHIN, || {
            self.process.has_ended().then_some(()).ok_or_else(|| "it has not".to_owned())
        });
        assert!(!self.there().is_empty());
        let mut next = Self::begin(&self.runs);
        assert_eq!(self.there(), [""; 0]);
        assert!(next.is_whole(), "{:#?}", next.there());
        next
    }

    /// Asked to end, it ends what it owns by itself.
    fn end(self) {
        signal(self.process.id(), Signal::TERM);
        self.leaves_nothing("a run that has ended");
    }
}

fn signal(pid: u32, signal: Signal) {
    let pid = pid.try_into().ok().and_then(Pid::from_raw).expect("a process ID");
    kill_process(pid, signal).expect("it lives");
}

fn goes(runs: &Path) {
    eventually("the directory goes with the last run", ENDED_WITHIN, || {
        if runs.exists() { Err(format!("{} is there", runs.display())) } else { Ok(()) }
    });
}

pub fn killed() {
    let runs_beside = runs("beside");
    let [mut stays, mut killed, orphan] = [(); 3].map(|()| Run::begin(&runs_beside));
    for run in [&mut stays, &mut killed] {
        assert!(run.is_whole(), "{:#?}", run.there());
    }
    killed.ends();
    let next = orphan.swept();
    assert!(stays.is_whole(), "{:#?}", stays.there());
    stays.end();
    next.end();
    goes(&runs_beside);
    // The same when it was the only one.
    Run::begin(&runs("alone")).swept().end();
    goes(&runs("alone"));
}
