//! The actor: opens watches for the objects that pods' actors ask for, answers from them, and tells which pods a change
//! concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_io::clock::Clock;
use bridge_kube::{ApiError, Follow, Followed, PodObjects, Read, Select};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use messages::PodUid;
use messages::facts::{DesiredPod, DesiredPodsChanged, NodeObserved, Source};
use messages::node_status::ResendNode;
use messages::object_cache::{
    GetConfigMap, GetRuntimeClass, GetSecret, GetToken, ObjectError, PodObjectsChanged, Token,
};
use messages::pod_manager::ResendDesired;
use pod_set::{PodSet, Taken};
use supervision::{Address, Ctx, EffectId, Reply, ReplyLater, Subsystem, blame, reply_later};
use tokio::time::Instant;

use crate::object_store::{Kind, Lookup, ObjectStore};
use crate::references::{self, References};
use crate::room::Name;
use crate::shares::{ObjectKey, Place, ReadLines, Watches};
use crate::strategy::{self, Strategy};
use crate::tokens::{Issued, TokenKey};

mod accounts;
mod cached_kind;
mod services;

use cached_kind::CachedKind;
use services::AllServices;

/// Longest wait for an object that has not been read yet.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same where objects are not watched: there is nothing older to answer with. Askers wait for ten seconds and more.
const READ_PATIENCE: Duration = Duration::from_secs(9);
/// How often objects and watches that are no longer needed are removed.
const SWEEP: Duration = Duration::from_secs(60);
/// At most so many asks wait for one token, or for the services.
const WAITING_MAX: usize = 256;
/// The most tokens of one pod: each is asked of the API server and kept until it expires, and a pod's author may name very many.
const TOKENS_MAX: usize = 256;

type ObjectAnswer<T> = Result<T, ObjectError>;
type StoreOf<K> = ObjectStore<K, EffectId, Reply<ObjectAnswer<Arc<K>>>>;

/// ObjectCache's effects and addresses.
#[derive(Clone)]
pub struct ObjectCacheDeps {
    /// The API server; `None` if the node stands alone.
    pub api: Option<Arc<dyn PodObjects>>,
    /// How secrets and config maps are kept current.
    pub strategy: Strategy,
    /// Wall time and randomness.
    pub clock: Arc<dyn Clock>,
    /// Told that the objects of a pod have changed.
    pub observers: Vec<Address<PodObjectsChanged>>,
    /// PodManager, asked to send the desired pods again.
    pub resend_desired: Address<ResendDesired>,
    /// NodeStatus, asked to send the Node again; `None` if the node stands alone.
    pub resend_node: Option<Address<ResendNode>>,
}

/// A timer of the actor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The asks that wait for this object have waited long enough.
    Patience(Kind, Name),
    /// The asks that wait for the services have waited long enough.
    Services,
    /// Remove objects and watches that are no longer needed.
    Sweep,
}

/// Tokens under one key.
#[derive(Default)]
struct Tokens {
    issued: Option<Issued>,
    /// Asks that wait for the next token; while there are any, a request to the API server is under way.
    waiting: Vec<Reply<ObjectAnswer<Token>>>,
}

/// ObjectCache: reads the objects that pods refer to, once for all askers.
pub struct ObjectCache {
    deps: ObjectCacheDeps,
    origin: Instant,
    secrets: StoreOf<Secret>,
    config_maps: StoreOf<ConfigMap>,
    runtime_classes: StoreOf<RuntimeClass>,
    watches: Watches,
    /// The objects that are not watched and that asks wait for.
    reads: ReadLines,
    services: AllServices,
    tokens: BTreeMap<TokenKey, Tokens>,
    desired: PodSet<Arc<DesiredPod>>,
    /// What pods refer to, and which.
    references: References,
}

impl ObjectCache {
    /// An incarnation without objects.
    pub fn new(deps: ObjectCacheDeps) -> Self {
        let strategy = deps.strategy;
        Self {
            deps,
            origin: Instant::now(),
            secrets: ObjectStore::new(Kind::Secret, Secret::bytes).kept_by(strategy),
            config_maps: ObjectStore::new(Kind::ConfigMap, ConfigMap::bytes).kept_by(strategy),
            runtime_classes: ObjectStore::new(Kind::RuntimeClass, RuntimeClass::bytes),
            watches: Watches::default(),
            reads: ReadLines::default(),
            services: AllServices::default(),
            tokens: BTreeMap::new(),
            desired: PodSet::default(),
            references: References::default(),
        }
    }

