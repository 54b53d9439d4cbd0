//! Reading and writing the records of pulls on disk.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::ListedImages;
use bridge_node::host::{PullRecords, PullRecordsError, RecordChange, RecordKind};
use bridge_text::image;
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::metrics::ImageMetrics;
use crate::records::{Intent, PullCredentials, PulledRecord, merged};

/// The longest time in which all records of a kind are read.
const FIND_MAX: Duration = Duration::from_secs(120);
/// The longest name, or reference, of an image in a record; runtimes know none of more than some hundred bytes.
const NAME_BYTES_MAX: usize = 4096;
/// The most problems with records that are told.
const PROBLEMS_MAX: usize = 64;

/// The record of an image, if there is one; or why the file cannot be read.
pub type RecordRead = Result<Option<PulledRecord>, String>;

/// The records that earlier processes have left.
#[derive(Debug, Default)]
pub struct Found {
    /// Images whose pulls had begun, as their containers spell them.
    pub intents: Vec<String>,
    /// The references of the images that are recorded as pulled.
    pub pulled: BTreeSet<String>,
    /// Files that cannot be read, each with the reason.
    pub problems: Vec<String>,
}

impl Found {
    fn problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }
}

/// Reads all records once, one after the other. Records of the older version are rewritten in the newer one; unreadable files are
/// reported and kept. What is not read in time is left out: it is read when a pod asks for its image.
pub async fn find(records: Arc<dyn PullRecords>) -> Found {
    let mut found = Found::default();
    for kind in [RecordKind::Pulling, RecordKind::Pulled] {
        let until = Instant::now() + FIND_MAX;
        let mut files = records.list(kind);
        loop {
            let file = match tokio::time::timeout_at(until, files.next()).await {
                Ok(Some(Ok(file))) => file,
                Ok(Some(Err(error))) => {
                    found.problem(error.to_string());
                    continue;
                }
                Ok(None) => break,
                Err(_late) => {
                    found.problem(format!("the records are not read within {} s", FIND_MAX.as_secs()));
                    break;
                }
            };
            if let Err(reason) = take(&records, kind, file.content, &mut found).await {
                found.problem(format!("{}: {reason}", file.path.display()));
            }
        }
    }
    found
}

/// Takes a record in, if it is one.
async fn take(
    records: &Arc<dyn PullRecords>,
    kind: RecordKind,
    content: Result<Vec<u8>, String>,
    found: &mut Found,
) -> Result<(), String> {
    let content = content?;
    match kind {
        RecordKind::Pulling => found.intents.push(checked(Intent::read(&content)?.image)?),
        RecordKind::Pulled => {
            let record = PulledRecord::read(&content)?;
            let image_ref = checked(record.image_ref.clone())?;
            found.pulled.insert(image_ref.clone());
            if record.is_older() {
                let newer = Box::new(move |_: Option<&[u8]>| RecordChange::Write(record.to_json()));
                let changed = records.change(RecordKind::Pulled, &image_ref, newer).await;
                changed.map_err(|error| error.reason)?;
            }
        }
    }
    Ok(())
}

/// The name of an image, if it has the length of one.
fn checked(name: String) -> Result<String, String> {
    match name.len() <= NAME_BYTES_MAX {
        true => Ok(name),
        false => Err(format!("the name of its image has {} bytes, more than {NAME_BYTES_MAX}", name.len())),
    }
}

/// Reads the record of an image by the runtime's reference.
pub fn read(records: &Arc<dyn PullRecords>, image_ref: &str) -> impl Future<Output = RecordRead> + use<> {
    let (content, wanted) = (records.read(RecordKind::Pulled, image_ref), image_ref.to_owned());
    async move {
        let Some(content) = content.await.map_err(|error| error.to_string())? else { return Ok(None) };
        let record = PulledRecord::read(&content).map_err(|error| format!("of image {wanted}: {error}"))?;
        Ok(Some(record).filter(|record| record.image_ref == wanted))
    }
}

