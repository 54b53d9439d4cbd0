//! The secrets that pods name for their pulls: read and parsed once for all containers of a pod that ask meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use bridge_text::image;
use messages::PodUid;
use supervision::Ctx;

use super::{ImageAsker, ImageManager};
use crate::execute::secrets::{self, Fitting, SecretsRead};
use crate::policy;

/// A pod, and the names of its secrets.
type Key = (PodUid, Arc<[Arc<str>]>);

/// The asks, with the full names of their images, that wait for secrets to be read.
#[derive(Default)]
pub(super) struct Reading(BTreeMap<Key, Vec<(ImageAsker, String)>>);

impl ImageManager {
    /// Reads the asker's secrets, or has it wait for the read that is under way.
    pub(super) fn read_secrets(&mut self, asker: ImageAsker, image: String, ctx: &mut Ctx<Self>) {
        let (pod, names) = (asker.ask.pod.clone(), asker.ask.pull_secrets.clone());
        let key = (pod.uid.clone(), names.clone());
        let askers = self.reading.0.entry(key.clone()).or_default();
        askers.push((asker, image));
        if askers.len() > 1 {
            return;
        }
        let read = secrets::read(self.deps.secrets.clone(), pod, names);
        ctx.effect("read secrets", Some(key.0.clone()), read, move |actor, read, ctx| {
            actor.secrets_read(&key, read, ctx);
        });
    }

    /// The secrets have been read: records an event for those that are missing, then looks for what fits the images.
    fn secrets_read(&mut self, key: &Key, read: SecretsRead, ctx: &mut Ctx<Self>) {
        let askers = self.reading.0.remove(key).unwrap_or_default();
        let Some((first, _)) = askers.first() else { return };
        let pod = first.ask.pod.clone();
        if !read.missing.is_empty() {
            self.record_about_pod(&first.ask, policy::secrets_missing(&read.missing));
        }
        let found = match read.found {
            Ok(found) => found,
            Err(error) => return self.look_with(askers, Err(error), ctx),
        };
        let repositories = askers.iter().map(|(_, image)| repository(image)).collect();
        let compute = self.deps.compute.for_namespace(&pod.namespace);
        let fitting = secrets::fitting(compute, pod, found, repositories);
        ctx.effect("parse secrets", Some(key.0.clone()), fitting, move |actor, fitting, ctx| {
            actor.look_with(askers, fitting, ctx);
        });
    }

    fn look_with(&mut self, askers: Vec<(ImageAsker, String)>, fitting: Fitting, ctx: &mut Ctx<Self>) {
        for (mut asker, image) in askers {
            asker.credentials = match &fitting {
                Ok(fitting) => Ok(fitting.get(&repository(&image)).cloned().unwrap_or_default()),
                Err(error) => Err(error.clone()),
            };
            self.look(asker, image, ctx);
        }
    }
}

/// The repository of an image; empty if it has none.
pub(super) fn repository(image: &str) -> String {
    image::parse(image).map(|name| name.repository).unwrap_or_default()
}