    fn get<K: CachedKind>(
        &mut self,
        (pod, name): (PodUid, Name),
        reply: Reply<ObjectAnswer<Arc<K>>>,
        ctx: &mut Ctx<Self>,
    ) where
        dyn PodObjects: Follow<K>,
    {
        let Some(api) = self.deps.api.clone() else { return reply.send(Err(alone(K::KIND.word(), &name))) };
        let now = self.origin.elapsed();
        let object = (K::KIND, name);
        // The pod may have come before the word of it.
        if self.deps.strategy == Strategy::Cache && !self.references.refers(&pod, &object) {
            K::object_store(self).expire(&object.1);
        }
        let is_watched = K::object_store(self).strategy() == Strategy::Watch;
        let patience = if is_watched { PATIENCE } else { READ_PATIENCE };
        match K::object_store(self).get(&object.1, reply, now) {
            Lookup::Known(reply, answer) => reply.send(answer),
            Lookup::Full(reply) => reply.send(Err(K::KIND.not_synced())),
            Lookup::Waits(true) => ctx.set_timer(Timer::Patience(K::KIND, object.1.clone()), patience),
            Lookup::Waits(false) => {}
        }
        K::object_store(self).asked_by(&object.1, pod);
        if K::object_store(self).needs_watch(&object.1) {
            match self.watches.take(&object) {
                Place::Free => self.watch::<K>(&*api, &object.1, ctx),
                Place::InsteadOf(other) => {
                    match other.0 {
                        Kind::Secret => self.unwatch::<Secret>(&other, ctx),
                        Kind::ConfigMap => self.unwatch::<ConfigMap>(&other, ctx),
                        Kind::RuntimeClass => self.unwatch::<RuntimeClass>(&other, ctx),
                    }
                    self.watch::<K>(&*api, &object.1, ctx);
                }
                Place::None => {}
            }
        }
        self.read_if_awaited::<K>(&object, ctx);
    }

    fn watch<K: CachedKind>(&mut self, api: &dyn PodObjects, name: &Name, ctx: &mut Ctx<Self>)
    where
        dyn PodObjects: Follow<K>,
    {
        let stream = Follow::<K>::follow(api, Select::named(namespace(name), &name.1));
        let (of_news, of_end) = (name.clone(), (K::KIND, name.clone()));
        let pod = K::object_store(self).asker(name);
        let watch = ctx.stream(
            K::FOLLOW,
            stream,
            move |actor: &mut Self, news, ctx| {
                let _named = pod.as_ref().map(blame::name);
                actor.heard::<K>(&of_news, news, ctx);
            },
            move |actor, ctx| actor.unwatch::<K>(&of_end, ctx),
        );
        K::object_store(self).set_watch(name, watch);
    }

    fn unwatch<K: CachedKind>(&mut self, object: &ObjectKey, ctx: &mut Ctx<Self>) {
        let now = self.origin.elapsed();
        self.watches.give_back(object);
        if let Some(watch) = K::object_store(self).take_watch(&object.1, now) {
            ctx.cancel_effect(watch);
        }
        self.read_if_awaited::<K>(object, ctx);
    }

    fn read_if_awaited<K: CachedKind>(&mut self, object: &ObjectKey, ctx: &mut Ctx<Self>) {
        if K::object_store(self).begin_read(&object.1) {
            self.reads.push(object.clone());
            self.read_next(&object.1.0, ctx);
        }
    }

    /// Begins the reads of a namespace that may begin.
    fn read_next(&mut self, namespace: &Arc<str>, ctx: &mut Ctx<Self>) {
        while let Some((kind, name)) = self.reads.next(namespace) {
            match kind {
                Kind::Secret => self.read::<Secret>(name, ctx),
                Kind::ConfigMap => self.read::<ConfigMap>(name, ctx),
                Kind::RuntimeClass => self.read::<RuntimeClass>(name, ctx),
            }
        }
    }

    fn read<K: CachedKind>(&mut self, name: Name, ctx: &mut Ctx<Self>)
    where
        dyn PodObjects: Read<K>,
    {
        let Some(api) = self.deps.api.clone().filter(|_| K::object_store(self).starts_read(&name)) else {
            return self.reads.ended(&name.0);
        };
        let read = Read::<K>::read(&*api, namespace(&name), &name.1);
        let pod = K::object_store(self).asker(&name);
        ctx.effect("read an object", pod, read, move |actor: &mut Self, answer, ctx| {
            actor.was_read::<K>(&name, answer, ctx);
        });
    }

