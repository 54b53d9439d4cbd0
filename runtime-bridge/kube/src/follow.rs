//! Lists that stay current: list, watch from the list's version, and list again when the server has forgotten that
//! version.

use std::time::Duration;

use futures::stream::{BoxStream, StreamExt};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::io::StreamReader;

use super::api::{ApiClient, Select, VersionBody};
use super::api_health::{ApiHealth, RecoveryWaiter};
use super::error::{ApiError, StatusBody};
use super::list::Listed;
use super::object::{Object, Said, Unreadable, read_object};
use bridge_pace::Backoff;

/// The shortest time of a watch, in seconds; the longest is twice as long, so that watches do not all end at once.
const WATCH_SECONDS_MIN: u64 = 300;
/// The same of a watch of one object: there may be hundreds of them, and each new one costs the server a call.
const WATCH_OF_ONE_SECONDS_MIN: u64 = 1800;
/// The shortest silence, without even a bookmark, that ends a watch of one object before its time; the longest is twice as long.
/// The pings of HTTP/2 find a dead connection much sooner; a silence shows one of HTTP/1.1, and a server with older data.
const SILENCE_MIN: Duration = Duration::from_secs(300);
/// The most bytes of one event.
const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The waits between attempts: doubled from the first to the last, with up to as much again at random, and reset after
/// a good time.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(800), Duration::from_secs(30));
const GOOD_TIME: Duration = Duration::from_secs(120);
/// The length from which a watch should have received a bookmark, which come every minute.
const UNHEARD_MIN: Duration = Duration::from_secs(240);
/// The most items that wait for the reader of a stream.
const NEWS_MAX: usize = 16;

/// An item of a followed list.
#[derive(Clone, Debug)]
pub enum Followed<K> {
    /// All objects at present; a known object that is missing here is gone.
    All(Vec<K>),
    /// One object is new or has changed.
    Changed(K),
    /// One object is gone; this is its last form.
    Gone(K),
    /// One object cannot be decoded and is left out; its last known form stays the best there is. Sent for an item of a
    /// list before its [`Followed::All`].
    Unreadable(Unreadable),
    /// The list may be out of date for a while, since the server cannot be watched.
    Trouble(ApiError),
}

#[derive(Deserialize)]
struct Event<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The content of a bookmark.
#[derive(Deserialize)]
struct Bookmark {
    #[serde(default)]
    metadata: VersionBody,
}

impl ApiClient {
    /// Follows a list until the stream is dropped.
    pub fn follow<K: Object>(&self, select: Select) -> BoxStream<'static, Followed<K>> {
        let (news, heard) = mpsc::channel(NEWS_MAX);
        bridge_io::told_by(self.io().lane().io(), follow(self.clone(), select, news), heard)
    }
}

/// The wait before the next attempt.
struct NextTry(Duration);

impl NextTry {
    /// Waits for the time that the server asked for, and then until the wait is over or a server that was away is back.
    async fn wait(&mut self, api_health: &ApiHealth, asked: Option<Duration>, mut recovery: RecoveryWaiter) {
        let asked = asked.unwrap_or_default();
        let rest = api_health.jittered(self.0).saturating_sub(asked);
        self.0 = BACKOFF.following(self.0);
        sleep(asked).await;
        tokio::select! {
            biased;
            // A server that has just started may refuse calls that it accepts a moment later.
            () = recovery.fulfilled() => self.0 = BACKOFF.first(),
            () = sleep(rest) => {}
        }
    }
}

/// The reader of the stream has dropped it.
struct Left;

async fn follow<K: Object>(api: ApiClient, select: Select, news: mpsc::Sender<Followed<K>>) {
    let mut next_try = NextTry(BACKOFF.first());
    loop {
        let begun = Instant::now();
        let recovery = api.api_health().recovery();
        let error = match follow_once(&api, &select, &news).await {
            Ok(error) => error,
            Err(Left) => return,
        };
        let lasted = begun.elapsed() > GOOD_TIME;
        if lasted {
            next_try = NextTry(BACKOFF.first());
        }
        let wait = error.retry_after;
        // A return of the server during the good time does not count: the server has gone away again since.
        let recovery = if lasted { api.api_health().recovery() } else { recovery };
        if !error.is_gone() && news.send(Followed::Trouble(error)).await.is_err() {
            return;
        }
        next_try.wait(api.api_health(), wait, recovery).await;
    }
}

