//! Which pulls run and which wait: one per image however many pods ask, different images side by side up to a cap
//! (row 30.7), so that one slow registry holds up nobody but those who want its image.

use std::collections::{BTreeMap, VecDeque};

/// How many pulls run at once and how many may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullLimits {
    /// Pulls that run at once; 1 is upstream's `serializeImagePulls`.
    pub parallel: usize,
    /// Images that wait for their turn. Upstream's serial puller queues ten, and whoever comes then waits outside of
    /// that queue: nobody is turned away by either, so here the queue is only longer.
    pub waiting_images_max: usize,
    /// Askers that wait for one image.
    pub askers_max: usize,
}

impl Default for PullLimits {
    fn default() -> Self {
        Self { parallel: 5, waiting_images_max: 256, askers_max: 1024 }
    }
}

/// What became of an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Its pull begins now: the caller starts it.
    Begin,
    /// Somebody else's pull of the same image will answer it.
    Joined,
    /// It waits for its turn.
    Waits,
}

/// What becomes of a pull when askers have gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Somebody still wants it.
    Wanted,
    /// Nobody does. It had not begun, and does not.
    Unqueued,
    /// Nobody does, and it runs: the caller cancels it, and begins the pull of this image if there is one.
    Cancel(Option<String>),
}

/// Too much waits already; the asker gets its ask back.
#[derive(Debug, PartialEq, Eq)]
pub struct QueueFull<A>(pub A);

/// The pulls of the node. `A` is what has to be answered.
#[derive(Debug)]
pub struct Pulls<A> {
    limits: PullLimits,
    askers: BTreeMap<String, Vec<A>>,
    running: usize,
    turn: VecDeque<String>,
}

impl<A> Pulls<A> {
    /// Nothing runs.
    pub fn new(limits: PullLimits) -> Self {
        let limits = PullLimits { parallel: limits.parallel.max(1), ..limits };
        Self { limits, askers: BTreeMap::new(), running: 0, turn: VecDeque::new() }
    }

    /// Somebody wants `image` pulled.
    ///
    /// # Errors
    /// [`QueueFull`] when too many images, or too many askers of this one, wait already.
    pub fn ask(&mut self, image: &str, asker: A) -> Result<Asked, QueueFull<A>> {
        if let Some(askers) = self.askers.get_mut(image) {
            if askers.len() >= self.limits.askers_max {
                return Err(QueueFull(asker));
            }
            askers.push(asker);
            return Ok(Asked::Joined);
        }
        let begins = self.running < self.limits.parallel;
        if !begins && self.turn.len() >= self.limits.waiting_images_max {
            return Err(QueueFull(asker));
        }
        self.askers.insert(image.to_owned(), vec![asker]);
        if begins {
            self.running += 1;
            Ok(Asked::Begin)
        } else {
            self.turn.push_back(image.to_owned());
            Ok(Asked::Waits)
        }
    }

    /// The pull of `image` is over: who is to be answered, and whose pull begins now.
    pub fn finished(&mut self, image: &str) -> (Vec<A>, Option<String>) {
        let Some(askers) = self.askers.remove(image) else { return (Vec::new(), None) };
        self.running = self.running.saturating_sub(1);
        let next = self.turn.pop_front();
        if next.is_some() {
            self.running += 1;
        }
        (askers, next)
    }

    /// Forgets the askers of `image` that do not wait any more.
    pub fn keep(&mut self, image: &str, waits: impl FnMut(&A) -> bool) -> Kept {
        let Some(askers) = self.askers.get_mut(image) else { return Kept::Wanted };
        askers.retain(waits);
        if !askers.is_empty() {
            return Kept::Wanted;
        }
        match self.turn.iter().position(|queued| queued == image) {
            Some(place) => {
                self.turn.remove(place);
                self.askers.remove(image);
                Kept::Unqueued
            }
            None => Kept::Cancel(self.finished(image).1),
        }
    }

    /// Those who wait for `image`.
    pub fn askers_mut(&mut self, image: &str) -> &mut [A] {
        self.askers.get_mut(image).map_or(&mut [], Vec::as_mut_slice)
    }

    /// Every image that is pulled or waits for its turn, and who waits for it.
    pub fn images(&self) -> impl Iterator<Item = (&str, &[A])> {
        self.askers.iter().map(|(image, askers)| (image.as_str(), askers.as_slice()))
    }

