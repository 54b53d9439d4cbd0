//! The list of all images, also where no answer holds it: what an image says of itself is its author's, and two images whose
//! users have some megabytes fill an answer of 16 MiB.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::{StreamExt, stream};

use super::*;

/// The most images that are remembered; a node has a few hundred.
const KNOWN_MAX: usize = 20_000;
/// The most images that are asked for one by one for a list. The next list goes on with those that are left.
const ASKED_MAX: usize = 2000;
/// So many are asked for at once: each answer may have 16 MiB.
const AT_ONCE: usize = 2;
/// The most images at which the runtime may fail in a round: each may cost the deadline of a call.
const FAILED_MAX: usize = 3;

/// The images of the runtime.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListedImages {
    /// Images with what the runtime says of them. Where no answer holds all of them, without users and specifications.
    pub images: Vec<Image>,
    /// Images, by the names that they were asked for, of which the description alone is longer than an answer.
    pub unread: BTreeSet<String>,
    /// The IDs of `images`.
    there: BTreeSet<String>,
    /// The names of which the runtime has no image, among those that it was asked for one by one.
    gone: BTreeSet<String>,
    /// Why the images were asked for one by one.
    too_long: Option<CriError>,
}

impl From<Vec<Image>> for ListedImages {
    /// These are all images.
    fn from(images: Vec<Image>) -> Self {
        let there = images.iter().map(|image| image.id.clone()).collect();
        Self { images, there, ..Self::default() }
    }
}

impl ListedImages {
    /// Why these are only the images that are known: the list of all is longer than an answer.
    #[must_use]
    pub fn too_long(&self) -> Option<&CriError> {
        self.too_long.as_ref()
    }

    /// Whether it is certain that the runtime has no image with this ID.
    #[must_use]
    pub fn is_gone(&self, id: &str) -> bool {
        match self.too_long {
            None => !self.there.contains(id),
            Some(_) => self.gone.contains(id),
        }
    }

    /// The images with their descriptions, and those without by their IDs alone.
    #[must_use]
    pub fn into_all(self) -> Vec<Image> {
        let unread = self.unread.into_iter().map(|id| Image { id, ..Image::default() });
        self.images.into_iter().chain(unread).collect()
    }

