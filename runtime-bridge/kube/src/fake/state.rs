//! The objects of the server in memory, and the effect of calls on them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use super::call::{Call, PatchKind, Verb};
use super::patch;
use super::refusal::Refusal;
use super::resources::Resource;
use super::reviews::Reviews;
use super::rules::{self, End, set_meta, text};
use super::select::Selector;
use bridge_io::clock::Clock;

/// The most changes that are kept for watches.
const HISTORY_MAX: usize = 10_000;
/// The letters of generated names: without vowels, so that no words appear.
const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A change of one object.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub version: u64,
    pub plural: &'static str,
    pub before: Option<Arc<Value>>,
    /// The object after the change; `None` when it is gone.
    pub after: Option<Arc<Value>>,
}

type Key = (&'static str, String, String);

#[derive(Debug)]
pub(super) struct State {
    pub clock: Arc<dyn Clock>,
    /// The version of the newest change.
    pub version: u64,
    /// The version up to which changes are forgotten.
    pub compacted: u64,
    objects: BTreeMap<Key, Arc<Value>>,
    history: VecDeque<Change>,
    pub reviews: Reviews,
}

/// The objects, and their version.
#[derive(Clone, Debug)]
pub(super) struct Backup {
    version: u64,
    objects: BTreeMap<Key, Arc<Value>>,
}

type Answer = Result<(u16, Value), Refusal>;

impl State {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let (objects, history) = (BTreeMap::new(), VecDeque::new());
        Self { clock, version: 1, compacted: 0, objects, history, reviews: Reviews::default() }
    }

    /// Answers a call; the code is that of a success.
    pub fn perform(&mut self, call: &Call) -> Answer {
        let resource = call.resource;
        if resource.is_review() {
            if call.verb != Verb::Create {
                return Err(Refusal::not_allowed());
            }
            return self.reviews.review(resource, &call.body, self.clock.now()).map(|answer| (201, answer));
        }
        if let Some(subresource) = &call.subresource {
            if call.verb == Verb::Create && resource.plural == "serviceaccounts" && subresource == "token" {
                return self.token(call).map(|answer| (201, answer));
            }
            let known = match subresource.as_str() {
                "status" => resource.status,
                "approval" => resource.plural == "certificatesigningrequests",
                _ => false,
            };
            if !known || !matches!(call.verb, Verb::Get | Verb::Update | Verb::Patch) {
                return Err(Refusal::unknown_path());
            }
        }
        match call.verb {
            Verb::Get => Ok((200, (*self.known(call)?.1).clone())),
            Verb::List => self.list(call).map(|list| (200, list)),
            Verb::Create => self.create(call).map(|object| (201, object)),
            Verb::Update => self.update(call),
            Verb::Patch => self.patch(call).map(|object| (200, object)),
            Verb::Delete => self.delete(call).map(|answer| (200, answer)),
            Verb::Watch => Err(Refusal::not_allowed()),
        }
    }

    fn key(call: &Call, name: &str) -> Key {
        (call.resource.plural, call.namespace.clone().unwrap_or_default(), name.to_owned())
    }

    fn known(&self, call: &Call) -> Result<(Key, Arc<Value>), Refusal> {
        let name = call.name.as_deref().unwrap_or_default();
        let key = Self::key(call, name);
        match self.objects.get(&key) {
            Some(object) => Ok((key, Arc::clone(object))),
            None => Err(Refusal::not_found(call.resource, name)),
        }
    }

    pub fn get(&self, plural: &'static str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.objects.get(&(plural, namespace.to_owned(), name.to_owned())).cloned()
    }

    /// All selected objects of a kind, sorted by namespace and name.
    pub fn selected(&self, resource: &Resource, selector: &Selector) -> Vec<Arc<Value>> {
        let of_kind = self.objects.iter().filter(|((plural, ..), _)| *plural == resource.plural);
        of_kind.map(|(_, object)| object).filter(|object| selector.matches(object)).cloned().collect()
    }

    fn list(&self, call: &Call) -> Result<Value, Refusal> {
        if call.query.get("labelSelector").is_some_and(|selector| !selector.is_empty()) {
            return Err(Refusal::bad_request("the server in memory knows no label selectors"));
        }
        let selector = self.selector(call)?;
        let number = |name: &str| {
            call.query.get(name).filter(|text| !text.is_empty()).map(|text| text.parse::<usize>())
        };
        let limit =
            number("limit").transpose().map_err(|error| Refusal::bad_request(format!("limit: {error}")))?;
        let limit = limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let from = match call.query.get("continue").and_then(|from| from.split_once(':')) {
            // Lists of the past are not kept.
            Some((version, _)) if version != self.version.to_string() => return Err(Refusal::page_too_old()),
            Some((_, from)) => {
                from.parse().map_err(|error| Refusal::bad_request(format!("continue: {error}")))?
            }
            None => 0,
        };
        let all = self.selected(call.resource, &selector);
        let items: Vec<Value> = all.iter().skip(from).take(limit).map(|object| (**object).clone()).collect();
        let mut metadata = json!({"resourceVersion": self.version.to_string()});
        let next = from + items.len();
        if next < all.len() {
            metadata["continue"] = format!("{}:{next}", self.version).into();
            metadata["remainingItemCount"] = (all.len() - next).into();
        }
        Ok(json!({
            "kind": format!("{}List", call.resource.kind), "apiVersion": call.resource.api_version(),
            "metadata": metadata, "items": items,
        }))
    }

    pub fn selector(&self, call: &Call) -> Result<Selector, Refusal> {
        let fields = call.query.get("fieldSelector").map(String::as_str).unwrap_or_default();
        Selector::read(call.resource, call.namespace.as_deref(), fields)
    }

    /// Stores an object, or its removal, with a new resource version.
    fn store(&mut self, key: Key, object: Option<Value>) -> Value {
        self.version += 1;
        let before = self.objects.remove(&key);
        let version = Some(self.version.to_string().into());
        let (plural, told) = (key.0, object.is_some());
        let mut now = object.unwrap_or_else(|| before.as_deref().cloned().unwrap_or_default());
        set_meta(&mut now, "resourceVersion", version);
        let after = Arc::new(now.clone());
        if told {
            self.objects.insert(key, Arc::clone(&after));
            self.remember(Change { version: self.version, plural, before, after: Some(after) });
        } else {
            self.remember(Change { version: self.version, plural, before: Some(after), after: None });
        }
        now
    }

    fn remember(&mut self, change: Change) {
        if self.history.len() == HISTORY_MAX
            && let Some(forgotten) = self.history.pop_front()
        {
            self.compacted = forgotten.version;
        }
        self.history.push_back(change);
    }

    pub fn backup(&self) -> Backup {
        Backup { version: self.version, objects: self.objects.clone() }
    }

    /// Restores a backup and forgets the history: a watch from a later version gets nothing until that version is
    /// reached again.
    pub fn restore(&mut self, backup: &Backup) {
        (self.version, self.objects) = (backup.version, backup.objects.clone());
        self.compacted = self.version;
        self.history.clear();
    }

    /// Forgets all changes so far, so that a watch from an earlier version must list anew.
    pub fn compact(&mut self) {
        self.version += 1;
        self.compacted = self.version;
        self.history.clear();
    }

    /// The changes of a kind after a version.
    pub fn since(&self, plural: &str, version: u64) -> Vec<Change> {
        let first = self.history.partition_point(|change| change.version <= version);
        self.history.range(first..).filter(|change| change.plural == plural).cloned().collect()
    }

    fn create(&mut self, call: &Call) -> Result<Value, Refusal> {
        let resource = call.resource;
        let mut object = self.sent(call)?;
        let prefix = text(&object, "/metadata/generateName").to_owned();
        if text(&object, "/metadata/name").is_empty() && !prefix.is_empty() {
            let name = self.generated(&prefix);
            set_meta(&mut object, "name", Some(name.into()));
        }
        rules::validate(resource, &object)?;
        if !text(&object, "/metadata/resourceVersion").is_empty() {
            return Err(Refusal::bad_request("resourceVersion should not be set on objects to be created"));
        }
        if let Some(namespace) = &call.namespace
            && self.get("namespaces", "", namespace).is_none()
        {
            return Err(Refusal::new(404, "NotFound", format!("namespaces {namespace:?} not found")));
        }
        let name = text(&object, "/metadata/name").to_owned();
        let key = Self::key(call, &name);
        if self.objects.contains_key(&key) {
            return Err(Refusal::already_exists(resource, &name));
        }
        let uid = self.clock.uuid();
        rules::born(resource, &mut object, self.clock.now(), uid);
        Ok(self.store(key, Some(object)))
    }

    /// The object in a call's body, with the call's namespace set.
    fn sent(&self, call: &Call) -> Result<Value, Refusal> {
        let mut object = call.body.clone();
        if !object.is_object() {
            return Err(Refusal::bad_request("the body must be an object"));
        }
        let kind = text(&object, "/kind");
        if !kind.is_empty() && kind != call.resource.kind {
            return Err(Refusal::bad_request(format!(
                "{kind} in the body does not match the expected kind {}",
                call.resource.kind
            )));
        }
        let namespace = text(&object, "/metadata/namespace");
        match &call.namespace {
            Some(asked) if !namespace.is_empty() && namespace != asked => {
                return Err(Refusal::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            Some(asked) => set_meta(&mut object, "namespace", Some(asked.clone().into())),
            None if call.resource.namespaced => {
                return Err(Refusal::bad_request("an empty namespace may not be set during creation"));
            }
            None => set_meta(&mut object, "namespace", None),
        }
        Ok(object)
    }

    fn generated(&self, prefix: &str) -> String {
        let mut random = self.clock.random_u64();
        let letters = NAME_LETTERS.len() as u64;
        (0..5).fold(prefix.to_owned(), |mut name, _| {
            name.push(char::from(NAME_LETTERS[usize::try_from(random % letters).unwrap_or(0)]));
            random /= letters;
            name
        })
    }

    fn update(&mut self, call: &Call) -> Answer {
        let mut new = self.sent(call)?;
        let name = call.name.as_deref().unwrap_or_default();
        if text(&new, "/metadata/name") != name {
            return Err(Refusal::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({name})",
                text(&new, "/metadata/name")
            )));
        }
        let (key, old) = match self.known(call) {
            Ok(found) => found,
            Err(_) if call.resource.creates_on_update => {
                set_meta(&mut new, "resourceVersion", None);
                set_meta(&mut new, "uid", None);
                let made = Call { verb: Verb::Create, name: None, body: new, ..call.clone() };
                return self.create(&made).map(|object| (201, object));
            }
            Err(refusal) => return Err(refusal),
        };
        let version = text(&new, "/metadata/resourceVersion").to_owned();
        if version.is_empty() && !call.resource.unconditional {
            let why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
            return Err(Refusal::invalid(call.resource, name, why));
        }
        self.change(call, key, &old, new).map(|object| (200, object))
    }

    fn patch(&mut self, call: &Call) -> Result<Value, Refusal> {
        let (key, old) = self.known(call)?;
        let mut new = (*old).clone();
        match call.patch {
            PatchKind::Merge => patch::merge(&mut new, &call.body),
            PatchKind::Strategic => {
                patch::strategic(&mut new, &call.body, call.resource.kind).map_err(Refusal::bad_request)?;
            }
        }
        self.change(call, key, &old, new)
    }

    fn change(&mut self, call: &Call, key: Key, old: &Value, mut new: Value) -> Result<Value, Refusal> {
        let name = text(old, "/metadata/name");
        let current = text(old, "/metadata/resourceVersion");
        let asked = text(&new, "/metadata/resourceVersion");
        if !asked.is_empty() && asked != current {
            return Err(Refusal::stale(call.resource, name));
        }
        rules::updated(call.resource, old, &mut new, call.subresource.as_deref(), call.verb == Verb::Patch)?;
        rules::validate(call.resource, &new)?;
        set_meta(&mut new, "resourceVersion", Some(current.into()));
        if new == *old {
            return Ok(new);
        }
        if rules::is_finished(&new) {
            self.store(key, None);
            return Ok(new);
        }
        Ok(self.store(key, Some(new)))
    }

    fn delete(&mut self, call: &Call) -> Result<Value, Refusal> {
        let (key, old) = self.known(call)?;
        let name = key.2.clone();
        for (field, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
            let asked = text(&call.body, &format!("/preconditions/{field}"));
            let current = text(&old, &format!("/metadata/{field}"));
            if !asked.is_empty() && asked != current {
                let message = format!(
                    "Operation cannot be fulfilled on {} {name:?}: the {what} in the precondition ({asked}) does not \
                     match the {what} in record ({current}). The object might have been deleted and then recreated",
                    call.resource.kind
                );
                return Err(Refusal::new(409, "Conflict", message));
            }
        }
        let in_query = call.query.get("gracePeriodSeconds").and_then(|seconds| seconds.parse().ok());
        let grace = call.body.get("gracePeriodSeconds").and_then(Value::as_i64).or(in_query);
        match rules::deleted(call.resource, &old, grace, self.clock.now()) {
            End::Unchanged => Ok((*old).clone()),
            End::Marked(marked) => Ok(self.store(key, Some(marked))),
            End::Removed if call.resource.plural == "pods" => {
                let mut last = self.store(key, None);
                set_meta(&mut last, "deletionGracePeriodSeconds", Some(0.into()));
                Ok(last)
            }
            End::Removed => {
                let uid = text(&old, "/metadata/uid").to_owned();
                self.store(key, None);
                Ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                    "details": {"name": name, "kind": call.resource.plural, "uid": uid}}))
            }
        }
    }

    fn token(&mut self, call: &Call) -> Result<Value, Refusal> {
        let (key, account) = self.known(call)?;
        let bound = call.body.pointer("/spec/boundObjectRef").filter(|bound| bound.is_object());
        if let Some(bound) = bound {
            let plural = match text(bound, "/kind") {
                "Pod" => "pods",
                "Secret" => "secrets",
                "Node" => "nodes",
                other => {
                    let why = format!("cannot bind token for serviceaccount {:?} to type {:?}", key.2, other);
                    return Err(Refusal::bad_request(why));
                }
            };
            let namespace = if plural == "nodes" { "" } else { &key.1 };
            let name = text(bound, "/name");
            let Some(object) = self.get(plural, namespace, name) else {
                return Err(Refusal::new(404, "NotFound", format!("{plural} {name:?} not found")));
            };
            let (asked, uid) = (text(bound, "/uid"), text(&object, "/metadata/uid"));
            if !asked.is_empty() && asked != uid {
                let why = format!(
                    "the UID in the bound object reference ({asked}) does not match the UID in record. The object \
                     might have been deleted and then recreated"
                );
                let what = format!("Operation cannot be fulfilled on {plural} {name:?}: {why}");
                return Err(Refusal::new(409, "Conflict", what));
            }
        }
        let nonce = self.clock.random_u64();
        self.reviews.issue(&account, &call.body, self.clock.now(), nonce)
    }
}

impl State {
    /// Gives a new object the UID that a test chose for it.
    pub fn set_uid(&mut self, resource: &Resource, namespace: &str, name: &str, uid: &str) -> Value {
        let key = (resource.plural, namespace.to_owned(), name.to_owned());
        let object = self.objects.get(&key).map(|object| (**object).clone()).unwrap_or_default();
        let mut object = object;
        set_meta(&mut object, "uid", Some(uid.into()));
        self.store(key, Some(object))
    }
}
