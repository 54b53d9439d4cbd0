//! Fetches the objects whose contents volumes show as files.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bridge_io::SharedPlace;
use bridge_io::compute::computed;
use bridge_node::mounts::Projection;
use futures::FutureExt;
use k8s_openapi::api::core::v1::{Pod, ServiceAccountTokenProjection, VolumeProjection};
use messages::PodRef;
use messages::object_cache::{GetConfigMap, GetSecret, GetToken, ObjectError};
use supervision::AskError;

use super::payload::{self, Fetched, ObjectVolume};
use crate::backends::Backends;
use crate::fs_group;
use crate::kinds::{Wanted, few_at_once};
use crate::objects::Objects;

/// Longest wait for ObjectCache: it answers for an object within a second, but a token takes a call to the
/// API server.
const DEADLINE: Duration = Duration::from_secs(60);

fn unanswered(error: &AskError) -> ObjectError {
    ObjectError { not_found: false, message: format!("ObjectCache: {error}") }
}

/// The files of a volume, with the group that they belong to and the mount points within the volume, and the place that they have in
/// memory, which is given back when they have been written.
///
/// # Errors
/// The errors in upstream's text, for people.
pub(super) async fn projection(
    backends: &Backends,
    volume: ObjectVolume,
    &Wanted { name, pod, room_for_files, .. }: &Wanted<'_>,
) -> Result<(Projection, Option<SharedPlace>), String> {
    let objects = &backends.objects;
    let fetched = few_at_once(volume.sources.iter().map(|source| fetch(objects, source, pod).boxed())).await;
    // What was fetched belongs to ObjectCache: it is copied from here on.
    let place = objects.showing.0.place(pod.metadata.namespace.as_deref().unwrap_or_default()).await;
    let (name, of_pod, node) = (name.to_owned(), pod.clone(), objects.node.clone());
    // The volumes of objects of a pod are made ready one after another.
    let room = room_for_files.load(Ordering::Relaxed);
    let made = computed(&backends.compute, pod.metadata.uid.as_deref().unwrap_or_default(), move || {
        let (files, left) = payload::files(&volume, &fetched, &of_pod, &node.allocatable, room)?;
        let nested = of_pod.spec.as_ref().map(|spec| payload::nested_mount_points(&name, spec));
        let nested = nested.unwrap_or_default();
        Ok((Projection { files, group: fs_group::of_pod(&of_pod), nested }, left))
    });
    let (projection, left) = made.await.map_err(|error| error.to_string()).flatten()?;
    room_for_files.store(left, Ordering::Relaxed);
    Ok((projection, place))
}

/// What a source needs.
async fn fetch(objects: &Objects, source: &VolumeProjection, pod: &Pod) -> Fetched {
    let namespace: Arc<str> = Arc::from(pod.metadata.namespace.as_deref().unwrap_or_default());
    let uid = PodRef::of(pod).uid;
    if let Some(secret) = &source.secret {
        let ask = GetSecret { pod: uid, namespace, name: Arc::from(secret.name.as_str()) };
        let answer = objects.secrets.ask(ask, DEADLINE).await;
        Fetched::Secret(answer.unwrap_or_else(|error| Err(unanswered(&error))))
    } else if let Some(config_map) = &source.config_map {
        let ask = GetConfigMap { pod: uid, namespace, name: Arc::from(config_map.name.as_str()) };
        let answer = objects.config_maps.ask(ask, DEADLINE).await;
        Fetched::ConfigMap(answer.unwrap_or_else(|error| Err(unanswered(&error))))
    } else if let Some(token) = &source.service_account_token {
        let answer = objects.tokens.ask(token_ask(token, pod), DEADLINE).await;
        Fetched::Token(answer.unwrap_or_else(|error| Err(unanswered(&error))))
    } else {
        Fetched::Nothing
    }
}

fn token_ask(token: &ServiceAccountTokenProjection, pod: &Pod) -> GetToken {
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
    GetToken {
        pod: PodRef::of(pod),
        service_account: Arc::from(account.unwrap_or_default()),
        account_uid: Arc::default(),
        audience: Arc::from(token.audience.as_deref().unwrap_or_default()),
        expiration_seconds: token.expiration_seconds,
    }
}
