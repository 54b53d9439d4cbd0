//! Answers that many callers ask for: what is made of one reading is written once for all of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bridge_metrics::SharedPages;
use messages::stats::{Family, Summary};
use tokio::time::Instant;

use crate::bodies::Sending;

/// The answers about usage that are being sent; clones are the same ones.
#[derive(Clone, Debug, Default)]
pub struct SharedAnswers {
    pub(crate) summaries: Arc<SharedSummaries>,
    pub(crate) pages: Arc<SharedPages<Vec<Family>>>,
    pub(crate) sending: Arc<Sending>,
    pub(crate) pods: Arc<Joined>,
    pub(crate) events: Arc<Joined>,
    pub(crate) tree: Arc<Joined>,
    pub(crate) why: Arc<Joined>,
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

#[cfg(test)]
mod tests {
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
}
