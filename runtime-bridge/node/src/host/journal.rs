//! The machine's journal, as the program `journalctl` tells it. NodeApi shows it.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bridge_io::{Io, SharedPlace, SharedPlaces};
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};

/// At most so many queries run at once on the node, of one client half of them: each has a program that may read the whole journal.
const QUERIES_MAX: usize = 4;
/// A query waits so long for its place.
const PLACE_WITHIN: Duration = Duration::from_secs(5);
/// The most bytes of one read of a program's output.
const CHUNK_BYTES: usize = 16 * 1024;
/// So many bytes of a line of the list of units are looked at; no unit has a longer name.
const UNIT_BYTES_MAX: usize = 1024;

/// The machine's journal.
#[derive(Clone, Debug)]
pub struct Journal {
    io: Io,
    program: Arc<Path>,
    places: SharedPlaces,
}

/// The right to ask the journal. It is given back when it was dropped and its last program has ended.
#[derive(Debug)]
pub struct JournalPlace {
    journal: Journal,
    permit: Arc<SharedPlace>,
}

/// What a program writes on both of its outputs. Dropping it before the program's end was seen kills the program with its
/// whole process group.
#[derive(Debug)]
pub struct JournalOutput {
    child: Option<Child>,
    from: Receiver,
    io: Io,
    permit: Arc<SharedPlace>,
}

impl Journal {
    /// The journal as this program tells it, which is looked for in `$PATH` unless it has a slash.
    pub fn new(io: Io, program: impl Into<PathBuf>) -> Self {
        static PLACES: LazyLock<SharedPlaces> = LazyLock::new(|| SharedPlaces::new(QUERIES_MAX));
        Self { io, program: program.into().into(), places: PLACES.clone() }
    }

    /// A place among the few queries that run at once, of which one client has no more than half; `None` if there was none for a
    /// while.
    pub async fn place(&self, client: &str) -> Option<JournalPlace> {
        let permit = tokio::time::timeout(PLACE_WITHIN, self.places.place(client)).await.ok()??;
        Some(JournalPlace { journal: self.clone(), permit: Arc::new(permit) })
    }
}

impl JournalPlace {
    /// Starts the program.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn begin(&self, arguments: &[String]) -> io::Result<JournalOutput> {
        let (from, to) = io::pipe()?;
        let mut command = Command::new(&*self.journal.program);
        command.args(arguments).stdin(Stdio::null()).stdout(to.try_clone()?).stderr(to);
        // Times of the arguments are of UTC.
        command.env("TZ", "UTC").process_group(0).kill_on_drop(true);
        let io = self.journal.io.clone();
        let (from, child) = io.enter(|| {
            let from = Receiver::from_owned_fd(OwnedFd::from(from))?;
            Ok::<_, io::Error>((from, command.spawn()?))
        })?;
        // The output ends when no process has the other end of the pipe any more.
        drop(command);
        Ok(JournalOutput { child: Some(child), from, io, permit: self.permit.clone() })
    }

    /// Whether the journal has lines of each of these units; of none of them if the program fails.
    pub async fn known(&self, units: &[String]) -> Vec<bool> {
        self.listed(units).await.unwrap_or_else(|error| {
            tracing::debug!(%error, "The units of the journal cannot be listed");
            vec![false; units.len()]
        })
    }

    async fn listed(&self, units: &[String]) -> io::Result<Vec<bool>> {
        let mut output = self.begin(&["--field".to_owned(), "_SYSTEMD_UNIT".to_owned()])?;
        let mut known = vec![false; units.len()];
        let mut line: Vec<u8> = Vec::new();
        loop {
            let part = output.next().await?;
            if part.is_empty() {
                break;
            }
            for piece in part.split_inclusive(|byte| *byte == b'\n') {
                if line.len() <= UNIT_BYTES_MAX {
                    line.extend_from_slice(piece.strip_suffix(b"\n").unwrap_or(piece));
                }
                if piece.ends_with(b"\n") {
                    note(units, &line, &mut known);
                    line.clear();
                }
            }
        }
        note(units, &line, &mut known);
        if output.ended().await? { Ok(known) } else { Err(io::Error::other("the program has failed")) }
    }
}

fn note(units: &[String], line: &[u8], known: &mut [bool]) {
    for (unit, is_known) in units.iter().zip(known) {
        *is_known |= unit.as_bytes() == line;
    }
}

impl JournalOutput {
    /// The next bytes of the output; none at its end.
    ///
    /// # Errors
    /// The operating system's error.
    pub async fn next(&mut self) -> io::Result<Vec<u8>> {
        let mut part = vec![0; CHUNK_BYTES];
        let count = self.from.read(&mut part).await?;
        part.truncate(count);
        Ok(part)
    }

    /// Waits for the program's end; whether it has succeeded.
    ///
    /// # Errors
    /// The operating system's error.
    pub async fn ended(mut self) -> io::Result<bool> {
        match &mut self.child {
            Some(child) => Ok(child.wait().await?.success()),
            None => Ok(false),
        }
    }
}

