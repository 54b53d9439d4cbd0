//! `understudy top`: requests the server's state at an interval, and shows it.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use bridge_pace::Backoff;
use jiff::Timestamp;
use pod_why::model::{Actor, Event};
use pod_why::rows::rows;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::answers;
use crate::cli::{ShowArgs, TopArgs};
use crate::client::{Answers, Server};
use crate::terminal::{Screen, can_redraw, is_quit, keys, likes_colour, size};
use crate::view::events::object;
use crate::view::text::neutralised;
use crate::view::{Look, View, render};

/// The longest wait before a server that does not answer is asked again.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// The first of the notes that are shown while the server does not answer well.
const RETRY_NOTE: &str = "No answer; asked again";
/// The width of the table when there is no terminal.
const WIDTH_PLAIN: usize = 200;

/// Runs `understudy top`.
///
/// # Errors
/// The server cannot be named so; with `--once`, it does not answer; else the terminal cannot be used.
pub async fn top(args: TopArgs) -> anyhow::Result<()> {
    let server = args.connect.server()?;
    if args.show.once && args.output.is_some() {
        return once_as_document(&server).await;
    }
    if args.show.once {
        return once(&server, None).await;
    }
    let mut watch = Watch::new(server, None);
    live(&mut watch, &args.show, &mut Interrupts::listen()?, std::future::pending()).await
}

/// Requests the state once and prints a plain table.
///
/// # Errors
/// No request was answered well.
pub async fn once(server: &Server, banner: Option<&str>) -> anyhow::Result<()> {
    let mut watch = Watch::new(server.clone(), banner);
    let answers = server.ask().await;
    if let (Err(pods), Err(_), Err(_)) = (&answers.pods, &answers.events, &answers.supervision) {
        bail!("{pods}");
    }
    watch.take(answers, Timestamp::now());
    print(&watch.view)
}

/// The same as a document.
async fn once_as_document(server: &Server) -> anyhow::Result<()> {
    let answers = server.ask().await;
    if let (Err(pods), Err(_), Err(_)) = (&answers.pods, &answers.events, &answers.supervision) {
        bail!("{pods}");
    }
    let document = document(answers, Timestamp::now());
    answers::print_document(&document)
}

/// Pods, actors and events; a part without an answer is empty, and `unread` says why.
fn document(answers: Answers, now: Timestamp) -> Value {
    let mut unread = Vec::new();
    let pods = answers.pods.unwrap_or_else(|error| {
        unread.push(error.to_string());
        Default::default()
    });
    let events = answers.events.unwrap_or_else(|error| {
        unread.push(error.to_string());
        Default::default()
    });
    let tree = answers.supervision.unwrap_or_else(|error| {
        unread.push(error.to_string());
        Default::default()
    });
    let actor = |actor: &Actor| {
        json!({
            "name": neutralised(&actor.name), "state": neutralised(&actor.state), "incarnation": actor.incarnation,
            "restarts": actor.restarts, "mailboxDepth": actor.mailbox_depth, "mailboxBound": actor.mailbox_bound,
            "lastCrash": actor.last_crash.as_ref().map(|crash| neutralised(&crash.line())),
            "quarantined": actor.quarantined.keys().map(|uid| neutralised(uid)).collect::<Vec<_>>(),
        })
    };
    let event = |event: &Event| {
        json!({
            "object": object(event), "type": neutralised(&event.event_type), "reason": neutralised(&event.reason),
            "message": neutralised(&event.message), "count": event.count,
            "seconds": now.duration_since(event.last_seen).as_secs().max(0),
        })
    };
    json!({
        "uptimeSeconds": tree.uptime_ms / 1000,
        "pods": rows(&pods.items.unwrap_or_default(), None, now),
        "actors": tree.actors.iter().map(actor).collect::<Vec<_>>(),
        "events": events.events.iter().map(event).collect::<Vec<_>>(),
        "unread": unread,
    })
}

fn print(view: &View) -> anyhow::Result<()> {
    let width = size().map_or(WIDTH_PLAIN, |(columns, _)| columns);
    let mut text = render(view, &Look { width, height: None, colour: false }, Timestamp::now()).join("\n");
    text.push('\n');
    std::io::stdout().lock().write_all(text.as_bytes()).context("write the table")
}

/// The last known state of a server, and when to ask it again.
#[derive(Debug)]
pub struct Watch {
    server: Server,
    view: View,
    failures: u32,
}

impl Watch {
    /// Nothing known of the server yet.
    pub fn new(server: Server, banner: Option<&str>) -> Self {
        let view = View {
            banner: banner.map(str::to_owned),
            server: server.to_string(),
            notes: vec!["Not asked yet.".to_owned()],
            ..View::default()
        };
        Self { server, view, failures: 0 }
    }

