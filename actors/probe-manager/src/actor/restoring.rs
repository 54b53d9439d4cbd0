//! What earlier incarnations have written down.

use std::collections::BTreeMap;
use std::time::Duration;

use bridge_node::checkpoint::CheckpointError;
use supervision::{Ctx, Effect};

use super::ProbeManager;
use crate::checkpoint::{self, Loaded};
use crate::timer::Timer;

/// Checkpoints that could not be read are read again after this long.
const LOAD_AGAIN: Duration = Duration::from_secs(10);

impl ProbeManager {
    /// Reads the checkpoints: all of them, later those that could not be read. Each has a deadline, and not all together: pods
    /// are probed while a disk does not answer.
    pub(super) fn load(&mut self, ctx: &mut Ctx<Self>) {
        let pods = self.restored.is_some().then(|| self.unread.clone());
        let loading = checkpoint::load(self.deps.checkpoints.clone(), pods);
        ctx.effect(Effect::lasting("load verdicts"), None, loading, Self::loaded);
    }

    fn loaded(&mut self, loaded: Result<Loaded, CheckpointError>, ctx: &mut Ctx<Self>) {
        match loaded {
            Ok(Loaded { pods, unread }) => {
                self.restored.get_or_insert_default().extend(pods);
                self.unread = unread;
                self.reconcile_all(ctx);
            }
            Err(error) => tracing::warn!(%error, "the verdicts of earlier runs cannot be read yet"),
        }
        if self.restored.is_none() || !self.unread.is_empty() {
            ctx.set_timer(Timer::Load, LOAD_AGAIN);
        }
    }

    pub(super) fn drop_stale_checkpoints(&mut self, ctx: &mut Ctx<Self>) {
        // What is kept of a pod that is left alone, or that cannot be read, is not taken over yet.
        let (kept, stale): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(self.restored.get_or_insert_default())
                .into_iter()
                .partition(|(uid, _)| ctx.is_quarantined(uid) || self.desired.is_unread(uid));
        self.restored = Some(kept);
        for uid in stale.into_keys() {
            self.forget_checkpoint(&uid, ctx);
        }
    }
}
