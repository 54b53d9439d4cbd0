//! PURE: a description as text, in the shape of `kubectl describe pod`.

use jiff::Timestamp;
use pod_rules::phases;

use super::container::{Described as Container, State};
use super::document::{Description, Happened};
use super::volume::Described as Volume;
use crate::view::table::{Column, lay_out};
use crate::view::text::{Align, padded, span, width};

/// What stands for nothing.
const NONE: &str = "<none>";
/// The width of the table of events: none of its cells is cut.
const WIDTH_PLAIN: usize = 4096;

/// A label and its values, each on a line of its own; with none the label stands alone.
type Row = (String, Vec<String>);

fn one(label: &str, value: impl Into<String>) -> Row {
    (label.to_owned(), vec![value.into()])
}

/// The same, or a mark that there is none.
fn many(label: &str, values: Vec<String>) -> Row {
    let none = values.is_empty().then(|| NONE.to_owned());
    (label.to_owned(), values.into_iter().chain(none).collect())
}

/// A row unless the value is empty.
fn given(label: &str, value: &str) -> Option<Row> {
    (!value.is_empty()).then(|| one(label, value))
}

fn alone(label: impl Into<String>) -> Row {
    (label.into(), Vec::new())
}

/// The lines of rows whose values stand in one column.
fn block(indent: usize, rows: &[Row]) -> Vec<String> {
    let labels = rows.iter().filter(|(_, values)| !values.is_empty()).map(|(label, _)| width(label));
    let column = labels.max().unwrap_or_default() + 2;
    let mut lines = Vec::new();
    for (label, values) in rows {
        let first = if values.is_empty() { label.clone() } else { padded(label, column, Align::Left) };
        let heads = std::iter::once(first)
            .chain(std::iter::repeat_n(" ".repeat(column), values.len().saturating_sub(1)));
        let values = values.iter().map(String::as_str).chain(values.is_empty().then_some(""));
        let written = heads.zip(values).map(|(head, value)| format!("{}{head}{value}", " ".repeat(indent)));
        lines.extend(written.map(|line| line.trim_end().to_owned()));
    }
    lines
}

/// The lines of a description.
pub fn lines(described: &Description, now: Timestamp) -> Vec<String> {
    let mut lines = block(0, &heading(described, now));
    lines.push("IPs:".to_owned());
    let ips: Vec<Row> = described.ips.iter().map(|ip| one("IP:", ip)).collect();
    lines.extend(if ips.is_empty() { vec![format!("  {NONE}")] } else { block(2, &ips) });
    lines
        .extend(block(0, &given("Controlled By:", &described.controlled_by).into_iter().collect::<Vec<_>>()));
    for (title, containers) in [
        ("Init Containers:", &described.init_containers),
        ("Containers:", &described.containers),
        ("Ephemeral Containers:", &described.ephemeral_containers),
    ] {
        if containers.is_empty() {
            continue;
        }
        lines.push(title.to_owned());
        for container in containers {
            lines.push(format!("  {}:", container.name));
            lines.extend(block(4, &of_container(container)));
        }
    }
    if !described.conditions.is_empty() {
        lines.push("Conditions:".to_owned());
        let conditions = described.conditions.iter().map(|one| (one.type_.clone(), vec![one.status.clone()]));
        let titles = one("Type", "Status");
        lines.extend(block(2, &std::iter::once(titles).chain(conditions).collect::<Vec<_>>()));
    }
    lines.push(if described.volumes.is_empty() {
        format!("Volumes:  {NONE}")
    } else {
        "Volumes:".to_owned()
    });
    for volume in &described.volumes {
        lines.push(format!("  {}:", volume.name));
        lines.extend(block(4, &of_volume(volume)));
    }
    let pairs = described.node_selector.iter().map(|(key, value)| format!("{key}={value}"));
    let placed = [
        one("QoS Class:", &described.qos_class),
        many("Node-Selectors:", pairs.collect()),
        many("Tolerations:", described.tolerations.clone()),
    ];
    lines.extend(block(0, &placed));
    lines.extend(events(&described.events, now));
    lines.extend(described.unread.iter().map(|why| format!("Not known: {why}")));
    lines
}

fn heading(of: &Description, now: Timestamp) -> Vec<Row> {
    let slash = |one: &str, other: &str| match other {
        "" => one.to_owned(),
        other => format!("{one}/{other}"),
    };
    let labels = of.labels.iter().map(|(key, value)| format!("{key}={value}"));
    let annotations = of.annotations.iter().map(|(key, value)| format!("{key}: {value}"));
    let mut rows = vec![one("Name:", &of.name), one("Namespace:", &of.namespace), one("UID:", &of.uid)];
    rows.extend(of.priority.map(|priority| one("Priority:", priority.to_string())));
    rows.extend(given("Priority Class Name:", &of.priority_class));
    rows.extend(given("Runtime Class Name:", &of.runtime_class));
    rows.extend(given("Service Account:", &of.service_account));
    rows.push(one("Node:", slash(&of.node, &of.host_ip)));
    rows.extend(of.start_time.as_deref().map(|at| one("Start Time:", long(at))));
    rows.push(many("Labels:", labels.collect()));
    rows.push(many("Annotations:", annotations.collect()));
    match of.deletion_timestamp.as_deref() {
        Some(at) => {
            let since = at.parse::<Timestamp>().ok().map(|at| span(now.duration_since(at).as_secs()));
            let lasts = since.map(|since| format!(" (lasts {since})")).unwrap_or_default();
            rows.push(one("Status:", format!("Terminating{lasts}")));
            let grace = of.deletion_grace_seconds;
            rows.extend(grace.map(|grace| one("Termination Grace Period:", format!("{grace}s"))));
        }
        None => rows.push(one("Status:", &of.phase)),
    }
    rows.extend(given("Reason:", &of.reason));
    rows.extend(given("Message:", &of.message));
    rows.push(one("IP:", of.ips.first().map(String::as_str).unwrap_or_default()));
    rows
}