    /// Takes new answers. A part without an answer keeps its last state, and a note says so.
    fn take(&mut self, answers: Answers, now: Timestamp) {
        let Answers { pods, events, supervision } = answers;
        let gone = [
            pods.as_ref().err().is_some_and(|error| !error.answered()),
            events.as_ref().err().is_some_and(|error| !error.answered()),
            supervision.as_ref().err().is_some_and(|error| !error.answered()),
        ];
        let mut notes = Vec::new();
        let mut came = false;
        match pods {
            Ok(list) => (self.view.pods, came) = (list.items.unwrap_or_default(), true),
            Err(error) => notes.push(error.to_string()),
        }
        match events {
            Ok(list) => (self.view.events, came) = (list.events, true),
            Err(error) => notes.push(error.to_string()),
        }
        match supervision {
            Ok(snapshot) => (self.view.supervision, came) = (snapshot, true),
            Err(error) => notes.push(error.to_string()),
        }
        if gone == [true; 3] {
            notes.truncate(1);
        }
        self.view.notes = notes;
        if came {
            self.view.read = Some(now);
            self.failures = 0;
        } else {
            self.failures = self.failures.saturating_add(1);
        }
    }

    /// The wait until the server is asked again.
    fn pause(&self, interval: Duration) -> Duration {
        match self.failures {
            0 => interval,
            failures => backoff(interval, failures),
        }
    }

    fn note_retry(&mut self, pause: Duration) {
        if self.failures > 0 {
            let seconds = pause.as_secs_f64();
            self.view.notes.insert(0, format!("{RETRY_NOTE} in {seconds:.1} s"));
        }
    }
}

/// The wait after failures: doubled from the interval up to five seconds; a longer interval is kept.
fn backoff(interval: Duration, failures: u32) -> Duration {
    Backoff::doubling(interval, BACKOFF_MAX).after(failures)
}