    fn was_read<K: CachedKind>(&mut self, name: &Name, answer: Result<K, ApiError>, ctx: &mut Ctx<Self>) {
        let now = self.origin.elapsed();
        self.reads.ended(&name.0);
        let read = match answer {
            Ok(object) => Ok(vec![object]),
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            Err(error) => {
                may_be_outdated(K::KIND, name, &error);
                Err(error)
            }
        };
        let is_news = K::object_store(self).end_read(name, now, read.is_ok());
        match read {
            Ok(all) if is_news => {
                self.heard::<K>(name, Followed::All(all), ctx);
                // Asks of pods that came after the read had begun wait for another one.
                self.read_if_awaited::<K>(&(K::KIND, name.clone()), ctx);
            }
            Ok(_) => {}
            Err(error) => self.give_up::<K>(name, Some(&error)),
        }
        self.read_next(&name.0, ctx);
    }

    fn heard<K: CachedKind>(&mut self, name: &Name, news: Followed<K>, ctx: &mut Ctx<Self>) {
        if let Followed::Trouble(error) = &news {
            may_be_outdated(K::KIND, name, error);
        }
        let heard = K::object_store(self).heard(name, news, K::never_changes, K::says_the_same);
        for (name, watch) in heard.closed {
            ctx.cancel_effect(watch);
            self.watches.give_back(&(K::KIND, name));
        }
        if let Some((waiting, answer)) = heard.answers {
            let patience = Timer::Patience(K::KIND, name.clone());
            if K::object_store(self).is_awaited(name) {
                ctx.set_timer(patience, READ_PATIENCE);
            } else {
                ctx.cancel_timer(&patience);
            }
            waiting.into_iter().for_each(|reply| reply.send(answer.clone()));
        }
        if heard.changed {
            self.tell_of_change(&(K::KIND, name.clone()));
        }
    }

    fn tell_of_change(&self, object: &(Kind, Name)) {
        for uid in self.references.pods(object) {
            let _named = blame::name(uid);
            for observer in &self.deps.observers {
                // Lost: what volumes show is looked over every minute, and what waits for an object tries again.
                observer.tell_level(PodObjectsChanged { uid: uid.clone() });
            }
        }
    }

    /// Notes what the pod refers to now: nothing if it is no pod of the API server that runs here.
    fn note_references(&mut self, uid: &PodUid) {
        let needs = |pod: &&Arc<DesiredPod>| pod.source == Source::Api && pod.rejected.is_none();
        let objects = self.desired.get(uid).filter(needs).map(|desired| references::of(&desired.pod));
        let objects = objects.unwrap_or_default();
        if self.deps.strategy == Strategy::Cache {
            for object in objects.iter().filter(|object| !self.references.refers(uid, object)) {
                match object.0 {
                    Kind::Secret => self.secrets.expire(&object.1),
                    Kind::ConfigMap => self.config_maps.expire(&object.1),
                    Kind::RuntimeClass => {}
                }
            }
        }
        self.references.set(uid, objects);
    }

    /// Answers the asks that wait for the object with what was known last, or why there is nothing: where objects are not watched, in
    /// the API server's words.
    fn give_up<K: CachedKind>(&mut self, name: &Name, why: Option<&ApiError>) {
        let (waiting, answer) = K::object_store(self).give_up(name);
        let why = why.filter(|_| K::object_store(self).strategy() != Strategy::Watch);
        let answer = match (answer, why) {
            (Err(error), Some(why)) if !error.not_found => Err(failed(said(why))),
            (answer, _) => answer,
        };
        waiting.into_iter().for_each(|reply| reply.send(answer.clone()));
    }

    fn request_token(&mut self, ask: &GetToken, reply: Reply<ObjectAnswer<Token>>, ctx: &mut Ctx<Self>) {
        let key = TokenKey::of(ask);
        let account = key.account.clone();
        let Some(api) = self.deps.api.clone() else { return reply.send(Err(alone("token of", &account))) };
        if !self.tokens.contains_key(&key) && self.tokens_of(&key.pod) >= TOKENS_MAX {
            return reply
                .send(Err(failed(format!("a pod may have {TOKENS_MAX} tokens of service accounts"))));
        }
        let (now, random) = (self.deps.clock.now(), self.deps.clock.random_u64());
        let tokens = self.tokens.entry(key.clone()).or_default();
        if let Some(issued) = &tokens.issued
            && !issued.requires_refresh(now, random)
        {
            return reply.send(Ok(issued.token.clone()));
        }
        if tokens.waiting.len() >= WAITING_MAX {
            return reply.send(Err(failed("too many wait for this token".to_owned())));
        }
        tokens.waiting.push(reply);
        if tokens.waiting.len() > 1 {
            return;
        }
        let request = request_of(ask);
        let sent = api.issue(&account.0, &account.1, &request);
        ctx.effect("request a token", Some(key.pod.clone()), sent, move |actor, answer, _| {
            actor.answered(&key, answer);
        });
    }

