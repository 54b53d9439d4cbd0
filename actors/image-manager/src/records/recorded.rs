//! The images that pulls are recorded of, as far as this incarnation knows without its disk.

use std::collections::BTreeMap;

/// The images, by the runtime's reference, each with the number of lists of images that had begun when it was noted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded(BTreeMap<String, u64>);

impl Recorded {
    /// A pull of this image is recorded, when so many lists have begun.
    pub fn note(&mut self, image_ref: String, lists: u64) {
        self.0.insert(image_ref, lists);
    }

    /// Whether a pull of this image is recorded.
    pub fn has(&self, image_ref: &str) -> bool {
        self.0.contains_key(image_ref)
    }

    /// Forgets images that are gone by the list with this number. What was noted since that list began may be missing in it: an
    /// image that was forgotten so would count as one that no pull has made, and as open to all.
    pub fn forget_gone(&mut self, number: u64, is_gone: impl Fn(&str) -> bool) {
        self.0.retain(|id, noted| *noted >= number || !is_gone(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_forgets_no_image_that_was_pulled_since_it_began() {
        let mut recorded = Recorded::default();
        recorded.note("old".to_owned(), 0);
        recorded.note("there".to_owned(), 0);
        // The list with the number 1 begins, then a pull ends, and then the list is there.
        recorded.note("fresh".to_owned(), 1);
        recorded.forget_gone(1, |id| id != "there");
        assert_eq!(["old", "there", "fresh"].map(|id| recorded.has(id)), [false, true, true]);
        recorded.forget_gone(2, |id| id != "there");
        assert!(!recorded.has("fresh"));
    }
}
