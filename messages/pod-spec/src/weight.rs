//! PURE: about how many bytes of memory objects take that are kept here, and whether there is room for one more. What pods are made of is
//! their authors' choice.

use std::collections::BTreeMap;
use std::io;

/// The most bytes that the API server's new pods take, those of one namespace half of it.
pub const PODS_BYTES_MAX: u64 = 256 << 20;
/// What is known already may grow, and what an earlier process has let in comes back, until all take so many times that. This is the
/// bound that holds at last.
pub const GROWN: u64 = 2;

/// A namespace that takes no more than this part of the room has it, whatever all others take, until the last bound.
const SMALL_PART: u64 = 32;
/// This part of the room is left to such namespaces, and to critical objects, below the last bound.
const LEFT_PART: u64 = 2;

/// About what an object or a list takes beside its text.
const NESTED_BYTES: u64 = 512;
/// About what one more item takes beside its text: a string has as many bytes as its place in a list that has grown, and a block of its
/// own.
const ITEM_BYTES: u64 = 64;
/// About what an entry of a map takes beside its text.
const ENTRY_BYTES: u64 = 96;

/// Weighs the JSON that is written to it, in pieces of any length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weigher {
    bytes: u64,
    within: Within,
}

/// Where in the JSON the next byte is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Within {
    /// Outside of strings.
    #[default]
    Structure,
    /// In a string.
    Text,
    /// In a string, after a backslash.
    Escape,
}

impl Weigher {
    /// About how many bytes of memory a value takes that was written so.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.bytes
    }

    fn take(&mut self, byte: u8) {
        let (within, bytes) = match (self.within, byte) {
            (Within::Structure, b'"') | (Within::Escape, _) => (Within::Text, 0),
            (Within::Structure, b'{' | b'[') => (Within::Structure, NESTED_BYTES),
            (Within::Structure, b',') => (Within::Structure, ITEM_BYTES),
            (Within::Structure, b':') => (Within::Structure, ENTRY_BYTES),
            (Within::Structure, _) | (Within::Text, b'"') => (Within::Structure, 0),
            (Within::Text, b'\\') => (Within::Escape, 0),
            (Within::Text, _) => (Within::Text, 0),
        };
        self.within = within;
        self.bytes += 1 + bytes;
    }
}

impl io::Write for Weigher {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        text.iter().for_each(|byte| self.take(*byte));
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What objects take, by namespace. The bounds, from the one that holds at last:
/// - All take at most [`GROWN`] times the room. A namespace that takes a small part of the room has that until then, and so has what is
///   critical, as long as its namespace takes at most half of it all.
/// - All others leave a part of that to those. So no few namespaces take all that there is.
/// - Among new objects, all take at most the room, and those of a namespace half of it; a namespace that has grown beyond its half
///   counts as half there.
#[derive(Clone, Debug)]
pub struct Weights {
    max: u64,
    all: u64,
    /// What all take, where no namespace counts for more than its half.
    counted: u64,
    by_namespace: BTreeMap<String, u64>,
}

impl Weights {
    /// Nothing yet; all that is new may take so many bytes, and all together [`GROWN`] times as many.
    #[must_use]
    pub fn new(max: u64) -> Self {
        Self { max, all: 0, counted: 0, by_namespace: BTreeMap::new() }
    }

    /// Whether there is room for an object of this namespace that takes so many bytes in the place of one that took `before`, where
    /// all may take `times` as much, and those of a namespace half of it. One that takes no more than before always fits, and so does
    /// one of a namespace that takes little, until the last bound.
    #[must_use]
    pub fn fits(&self, namespace: &str, before: u64, bytes: u64, times: u64) -> bool {
        let own = self.own(namespace);
        let own_then = then(own, before, bytes);
        let all_then = then(self.all, before, bytes);
        let counted_then = then(self.counted, self.counted(own), self.counted(own_then));
        let max = self.max.saturating_mul(times);
        let is_small = own_then <= self.max / SMALL_PART && all_then <= self.last();
        let left = self.last().saturating_sub(self.max / LEFT_PART);
        let has_room = own_then <= max / 2 && counted_then <= max && all_then <= left;
        bytes <= before || is_small || has_room
    }

    /// The same for an object that is critical to the node or to the cluster: there is room for it until the last bound, as long as
    /// those of its namespace take at most half of that.
    #[must_use]
    pub fn fits_critical(&self, namespace: &str, before: u64, bytes: u64) -> bool {
        let own_then = then(self.own(namespace), before, bytes);
        bytes <= before || (own_then <= self.last() / 2 && then(self.all, before, bytes) <= self.last())
    }

    /// An object of this namespace takes so many bytes in the place of one that took `before`.
    pub fn put(&mut self, namespace: &str, before: u64, bytes: u64) {
        let own = self.own(namespace);
        let own_then = then(own, before, bytes);
        self.all = then(self.all, before, bytes);
        self.counted = then(self.counted, self.counted(own), self.counted(own_then));
        if own_then == 0 {
            self.by_namespace.remove(namespace);
        } else {
            self.by_namespace.insert(namespace.to_owned(), own_then);
        }
    }

