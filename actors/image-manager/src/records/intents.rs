//! The pulls that have begun and whose end is not recorded: an image that appears under one of their names has been
//! pulled by the kubelet, whatever becomes of its record.

use std::collections::BTreeMap;

use runtime_bridge::cri::wire::Image;

use crate::name;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Begun {
    /// The name in full, as runtimes list it.
    full: String,
    /// Pulls that run; none for one that an earlier process, or a pull whose outcome is not known, has left.
    pulls: usize,
}

/// The intents that are on disk, by the image as pods spell it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intents {
    begun: BTreeMap<String, Begun>,
}

impl Intents {
    /// One of an earlier process.
    pub fn found(&mut self, image: &str) {
        self.entry(image);
    }

    fn entry(&mut self, image: &str) -> &mut Begun {
        let full = || Begun { full: full_name(image), pulls: 0 };
        self.begun.entry(image.to_owned()).or_insert_with(full)
    }

    /// A pull begins.
    pub fn begin(&mut self, image: &str) {
        self.entry(image).pulls += 1;
    }

    /// A pull has ended, and what became of it is known. Whether its intent goes, as no other pull has the same.
    #[must_use]
    pub fn end(&mut self, image: &str) -> bool {
        let last = self.begun.get(image).is_some_and(|begun| begun.pulls <= 1);
        if last {
            self.begun.remove(image);
        } else {
            self.leave(image);
        }
        last
    }

    /// A pull has ended in an unknown way: the image may yet appear, so the intent stays.
    pub fn leave(&mut self, image: &str) {
        if let Some(begun) = self.begun.get_mut(image) {
            begun.pulls = begun.pulls.saturating_sub(1);
        }
    }

    /// Whether an image that is there comes from one of these pulls.
    pub fn made(&self, image: &Image) -> bool {
        self.begun.iter().any(|(spelled, begun)| is_called(image, spelled, begun))
    }

    /// Intents whose pulls no longer run, and the reference of the image that has come of each, if one has.
    pub fn left_over(&self, images: &[Image]) -> Vec<(String, Option<String>)> {
        let quiet = self.begun.iter().filter(|(_, begun)| begun.pulls == 0);
        let come = |(spelled, begun): (&String, &Begun)| {
            let image = images.iter().find(|image| is_called(image, spelled, begun));
            (spelled.clone(), image.map(|image| image.id.clone()))
        };
        quiet.map(come).collect()
    }

    /// Forgets an intent unless a pull has begun again. Whether it is gone.
    #[must_use]
    pub fn settle(&mut self, image: &str) -> bool {
        let quiet = self.begun.get(image).is_some_and(|begun| begun.pulls == 0);
        if quiet {
            self.begun.remove(image);
        }
        quiet
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.begun.len()
    }
}

/// A digest says more than the tag before it, and runtimes list both apart.
fn full_name(image: &str) -> String {
    match name::parse(image) {
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
            intents.begin(spelled);
            assert!(intents.made(&there), "{spelled}");
            assert!(!intents.made(&image("2", &["r.io/app:2"], &[])), "{spelled}");
        }
    }

    #[test]
    fn an_intent_stays_until_the_last_pull_has_ended_in_a_known_way() {
        let mut intents = Intents::default();
        intents.begin("a");
        intents.begin("a");
        assert!(!intents.end("a"));
        assert!(intents.end("a"));
        assert_eq!(intents.len(), 0);
        intents.begin("a");
        intents.leave("a");
        let there = [image("1", &["docker.io/library/a:latest"], &[])];
        assert_eq!(intents.left_over(&[]), [("a".to_owned(), None)]);
        assert_eq!(intents.left_over(&there), [("a".to_owned(), Some("1".to_owned()))]);
        intents.begin("a");
        assert_eq!(intents.left_over(&there), [], "it is being pulled again");
        assert!(!intents.settle("a"));
        intents.leave("a");
        assert!(intents.settle("a") && !intents.settle("a") && !intents.end("never begun"));
    }
}
