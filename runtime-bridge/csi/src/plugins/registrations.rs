//! PURE: which plugins are asked, offered, told and gone. Moments are durations since one fixed moment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bridge_pace::Backoff;

/// The most sockets that are looked after; further ones are passed over.
pub const SOCKETS_MAX: usize = 256;
/// The waits after failures: upstream's.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(500), Duration::from_secs(122));

/// A plugin that makes its socket anew is asked so long after it was asked before, at the earliest: each time costs calls to the API
/// server.
const PAUSE: Duration = Duration::from_secs(1);

/// A kind of plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PluginKind {
    /// A CSI driver.
    Csi,
    /// A device plugin.
    Device,
    /// A driver of dynamic resource allocation.
    Dra,
}

impl PluginKind {
    /// The word by which a plugin says its kind.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Csi => "CSIPlugin",
            Self::Device => "DevicePlugin",
            Self::Dra => "DRAPlugin",
        }
    }

    /// The kind of this word.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        [Self::Csi, Self::Device, Self::Dra].into_iter().find(|kind| kind.word() == word)
    }
}

/// What tells a socket from another one that took its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The device.
    pub device: u64,
    /// The inode.
    pub inode: u64,
    /// When the socket was made, nanoseconds since the epoch.
    pub made_ns: i128,
}

/// The sockets that there are, by path.
pub type Sockets = BTreeMap<String, Identity>;

/// What a plugin says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginFacts {
    /// The word for its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The socket of its services; empty: the socket by which it registers.
    pub endpoint: String,
    /// The versions of its services.
    pub versions: Vec<String>,
}

/// What a follower says of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is registered.
    Accepted,
    /// What it says of itself is refused.
    Invalid(String),
    /// It could not be registered.
    Failed(String),
    /// The follower went away without an answer.
    Unanswered,
}

/// A try to register the plugin behind a socket. Answers to an earlier try count no more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Try {
    /// The path of the socket.
    pub socket: String,
    /// The number of the try, over all sockets.
    pub number: u64,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The plugin is asked what it is; [`Registrations::told`] takes the answer.
    Ask(Try),
    /// The plugin is offered to the follower of its kind; [`Registrations::judged`] takes the verdict.
    Offer(Try, PluginKind, PluginFacts),
    /// The plugin is told whether it is registered, with an error if not; [`Registrations::notified`] takes the outcome.
    Tell(Try, Result<(), String>),
    /// The follower is told that the plugin is gone.
    Gone {
        /// The kind of the plugin.
        kind: PluginKind,
        /// What it said of itself.
        facts: PluginFacts,
        /// The path of its socket.
        socket: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Waiting {
        until: Duration,
    },
    Asked,
    /// Its kind has no follower at present.
    Held(PluginKind, PluginFacts),
    Offered(PluginKind, PluginFacts),
    /// It is told that it is registered.
    Accepted(PluginKind, PluginFacts),
    /// It is told that it is not.
    Refused,
    Registered(PluginKind, PluginFacts),
}

#[derive(Debug)]
struct Plugin {
    identity: Identity,
    number: u64,
    failures: u32,
    /// When it was last asked.
    asked: Option<Duration>,
    state: State,
}

impl Plugin {
    /// What a follower knows of.
    fn followed(&self) -> Option<(PluginKind, &PluginFacts)> {
        match &self.state {
            State::Offered(kind, facts) | State::Accepted(kind, facts) | State::Registered(kind, facts) => {
                Some((*kind, facts))
            }
            _ => None,
        }
    }
}

/// All plugins, and where their registration stands.
#[derive(Debug)]
pub struct Registrations {
    served: BTreeSet<PluginKind>,
    followed: BTreeSet<PluginKind>,
    plugins: BTreeMap<String, Plugin>,
    /// The sockets that have gone, of plugins that were asked a moment ago: until when those in their places wait.
    paused: BTreeMap<String, Duration>,
    tries: u64,
}

