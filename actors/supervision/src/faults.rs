//! Fault orders, carried out at the one place that every message passes. Without the feature `faults` the
//! type `Faults` is empty and its methods do nothing.

use std::cell::RefCell;
use std::task::Context;

use crate::cell::Cell;
use crate::context::Subsystem;
use crate::envelope::Entry;
use crate::pump::Lane;

#[cfg(feature = "faults")]
pub(crate) use armed::Faults;
#[cfg(not(feature = "faults"))]
pub(crate) use unarmed::Faults;

#[cfg(not(feature = "faults"))]
mod unarmed {
    use super::{Cell, Context, Entry, Lane, RefCell, Subsystem};

    pub(crate) struct Faults<A>(std::marker::PhantomData<fn(A)>);

    impl<A> Default for Faults<A> {
        fn default() -> Self {
            Self(std::marker::PhantomData)
        }
    }

    #[allow(clippy::unused_self)]
    impl<A: Subsystem> Faults<A> {
        pub fn meet(&mut self, entry: Entry<A>, _cell: &Cell) -> Option<Entry<A>> {
            Some(entry)
        }
        pub fn poll_delayed(&mut self, _cx: &mut Context<'_>) -> Option<Entry<A>> {
            None
        }
        pub fn stalled(&mut self, _cx: &mut Context<'_>) -> bool {
            false
        }
        pub fn maybe_panic(_lane: &RefCell<Lane<A>>, _name: &str) {}
        pub fn maybe_panic_now(_lane: &RefCell<Lane<A>>) {}
        pub fn starting(&mut self) {}
    }
}

#[cfg(feature = "faults")]
mod armed {
    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::time::Duration;

    use messages::PodUid;
    use messages::supervision::Fault;
    use tokio::time::{Instant, Sleep};

    use super::{Cell, Context, Entry, Lane, RefCell, Subsystem};
    use crate::blame::poison;

    /// Faults that are ordered and not yet carried out. They outlive incarnations: the nth message is counted
    /// over crashes.
    pub(crate) struct Faults<A: Subsystem> {
        orders: Vec<Fault>,
        again: VecDeque<Entry<A>>,
        delayed: Vec<Delayed<A>>,
        wake: Option<Pin<Box<Sleep>>>,
        stalled: bool,
        poison: Vec<(PodUid, u32)>,
    }

    struct Delayed<A: Subsystem> {
        until: Instant,
        entry: Entry<A>,
        /// Whether others of its name wait behind it.
        holds: bool,
    }

    impl<A: Subsystem> Default for Faults<A> {
        fn default() -> Self {
            Self {
                orders: Vec::new(),
                again: VecDeque::new(),
                delayed: Vec::new(),
                wake: None,
                stalled: false,
                poison: Vec::new(),
            }
        }
    }

    impl<A: Subsystem> Faults<A> {
        pub fn add(&mut self, fault: Fault) {
            match fault {
                Fault::Stall => self.stalled = true,
                Fault::PoisonPod { pod, times } => self.poison.push((pod, times)),
                other => self.orders.push(other),
            }
        }

        /// Called before the actor's poll and after it: gives the thread this actor's poison orders and takes
        /// them back.
        pub fn exchange_poison(&mut self) {
            self.poison.retain(|(_, left)| *left > 0);
            poison::exchange(&mut self.poison);
        }

        /// A new incarnation is not stalled any more.
        pub fn reset_stall(&mut self) {
            self.stalled = false;
        }

        pub fn stalled(&mut self, _cx: &mut Context<'_>) -> bool {
            self.stalled
        }

        /// Panics if a fault orders the next start to fail.
        pub fn starting(&mut self) {
            let due = self.orders.iter().position(|fault| matches!(fault, Fault::PanicWhileStarting { .. }));
            if let Some(at) = due {
                if let Fault::PanicWhileStarting { times } = &mut self.orders[at] {
                    *times = times.saturating_sub(1);
                    if *times == 0 {
                        self.orders.remove(at);
                    }
                }
                panic!("fault: panic while starting");
            }
        }

        pub fn maybe_panic_now(lane: &RefCell<Lane<A>>) {
            let due = {
                let orders = &mut lane.borrow_mut().faults.orders;
                let at = orders.iter().position(|fault| matches!(fault, Fault::PanicNow));
                at.map(|at| orders.remove(at)).is_some()
            };
            assert!(!due, "fault: panic now");
        }

        /// Panics if a fault orders it for the nth piece of work of that name and this is the nth.
        pub fn maybe_panic(lane: &RefCell<Lane<A>>, name: &str) {
            let due = {
                let orders = &mut lane.borrow_mut().faults.orders;
                let mut due = None;
                for (at, fault) in orders.iter_mut().enumerate() {
                    if let Fault::PanicOn { message, nth } = fault
                        && message == name
                    {
                        *nth = nth.saturating_sub(1);
                        if *nth == 0 {
                            due = Some(at);
                        }
                        break;
                    }
                }
                due.map(|at| orders.remove(at)).is_some()
            };
            assert!(!due, "fault: panic on {name}");
        }

        /// Applies faults to an entry; the result is what to handle now, or nothing if the entry is dropped
        /// or delayed.
        pub fn meet(&mut self, entry: Entry<A>, cell: &Cell) -> Option<Entry<A>> {
            let before = self.delayed.iter().filter(|one| one.holds && one.entry.name == entry.name);
            if let Some(until) = before.map(|one| one.until).max() {
                self.delayed.push(Delayed { until, entry, holds: true });
                return None;
            }
            let mut spent = None;
            let mut met = Some(entry);
            for (at, fault) in self.orders.iter_mut().enumerate() {
                let Some(entry) = met.take() else { break };
                let name = entry.name;
                let holds = matches!(fault, Fault::Hold { .. });
                let count = match fault {
                    Fault::Drop { message, count } if message == name => {
                        cell.counters.dropped();
                        count
                    }
                    Fault::Delay { message, count, ms } | Fault::Hold { message, count, ms }
                        if message == name =>
                    {
                        let until = Instant::now() + Duration::from_millis(*ms);
                        self.delayed.push(Delayed { until, entry, holds });
                        count
                    }
                    Fault::Duplicate { message, count } if message == name => {
                        self.again.push_back(Entry {
                            name,
                            kind: entry.kind,
                            key: None,
                            pod: entry.pod.clone(),
                            envelope: entry.envelope.duplicate(),
                        });
                        met = Some(entry);
                        count
                    }
                    _ => {
                        met = Some(entry);
                        continue;
                    }
                };
                *count = count.saturating_sub(1);
                if *count == 0 {
                    spent = Some(at);
                }
                break;
            }
            if let Some(at) = spent {
                self.orders.remove(at);
            }
            met
        }

        /// A duplicate, or a delayed message whose delay is over; of two of one moment the first to come.
        pub fn poll_delayed(&mut self, cx: &mut Context<'_>) -> Option<Entry<A>> {
            if let Some(entry) = self.again.pop_front() {
                return Some(entry);
            }
            let (index, next) = self.delayed.iter().enumerate().min_by_key(|(_, one)| one.until)?;
            let until = next.until;
            if until <= Instant::now() {
                return Some(self.delayed.remove(index).entry);
            }
            let sleep = self.wake.insert(Box::pin(tokio::time::sleep_until(until)));
            let _not_yet = std::future::Future::poll(sleep.as_mut(), cx);
            None
        }
    }
}