    /// How many tokens of the pod there are, but no more than may be.
    fn tokens_of(&self, pod: &PodUid) -> usize {
        let of_pod = self.tokens.range(TokenKey::first_of(pod)..).take(TOKENS_MAX);
        of_pod.take_while(|(key, _)| key.pod == *pod).count()
    }

    fn answered(&mut self, key: &TokenKey, answer: Result<TokenRequest, ApiError>) {
        let now = self.deps.clock.now();
        let Some(tokens) = self.tokens.get_mut(key) else { return };
        let answer = match answer.map_err(|error| said(&error)).and_then(|request| issued(&request)) {
            Ok(issued) => {
                let token = issued.token.clone();
                tokens.issued = Some(issued);
                Ok(token)
            }
            Err(error) => match &tokens.issued {
                None => Err(failed(format!("failed to fetch token: {error}"))),
                Some(old) if old.has_expired(now) => {
                    Err(failed(format!("token of {:?} expired and refresh failed: {error}", key.account.1)))
                }
                Some(old) => {
                    tracing::warn!(error, account = &*key.account.1, pod = %key.pod, "Token was not renewed");
                    Ok(old.token.clone())
                }
            },
        };
        for reply in std::mem::take(&mut tokens.waiting) {
            reply.send(answer.clone());
        }
    }

    fn sweep(&mut self, ctx: &mut Ctx<Self>) {
        ctx.set_timer(Timer::Sweep, SWEEP);
        let now = self.origin.elapsed();
        let wall = self.deps.clock.now();
        if !self.desired.is_known() {
            return;
        }
        let references = &self.references;
        let of = |kind: Kind| -> BTreeSet<&Name> {
            references.objects().filter(|(one, _)| *one == kind).map(|(_, name)| name).collect()
        };
        let closed = [
            (Kind::Secret, self.secrets.sweep(&of(Kind::Secret), now)),
            (Kind::ConfigMap, self.config_maps.sweep(&of(Kind::ConfigMap), now)),
            (Kind::RuntimeClass, self.runtime_classes.sweep(&of(Kind::RuntimeClass), now)),
        ];
        for (kind, (name, watch)) in
            closed.into_iter().flat_map(|(kind, closed)| closed.into_iter().map(move |one| (kind, one)))
        {
            ctx.cancel_effect(watch);
            self.watches.give_back(&(kind, name));
        }
        let pods = &self.desired;
        self.tokens.retain(|key, tokens| {
            let held = tokens.issued.as_ref().is_some_and(|issued| !issued.has_expired(wall));
            !tokens.waiting.is_empty() || (held && pods.contains(&key.pod))
        });
    }
}

/// The namespace of an object, if its kind has namespaces.
fn namespace(name: &Name) -> Option<&str> {
    Some(&*name.0).filter(|namespace| !namespace.is_empty())
}

fn may_be_outdated(kind: Kind, name: &Name, error: &ApiError) {
    tracing::warn!(%error, namespace = &*name.0, name = &*name.1, "{} may be out of date", kind.word());
}

fn failed(message: String) -> ObjectError {
    ObjectError { not_found: false, message }
}

fn alone(what: &str, name: &Name) -> ObjectError {
    failed(format!("couldn't get {what} {}/{}, no kubeClient defined", name.0, name.1))
}

/// The API server's message, or the reason why it gave no answer.
fn said(error: &ApiError) -> String {
    if error.is_unanswered() { error.to_string() } else { error.message.clone() }
}

fn request_of(ask: &GetToken) -> TokenRequest {
    let pod = BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(ask.pod.name.to_string()),
        uid: Some(ask.pod.uid.to_string()),
    };
    let audiences = (!ask.audience.is_empty()).then(|| vec![ask.audience.to_string()]);
    let spec = TokenRequestSpec {
        audiences,
        bound_object_ref: Some(pod),
        expiration_seconds: ask.expiration_seconds,
    };
    let uid = Some(ask.account_uid.to_string()).filter(|uid| !uid.is_empty());
    TokenRequest {
        metadata: ObjectMeta { uid, ..ObjectMeta::default() },
        spec: Some(spec),
        ..TokenRequest::default()
    }
}

