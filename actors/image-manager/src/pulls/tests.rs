use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn key(image: &str, share: &str) -> PullKey {
    PullKey { image: image.to_owned(), share: PullShare::of([share]) }
}

fn owner(namespace: &str, pod: &str) -> Owner {
    Owner { namespace: Arc::from(namespace), pod: PodUid::new(pod) }
}

fn limits(parallel: usize) -> PullLimits {
    PullLimits { parallel, waiting_max: 2, askers_max: 2 }
}

/// Begins pulls until none may begin.
fn begin_all<A>(pulls: &mut Pulls<A>) -> Vec<PullKey> {
    std::iter::from_fn(|| pulls.begin()).collect()
}

#[test]
fn one_pull_for_the_same_credentials_and_everybody_is_answered() {
    let mut pulls = Pulls::new(limits(1));
    let (mine, theirs) = (key("a", "mine"), key("a", "theirs"));
    assert_eq!(pulls.ask(&mine, owner("n", "1"), 1), Ok(Asked::Waits));
    assert_eq!(pulls.begin(), Some(mine.clone()));
    assert_eq!(pulls.ask(&mine, owner("n", "2"), 2), Ok(Asked::Joined));
    assert_eq!(pulls.ask(&mine, owner("n", "3"), 3), Err(QueueFull(3)));
    assert_eq!(pulls.ask(&theirs, owner("n", "4"), 4), Ok(Asked::Waits));
    assert_eq!(pulls.begin(), None);
    assert_eq!(pulls.finished(&mine), [1, 2], "the other credentials' asker is not among them");
    assert_eq!(pulls.begin(), Some(theirs.clone()));
    assert_eq!(pulls.finished(&theirs), [4]);
    assert_eq!(pulls.finished(&theirs), [0; 0]);
    assert_eq!((pulls.running(), pulls.waiting()), (0, 0));
}

#[test]
fn credentials_of_one_image_leave_room_for_another_image() {
    let mut pulls = Pulls::new(PullLimits { parallel: 3, ..PullLimits::default() });
    for share in ["a", "b", "c", "d"] {
        pulls.ask(&key("same", share), owner("n", share), ()).unwrap();
    }
    assert_eq!(begin_all(&mut pulls), [key("same", "a"), key("same", "b")]);
    pulls.ask(&key("other", "a"), owner("n", "z"), ()).unwrap();
    assert_eq!(begin_all(&mut pulls), [key("other", "a")]);
    pulls.finished(&key("same", "b"));
    assert_eq!(begin_all(&mut pulls), [key("same", "c")]);
}

#[test]
fn pulls_that_never_end_leave_room_for_another_namespace() {
    let mut pulls = Pulls::new(PullLimits::default());
    for image in 0..9 {
        pulls.ask(&key(&format!("endless{image}"), "x"), owner("crowd", "c"), ()).unwrap();
    }
    assert_eq!(begin_all(&mut pulls).len(), 4);
    pulls.ask(&key("one", "x"), owner("quiet", "q"), ()).unwrap();
    assert_eq!(begin_all(&mut pulls), [key("one", "x")]);
}

#[test]
fn a_namespace_with_several_places_gives_way_to_one_that_has_waited_long() {
    for parallel in [2, 3, 5] {
        let mut pulls = Pulls::new(PullLimits { parallel, ..PullLimits::default() });
        let crowds: &[&str] = if parallel > 3 { &["crowd", "other"] } else { &["crowd"] };
        for crowd in crowds {
            for image in 0..9 {
                pulls.ask(&key(&format!("{crowd}{image}"), "x"), owner(crowd, crowd), false).unwrap();
            }
            begin_all(&mut pulls);
        }
        assert_eq!(pulls.running(), parallel);
        pulls.ask(&key("one", "x"), owner("quiet", "q"), true).unwrap();
        assert_eq!(
            (pulls.begin(), pulls.gives_way(|_| false, |_| true)),
            (None, None),
            "it has not waited long"
        );
        let way = pulls.gives_way(|waits| *waits, |_| false).expect("one has several places");
        assert!(way.image.starts_with("crowd") && way.image != "crowd0", "{way:?}: the oldest goes on");
        pulls.wait_again(&way);
        assert_eq!(
            (begin_all(&mut pulls), pulls.gives_way(|waits| *waits, |_| false)),
            (vec![key("one", "x")], None)
        );
        pulls.finished(&key("one", "x"));
        let next = pulls.begin().expect("there is room");
        assert_eq!(pulls.running(), parallel, "{next:?}");
        assert!(pulls.turn.contains(&way) || next == way, "it waits for another turn");
    }
}

