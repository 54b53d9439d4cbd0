//! Plans of collections.

use bridge_cri::wire::Image;
use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;

fn policy() -> CollectionPolicy {
    CollectionPolicy { high_percent: 85, ..CollectionPolicy::default() }
}

fn image(id: &str, bytes: u64) -> Image {
    Image { id: id.to_owned(), repo_tags: vec![format!("r.io/{id}:1")], size: bytes, ..Image::default() }
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

fn ids(images: &[Candidate]) -> Vec<&str> {
    images.iter().map(|image| image.id.as_str()).collect()
}

/// Carries a plan out; answers which images went, in their order.
fn carried_out(mut plan: Plan) -> Vec<String> {
    let mut gone = Vec::new();
    while let Some(image) = plan.take_next() {
        plan.freed(image.bytes);
        gone.push(image.id);
    }
    gone
}

#[test]
fn a_disk_is_full_from_the_high_threshold_on_and_is_emptied_to_the_low_one() {
    const GIB: u64 = 1 << 30;
    let judge = |available: u64| policy().judge(100 * GIB, i64::try_from(available).unwrap());
    assert_eq!(judge(16 * GIB), DiskFill::Enough);
    assert_eq!(judge(15 * GIB), DiskFill::Full { percent: 85, bytes: 5 * GIB });
    assert_eq!(judge(0), DiskFill::Full { percent: 100, bytes: 20 * GIB });
    assert_eq!(judge(200 * GIB), DiskFill::Enough, "more than there is counts as all");
    assert_eq!(policy().judge(10, -5), DiskFill::Full { percent: 100, bytes: 2 });
    assert_eq!(policy().judge(0, 0), DiskFill::Invalid);
    let huge = policy().judge(u64::MAX, 0);
    assert_eq!(huge, DiskFill::Full { percent: 100, bytes: u64::MAX / 5 });
}

#[test]
fn a_policy_without_thresholds_and_ages_is_off() {
    assert!(!CollectionPolicy::default().is_on());
    assert!(policy().is_on());
    assert!(CollectionPolicy { max_age: Some(SECOND), ..CollectionPolicy::default() }.is_on());
}

#[test]
fn what_was_not_used_for_longest_goes_first_and_what_is_used_or_pinned_stays() {
    let mut times = Times::default();
    let all = |ids: &[&str]| -> Vec<Image> { ids.iter().map(|id| image(id, MIB)).collect() };
    times.detect(&all(&["new-a", "used-late", "used-early"]).into(), SECOND);
    times.look(all(&["new-a", "used-late", "used-early"]), &names(&["used-early"]), 2 * SECOND);
    let mut there = all(&["new-a", "new-b", "used-late", "used-early", "pinned", "by-tag", "by-id"]);
    there[4].pinned = true;
    times.look(there.clone(), &names(&["used-late"]), 3 * SECOND);
    let used = names(&["by-id", "r.io/by-tag:1"]);
    let unused = times.look(there.clone(), &used, 9 * SECOND);
    assert_eq!(ids(&unused), ["new-a", "new-b", "used-early", "used-late"]);

    // An image that has gone and come again is a new one.
    times.detect(&all(&["new-b"]).into(), 10 * SECOND);
    times.forget("new-b");
    let unused = times.look(all(&["new-b", "new-a"]), &names(&[]), 11 * SECOND);
    let plan = Plan::for_space(unused, &policy(), 125 * SECOND, None);
    assert_eq!(carried_out(plan), [] as [&str; 0], "both are younger than two minutes");
}

#[test]
fn an_image_goes_for_space_from_its_minimum_age_on_until_enough_is_freed() {
    let mut times = Times::default();
    times.detect(&vec![image("b", 3 * MIB), image("a", 3 * MIB)].into(), SECOND);
    let there = vec![image("a", 3 * MIB), image("b", 3 * MIB), image("young", 3 * MIB)];
    let unused = times.look(there, &names(&[]), 2 * SECOND);
    let plan = |now, goal| Plan::for_space(unused.clone(), &policy(), now, goal);
    assert_eq!(carried_out(plan(120 * SECOND, None)), [] as [&str; 0]);
    assert_eq!(carried_out(plan(121 * SECOND, None)), ["a", "b"]);
    assert_eq!(carried_out(plan(122 * SECOND, None)), ["a", "b", "young"]);
    assert_eq!(carried_out(plan(122 * SECOND, Some(3 * MIB))), ["a"]);
    assert_eq!(carried_out(plan(122 * SECOND, Some(3 * MIB + 1))), ["a", "b"]);
    assert_eq!(carried_out(plan(122 * SECOND, Some(0))), [] as [&str; 0]);
    assert!(plan(122 * SECOND, Some(1)).is_short() && !plan(122 * SECOND, None).is_short());
}

#[test]
fn an_image_is_too_old_when_it_was_idle_for_longer_than_the_maximum() {
    let policy = CollectionPolicy { max_age: Some(600 * SECOND), ..policy() };
    let mut times = Times::default();
    let there = vec![image("never", MIB), image("once", MIB)];
    times.look(there.clone(), &names(&["once"]), 100 * SECOND);
    let unused = times.look(there, &names(&[]), 200 * SECOND);
    for (now, old) in [(700, vec![]), (701, vec!["never", "once"])] {
        let (plan, rest) = Plan::of_age(unused.clone(), &policy, now * SECOND);
        assert_eq!(plan.reason(), Reason::Age);
        assert_eq!((carried_out(plan).len(), rest.len()), (old.len(), 2 - old.len()), "{now}");
    }
    let mut times = Times::default();
    let there = vec![image("never", MIB), image("once", MIB)];
    times.detect(&there.clone().into(), SECOND);
    times.look(there.clone(), &names(&["once"]), 100 * SECOND);
    let unused = times.look(there, &names(&[]), 650 * SECOND);
    let (plan, rest) = Plan::of_age(unused, &policy, 650 * SECOND);
    assert_eq!((carried_out(plan), ids(&rest)), (vec!["never".to_owned()], vec!["once"]));
}

#[test]
fn times_are_remembered_of_so_many_images_and_others_stay() {
    let mut times = Times::default();
    let there: Vec<Image> = (0..IMAGES_MAX + 5).map(|number| image(&format!("{number:08}"), 1)).collect();
    let unused = times.look(there.clone(), &names(&[]), SECOND);
    assert_eq!(unused.len(), IMAGES_MAX);
    let unused = times.look(there[IMAGES_MAX..].to_vec(), &names(&[]), 2 * SECOND);
    assert_eq!(unused.len(), 5, "there is room again");
}

#[test]
fn failures_are_told_in_upstreams_words() {
    let old = CollectionPolicy { max_age: Some(Duration::from_secs(86_400)), ..policy() };
    assert_eq!(
        Plan::default().failure(&old, "x"),
        "wanted to free images older than 24h0m0s, encountered errors in image deletion: x"
    );
    let mut plan = Plan::for_space(Vec::new(), &old, SECOND, Some(7));
    plan.freed(3);
    assert_eq!(
        plan.failure(&old, "x"),
        "wanted to free 7 bytes, but freed 3 bytes space with errors in image deletion: x"
    );
    assert_eq!(
        too_little(93, 100 << 30, 5),
        "Insufficient free disk space on the node's image filesystem (93% of 100.0 GiB used). \
         Failed to free sufficient space by deleting unused images (freed 5 bytes). \
         Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
    );
    let sizes = [0, 1023, 1024, 1536, 3 << 20, 5 << 40].map(size);
    assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "3.0 MiB", "5.0 TiB"]);
}

