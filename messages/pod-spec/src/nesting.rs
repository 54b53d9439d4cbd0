//! PURE: how much a pod's spec, its metadata and its status may nest each. It is counted before the spec is built: three bytes of text become three kilobytes in a list
//! of volumes, so that an object that the API server keeps, or a manifest, could take gigabytes here, and again with each change.

/// The most objects and lists that a part of a pod nests: its spec, its metadata or its status.
pub const NESTED_MAX: usize = 65_536;
/// A volume counts so much more: in memory it has room for each of its kinds, and takes as much as a dozen others.
const VOLUME: usize = 12;

/// Says what is wrong with a part that nests so many objects and lists, itself among them, and has so many volumes; `None` if it is
/// not too much.
#[must_use]
pub fn excess(nested: usize, volumes: usize) -> Option<String> {
    let count = nested.saturating_add(volumes.saturating_mul(VOLUME));
    (count > NESTED_MAX).then(|| {
        format!(
            "nests {count} objects and lists, of which a volume counts as {}, and this kubelet takes at most {NESTED_MAX}",
            VOLUME + 1
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_counts_as_thirteen() {
        assert_eq!((excess(NESTED_MAX, 0), excess(NESTED_MAX - VOLUME, 1)), (None, None));
        let why = "nests 65537 objects and lists, of which a volume counts as 13, and this kubelet takes at most 65536";
        assert_eq!(excess(NESTED_MAX + 1 - VOLUME, 1).as_deref(), Some(why));
        assert!(excess(usize::MAX, usize::MAX).is_some());
    }
}