#[test]
fn the_only_pull_of_a_namespace_goes_on_until_it_has_had_its_time() {
    let mut pulls = Pulls::new(limits(1));
    pulls.ask(&key("endless", "x"), owner("crowd", "c"), true).unwrap();
    assert_eq!(begin_all(&mut pulls).len(), 1);
    pulls.ask(&key("one", "x"), owner("quiet", "q"), true).unwrap();
    assert_eq!(pulls.gives_way(|_| true, |_| false), None);
    let way = pulls.gives_way(|_| true, |_| true).expect("it has had its time");
    assert_eq!(way, key("endless", "x"));
    pulls.wait_again(&way);
    assert_eq!(begin_all(&mut pulls), [key("one", "x")], "the other namespace's turn");
    pulls.finished(&key("one", "x"));
    assert_eq!(begin_all(&mut pulls), [key("endless", "x")]);
    assert_eq!(pulls.gives_way(|_| true, |_| true), None, "no other namespace waits");
}

#[test]
fn namespaces_take_turns_and_in_them_pods() {
    let mut pulls = Pulls::new(PullLimits { parallel: 1, ..PullLimits::default() });
    for number in 0..50 {
        pulls
            .ask(&key(&format!("crowd{number}"), "x"), owner("crowd", &format!("c{}", number / 25)), ())
            .unwrap();
    }
    let mut order = Vec::new();
    let mut running = pulls.begin().expect("nothing runs");
    for (image, pod) in [("one", "p"), ("two", "p"), ("three", "q")] {
        pulls.ask(&key(image, "x"), owner("quiet", pod), ()).unwrap();
    }
    while order.len() < 7 {
        order.push(running.image.clone());
        pulls.finished(&running);
        running = pulls.begin().expect("some wait");
    }
    assert_eq!(order, ["crowd0", "crowd25", "one", "crowd1", "three", "crowd26", "two"]);
}

#[test]
fn a_full_queue_gives_way_to_those_who_have_less_of_it() {
    let mut pulls = Pulls::new(limits(1));
    for (image, expected) in [
        ("a", Ok(Asked::Waits)),
        ("b", Ok(Asked::Waits)),
        ("c", Ok(Asked::Waits)),
        ("d", Err(QueueFull("d"))),
    ] {
        assert_eq!(pulls.ask(&key(image, "x"), owner("crowd", "1"), image), expected, "{image}");
        begin_all(&mut pulls);
    }
    assert_eq!(pulls.ask(&key("e", "x"), owner("quiet", "2"), "e"), Ok(Asked::InPlaceOf(vec!["c"])));
    assert_eq!(
        pulls.ask(&key("f", "x"), owner("quiet", "2"), "f"),
        Err(QueueFull("f")),
        "each has one place"
    );
    pulls.finished(&key("a", "x"));
    assert_eq!(begin_all(&mut pulls), [key("b", "x")]);
    pulls.finished(&key("b", "x"));
    assert_eq!(begin_all(&mut pulls), [key("e", "x")]);
}