/// An image of a random node: its size, whether it is pinned or in use, and when it was detected and used before.
type Drawn = (u64, bool, bool, u64, Option<u64>);

fn node(images: &[Drawn]) -> (Times, Vec<Image>, BTreeSet<String>) {
    let (mut there, mut used) = (Vec::new(), BTreeSet::new());
    let mut known = BTreeMap::new();
    for (number, (bytes, pinned, in_use, detected, used_at)) in images.iter().enumerate() {
        let one = Image { pinned: *pinned, ..image(&format!("image-{number}"), *bytes) };
        let used_at = used_at.map(|at| Duration::from_secs(at.max(*detected)));
        known.insert(one.id.clone(), Known { detected: Duration::from_secs(*detected), used: used_at });
        if *in_use {
            used.insert(one.id.clone());
        }
        there.push(one);
    }
    (Times(known), there, used)
}

proptest! {
    #[test]
    fn a_collection_deletes_no_more_than_it_needs_and_never_what_must_stay(
        images in prop::collection::vec(
            (0_u64..1000, any::<bool>(), any::<bool>(), 0_u64..1000, prop::option::of(0_u64..1000)),
            0..30,
        ),
        goal in prop::option::of(0_u64..10_000),
        min_age in 0_u64..500,
        max_age in prop::option::of(1_u64..1500),
    ) {
        let policy = CollectionPolicy {
            min_age: Duration::from_secs(min_age),
            max_age: max_age.map(Duration::from_secs),
            ..policy()
        };
        let now = Duration::from_secs(1000);
        let (mut times, there, used) = node(&images);
        let before = times.clone();
        let unused = times.look(there.clone(), &used, now);
        let order = unused.clone();
        let (of_age, rest) = Plan::of_age(unused, &policy, now);
        let old = carried_out(of_age);
        let mut for_space = Plan::for_space(rest, &policy, now, goal);
        let mut freed = 0;
        let mut gone: Vec<String> = old.clone();
        while let Some(image) = for_space.take_next() {
            prop_assert!(goal.is_none_or(|goal| freed < goal), "enough was freed");
            for_space.freed(image.bytes);
            freed += image.bytes;
            gone.push(image.id);
        }
        prop_assert_eq!(for_space.bytes_freed(), freed);
        for id in &gone {
            let image = there.iter().find(|image| image.id == *id).expect("it was there");
            let known = before.0[id];
            prop_assert!(!image.pinned && !used.contains(id));
            prop_assert!(now - known.detected >= policy.min_age);
        }
        for id in &old {
            let idle = now - before.0[id].used.unwrap_or(before.0[id].detected);
            prop_assert!(policy.max_age.is_some_and(|oldest| idle > oldest));
        }
        // What stayed is in use, pinned, too young, or not needed.
        if goal.is_none() {
            let stays = order.iter().filter(|image| !gone.contains(&image.id));
            for image in stays {
                prop_assert!(now - before.0[&image.id].detected < policy.min_age);
            }
        }
        // Those that went for space are in the order of last use, and none before them was passed over that could have gone.
        let rank = |id: &String| order.iter().position(|image| image.id == *id);
        let ranks: Vec<_> = gone[old.len()..].iter().map(rank).collect();
        prop_assert!(ranks.is_sorted());
        // All that are there and not over the bound are remembered, and what is in use was used now.
        prop_assert_eq!(times.0.len(), there.len());
        for id in &used {
            prop_assert_eq!(times.0[id].used, Some(now));
        }
    }
}
