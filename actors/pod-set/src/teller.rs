//! A writer that tells its set to the actors that follow it.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use messages::pod_set::{GonePod, PodSetUpdate};
use messages::{Delivery, PodUid};
use supervision::{Address, Ctx, Subsystem};
use tokio::time::Instant;

use crate::journal::Journal;
use crate::listener::{EVERY, Listener};

/// After a change a digest is told so soon: those that are told of the change have heard of it by then, unless it was lost.
const SOON: Duration = Duration::from_secs(1);
/// A follower is sent everything at most so often: a storm of restarts costs no more than one.
const BETWEEN_SNAPSHOTS: Duration = Duration::from_secs(1);
/// A follower that is owed more pods than this is sent everything.
const OWED_PODS_MAX: usize = 256;
/// Pods that are over stay in a set until there are more of them.
const OVER_MAX: usize = 256;

/// What a follower has not been told for want of room, or has asked for.
#[derive(Clone, Debug, PartialEq)]
enum Owed {
    Pods(BTreeSet<PodUid>),
    All,
}

const NOTHING: Owed = Owed::Pods(BTreeSet::new());

#[derive(Clone, Debug)]
struct Follower<M: Delivery> {
    /// What it is owed is told when its time comes.
    to: Listener<M>,
    owed: Owed,
    /// It has taken a snapshot of this writer's, so that single changes tell it something.
    has_begun: bool,
}

impl<M: Delivery> Follower<M> {
    fn owes(&mut self, uid: &PodUid) {
        if let Owed::Pods(pods) = &mut self.owed {
            pods.insert(uid.clone());
            if pods.len() > OWED_PODS_MAX {
                self.owed = Owed::All;
            }
        }
    }
}

/// Those that follow a set: each hears of every change, and of a digest a moment after a change and every minute. What a
/// follower's mailbox refuses it is owed, and told later. Nothing is told before [`Followers::begin`].
///
/// `T` is the timer of the actor that tells the set, and each set has a timer of its own, as each
/// [`Level`](crate::Level) has: at its end the actor calls [`Followers::due`], and after changes [`Followers::wake`].
#[derive(Clone, Debug)]
pub struct Followers<V, M: Delivery, T> {
    followers: Vec<Follower<M>>,
    message: fn(PodSetUpdate<V>) -> M,
    has_begun: bool,
    digest_at: Instant,
    timer: T,
    /// The moment for which the timer is set.
    woken_at: Option<Instant>,
}

impl<V: Clone, M: Delivery, T: Clone> Followers<V, M, T> {
    /// Followers that are owed everything, in messages that `message` makes.
    pub fn new(
        followers: impl IntoIterator<Item = Address<M>>,
        message: fn(PodSetUpdate<V>) -> M,
        timer: T,
    ) -> Self {
        let follower = |address| Follower { to: Listener::new(address), owed: Owed::All, has_begun: false };
        Self {
            followers: followers.into_iter().map(follower).collect(),
            message,
            has_begun: false,
            digest_at: Instant::now() + EVERY,
            timer,
            woken_at: None,
        }
    }