/// The signals that end the program. Once this is made, they no longer kill the process.
#[derive(Debug)]
pub struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Interrupts {
    /// Begins to listen for the signals.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// Shows the server's state until a key, a signal or `until` ends it.
///
/// # Errors
/// The terminal cannot be used.
pub async fn live(
    watch: &mut Watch,
    show: &ShowArgs,
    interrupts: &mut Interrupts,
    until: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let mut display = Display::open(show)?;
    let mut resized = signal(SignalKind::window_change()).context("listen for SIGWINCH")?;
    let mut keys = keys();
    let mut keyboard = true;
    tokio::pin!(until);
    display.show(&watch.view)?;
    let server = watch.server.clone();
    let mut asking = Box::pin(server.ask());
    let mut answered = false;
    let pause = tokio::time::sleep(Duration::ZERO);
    tokio::pin!(pause);
    loop {
        tokio::select! {
            biased;
            () = &mut until => return Ok(()),
            () = interrupts.next() => return Ok(()),
            key = keys.recv(), if keyboard => match key {
                Some(key) if is_quit(&key) => return Ok(()),
                Some(_) => {}
                None => keyboard = false,
            },
            _ = resized.recv() => display.show(&watch.view)?,
            answers = &mut asking, if !answered => {
                answered = true;
                watch.take(answers, Timestamp::now());
                let next = watch.pause(show.interval);
                watch.note_retry(next);
                display.show(&watch.view)?;
                pause.as_mut().reset(Instant::now() + next);
            }
            () = &mut pause, if answered => {
                answered = false;
                asking = Box::pin(server.ask());
            }
        }
    }
}

/// The display of the table.
enum Display {
    Screen(Box<Screen>, bool),
    /// Without a terminal the table is printed whenever it shows something new.
    Plain(Option<Box<View>>),
}

impl Display {
    fn open(show: &ShowArgs) -> anyhow::Result<Self> {
        if !can_redraw() {
            return Ok(Self::Plain(None));
        }
        let screen = Screen::take().context("take the terminal")?;
        Ok(Self::Screen(Box::new(screen), !show.no_color && likes_colour()))
    }

    fn show(&mut self, view: &View) -> anyhow::Result<()> {
        match self {
            Self::Screen(screen, colour) => {
                let Some((width, height)) = size() else { bail!("the terminal has gone") };
                let look = Look { width, height: Some(height), colour: *colour };
                screen.draw(render(view, &look, Timestamp::now()), (width, height)).context("draw")
            }
            Self::Plain(printed) => {
                if printed.as_ref().is_none_or(|printed| says_something_new(printed, view)) {
                    print(view)?;
                    *printed = Some(Box::new(view.clone()));
                }
                Ok(())
            }
        }
    }
}

/// Whether two tables differ in more than ages and measurements.
fn says_something_new(old: &View, new: &View) -> bool {
    let now = Timestamp::now();
    let look = Look { width: WIDTH_PLAIN, height: None, colour: false };
    render(&still(old, now), &look, now) != render(&still(new, now), &look, now)
}

/// The state without the parts that change by themselves.
fn still(view: &View, now: Timestamp) -> View {
    let mut view = view.clone();
    // The times of supervision's events follow from the uptime and the time of reading.
    view.read = view.read.map(|_| now);
    for event in &mut view.supervision.events {
        event.at_ms = 0;
    }
    for event in &mut view.events {
        event.last_seen = now;
    }
    view.supervision.uptime_ms = 0;
    for actor in &mut view.supervision.actors {
        actor.mailbox_depth = 0;
        actor.handling_p99_us = 0;
    }
    view.notes.retain(|note| !note.starts_with(RETRY_NOTE));
    view
}

#[cfg(test)]
mod tests {
    use pod_why::model::{EventList, Supervision};

    use super::*;
    use crate::client::{FetchError, PodList};

    fn answers(supervision: Result<Supervision, FetchError>) -> Answers {
        Answers { pods: Ok(PodList::default()), events: Ok(EventList::default()), supervision }
    }

    fn gone(path: &'static str) -> FetchError {
        FetchError::Deadline { server: "http://node:1".to_owned(), path, within: Duration::from_secs(5) }
    }

    #[test]
    fn the_backoff_ends_at_five_seconds() {
        let seconds = |interval, failures| backoff(Duration::from_secs(interval), failures).as_secs();
        assert_eq!([1, 2, 3, 4, 40].map(|failures| seconds(1, failures)), [1, 2, 4, 5, 5]);
        assert_eq!(seconds(60, 1), 5);
    }

    #[test]
    fn what_was_known_stays_when_the_server_goes() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut watch = Watch::new(Server::local(1), None);
        let actor = Actor { name: "Pleg".to_owned(), ..Actor::default() };
        watch.take(answers(Ok(Supervision { actors: vec![actor], ..Supervision::default() })), now);
        assert!(watch.view.notes.is_empty());
        assert_eq!(watch.pause(Duration::from_secs(1)), Duration::from_secs(1));
        watch.take(
            Answers { pods: Err(gone("/pods")), events: Err(gone("/events")), supervision: Err(gone("/s")) },
            now,
        );
        let next = watch.pause(Duration::from_secs(1));
        watch.note_retry(next);
        assert_eq!(
            watch.view.notes,
            ["No answer; asked again in 1.0 s", "http://node:1/pods: no answer within 5 s"]
        );
        assert_eq!(watch.view.supervision.actors.len(), 1);
        assert_eq!(watch.view.read, Some(now));
    }

    #[test]
    fn a_part_that_fails_is_noted_and_the_rest_is_shown() {
        let mut watch = Watch::new(Server::local(1), None);
        let refused = FetchError::Refused {
            path: "/supervision",
            status: http::StatusCode::NOT_FOUND,
            said: String::new(),
        };
        watch.take(answers(Err(refused)), Timestamp::UNIX_EPOCH);
        assert_eq!(watch.view.notes, ["/supervision: 404 Not Found"]);
        assert_eq!(watch.failures, 0);
    }

    #[test]
    fn a_document_says_what_is_missing() {
        let refused = FetchError::Refused {
            path: "/supervision",
            status: http::StatusCode::NOT_FOUND,
            said: String::new(),
        };
        let mut asked = answers(Err(refused));
        let crashed = Event { reason: "Crash\u{1b}".to_owned(), ..Event::default() };
        asked.events = Ok(EventList { events: vec![crashed] });
        let told = document(asked, Timestamp::UNIX_EPOCH);
        assert_eq!(told["unread"], json!(["/supervision: 404 Not Found"]));
        assert_eq!((&told["pods"], &told["actors"]), (&json!([]), &json!([])));
        assert_eq!(told["events"][0]["reason"], "Crash␛");
    }

    #[test]
    fn ages_and_measurements_are_nothing_new() {
        let actor = Actor { name: "Pleg".to_owned(), state: "running".to_owned(), ..Actor::default() };
        let supervision = Supervision { actors: vec![actor], ..Supervision::default() };
        let old = View { read: Some(Timestamp::UNIX_EPOCH), supervision, ..View::default() };
        let mut new = old.clone();
        new.supervision.uptime_ms = 60_000;
        new.supervision.actors[0].handling_p99_us = 99;
        assert!(!says_something_new(&old, &new));
        new.supervision.actors[0].state = "restarting".to_owned();
        assert!(says_something_new(&old, &new));
    }
}