impl Registrations {
    /// No plugins yet. `served` are the kinds that a subsystem of this kubelet follows, sooner or later; plugins of other kinds
    /// are refused.
    pub fn new(served: impl IntoIterator<Item = PluginKind>) -> Self {
        Self {
            served: served.into_iter().collect(),
            followed: BTreeSet::new(),
            plugins: BTreeMap::new(),
            paused: BTreeMap::new(),
            tries: 0,
        }
    }

    /// The sockets that there are now.
    pub fn seen(&mut self, sockets: &Sockets, now: Duration) -> Vec<Step> {
        let mut steps = Vec::new();
        let paused = &mut self.paused;
        paused.retain(|_, until| *until > now);
        self.plugins.retain(|socket, plugin| {
            let stays = sockets.get(socket) == Some(&plugin.identity);
            let until = plugin.asked.map(|asked| asked + PAUSE).filter(|until| !stays && *until > now);
            if let Some(until) = until.filter(|_| paused.len() < SOCKETS_MAX) {
                paused.insert(socket.clone(), until);
            }
            if let Some((kind, facts)) = plugin.followed().filter(|_| !stays) {
                steps.push(Step::Gone { kind, facts: facts.clone(), socket: socket.clone() });
            }
            stays
        });
        for (socket, identity) in sockets {
            if self.plugins.len() >= SOCKETS_MAX {
                break;
            }
            let until = self.paused.get(socket).copied().unwrap_or(now);
            self.plugins.entry(socket.clone()).or_insert(Plugin {
                identity: *identity,
                number: 0,
                failures: 0,
                asked: None,
                state: State::Waiting { until },
            });
        }
        steps.extend(self.tick(now));
        steps
    }

    /// Asks the plugins whose wait is over.
    pub fn tick(&mut self, now: Duration) -> Vec<Step> {
        let mut steps = Vec::new();
        for (socket, plugin) in &mut self.plugins {
            if matches!(plugin.state, State::Waiting { until } if until <= now) {
                self.tries += 1;
                plugin.number = self.tries;
                plugin.asked = Some(now);
                plugin.state = State::Asked;
                steps.push(Step::Ask(Try { socket: socket.clone(), number: plugin.number }));
            }
        }
        steps
    }