/// Adds the result of a pull, or of a use, to the record of an image. An image that is `preloaded` gets no record if it has
/// none. False if the record could not be written.
pub fn write(
    records: &Arc<dyn PullRecords>,
    image_ref: &str,
    image: &str,
    (new, preloaded): (Option<PullCredentials>, bool),
    now: Timestamp,
    metrics: ImageMetrics,
) -> impl Future<Output = bool> + use<> {
    let (bare, of, shown) = (image::without_tag(image), image_ref.to_owned(), image.to_owned());
    let decide = Box::new(move |before: Option<&[u8]>| {
        if preloaded && before.is_none() {
            return RecordChange::Keep;
        }
        let before = before.and_then(|content| PulledRecord::read(content).ok());
        let before = before.filter(|record| record.image_ref == of);
        match merged(before, &of, &bare, new, now) {
            Some(record) => RecordChange::Write(record.to_json()),
            None => RecordChange::Keep,
        }
    });
    let changed = records.change(RecordKind::Pulled, image_ref, decide);
    async move {
        let changed = changed.await;
        if let Err(error) = &changed {
            tracing::error!(%error, image = shown, "That an image was pulled cannot be recorded");
        }
        counted(&metrics, RecordKind::Pulled, changed).is_ok()
    }
}

/// Records that a pull begins. The write is queued by the call, before the future is polled.
pub fn write_intent(
    records: &Arc<dyn PullRecords>,
    image: &str,
    metrics: ImageMetrics,
) -> impl Future<Output = Result<(), PullRecordsError>> + use<> {
    let content = Intent::new(image).to_json();
    let written = Box::new(move |_: Option<&[u8]>| RecordChange::Write(content));
    let changed = records.change(RecordKind::Pulling, image, written);
    async move { counted(&metrics, RecordKind::Pulling, changed.await) }
}

/// Removes an intent. The removal is queued by the call, before the future is polled.
pub fn remove_intent(
    records: &Arc<dyn PullRecords>,
    image: &str,
    metrics: ImageMetrics,
) -> impl Future<Output = ()> + use<> {
    let changed = records.change(RecordKind::Pulling, image, Box::new(|_| RecordChange::Remove));
    let shown = image.to_owned();
    async move {
        if let Err(error) = counted(&metrics, RecordKind::Pulling, changed.await) {
            tracing::error!(%error, image = shown, "The intent of a pull stays");
        }
    }
}

/// The references of the images that have a record: of those that are read in time.
pub async fn recorded(records: Arc<dyn PullRecords>) -> BTreeSet<String> {
    let until = Instant::now() + FIND_MAX;
    let (mut files, mut found) = (records.list(RecordKind::Pulled), BTreeSet::new());
    while let Ok(Some(file)) = tokio::time::timeout_at(until, files.next()).await {
        let Some(content) = file.ok().and_then(|file| file.content.ok()) else { continue };
        let image_ref = PulledRecord::read(&content).and_then(|record| checked(record.image_ref));
        found.extend(image_ref.ok().filter(|image_ref| !image_ref.is_empty()));
    }
    found
}

/// Removes the records of images that are gone by `listed`, the list of images read at or after `began`. Times
/// in records are cut to whole seconds, so a record may be up to a second newer than it says; such a record
/// is kept.
pub async fn prune(
    records: Arc<dyn PullRecords>,
    listed: Arc<ListedImages>,
    began: Timestamp,
    metrics: ImageMetrics,
) {
    let recorded = recorded(records.clone()).await;
    let gone: Vec<String> = recorded.into_iter().filter(|image| listed.is_gone(image)).collect();
    let newest = began.checked_sub(SignedDuration::from_secs(1)).unwrap_or(began);
    for image in gone {
        // The record is read once more: a pull may have written it meanwhile.
        let decide = Box::new(move |now: Option<&[u8]>| {
            let record = now.and_then(|content| PulledRecord::read(content).ok());
            let is_old = |record: &PulledRecord| record.last_updated_time.is_none_or(|time| time < newest);
            if record.as_ref().is_some_and(is_old) { RecordChange::Remove } else { RecordChange::Keep }
        });
        let changed = records.change(RecordKind::Pulled, &image, decide).await;
        if let Err(error) = counted(&metrics, RecordKind::Pulled, changed) {
            tracing::error!(%error, image, "The record of an image that is gone stays");
        }
    }
}

fn counted(
    metrics: &ImageMetrics,
    kind: RecordKind,
    changed: Result<usize, PullRecordsError>,
) -> Result<(), PullRecordsError> {
    changed.map(|count| metrics.on_disk(kind, count))
}
