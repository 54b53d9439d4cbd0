//! Objects that are not watched.

use super::*;

type Texts = ObjectStore<String, u32, &'static str>;

fn texts(strategy: Strategy) -> Texts {
    Texts::new(Kind::Secret, String::len).kept_by(strategy)
}

fn a() -> Name {
    (Arc::from("ns"), Arc::from("a"))
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// What an ask is answered with at once; `None` if it waits for a read.
fn known(store: &mut Texts, now: u64) -> Option<Result<String, bool>> {
    assert!(!store.needs_watch(&a()));
    match store.get(&a(), "asker", seconds(now)) {
        Lookup::Known(_, answer) => Some(answer.map(|text| (*text).clone()).map_err(|error| error.not_found)),
        _ => None,
    }
}

/// Reads the object, which is frozen if its text ends with a full stop; returns how many asks have waited, and whether it is a change.
fn read(store: &mut Texts, text: Option<&str>, now: u64) -> (usize, bool) {
    assert!(store.begin_read(&a()));
    assert!(store.end_read(&a(), seconds(now), true));
    let all = Followed::All(text.map(str::to_owned).into_iter().collect());
    let heard = store.heard(&a(), all, |text| text.ends_with('.'), String::eq);
    (heard.answers.expect("it was read").0.len(), heard.changed)
}

#[test]
fn what_was_read_is_kept_for_its_time() {
    let mut store = texts(Strategy::Cache);
    assert_eq!(known(&mut store, 0), None);
    assert_eq!(read(&mut store, Some("x"), 1), (1, false));
    assert_eq!(known(&mut store, 60), Some(Ok("x".to_owned())));
    assert_eq!((known(&mut store, 61), known(&mut store, 61)), (None, None));
    assert_eq!(read(&mut store, Some("y"), 61), (2, true), "pods that have seen the other one are told");
    store.set_ttl(seconds(400));
    assert_eq!(known(&mut store, 460), Some(Ok("y".to_owned())));
    assert!(store.sweep(&BTreeSet::from([&a()]), seconds(800)).is_empty());
    assert_eq!(
        known(&mut store, 460),
        Some(Ok("y".to_owned())),
        "it is kept for its time without an ask, too"
    );
    store.set_ttl(Duration::ZERO);
    assert_eq!(known(&mut store, 461), None);
    let (_, late) = store.give_up(&a());
    assert_eq!(late, Ok(Arc::new("y".to_owned())), "there is no newer");
}

#[test]
fn that_there_is_none_is_never_kept() {
    let mut store = texts(Strategy::Cache);
    assert_eq!(known(&mut store, 0), None);
    assert_eq!(read(&mut store, None, 0), (1, false));
    assert_eq!(known(&mut store, 0), None);
    let late = store.give_up(&a()).1;
    assert!(late.is_err_and(|error| error.not_found));
    assert_eq!(known(&mut store, 1), None);
    assert_eq!(read(&mut store, Some("x"), 1), (1, true));
}

#[test]
fn a_pod_that_is_new_to_an_object_is_shown_nothing_from_before() {
    let mut store = texts(Strategy::Cache);
    assert_eq!(known(&mut store, 0), None);
    read(&mut store, Some("x"), 0);
    store.expire(&a());
    assert_eq!(known(&mut store, 1), None);
    assert_eq!(store.give_up(&a()).1, Err(Kind::Secret.not_synced()));
    assert_eq!(read(&mut store, Some("x"), 2), (0, true), "the asker has not heard of it");
    // One that never changes is as it was.
    assert_eq!(known(&mut store, 62), None);
    read(&mut store, Some("x."), 62);
    store.expire(&a());
    assert_eq!(known(&mut store, 10_000), Some(Ok("x.".to_owned())));
}

#[test]
fn a_pod_that_is_new_to_an_object_waits_for_a_read_that_begins_after_it() {
    let mut store = texts(Strategy::Cache);
    let hear = |store: &mut Texts, text: &str, now: u64| {
        assert!(store.end_read(&a(), seconds(now), true));
        let all = Followed::All(vec![text.to_owned()]);
        let (answered, answer) =
            store.heard(&a(), all, |text| text.ends_with('.'), String::eq).answers.unwrap();
        (answered.len(), (*answer.unwrap()).clone())
    };
    assert_eq!(known(&mut store, 0), None);
    assert!(store.begin_read(&a()));
    store.expire(&a());
    assert!(store.starts_read(&a()), "it has only just begun");
    store.expire(&a());
    assert_eq!((known(&mut store, 1), known(&mut store, 1)), (None, None));
    assert!(!store.begin_read(&a()));
    store.expire(&a());
    assert_eq!(hear(&mut store, "x", 2), (1, "x".to_owned()), "the ask from before the read");
    assert!(store.is_awaited(&a()) && store.begin_read(&a()) && store.starts_read(&a()));
    assert_eq!(hear(&mut store, "y", 3), (2, "y".to_owned()));
    assert!(!store.is_awaited(&a()) && !store.begin_read(&a()));
    assert_eq!(known(&mut store, 4), Some(Ok("y".to_owned())));
    // Asks that have given up are answered by no read, and a read that fails answers none.
    assert_eq!(known(&mut store, 64), None);
    assert!(store.begin_read(&a()) && store.starts_read(&a()));
    store.expire(&a());
    assert_eq!(store.give_up(&a()).0.len(), 1);
    assert_eq!(known(&mut store, 65), None);
    assert_eq!(hear(&mut store, "z", 66), (0, "z".to_owned()));
    assert!(store.begin_read(&a()) && store.starts_read(&a()));
    store.expire(&a());
    assert!(!store.end_read(&a(), seconds(67), false));
    assert!(store.begin_read(&a()) && store.starts_read(&a()));
    // What never changes was the same before.
    store.expire(&a());
    assert_eq!(hear(&mut store, "z.", 68), (1, "z.".to_owned()));
    assert_eq!(known(&mut store, 69), Some(Ok("z.".to_owned())));
}

#[test]
fn each_ask_is_a_read_unless_the_object_never_changes() {
    let mut store = texts(Strategy::Get);
    for now in 0..3 {
        assert_eq!((known(&mut store, now), known(&mut store, now)), (None, None));
        assert_eq!(read(&mut store, Some("x"), now), (2, false), "one read answers all that wait");
    }
    assert_eq!(known(&mut store, 3), None);
    assert_eq!(store.give_up(&a()).1, Err(Kind::Secret.not_synced()), "nothing from before is shown");
    assert_eq!(read(&mut store, Some("x."), 4), (0, true));
    assert_eq!(known(&mut store, 10_000), Some(Ok("x.".to_owned())));
    assert_eq!(store.counts(), (1, 0));
}
