//! PURE: the images in the Node's status (row 13.6).

use k8s_openapi::api::core::v1::ContainerImage;

/// At most so many names of one image are shown.
const NAMES_MAX: usize = 5;

/// An image as the runtime has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeImage {
    /// References by digest.
    pub digests: Vec<String>,
    /// References by tag.
    pub tags: Vec<String>,
    /// Bytes.
    pub size: u64,
}

/// The largest images first, at most `max` of them; all with `None`.
pub fn listed(mut images: Vec<RuntimeImage>, max: Option<usize>) -> Vec<ContainerImage> {
    // Images of equal size need a fixed order, or the status would change from time to time.
    images.sort_by(|one, other| {
        (other.size, &one.digests, &one.tags).cmp(&(one.size, &other.digests, &other.tags))
    });
    images.truncate(max.unwrap_or(usize::MAX));
    let shown = |image: RuntimeImage| {
        let names: Vec<String> = image.digests.into_iter().chain(image.tags).take(NAMES_MAX).collect();
        ContainerImage { names: Some(names), size_bytes: i64::try_from(image.size).ok() }
    };
    images.into_iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_come_first_with_five_names_at_most() {
        let image = |name: &str, size| RuntimeImage {
            digests: vec![format!("{name}@1"), format!("{name}@2")],
            tags: (0..5).map(|n| format!("{name}:{n}")).collect(),
            size,
        };
        let images = || vec![image("a", 5), image("b", 7), image("c", 7)];
        let list = listed(images(), Some(2));
        let sizes: Vec<_> = list.iter().map(|image| image.size_bytes).collect();
        assert_eq!(sizes, [Some(7), Some(7)]);
        let names = ["b@1", "b@2", "b:0", "b:1", "b:2"].map(str::to_owned).to_vec();
        assert_eq!(list[0].names, Some(names));
        assert_eq!((listed(images(), None).len(), listed(images(), Some(0)).len()), (3, 0));
    }
}
