//! Waits for another process by looking again and again until a deadline, and never by a fixed sleep.

use std::time::{Duration, Instant};

/// Period of looks.
const PERIOD: Duration = Duration::from_millis(50);

/// Looks until a look returns a value.
///
/// # Panics
/// After `within`, with `what` was awaited and the last look's error.
#[track_caller]
pub fn eventually<T>(what: &str, within: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(instead) if begun.elapsed() >= within => {
                panic!("not within {:.0} s: {what}; last seen: {instead}", within.as_secs_f64());
            }
            Err(_) => std::thread::sleep(PERIOD),
        }
    }
}

/// Looks again and again for as long as `during`, for things that must not happen, since no event tells of them.
///
/// # Panics
/// At the first look that returns an error, with that error.
#[track_caller]
pub fn holds(what: &str, during: Duration, mut look: impl FnMut() -> Result<(), String>) {
    let begun = Instant::now();
    while begun.elapsed() < during {
        if let Err(instead) = look() {
            panic!("after {:.1} s no longer: {what}; seen: {instead}", begun.elapsed().as_secs_f64());
        }
        std::thread::sleep(PERIOD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_repeated_until_it_gives_something() {
        let mut looks = 0;
        let found = eventually("the third look", Duration::from_secs(10), || {
            looks += 1;
            if looks == 3 { Ok(looks) } else { Err(format!("look {looks}")) }
        });
        assert_eq!(found, 3);
    }

    #[test]
    #[should_panic(expected = "not within 0 s: rain; last seen: sun")]
    fn what_never_comes_is_reported_with_what_was_seen() {
        eventually("rain", Duration::ZERO, || Err::<(), _>("sun".to_owned()));
    }

    #[test]
    #[should_panic(expected = "no longer: sun; seen: rain")]
    fn what_ends_too_early_is_reported() {
        let mut looks = 0;
        holds("sun", Duration::from_secs(10), || {
            looks += 1;
            if looks < 3 { Ok(()) } else { Err("rain".to_owned()) }
        });
    }
}
