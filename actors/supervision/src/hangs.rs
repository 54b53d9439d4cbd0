//! Effects that are ordered not to end, in builds with the feature `faults`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// An effect with a longer deadline, or none, rightly takes long, and what it waits for has a deadline of its own.
const DEADLINE_MAX: Duration = Duration::from_secs(600);

/// The effects of one actor that have begun and have a short deadline, and which of the next ones hang. They outlive incarnations.
#[derive(Default)]
pub(crate) struct Hangs(Mutex<State>);

/// When an effect hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HangsWhen {
    /// Before its work.
    Begun,
    /// After its work: only the result does not come.
    Done,
}

#[derive(Default)]
struct State {
    begun: BTreeMap<&'static str, u32>,
    orders: Vec<Order>,
}

struct Order {
    effect: String,
    nth: u32,
    done: bool,
}

impl Hangs {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The nth effect of this name from now on hangs, when its work is `done` or before.
    pub fn order(&self, effect: String, nth: u32, done: bool) {
        self.state().orders.push(Order { effect, nth: nth.max(1), done });
    }

    /// How often each effect has begun.
    pub fn begun(&self) -> BTreeMap<&'static str, u32> {
        self.state().begun.clone()
    }

    /// An effect begins. Whether it hangs, and if so whether that is when its work is done.
    pub fn begin(&self, effect: &'static str, within: Option<Duration>) -> Option<HangsWhen> {
        if within.is_none_or(|within| within > DEADLINE_MAX) {
            return None;
        }
        let mut state = self.state();
        *state.begun.entry(effect).or_default() += 1;
        let at = state.orders.iter().position(|order| order.effect == effect)?;
        state.orders[at].nth -= 1;
        if state.orders[at].nth > 0 {
            return None;
        }
        let Order { done, .. } = state.orders.remove(at);
        Some(if done { HangsWhen::Done } else { HangsWhen::Begun })
    }
}
