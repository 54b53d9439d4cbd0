//! The pulls that have begun and whose outcome is not recorded: an image that appears under one of their
//! names counts as pulled by the kubelet, even without a record.

use std::collections::{BTreeMap, BTreeSet};

use bridge_cri::wire::Image;
use bridge_text::image;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Begun {
    /// The image's name in full, as runtimes list it.
    full: String,
    /// How many pulls of this name run; 0 if an earlier process, or a pull with an unknown outcome, has left
    /// the intent.
    pulls: usize,
    /// The images that were there before the pull, and that no pull had made.
    before: BTreeSet<String>,
    /// How many lists of images had begun when a pull of this name began or ended last: those say nothing about it.
    lists: u64,
}

/// The image that is now under the name of an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntentFound {
    /// An image that came of the pull, by its reference.
    Made(String),
    /// An image that was there before the pull.
    Before,
    /// No image.
    Nothing,
}

/// The intents on disk, by the image's name as pods spell it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intents {
    begun: BTreeMap<String, Begun>,
}

impl Intents {
    /// Adds an intent that is on disk; `before` are the images that are known to have been there before its pull.
    pub fn found(&mut self, image: &str, before: BTreeSet<String>) {
        self.entry(image, before);
    }

    /// The images from before the pull of each intent, where there are any.
    pub fn before(&self) -> BTreeMap<String, BTreeSet<String>> {
        let some = self.begun.iter().filter(|(_, begun)| !begun.before.is_empty());
        some.map(|(image, begun)| (image.clone(), begun.before.clone())).collect()
    }

    fn entry(&mut self, image: &str, before: BTreeSet<String>) -> &mut Begun {
        let full = || Begun { full: full_name(image), pulls: 0, before, lists: 0 };
        self.begun.entry(image.to_owned()).or_insert_with(full)
    }

    /// A pull begins; `before` are the images that are there already and that no pull has made. If the name has
    /// an intent already, that intent's images from before hold. So many lists have begun.
    pub fn begin(&mut self, image: &str, before: impl IntoIterator<Item = String>, lists: u64) {
        let begun = self.entry(image, before.into_iter().collect());
        begun.pulls += 1;
        begun.lists = lists;
    }

    /// A pull has ended when so many lists had begun, and its outcome is known. True if its intent is to be removed, because no
    /// other pull has the same.
    #[must_use]
    pub fn end(&mut self, image: &str, lists: u64) -> bool {
        let last = self.begun.get(image).is_some_and(|begun| begun.pulls <= 1);
        if last {
            self.begun.remove(image);
        } else {
            self.leave(image, lists);
        }
        last
    }

    /// A pull has ended with an unknown outcome when so many lists had begun: the image may yet appear, so the intent stays.
    pub fn leave(&mut self, image: &str, lists: u64) {
        if let Some(begun) = self.begun.get_mut(image) {
            begun.pulls = begun.pulls.saturating_sub(1);
            begun.lists = lists;
        }
    }

    /// Whether one of these pulls has, or may have, made this image.
    pub fn made(&self, image: &Image) -> bool {
        self.begun
            .iter()
            .any(|(spelled, begun)| is_called(image, spelled, begun) && !begun.before.contains(&image.id))
    }

    /// Forgets images from before a pull that are gone by the list with this number: if such an image comes again, a pull has made
    /// it.
    pub fn forget_gone(&mut self, number: u64, is_gone: impl Fn(&str) -> bool) {
        for begun in self.begun.values_mut().filter(|begun| begun.lists < number) {
            begun.before.retain(|id| !is_gone(id));
        }
    }

    /// The full names of the images, and the IDs of those from before pulls.
    pub fn names(&self) -> BTreeSet<String> {
        self.begun.values().flat_map(|begun| begun.before.iter().chain([&begun.full])).cloned().collect()
    }

    /// The intents without a running pull, and the image that is under the name of each by the list with this number. Of an intent
    /// whose pull has ended since that list began it says nothing.
    pub fn left_over(&self, images: &[Image], number: u64) -> Vec<(String, IntentFound)> {
        let quiet = self.begun.iter().filter(|(_, begun)| begun.pulls == 0 && begun.lists < number);
        let come = |(spelled, begun): (&String, &Begun)| {
            let called = || images.iter().filter(|image| is_called(image, spelled, begun));
            let come = match called().find(|image| !begun.before.contains(&image.id)) {
                Some(image) => IntentFound::Made(image.id.clone()),
                None if called().next().is_some() => IntentFound::Before,
                None => IntentFound::Nothing,
            };
            (spelled.clone(), come)
        };
        quiet.map(come).collect()
    }

