//! An API server in memory, under the same [`ApiClient`] as a real one: it needs no sockets, so it runs on a paused
//! clock.
//!
//! Objects are JSON, and behave as on a stock server as far as a kubelet can tell. Not implemented are validation
//! beyond the obvious, label selectors, paging, and permissions (tests refuse calls by [`Fault`]s).

mod call;
mod defaults;
mod faults;
mod patch;
mod refusal;
mod resources;
mod reviews;
mod rules;
mod select;
mod serve;
mod signing;
mod state;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridge_io::watch::Sender;
use serde_json::Value;

pub use call::Verb;
pub use faults::{Fault, Logged, On};

use self::call::{Call, PatchKind};
use self::faults::Script;
use self::refusal::Refusal;
use self::resources::Resource;
use self::select::Selector;
use self::serve::MemoryServer;
use self::state::State;
use super::connect::Redial;
use super::{ApiClient, Object, Patch, RateLimit};
use bridge_io::Io;
use bridge_io::clock::Clock;

/// The deadline of clients made here.
const DEADLINE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Up,
    Down,
    Paused,
}

/// How open watches are broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Cut,
    Ended,
    Expired,
    Muted,
}

/// The state that watches wait on; every change wakes them.
#[derive(Clone, Copy, Debug)]
struct LinkState {
    state: Link,
    breaks: u64,
    how: Broken,
}

#[derive(Debug)]
struct Inner {
    state: State,
    script: Script,
    watches: usize,
    redials: u64,
}

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    link: Sender<LinkState>,
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arrive(&self, call: &Call) -> Option<Fault> {
        let mut inner = self.locked();
        let now = inner.state.clock.now();
        inner.script.arrive(call, now)
    }

    fn perform(&self, call: &Call) -> Result<(u16, Value), Refusal> {
        let outcome = self.locked().state.perform(call);
        // Each watch checks for itself whether the change concerns it.
        self.link.send_modify(|_| {});
        outcome
    }
}

/// The objects of a server at one time.
#[derive(Clone, Debug)]
pub struct Backup(state::Backup);

impl Redial for Shared {
    fn redial(&self) {
        self.locked().redials += 1;
    }
}

/// An API server in memory. Cheap to clone; clones are the same server.
///
/// Changes that tests make through its own methods are neither logged nor subject to faults.
#[derive(Clone, Debug)]
pub struct FakeApi {
    shared: Arc<Shared>,
}

fn resource<K: Object>() -> &'static Resource {
    let (group, version, plural) = (K::group(&()), K::version(&()), K::plural(&()));
    resources::find(&group, &version, &plural).expect("a kind that the server in memory knows")
}

fn typed<K: Object>(value: &Value) -> K {
    serde_json::from_value(value.clone()).expect("what is kept was read as this type, or is close to it")
}

