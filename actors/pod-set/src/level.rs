//! A single fact that its writer tells until it is known.

use std::time::Duration;

use messages::Delivery;
use supervision::{Address, Ctx, Subsystem};
use tokio::time::Instant;

use crate::listener::{EVERY, Listener};

/// A fact and its observers: each is told at once when the fact changes, and every minute again, since a message may be lost
/// after a mailbox has taken it. What a mailbox refuses is told again after a pause that doubles while it refuses. Observers
/// compare, and do nothing about a fact that they know.
///
/// `T` is the timer of the actor that tells the fact, and each fact has a timer of its own: at its end the actor calls
/// [`Level::due`].
#[derive(Clone, Debug)]
pub struct Level<M: Delivery, T> {
    fact: Option<M>,
    observers: Vec<Listener<M>>,
    timer: T,
}

impl<M: Delivery + Clone + PartialEq, T: Clone> Level<M, T> {
    /// A fact that is not known yet: nothing is told.
    pub fn new(observers: impl IntoIterator<Item = Address<M>>, timer: T) -> Self {
        Self { fact: None, observers: observers.into_iter().map(Listener::new).collect(), timer }
    }

    /// The fact as it is told.
    pub fn fact(&self) -> Option<&M> {
        self.fact.as_ref()
    }

    /// This is the fact from now on.
    pub fn set<A: Subsystem<Timer = T>>(&mut self, fact: M, ctx: &mut Ctx<A>) {
        self.put(fact);
        self.wake(ctx);
    }

    /// An observer of this name has begun anew, and knows nothing.
    pub fn asked<A: Subsystem<Timer = T>>(&mut self, receiver: &str, ctx: &mut Ctx<A>) {
        self.owe(|one| one.is(receiver));
        self.wake(ctx);
    }

    /// Tells what has become due.
    pub fn due<A: Subsystem<Timer = T>>(&mut self, ctx: &mut Ctx<A>) {
        self.tell();
        self.wake(ctx);
    }

    fn put(&mut self, fact: M) {
        if self.fact.as_ref() != Some(&fact) {
            self.fact = Some(fact);
            self.owe(|_| true);
        }
    }

    /// These observers are told now, however often they refused before.
    fn owe(&mut self, whom: impl Fn(&Listener<M>) -> bool) {
        let now = Instant::now();
        self.observers.iter_mut().filter(|one| whom(one)).for_each(|one| one.rest_until(now));
        self.tell();
    }

    fn tell(&mut self) {
        let Some(fact) = &self.fact else { return };
        let now = Instant::now();
        for observer in self.observers.iter_mut().filter(|one| one.next_at <= now) {
            match observer.address.tell(fact.clone()) {
                Ok(()) => observer.rest_until(now + EVERY),
                Err(_) => observer.refused(now),
            }
        }
    }

    /// After how long an observer is told next, if one is.
    fn due_in(&self) -> Option<Duration> {
        let next = self.observers.iter().map(|one| one.next_at).min().filter(|_| self.fact.is_some());
        next.map(|at| at.saturating_duration_since(Instant::now()))
    }

    fn wake<A: Subsystem<Timer = T>>(&self, ctx: &mut Ctx<A>) {
        if let Some(after) = self.due_in() {
            ctx.set_timer(self.timer.clone(), after);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};

    use messages::facts::{Pressure, PressureObserved};
    use supervision::fake::Received;

    use super::*;

    const NONE: PressureObserved = PressureObserved(Pressure { memory: false, disk: false, pid: false });
    const LOW: PressureObserved = PressureObserved(Pressure { memory: true, disk: false, pid: false });

    /// An observer, what it has taken and when, and whether it refuses.
    #[derive(Clone)]
    struct Neighbour {
        heard: Arc<Mutex<Vec<(u64, PressureObserved)>>>,
        refuses: Arc<AtomicBool>,
        tries: Arc<Mutex<Vec<u64>>>,
        began: Instant,
    }

    impl Neighbour {
        fn new() -> Self {
            let began = Instant::now();
            Self { heard: Arc::default(), refuses: Arc::default(), tries: Arc::default(), began }
        }

        fn address(&self, name: &'static str) -> Address<PressureObserved> {
            let own = self.clone();
            Address::scripted(name, move |fact: PressureObserved| {
                let at = own.began.elapsed().as_secs();
                own.tries.lock().unwrap().push(at);
                if own.refuses.load(Ordering::Relaxed) {
                    return Received::Full(fact);
                }
                own.heard.lock().unwrap().push((at, fact));
                Received::Lost
            })
        }

        fn refuse(&self, refuses: bool) {
            self.refuses.store(refuses, Ordering::Relaxed);
        }

        fn heard(&self) -> Vec<(u64, PressureObserved)> {
            std::mem::take(&mut self.heard.lock().unwrap())
        }

        fn tries(&self) -> Vec<u64> {
            std::mem::take(&mut self.tries.lock().unwrap())
        }
    }

    type Told = Level<PressureObserved, ()>;

    /// Lets so many seconds pass, with the timer that the level sets.
    async fn pass(level: &mut Told, seconds: u64) {
        let end = Instant::now() + Duration::from_secs(seconds);
        while let Some(after) = level.due_in()
            && Instant::now() + after <= end
        {
            tokio::time::advance(after).await;
            level.tell();
        }
        tokio::time::advance(end - Instant::now()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_fact_is_told_when_it_changes_and_every_minute() {
        let one = Neighbour::new();
        let mut level = Told::new([one.address("One")], ());
        assert_eq!((level.due_in(), level.fact()), (None, None), "what is not known is not told");
        level.put(NONE);
        level.put(NONE);
        assert_eq!(one.heard(), [(0, NONE)]);
        pass(&mut level, 10).await;
        level.put(LOW);
        assert_eq!((one.heard(), level.fact()), (vec![(10, LOW)], Some(&LOW)));
        pass(&mut level, 130).await;
        assert_eq!(one.heard(), [(70, LOW), (130, LOW)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_is_told_again_after_a_pause_that_doubles() {
        let (one, other) = (Neighbour::new(), Neighbour::new());
        let mut level = Told::new([one.address("One"), other.address("Other")], ());
        one.refuse(true);
        level.put(NONE);
        pass(&mut level, 200).await;
        assert_eq!(one.tries(), [0, 1, 3, 7, 15, 31, 63, 123, 183]);
        assert_eq!(other.tries(), [0, 60, 120, 180], "another one's refusals are no matter of its");
        one.refuse(false);
        pass(&mut level, 50).await;
        assert_eq!(one.heard(), [(243, NONE)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_tried_at_once_and_the_fact_that_is_owed_is_the_newest() {
        let one = Neighbour::new();
        let mut level = Told::new([one.address("One")], ());
        one.refuse(true);
        level.put(NONE);
        pass(&mut level, 20).await;
        one.tries();
        level.put(LOW);
        one.refuse(false);
        pass(&mut level, 5).await;
        assert_eq!((one.tries(), one.heard()), (vec![20, 21], vec![(21, LOW)]));
    }

    #[tokio::test(start_paused = true)]
    async fn an_observer_that_asks_is_told_and_no_other() {
        let (one, other) = (Neighbour::new(), Neighbour::new());
        let mut level = Told::new([one.address("One"), other.address("Other")], ());
        level.owe(|_| true);
        assert_eq!(one.heard(), []);
        level.put(NONE);
        pass(&mut level, 5).await;
        level.owe(|one| one.is("One"));
        assert_eq!((one.heard(), other.heard()), (vec![(0, NONE), (5, NONE)], vec![(0, NONE)]));
    }
}