/// Lists and watches until a new list is needed; the error says why.
async fn follow_once<K: Object>(
    api: &ApiClient,
    select: &Select,
    news: &mpsc::Sender<Followed<K>>,
) -> Result<ApiError, Left> {
    let Listed { version, all, unreadable, .. } = match api.list_all::<K>(select).await {
        Ok(listed) => listed,
        Err(error) => return Ok(error),
    };
    let mut version = version.unwrap_or_else(|| "0".to_owned());
    for one in unreadable {
        // A follower of one object has nothing left to work with.
        if select.is_one() {
            return Ok(ApiError::unanswered(
                format!("LIST {}", K::plural(&())),
                format!("an item cannot be read: {}", one.why),
            ));
        }
        news.send(Followed::Unreadable(one)).await.map_err(|_| Left)?;
    }
    news.send(Followed::All(all)).await.map_err(|_| Left)?;
    let mut next_try = NextTry(BACKOFF.first());
    loop {
        let begun = Instant::now();
        let recovery = api.api_health().recovery();
        let error = match watch(api, select, &mut version, news).await? {
            // The next watch continues where this one ended. After a watch that ended at once there is a pause.
            Ended::InTime => {
                if begun.elapsed() < Duration::from_secs(1) {
                    next_try.wait(api.api_health(), None, recovery).await;
                } else {
                    next_try = NextTry(BACKOFF.first());
                }
                continue;
            }
            Ended::Unopened(error) if error.is_unanswered() || error.code >= 500 => return Ok(error),
            Ended::Unopened(error) | Ended::Broken(error) if error.is_gone() => return Ok(error),
            Ended::Unheard => return Ok(unheard::<K>()),
            Ended::Unopened(error) | Ended::Broken(error) => error,
        };
        let lasted = begun.elapsed() > GOOD_TIME;
        if lasted {
            next_try = NextTry(BACKOFF.first());
        }
        let wait = error.retry_after;
        let recovery = if lasted { api.api_health().recovery() } else { recovery };
        news.send(Followed::Trouble(error)).await.map_err(|_| Left)?;
        next_try.wait(api.api_health(), wait, recovery).await;
    }
}

/// How a watch ended.
enum Ended {
    /// The watch ended at its time-out.
    InTime,
    /// The watch ended at its time-out without even a bookmark, or one of a single object was silent for long. A server that was
    /// restored from an older backup accepts a watch from a version that it has not reached yet, and is silent until it has.
    Unheard,
    /// The watch did not begin. If there was no answer, or one of a server that is not well, the server was away and
    /// its objects may be older than before: only a list tells.
    Unopened(ApiError),
    /// The watch broke before its time-out.
    Broken(ApiError),
}

fn unheard<K: Object>() -> ApiError {
    let message = "a watch was silent for too long";
    let error = ApiError::unanswered(format!("WATCH {}", K::plural(&())), message);
    ApiError { code: 410, ..error }
}

