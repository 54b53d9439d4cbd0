//! PURE: the names that images have in the runtime. Pods' authors can pull one image by as many names as they like, and a name
//! goes only with its image.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bridge_cri::ListedImages;
use bridge_cri::wire::Image;

/// With so many names in the runtime, tags and digests, a namespace that has a great part of them pulls by no new one. A name has up
/// to about 400 bytes, so that all names take a quarter of the runtime's longest answer.
const NAMES_MAX: usize = 10_000;
/// A namespace may pull by so many names that are new in any case.
const PART_MIN: usize = 100;

/// The full names by which pods have pulled images that were not on the node by these names, by namespace, each with the number of
/// lists of images that had begun when it was noted last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pulled: BTreeMap<Arc<str>, BTreeMap<String, u64>>,
}

impl Names {
    /// A pod of the namespace is about to pull an image by this full name, while these images are on the node: all there are, or
    /// those that are known. So many lists have begun.
    ///
    /// # Errors
    /// Why it must not: there are too many names, and many are this namespace's.
    pub fn admit<'a>(
        &mut self,
        namespace: &Arc<str>,
        name: &str,
        (images, all_known): (impl Iterator<Item = &'a Image>, bool),
        lists: u64,
    ) -> Result<(), String> {
        let mut all: usize = 0;
        for known in images.flat_map(names) {
            if known == name {
                return Ok(());
            }
            all += 1;
        }
        if !all_known {
            all = all.max(self.pulled.values().map(BTreeMap::len).sum());
        }
        let own = self.pulled.get(namespace).map_or(0, BTreeMap::len);
        let most = self.pulled.values().map(BTreeMap::len).max().unwrap_or_default();
        if all >= NAMES_MAX && own >= PART_MIN && 2 * own >= most {
            return Err(format!(
                "the images on this node have {all} names, of which pods of namespace {namespace:?} have pulled {own}: with \
                 {NAMES_MAX} names or more, such a namespace pulls by no new name until unused images are deleted"
            ));
        }
        self.pulled.entry(namespace.clone()).or_default().insert(name.to_owned(), lists);
        Ok(())
    }

    /// A pull by this full name has ended, when so many lists had begun: those may lack it.
    pub fn note(&mut self, name: &str, lists: u64) {
        for pulled in self.pulled.values_mut() {
            if let Some(noted) = pulled.get_mut(name) {
                *noted = lists;
            }
        }
    }

    /// Forgets the names that are neither on the node, by the list with this number, nor `wanted`, nor noted since that list began.
    /// Where no answer holds the list, those go alone of which it is known that there is no image.
    pub fn keep(&mut self, listed: &ListedImages, number: u64, wanted: &BTreeSet<String>) {
        let there: BTreeSet<&String> = listed.images.iter().flat_map(names).collect();
        let may_be_there = |name: &String| match listed.too_long() {
            None => there.contains(name),
            Some(_) => there.contains(name) || !listed.is_gone(name),
        };
        for pulled in self.pulled.values_mut() {
            pulled.retain(|name, noted| *noted >= number || wanted.contains(name) || may_be_there(name));
        }
        self.pulled.retain(|_, pulled| !pulled.is_empty());
    }

    /// All these names.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        self.pulled.values().flat_map(BTreeMap::keys)
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

    fn images(count: usize) -> Vec<Image> {
        vec![image((0..count).map(tag))]
    }

    fn tag(number: usize) -> String {
        format!("r.io/app:{number}")
    }

    /// All images that there are.
    fn whole(images: &[Image]) -> (std::slice::Iter<'_, Image>, bool) {
        (images.iter(), true)
    }

    #[test]
    fn a_namespace_with_a_great_part_of_too_many_names_pulls_by_no_new_one() {
        let (crowd, quiet): (Arc<str>, Arc<str>) = (Arc::from("crowd"), Arc::from("quiet"));
        let mut names = Names::default();
        let few = images(5);
        for number in 0..NAMES_MAX {
            names.admit(&crowd, &tag(number), whole(&few), 1).unwrap();
        }
        let all = images(NAMES_MAX);
        let error = names.admit(&crowd, "r.io/app:new", whole(&all), 1).unwrap_err();
        assert!(error.contains("10000 names") && error.contains("\"crowd\" have pulled 9995"), "{error}");
        names.admit(&crowd, &tag(7), whole(&all), 1).unwrap();
        for number in 0..2 * PART_MIN {
            names.admit(&quiet, &format!("q.io/app:{number}"), whole(&all), 1).unwrap();
        }
        names.admit(&crowd, "r.io/app:new", whole(&images(NAMES_MAX - 1)), 1).unwrap();
        let wanted = BTreeSet::from(["q.io/app:1".to_owned()]);
        names.keep(&ListedImages::from(images(50)), 2, &wanted);
        assert_eq!((names.pulled[&crowd].len(), names.pulled[&quiet].len()), (45, 1));
        names.keep(&ListedImages::default(), 3, &BTreeSet::new());
        assert_eq!(names, Names::default());
    }

    #[test]
    fn every_namespace_has_some_names() {
        let (mut names, one) = (Names::default(), Arc::from("one"));
        let all = images(NAMES_MAX);
        for number in 0..PART_MIN {
            names.admit(&one, &format!("r.io/new:{number}"), whole(&all), 1).unwrap();
        }
        names.admit(&one, "r.io/more:1", whole(&all), 1).unwrap_err();
        names.admit(&Arc::from("other"), "r.io/more:1", whole(&all), 1).unwrap();
    }

    #[test]
    fn names_count_on_while_no_list_shows_all_images() {
        let (mut names, crowd) = (Names::default(), Arc::from("crowd"));
        for number in 0..NAMES_MAX {
            names.admit(&crowd, &tag(number), ([].iter(), false), 1).unwrap();
        }
        let error = names.admit(&crowd, "r.io/app:new", ([].iter(), false), 1).unwrap_err();
        assert!(error.contains("10000 names"), "{error}");
        names.admit(&Arc::from("quiet"), "q.io/app:1", ([].iter(), false), 1).unwrap();
    }

    #[test]
    fn a_list_forgets_no_name_whose_pull_has_ended_since_it_began() {
        let (mut names, one) = (Names::default(), Arc::from("one"));
        names.admit(&one, &tag(1), whole(&[]), 0).unwrap();
        names.admit(&one, &tag(2), whole(&[]), 0).unwrap();
        // The list with the number 1 begins, and then one of the pulls ends.
        names.note(&tag(1), 1);
        names.keep(&ListedImages::default(), 1, &BTreeSet::new());
        assert_eq!(names.all().collect::<Vec<_>>(), [&tag(1)]);
        names.keep(&ListedImages::default(), 2, &BTreeSet::new());
        assert_eq!(names, Names::default());
    }
}
