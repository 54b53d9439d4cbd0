//! The API server's audit log: the user and the request, a line of JSON per request.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A place in the log.
#[derive(Clone, Debug)]
pub struct Mark {
    file: PathBuf,
    bytes: u64,
}

/// The number of requests by `verb resource`, with the subresource after a slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests(pub BTreeMap<String, usize>);

impl Mark {
    /// The end of the log of the control plane in this directory.
    ///
    /// # Panics
    /// The control plane keeps none: it is to be started with `--audit`.
    pub fn here(plane: &Path) -> Self {
        let file = plane.join("audit.log");
        let length = std::fs::metadata(&file).map(|meta| meta.len());
        let bytes = length.unwrap_or_else(|error| panic!("{}: {error}: up DIR --audit", file.display()));
        Self { file, bytes }
    }

    /// The requests of a user since then.
    pub fn requests_of(&self, user: &str) -> Requests {
        let mut requests = Requests::default();
        for entry in self.entries(user) {
            *requests.0.entry(name(&entry)).or_default() += 1;
        }
        requests
    }

    /// The number of status writes of a user since then, by pod name.
    pub fn status_writes_of(&self, user: &str) -> BTreeMap<String, usize> {
        let mut writes = BTreeMap::new();
        for entry in self.entries(user) {
            if matches!(name(&entry).as_str(), "patch pods/status" | "update pods/status") {
                let pod = entry["objectRef"]["name"].as_str().unwrap_or_default();
                *writes.entry(pod.to_owned()).or_default() += 1;
            }
        }
        writes
    }

    fn entries(&self, user: &str) -> Vec<Value> {
        let mut log = File::open(&self.file).expect("the log is there");
        log.seek(SeekFrom::Start(self.bytes)).expect("the log only grows");
        let lines = BufReader::new(log).lines().map_while(Result::ok);
        // The last line may be half written.
        let entries = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        entries.filter(|entry| entry["user"]["username"] == user && counts(entry)).collect()
    }
}

/// A watch is logged when it begins and when it ends, every other request only when it has been answered.
fn counts(entry: &Value) -> bool {
    (entry["verb"] == "watch") == (entry["stage"] == "ResponseStarted")
}

fn name(entry: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &entry["objectRef"];
    let what = if object.is_null() { text(&entry["requestURI"]) } else { text(&object["resource"]) };
    let sub = text(&object["subresource"]);
    let slash = if sub.is_empty() { "" } else { "/" };
    format!("{} {what}{slash}{sub}", text(&entry["verb"]))
}

impl Requests {
    /// The number of requests about this resource, whatever the verb and subresource. Watches are not counted: the API
    /// server ends each after some minutes.
    pub fn about(&self, resource: &str) -> usize {
        let of = |name: &str| !name.starts_with("watch ") && name.split([' ', '/']).nth(1) == Some(resource);
        self.0.iter().filter(|(name, _)| of(name)).map(|(_, count)| count).sum()
    }

    pub fn total(&self) -> usize {
        self.0.values().sum()
    }
}
