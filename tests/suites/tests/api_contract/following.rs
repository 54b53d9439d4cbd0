//! Lists that stay current.

use std::collections::BTreeMap;
use std::time::Duration;

use bridge_kube::fake::{Fault, On, Verb};
use bridge_kube::{ApiError, Delete, Followed, Object, Patch, Select};
use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::json;

use crate::objects::cases;
use crate::subject::{Case, DEADLINE, Subject, object};

cases![
    all_is_told_first_and_then_each_change,
    who_no_longer_is_selected_is_gone,
    a_single_object_is_followed_before_it_is_there,
    more_watches_than_a_connection_takes_hold_up_no_call,
];

/// Cases that need a server that breaks on demand: outages of a real one are in `connection`.
pub const SCRIPTED: &[(&str, Case)] = &[
    ("broken_watches_lose_nothing", |subject| Box::pin(broken_watches_lose_nothing(subject))),
    ("a_forgotten_version_means_a_new_list", |subject| {
        Box::pin(a_forgotten_version_means_a_new_list(subject))
    }),
    ("a_server_that_is_back_is_listed_at_once", |subject| {
        Box::pin(a_server_that_is_back_is_listed_at_once(subject))
    }),
    ("data_put_back_to_an_earlier_time_are_believed", |subject| {
        Box::pin(data_put_back_to_an_earlier_time_are_believed(subject))
    }),
    ("who_is_told_when_to_come_again_does", |subject| Box::pin(who_is_told_when_to_come_again_does(subject))),
];

/// The objects that a follower knows.
pub struct View<K> {
    stream: BoxStream<'static, Followed<K>>,
    pub known: BTreeMap<String, K>,
    pub lists: usize,
    pub troubles: Vec<ApiError>,
}

impl<K: Object> View<K> {
    pub fn new(stream: BoxStream<'static, Followed<K>>) -> Self {
        Self { stream, known: BTreeMap::new(), lists: 0, troubles: Vec::new() }
    }

    async fn step(&mut self) {
        let name = |object: &K| object.meta().name.clone().unwrap_or_default();
        match self.stream.next().await.expect("it goes on") {
            Followed::All(all) => {
                self.lists += 1;
                self.known = all.into_iter().map(|object| (name(&object), object)).collect();
            }
            Followed::Changed(object) => {
                self.known.insert(name(&object), object);
            }
            Followed::Gone(object) => {
                assert!(self.known.remove(&name(&object)).is_some(), "{object:?} was not known");
            }
            Followed::Unreadable(one) => panic!("a server keeps to the form: {one:?}"),
            Followed::Trouble(error) => self.troubles.push(error),
        }
    }

    /// Waits until the follower knows the expected objects.
    pub async fn until(&mut self, what: &str, mut reached: impl FnMut(&Self) -> bool) {
        let waiting = async {
            while !reached(self) {
                self.step().await;
            }
        };
        let waited = tokio::time::timeout(DEADLINE * 2, waiting).await;
        assert!(waited.is_ok(), "not reached: {what}; known {:?}, {:?}", self.known.keys(), self.troubles);
    }
}

async fn set(subject: &Subject, name: &str, data: &str) {
    let map: ConfigMap =
        object(json!({"metadata": {"name": name, "namespace": subject.namespace}, "data": {"a": data}}));
    match subject.api.create(&map).await {
        Err(error) if error.is_already_exists() => {
            subject.api.replace(&map).await.expect("replaced");
        }
        other => {
            other.expect("made");
        }
    }
}

fn data(view: &View<ConfigMap>, name: &str) -> Option<String> {
    view.known.get(name)?.data.as_ref()?.get("a").cloned()
}

async fn all_is_told_first_and_then_each_change(subject: &Subject) {
    set(subject, "a", "1").await;
    let mut view = View::<ConfigMap>::new(subject.api.follow(subject.all()));
    view.until("the list", |view| view.lists == 1 && data(view, "a").is_some()).await;
    set(subject, "b", "1").await;
    view.until("an addition", |view| data(view, "b").is_some()).await;
    set(subject, "a", "2").await;
    view.until("a change", |view| data(view, "a").as_deref() == Some("2")).await;
    subject.api.delete::<ConfigMap>(subject.ns(), "b", &Delete::default()).await.expect("deleted");
    view.until("a removal", |view| !view.known.contains_key("b")).await;
    assert_eq!((view.lists, view.troubles.len()), (1, 0));
}

