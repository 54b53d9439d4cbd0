//! The task that carries the registrations: watches sockets, asks plugins, hands offers to followers, tells plugins.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered};
use futures::{FutureExt, StreamExt};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::metrics::{PluginMetrics, Shown};
use super::registrar::Registrar;
use super::registrations::{PluginFacts, PluginKind, Registrations, Sockets, Step, Try, Verdict};
use super::sockets::PluginSockets;
use bridge_io::{Io, lasting};

/// The most news that wait for a follower. A follower that is slower than that is let go: its stream ends, and when it follows
/// again it is offered everything.
const NEWS_MAX: usize = 1024;

/// A plugin that asks to be registered. Dropping it without an answer has the plugin offered again later.
#[derive(Debug)]
pub struct PluginOffer {
    /// What the plugin says of itself; its endpoint is set.
    pub facts: PluginFacts,
    /// The path of the socket by which it registers.
    pub socket: String,
    answer: oneshot::Sender<Verdict>,
}

impl PluginOffer {
    /// The plugin is registered: it is told so.
    pub fn accept(self) {
        self.answer(Verdict::Accepted);
    }

    /// What the plugin says of itself is refused: it is told so, and asked again later.
    pub fn invalid(self, why: impl Into<String>) {
        self.answer(Verdict::Invalid(why.into()));
    }

    /// The plugin could not be registered: it is told so, and asked again later.
    pub fn failed(self, why: impl Into<String>) {
        self.answer(Verdict::Failed(why.into()));
    }

    fn answer(self, verdict: Verdict) {
        // The watcher has gone, or the plugin has: the follower hears of the latter.
        drop(self.answer.send(verdict));
    }
}

/// A plugin that is gone, or could not be told that it is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginGone {
    /// What the plugin said of itself.
    pub facts: PluginFacts,
    /// The path of the socket by which it registered.
    pub socket: String,
}

/// What a follower is told.
#[derive(Debug)]
pub enum PluginNews {
    /// A plugin asks to be registered. One that the follower knows already from the same socket has taken its own place, or
    /// is offered to a follower that followed again.
    Offered(PluginOffer),
    /// A plugin that was offered is gone, whatever was answered.
    Gone(PluginGone),
}

/// The plugins of the node, for the subsystems that use them.
pub trait Plugins: Send + Sync + 'static {
    /// The plugins of a kind: first all that there are, then each that comes and goes. A kind has one follower: the last one,
    /// and the stream of the one before ends.
    fn follow(&self, kind: PluginKind) -> BoxStream<'static, PluginNews>;
}

#[derive(Default)]
struct Followers {
    slots: Mutex<BTreeMap<PluginKind, Slot>>,
    changed: Notify,
}

struct Slot {
    tell: mpsc::Sender<PluginNews>,
    is_new: bool,
}

impl Followers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PluginKind, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all streams, since what they told is known no longer: what goes now would not be told. A follower that follows anew is
    /// offered everything, and takes what is not offered as gone.
    fn renew(&self) {
        self.lock().clear();
        self.changed.notify_one();
    }

    /// The kinds that have another follower than before.
    fn take_new(&self) -> Vec<PluginKind> {
        let mut slots = self.lock();
        let new =
            slots.iter_mut().filter_map(|(kind, slot)| std::mem::take(&mut slot.is_new).then_some(*kind));
        new.collect()
    }

    /// Tells the follower of a kind; false if there is none, or none that keeps up.
    fn tell(&self, kind: PluginKind, news: PluginNews) -> bool {
        let mut slots = self.lock();
        let told = slots.get(&kind).is_some_and(|slot| slot.tell.try_send(news).is_ok());
        if !told && slots.get(&kind).is_some_and(|slot| !slot.is_new) {
            slots.remove(&kind);
        }
        told
    }
}

/// Watches for plugins until it is dropped.
pub struct PluginWatcher {
    followers: Arc<Followers>,
    _task: AbortOnDropHandle<()>,
}

impl PluginWatcher {
    /// Watches `sockets` and asks their plugins by `registrar`. `served` are the kinds that a subsystem of this kubelet follows:
    /// their plugins wait for it, those of other kinds are refused. `metrics` tell of the plugins.
    pub fn start(
        io: &Io,
        sockets: Arc<dyn PluginSockets>,
        registrar: Arc<dyn Registrar>,
        served: impl IntoIterator<Item = PluginKind>,
        metrics: PluginMetrics,
    ) -> Self {
        let followers = Arc::<Followers>::default();
        let (told, since) = (Arc::clone(&followers), io.enter(Instant::now));
        let served: Vec<PluginKind> = served.into_iter().collect();
        let mut is_again = false;
        let carrying = move || {
            if std::mem::replace(&mut is_again, true) {
                told.renew();
            }
            let carrying = Carrying {
                followers: Arc::clone(&told),
                registrar: Arc::clone(&registrar),
                registrations: Registrations::new(served.iter().copied()),
                under_way: FuturesUnordered::new(),
                since,
                metrics: metrics.clone(),
                shown: Shown::default(),
            };
            carrying.run(sockets.watch())
        };
        let task = io.spawn(lasting("carry the registrations of plugins", carrying));
        Self { followers, _task: AbortOnDropHandle::new(task) }
    }
}

