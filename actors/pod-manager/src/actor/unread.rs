//! Pods that are on the node and of which the API server's source has told only that it cannot read them yet, as it does of large
//! ones after a start. What they take is not known, so that new pods wait for them, for some seconds: one may never be readable.

use std::time::Duration;

use supervision::Ctx;

use super::{PodManager, Timer};

/// New pods wait no longer than this.
const UNREAD_WITHIN: Duration = Duration::from_secs(5);

/// Whether new pods wait. They do so once: what comes later was not here before this incarnation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum UnreadPods {
    /// Not all has been heard yet.
    #[default]
    Unknown,
    /// New pods wait.
    Awaited,
    /// New pods do not wait any more.
    Settled,
}

impl PodManager {
    /// Sets whether new pods wait in the next round; with `all`, all sources and the runtime have been heard.
    pub(super) fn await_unread(&mut self, all: bool, ctx: &mut Ctx<Self>) {
        let is_any_here = self.sources.unread().any(|uid| self.known.is_here(uid));
        match self.unread {
            UnreadPods::Unknown if is_any_here => {
                self.unread = UnreadPods::Awaited;
                ctx.set_timer(Timer::UnreadPods, UNREAD_WITHIN);
            }
            UnreadPods::Unknown | UnreadPods::Awaited if all && !is_any_here => {
                self.unread = UnreadPods::Settled;
                ctx.cancel_timer(&Timer::UnreadPods);
            }
            UnreadPods::Unknown | UnreadPods::Awaited | UnreadPods::Settled => {}
        }
        self.known.awaits_unread = self.unread == UnreadPods::Awaited;
    }

    /// New pods have waited long enough.
    pub(super) fn await_no_longer(&mut self, ctx: &mut Ctx<Self>) {
        tracing::warn!("Pods on the node cannot be read; others are admitted as if these took nothing");
        self.unread = UnreadPods::Settled;
        self.decide(ctx);
    }
}