    /// Takes the answer about one image in. One that fails tells nothing: the image counts neither as there nor as gone.
    fn take(&mut self, name: String, answer: Result<ImageStatusResponse, CriError>) -> Result<(), CriError> {
        let image = match answer {
            Ok(answer) => answer.image.filter(|image| !image.id.is_empty()),
            Err(error) if error.is_not_found() => None,
            Err(error) if error.is_too_large() => {
                self.unread.insert(name);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        match image {
            Some(image) if self.there.insert(image.id.clone()) => {
                self.images.push(Image { spec: None, username: String::new(), ..image });
            }
            Some(_) => {}
            None => {
                self.gone.insert(name);
            }
        }
        Ok(())
    }
}

/// The IDs of the images that lists and pulls have shown.
#[derive(Default)]
pub(super) struct KnownImages(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// The IDs, and the number of lists that had begun when each was noted.
    ids: BTreeMap<String, u64>,
    lists: u64,
    /// The last image of the latest round, after which the next one goes on.
    last: Option<String>,
}

impl KnownImages {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A list begins; answers with its number.
    fn begin(&self) -> u64 {
        let mut known = self.lock();
        known.lists += 1;
        known.lists
    }

    /// There is an image with this ID.
    pub(super) fn note(&self, id: &str) {
        let mut known = self.lock();
        let lists = known.lists;
        if !id.is_empty() && (known.ids.len() < KNOWN_MAX || known.ids.contains_key(id)) {
            known.ids.insert(id.to_owned(), lists);
        }
    }

    /// The list with this number has shown all images.
    fn are(&self, listed: &ListedImages, number: u64) {
        // What was noted since the list began may be missing in it.
        self.lock().ids.retain(|id, noted| *noted >= number || listed.there.contains(id));
        listed.there.iter().for_each(|id| self.note(id));
    }

    fn forget(&self, id: &str) {
        self.lock().ids.remove(id);
    }

    /// The images to ask for, of those that are known and of `more`.
    fn round(&self, mut more: BTreeSet<String>) -> Vec<String> {
        let mut known = self.lock();
        more.extend(known.ids.keys().cloned());
        if more.len() <= ASKED_MAX {
            known.last = None;
            return more.into_iter().collect();
        }
        let last = known.last.take().unwrap_or_default();
        let after = more.range::<str, _>((Bound::Excluded(last.as_str()), Bound::Unbounded));
        let before = more.range::<str, _>((Bound::Unbounded, Bound::Included(last.as_str())));
        let names: Vec<String> = after.chain(before).take(ASKED_MAX).cloned().collect();
        known.last = names.last().cloned();
        names
    }
}

impl Operations {
    /// All images. Where no answer holds them, those that lists and pulls have shown before and those with the IDs or names
    /// that `more` answers with, which is not polled else: each is asked for by itself, so that images that are in neither are
    /// missing. Dropping it cancels it.
    ///
    /// # Errors
    /// The runtime's answer, or that no answer came in time.
    pub fn list_all_images(&self, more: BoxFuture<'static, BTreeSet<String>>) -> Reply<ListedImages> {
        let (calls, known) = (self.calls.clone(), Arc::clone(&self.images));
        async move {
            let number = known.begin();
            match calls.list_images(ListImagesRequest::default()).await {
                Ok(answer) => {
                    let listed = ListedImages::from(answer.images);
                    known.are(&listed, number);
                    Ok(listed)
                }
                Err(error) if error.is_too_large() => {
                    let names = known.round(more.await);
                    one_by_one(calls, known, names, error).await
                }
                Err(error) => Err(error),
            }
        }
        .boxed()
    }
}

async fn one_by_one(
    calls: Calls,
    known: Arc<KnownImages>,
    names: Vec<String>,
    too_long: CriError,
) -> Result<ListedImages, CriError> {
    let mut listed = ListedImages { too_long: Some(too_long), ..ListedImages::default() };
    let asks: Vec<_> = names.into_iter().map(|name| ask(calls.clone(), name)).collect();
    let mut answers = stream::iter(asks).buffered(AT_ONCE);
    let mut failed = 0;
    while let Some((name, answer)) = answers.next().await {
        if let Err(error) = listed.take(name, answer) {
            failed += 1;
            if error.kind == CriErrorKind::Unavailable || failed > FAILED_MAX {
                return Err(error);
            }
        }
    }
    listed.there.iter().for_each(|id| known.note(id));
    listed.gone.iter().for_each(|id| known.forget(id));
    Ok(listed)
}

async fn ask(calls: Calls, name: String) -> (String, Result<ImageStatusResponse, CriError>) {
    let image = Some(ImageSpec { image: name.clone(), ..ImageSpec::default() });
    let answer = calls.image_status(ImageStatusRequest { image, verbose: false }).await;
    (name, answer)
}

#[cfg(test)]
#[cfg(feature = "fake")]
mod tests {
    use super::*;
    use crate::fake::{FakeRuntime, Fault, RegistryImage};

    /// More than half of the longest answer.
    const LONG: usize = 3000;

    fn fixture() -> (FakeRuntime, Operations) {
        let fake = FakeRuntime::new(1);
        fake.set_message_bytes_max(5000);
        let runtime: Arc<dyn Runtime> = Arc::new(fake.clone());
        (fake, Operations::new(runtime, Io::current(), CriMetrics::new().unwrap()))
    }

    fn with_user(bytes: usize) -> RegistryImage {
        RegistryImage { username: "u".repeat(bytes), ..RegistryImage::default() }
    }

    async fn all(operations: &Operations, more: &[&str]) -> Result<ListedImages, CriError> {
        let more: BTreeSet<String> = more.iter().map(|&name| name.to_owned()).collect();
        operations.list_all_images(std::future::ready(more).boxed()).await
    }

    fn ids(listed: &ListedImages) -> BTreeSet<String> {
        listed.images.iter().map(|image| image.id.clone()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn images_that_no_answer_holds_are_asked_for_one_by_one() {
        let (fake, operations) = fixture();
        let first = fake.add_image("first", with_user(LONG));
        let whole = all(&operations, &["absent"]).await.unwrap();
        assert!(whole.too_long().is_none() && whole.is_gone("absent") && !whole.is_gone(&first));
        let stranger = fake.add_image("stranger", with_user(LONG));
        let listed = all(&operations, &["absent"]).await.unwrap();
        assert!(listed.too_long().is_some_and(CriError::is_too_large));
        assert_eq!(ids(&listed), BTreeSet::from([first.clone()]), "the other one was never seen");
        assert!(listed.is_gone("absent") && !listed.is_gone(&stranger), "nothing is known of that one");
        assert!(listed.images[0].username.is_empty());

        // What is named once is known from then on, as is what was pulled.
        all(&operations, &["stranger"]).await.unwrap();
        fake.publish("pulled", with_user(1));
        let image = Some(ImageSpec { image: "pulled".into(), ..Default::default() });
        let request = PullImageRequest { image, ..Default::default() };
        let pulled = operations.pull_image(request, PullShare::of(["team"])).await.unwrap();
        let listed = all(&operations, &[]).await.unwrap();
        assert_eq!(ids(&listed), BTreeSet::from([first.clone(), stranger, pulled]));

        operations.remove_image(ImageSpec { image: first.clone(), ..Default::default() }).await.unwrap();
        assert!(all(&operations, &[&first]).await.unwrap().too_long().is_none(), "it is short again");
    }

    #[tokio::test(start_paused = true)]
    async fn an_image_that_no_answer_holds_is_known_by_its_id() {
        let (fake, operations) = fixture();
        let long = fake.add_image("long", with_user(2 * LONG));
        let short = fake.add_image("short", with_user(1));
        let listed = all(&operations, &[&long, &short]).await.unwrap();
        assert_eq!(
            (ids(&listed), &listed.unread),
            (BTreeSet::from([short]), &BTreeSet::from([long.clone()]))
        );
        assert!(!listed.is_gone(&long));
        let named: Vec<String> = listed.into_all().into_iter().map(|image| image.id).collect();
        assert!(named.contains(&long));
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_that_does_not_answer_is_asked_for_no_further_image() {
        let (fake, operations) = fixture();
        let ids: Vec<String> =
            (0..50).map(|number| fake.add_image(&format!("i{number}"), with_user(LONG))).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        fake.fault(Rpc::ImageStatus, 1, Fault::Error(CriErrorKind::Unavailable, "gone".to_owned()));
        assert_eq!(all(&operations, &ids).await.unwrap_err().kind, CriErrorKind::Unavailable);
        assert!(fake.counts()[&Rpc::ImageStatus] <= 3);
        assert_eq!(all(&operations, &ids).await.unwrap().images.len(), 50);
    }

    #[tokio::test]
    async fn an_image_that_the_runtime_fails_at_keeps_no_other_back() {
        let (fake, operations) = fixture();
        let ids: Vec<String> =
            (0..20).map(|number| fake.add_image(&format!("i{number}"), with_user(LONG))).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let broken = || Fault::Error(CriErrorKind::Other, "corrupt".to_owned());
        fake.fault(Rpc::ImageStatus, 1, broken());
        let listed = all(&operations, &ids).await.unwrap();
        assert_eq!(listed.images.len(), 19);
        assert!(ids.iter().all(|id| !listed.is_gone(id)), "an error says nothing");
        fake.fault(Rpc::ImageStatus, 20, broken());
        assert_eq!(all(&operations, &ids).await.unwrap_err().kind, CriErrorKind::Other);
        assert!(fake.counts()[&Rpc::ImageStatus] < 20 + 20);
    }

    #[test]
    fn rounds_have_a_bound_and_reach_every_image() {
        let known = KnownImages::default();
        let names: BTreeSet<String> = (0..2 * ASKED_MAX + 1).map(|number| format!("{number:05}")).collect();
        let mut asked = BTreeSet::new();
        for _ in 0..3 {
            let round = known.round(names.clone());
            assert_eq!(round.len(), ASKED_MAX);
            asked.extend(round);
        }
        assert_eq!(asked, names);
        (0..KNOWN_MAX + 5).for_each(|number| known.note(&number.to_string()));
        assert_eq!(known.lock().ids.len(), KNOWN_MAX);
    }
}
