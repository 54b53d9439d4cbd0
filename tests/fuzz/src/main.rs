//! Tries decoders with mutations of their seeds, as long as is wanted.
//!
//! ```text
//! fuzz-targets [TARGET...] [--seconds N] [--seed N]
//! fuzz-targets TARGET --replay FILE
//! fuzz-targets --list
//! ```
//!
//! Without a target all are tried, each for its share of the seconds (60), on all processors. An input that fails, or on which a
//! target works for more than 30 s, is kept below `target/fuzz/<target>`, and the end is 1, with the command that replays it. What
//! ends the process itself, such as a stack that overflows, leaves its input there as `last`.
// A clock says when to stop, and no target reads it.
#![allow(clippy::disallowed_methods)]

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fuzz_targets::mutate::Mutator;
use fuzz_targets::run::{one, shown};
use fuzz_targets::{TARGETS, Target, corpus, named};

/// The most bytes of an input.
const INPUT_BYTES_MAX: usize = 64 * 1024;
/// Every so many inputs one may be that long; the others are as long as files usually are.
const LONG_EVERY: u64 = 64;
/// The most bytes of the other inputs.
const USUAL_BYTES_MAX: usize = 4 * 1024;
/// A target that works longer on one input is stopped.
const SLOW: Duration = Duration::from_secs(30);
/// How often the workers are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// What is asked for.
struct Asked {
    targets: Vec<&'static Target>,
    seconds: u64,
    seed: u64,
    replay: Option<PathBuf>,
}

/// An input at work.
struct Work {
    target: &'static Target,
    input: Vec<u8>,
    since: Instant,
}

/// What the workers share.
struct Shared {
    targets: Mutex<VecDeque<&'static Target>>,
    at_work: Vec<Mutex<Option<Work>>>,
    under_way: AtomicUsize,
    failed: AtomicUsize,
    share: Duration,
    seed: u64,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words == ["--list"] {
        TARGETS.iter().for_each(|target| println!("{}", target.name));
        return ExitCode::SUCCESS;
    }
    let asked = match asked(&words) {
        Ok(asked) => asked,
        Err(wrong) => {
            eprintln!("{wrong}\nfuzz-targets [TARGET...] [--seconds N] [--seed N] [--replay FILE] [--list]");
            return ExitCode::from(2);
        }
    };
    match &asked.replay {
        Some(file) => replay(&asked.targets, file),
        None => fuzz(&asked),
    }
}

fn asked(words: &[String]) -> Result<Asked, String> {
    let mut asked = Asked { targets: Vec::new(), seconds: 60, seed: 1, replay: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word}: a value is missing"));
        let number = |text: &String| text.parse::<u64>().map_err(|error| format!("{word} {text}: {error}"));
        match word.as_str() {
            "--seconds" => asked.seconds = number(value()?)?,
            "--seed" => asked.seed = number(value()?)?,
            "--replay" => asked.replay = Some(PathBuf::from(value()?)),
            name => asked.targets.push(named(name).ok_or_else(|| format!("there is no target {name}"))?),
        }
    }
    if asked.replay.is_some() && asked.targets.len() != 1 {
        return Err("--replay: name the target".to_owned());
    }
    if asked.targets.is_empty() {
        asked.targets = TARGETS.iter().collect();
    }
    Ok(asked)
}

