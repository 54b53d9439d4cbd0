//! Pages of a reading that many scrapers ask for: each is written once, and exists once as long as an answer holds it.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use prometheus::proto::MetricFamily;

use super::accept::{Coding, Format};
use super::{Page, written};

/// The pages of readings of type `R` that are being sent. A page that no answer holds any longer is gone.
#[derive(Debug)]
pub struct SharedPages<R>(Mutex<Vec<Sent<R>>>);

#[derive(Debug)]
struct Sent<R> {
    of: Weak<R>,
    page: Weak<Page>,
}

impl<R> Default for SharedPages<R> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<R> SharedPages<R> {
    /// The page of a reading, as the scraper prefers it; `families` makes them and they are written unless that page of that reading is being sent
    /// already.
    pub fn page(
        &self,
        of: &Arc<R>,
        families: impl FnOnce(&R) -> Box<dyn Iterator<Item = MetricFamily> + '_>,
        accept: &str,
        accept_encoding: &str,
    ) -> Arc<Page> {
        let (format, content_type) = Format::of(accept);
        let coding = Coding::of(accept_encoding);
        let is_it = |page: &Page| {
            page.content_type == content_type && page.content_encoding.is_some() == (coding == Coding::Gzip)
        };
        let sent = self.sent(|sent| {
            let page = sent.page.upgrade().filter(|page| is_it(page))?;
            std::ptr::eq(sent.of.as_ptr(), Arc::as_ptr(of)).then_some(page)
        });
        // Written without the lock: at most as many at once as there are threads that serve.
        sent.unwrap_or_else(|| {
            let page = Arc::new(written(families(of), format, content_type, coding));
            let sent = Sent { of: Arc::downgrade(of), page: Arc::downgrade(&page) };
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(sent);
            page
        })
    }

    fn sent(&self, find: impl Fn(&Sent<R>) -> Option<Arc<Page>>) -> Option<Arc<Page>> {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.retain(|sent| sent.page.strong_count() > 0);
        pages.iter().find_map(find)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_a_reading_is_written_once_for_all_that_hold_it() {
        let pages = SharedPages::default();
        let (one, other) = (Arc::new(1), Arc::new(2));
        let page = |of: &Arc<i32>, accept: &str, coding: &str| {
            pages.page(of, |_| Box::new(std::iter::empty()), accept, coding)
        };
        let first = page(&one, "", "");
        assert!(Arc::ptr_eq(&first, &page(&one, "", "")));
        for another in
            [page(&other, "", ""), page(&one, "", "gzip"), page(&one, "application/openmetrics-text", "")]
        {
            assert!(!Arc::ptr_eq(&first, &another), "{another:?}");
        }
        drop(first);
        drop(page(&other, "", ""));
        assert_eq!(pages.0.lock().unwrap().len(), 1, "the others are gone");
    }
}
