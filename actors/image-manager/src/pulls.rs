//! Which pulls run and which wait: one per image however many pods ask, different images side by side up to a cap
//! (row 30.7), so that one slow registry holds up nobody but those who want its image.

use std::collections::{BTreeMap, VecDeque};

/// How many pulls run at once and how many may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullLimits {
    /// Pulls that run at once; 1 is upstream's `serializeImagePulls`.
    pub parallel: usize,
    /// Images that wait for their turn.
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

    proptest! {
        #[test]
        fn every_ask_is_answered_once_and_the_cap_holds(
            steps in proptest::collection::vec((any::<bool>(), 0u8..6), 1..200),
            parallel in 1usize..4,
        ) {
            let mut pulls = Pulls::new(PullLimits { parallel, waiting_images_max: 3, askers_max: 4 });
            let (mut running, mut open) = (BTreeSet::new(), BTreeSet::new());
            for (asks, (is_ask, image)) in steps.into_iter().enumerate() {
                let image = image.to_string();
                if is_ask {
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
