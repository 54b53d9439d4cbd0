//! Watches: the changes of one kind after a version, as lines, until the time-out or until the connection breaks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bridge_io::watch::Receiver;
use bytes::Bytes;
use futures::StreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::BoxError;

use super::call::Call;
use super::refusal::Refusal;
use super::resources::Resource;
use super::select::Selector;
use super::serve::{AnswerBody, broken};
use super::state::{Change, State};
use super::{Broken, Link, LinkState, Shared};

/// The interval of bookmarks.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The length of a watch that asks for none.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(1800);

struct Watcher {
    shared: Arc<Shared>,
    link: Receiver<LinkState>,
    /// The number of breaks before this watch was opened.
    breaks: u64,
    resource: &'static Resource,
    selector: Selector,
    /// Every change up to this version has been sent.
    version: u64,
    lines: VecDeque<Value>,
    bookmarks: bool,
    bookmark_at: Instant,
    end: Instant,
    over: bool,
    muted: bool,
}

fn event(r#type: &str, object: Value) -> Value {
    json!({"type": r#type, "object": object})
}

/// The event that a watch with this selector gets of a change, if any.
fn told(selector: &Selector, change: &Change) -> Option<Value> {
    let seen = |object: &Option<Arc<Value>>| object.clone().filter(|object| selector.matches(object));
    match (seen(&change.before), seen(&change.after)) {
        (None, Some(now)) => Some(event("ADDED", (*now).clone())),
        (Some(_), Some(now)) => Some(event("MODIFIED", (*now).clone())),
        (Some(last), None) => {
            // A deleted object is sent as it last was, with the version of its deletion.
            let mut last = (*last).clone();
            last["metadata"]["resourceVersion"] = change.version.to_string().into();
            Some(event("DELETED", last))
        }
        (None, None) => None,
    }
}

fn initial(state: &State, resource: &Resource, selector: &Selector) -> VecDeque<Value> {
    state.selected(resource, selector).iter().map(|object| event("ADDED", (**object).clone())).collect()
}

/// Opens a watch; returns its body, which continues.
pub(super) fn watch(shared: &Arc<Shared>, call: &Call) -> Result<AnswerBody, Refusal> {
    let asked = call.query.get("resourceVersion").map(String::as_str).unwrap_or_default();
    let asked: u64 = match asked {
        "" => 0,
        text => text.parse().map_err(|_| {
            Refusal::bad_request(format!(
                "resourceVersion: Invalid value: {text:?}: invalid resource version"
            ))
        })?,
    };
    let seconds = call.query.get("timeoutSeconds").and_then(|text| text.parse().ok());
    let timeout = seconds.filter(|seconds| *seconds > 0).map_or(TIMEOUT_DEFAULT, Duration::from_secs);
    let link = shared.link.subscribe();
    let breaks = link.borrow().breaks;
    let mut inner = shared.locked();
    let selector = inner.state.selector(call)?;
    let (version, lines) = if asked == 0 {
        (inner.state.version, initial(&inner.state, call.resource, &selector))
    } else {
        (asked, VecDeque::new())
    };
    inner.watches += 1;
    drop(inner);
    let now = Instant::now();
    let watcher = Watcher {
        shared: Arc::clone(shared),
        link,
        breaks,
        resource: call.resource,
        selector,
        version,
        lines,
        bookmarks: call.query.get("allowWatchBookmarks").is_some_and(|text| text == "true"),
        bookmark_at: now + BOOKMARK_EVERY,
        end: now + timeout,
        over: false,
        muted: false,
    };
    let frames = futures::stream::unfold(watcher, async |mut watcher| {
        let next = watcher.next().await?;
        Some((next.map(Frame::data), watcher))
    });
    Ok(StreamBody::new(frames.boxed()).boxed_unsync())
}

enum Next {
    Line(Value),
    Last(Value),
    Over,
    Broken,
    Wait,
}

impl Watcher {
    async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        let line = |value: Value| Some(Ok(Bytes::from(value.to_string() + "\n")));
        loop {
            if self.over {
                return None;
            }
            match self.step() {
                Next::Line(value) => return line(value),
                Next::Last(value) => {
                    self.over = true;
                    return line(value);
                }
                Next::Over => return None,
                Next::Broken => {
                    self.over = true;
                    return Some(Err(broken()));
                }
                Next::Wait => {}
            }
            let bookmark_at = self.bookmark_at;
            tokio::select! {
                biased;
                changed = self.link.changed() => if changed.is_err() { return None },
                () = tokio::time::sleep_until(self.end), if !self.muted => return None,
                () = tokio::time::sleep_until(bookmark_at), if self.bookmarks => {
                    self.bookmark_at = bookmark_at + BOOKMARK_EVERY;
                    let version = self.shared.locked().state.version;
                    let metadata = json!({"resourceVersion": version.to_string(), "creationTimestamp": null});
                    let object = json!({"kind": self.resource.kind, "apiVersion": self.resource.api_version(),
                        "metadata": metadata});
                    // A bookmark may only be sent after all changes up to its version.
                    if self.link.borrow().state == Link::Up && self.version == version && !self.muted {
                        return line(event("BOOKMARK", object));
                    }
                }
            }
        }
    }

    fn step(&mut self) -> Next {
        let now = *self.link.borrow_and_update();
        if self.muted {
            // A muted connection does not show its end either.
            return Next::Wait;
        }
        if now.breaks > self.breaks || now.state == Link::Down {
            return match now.how {
                _ if now.state == Link::Down => Next::Broken,
                Broken::Cut => Next::Broken,
                Broken::Muted => {
                    self.muted = true;
                    Next::Wait
                }
                Broken::Ended => Next::Over,
                Broken::Expired => {
                    let refusal = Refusal::new(
                        410,
                        "Expired",
                        "The resourceVersion for the provided watch is too old.",
                    );
                    Next::Last(event("ERROR", refusal.status()))
                }
            };
        }
        if now.state == Link::Paused {
            return Next::Wait;
        }
        if let Some(line) = self.lines.pop_front() {
            return Next::Line(line);
        }
        let inner = self.shared.locked();
        let state = &inner.state;
        if self.version < state.compacted {
            return Next::Last(event("ERROR", Refusal::too_old(self.version, state.compacted).status()));
        }
        let changes = state.since(self.resource.plural, self.version);
        self.version = self.version.max(state.version);
        self.lines.extend(changes.iter().filter_map(|change| told(&self.selector, change)));
        self.lines.pop_front().map_or(Next::Wait, Next::Line)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.locked().watches -= 1;
    }
}