fn of_container(of: &Container) -> Vec<Row> {
    let mut rows = vec![
        one("Container ID:", &of.container_id),
        one("Image:", &of.image),
        one("Image ID:", &of.image_id),
        one(if of.ports.len() > 1 { "Ports:" } else { "Port:" }, listed(&of.ports)),
        one(if of.ports.len() > 1 { "Host Ports:" } else { "Host Port:" }, listed(&of.host_ports)),
    ];
    for (label, words) in [("Command:", &of.command), ("Args:", &of.args)] {
        if !words.is_empty() {
            rows.push(alone(label));
            rows.extend(words.iter().map(|word| alone(format!("  {word}"))));
        }
    }
    rows.extend(of.state.iter().flat_map(|state| of_state("State:", state)));
    let ended = of.last_state.iter().filter(|last| last.state == "terminated");
    rows.extend(ended.flat_map(|last| of_state("Last State:", last)));
    if of.state.is_some() {
        rows.push(one("Ready:", if of.ready { "True" } else { "False" }));
        rows.push(one("Restart Count:", of.restart_count.to_string()));
    }
    for (label, amounts) in [("Limits:", &of.limits), ("Requests:", &of.requests)] {
        if !amounts.is_empty() {
            rows.push(alone(label));
            rows.extend(amounts.iter().map(|(name, amount)| one(&format!("  {name}:"), amount)));
        }
    }
    if !of.environment_from.is_empty() {
        rows.push(alone("Environment Variables from:"));
        rows.extend(of.environment_from.iter().map(|source| alone(format!("  {source}"))));
    }
    rows.push(if of.environment.is_empty() {
        many("Environment:", Vec::new())
    } else {
        alone("Environment:")
    });
    let variables = of.environment.iter();
    rows.extend(variables.map(|variable| one(&format!("  {}:", variable.name), &variable.value)));
    rows.push(if of.mounts.is_empty() { many("Mounts:", Vec::new()) } else { alone("Mounts:") });
    rows.extend(of.mounts.iter().map(|mount| {
        let access = if mount.read_only { "ro" } else { "rw" };
        let part =
            if mount.sub_path.is_empty() { String::new() } else { format!(",path={:?}", mount.sub_path) };
        alone(format!("  {} from {} ({access}{part})", mount.path, mount.volume))
    }));
    rows
}

fn of_state(label: &str, state: &State) -> Vec<Row> {
    let shown = match state.state {
        "running" => phases::RUNNING,
        "waiting" => "Waiting",
        _ => "Terminated",
    };
    let mut rows = vec![one(label, shown)];
    rows.extend(given("  Reason:", &state.reason));
    rows.extend(given("  Message:", &state.message));
    rows.extend(state.exit_code.map(|code| one("  Exit Code:", code.to_string())));
    rows.extend(state.signal.map(|signal| one("  Signal:", signal.to_string())));
    rows.extend(state.started_at.as_deref().map(|at| one("  Started:", long(at))));
    rows.extend(state.finished_at.as_deref().map(|at| one("  Finished:", long(at))));
    rows
}

fn of_volume(of: &Volume) -> Vec<Row> {
    let kind = if of.kind.is_empty() { NONE.to_owned() } else { capital(&of.kind) };
    let fields = of.fields.iter().map(|(field, value)| one(&format!("{}:", capital(field)), value));
    std::iter::once(one("Type:", kind)).chain(fields).collect()
}

fn events(events: &[Happened], now: Timestamp) -> Vec<String> {
    if events.is_empty() {
        return vec![format!("Events:  {NONE}")];
    }
    let column = |title| Column { title, align: Align::Left, width_min: 4, width_max: WIDTH_PLAIN, worth: 1 };
    let columns = ["Type", "Reason", "Age", "From", "Message"].map(column);
    let rule = columns.iter().map(|column| "-".repeat(column.title.len())).collect();
    let rows = events.iter().map(|event| {
        let age = event.last_seen.parse::<Timestamp>().map(|at| span(now.duration_since(at).as_secs()));
        let times = if event.count > 1 { format!(" (x{})", event.count) } else { String::new() };
        let age = age.unwrap_or_else(|_| "<unknown>".to_owned()) + &times;
        // Events of its pods are recorded by the kubelet alone.
        vec![event.event_type.clone(), event.reason.clone(), age, "kubelet".to_owned(), event.message.clone()]
    });
    let rows: Vec<Vec<String>> = std::iter::once(rule).chain(rows).collect();
    let (titles, lines) = lay_out(&columns, &rows, WIDTH_PLAIN);
    let table = std::iter::once(titles).chain(lines).map(|line| format!("  {line}"));
    std::iter::once("Events:".to_owned()).chain(table).collect()
}

fn listed(values: &[String]) -> String {
    if values.is_empty() { NONE.to_owned() } else { values.join(", ") }
}

/// `emptyDir` as `EmptyDir`.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

/// A time of the API in words.
fn long(at: &str) -> String {
    match at.parse::<Timestamp>() {
        Ok(at) => at.strftime("%a, %d %b %Y %H:%M:%S %z").to_string(),
        Err(_) => at.to_owned(),
    }
}
