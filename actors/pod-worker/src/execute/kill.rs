//! Stopping containers and sandboxes (rows 5.13, 5.17, 5.18, 5.19).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridge_io::watch;
use futures::future::join_all;
use tokio::time::{Instant, timeout};

use super::Executor;
use super::hook::{PreStops, pre_stop};
use crate::plan::KillContainer;
use crate::termination::{Kill, TerminationPlan, remaining_seconds};
use crate::texts;

/// The result of stopping a pod.
#[derive(Debug, Default)]
pub(crate) struct StopOutcome {
    /// The containers and sandboxes that could not be stopped, with the causes, in one text. The next try
    /// begins with a look.
    pub error: Option<String>,
    /// The sandboxes that were stopped, by ID.
    pub sandboxes: BTreeSet<Arc<str>>,
}

/// Stops everything in the plan, with these preStop hooks first: containers at the same time as far as their
/// order allows, then sandboxes, also when a container could not be stopped.
pub(crate) async fn stop_all(exec: Executor, plan: TerminationPlan, hooks: PreStops) -> StopOutcome {
    let turns = Turns::of(&plan.kills);
    let kills = plan.kills.iter().map(|kill| stop_in_turn(&exec, kill, &hooks, &turns));
    let mut errors: Vec<String> = join_all(kills).await.into_iter().filter_map(Result::err).collect();
    let stops = plan.sandboxes.iter().map(|id| stop_sandbox(&exec, id));
    let mut sandboxes = BTreeSet::new();
    for (id, stopped) in plan.sandboxes.iter().zip(join_all(stops).await) {
        match stopped {
            Ok(()) => {
                sandboxes.insert(id.clone());
            }
            Err(error) => errors.push(error),
        }
    }
    let error = match errors.len() {
        0 => None,
        1 => errors.pop(),
        _ => Some(format!("[{}]", errors.join(", "))),
    };
    StopOutcome { error, sandboxes }
}

async fn stop_in_turn(exec: &Executor, kill: &Kill, hooks: &PreStops, turns: &Turns) -> Result<(), String> {
    let field_path = kill.kind.field_path(&kill.name);
    exec.record(texts::killing(&kill.message).naming(&kill.id, &kill.name), &field_path);
    let grace = pre_stop(exec, hooks, &kill.id, &kill.name, kill.grace_seconds).await;
    let since = Instant::now();
    let patience = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
    if let Some(mut comes) = kill.turn.and_then(|turn| turns.before(turn)) {
        // When its grace period is over, the container is stopped although others before it are not.
        drop(timeout(patience, comes.wait_for(|comes| *comes)).await);
    }
    let waited = i64::try_from(since.elapsed().as_secs()).unwrap_or(i64::MAX);
    stop_container(exec, &kill.id, &kill.name, remaining_seconds(grace, waited)).await?;
    if let Some(turn) = kill.turn {
        turns.stopped(turn);
    }
    Ok(())
}

/// The turns in which containers are stopped ([`Kill::turn`]).
struct Turns {
    /// By turn: whether all containers up to it have been stopped.
    over: Vec<watch::Sender<bool>>,
    /// By turn: how many containers have not been stopped.
    left: Mutex<Vec<usize>>,
}

impl Turns {
    fn of(kills: &[Kill]) -> Self {
        let turns = kills.iter().filter_map(|kill| kill.turn);
        let mut left = vec![0; turns.clone().max().map_or(0, |last| last + 1)];
        turns.for_each(|turn| left[turn] += 1);
        let over = left.iter().map(|_| watch::Sender::new(false)).collect();
        let turns = Self { over, left: Mutex::new(left) };
        turns.go_on_from(0);
        turns
    }

    /// Tells when all that come before this turn have been stopped; `None` if none does.
    fn before(&self, turn: usize) -> Option<watch::Receiver<bool>> {
        turn.checked_sub(1).and_then(|last| self.over.get(last)).map(watch::Sender::subscribe)
    }

    fn stopped(&self, turn: usize) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)[turn] -= 1;
        self.go_on_from(turn);
    }

    /// Ends the turns from this one on in which nothing is left, if those before it have ended.
    fn go_on_from(&self, turn: usize) {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let has_come = turn.checked_sub(1).is_none_or(|last| *self.over[last].borrow());
        for at in (turn..left.len()).take_while(|at| has_come && left[*at] == 0) {
            self.over[at].send_replace(true);
        }
    }
}

/// Stops one container of a pod that goes on running.
pub(super) async fn stop_one(
    exec: &Executor,
    kill: &KillContainer,
    grace_seconds: i64,
    hooks: &PreStops,
) -> Result<(), String> {
    let field_path = kill.kind.field_path(&kill.name);
    exec.record(texts::killing(&kill.message).naming(&kill.id, &kill.name), &field_path);
    let left = pre_stop(exec, hooks, &kill.id, &kill.name, grace_seconds).await;
    stop_container(exec, &kill.id, &kill.name, remaining_seconds(left, 0)).await
}

async fn stop_container(exec: &Executor, id: &str, name: &str, grace_seconds: i64) -> Result<(), String> {
    let _step = exec.step(format!("StopContainer {name}")).await;
    exec.deps
        .pods
        .stop_container(exec.uid(), id, grace_seconds)
        .await
        .map_err(|error| failed("KillContainer", name, "KillContainerError", &error.status_text()))
}

/// Stops a sandbox, which frees its network.
pub(super) async fn stop_sandbox(exec: &Executor, id: &str) -> Result<(), String> {
    let _step = exec.step("StopPodSandbox".to_owned()).await;
    exec.deps
        .pods
        .stop_pod_sandbox(exec.uid(), id)
        .await
        .map_err(|error| failed("KillPodSandbox", exec.uid(), "KillPodSandboxError", &error.status_text()))
}

pub(super) fn failed(action: &str, target: &str, reason: &str, message: &str) -> String {
    format!("failed to {action:?} for {target:?} with {reason}: {message:?}")
}
