//! Devices that no pod uses any longer are taken from the node; pods do not wait for that.

use std::collections::btree_map::Entry;
use std::time::Duration;

use bridge_pace::Backoff;
use supervision::{Ctx, Effect};

use super::{Timer, VolumeManager};
use crate::devices::Device;
use crate::unmount;

/// The delays after failures: as those of mounts.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(500), Duration::from_secs(122));

/// A device that is taken from the node.
#[derive(Debug, Default)]
pub(super) struct Release {
    /// The delay after the last failure, whose timer runs; `None` while the work is under way for the first time.
    delay: Option<Duration>,
    under_way: bool,
}

impl VolumeManager {
    /// Takes a device from the node unless a pod uses it, if that is not under way or waited for already.
    pub(super) fn release(&mut self, device: Device, ctx: &mut Ctx<Self>) {
        if let Entry::Vacant(new) = self.releases.entry(device.clone()) {
            new.insert(Release::default());
            self.begin_release(device, ctx);
        }
    }

    /// Tries everything that waits again, at once.
    pub(super) fn release_all(&mut self, ctx: &mut Ctx<Self>) {
        let waiting = self.releases.iter().filter(|(_, release)| !release.under_way);
        let waiting: Vec<Device> = waiting.map(|(device, _)| device.clone()).collect();
        for device in waiting {
            ctx.cancel_timer(&Timer::Release(device.clone()));
            self.begin_release(device, ctx);
        }
    }

    pub(super) fn begin_release(&mut self, device: Device, ctx: &mut Ctx<Self>) {
        let Some(release) = self.releases.get_mut(&device) else { return };
        release.under_way = true;
        let work = unmount::release(self.deps.backends.for_namespace(None), device.clone());
        ctx.effect(Effect::lasting("release a device"), None, work, move |actor, done, ctx| match done {
            Ok(()) => {
                actor.releases.remove(&device);
                actor.look_for_others(ctx);
            }
            Err(error) => {
                tracing::warn!(%error, device, "A device that no pod uses stays on the node for now");
                if let Some(release) = actor.releases.get_mut(&device) {
                    let delay = release.delay.map_or(BACKOFF.first(), |delay| BACKOFF.following(delay));
                    *release = Release { delay: Some(delay), under_way: false };
                    ctx.set_timer(Timer::Release(device), delay);
                }
            }
        });
    }

    /// Looks for devices that an earlier run has left.
    pub(super) fn look_for_idle_devices(&mut self, ctx: &mut Ctx<Self>) {
        // A pod that is not heard of yet may use one.
        if !self.desired.is_complete() {
            return;
        }
        let look = unmount::idle_devices(self.deps.backends.clone());
        ctx.effect(Effect::lasting("look for idle devices"), None, look, |actor, idle, ctx| {
            for device in idle {
                actor.release(device, ctx);
            }
        });
    }
}