impl FakeApi {
    /// A server with a new cluster's namespaces. Times, UIDs and generated names come from `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let inner = Inner { state: State::new(clock), script: Script::default(), watches: 0, redials: 0 };
        let link = Sender::new(LinkState { state: Link::Up, breaks: 0, how: Broken::Cut });
        let this = Self { shared: Arc::new(Shared { inner: Mutex::new(inner), link }) };
        for namespace in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            this.add_namespace(namespace);
        }
        this
    }

    /// A client without a rate limit; its calls have a deadline of 30 s.
    pub fn client(&self, io: &Io) -> ApiClient {
        self.limited_client(io, RateLimit { per_second: 0.0, burst: 0 }, DEADLINE)
    }

    /// A client with a rate limit and a deadline of its own.
    pub fn limited_client(&self, io: &Io, limit: RateLimit, deadline: Duration) -> ApiClient {
        let server = MemoryServer(self.shared.clone());
        let client = io.enter(|| kube::Client::new(server, "default"));
        let clock = self.shared.locked().state.clock.clone();
        ApiClient::new(client, io.clone(), limit, deadline).by_clock(clock).redialing(self.shared.clone())
    }

    // ---- faults ----

    /// Lets the next `times` calls that match `on` fail with `fault`. The first fault that matches a call applies.
    pub fn fault(&self, on: On, times: usize, fault: Fault) {
        self.shared.locked().script.add(on, times, fault);
    }

    /// Lets every call fail with `fault`, health checks included, until this is called with `None`. Open watches
    /// continue.
    pub fn fault_always(&self, fault: Option<Fault>) {
        self.shared.locked().script.set_always(fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.shared.locked().script.clear();
    }

    fn set_link(&self, state: Link) {
        self.shared.link.send_modify(|link| link.state = state);
    }

    /// While down, the server refuses connections and breaks watches. It keeps its objects.
    pub fn set_down(&self, down: bool) {
        self.set_link(if down { Link::Down } else { Link::Up });
    }

    /// While paused, the server accepts calls and answers none; watches are silent.
    pub fn set_paused(&self, paused: bool) {
        self.set_link(if paused { Link::Paused } else { Link::Up });
    }

    fn break_with(&self, how: Broken) {
        self.shared.link.send_modify(|link| {
            link.breaks += 1;
            link.how = how;
        });
    }

    /// Breaks the connections of all open watches.
    pub fn cut_watches(&self) {
        self.break_with(Broken::Cut);
    }

    /// Ends all open watches, as at their time-out.
    pub fn end_watches(&self) {
        self.break_with(Broken::Ended);
    }

    /// Makes the connections of all open watches dead without closing them: nothing arrives on them any more.
    pub fn mute_watches(&self) {
        self.break_with(Broken::Muted);
    }

    /// Ends all open watches with 410, so that their clients must list anew.
    pub fn expire_watches(&self) {
        self.break_with(Broken::Expired);
    }

    /// Forgets the history of changes: a watch from an earlier version gets 410.
    pub fn compact(&self) {
        self.shared.locked().state.compact();
    }

    /// All objects, as a backup of etcd holds them.
    pub fn backup(&self) -> Backup {
        Backup(self.shared.locked().state.backup())
    }

    /// Restores all objects and the version, as etcd does from a backup. A real server has to be stopped for that, so
    /// watches break.
    pub fn restore(&self, backup: &Backup) {
        self.shared.locked().state.restore(&backup.0);
        self.break_with(Broken::Cut);
    }

    // ---- the log of calls ----

    /// The number of calls so far of a verb on `pods`, `pods/status`, …, or of `get` on `/readyz`.
    pub fn count(&self, verb: Verb, target: &str) -> u64 {
        self.shared.locked().script.count(verb, target)
    }

    /// The numbers of all calls so far.
    pub fn counts(&self) -> BTreeMap<(Verb, String), u64> {
        self.shared.locked().script.counts()
    }

    /// The numbers of all attempted calls, those included that a down or paused server did not receive.
    pub fn attempts(&self) -> BTreeMap<(Verb, String), u64> {
        self.shared.locked().script.attempts()
    }

    /// The last ten thousand calls, oldest first.
    pub fn log(&self) -> Vec<Logged> {
        self.shared.locked().script.log()
    }

    /// Clears counts and log.
    pub fn forget_log(&self) {
        self.shared.locked().script.forget();
    }

    /// How often clients have given up their connections.
    pub fn redials(&self) -> u64 {
        self.shared.locked().redials
    }

    /// The number of open watches.
    pub fn watches(&self) -> usize {
        self.shared.locked().watches
    }

    // ---- objects ----

    /// Creates a namespace unless it exists.
    pub fn add_namespace(&self, name: &str) {
        let resource = resources::find("", "v1", "namespaces").expect("a kind that is known");
        let mut call = Call::of(Verb::Create, resource, None, None);
        call.body = serde_json::json!({"metadata": {"name": name}});
        // The namespace may exist already.
        let _ = self.shared.perform(&call);
    }

    fn must(&self, call: &Call) -> Value {
        match self.shared.perform(call) {
            Ok((_, value)) => value,
            Err(refusal) => panic!("{} {}: {}", call.verb.as_str(), call.target(), refusal.message),
        }
    }

    /// Creates or replaces an object, its status included, and its namespace if needed. Returns the stored object.
    ///
    /// # Panics
    /// When the object is refused, or is of an unknown kind.
    pub fn put<K: Object>(&self, object: &K) -> K {
        let resource = resource::<K>();
        let mut body = serde_json::to_value(object).expect("objects are JSON");
        let namespace = object.meta().namespace.as_deref();
        let namespace = resource.namespaced.then(|| namespace.unwrap_or("default"));
        if let Some(namespace) = namespace {
            self.add_namespace(namespace);
        }
        rules::set_meta(&mut body, "resourceVersion", None);
        let uid = object.meta().uid.clone();
        let name = object.meta().name.clone().unwrap_or_default();
        let there = self.value::<K>(namespace, &name).is_some();
        let verb = if there { Verb::Update } else { Verb::Create };
        let mut call = Call::of(verb, resource, namespace, there.then_some(name.as_str()));
        if there && !resource.unconditional {
            let version =
                self.value::<K>(namespace, &name).map(|old| old["metadata"]["resourceVersion"].clone());
            rules::set_meta(&mut body, "resourceVersion", version);
        }
        call.body = body.clone();
        let mut kept = self.must(&call);
        let name = rules::text(&kept, "/metadata/name").to_owned();
        if let Some(status) = body.get("status").filter(|_| resource.status)
            && kept.get("status") != Some(status)
        {
            let mut call = Call::of(Verb::Update, resource, namespace, Some(&name));
            call.subresource = Some("status".to_owned());
            kept["status"] = status.clone();
            call.body = kept;
            kept = self.must(&call);
        }
        if let Some(uid) = uid
            && !there
        {
            let mut inner = self.shared.locked();
            kept = inner.state.set_uid(resource, namespace.unwrap_or_default(), &name, &uid);
        }
        self.shared.link.send_modify(|_| {});
        typed(&kept)
    }

    fn value<K: Object>(&self, namespace: Option<&str>, name: &str) -> Option<Value> {
        let resource = resource::<K>();
        let inner = self.shared.locked();
        inner.state.get(resource.plural, namespace.unwrap_or_default(), name).map(|object| (*object).clone())
    }

    /// An object as it is now.
    pub fn get<K: Object>(&self, namespace: Option<&str>, name: &str) -> Option<K> {
        self.value::<K>(namespace, name).as_ref().map(typed)
    }

    /// All objects of a kind, by namespace and name.
    pub fn list<K: Object>(&self) -> Vec<K> {
        let inner = self.shared.locked();
        inner
            .state
            .selected(resource::<K>(), &Selector::default())
            .iter()
            .map(|object| typed(object))
            .collect()
    }

    /// Changes an object by a patch, or with `Some("status")` its status.
    ///
    /// # Panics
    /// When the object does not exist or the change is refused.
    pub fn change<K: Object>(
        &self,
        namespace: Option<&str>,
        name: &str,
        subresource: Option<&str>,
        patch: &Patch,
    ) -> K {
        let mut call = Call::of(Verb::Patch, resource::<K>(), namespace, Some(name));
        call.subresource = subresource.map(str::to_owned);
        (call.patch, call.body) = match patch {
            Patch::Strategic(value) => (PatchKind::Strategic, value.clone()),
            Patch::Merge(value) => (PatchKind::Merge, value.clone()),
        };
        typed(&self.must(&call))
    }

    /// Gives an object a form that its kind does not allow, by a merge patch.
    ///
    /// # Panics
    /// When the object does not exist.
    pub fn spoil<K: Object>(&self, namespace: Option<&str>, name: &str, patch: &Value) {
        let mut call = Call::of(Verb::Patch, resource::<K>(), namespace, Some(name));
        (call.patch, call.body) = (PatchKind::Merge, patch.clone());
        self.must(&call);
    }

    /// Deletes an object with the given grace in seconds, or its own; returns whether it existed.
    pub fn delete<K: Object>(&self, namespace: Option<&str>, name: &str, grace_seconds: Option<i64>) -> bool {
        let mut call = Call::of(Verb::Delete, resource::<K>(), namespace, Some(name));
        if let Some(seconds) = grace_seconds {
            call.body = serde_json::json!({ "gracePeriodSeconds": seconds });
        }
        self.shared.perform(&call).is_ok()
    }

    // ---- permissions ----

    /// Lets TokenReviews answer that `token` belongs to this user.
    pub fn accept_token(&self, token: &str, username: &str, groups: &[&str]) {
        self.shared.locked().state.reviews.accept(token, username, groups);
    }

    /// Lets SubjectAccessReviews allow this access: `resource` with its subresource, as in `nodes/proxy`, or a path;
    /// `*` matches all.
    pub fn allow(&self, user: &str, verb: &str, resource: &str) {
        self.shared.locked().state.reviews.allow(user, verb, resource);
    }
}