    /// Forgets an intent unless a pull has begun again. True if it is forgotten.
    #[must_use]
    pub fn settle(&mut self, image: &str) -> bool {
        let quiet = self.begun.get(image).is_some_and(|begun| begun.pulls == 0);
        if quiet {
            self.begun.remove(image);
        }
        quiet
    }

    /// How many intents there are.
    pub fn len(&self) -> usize {
        self.begun.len()
    }
}

/// The full name of an image. A digest replaces the tag before it, since runtimes list the two apart.
pub fn full_name(image: &str) -> String {
    match image::parse(image) {
        Ok(name) => match (name.digest, name.tag) {
            (Some(digest), _) => format!("{}@{digest}", name.repository),
            (None, tag) => format!("{}:{}", name.repository, tag.unwrap_or_default()),
        },
        Err(_) => image.to_owned(),
    }
}

fn is_called(image: &Image, spelled: &str, begun: &Begun) -> bool {
    image.repo_tags.iter().chain(&image.repo_digests).any(|name| *name == begun.full || name == spelled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(id: &str, tags: &[&str], digests: &[&str]) -> Image {
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Image { id: id.to_owned(), repo_tags: all(tags), repo_digests: all(digests), ..Image::default() }
    }

    #[test]
    fn an_image_comes_from_a_pull_however_either_is_spelled() {
        let digest = format!("sha256:{}", "0".repeat(64));
        let by_digest = format!("docker.io/library/busybox@{digest}");
        let there = image("1", &["docker.io/library/busybox:latest", "r.io/app:1"], &[&by_digest]);
        for spelled in ["busybox", "busybox:latest", "r.io/app:1", &format!("busybox:9@{digest}"), &by_digest]
        {
            let mut intents = Intents::default();
            assert!(!intents.made(&there));
            intents.begin(spelled, None, 0);
            assert!(intents.made(&there), "{spelled}");
            assert!(!intents.made(&image("2", &["r.io/app:2"], &[])), "{spelled}");
        }
    }

    #[test]
    fn an_intent_stays_until_the_last_pull_has_ended_in_a_known_way() {
        let mut intents = Intents::default();
        intents.begin("a", None, 0);
        intents.begin("a", None, 0);
        assert!(!intents.end("a", 0));
        assert!(intents.end("a", 0));
        assert_eq!(intents.len(), 0);
        intents.begin("a", None, 0);
        intents.leave("a", 0);
        let there = [image("1", &["docker.io/library/a:latest"], &[])];
        assert_eq!(intents.left_over(&[], 1), [("a".to_owned(), IntentFound::Nothing)]);
        assert_eq!(intents.left_over(&there, 1), [("a".to_owned(), IntentFound::Made("1".to_owned()))]);
        intents.begin("a", None, 0);
        assert_eq!(intents.left_over(&there, 1), [], "it is being pulled again");
        assert!(!intents.settle("a"));
        intents.leave("a", 0);
        assert!(intents.settle("a") && !intents.settle("a") && !intents.end("never begun", 0));
    }

    #[test]
    fn an_image_that_was_there_before_a_pull_is_not_made_by_it() {
        let tag = ["docker.io/library/a:latest"];
        let (old, new) = (image("1", &tag, &[]), image("2", &tag, &[]));
        let mut intents = Intents::default();
        intents.begin("a", Some("1".to_owned()), 0);
        assert!(!intents.made(&old) && intents.made(&new));
        intents.leave("a", 0);
        let left =
            |intents: &Intents, images: &[Image]| intents.left_over(images, 1).pop().map(|(_, come)| come);
        assert_eq!(left(&intents, std::slice::from_ref(&old)), Some(IntentFound::Before));
        assert_eq!(left(&intents, &[old.clone(), new.clone()]), Some(IntentFound::Made("2".to_owned())));
        intents.forget_gone(1, |id| id != old.id);
        assert!(!intents.made(&old), "it is still there");
        intents.forget_gone(1, |id| id != new.id);
        assert!(intents.made(&old), "it has gone, and has come again");

        let mut earlier = Intents::default();
        earlier.found("a", BTreeSet::new());
        earlier.begin("a", Some("1".to_owned()), 0);
        assert!(earlier.made(&old), "an earlier process may have pulled it");
    }

    #[test]
    fn a_list_says_nothing_about_a_pull_that_has_ended_since_it_began() {
        let mut intents = Intents::default();
        intents.begin("a", Some("1".to_owned()), 0);
        // The list with the number 1 begins, then the pull ends, and then the list is there.
        intents.leave("a", 1);
        assert_eq!(intents.left_over(&[], 1), []);
        intents.forget_gone(1, |_| true);
        assert!(!intents.made(&image("1", &["docker.io/library/a:latest"], &[])));
        assert_eq!(intents.left_over(&[], 2), [("a".to_owned(), IntentFound::Nothing)]);
    }
}