    /// Pulls that run.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Images that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.turn.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn limits(parallel: usize) -> PullLimits {
        PullLimits { parallel, waiting_images_max: 2, askers_max: 2 }
    }

    #[test]
    fn one_pull_per_image_and_everybody_is_answered() {
        let mut pulls = Pulls::new(limits(1));
        assert_eq!(pulls.ask("a", 1), Ok(Asked::Begin));
        assert_eq!(pulls.ask("a", 2), Ok(Asked::Joined));
        assert_eq!(pulls.ask("a", 3), Err(QueueFull(3)));
        assert_eq!(pulls.ask("b", 4), Ok(Asked::Waits));
        assert_eq!(pulls.finished("a"), (vec![1, 2], Some("b".to_owned())));
        assert_eq!(pulls.finished("b"), (vec![4], None));
        assert_eq!(pulls.finished("b"), (vec![], None));
        assert_eq!((pulls.running(), pulls.waiting()), (0, 0));
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut pulls = Pulls::new(limits(1));
        for (image, expected) in [
            ("a", Ok(Asked::Begin)),
            ("b", Ok(Asked::Waits)),
            ("c", Ok(Asked::Waits)),
            ("d", Err(QueueFull(()))),
        ] {
            assert_eq!(pulls.ask(image, ()), expected, "{image}");
        }
    }

    #[test]
    fn what_nobody_wants_any_more_makes_room() {
        let mut pulls = Pulls::new(limits(1));
        for (image, asker) in [("a", 1), ("a", 2), ("b", 3), ("c", 4)] {
            pulls.ask(image, asker).unwrap();
        }
        assert_eq!(pulls.keep("a", |asker| *asker != 1), Kept::Wanted);
        assert_eq!(pulls.keep("b", |_| false), Kept::Unqueued);
        assert_eq!(pulls.keep("a", |_| false), Kept::Cancel(Some("c".to_owned())));
        assert_eq!(pulls.images().collect::<Vec<_>>(), [("c", &[4][..])]);
        assert_eq!((pulls.running(), pulls.waiting()), (1, 0));
        assert_eq!(pulls.keep("a", |_| false), Kept::Wanted, "it is long gone");
        assert_eq!(pulls.keep("c", |_| false), Kept::Cancel(None));
        assert_eq!((pulls.running(), pulls.waiting()), (0, 0));
    }

    proptest! {
        #[test]
        fn every_ask_is_answered_once_and_the_cap_holds(
            steps in proptest::collection::vec((0u8..3, 0u8..6), 1..200),
            parallel in 1usize..4,
        ) {
            let mut pulls = Pulls::new(PullLimits { parallel, waiting_images_max: 3, askers_max: 4 });
            let (mut running, mut open) = (BTreeSet::new(), BTreeSet::new());
            for (asks, (step, image)) in steps.into_iter().enumerate() {
                let image = image.to_string();
                if step == 2 {
                    for asker in pulls.askers_mut(&image) { open.remove(asker); }
                    match pulls.keep(&image, |_| false) {
                        Kept::Cancel(next) => {
                            prop_assert!(running.remove(&image));
                            if let Some(next) = next { prop_assert!(running.insert(next)); }
                        }
                        Kept::Wanted | Kept::Unqueued => prop_assert!(!running.contains(&image)),
                    }
                } else if step == 1 {
                    match pulls.ask(&image, asks) {
                        Ok(Asked::Begin) => {
                            prop_assert!(running.insert(image));
                            open.insert(asks);
                        }
                        Ok(_) => { open.insert(asks); }
                        Err(QueueFull(back)) => prop_assert_eq!(back, asks),
                    }
                } else if running.remove(&image) {
                    let (answered, next) = pulls.finished(&image);
                    prop_assert!(!answered.is_empty());
                    for asker in answered { prop_assert!(open.remove(&asker)); }
                    if let Some(next) = next { prop_assert!(running.insert(next)); }
                }
                prop_assert!(running.len() <= parallel);
                prop_assert_eq!(pulls.running(), running.len());
                prop_assert!(pulls.waiting() == 0 || running.len() == parallel);
            }
            while let Some(image) = running.pop_first() {
                let (answered, next) = pulls.finished(&image);
                for asker in answered { open.remove(&asker); }
                running.extend(next);
            }
            prop_assert!(open.is_empty());
        }
    }
}
