//! When a writer tells its digest.

use std::time::Duration;

/// After a change: those that are told of it have heard of it by then, unless it was lost.
const SOON: Duration = Duration::from_secs(1);
/// When nothing changes.
const EVERY: Duration = Duration::from_secs(60);

/// Whether the next digest is near. What changes all the time puts it off no further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    is_soon: bool,
}

impl Digests {
    /// Something has changed: the time until the digest, if it is to come earlier than was said before.
    pub fn changed(&mut self) -> Option<Duration> {
        (!std::mem::replace(&mut self.is_soon, true)).then_some(SOON)
    }

    /// A digest is being told, or the writer begins: the time until the next one.
    pub fn told(&mut self) -> Duration {
        self.is_soon = false;
        EVERY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_follows_a_change_and_is_not_put_off_by_the_next_one() {
        let mut digests = Digests::default();
        assert_eq!(digests.told(), EVERY);
        assert_eq!((digests.changed(), digests.changed()), (Some(SOON), None));
        assert_eq!((digests.told(), digests.changed()), (EVERY, Some(SOON)));
    }
}
