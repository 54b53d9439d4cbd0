//! Answers that many callers ask for: what is made of one reading is written once, and exists once however many answers send it.
//! Callers that take their answers slowly hold few of them: when too many different ones are being sent, the oldest are given
//! up, and those that still took them are cut off.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bridge_metrics::{Page, SharedPages};
use messages::stats::{Family, Summary};
use tokio::time::Instant;
use tokio_stream::StreamExt;

/// The most different bodies that are being sent, and the most bytes of them; the two newest may be larger.
const BODIES_MAX: usize = 16;
const BYTES_MAX: usize = 64 << 20;
const BODIES_MIN: usize = 2;
/// Bytes of a body that an answer has in hand at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// The answers about usage that are being sent; clones are the same ones.
#[derive(Clone, Debug, Default)]
pub struct SharedAnswers {
    pub(crate) summaries: Arc<SharedSummaries>,
    pub(crate) pages: Arc<SharedPages<Vec<Family>>>,
    pub(crate) sending: Arc<Sending>,
    pub(crate) pods: Arc<Joined>,
    pub(crate) events: Arc<Joined>,
    pub(crate) tree: Arc<Joined>,
}

impl SharedAnswers {
    /// The same answers for another port: of what is being sent there nothing gives way to what is being sent here.
    #[must_use]
    pub(crate) fn for_another_port(&self) -> Self {
        Self { sending: Arc::default(), ..self.clone() }
    }
}

/// The text of an answer that is made anew for its askers: those that ask while one is being made share the next one. So a crowd costs
/// two, and what is told to an asker was read after it had asked.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    askers: AtomicUsize,
    /// The newest text, and when its making began; what an asker that gave up leaves here the next one takes.
    newest: tokio::sync::Mutex<Option<(Instant, Arc<Vec<u8>>)>>,
}

impl Joined {
    /// The text, which `made` makes unless another asker's is new enough.
    ///
    /// # Errors
    /// Those of `made`: each asker makes its own attempt then.
    pub(crate) async fn text<E>(
        &self,
        made: impl Future<Output = Result<Vec<u8>, E>>,
    ) -> Result<Arc<Vec<u8>>, E> {
        let asked = Instant::now();
        let asker = Asker::of(&self.askers);
        let mut newest = self.newest.lock().await;
        let text = match newest.take().filter(|(begun, _)| *begun >= asked) {
            Some((begun, text)) => (begun, text),
            None => (Instant::now(), Arc::new(made.await?)),
        };
        if asker.is_one_of_several() {
            *newest = Some(text.clone());
        }
        Ok(text.1)
    }
}

/// Counts an asker for as long as it waits, also for one that gives up.
struct Asker<'a>(&'a AtomicUsize);

impl<'a> Asker<'a> {
    fn of(askers: &'a AtomicUsize) -> Self {
        askers.fetch_add(1, Ordering::Relaxed);
        Self(askers)
    }

    fn is_one_of_several(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 1
    }
}

impl Drop for Asker<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The texts of summaries that are being sent. A text that no answer holds any longer is gone.
#[derive(Debug, Default)]
pub(crate) struct SharedSummaries(Mutex<Vec<Sent>>);

#[derive(Debug)]
struct Sent {
    of: Weak<Summary>,
    text: Weak<Vec<u8>>,
}

impl SharedSummaries {
    /// The text of a summary, which is written unless it is being sent already.
    ///
    /// # Errors
    /// The summary cannot be written as JSON.
    pub(crate) fn text(&self, of: &Arc<Summary>) -> serde_json::Result<Arc<Vec<u8>>> {
        if let Some(text) = self.sent(of) {
            return Ok(text);
        }
        // Written without the lock: at most as many at once as there are threads that serve.
        let text = Arc::new(serde_json::to_vec(&**of)?);
        let sent = Sent { of: Arc::downgrade(of), text: Arc::downgrade(&text) };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(sent);
        Ok(text)
    }

    fn sent(&self, of: &Arc<Summary>) -> Option<Arc<Vec<u8>>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|sent| sent.text.strong_count() > 0);
        let sent = all.iter().find(|sent| std::ptr::eq(sent.of.as_ptr(), Arc::as_ptr(of)))?;
        sent.text.upgrade()
    }
}

/// What can be sent.
pub(crate) trait Content: Send + Sync + 'static {
    fn bytes(&self) -> &[u8];
}

impl Content for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl Content for Page {
    fn bytes(&self) -> &[u8] {
        &self.body
    }
}

/// A body that some answers send; `None` once it was given up.
struct Slot(Mutex<Option<Arc<dyn Content>>>);

impl Slot {
    fn content(&self) -> MutexGuard<'_, Option<Arc<dyn Content>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of a chunk; `None` once the body was given up.
    fn chunk(&self, at: usize) -> Option<Bytes> {
        let content = self.content().clone()?;
        let bytes = content.bytes();
        let end = bytes.len().min(at + CHUNK_BYTES);
        // A copy, since the caller holds it for as long as it likes.
        bytes.get(at..end).map(Bytes::copy_from_slice)
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Slot").field(&self.content().is_some()).finish()
    }
}

/// The different bodies that are being sent, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Sending(Mutex<VecDeque<Weak<Slot>>>);

impl Sending {
    /// An answer with this body.
    pub(crate) fn answer(&self, content: Arc<dyn Content>) -> Response {
        let length = content.bytes().len();
        let slot = self.slot(content);
        let chunks = tokio_stream::iter((0..length).step_by(CHUNK_BYTES))
            .map(move |at| slot.chunk(at).ok_or_else(|| io::Error::other("the answer was taken too slowly")));
        ([(header::CONTENT_LENGTH, length)], Body::from_stream(chunks)).into_response()
    }

