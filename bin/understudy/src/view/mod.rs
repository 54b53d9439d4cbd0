//! PURE: the screen as lines of text, made from the server's state, a size and a time.

pub mod actors;
pub mod events;
pub mod pods;
mod share;
pub mod table;
pub mod text;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use pod_why::model::{Event, Supervision};

use actors::actor_rows;
use events::event_rows;
use pods::{PodRow, pod_row};
use share::shares;
use table::{Column, lay_out};
use text::{Align, fitted, neutralised, span};

/// The number of events that are shown where the height has no limit.
const EVENTS_MAX: usize = 20;

/// The last known state of a kubelet.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Lines above the heading.
    pub banner: Option<String>,
    /// The address of the server.
    pub server: String,
    /// When the server answered last.
    pub read: Option<Timestamp>,
    /// Why the last round brought no answer, or only a part.
    pub notes: Vec<String>,
    /// Pods with their statuses.
    pub pods: Vec<Pod>,
    /// The actors and the events of supervision.
    pub supervision: Supervision,
    /// The recorded events, oldest first.
    pub events: Vec<Event>,
}

/// The size and colours of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The width in columns.
    pub width: usize,
    /// The height in lines; `None` for no limit.
    pub height: Option<usize>,
    /// Whether to use colours.
    pub colour: bool,
}

/// The colour of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tone {
    Plain,
    Title,
    Dim,
    Trouble,
}

struct Section {
    titles: String,
    lines: Vec<(Tone, String)>,
    /// Newer lines come first, so that lines that do not fit are left out without a note.
    newest_first: bool,
}

/// The screen: at most `look.height` lines of at most `look.width` columns each, without control characters except for
/// the colours.
pub fn render(view: &View, look: &Look, now: Timestamp) -> Vec<String> {
    let mut lines = heading(view, look.width, now);
    if view.read.is_some() {
        body(view, look, now, &mut lines);
    }
    lines.truncate(look.height.unwrap_or(usize::MAX));
    lines.into_iter().map(|(tone, line)| paint(tone, fitted(&line, look.width), look.colour)).collect()
}

fn paint(tone: Tone, line: String, colour: bool) -> String {
    let code = match tone {
        _ if !colour || line.is_empty() => return line,
        Tone::Plain => return line,
        Tone::Title => "1",
        Tone::Dim => "2",
        Tone::Trouble => "31",
    };
    format!("\x1b[{code}m{line}\x1b[0m")
}

fn heading(view: &View, width: usize, now: Timestamp) -> Vec<(Tone, String)> {
    let mut lines: Vec<(Tone, String)> = view
        .banner
        .iter()
        .flat_map(|text| text.lines())
        .map(|line| (Tone::Title, neutralised(line)))
        .collect();
    let mut summary = vec![neutralised(&view.server)];
    if view.read.is_some() {
        let up = i64::try_from(view.supervision.uptime_ms / 1000).unwrap_or(i64::MAX);
        summary.push(format!("up {}", span(up)));
        summary.push(plural(view.pods.len(), "pod"));
        summary.push(plural(view.supervision.actors.len(), "actor"));
    }
    lines.push((Tone::Title, summary.join("   ")));
    for note in &view.notes {
        lines.push((Tone::Trouble, fitted(&neutralised(note), width)));
    }
    if let Some(read) = view.read.filter(|read| now.duration_since(*read).as_secs() >= 10) {
        let age = span(now.duration_since(read).as_secs());
        lines.push((Tone::Trouble, format!("What follows is {age} old.")));
    }
    lines
}