    /// The followers are told from now on, first everything.
    pub fn begin<A: Subsystem<Timer = T>>(&mut self, journal: &Journal<V>, ctx: &mut Ctx<A>) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.tell_owed(journal);
        }
        self.wake(ctx);
    }

    /// Tells a change of the set.
    pub fn tell(&mut self, update: &PodSetUpdate<V>, journal: &Journal<V>) {
        let Some(uid) = update.pod().filter(|_| self.has_begun) else { return self.tell_all(journal) };
        let now = Instant::now();
        for follower in self.followers.iter_mut().filter(|one| one.has_begun) {
            if follower.owed == Owed::All {
                // The snapshot that it is owed has this change, too, but comes later.
                follower.to.address.tell_level((self.message)(update.clone()));
            } else if follower.to.address.tell((self.message)(update.clone())).is_err() {
                if follower.owed == NOTHING {
                    follower.to.refused(now);
                }
                follower.owes(uid);
            } else if let Owed::Pods(pods) = &mut follower.owed {
                pods.remove(uid);
            }
        }
        self.digest_at = self.digest_at.min(now + SOON);
    }

    fn tell_all(&mut self, journal: &Journal<V>) {
        for follower in &mut self.followers {
            follower.owed = Owed::All;
        }
        self.tell_owed(journal);
    }

    /// A follower of this name has begun anew or has missed something.
    pub fn asked<A: Subsystem<Timer = T>>(&mut self, receiver: &str, journal: &Journal<V>, ctx: &mut Ctx<A>) {
        let soon = Instant::now() + BETWEEN_SNAPSHOTS;
        for follower in self.followers.iter_mut().filter(|one| one.to.is(receiver)) {
            follower.owed = Owed::All;
            follower.to.rest_until(follower.to.next_at.min(soon));
        }
        self.tell_owed(journal);
        self.wake(ctx);
    }

    /// Tells followers what they are owed, those whose time has come.
    fn tell_owed(&mut self, journal: &Journal<V>) {
        if !self.has_begun {
            return;
        }
        let now = Instant::now();
        for follower in &mut self.followers {
            if follower.owed == NOTHING || follower.to.next_at > now {
                continue;
            }
            let tell = |update| follower.to.address.tell((self.message)(update)).is_ok();
            let taken = match &mut follower.owed {
                Owed::All => tell(journal.snapshot()),
                Owed::Pods(pods) => {
                    // Of a pod that is quarantined there the news may be refused while there is room for others.
                    pods.retain(|uid| !journal.level(uid).is_none_or(tell));
                    pods.is_empty()
                }
            };
            if taken {
                let is_all = follower.owed == Owed::All;
                follower.has_begun |= is_all;
                follower.to.rest_until(if is_all { now + BETWEEN_SNAPSHOTS } else { now });
                follower.owed = NOTHING;
            } else {
                follower.to.refused(now);
            }
        }
    }

    /// Tells what has become due.
    pub fn due<A: Subsystem<Timer = T>>(&mut self, journal: &Journal<V>, ctx: &mut Ctx<A>) {
        self.woken_at = None;
        self.tell_owed(journal);
        let now = Instant::now();
        if self.has_begun && self.digest_at <= now {
            self.digest_at = now + EVERY;
            let digest = PodSetUpdate::Digest(journal.digest());
            for follower in &self.followers {
                follower.to.address.tell_level((self.message)(digest.clone()));
            }
        }
        self.wake(ctx);
    }

    /// Sets the timer for what is to be told later, if it is not set for an earlier moment.
    pub fn wake<A: Subsystem<Timer = T>>(&mut self, ctx: &mut Ctx<A>) {
        let owed = self.followers.iter().filter(|one| one.owed != NOTHING).map(|one| one.to.next_at);
        let at = owed.fold(self.digest_at, Instant::min);
        if self.has_begun && self.woken_at.is_none_or(|set| set > at) {
            self.woken_at = Some(at);
            ctx.set_timer(self.timer.clone(), at.saturating_duration_since(Instant::now()));
        }
    }
}

/// A set and those that follow it ([`Followers`]).
#[derive(Clone, Debug)]
pub struct Teller<V, M: Delivery, T> {
    journal: Journal<V>,
    followers: Followers<V, M, T>,
    /// Pods that were put for the last time, the oldest first.
    over: VecDeque<PodUid>,
}

impl<V: Clone, M: Delivery, T: Clone> Teller<V, M, T> {
    /// The empty set of a writer in this incarnation.
    pub fn new(
        incarnation: u64,
        followers: impl IntoIterator<Item = Address<M>>,
        message: fn(PodSetUpdate<V>) -> M,
        timer: T,
    ) -> Self {
        let followers = Followers::new(followers, message, timer);
        Self { journal: Journal::new(incarnation), followers, over: VecDeque::new() }
    }

    /// The set as it is told.
    pub fn set(&self) -> &Journal<V> {
        &self.journal
    }