fn replay(targets: &[&'static Target], file: &Path) -> ExitCode {
    let input = match corpus::read(file) {
        Ok(input) => input,
        Err(error) => {
            eprintln!("{}: {error}", file.display());
            return ExitCode::from(2);
        }
    };
    let failures = targets.iter().filter_map(|target| one(target, &input)).count();
    println!("{}: {}", file.display(), if failures == 0 { "nothing is wrong" } else { "it fails" });
    ExitCode::from(u8::from(failures > 0))
}

fn fuzz(asked: &Asked) -> ExitCode {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = processors.min(asked.targets.len());
    // Each worker has so many targets, one after the other.
    let rounds = asked.targets.len().div_ceil(workers);
    let share = Duration::from_secs(asked.seconds) / u32::try_from(rounds).unwrap_or(u32::MAX);
    let shared = Shared {
        targets: Mutex::new(asked.targets.iter().copied().collect()),
        at_work: (0..workers).map(|_| Mutex::new(None)).collect(),
        under_way: AtomicUsize::new(workers),
        failed: AtomicUsize::new(0),
        share,
        seed: asked.seed,
    };
    println!(
        "{} targets, {} s each on {workers} processors, seed {}",
        asked.targets.len(),
        share.as_secs_f32(),
        asked.seed
    );
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let shared = &shared;
            scope.spawn(move || {
                while let Some(target) = next_target(shared) {
                    tried(shared, worker, target);
                }
                shared.under_way.fetch_sub(1, Ordering::Relaxed);
            });
        }
        watch(&shared);
    });
    ExitCode::from(u8::from(shared.failed.load(Ordering::Relaxed) > 0))
}

fn next_target(shared: &Shared) -> Option<&'static Target> {
    held(&shared.targets).pop_front()
}

/// Ends the process when a target does not come back: nothing can end its thread.
fn watch(shared: &Shared) {
    while shared.under_way.load(Ordering::Relaxed) > 0 {
        std::thread::sleep(LOOK);
        for work in &shared.at_work {
            let work = held(work);
            let Some(Work { target, input, since }) = &*work else { continue };
            if since.elapsed() > SLOW {
                println!("{}: works for more than {SLOW:?} on {}", target.name, shown(input));
                keep(target, "slow", input);
                std::process::exit(1);
            }
        }
    }
}

/// Tries one target for its share of the time, or until it fails.
fn tried(shared: &Shared, worker: usize, target: &'static Target) {
    let seeds = match corpus::seeds(target.name) {
        Ok(seeds) => seeds,
        Err(error) => {
            println!("{}: its seeds cannot be read: {error}", target.name);
            shared.failed.fetch_add(1, Ordering::Relaxed);
            return;
        }
    };
    let mut usual = Mutator::new(shared.seed, USUAL_BYTES_MAX);
    let mut long = Mutator::new(shared.seed, INPUT_BYTES_MAX);
    let last = directory(target).join("last");
    let (end, mut count) = (Instant::now() + shared.share, 0_u64);
    while Instant::now() < end {
        let input = match usize::try_from(count).ok().and_then(|count| seeds.get(count)) {
            Some(seed) => seed.clone(),
            None if count.is_multiple_of(LONG_EVERY) => long.next(&seeds),
            None => usual.next(&seeds),
        };
        count += 1;
        written(&last, &input);
        *held(&shared.at_work[worker]) = Some(Work { target, input: input.clone(), since: Instant::now() });
        let failure = one(target, &input);
        *held(&shared.at_work[worker]) = None;
        if let Some(failure) = failure {
            println!("{}: {}\n{}", target.name, failure.panic, shown(&failure.input));
            keep(target, &format!("seed-{}-number-{count}", shared.seed), &failure.input);
            shared.failed.fetch_add(1, Ordering::Relaxed);
            break;
        }
    }
    let _ = std::fs::remove_file(&last);
    println!("{}: {count} inputs", target.name);
}

/// Where inputs of a target are kept.
fn directory(target: &Target) -> PathBuf {
    let built = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    built.join("fuzz").join(target.name)
}

fn keep(target: &Target, name: &str, input: &[u8]) {
    let file = directory(target).join(name);
    if written(&file, input) {
        println!(
            "kept; this replays it: cargo run -p fuzz-targets -- {} --replay {}",
            target.name,
            file.display()
        );
    }
}

fn written(file: &Path, input: &[u8]) -> bool {
    let made = file.parent().map_or(Ok(()), std::fs::create_dir_all);
    let done = made.and_then(|()| std::fs::write(file, input));
    if let Err(error) = &done {
        println!("{}: {error}", file.display());
    }
    done.is_ok()
}