fn plural(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

fn body(view: &View, look: &Look, now: Timestamp, lines: &mut Vec<(Tone, String)>) {
    let read = view.read.unwrap_or(now);
    let mut pods: Vec<PodRow> = view.pods.iter().map(|pod| pod_row(pod, now)).collect();
    pods.sort_by(|one, other| one.name.cmp(&other.name));
    let mut sections = [
        pod_section(&pods, |_| true, look.width),
        actor_section(view, look.width),
        event_section(view, look.width, read, now),
    ];
    let Some(height) = look.height else {
        for section in sections {
            lines.push((Tone::Plain, String::new()));
            lines.push((Tone::Title, section.titles));
            lines.extend(section.lines);
        }
        return;
    };
    // A blank line and the titles for each section; without the blank line where the screen is low.
    let room = height.saturating_sub(lines.len());
    let blank = usize::from(room >= 12);
    let shown = if room >= 9 { 3 } else { (room / 3).max(1) };
    let budget = room.saturating_sub(shown * (1 + blank));
    let mut given = shares(&wants(&sections[..shown]), budget);
    if sections[0].lines.len() > given[0] {
        // The containers of pods that are well are left out first.
        sections[0] = pod_section(&pods, |pod| !pod.well, look.width);
        given = shares(&wants(&sections[..shown]), budget);
    }
    for (section, given) in sections.into_iter().zip(given) {
        if blank == 1 {
            lines.push((Tone::Plain, String::new()));
        }
        lines.push((Tone::Title, section.titles));
        lines.extend(cut(section.lines, given, section.newest_first));
    }
}

fn wants(sections: &[Section]) -> Vec<usize> {
    sections.iter().map(|section| section.lines.len()).collect()
}

fn cut(mut lines: Vec<(Tone, String)>, given: usize, newest_first: bool) -> Vec<(Tone, String)> {
    if lines.len() > given {
        let kept = if newest_first { given } else { given.saturating_sub(1) };
        let troubles = lines[kept..].iter().filter(|(tone, _)| *tone == Tone::Trouble).count();
        let left_out = lines.len() - kept;
        lines.truncate(kept);
        if !newest_first && given > 0 {
            let tone = if troubles > 0 { Tone::Trouble } else { Tone::Dim };
            let of_them =
                if troubles > 0 { format!(", {troubles} of them in trouble") } else { String::new() };
            lines.push((tone, format!("… {} more{of_them}", plural(left_out, "line"))));
        }
    }
    lines
}

const fn column(title: &'static str, width_min: usize, width_max: usize, worth: u8) -> Column {
    Column { title, align: Align::Left, width_min, width_max, worth }
}

const fn right(column: Column) -> Column {
    Column { align: Align::Right, ..column }
}

fn section(columns: &[Column], rows: Vec<(Tone, Vec<String>)>, width: usize) -> Section {
    let (tones, cells): (Vec<Tone>, Vec<Vec<String>>) = rows.into_iter().unzip();
    let (titles, lines) = lay_out(columns, &cells, width);
    Section { titles, lines: tones.into_iter().zip(lines).collect(), newest_first: false }
}

fn pod_section(pods: &[PodRow], with_containers: impl Fn(&PodRow) -> bool, width: usize) -> Section {
    let columns = [
        column("POD", 18, 60, 9),
        column("STATUS", 16, 28, 8),
        column("READY", 5, 7, 6),
        right(column("RESTARTS", 8, 8, 4)),
        right(column("AGE", 4, 8, 5)),
        // A pod's row shows its IP, a container's row its last exit.
        column("IP / LAST EXIT", 10, 40, 3),
    ];
    let tone = |well: bool, ordinary: Tone| if well { ordinary } else { Tone::Trouble };
    let mut rows = Vec::new();
    for pod in pods {
        let (ready, of) = pod.ready;
        let cells = vec![
            pod.name.clone(),
            pod.status.clone(),
            format!("{ready}/{of}"),
            pod.restarts.to_string(),
            pod.age.clone(),
            pod.ip.clone(),
        ];
        rows.push((tone(pod.well, Tone::Plain), cells));
        let last = pod.containers.len().saturating_sub(1);
        let containers = pod.containers.iter().enumerate().filter(|_| with_containers(pod));
        rows.extend(containers.map(|(index, container)| {
            let branch = if index == last { "└" } else { "├" };
            let cells = vec![
                format!("  {branch} {}", container.name),
                container.status.clone(),
                if container.ready { "yes" } else { "no" }.to_owned(),
                container.restarts.to_string(),
                container.age.clone(),
                container.last_exit.clone(),
            ];
            (tone(container.well, Tone::Dim), cells)
        }));
    }
    section(&columns, rows, width)
}

fn actor_section(view: &View, width: usize) -> Section {
    let columns = [
        column("ACTOR", 12, 50, 9),
        column("STATE", 7, 30, 8),
        right(column("INC/RESTARTS", 5, 12, 5)),
        right(column("MAILBOX", 6, 13, 4)),
        right(column("P99", 5, 7, 3)),
        column("LAST CRASH", 12, 160, 6),
    ];
    let row = |row: actors::ActorRow| {
        let tone = if row.well { Tone::Plain } else { Tone::Trouble };
        (tone, vec![row.name, row.state, row.lives, row.mailbox, row.p99, row.trouble])
    };
    section(&columns, actor_rows(&view.supervision.actors).into_iter().map(row).collect(), width)
}

fn event_section(view: &View, width: usize, read: Timestamp, now: Timestamp) -> Section {
    let columns = [
        right(column("AGE", 3, 8, 7)),
        column("TYPE", 6, 7, 3),
        column("REASON", 8, 26, 6),
        column("OBJECT", 10, 40, 5),
        column("EVENT", 12, 400, 8),
    ];
    let rows = event_rows(&view.events, &view.supervision, read, now, EVENTS_MAX);
    let row = |row: events::EventRow| {
        let tone = if row.well { Tone::Plain } else { Tone::Trouble };
        (tone, vec![row.age, row.kind, row.reason, row.object, row.message])
    };
    let section = section(&columns, rows.into_iter().map(row).collect(), width);
    Section { newest_first: true, ..section }
}
