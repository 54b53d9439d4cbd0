//! Lists that stay current: list, then watch from there, and list again when the server has forgotten where that was.

use std::time::Duration;

use futures::stream::{BoxStream, StreamExt};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::io::StreamReader;
use tokio_util::task::AbortOnDropHandle;

use super::api::{ApiClient, Select, VersionBody};
use super::error::{ApiError, StatusBody};
use super::object::{Object, Said, Unreadable, read_object};
use super::reach::{Hope, Reach};
use bridge_pace::Backoff;

/// A watch lasts this long at least and twice as long at most, so that not all end at once.
const WATCH_SECONDS_MIN: u64 = 300;
/// Bytes of one event.
const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Waits between tries: doubled from the first to the last, with as much again at random, fresh after a good time.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(800), Duration::from_secs(30));
const GOOD_TIME: Duration = Duration::from_secs(120);
/// Bookmarks come every minute; a watch of this length should have heard one.
const UNHEARD_MIN: Duration = Duration::from_secs(240);
/// News that wait for whoever follows.
const NEWS_MAX: usize = 64;

/// What a followed list says.
#[derive(Clone, Debug)]
pub enum Followed<K> {
    /// All that is there now; what was known and is not in it is gone.
    All(Vec<K>),
    /// One object is new or has changed.
    Changed(K),
    /// One object is gone; as it last was.
    Gone(K),
    /// One object is not of its kind's form and is left out of what is told: what was known of it is the best there is.
    /// Said of an item of a list before its [`Followed::All`].
    Unreadable(Unreadable),
    /// The list may be out of date for a while: nothing can be heard from the server.
    Trouble(ApiError),
}

#[derive(Deserialize)]
struct Event<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// What a bookmark tells.
#[derive(Deserialize)]
struct Bookmark {
    #[serde(default)]
    metadata: VersionBody,
}

impl ApiClient {
    /// Follows a list. Ends when it is dropped.
    pub fn follow<K: Object>(&self, select: Select) -> BoxStream<'static, Followed<K>> {
        let (news, heard) = mpsc::channel(NEWS_MAX);
        let task = AbortOnDropHandle::new(self.io().spawn(follow(self.clone(), select, news)));
        futures::stream::unfold((heard, task), async |(mut heard, task)| {
            let next = heard.recv().await?;
            Some((next, (heard, task)))
        })
        .boxed()
    }
}

/// The wait before the next try.
struct NextTry(Duration);

impl NextTry {
    /// Waits as long as the server has said, and then until the time is over or a server that was away is back.
    async fn wait(&mut self, reach: &Reach, asked: Option<Duration>, mut hope: Hope) {
        let asked = asked.unwrap_or_default();
        let rest = reach.jittered(self.0).saturating_sub(asked);
        self.0 = BACKOFF.following(self.0);
        sleep(asked).await;
        tokio::select! {
            biased;
            // Just after its start a server may refuse what it takes a moment later.
            () = hope.fulfilled() => self.0 = BACKOFF.first(),
            () = sleep(rest) => {}
        }
    }
}

/// Nobody follows any more.
struct Left;

async fn follow<K: Object>(api: ApiClient, select: Select, news: mpsc::Sender<Followed<K>>) {
    let mut next_try = NextTry(BACKOFF.first());
    loop {
        let begun = Instant::now();
        let hope = api.reach().hope();
        let error = match follow_once(&api, &select, &news).await {
            Ok(error) => error,
            Err(Left) => return,
        };
        let lasted = begun.elapsed() > GOOD_TIME;
        if lasted {
            next_try = NextTry(BACKOFF.first());
        }
        let wait = error.retry_after;
        // What has come back since a good time began has gone away again since.
        let hope = if lasted { api.reach().hope() } else { hope };
        if !error.is_gone() && news.send(Followed::Trouble(error)).await.is_err() {
            return;
        }
        next_try.wait(api.reach(), wait, hope).await;
    }
}

/// Lists and watches until a new list is needed, and why.
async fn follow_once<K: Object>(
    api: &ApiClient,
    select: &Select,
    news: &mpsc::Sender<Followed<K>>,
) -> Result<ApiError, Left> {
    let listed = match api.list_raw::<K>(select, "").await {
        Ok(listed) => listed,
        Err(error) => return Ok(error),
    };
    let mut version = listed.metadata.resource_version.clone().unwrap_or_else(|| "0".to_owned());
    let (all, unreadable) = listed.items::<K>();
    for one in unreadable {
        // Who follows one object has nothing to go on with.
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
        let hope = api.reach().hope();
        let error = match watch(api, select, &mut version, news).await? {
            // Watches end: the next one goes on where this one was. One that ends at once is not asked for at once.
            Ended::InTime => {
                if begun.elapsed() < Duration::from_secs(1) {
                    next_try.wait(api.reach(), None, hope).await;
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
        let hope = if lasted { api.reach().hope() } else { hope };
        news.send(Followed::Trouble(error)).await.map_err(|_| Left)?;
        next_try.wait(api.reach(), wait, hope).await;
    }
}

/// How a watch was over.
enum Ended {
    /// As watches end.
    InTime,
    /// In time, and not even a bookmark was heard. A server whose data were put back to an earlier time takes a watch
    /// from a version that it has not reached yet, and is silent until it has.
    Unheard,
    /// It did not begin. Without an answer, or with one of a server that is not well, the server has been away, and
    /// what it holds may be older than before: only a list tells.
    Unopened(ApiError),
    /// In the middle.
    Broken(ApiError),
}

fn unheard<K: Object>() -> ApiError {
    let message = "a watch was silent to its end";
    let error = ApiError::unanswered(format!("WATCH {}", K::plural(&())), message);
    ApiError { code: 410, ..error }
}

/// One watch.
async fn watch<K: Object>(
    api: &ApiClient,
    select: &Select,
    version: &mut String,
    news: &mpsc::Sender<Followed<K>>,
) -> Result<Ended, Left> {
    let seconds = api.reach().jittered(Duration::from_secs(WATCH_SECONDS_MIN)).as_secs();
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
    // The server ends it in time; one that says nothing long after that is dead.
    let end = Duration::from_secs(seconds + 60);
    let begun = Instant::now();
    let mut was_heard = false;
    loop {
        let line = match timeout(end, lines.next()).await {
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

/// How far the watch has come with an event, and its news. The watch goes on behind an object that cannot be read.
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
        // A bookmark only tells how far the watch has come.
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