#[test]
fn what_nobody_wants_any_more_makes_room() {
    let mut pulls = Pulls::new(limits(1));
    let key = |image| key(image, "x");
    for (image, asker) in [("a", 1), ("a", 2), ("b", 3), ("c", 4)] {
        pulls.ask(&key(image), owner("n", "p"), asker).unwrap();
        begin_all(&mut pulls);
    }
    assert_eq!(pulls.keep(&key("a"), |asker| *asker != 1), PullFate::Wanted);
    assert_eq!(pulls.keep(&key("b"), |_| false), PullFate::Unqueued);
    assert_eq!(pulls.keep(&key("a"), |_| false), PullFate::Cancel);
    assert_eq!(begin_all(&mut pulls), [key("c")]);
    assert_eq!(pulls.all().collect::<Vec<_>>(), [(&key("c"), &[4][..])]);
    assert_eq!((pulls.running(), pulls.waiting()), (1, 0));
    assert_eq!(pulls.keep(&key("a"), |_| false), PullFate::Wanted, "it is long gone");
    assert_eq!(pulls.keep(&key("c"), |_| false), PullFate::Cancel);
    assert_eq!((pulls.running(), pulls.waiting()), (0, 0));
}

proptest! {
    #[test]
    fn every_ask_is_answered_once_and_the_caps_hold(
        steps in proptest::collection::vec((0u8..3, 0u8..4, 0u8..3, 0u8..3), 1..200),
        parallel in 1usize..4,
    ) {
        let limits = PullLimits { parallel, waiting_max: 3, askers_max: 4 };
        let mut pulls = Pulls::new(limits);
        let (mut running, mut open) = (BTreeSet::new(), BTreeSet::new());
        for (asks, (step, image, share, who)) in steps.into_iter().enumerate() {
            let key = key(&image.to_string(), &share.to_string());
            if step == 2 {
                for asker in pulls.askers_mut(&key) { open.remove(asker); }
                let cancelled = pulls.keep(&key, |_| false) == PullFate::Cancel;
                prop_assert_eq!(running.remove(&key), cancelled);
            } else if step == 1 {
                match pulls.ask(&key, owner(&who.to_string(), &who.to_string()), asks) {
                    Ok(asked) => {
                        open.insert(asks);
                        if let Asked::InPlaceOf(gone) = asked {
                            prop_assert!(!gone.is_empty());
                            for asker in gone { prop_assert!(open.remove(&asker)); }
                        }
                    }
                    Err(QueueFull(back)) => prop_assert_eq!(back, asks),
                }
            } else if running.remove(&key) {
                let answered = pulls.finished(&key);
                prop_assert!(!answered.is_empty());
                for asker in answered { prop_assert!(open.remove(&asker)); }
            }
            for began in begin_all(&mut pulls) { prop_assert!(running.insert(began)); }
            prop_assert!(running.len() <= parallel);
            prop_assert_eq!(pulls.running(), running.len());
            for began in &running {
                let same = running.iter().filter(|other| other.image == began.image).count();
                prop_assert!(same <= limits.of_one_image());
            }
        }
        while let Some(key) = running.pop_first() {
            for asker in pulls.finished(&key) { open.remove(&asker); }
            running.extend(begin_all(&mut pulls));
        }
        prop_assert!(open.is_empty() && pulls.namespaces.last.is_empty() && pulls.pods.last.is_empty());
    }

    #[test]
    fn nobody_waits_longer_than_all_others_take_a_turn(crowd in 1usize..40, pods in 1usize..5) {
        let mut pulls = Pulls::new(PullLimits { parallel: 1, ..PullLimits::default() });
        for number in 0..crowd {
            let pod = format!("c{}", number % pods);
            pulls.ask(&key(&number.to_string(), "x"), owner("crowd", &pod), ()).unwrap();
        }
        let first = pulls.begin().expect("nothing runs");
        pulls.ask(&key("mine", "x"), owner("mine", "m"), ()).unwrap();
        pulls.finished(&first);
        let second = pulls.begin().expect("mine waits");
        pulls.finished(&second);
        let third = pulls.begin();
        prop_assert!(second.image == "mine" || third.is_some_and(|third| third.image == "mine"));
    }
}