    /// As [`Followers::begin`].
    pub fn begin<A: Subsystem<Timer = T>>(&mut self, ctx: &mut Ctx<A>) {
        self.followers.begin(&self.journal, ctx);
    }

    /// The pod is in the set with this value from now on.
    pub fn put(&mut self, uid: &PodUid, value: V) {
        self.over.retain(|one| one != uid);
        let update = self.journal.put(uid, value);
        self.followers.tell(&update, &self.journal);
    }

    /// The same for the last value of a pod that is over: it leaves the set when there are many newer ones. What waits in a
    /// follower's mailbox is replaced by what comes later, so a value that is to be heard has to stay.
    pub fn put_last(&mut self, uid: &PodUid, value: V) {
        self.put(uid, value);
        self.over.push_back(uid.clone());
        if self.over.len() > OVER_MAX
            && let Some(oldest) = self.over.pop_front()
        {
            self.remove(&oldest, GonePod::default());
        }
    }

    /// Puts a value that says the same to followers in the place of the one that is there: only a snapshot shows it.
    pub fn refresh(&mut self, uid: &PodUid, value: V) {
        self.journal.refresh(uid, value);
    }

    /// The pod is not in the set any more.
    pub fn remove(&mut self, uid: &PodUid, gone: GonePod) {
        self.over.retain(|one| one != uid);
        if let Some(update) = self.journal.remove(uid, gone) {
            self.followers.tell(&update, &self.journal);
        }
    }

    /// The pod is there and cannot be read.
    pub fn unread(&mut self, uid: &PodUid) {
        if let Some(update) = self.journal.unread(uid) {
            self.followers.tell(&update, &self.journal);
        }
    }

    /// The set is complete from now on: a pod that it does not name is not there.
    pub fn completed(&mut self) {
        if self.journal.completed() {
            self.followers.tell_all(&self.journal);
        }
    }

    /// As [`Followers::asked`].
    pub fn asked<A: Subsystem<Timer = T>>(&mut self, receiver: &str, ctx: &mut Ctx<A>) {
        self.followers.asked(receiver, &self.journal, ctx);
    }

    /// As [`Followers::due`].
    pub fn due<A: Subsystem<Timer = T>>(&mut self, ctx: &mut Ctx<A>) {
        self.followers.due(&self.journal, ctx);
    }

    /// As [`Followers::wake`].
    pub fn wake<A: Subsystem<Timer = T>>(&mut self, ctx: &mut Ctx<A>) {
        self.followers.wake(ctx);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use messages::facts::ProbeVerdict;
    use supervision::fake::Received;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pod_whose_news_are_refused_holds_up_no_other_that_is_owed() {
        let [a, b] = ["a", "b"].map(PodUid::new);
        let refused = Arc::new(Mutex::new(vec![a.clone(), b.clone()]));
        let told = Arc::new(Mutex::new(Vec::new()));
        let (refuses, tells) = (refused.clone(), told.clone());
        let address = Address::scripted("Follower", move |ProbeVerdict(update)| {
            match update.pod().filter(|uid| refuses.lock().unwrap().contains(uid)) {
                Some(_) => Received::Full(ProbeVerdict(update)),
                None => {
                    tells.lock().unwrap().extend(update.pod().cloned());
                    Received::Answered(())
                }
            }
        });
        let mut teller = Teller::new(1, [address], ProbeVerdict, ());
        teller.followers.has_begun = true;
        teller.followers.tell_owed(&teller.journal);
        teller.put(&a, Arc::default());
        teller.put(&b, Arc::default());
        refused.lock().unwrap().pop();
        tokio::time::advance(SOON).await;
        teller.followers.tell_owed(&teller.journal);
        assert_eq!(*told.lock().unwrap(), [b]);
        refused.lock().unwrap().clear();
        tokio::time::advance(EVERY).await;
        teller.followers.tell_owed(&teller.journal);
        assert_eq!(told.lock().unwrap().last(), Some(&a));
    }
}