/// Runs one watch.
async fn watch<K: Object>(
    api: &ApiClient,
    select: &Select,
    version: &mut String,
    news: &mpsc::Sender<Followed<K>>,
) -> Result<Ended, Left> {
    let is_one = select.is_one();
    let shortest = if is_one { WATCH_OF_ONE_SECONDS_MIN } else { WATCH_SECONDS_MIN };
    let seconds = api.api_health().jittered(Duration::from_secs(shortest)).as_secs();
    let answer = match api.open_watch::<K>(select, version, seconds).await {
        Ok(answer) => answer,
        Err(error) => return Ok(Ended::Unopened(error)),
    };
    let broken = |message: String| {
        api.doubt();
        Ended::Broken(ApiError::unanswered(format!("WATCH {}", K::plural(&())), message))
    };
    let bytes = answer.into_body().into_data_stream().map(|part| part.map_err(std::io::Error::other));
    let codec = LinesCodec::new_with_max_length(EVENT_BYTES_MAX);
    let mut lines = FramedRead::new(StreamReader::new(bytes), codec);
    // The server ends the watch in time; a connection that is silent long after that is dead.
    let end = Duration::from_secs(seconds + 60);
    let silence_max = if is_one { api.api_health().jittered(SILENCE_MIN) } else { end };
    let begun = Instant::now();
    let mut was_heard = false;
    loop {
        let line = match timeout(silence_max, lines.next()).await {
            Err(_) if is_one => return Ok(Ended::Unheard),
            Err(_) => {
                return Ok(broken("nothing was heard long after the watch should have ended".to_owned()));
            }
            Ok(None) if !was_heard && begun.elapsed() >= UNHEARD_MIN => return Ok(Ended::Unheard),
            Ok(None) => return Ok(Ended::InTime),
            Ok(Some(Err(error))) => return Ok(broken(error.to_string())),
            Ok(Some(Ok(line))) => line,
        };
        was_heard = true;
        match heard(&line, version) {
            Ok(Some(item)) => news.send(item).await.map_err(|_| Left)?,
            Ok(None) => {}
            Err(error) => return Ok(Ended::Broken(error)),
        }
    }
}

/// Takes the version from an event, and decodes its object. The watch continues after an object that cannot be decoded.
fn read_event<K: Object>(
    object: &[u8],
    said: Said,
    told: fn(K) -> Followed<K>,
) -> (Option<String>, Option<Followed<K>>) {
    match read_object::<K>(object, said) {
        Ok(object) => (object.meta().resource_version.clone(), Some(told(object))),
        Err(found) => {
            let (one, newest) = *found;
            (newest, Some(Followed::Unreadable(one)))
        }
    }
}

fn heard<K: Object>(line: &str, version: &mut String) -> Result<Option<Followed<K>>, ApiError> {
    let operation = || format!("WATCH {}", K::plural(&()));
    let unreadable = |error: serde_json::Error| {
        ApiError::unanswered(operation(), format!("an event cannot be read: {error}"))
    };
    let event: Event<'_> = serde_json::from_slice(line.as_bytes()).map_err(unreadable)?;
    let object = event.object.get().as_bytes();
    let (newest, news) = match event.r#type {
        "ERROR" => {
            let status: StatusBody = serde_json::from_slice(object).map_err(unreadable)?;
            return Err(ApiError::of_status(operation(), 0, None, status));
        }
        "ADDED" | "MODIFIED" => read_event(object, Said::Changed, Followed::Changed),
        "DELETED" => read_event(object, Said::Gone, Followed::Gone),
        // A bookmark only carries the version that the watch has reached.
        _ => {
            let bookmark: Bookmark = serde_json::from_slice(object).map_err(unreadable)?;
            (bookmark.metadata.resource_version, None)
        }
    };
    if let Some(newest) = newest {
        *version = newest;
    }
    Ok(news)
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use bridge_io::Io;
    use futures::FutureExt;
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;

    use super::*;
    use crate::limits::RateLimit;

    #[tokio::test]
    async fn a_panic_of_what_follows_goes_on_in_the_reader() {
        let broken = tower::service_fn(async |_: Request<Body>| -> Result<Response<Body>, tower::BoxError> {
            panic!("in the call")
        });
        let io = Io::current();
        let client = kube::Client::new(broken, "default");
        let unlimited = RateLimit { per_second: 0.0, burst: 0 };
        let api = ApiClient::new(client, io, unlimited, Duration::from_secs(5));
        let mut followed = api.follow::<ConfigMap>(Select::default());
        let Err(panic) = AssertUnwindSafe(followed.next()).catch_unwind().await else {
            panic!("the stream goes on as if nothing had happened")
        };
        assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some("in the call"));
    }
}
