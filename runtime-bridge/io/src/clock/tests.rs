use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{Clock, FakeClock, SystemClock};

fn start() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().unwrap()
}

/// The contract that every clock keeps.
fn contract(clock: &dyn Clock) {
    let first = clock.now();
    assert!(clock.now() >= first, "nobody set the clock, so it must not go back");

    let numbers: BTreeSet<u64> = (0..64).map(|_| clock.random_u64()).collect();
    assert_eq!(numbers.len(), 64);

    let uuids: BTreeSet<String> = (0..64).map(|_| clock.uuid()).collect();
    assert_eq!(uuids.len(), 64);
    for uuid in &uuids {
        let parts: Vec<&str> = uuid.split('-').collect();
        assert_eq!(parts.iter().map(|p| p.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{uuid}");
        assert!(uuid.chars().all(|c| c == '-' || matches!(c, '0'..='9' | 'a'..='f')), "{uuid}");
        assert!(parts[2].starts_with('4'), "version of {uuid}");
        assert!(parts[3].starts_with(['8', '9', 'a', 'b']), "variant of {uuid}");
    }
}

#[test]
fn system_clock_keeps_the_contract() {
    contract(&SystemClock);
    assert!(SystemClock.now() > "2024-01-01T00:00:00Z".parse().unwrap());
}

#[tokio::test(start_paused = true)]
async fn fake_clock_keeps_the_contract() {
    contract(&FakeClock::new(0, start()));
}

#[tokio::test(start_paused = true)]
async fn fake_wall_time_follows_tokio_time() {
    let clock = FakeClock::new(1, start());
    assert_eq!(clock.now(), start());
    tokio::time::advance(Duration::from_millis(90_500)).await;
    assert_eq!(clock.now(), "2026-05-01T12:01:30.5Z".parse().unwrap());
}

#[tokio::test(start_paused = true)]
async fn fake_clock_can_be_skewed_both_ways_and_set() {
    let clock = FakeClock::new(1, start());
    clock.skew(SignedDuration::from_secs(-3600));
    assert_eq!(clock.now(), "2026-05-01T11:00:00Z".parse().unwrap());
    tokio::time::advance(Duration::from_secs(10)).await;
    clock.skew(SignedDuration::from_secs(7200));
    assert_eq!(clock.now(), "2026-05-01T13:00:10Z".parse().unwrap());
    clock.set(start());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(clock.now(), "2026-05-01T12:00:01Z".parse().unwrap());
    clock.skew(SignedDuration::MAX);
    assert_eq!(clock.now(), Timestamp::MAX);
}

#[tokio::test(start_paused = true)]
async fn one_seed_gives_one_sequence() {
    let draw = |seed| {
        let clock = FakeClock::new(seed, start());
        (clock.random_u64(), clock.uuid(), clock.random_u64())
    };
    assert_eq!(draw(7), draw(7));
    assert_ne!(draw(7), draw(8));
}
