//! Pods of the API server for which there was no room (row 1.5). No event tells of them when room becomes free, so all pods are asked
//! for again then.

use std::time::Duration;

use supervision::Ctx;

use super::{PodSources, Timer};

/// The shortest time between the lists that room brings about.
const LIST_AGAIN: Duration = Duration::from_secs(60);

impl PodSources {
    /// Has all pods asked for again soon, if there is room by now for one for which there was none.
    pub(super) fn list_if_room(&mut self, ctx: &mut Ctx<Self>) {
        if !self.lists_soon && self.api_pods.wants_list() {
            self.lists_soon = true;
            ctx.set_timer(Timer::List, LIST_AGAIN);
        }
    }

    /// Follows the API server's pods anew, which begins with a list.
    pub(super) fn list_again(&mut self, ctx: &mut Ctx<Self>) {
        self.lists_soon = false;
        if !self.following {
            // A list comes as it is.
            return;
        }
        if let Some(stream) = self.followed.take() {
            ctx.cancel_effect(stream);
        }
        self.following = false;
        self.follow(ctx);
    }
}
