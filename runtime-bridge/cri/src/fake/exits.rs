//! The ends of the fake's processes, reported as a pidfd would report them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use futures::stream::BoxStream;

use super::node::Node;
use crate::exits::{ExitWatchError, ExitWatcher, Exited};

/// The bound of the real watcher on a large node.
const WATCHED_MAX: usize = 4096;

/// The [`ExitWatcher`] of a [`FakeRuntime`](super::FakeRuntime).
#[derive(Clone)]
pub struct FakeExits {
    node: Arc<Node>,
    watched: Arc<Mutex<Watched>>,
}

#[derive(Default)]
struct Watched {
    by_container: BTreeMap<String, u32>,
    subscriber: u64,
}

impl FakeExits {
    pub(super) fn new(node: Arc<Node>) -> Self {
        Self { node, watched: Arc::default() }
    }

    fn with<T>(watched: &Mutex<Watched>, f: impl FnOnce(&mut Watched) -> T) -> T {
        f(&mut watched.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ExitWatcher for FakeExits {
    fn watch(&self, container_id: &str, pid: u32) -> Result<(), ExitWatchError> {
        Self::with(&self.watched, |watched| {
            let known = watched.by_container.contains_key(container_id);
            if !known && watched.by_container.len() >= WATCHED_MAX {
                return Err(ExitWatchError::Full { container_id: container_id.into(), limit: WATCHED_MAX });
            }
            watched.by_container.insert(container_id.to_owned(), pid);
            Ok(())
        })?;
        // Wakes the subscriber, which then checks whether the process exists.
        self.node.update(|_| {});
        Ok(())
    }

    fn unwatch(&self, container_id: &str) {
        Self::with(&self.watched, |watched| watched.by_container.remove(container_id));
    }

    fn exits(&self) -> BoxStream<'static, Exited> {
        let me = Self::with(&self.watched, |watched| {
            watched.subscriber += 1;
            watched.subscriber
        });
        // Wakes the earlier subscriber, so that its stream ends.
        self.node.update(|_| {});
        futures::stream::unfold(
            (Arc::clone(&self.node), Arc::clone(&self.watched)),
            move |(node, watched)| async move {
                let next = Arc::clone(&node)
                    .wait_for(|state| {
                        Self::with(&watched, |watched| {
                            if watched.subscriber != me {
                                return Some(None);
                            }
                            let gone = watched.by_container.iter().find(|(id, pid)| {
                                !state
                                    .containers
                                    .get(*id)
                                    .is_some_and(|container| container.is_running() && container.pid == **pid)
                            });
                            let (container_id, pid) = gone.map(|(id, pid)| (id.clone(), *pid))?;
                            watched.by_container.remove(&container_id);
                            Some(Some(Exited { container_id, pid }))
                        })
                    })
                    .await;
                next.map(|exited| (exited, (node, watched)))
            },
        )
        .boxed()
    }
}
