//! The health of the runtime itself.

use std::sync::Arc;
use std::time::Duration;

use bridge_cri::{CriError, wire};
use messages::facts::RuntimeObserved;
use messages::runtime::{RuntimeHandler, RuntimeHealth};
use supervision::Ctx;

use super::{Pleg, Timer};

/// The runtime's name and version.
pub(super) type Version = (Arc<str>, Arc<str>);

impl Pleg {
    pub(super) fn check_health(&mut self, ctx: &mut Ctx<Self>) {
        // One check at a time: the timer is set again when it has ended.
        if std::mem::replace(&mut self.checking, true) {
            return;
        }
        ctx.cancel_timer(&Timer::Health);
        let runtime = self.deps.runtime.clone();
        let version = self.version.clone();
        let work = async move {
            let version = match version {
                Some(version) => version,
                None => {
                    let answer = runtime.check_version().await?;
                    (Arc::from(answer.runtime_name), Arc::from(answer.runtime_version))
                }
            };
            let status = runtime.status(wire::StatusRequest { verbose: false }).await?;
            Ok((version, status))
        };
        ctx.effect("health", None, work, Self::healthy);
    }

    fn healthy(&mut self, answer: Result<(Version, wire::StatusResponse), CriError>, ctx: &mut Ctx<Self>) {
        self.checking = false;
        ctx.set_timer(Timer::Health, self.deps.config.health);
        let health = match answer {
            Ok((version, status)) => {
                self.version = Some(version.clone());
                health(&version, &status, self.events)
            }
            Err(error) => {
                // After a restart the runtime may have another version.
                let (name, version) = self.version.take().unwrap_or_else(|| (Arc::from(""), Arc::from("")));
                let problem = format!("container runtime is down: {error}");
                RuntimeHealth { name, version, problem, events: self.events, ..RuntimeHealth::default() }
            }
        };
        let known = self.health.fact().map(|known| &*known.0);
        if known != Some(&health) {
            let was_ready = known.is_none_or(|before| before.ready);
            if health.ready && !was_ready {
                tracing::info!(runtime = %health.name, "Container runtime is back");
                self.relist(ctx);
                for uid in std::mem::take(&mut self.unseen) {
                    self.schedule.want(&uid, 0);
                }
                self.begin_soon(ctx);
                if !self.events {
                    ctx.set_timer(Timer::Subscribe, Duration::ZERO);
                }
            } else if !health.problem.is_empty() {
                tracing::warn!(problem = health.problem, "Container runtime is not well");
            }
            self.health.set(RuntimeObserved(Arc::new(health)), ctx);
        }
        // A relist that has just begun is waited for: until the first one has been answered, the node is not ready.
        let begins = self.relisting.is_some_and(|began| began.elapsed() < self.deps.config.health);
        if self.last_relist.is_some() || !begins {
            self.tell_watchers();
        }
    }

    /// Tells the actors that go by the age of the runtime's newest answers.
    pub(super) fn tell_watchers(&self) {
        let Some(RuntimeObserved(health)) = self.health.fact() else { return };
        let listed_ago = self.last_relist.map(|at| at.elapsed());
        let health = Arc::new(RuntimeHealth { listed_ago, ..RuntimeHealth::clone(health) });
        for watcher in &self.deps.runtime_watchers {
            watcher.tell_level(RuntimeObserved(health.clone()));
        }
    }
}

fn health(version: &Version, answer: &wire::StatusResponse, events: bool) -> RuntimeHealth {
    let conditions = answer.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let holds = |kind: &str| conditions.iter().find(|c| c.r#type == kind);
    let ready = |kind: &str| holds(kind).is_some_and(|c| c.status);
    let say = |kind: &str, prefix: &str| match holds(kind) {
        Some(c) if c.status => None,
        Some(c) => {
            Some(format!("{prefix}: {}={} reason:{} message:{}", c.r#type, c.status, c.reason, c.message))
        }
        None => Some(format!("{prefix}: the runtime does not state {kind}")),
    };
    let runtime = say("RuntimeReady", "container runtime not ready");
    let network = say("NetworkReady", "container runtime network not ready");
    let handler = |handler: &wire::RuntimeHandler| RuntimeHandler {
        name: handler.name.clone(),
        recursive_read_only_mounts: handler.features.is_some_and(|has| has.recursive_read_only_mounts),
        user_namespaces: handler.features.is_some_and(|has| has.user_namespaces),
    };
    let mut handlers: Vec<_> = answer.runtime_handlers.iter().map(handler).collect();
    handlers.sort_by(|one, other| one.name.cmp(&other.name));
    RuntimeHealth {
        name: version.0.clone(),
        version: version.1.clone(),
        ready: ready("RuntimeReady"),
        network_ready: ready("NetworkReady"),
        problem: runtime.iter().chain(&network).map(String::as_str).collect::<Vec<_>>().join("; "),
        answered: true,
        runtime_problem: runtime.unwrap_or_default(),
        network_problem: network.unwrap_or_default(),
        handlers,
        events,
        supplemental_groups_policy: answer
            .features
            .as_ref()
            .is_some_and(|features| features.supplemental_groups_policy),
        listed_ago: None,
    }
}
