//! The bounded mailbox in front of an actor. It belongs to the actor's seat, not to an incarnation: waiting
//! messages survive a restart. Beside those that wait, as many again may be held for quarantined pods. Orders have a lane of
//! their own that a full mailbox cannot block.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::task::AtomicWaker;
use messages::{Key, PodUid, WhenFull};
use tokio::sync::Notify;

use crate::context::Subsystem;
use crate::envelope::Entry;
use crate::orders::Order;

/// The most observations, and the most faults, that wait in the control lane; more are refused. Each other
/// order waits at most once.
const ORDERS_MAX: usize = 64;

/// What the mailbox did with a message that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    Queued,
    /// It took the place of an older message with the same key.
    Replaced,
    /// It was queued, and the oldest message of its name was dropped.
    DroppedOldest,
    /// Its pod is quarantined: it is held aside until the release.
    Held,
    /// Held aside in place of an older one: only the latest per message name and key is held.
    HeldReplacing,
}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Full,
    Closed,
    Quarantined,
}

/// What the mailbox must know of a message to queue it.
pub(crate) struct Label {
    pub name: &'static str,
    /// Set only for messages of which the latest per key counts.
    pub key: Option<Key>,
    pub pod: Option<PodUid>,
    pub is_ask: bool,
}

pub(crate) struct Mailbox<A: Subsystem> {
    queue: Mutex<Queue<A>>,
    orders: Mutex<Orders>,
    pub waker: AtomicWaker,
    pub room: Notify,
}

