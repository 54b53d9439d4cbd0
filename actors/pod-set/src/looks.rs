//! Which look of Pleg's at a pod is the newest.

use std::collections::BTreeMap;

use messages::PodUid;

/// Pods that are remembered; what may still be on the way are looks of lately.
const PODS_MAX: usize = 8192;

/// The newest look that has been heard of, by pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    newest: BTreeMap<PodUid, u64>,
    by_look: BTreeMap<u64, PodUid>,
}

impl Looks {
    /// Whether no newer look at this pod has been heard of. One that is told again is as good as the first time.
    pub fn is_newest(&mut self, uid: &PodUid, look: u64) -> bool {
        let known = self.newest.get(uid).copied();
        if known.is_some_and(|known| look <= known) {
            return known == Some(look);
        }
        if let Some(known) = known {
            self.by_look.remove(&known);
        }
        self.newest.insert(uid.clone(), look);
        self.by_look.insert(look, uid.clone());
        if self.by_look.len() > PODS_MAX
            && let Some((_, oldest)) = self.by_look.pop_first()
        {
            self.newest.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_look_is_known_by_its_number() {
        let (mut looks, a, b) = (Looks::default(), PodUid::new("a"), PodUid::new("b"));
        assert!(looks.is_newest(&a, 2) && looks.is_newest(&b, 1));
        assert!(!looks.is_newest(&a, 1) && looks.is_newest(&a, 2) && looks.is_newest(&a, 3));
        for look in 0..2 * PODS_MAX as u64 {
            looks.is_newest(&PodUid::new(&format!("p{look}")), 10 + look);
        }
        assert_eq!((looks.newest.len(), looks.by_look.len()), (PODS_MAX, PODS_MAX));
    }
}