impl Drop for JournalOutput {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // A program whose end was seen has no id any more.
        let Some(group) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) else { return };
        let _ = kill_process_group(group, Signal::KILL);
        let permit = self.permit.clone();
        // A program that waits in the kernel does not die at once.
        drop(self.io.spawn(async move {
            let _ = child.wait().await;
            drop(permit);
        }));
    }
}

/// Compresses a text piece by piece.
#[derive(Debug)]
pub struct Gzip(GzEncoder<Vec<u8>>);

impl Gzip {
    /// Nothing yet.
    #[must_use]
    pub fn begin() -> Self {
        Self(GzEncoder::new(Vec::new(), Compression::fast()))
    }

    /// Takes a piece; what can be sent by now.
    pub fn pack(&mut self, piece: &[u8]) -> Vec<u8> {
        self.0.write_all(piece).expect("a vector takes everything");
        std::mem::take(self.0.get_mut())
    }

    /// What is left to be sent.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.0.finish().expect("a vector takes everything")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A journal that this script tells, for one query at once.
    fn journal(directory: &Path, script: &str) -> Journal {
        let program = directory.join("journalctl");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Journal { io: Io::current(), program: program.into(), places: SharedPlaces::new(1) }
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// The number of a process, once the process has written it to this file.
    async fn pid(file: &Path) -> String {
        loop {
            match std::fs::read_to_string(file) {
                Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }

    /// Waits until the process has died: then it is none any longer, or waits for its new parent.
    async fn dead(pid: &str) {
        let stat = format!("/proc/{pid}/stat");
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn both_outputs_of_the_program_are_read_to_their_end() {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path(), "echo \"$TZ $*\"; echo problem >&2; exit 3");
        let place = journal.place("client").await.unwrap();
        let mut output = place.begin(&words(&["--utc", "--unit=a b"])).unwrap();
        let mut text = Vec::new();
        loop {
            let part = output.next().await.unwrap();
            if part.is_empty() {
                break;
            }
            text.extend(part);
        }
        assert_eq!(String::from_utf8(text).unwrap(), "UTC --utc --unit=a b\nproblem\n");
        assert!(!output.ended().await.unwrap(), "it has failed");
    }

    #[tokio::test]
    async fn units_are_known_by_their_whole_names() {
        let dir = tempfile::tempdir().unwrap();
        let long = "head -c 100000 /dev/zero; echo; echo a.service; printf last.service";
        let script = format!("[ \"$*\" = '--field _SYSTEMD_UNIT' ] && echo my-kubelet.service && {long}");
        let units = words(&["kubelet.service", "a.service", "last.service"]);
        let known = async |journal: &Journal| journal.place("client").await.unwrap().known(&units).await;
        assert_eq!(known(&journal(dir.path(), &script)).await, [false, true, true]);
        let failing = journal(dir.path(), "echo a.service; exit 1");
        assert_eq!(known(&failing).await, [false; 3], "a list that has failed is none");
        let missing = Journal { program: Path::new("no-such-program").into(), ..failing };
        assert_eq!(known(&missing).await, [false; 3]);
    }

    #[tokio::test]
    async fn a_program_ends_with_its_reader_and_only_then_gives_its_place_back() {
        let dir = tempfile::tempdir().unwrap();
        let much = "head -c 10000000 /dev/zero";
        for script in [much, "exec sleep 600"] {
            let file = dir.path().join("pid");
            let script = format!("sh -c 'echo $$ > {}; {script}' & wait", file.display());
            let journal = journal(dir.path(), &script);
            let place = journal.place("client").await.unwrap();
            let mut output = place.begin(&[]).unwrap();
            let pid = pid(&file).await;
            if script.contains(much) {
                assert!(!output.next().await.unwrap().is_empty());
            }
            drop(place);
            assert!(journal.places.try_place("other").is_none(), "its program runs");
            drop(output);
            dead(&pid).await;
            journal.place("client").await.expect("the place is free again");
            std::fs::remove_file(&file).unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn further_queries_wait_for_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path(), "true");
        let first = journal.place("client").await.unwrap();
        let begun = tokio::time::Instant::now();
        assert!(journal.place("client").await.is_none());
        assert_eq!(begun.elapsed(), PLACE_WITHIN);
        let (next, ()) = tokio::join!(journal.place("other"), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(first);
        });
        assert!(next.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_with_many_queries_keeps_no_other_out() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal { places: SharedPlaces::new(QUERIES_MAX), ..journal(dir.path(), "true") };
        let crowd = [journal.place("crowd").await, journal.place("crowd").await];
        assert!(crowd.iter().all(Option::is_some));
        let begun = tokio::time::Instant::now();
        let (refused, other) = tokio::join!(journal.place("crowd"), async {
            let other = journal.place("other").await;
            (other.is_some(), begun.elapsed())
        });
        assert!(refused.is_none());
        assert_eq!(other, (true, Duration::ZERO));
    }

    #[test]
    fn pieces_are_packed_into_one_text() {
        let mut gzip = Gzip::begin();
        let piece = b"a line of the journal\n".repeat(10_000);
        let mut packed = Vec::new();
        for _ in 0..3 {
            packed.extend(gzip.pack(&piece));
        }
        packed.extend(gzip.finish());
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut text).unwrap();
        assert_eq!(text, piece.repeat(3));
        assert!(packed.len() < piece.len());
    }
}
