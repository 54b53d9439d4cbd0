//! PURE: the names that images have in the runtime. Pods' authors can pull one image by as many names as they like, and a name
//! goes only with its image.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bridge_cri::wire::Image;

/// With so many names in the runtime, tags and digests, a namespace that has a great part of them pulls by no new one. A name has up
/// to about 400 bytes, so that all names take a quarter of the runtime's longest answer.
const NAMES_MAX: usize = 10_000;
/// A namespace may pull by so many names that are new in any case.
const PART_MIN: usize = 100;

/// The full names by which pods have pulled images that were not on the node by these names, by namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pulled: BTreeMap<Arc<str>, BTreeSet<String>>,
}

impl Names {
    /// A pod of the namespace is about to pull an image by this full name, while these images are on the node.
    ///
    /// # Errors
    /// Why it must not: there are too many names, and many are this namespace's.
    pub fn admit(&mut self, namespace: &Arc<str>, name: &str, images: &[Image]) -> Result<(), String> {
        if images.iter().flat_map(names).any(|known| known == name) {
            return Ok(());
        }
        let all = images.iter().flat_map(names).count();
        let own = self.pulled.get(namespace).map_or(0, BTreeSet::len);
        let most = self.pulled.values().map(BTreeSet::len).max().unwrap_or_default();
        if all >= NAMES_MAX && own >= PART_MIN && 2 * own >= most {
            return Err(format!(
                "the images on this node have {all} names, of which pods of namespace {namespace:?} have pulled {own}: with \
                 {NAMES_MAX} names or more, such a namespace pulls by no new name until unused images are deleted"
            ));
        }
        self.pulled.entry(namespace.clone()).or_default().insert(name.to_owned());
        Ok(())
    }

    /// Forgets the names that are neither on the node, which has these images, nor `wanted`.
    pub fn keep(&mut self, images: &[Image], wanted: &BTreeSet<String>) {
        let there: BTreeSet<&String> = images.iter().flat_map(names).collect();
        for pulled in self.pulled.values_mut() {
            pulled.retain(|name| there.contains(name) || wanted.contains(name));
        }
        self.pulled.retain(|_, pulled| !pulled.is_empty());
    }
}

fn names(image: &Image) -> impl Iterator<Item = &String> {
    image.repo_tags.iter().chain(&image.repo_digests)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(tags: impl Iterator<Item = String>) -> Image {
        Image { id: "1".to_owned(), repo_tags: tags.collect(), ..Image::default() }
    }

    #[test]
    fn a_namespace_with_a_great_part_of_too_many_names_pulls_by_no_new_one() {
        let (crowd, quiet): (Arc<str>, Arc<str>) = (Arc::from("crowd"), Arc::from("quiet"));
        let tag = |number: usize| format!("r.io/app:{number}");
        let mut names = Names::default();
        for number in 0..NAMES_MAX {
            let few = [image((0..5).map(tag))];
            names.admit(&crowd, &tag(number), &few).unwrap();
        }
        let all = [image((0..NAMES_MAX).map(tag))];
        let error = names.admit(&crowd, "r.io/app:new", &all).unwrap_err();
        assert!(error.contains("10000 names") && error.contains("\"crowd\" have pulled 9995"), "{error}");
        names.admit(&crowd, &tag(7), &all).unwrap();
        for number in 0..2 * PART_MIN {
            names.admit(&quiet, &format!("q.io/app:{number}"), &all).unwrap();
        }
        names.admit(&crowd, "r.io/app:new", &[image((0..NAMES_MAX - 1).map(tag))]).unwrap();
        names.keep(&[image((0..50).map(tag))], &BTreeSet::from(["q.io/app:1".to_owned()]));
        assert_eq!((names.pulled[&crowd].len(), names.pulled[&quiet].len()), (45, 1));
        names.keep(&[], &BTreeSet::new());
        assert_eq!(names, Names::default());
    }

    #[test]
    fn every_namespace_has_some_names() {
        let (mut names, one) = (Names::default(), Arc::from("one"));
        let all = [image((0..NAMES_MAX).map(|number| format!("r.io/app:{number}")))];
        for number in 0..PART_MIN {
            names.admit(&one, &format!("r.io/new:{number}"), &all).unwrap();
        }
        names.admit(&one, "r.io/more:1", &all).unwrap_err();
        names.admit(&Arc::from("other"), "r.io/more:1", &all).unwrap();
    }
}