impl Plugins for PluginWatcher {
    fn follow(&self, kind: PluginKind) -> BoxStream<'static, PluginNews> {
        let (tell, told) = mpsc::channel(NEWS_MAX);
        self.followers.lock().insert(kind, Slot { tell, is_new: true });
        self.followers.changed.notify_one();
        tokio_stream::wrappers::ReceiverStream::new(told).boxed()
    }
}

/// What has ended.
enum Done {
    Told(Try, Result<PluginFacts, String>),
    Judged(Try, Verdict),
    Notified(Try, Result<(), String>),
}

struct Carrying {
    followers: Arc<Followers>,
    registrar: Arc<dyn Registrar>,
    registrations: Registrations,
    under_way: FuturesUnordered<BoxFuture<'static, Done>>,
    since: Instant,
    metrics: PluginMetrics,
    shown: Shown,
}

impl Carrying {
    async fn run(mut self, mut sockets: BoxStream<'static, Sockets>) {
        loop {
            let due = self.registrations.next().map(|at| self.since + at);
            let steps = tokio::select! {
                biased;
                () = self.followers.changed.notified() => {
                    let new = self.followers.take_new();
                    new.into_iter().flat_map(|kind| self.registrations.followed(kind)).collect()
                }
                seen = sockets.next() => match seen {
                    Some(seen) => self.registrations.seen(&seen, self.since.elapsed()),
                    None => return,
                },
                Some(done) = self.under_way.next() => self.done(done),
                () = tokio::time::sleep_until(due.unwrap_or(self.since)), if due.is_some() => {
                    self.registrations.tick(self.since.elapsed())
                }
            };
            for step in steps {
                self.carry(step);
            }
            let plugins = self.registrations.stand().map(|(socket, is_in)| (socket.to_owned(), is_in));
            self.metrics.show(&mut self.shown, plugins);
        }
    }

    fn done(&mut self, done: Done) -> Vec<Step> {
        let now: Duration = self.since.elapsed();
        match done {
            Done::Told(of, told) => {
                if let Err(error) = &told {
                    tracing::warn!(socket = of.socket, error, "a plugin does not say what it is");
                }
                self.registrations.told(&of, told, now)
            }
            Done::Judged(of, verdict) => self.registrations.judged(&of, verdict, now),
            Done::Notified(of, outcome) => {
                if let Err(error) = &outcome {
                    tracing::warn!(socket = of.socket, error, "a plugin was not told of its registration");
                }
                self.registrations.notified(&of, outcome, now)
            }
        }
    }

    fn carry(&mut self, step: Step) {
        match step {
            Step::Ask(of) => {
                let info = self.registrar.info(&of.socket);
                self.under_way.push(info.map(|told| Done::Told(of, told)).boxed());
            }
            Step::Offer(of, kind, facts) => {
                tracing::info!(
                    socket = of.socket,
                    kind = kind.word(),
                    name = facts.name,
                    "a plugin asks to be registered"
                );
                let (answer, answered) = oneshot::channel();
                let offer = PluginOffer { facts, socket: of.socket.clone(), answer };
                if !self.followers.tell(kind, PluginNews::Offered(offer)) {
                    self.registrations.unfollowed(kind);
                    return;
                }
                let judged = answered.map(|verdict| Done::Judged(of, verdict.unwrap_or(Verdict::Unanswered)));
                self.under_way.push(judged.boxed());
            }
            Step::Tell(of, status) => {
                if let Err(error) = &status {
                    tracing::warn!(socket = of.socket, error, "a plugin is not registered");
                }
                let told = self.registrar.notify(&of.socket, status);
                self.under_way.push(told.map(|outcome| Done::Notified(of, outcome)).boxed());
            }
            Step::Gone { kind, facts, socket } => {
                tracing::info!(socket, kind = kind.word(), name = facts.name, "a plugin is gone");
                if !self.followers.tell(kind, PluginNews::Gone(PluginGone { facts, socket })) {
                    self.registrations.unfollowed(kind);
                }
            }
        }
    }
}

#[cfg(test)]
#[cfg(feature = "fake")]
mod tests;