async fn who_no_longer_is_selected_is_gone(subject: &Subject) {
    let running = Select { fields: Some("status.phase=Pending".to_owned()), ..subject.all() };
    let mut view = View::<Pod>::new(subject.api.follow(running));
    subject.created("p").await;
    view.until("the pod is pending", |view| view.known.contains_key("p")).await;
    let patch = Patch::Strategic(json!({"status": {"phase": "Running"}}));
    subject.api.patch_status::<Pod>(subject.ns(), "p", &patch).await.expect("patched");
    view.until("the pod runs", |view| view.known.is_empty()).await;
}

async fn a_single_object_is_followed_before_it_is_there(subject: &Subject) {
    let mut view = View::<ConfigMap>::new(subject.api.follow(Select::named(subject.ns(), "one")));
    view.until("an empty list", |view| view.lists == 1).await;
    set(subject, "other", "1").await;
    set(subject, "one", "1").await;
    view.until("the one", |view| view.known.contains_key("one")).await;
    assert_eq!(view.known.len(), 1);
}

async fn more_watches_than_a_connection_takes_hold_up_no_call(subject: &Subject) {
    const WATCHES: usize = 1100;
    let follow = |n: usize| {
        View::<ConfigMap>::new(subject.api.follow(Select::named(subject.ns(), &format!("one{n}"))))
    };
    let mut views: Vec<_> = (0..WATCHES).map(follow).collect();
    let lists = views.iter_mut().map(|view| view.until("an empty list", |view| view.lists == 1));
    futures::future::join_all(lists).await;
    let first = views.first_mut().expect("one");
    set(subject, "one0", "1").await;
    first.until("the first", |view| data(view, "one0").is_some()).await;
    let (number, last) = (WATCHES - 1, views.last_mut().expect("one"));
    set(subject, &format!("one{number}"), "1").await;
    last.until("the last", |view| data(view, &format!("one{number}")).is_some()).await;
}

async fn broken_watches_lose_nothing(subject: &Subject) {
    let fake = subject.fake.as_ref().expect("the server in memory");
    let mut view = View::<ConfigMap>::new(subject.api.follow(subject.all()));
    view.until("the list", |view| view.lists == 1).await;
    while fake.watches() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    fake.cut_watches();
    set(subject, "a", "1").await;
    view.until("what happened meanwhile", |view| data(view, "a").is_some()).await;
    assert_eq!((view.lists, view.troubles.len()), (1, 1), "{:?}", view.troubles);
    fake.set_down(true);
    view.until("trouble", |view| view.troubles.len() > 3).await;
    fake.set_down(false);
    set(subject, "b", "1").await;
    view.until("what happened after", |view| data(view, "b").is_some()).await;
    assert_eq!(view.lists, 2, "a server that was away may hold something older");
    // An hour in which nothing happens but bookmarks and the ends of watches.
    let before = fake.count(Verb::Watch, "configmaps");
    tokio::time::timeout(Duration::from_secs(3600), view.step()).await.expect_err("nothing is told");
    let watches = fake.count(Verb::Watch, "configmaps") - before;
    assert!((6..=12).contains(&watches), "{watches}");
    assert_eq!(view.lists, 2);
}

async fn a_forgotten_version_means_a_new_list(subject: &Subject) {
    let fake = subject.fake.as_ref().expect("the server in memory");
    set(subject, "a", "1").await;
    let mut view = View::<ConfigMap>::new(subject.api.follow(subject.all()));
    view.until("the list", |view| view.lists == 1).await;
    fake.set_down(true);
    view.until("trouble", |view| !view.troubles.is_empty()).await;
    fake.delete::<ConfigMap>(subject.ns(), "a", None);
    fake.compact();
    fake.set_down(false);
    view.until("a new list", |view| view.lists == 2 && view.known.is_empty()).await;
    while fake.watches() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    fake.expire_watches();
    view.until("another list", |view| view.lists == 3).await;
}

