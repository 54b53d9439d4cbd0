//! PURE: the rows of recent events: Kubernetes' events and those of supervision, newest first.

use jiff::{SignedDuration, Timestamp};
use pod_why::model::{ActorEvent, Event, Supervision};
use serde_json::Value;

use super::text::{neutralised, span};

/// The columns of an event's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// The time since the event.
    pub age: String,
    /// `Normal`, `Warning`, or `Actor` for an event of supervision.
    pub kind: String,
    /// The CamelCase reason.
    pub reason: String,
    /// The pod and container, the node, the file or the actor.
    pub object: String,
    /// The message, with the number of times.
    pub message: String,
    /// Whether the event needs no attention.
    pub well: bool,
}

/// The newest `rows_max` events. `read` is the time at which the server answered.
pub fn event_rows(
    events: &[Event],
    supervision: &Supervision,
    read: Timestamp,
    now: Timestamp,
    rows_max: usize,
) -> Vec<EventRow> {
    let born = SignedDuration::try_from(std::time::Duration::from_millis(supervision.uptime_ms))
        .ok()
        .and_then(|uptime| read.checked_sub(uptime).ok())
        .unwrap_or(read);
    let recorded = events.iter().map(|event| (event.last_seen, recorded(event)));
    let seen = supervision.events.iter().filter(|event| !is_ordinary(event)).map(|event| {
        let after = SignedDuration::from_millis(i64::try_from(event.at_ms).unwrap_or(i64::MAX));
        (born.checked_add(after).unwrap_or(read), seen(event))
    });
    let mut rows: Vec<(Timestamp, EventRow)> = recorded.chain(seen).collect();
    // The sort is stable, so that of two events at one moment the one recorded last comes first.
    rows.reverse();
    rows.sort_by(|(one, _), (other, _)| other.cmp(one));
    rows.truncate(rows_max);
    rows.into_iter()
        .map(|(at, row)| EventRow { age: span(now.duration_since(at).as_secs()), ..row })
        .collect()
}

/// Whether an actor's event is left out: every actor starts once and may stop.
fn is_ordinary(event: &ActorEvent) -> bool {
    // A later start has the event `restarted`.
    matches!(event.event.as_str(), "started" | "stopped")
}

fn recorded(event: &Event) -> EventRow {
    let times = if event.count > 1 { format!("(x{}) ", event.count) } else { String::new() };
    EventRow {
        age: String::new(),
        kind: neutralised(&event.event_type),
        reason: neutralised(&event.reason),
        object: object(event),
        message: neutralised(&(times + &event.message)),
        well: event.event_type == "Normal",
    }
}

/// The short name of an event's object.
pub fn object(event: &Event) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let about = if let Some(pod) = event.object.get("pod") {
        let name = format!("{}/{}", text(&pod["pod"]["namespace"]), text(&pod["pod"]["name"]));
        let path = text(&pod["fieldPath"]);
        match path.split_once('{').and_then(|(_, rest)| rest.strip_suffix('}')) {
            Some(container) => format!("{name} {container}"),
            None => name,
        }
    } else if let Some(manifest) = event.object.get("manifest") {
        // The message has the whole path.
        let path = text(&manifest["path"]);
        path.rsplit('/').next().unwrap_or_default().to_owned()
    } else {
        text(&event.object)
    };
    neutralised(&about)
}

fn seen(event: &ActorEvent) -> EventRow {
    let text = |key: &str| match event.particulars.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    };
    let message = match event.event.as_str() {
        "crashed" => match text("place") {
            place if place.is_empty() => format!("{}: {}", text("handling"), text("reason")),
            place => format!("{}: {} at {place}", text("handling"), text("reason")),
        },
        "restarted" => format!("after {} ms", text("downMs")),
        "dormant" => format!("above its restart limit, tried again in {} s", text("retrySeconds")),
        "failed" => "above its restart limit".to_owned(),
        "quarantined" => {
            let panic = event.particulars.get("panic").and_then(|panic| panic["message"].as_str());
            format!("pod {} for {} s: {}", text("pod"), text("seconds"), panic.unwrap_or_default())
        }
        "released" => format!("pod {}", text("pod")),
        "threadBlocked" => format!("for {} s, handling {}", text("seconds"), text("handling")),
        _ => String::new(),
    };
    let mut letters = event.event.chars();
    let reason: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
    EventRow {
        age: String::new(),
        kind: "Actor".to_owned(),
        well: matches!(event.event.as_str(), "restarted" | "released"),
        reason: neutralised(&reason),
        object: neutralised(&event.actor),
        message: neutralised(&message),
    }
}