    fn slot(&self, content: Arc<dyn Content>) -> Arc<Slot> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|slot| slot.strong_count() > 0);
        // The same body, or one that says the same.
        let is_it = |slot: &Arc<Slot>| {
            slot.content().as_ref().is_some_and(|other| {
                std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(&content))
                    || other.bytes() == content.bytes()
            })
        };
        let held: Vec<Arc<Slot>> = all.iter().filter_map(Weak::upgrade).collect();
        if let Some(slot) = held.iter().find(|slot| is_it(slot)) {
            return slot.clone();
        }
        let slot = Arc::new(Slot(Mutex::new(Some(content))));
        all.push_back(Arc::downgrade(&slot));
        give_up(&held, &slot);
        slot
    }
}

/// Gives up the oldest bodies, if there are too many with the newest one.
fn give_up(held: &[Arc<Slot>], newest: &Arc<Slot>) {
    let bytes = |slot: &Arc<Slot>| slot.content().as_ref().map_or(0, |content| content.bytes().len());
    let (mut bodies, mut sum) = (1, bytes(newest));
    for slot in held.iter().rev().filter(|slot| slot.content().is_some()) {
        bodies += 1;
        sum += bytes(slot);
        if bodies > BODIES_MIN && (bodies > BODIES_MAX || sum > BYTES_MAX) {
            *slot.content() = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use futures::future::join_all;
    use jiff::Timestamp;
    use messages::stats::{NodeStats, Time};

    use super::*;

    fn summary(name: &str) -> Arc<Summary> {
        let node = NodeStats {
            node_name: name.to_owned(),
            system_containers: Vec::new(),
            start_time: Some(Time(Timestamp::UNIX_EPOCH)),
            cpu: None,
            memory: None,
            io: None,
            network: None,
            fs: None,
            runtime: None,
            rlimit: None,
            swap: None,
        };
        Arc::new(Summary { node, pods: Vec::new() })
    }

    #[tokio::test]
    async fn a_crowd_of_askers_costs_two_texts_and_each_hears_what_was_read_after_it_asked() {
        let (joined, made) = (Joined::default(), AtomicUsize::new(0));
        let ask = || {
            let asked_after = made.load(Ordering::Relaxed);
            let text = joined.text(async {
                let number = made.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                Ok::<_, ()>(number.to_string().into_bytes())
            });
            async move { (asked_after, text.await.unwrap()) }
        };
        let told = join_all((0..100).map(|_| ask())).await;
        assert_eq!(made.load(Ordering::Relaxed), 2, "the first one's, and one for all others");
        let number = |text: &[u8]| std::str::from_utf8(text).unwrap().parse::<usize>().unwrap();
        assert!(told.iter().all(|(asked_after, text)| number(text) >= *asked_after));
        assert_eq!(number(&ask().await.1), 2, "nothing is kept for one that asks later");
    }

    #[test]
    fn a_text_is_written_once_for_all_that_hold_it() {
        let texts = SharedSummaries::default();
        let (one, other) = (summary("one"), summary("other"));
        let first = texts.text(&one).unwrap();
        assert_eq!(
            std::str::from_utf8(&first),
            Ok(r#"{"node":{"nodeName":"one","startTime":"1970-01-01T00:00:00Z"},"pods":[]}"#)
        );
        assert!(Arc::ptr_eq(&first, &texts.text(&one).unwrap()));
        assert!(!Arc::ptr_eq(&first, &texts.text(&other).unwrap()));
        drop(first);
        let again = texts.text(&one).unwrap();
        assert_eq!((again.len() > 2, texts.0.lock().unwrap().len()), (true, 1), "the others are gone");
    }

    async fn taken(answer: Response) -> Option<usize> {
        to_bytes(answer.into_body(), usize::MAX).await.ok().map(|bytes| bytes.len())
    }

    #[tokio::test]
    async fn a_body_is_sent_whole_and_slow_callers_hold_few_of_them() {
        let sending = Sending::default();
        let body = |bytes: usize| Arc::new(vec![b'x'; bytes]);
        let one = body(3 * CHUNK_BYTES + 5);
        let answers = [sending.answer(one.clone()), sending.answer(one.clone())];
        assert_eq!(answers[0].headers()[header::CONTENT_LENGTH], (3 * CHUNK_BYTES + 5).to_string());
        assert_eq!(sending.0.lock().unwrap().len(), 1, "both send the same");
        for answer in answers {
            assert_eq!(taken(answer).await, Some(3 * CHUNK_BYTES + 5));
        }
        assert_eq!(taken(sending.answer(body(0))).await, Some(0));
        assert_eq!(Arc::strong_count(&one), 1, "it is gone with its answers");
        let same = [sending.answer(body(10)), sending.answer(body(10))];
        assert_eq!(sending.0.lock().unwrap().len(), 1, "what says the same exists once");
        drop(same);

        let slow: Vec<Response> = (0..BODIES_MAX + 4).map(|n| sending.answer(body(10 + n))).collect();
        let mut sizes = Vec::new();
        for answer in slow {
            sizes.push(taken(answer).await);
        }
        assert_eq!(sizes.iter().filter(|size| size.is_none()).count(), 4);
        assert!(sizes[..4].iter().all(Option::is_none), "the oldest were given up: {sizes:?}");
        let large = [0, 1, 2].map(|more| sending.answer(body(BYTES_MAX + more)));
        let [first, second, third] = large;
        let sizes = (taken(first).await, taken(second).await, taken(third).await);
        assert_eq!(
            sizes,
            (None, Some(BYTES_MAX + 1), Some(BYTES_MAX + 2)),
            "two may be as large as they are"
        );
    }
}