/// Messages of one pod by name and key, the newest of each.
type HeldMessages<A> = BTreeMap<(&'static str, Option<Key>), Entry<A>>;

struct Queue<A: Subsystem> {
    // Removing from the middle leaves a hole, so that sequence numbers stay indices.
    entries: VecDeque<Option<Entry<A>>>,
    first: u64,
    waiting: usize,
    /// Those of them that have room of their own ([`Key::has_own_room`]).
    roomed: usize,
    bound: usize,
    open: bool,
    /// At most how many askers are on the list of `room`: one that has given up stays counted, and costs a
    /// vain wake.
    room_wanted: usize,
    // By message name, then key.
    by_key: BTreeMap<&'static str, BTreeMap<Key, u64>>,
    // The latest by message name and, where the latest per key counts, key.
    held: BTreeMap<PodUid, HeldMessages<A>>,
    /// How many those are: at most `bound`.
    held_count: usize,
}

impl<A: Subsystem> Mailbox<A> {
    pub fn new(bound: usize) -> Self {
        Self {
            queue: Mutex::new(Queue {
                entries: VecDeque::new(),
                first: 0,
                waiting: 0,
                roomed: 0,
                bound: bound.max(1),
                open: true,
                room_wanted: 0,
                by_key: BTreeMap::new(),
                held: BTreeMap::new(),
                held_count: 0,
            }),
            orders: Mutex::new(Orders::default()),
            waker: AtomicWaker::new(),
            room: Notify::new(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue<A>> {
        // Nothing that can panic runs under the lock, so the queue behind a poisoned lock is intact.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a message in, by the rule of its type. `entry` is only built when it is taken, beside the one that it
    /// replaces.
    pub fn post(
        &self,
        label: Label,
        when_full: WhenFull,
        entry: impl FnOnce(Label, Option<&Entry<A>>) -> Entry<A>,
    ) -> Result<Posted, Refusal> {
        let (was_empty, (posted, older)) = {
            let mut queue = self.queue();
            (queue.waiting == 0, queue.post(label, when_full, entry)?)
        };
        // Dropped outside the lock: the drop tells the asker of the older message, and runs a message's own
        // drop code.
        drop(older);
        // An actor that has seen messages waiting comes back for them: only the first message wakes it.
        if was_empty && posted == Posted::Queued {
            self.waker.wake();
        }
        Ok(posted)
    }

    pub fn pop(&self) -> Option<Entry<A>> {
        let (entry, wanted) = {
            let mut queue = self.queue();
            let entry = queue.pop()?;
            let wanted = queue.room_wanted > 0;
            queue.room_wanted = queue.room_wanted.saturating_sub(1);
            (entry, wanted)
        };
        if wanted {
            self.room.notify_one();
        }
        Some(entry)
    }

    /// An asker on the list of `room` waits: each message that leaves the mailbox wakes one such asker.
    pub fn want_room(&self) {
        let mut queue = self.queue();
        if queue.has_room() || !queue.open {
            drop(queue);
            self.room.notify_one();
        } else {
            queue.room_wanted += 1;
        }
    }

    pub fn depth(&self) -> usize {
        self.queue().waiting
    }

    pub fn bound(&self) -> usize {
        self.queue().bound
    }

    #[cfg(feature = "faults")]
    pub fn set_bound(&self, bound: usize) {
        self.queue().bound = bound.max(1);
    }

    /// Refuses all messages and orders from now on; returns how many messages were waiting.
    pub fn close(&self) -> usize {
        let (held, count) = {
            let mut queue = self.queue();
            queue.open = false;
            (std::mem::take(&mut queue.held), std::mem::take(&mut queue.held_count))
        };
        drop(held);
        drop(self.orders().close());
        count + self.clear()
    }

    /// Drops the waiting messages, so that their askers learn at once that no answer comes. Returns how many
    /// messages were dropped.
    pub fn clear(&self) -> usize {
        let mut queue = self.queue();
        queue.by_key.clear();
        queue.waiting = 0;
        queue.roomed = 0;
        let taken: Vec<_> = std::mem::take(&mut queue.entries).into_iter().flatten().collect();
        queue.first = 0;
        drop(queue);
        self.room.notify_waiters();
        taken.len()
    }

    /// From now on messages of this pod are held aside, the latest per message name and key. Returns how many
    /// waiting messages were dropped: asks, whose askers learn of the loss, older messages of a name, and those for which
    /// there is no room. Of the latter the incarnation that begins now is told again, since it asks for all facts.
    pub fn quarantine(&self, pod: &PodUid) -> usize {
        let dropped = self.queue().quarantine(pod);
        // What is held aside takes no room either.
        self.room.notify_waiters();
        dropped.len()
    }

    /// Whether messages of this pod are held aside.
    pub fn is_quarantined(&self, pod: &PodUid) -> bool {
        self.queue().held.contains_key(pod)
    }

    /// Queues the pod's held messages again, also beyond the bound: they were taken, so they are not lost, and what
    /// comes later is refused until there is room.
    pub fn release(&self, pod: &PodUid) {
        {
            let mut queue = self.queue();
            let held = queue.held.remove(pod).unwrap_or_default();
            queue.held_count -= held.len();
            held.into_values().for_each(|entry| queue.push(entry));
        }
        self.waker.wake();
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn order(&self, order: Order) {
        let refused = self.orders().push(order);
        drop(refused);
        self.waker.wake();
    }

    pub fn take_order(&self) -> Option<Order> {
        self.orders().pop()
    }
}

/// The control lane. A stop or kill is never refused, however many observations wait.
#[derive(Default)]
struct Orders {
    stop: bool,
    kill: Option<&'static str>,
    revive: bool,
    ping: bool,
    questions: VecDeque<Order>,
    #[cfg(feature = "faults")]
    faults: VecDeque<Order>,
    closed: bool,
}

impl Orders {
    /// Queues the order; returns it if its lane is full or the actor has ended.
    fn push(&mut self, order: Order) -> Option<Order> {
        if self.closed {
            return Some(order);
        }
        let lane = match order {
            Order::Stop => {
                self.stop = true;
                return None;
            }
            Order::Kill(why) => {
                self.kill.get_or_insert(why);
                return None;
            }
            Order::Revive => {
                self.revive = true;
                return None;
            }
            Order::Ping => {
                self.ping = true;
                return None;
            }
            Order::Observe(_) => &mut self.questions,
            #[cfg(feature = "faults")]
            Order::Fault(_) => &mut self.faults,
        };
        if lane.len() >= ORDERS_MAX {
            return Some(order);
        }
        lane.push_back(order);
        None
    }

    /// The most urgent order. Faults come before pings: a test that orders a fault and then work meets it.
    fn pop(&mut self) -> Option<Order> {
        if std::mem::take(&mut self.stop) {
            return Some(Order::Stop);
        }
        if let Some(why) = self.kill.take() {
            return Some(Order::Kill(why));
        }
        if std::mem::take(&mut self.revive) {
            return Some(Order::Revive);
        }
        #[cfg(feature = "faults")]
        if let Some(fault) = self.faults.pop_front() {
            return Some(fault);
        }
        if std::mem::take(&mut self.ping) {
            return Some(Order::Ping);
        }
        self.questions.pop_front()
    }

    /// Takes no orders from now on: dropping the returned observations tells their askers so.
    fn close(&mut self) -> VecDeque<Order> {
        self.closed = true;
        std::mem::take(&mut self.questions)
    }
}

impl<A: Subsystem> Queue<A> {
    fn post(
        &mut self,
        label: Label,
        when_full: WhenFull,
        entry: impl FnOnce(Label, Option<&Entry<A>>) -> Entry<A>,
    ) -> Result<(Posted, Option<Entry<A>>), Refusal> {
        if !self.open {
            return Err(Refusal::Closed);
        }
        if let Some(held) = label.pod.as_ref().and_then(|pod| self.held.get_mut(pod)) {
            if label.is_ask {
                return Err(Refusal::Quarantined);
            }
            let place = (label.name, label.key.clone());
            let older = held.get(&place);
            if older.is_none() && self.held_count >= self.bound {
                return Err(Refusal::Full);
            }
            let newer = entry(label, older);
            let older = held.insert(place, newer);
            self.held_count += usize::from(older.is_none());
            let posted = if older.is_some() { Posted::HeldReplacing } else { Posted::Held };
            return Ok((posted, older));
        }
        if let Some(key) = &label.key
            && let Some(&at) = self.by_key.get(label.name).and_then(|keys| keys.get(key))
            && let Some(older) = &mut self.entries[(at - self.first) as usize]
        {
            // The newer one takes over the place in the line.
            let newer = entry(label, Some(older));
            return Ok((Posted::Replaced, Some(std::mem::replace(older, newer))));
        }
        let (mut posted, mut oldest) = (Posted::Queued, None);
        let has_own_room = label.key.as_ref().is_some_and(Key::has_own_room);
        if !has_own_room && !self.has_room() {
            oldest = (when_full == WhenFull::DropOldest).then(|| self.take_oldest(label.name)).flatten();
            if oldest.is_none() {
                return Err(Refusal::Full);
            }
            posted = Posted::DroppedOldest;
        }
        self.push(entry(label, None));
        Ok((posted, oldest))
    }

    fn has_room(&self) -> bool {
        self.waiting - self.roomed < self.bound
    }

    fn push(&mut self, entry: Entry<A>) {
        if self.entries.len() > 2 * self.bound + 16 {
            self.close_holes();
        }
        if let Some(key) = &entry.key {
            let at = self.first + self.entries.len() as u64;
            self.by_key.entry(entry.name).or_default().insert(key.clone(), at);
        }
        self.roomed += usize::from(entry.has_own_room());
        self.entries.push_back(Some(entry));
        self.waiting += 1;
    }

    fn pop(&mut self) -> Option<Entry<A>> {
        while let Some(slot) = self.entries.pop_front() {
            self.first += 1;
            if let Some(entry) = slot {
                self.waiting -= 1;
                self.roomed -= usize::from(entry.has_own_room());
                if let Some(key) = &entry.key
                    && let Some(keys) = self.by_key.get_mut(entry.name)
                {
                    keys.remove(key);
                }
                return Some(entry);
            }
        }
        None
    }

    fn take_oldest(&mut self, name: &'static str) -> Option<Entry<A>> {
        let slot = self.entries.iter_mut().find(|slot| slot.as_ref().is_some_and(|e| e.name == name))?;
        self.waiting -= 1;
        slot.take()
    }

    fn close_holes(&mut self) {
        self.entries.retain(Option::is_some);
        self.by_key.clear();
        self.first = 0;
        for (at, entry) in self.entries.iter().flatten().enumerate() {
            if let Some(key) = &entry.key {
                self.by_key.entry(entry.name).or_default().insert(key.clone(), at as u64);
            }
        }
    }

    fn quarantine(&mut self, pod: &PodUid) -> Vec<Entry<A>> {
        let mut dropped = Vec::new();
        let held = self.held.entry(pod.clone()).or_default();
        for slot in &mut self.entries {
            if slot.as_ref().is_some_and(|entry| entry.pod.as_ref() == Some(pod)) {
                let entry = slot.take().expect("the slot was just seen to be taken");
                self.waiting -= 1;
                self.roomed -= usize::from(entry.has_own_room());
                let place = (entry.name, entry.key.clone());
                let has_place = self.held_count < self.bound || held.contains_key(&place);
                // A dropped ask tells its asker that the answer is lost.
                if entry.envelope.is_ask() || !has_place {
                    dropped.push(entry);
                } else {
                    let older = held.insert(place, entry);
                    self.held_count += usize::from(older.is_none());
                    dropped.extend(older);
                }
            }
        }
        self.close_holes();
        dropped
    }
}