    /// When [`tick`](Self::tick) is due next.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        let untils = self.plugins.values().filter_map(|plugin| match plugin.state {
            State::Waiting { until } => Some(until),
            _ => None,
        });
        untils.min()
    }

    /// What a plugin said of itself, or why it said nothing.
    pub fn told(&mut self, of: &Try, told: Result<PluginFacts, String>, now: Duration) -> Vec<Step> {
        let (served, followed) = (&self.served, &self.followed);
        let Some(plugin) = current(&mut self.plugins, of, |state| *state == State::Asked) else {
            return Vec::new();
        };
        let Ok(mut facts) = told else {
            fail(plugin, now);
            return Vec::new();
        };
        let Some(kind) = PluginKind::named(&facts.kind).filter(|kind| served.contains(kind)) else {
            plugin.state = State::Refused;
            let error = format!(
                "RegisterPlugin error -- no handler registered for plugin type: {} at socket {}",
                facts.kind, of.socket
            );
            return vec![Step::Tell(of.clone(), Err(error))];
        };
        if facts.endpoint.is_empty() {
            facts.endpoint.clone_from(&of.socket);
        }
        if followed.contains(&kind) {
            plugin.state = State::Offered(kind, facts.clone());
            return vec![Step::Offer(of.clone(), kind, facts)];
        }
        plugin.state = State::Held(kind, facts);
        Vec::new()
    }

    /// What a follower says of a plugin that it was offered.
    pub fn judged(&mut self, of: &Try, verdict: Verdict, now: Duration) -> Vec<Step> {
        let is_offered = |state: &State| matches!(state, State::Offered(..));
        let Some(plugin) = current(&mut self.plugins, of, is_offered) else { return Vec::new() };
        let State::Offered(kind, facts) = std::mem::replace(&mut plugin.state, State::Refused) else {
            return Vec::new();
        };
        let error = match verdict {
            Verdict::Accepted => {
                plugin.state = State::Accepted(kind, facts);
                return vec![Step::Tell(of.clone(), Ok(()))];
            }
            Verdict::Unanswered => {
                fail(plugin, now);
                return Vec::new();
            }
            Verdict::Invalid(error) => {
                format!("RegisterPlugin error -- plugin validation failed with err: {error}")
            }
            Verdict::Failed(error) => {
                format!("RegisterPlugin error -- plugin registration failed with err: {error}")
            }
        };
        vec![Step::Tell(of.clone(), Err(error))]
    }

    /// The sockets below which a plugin is known, and whether it is registered.
    pub fn stand(&self) -> impl Iterator<Item = (&str, bool)> {
        self.plugins.iter().map(|(socket, plugin)| {
            (socket.as_str(), matches!(plugin.state, State::Accepted(..) | State::Registered(..)))
        })
    }

    /// Whether a plugin took what it was told.
    pub fn notified(&mut self, of: &Try, outcome: Result<(), String>, now: Duration) -> Vec<Step> {
        let is_told = |state: &State| matches!(state, State::Accepted(..) | State::Refused);
        let Some(plugin) = current(&mut self.plugins, of, is_told) else { return Vec::new() };
        match (std::mem::replace(&mut plugin.state, State::Refused), outcome) {
            (State::Accepted(kind, facts), Ok(())) => {
                plugin.failures = 0;
                plugin.state = State::Registered(kind, facts);
                Vec::new()
            }
            (State::Accepted(kind, facts), Err(_)) => {
                fail(plugin, now);
                vec![Step::Gone { kind, facts, socket: of.socket.clone() }]
            }
            _ => {
                fail(plugin, now);
                Vec::new()
            }
        }
    }

    /// A kind has a new follower, which is offered all plugins of its kind, those of an earlier follower too.
    pub fn followed(&mut self, kind: PluginKind) -> Vec<Step> {
        self.followed.insert(kind);
        let mut steps = Vec::new();
        for (socket, plugin) in &mut self.plugins {
            let facts = match &plugin.state {
                State::Held(held, facts) if *held == kind => facts.clone(),
                _ => match plugin.followed() {
                    Some((known, facts)) if known == kind => facts.clone(),
                    _ => continue,
                },
            };
            self.tries += 1;
            plugin.number = self.tries;
            plugin.state = State::Offered(kind, facts.clone());
            let of = Try { socket: socket.clone(), number: plugin.number };
            steps.push(Step::Offer(of, kind, facts));
        }
        steps
    }

    /// A kind has no follower any more; plugins wait for the next one.
    pub fn unfollowed(&mut self, kind: PluginKind) {
        self.followed.remove(&kind);
        for plugin in self.plugins.values_mut() {
            match &plugin.state {
                State::Offered(known, facts) if *known == kind => {
                    plugin.state = State::Held(kind, facts.clone());
                }
                _ => {}
            }
        }
    }
}

/// The plugin of a try that still counts, if it is in such a state.
fn current<'a>(
    plugins: &'a mut BTreeMap<String, Plugin>,
    of: &Try,
    is_meant: impl Fn(&State) -> bool,
) -> Option<&'a mut Plugin> {
    plugins.get_mut(&of.socket).filter(|plugin| plugin.number == of.number && is_meant(&plugin.state))
}

fn fail(plugin: &mut Plugin, now: Duration) {
    plugin.failures = plugin.failures.saturating_add(1);
    plugin.state = State::Waiting { until: now + BACKOFF.after(plugin.failures) };
}

#[cfg(test)]
mod tests;