    fn own(&self, namespace: &str) -> u64 {
        self.by_namespace.get(namespace).copied().unwrap_or(0)
    }

    /// For how much a namespace counts that takes so many bytes.
    fn counted(&self, own: u64) -> u64 {
        own.min(self.max / 2)
    }

    /// The most that all take.
    fn last(&self) -> u64 {
        self.max.saturating_mul(GROWN)
    }
}

/// What is taken once so many bytes are in the place of those before.
fn then(taken: u64, before: u64, bytes: u64) -> u64 {
    taken.saturating_sub(before).saturating_add(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn weight(pieces: &[&str]) -> u64 {
        let mut weigher = Weigher::default();
        pieces.iter().for_each(|text| weigher.write_all(text.as_bytes()).unwrap());
        weigher.bytes()
    }

    #[test]
    fn text_what_nests_items_and_entries_have_weight() {
        assert_eq!(weight(&["12345"]), 5);
        assert_eq!(weight(&["[{},{}]"]), 7 + 3 * NESTED_BYTES + ITEM_BYTES);
        assert_eq!(weight(&[r#"["","",""]"#]), 10 + NESTED_BYTES + 2 * ITEM_BYTES);
        assert_eq!(weight(&[r#"{"a":"","b":""}"#]), 15 + NESTED_BYTES + ITEM_BYTES + 2 * ENTRY_BYTES);
    }

    #[test]
    fn strings_weigh_what_their_text_does_wherever_they_are_cut() {
        let strings =
            [r#""[{,:""#, r#""a\"[{,:""#, r#""\\""#, r#""\\\"[{\\\\""#, r#""\u007b\"""#, r#""ä[\n:""#];
        for string in strings {
            let text = format!("[{string},{{{string}:1}}]");
            let expected = text.len() as u64 + 2 * NESTED_BYTES + ITEM_BYTES + ENTRY_BYTES;
            assert_eq!(weight(&[text.as_str()]), expected, "{text}");
            let bytes = text.as_bytes();
            for at in 0..=bytes.len() {
                let mut weigher = Weigher::default();
                weigher.write_all(&bytes[..at]).unwrap();
                weigher.write_all(&bytes[at..]).unwrap();
                assert_eq!(weigher.bytes(), expected, "{text} is cut at {at}");
            }
        }
        let annotation = format!(r#"{{"a":"{}"}}"#, "[".repeat(250_000));
        assert!(weight(&[annotation.as_str()]) < 260_000);
    }

    #[test]
    fn a_namespace_has_half_and_what_is_known_may_grow() {
        let mut weights = Weights::new(100);
        assert!(weights.fits("crowd", 0, 50, 1) && !weights.fits("crowd", 0, 51, 1));
        weights.put("crowd", 0, 50);
        assert!(!weights.fits("crowd", 0, 1, 1) && weights.fits("crowd", 50, 100, GROWN));
        assert!(!weights.fits("crowd", 50, 101, GROWN));
        weights.put("crowd", 50, 100);
        assert!(weights.fits("quiet", 0, 50, 1), "beyond its half a namespace takes nothing from others");
        assert!(!weights.fits("quiet", 0, 51, 1));
        weights.put("quiet", 0, 50);
        assert!(!weights.fits("third", 0, 4, 1), "all is taken");
        assert!(weights.fits("crowd", 100, 99, 1), "it shrinks");
        weights.put("quiet", 50, 0);
        weights.put("crowd", 100, 0);
        assert!(weights.by_namespace.is_empty() && weights.fits("quiet", 0, 50, 1));
        assert_eq!((weights.all, weights.counted), (0, 0));
    }

    #[test]
    fn crowds_that_take_all_they_can_leave_room_to_small_namespaces_and_to_what_is_critical() {
        let mut weights = Weights::new(3200);
        // Grown as far as they may, in the smallest steps.
        for crowd in ["a", "b", "c", "d"] {
            while weights.fits(crowd, 0, 10, GROWN) {
                weights.put(crowd, 0, 10);
            }
        }
        assert!(weights.all < 2 * 3200 - 1000, "{}", weights.all);
        assert!(!weights.fits("quiet", 0, 101, 1) && !weights.fits("quiet", 0, 101, GROWN));
        for number in 0..10 {
            let namespace = number.to_string();
            assert!(weights.fits(&namespace, 0, 100, 1), "{number}");
            weights.put(&namespace, 0, 100);
            assert!(!weights.fits(&namespace, 0, 1, 1), "that was its part");
        }
        let left = 2 * 3200 - weights.all;
        assert!(weights.fits_critical("system", 0, left) && !weights.fits_critical("system", 0, left + 1));
        weights.put("system", 0, left);
        assert!(!weights.fits("late", 0, 1, 1), "the last bound holds for all");
        assert!(!weights.fits_critical("late", 0, 1) && weights.fits_critical("system", left, left));
        let own = Weights::new(3200);
        assert!(own.fits_critical("system", 0, 3200) && !own.fits_critical("system", 0, 3201));
    }
}
