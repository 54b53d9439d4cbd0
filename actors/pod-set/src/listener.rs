//! One that is told something until it has taken it.

use std::time::Duration;

use messages::Delivery;
use supervision::Address;
use tokio::time::Instant;

/// What does not change is told so often again, since a message may be lost after a mailbox has taken it; and what is refused at
/// least so often.
pub(crate) const EVERY: Duration = Duration::from_secs(60);

/// An address, and when it is told something next.
#[derive(Clone, Debug)]
pub(crate) struct Listener<M: Delivery> {
    pub(crate) address: Address<M>,
    /// How often in a row it has refused.
    refusals: u32,
    /// It is told from then on.
    pub(crate) next_at: Instant,
}

impl<M: Delivery> Listener<M> {
    pub(crate) fn new(address: Address<M>) -> Self {
        Self { address, refusals: 0, next_at: Instant::now() }
    }

    pub(crate) fn is(&self, receiver: &str) -> bool {
        self.address.receiver() == receiver
    }

    /// It is told from then on, however often it has refused before.
    pub(crate) fn rest_until(&mut self, moment: Instant) {
        self.refusals = 0;
        self.next_at = moment;
    }

    /// It is told again after a second, and after twice as long while it refuses.
    pub(crate) fn refused(&mut self, now: Instant) {
        self.next_at = now + Duration::from_secs(1 << self.refusals.min(6)).min(EVERY);
        self.refusals = self.refusals.saturating_add(1);
    }
}