async fn a_server_that_is_back_is_listed_at_once(subject: &Subject) {
    let fake = subject.fake.as_ref().expect("the server in memory");
    let mut view = View::<ConfigMap>::new(subject.api.follow(subject.all()));
    view.until("the list", |view| view.lists == 1).await;
    fake.set_down(true);
    // Long enough for pauses of more than half a minute.
    let waiting = async {
        loop {
            view.step().await;
        }
    };
    let waited: Result<(), _> = tokio::time::timeout(Duration::from_secs(600), waiting).await;
    waited.expect_err("it is down");
    let asked = |target: &str| fake.attempts().get(&(Verb::Get, target.to_owned())).copied().unwrap_or(0);
    assert!((500..=1250).contains(&asked("/readyz")), "{}", asked("/readyz"));
    let lists = fake.attempts()[&(Verb::List, "configmaps".to_owned())];
    assert!(lists < 30, "{lists}");
    fake.set_down(false);
    let back = tokio::time::Instant::now();
    view.until("a new list", |view| view.lists == 2).await;
    assert!(back.elapsed() <= Duration::from_millis(1100), "{:?}", back.elapsed());
    // No further requests are made.
    let before = asked("/readyz");
    tokio::time::timeout(Duration::from_secs(60), view.step()).await.expect_err("nothing is told");
    assert!(asked("/readyz") <= before + 1);
}

async fn data_put_back_to_an_earlier_time_are_believed(subject: &Subject) {
    let fake = subject.fake.as_ref().expect("the server in memory");
    set(subject, "a", "1").await;
    let backup = fake.backup();
    let mut view = View::<ConfigMap>::new(subject.api.follow(subject.all()));
    view.until("the list", |view| view.lists == 1).await;
    set(subject, "b", "1").await;
    for n in 0..50 {
        set(subject, "a", &n.to_string()).await;
    }
    view.until("the changes", |view| data(view, "a").as_deref() == Some("49")).await;
    fake.set_down(true);
    view.until("a server that cannot be reached", |view| view.troubles.len() > 1).await;
    fake.restore(&backup);
    fake.set_down(false);
    view.until("what was", |view| view.lists == 2 && view.known.len() == 1).await;
    assert_eq!(data(&view, "a").as_deref(), Some("1"));
    set(subject, "c", "1").await;
    view.until("what comes", |view| data(view, "c").is_some()).await;

    // The server is restored so quickly that no client has missed it: the watch is accepted, from a version that is yet
    // to come.
    for n in 0..50 {
        set(subject, "a", &n.to_string()).await;
    }
    view.until("the changes", |view| data(view, "a").as_deref() == Some("49")).await;
    fake.restore(&backup);
    let waited = tokio::time::timeout(Duration::from_secs(1200), async {
        while view.known.len() != 1 {
            view.step().await;
        }
    });
    waited.await.expect("a watch that is silent to its end is not believed");
    assert_eq!(data(&view, "a").as_deref(), Some("1"));
}

async fn who_is_told_when_to_come_again_does(subject: &Subject) {
    let fake = subject.fake.as_ref().expect("the server in memory");
    set(subject, "a", "1").await;
    let get = || subject.api.get::<ConfigMap>(subject.ns(), "a");
    let begun = tokio::time::Instant::now();
    fake.fault(On::call(Verb::Get, "configmaps"), 2, Fault::too_many(3));
    get().await.expect("in the end");
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(6) && took < Duration::from_secs(7), "{took:?}");
    // The time to wait is longer than the call may last.
    fake.fault(On::call(Verb::Get, "configmaps"), 1, Fault::too_many(50));
    let error = get().await.expect_err("too late");
    assert_eq!((error.code, error.retry_after), (429, Some(Duration::from_secs(50))));
    // Without a time in the answer, the call is not repeated.
    fake.fault(On::call(Verb::Get, "configmaps"), 1, Fault::code(429));
    assert_eq!(get().await.expect_err("refused").code, 429);
}