fn issued(request: &TokenRequest) -> Result<Issued, String> {
    let status = request.status.as_ref();
    let token =
        status.and_then(|status| Some((status.token.as_ref()?, status.expiration_timestamp.as_ref()?)));
    let (token, expires) = token.ok_or_else(|| "the answer holds no token".to_owned())?;
    let seconds = request.spec.as_ref().and_then(|spec| u64::try_from(spec.expiration_seconds?).ok());
    Ok(Issued {
        token: Token { text: Arc::from(token.as_str()), expires: expires.0 },
        expires: expires.0,
        lifetime: seconds.map(Duration::from_secs),
    })
}

impl actix::Actor for ObjectCache {
    type Context = Ctx<Self>;
}

impl Subsystem for ObjectCache {
    const NAME: &'static str = messages::object_cache::RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        self.follow_services(ctx);
        ctx.set_timer(Timer::Sweep, SWEEP);
        self.deps.resend_desired.tell_level(ResendDesired { receiver: Self::NAME });
        if let Some(node) = self.deps.resend_node.as_ref().filter(|_| self.deps.strategy == Strategy::Cache) {
            node.tell_level(ResendNode { receiver: Self::NAME });
        }
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Patience(Kind::Secret, name) => self.give_up::<Secret>(&name, None),
            Timer::Patience(Kind::ConfigMap, name) => self.give_up::<ConfigMap>(&name, None),
            Timer::Patience(Kind::RuntimeClass, name) => self.give_up::<RuntimeClass>(&name, None),
            Timer::Services => self.services_not_read(),
            Timer::Sweep => self.sweep(ctx),
        }
    }

    fn on_release(&mut self, pod: &PodUid, _ctx: &mut Ctx<Self>) {
        self.note_references(pod);
    }

    fn observe(&self) -> serde_json::Value {
        let ((secrets, secrets_watched), (config_maps, config_maps_watched)) =
            (self.secrets.counts(), self.config_maps.counts());
        serde_json::json!({
            "secrets": secrets,
            "secretsWatched": secrets_watched,
            "configMaps": config_maps,
            "configMapsWatched": config_maps_watched,
            "runtimeClasses": self.runtime_classes.counts().0,
            "services": self.services.known.as_ref().map(BTreeMap::len),
            "tokens": self.tokens.len(),
        })
    }
}

impl actix::Handler<DesiredPodsChanged> for ObjectCache {
    type Result = ();

    fn handle(&mut self, DesiredPodsChanged(update): DesiredPodsChanged, ctx: &mut Ctx<Self>) {
        match self.desired.take(update) {
            Taken::Nothing => {}
            Taken::Pod(uid, _) => self.note_references(&uid),
            Taken::All(before) => {
                let uids: BTreeSet<PodUid> = before.uids().chain(self.desired.uids()).cloned().collect();
                for uid in &uids {
                    // Of a pod that is left alone what was found before still holds.
                    ctx.for_pod(uid, |_| self.note_references(uid));
                }
            }
            Taken::Missed => self.deps.resend_desired.tell_level(ResendDesired { receiver: Self::NAME }),
        }
    }
}

impl actix::Handler<NodeObserved> for ObjectCache {
    type Result = ();

    fn handle(&mut self, NodeObserved(node): NodeObserved, _ctx: &mut Ctx<Self>) {
        let ttl = strategy::ttl(node.as_deref());
        self.secrets.set_ttl(ttl);
        self.config_maps.set_ttl(ttl);
    }
}

impl actix::Handler<GetSecret> for ObjectCache {
    type Result = ReplyLater<ObjectAnswer<Arc<Secret>>>;

    fn handle(&mut self, ask: GetSecret, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        self.get::<Secret>((ask.pod, (ask.namespace, ask.name)), reply, ctx);
        later
    }
}

impl actix::Handler<GetConfigMap> for ObjectCache {
    type Result = ReplyLater<ObjectAnswer<Arc<ConfigMap>>>;

    fn handle(&mut self, ask: GetConfigMap, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        self.get::<ConfigMap>((ask.pod, (ask.namespace, ask.name)), reply, ctx);
        later
    }
}

impl actix::Handler<GetRuntimeClass> for ObjectCache {
    type Result = ReplyLater<ObjectAnswer<Arc<RuntimeClass>>>;

    fn handle(&mut self, ask: GetRuntimeClass, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        if self.deps.api.is_none() {
            // A node that stands alone knows no classes: the runtime's default handler serves all pods.
            reply.send(Ok(Arc::default()));
        } else {
            self.get::<RuntimeClass>((ask.pod, (Arc::from(""), ask.name)), reply, ctx);
        }
        later
    }
}

impl actix::Handler<GetToken> for ObjectCache {
    type Result = ReplyLater<ObjectAnswer<Token>>;

    fn handle(&mut self, ask: GetToken, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        self.request_token(&ask, reply, ctx);
        later
    }
}
