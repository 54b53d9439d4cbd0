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

/// The most bytes of a text of the runtime's that are kept: it stands in the Node's status, which has to fit into an object of
/// the API server's, and whose JSON may have six bytes for one.
const TEXT_BYTES_MAX: usize = 16 * 1024;
/// The most bytes of a name. The runtime's own stands before each container's ID; a RuntimeClass names a handler in at most 63.
const NAME_BYTES_MAX: usize = 253;
/// The most handlers that are kept.
const HANDLERS_MAX: usize = 64;

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
                    version_of(&answer)
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
                    self.schedule.want(&uid);
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

fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

fn version_of(answer: &wire::VersionResponse) -> Version {
    let name = cut(&answer.runtime_name, NAME_BYTES_MAX);
    (Arc::from(name), Arc::from(cut(&answer.runtime_version, TEXT_BYTES_MAX)))
}

fn health(version: &Version, answer: &wire::StatusResponse, events: bool) -> RuntimeHealth {
    let conditions = answer.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let holds = |kind: &str| conditions.iter().find(|c| c.r#type == kind);
    let ready = |kind: &str| holds(kind).is_some_and(|c| c.status);
    let say = |kind: &str, prefix: &str| match holds(kind) {
        Some(c) if c.status => None,
        Some(c) => {
            let words = format!("{prefix}: {kind}={} reason:{} message:{}", c.status, c.reason, c.message);
            Some(cut(&words, TEXT_BYTES_MAX).to_owned())
        }
        None => Some(format!("{prefix}: the runtime does not state {kind}")),
    };
    let runtime = say("RuntimeReady", "container runtime not ready");
    let network = say("NetworkReady", "container runtime network not ready");
    let handler = |handler: &wire::RuntimeHandler| RuntimeHandler {
        name: cut(&handler.name, NAME_BYTES_MAX).to_owned(),
        recursive_read_only_mounts: handler.features.is_some_and(|has| has.recursive_read_only_mounts),
        user_namespaces: handler.features.is_some_and(|has| has.user_namespaces),
    };
    let mut handlers: Vec<_> = answer.runtime_handlers.iter().map(handler).collect();
    handlers.sort_by(|one, other| one.name.cmp(&other.name));
    // After they are sorted: some runtimes tell them in another order each time.
    handlers.truncate(HANDLERS_MAX);
    let problem = runtime.iter().chain(&network).map(String::as_str).collect::<Vec<_>>().join("; ");
    RuntimeHealth {
        name: version.0.clone(),
        version: version.1.clone(),
        ready: ready("RuntimeReady"),
        network_ready: ready("NetworkReady"),
        problem: cut(&problem, TEXT_BYTES_MAX).to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_the_runtime_tells_of_itself_no_more_is_kept_than_a_node_has_room_for() {
        let long = "\u{e4}".repeat(1 << 15);
        let words = || long.clone();
        let kind = |kind: &str| wire::RuntimeCondition {
            r#type: kind.to_owned(),
            status: false,
            reason: words(),
            message: words(),
        };
        let handler =
            |number: usize| wire::RuntimeHandler { name: format!("{number:03}{long}"), features: None };
        let conditions = ["NetworkReady", "RuntimeReady"].map(kind).to_vec();
        let mut answer = wire::StatusResponse {
            status: Some(wire::RuntimeStatus { conditions }),
            runtime_handlers: (0..HANDLERS_MAX + 6).map(handler).collect(),
            ..Default::default()
        };
        let told =
            wire::VersionResponse { runtime_name: words(), runtime_version: words(), ..Default::default() };
        let (name, version) = version_of(&told);
        assert_eq!((name.len(), version.len()), (NAME_BYTES_MAX - 1, TEXT_BYTES_MAX));
        let kept = health(&(name, version), &answer, true);
        for text in [&kept.problem, &kept.runtime_problem, &kept.network_problem] {
            assert!((TEXT_BYTES_MAX - 1..=TEXT_BYTES_MAX).contains(&text.len()), "{} bytes", text.len());
        }
        assert!(
            kept.runtime_problem.starts_with("container runtime not ready: RuntimeReady=false reason:\u{e4}")
        );
        assert_eq!(kept.handlers.len(), HANDLERS_MAX);
        assert!(kept.handlers.iter().all(|handler| handler.name.len() == NAME_BYTES_MAX));
        answer.runtime_handlers.reverse();
        let version = (kept.name.clone(), kept.version.clone());
        assert_eq!(health(&version, &answer, true), kept, "whatever their order");
    }
}
