//! PURE: about how many bytes of memory objects take that are kept here, and whether there is room for one more. What pods are made of is
//! their authors' choice.

use std::collections::BTreeMap;
use std::io;

/// The most bytes that the API server's pods take. Those of one namespace take half of it at most.
pub const PODS_BYTES_MAX: u64 = 256 << 20;
/// What is known already may grow, and what an earlier process has let in comes back, until all take so many times that.
pub const GROWN: u64 = 2;

/// About what an object or a list takes beside its text.
const NESTED_BYTES: u64 = 512;

/// Weighs the JSON that is written to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weigher(u64);

impl Weigher {
    /// About how many bytes of memory a value takes that was written so.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl io::Write for Weigher {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let nested = text.iter().filter(|byte| matches!(byte, b'{' | b'[')).count();
        self.0 += text.len() as u64 + nested as u64 * NESTED_BYTES;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What objects take, by namespace.
#[derive(Clone, Debug)]
pub struct Weights {
    max: u64,
    all: u64,
    by_namespace: BTreeMap<String, u64>,
}

impl Weights {
    /// Nothing yet; all may take so many bytes.
    #[must_use]
    pub fn new(max: u64) -> Self {
        Self { max, all: 0, by_namespace: BTreeMap::new() }
    }

    /// Whether there is room for an object of this namespace that takes so many bytes in the place of one that took `before`, where
    /// all may take `times` as much, and those of a namespace half of it. One that takes no more than before always fits.
    #[must_use]
    pub fn fits(&self, namespace: &str, before: u64, bytes: u64, times: u64) -> bool {
        let max = self.max.saturating_mul(times);
        let own = self.by_namespace.get(namespace).copied().unwrap_or(0);
        let then = |all: u64| all.saturating_sub(before).saturating_add(bytes);
        bytes <= before || (then(self.all) <= max && then(own) <= max / 2)
    }

    /// An object of this namespace takes so many bytes in the place of one that took `before`.
    pub fn put(&mut self, namespace: &str, before: u64, bytes: u64) {
        self.all = self.all.saturating_sub(before).saturating_add(bytes);
        let own = self.by_namespace.get(namespace).copied().unwrap_or(0);
        let own = own.saturating_sub(before).saturating_add(bytes);
        if own == 0 {
            self.by_namespace.remove(namespace);
        } else {
            self.by_namespace.insert(namespace.to_owned(), own);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn text_and_what_nests_has_weight() {
        let weight = |text: &str| {
            let mut weigher = Weigher::default();
            weigher.write_all(text.as_bytes()).unwrap();
            weigher.bytes()
        };
        assert_eq!((weight("12345"), weight("[{},{}]")), (5, 7 + 3 * NESTED_BYTES));
    }

    #[test]
    fn a_namespace_has_half_and_what_is_known_may_grow() {
        let mut weights = Weights::new(100);
        assert!(weights.fits("crowd", 0, 50, 1) && !weights.fits("crowd", 0, 51, 1));
        weights.put("crowd", 0, 50);
        assert!(!weights.fits("crowd", 0, 1, 1) && weights.fits("crowd", 50, 100, GROWN));
        assert!(!weights.fits("crowd", 50, 101, GROWN));
        weights.put("crowd", 50, 100);
        assert!(!weights.fits("quiet", 0, 1, 1), "all is taken");
        assert!(weights.fits("crowd", 100, 99, 1), "it shrinks");
        weights.put("crowd", 100, 0);
        assert!(weights.by_namespace.is_empty() && weights.fits("quiet", 0, 50, 1));
    }
}
