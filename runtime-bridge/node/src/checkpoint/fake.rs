use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;

use super::{CheckpointError, CheckpointStore, check_name, encode};

/// Checkpoints in memory, with failures on demand. Clones share their content, so that a test can inspect it and hand
/// it to the next incarnation of a node.
#[derive(Debug, Clone, Default)]
pub struct FakeCheckpoints {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    contents: BTreeMap<String, Stored>,
    full: bool,
    failing: bool,
    /// Names whose loads fail, and those whose operations do not end.
    unreadable: BTreeSet<String>,
    hanging: BTreeSet<String>,
    saves: u64,
}

#[derive(Debug)]
enum Stored {
    Json(Vec<u8>),
    Corrupt(String),
}

impl FakeCheckpoints {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// While set, every save fails with [`CheckpointError::DiskFull`].
    pub fn set_disk_full(&self, full: bool) {
        self.locked().full = full;
    }

    /// While set, every operation fails with [`CheckpointError::Io`]. What is saved is on the disk all the same, as when its
    /// directory could not be synced; nothing is removed.
    pub fn set_failing(&self, failing: bool) {
        self.locked().failing = failing;
    }

    /// While set, each load of `name` fails with [`CheckpointError::Io`]; every other operation works.
    pub fn set_unreadable(&self, name: &str, unreadable: bool) {
        set(&mut self.locked().unreadable, name, unreadable);
    }

    /// While set, no load and no removal of `name` that begins ends; every other operation works.
    pub fn set_hanging(&self, name: &str, hanging: bool) {
        set(&mut self.locked().hanging, name, hanging);
    }

    /// Makes the next load of `name` report that it is corrupt, for `reason`; loads after that find nothing.
    pub fn corrupt(&self, name: &str, reason: &str) {
        self.locked().contents.insert(name.to_owned(), Stored::Corrupt(reason.to_owned()));
    }

    /// The number of successful saves.
    pub fn saves(&self) -> u64 {
        self.locked().saves
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds this lock")
    }

    /// The error of this operation, while the store fails.
    fn answers(&self, name: &str, operation: &'static str) -> Result<(), CheckpointError> {
        let error =
            || CheckpointError::Io { name: name.to_owned(), operation, reason: "it fails".to_owned() };
        let state = self.locked();
        let fails = state.failing || operation == "load" && state.unreadable.contains(name);
        if fails { Err(error()) } else { Ok(()) }
    }

    fn hangs(&self, name: &str) -> bool {
        self.locked().hanging.contains(name)
    }

    fn save_now(&self, name: &str, content: &Value) -> Result<(), CheckpointError> {
        check_name(name)?;
        let json = encode(name, content)?;
        let mut state = self.locked();
        if state.full {
            return Err(CheckpointError::DiskFull { name: name.to_owned(), operation: "write" });
        }
        state.contents.insert(name.to_owned(), Stored::Json(json));
        drop(state);
        self.answers(name, "save")?;
        self.locked().saves += 1;
        Ok(())
    }

    fn load_now(&self, name: &str) -> Result<Option<Value>, CheckpointError> {
        check_name(name)?;
        self.answers(name, "load")?;
        let mut state = self.locked();
        match state.contents.get(name) {
            None => Ok(None),
            Some(Stored::Json(json)) => {
                Ok(Some(serde_json::from_slice(json).expect("it was written from a JSON value")))
            }
            Some(Stored::Corrupt(reason)) => {
                let error = CheckpointError::Corrupt { name: name.to_owned(), reason: reason.clone() };
                state.contents.remove(name);
                Err(error)
            }
        }
    }
}

fn set(names: &mut BTreeSet<String>, name: &str, is_in: bool) {
    if is_in {
        names.insert(name.to_owned());
    } else {
        names.remove(name);
    }
}

impl CheckpointStore for FakeCheckpoints {
    fn for_owner(&self, _: &'static str) -> Arc<dyn CheckpointStore> {
        Arc::new(self.clone())
    }

    fn save(&self, name: &str, content: &Value) -> BoxFuture<'static, Result<(), CheckpointError>> {
        std::future::ready(self.save_now(name, content)).boxed()
    }

    fn load(&self, name: &str) -> BoxFuture<'static, Result<Option<Value>, CheckpointError>> {
        if self.hangs(name) {
            return std::future::pending().boxed();
        }
        std::future::ready(self.load_now(name)).boxed()
    }

    fn list(&self, prefix: &str) -> BoxFuture<'static, Result<Vec<String>, CheckpointError>> {
        let names = self.locked().contents.keys().filter(|name| name.starts_with(prefix)).cloned().collect();
        std::future::ready(self.answers(prefix, "list").map(|()| names)).boxed()
    }

    fn remove(&self, name: &str) -> BoxFuture<'static, Result<(), CheckpointError>> {
        if self.hangs(name) {
            return std::future::pending().boxed();
        }
        let checked = check_name(name).and_then(|()| self.answers(name, "remove"));
        let removed = checked.map(|()| drop(self.locked().contents.remove(name)));
        std::future::ready(removed).boxed()
    }
}
