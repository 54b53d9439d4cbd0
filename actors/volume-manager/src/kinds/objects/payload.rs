//! PURE: the files of volumes of secrets, config maps, tokens and the pod's own fields (rows 10.6 to 10.8).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bridge_node::host::SecretContent;
use bridge_node::mounts::ProjectedFile;
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapProjection, Container, DownwardAPIProjection, DownwardAPIVolumeFile, KeyToPath, Pod,
    PodSpec, Secret, SecretProjection, Volume, VolumeMount, VolumeProjection,
};
use messages::object_cache::{ObjectError, Token};
use pod_rules::errors::aggregate;
use pod_rules::volume_plugins;
use pod_spec::downward::{Defaults, metadata_text, named_resource_text};
use pod_spec::quantity::Quantity;

use crate::fs_group;

/// The permission bits of files for which the pod sets none.
const MODE: i32 = 0o644;
/// The permission bits of a token that belongs to a user or group: only the owner may read it.
const OWN_MODE: u32 = 0o600;
/// The most bytes of all such files of one pod: an object has at most a megabyte, but many files and many volumes may repeat its
/// content. Most are in memory, and not in the pod's.
pub const POD_BYTES_MAX: usize = 64 * 1024 * 1024;
/// What each file on the disk counts beside its content: many sources may repeat an object with thousands of empty files.
const FILE_BYTES: usize = 256;
/// What a file in memory counts: its content in whole pages, and what the kernel keeps of it and of each directory on the way
/// to it.
const PAGE_BYTES: usize = 4096;
const NAME_BYTES: usize = 2048;
/// The most errors of a volume that are told.
const ERRORS_MAX: usize = 100;

/// A volume whose files come from objects: each of the four kinds, in the form of a projected volume.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectVolume {
    /// The sources of its files, in order: of two files with one path the later counts.
    pub sources: Vec<VolumeProjection>,
    /// The permission bits of files that have none of their own.
    pub default_mode: i32,
    /// The volume's plugin.
    pub plugin: &'static str,
    /// Whether its files are kept in memory.
    pub in_memory: bool,
}

/// The volume in the form of a projected one; `None` if it is no volume of objects.
pub fn of(volume: &Volume) -> Option<ObjectVolume> {
    let one = |source, default_mode: Option<i32>, plugin, in_memory| {
        let default_mode = default_mode.unwrap_or(MODE);
        Some(ObjectVolume { sources: vec![source], default_mode, plugin, in_memory })
    };
    if let Some(source) = &volume.secret {
        let (items, optional) = (source.items.clone(), source.optional);
        let secret =
            SecretProjection { items, name: source.secret_name.clone().unwrap_or_default(), optional };
        let projection = VolumeProjection { secret: Some(secret), ..VolumeProjection::default() };
        one(projection, source.default_mode, volume_plugins::SECRET, true)
    } else if let Some(source) = &volume.config_map {
        let (items, optional) = (source.items.clone(), source.optional);
        let config_map = ConfigMapProjection { items, name: source.name.clone(), optional };
        let projection = VolumeProjection { config_map: Some(config_map), ..VolumeProjection::default() };
        one(projection, source.default_mode, volume_plugins::CONFIG_MAP, false)
    } else if let Some(source) = &volume.downward_api {
        let downward_api = DownwardAPIProjection { items: source.items.clone() };
        let projection = VolumeProjection { downward_api: Some(downward_api), ..VolumeProjection::default() };
        one(projection, source.default_mode, volume_plugins::DOWNWARD_API, true)
    } else {
        let source = volume.projected.as_ref()?;
        Some(ObjectVolume {
            sources: source.sources.clone().unwrap_or_default(),
            default_mode: source.default_mode.unwrap_or(MODE),
            plugin: volume_plugins::PROJECTED,
            in_memory: true,
        })
    }
}

impl ObjectVolume {
    /// Whether all its files are about the pod itself, so that it needs no other object.
    pub fn is_of_pod_alone(&self) -> bool {
        self.sources.iter().all(|source| source.downward_api.is_some())
    }
}

/// The object that was fetched for a source of a volume.
#[derive(Clone, Debug)]
pub enum Fetched {
    /// The source needs no object.
    Nothing,
    /// A secret.
    Secret(Result<Arc<Secret>, ObjectError>),
    /// A config map.
    ConfigMap(Result<Arc<ConfigMap>, ObjectError>),
    /// A token.
    Token(Result<Token, ObjectError>),
}

type Files = BTreeMap<String, ProjectedFile>;

/// How many more bytes the volumes of a pod may hold.
struct SizeBudget {
    left: usize,
    /// Whether the files of this volume lie in memory.
    in_memory: bool,
}

impl SizeBudget {
    /// Makes the content of the file at this path of the volume.
    fn take(&mut self, path: &str, bytes: Vec<u8>) -> Result<SecretContent, String> {
        let too_much =
            || format!("the files of the pod's volumes would have more than {POD_BYTES_MAX} bytes");
        let names = path.split('/').filter(|part| !part.is_empty()).count();
        let taken = match self.in_memory {
            true => bytes.len().next_multiple_of(PAGE_BYTES).saturating_add(names.saturating_mul(NAME_BYTES)),
            false => bytes.len().saturating_add(names.saturating_mul(FILE_BYTES)),
        };
        self.left = self.left.checked_sub(taken).ok_or_else(too_much)?;
        Ok(SecretContent::new(bytes))
    }
}

/// The files of a volume, from the objects that were fetched for each of its sources; and how many of the bytes that the pod's
/// volumes may hold are left of `room` then.
///
/// # Errors
/// All errors, in upstream's text.
pub fn files(
    volume: &ObjectVolume,
    fetched: &[Fetched],
    pod: &Pod,
    allocatable: &BTreeMap<String, Quantity>,
    room: usize,
) -> Result<(Files, usize), String> {
    let mut files = Files::new();
    let mut errors = Vec::new();
    let mut room = SizeBudget { left: room, in_memory: volume.in_memory };
    for (source, fetched) in volume.sources.iter().zip(fetched) {
        match of_source(source, fetched, volume.default_mode, pod, allocatable, &mut room) {
            Ok(more) => files.extend(more),
            Err(error) => errors.push(error),
        }
        if errors.len() == ERRORS_MAX {
            break;
        }
    }
    if errors.is_empty() { Ok((files, room.left)) } else { Err(aggregate(errors)) }
}

fn of_source(
    source: &VolumeProjection,
    fetched: &Fetched,
    default_mode: i32,
    pod: &Pod,
    allocatable: &BTreeMap<String, Quantity>,
    room: &mut SizeBudget,
) -> Result<Files, String> {
    match (source, fetched) {
        (VolumeProjection { secret: Some(wanted), .. }, Fetched::Secret(secret)) => {
            let optional = wanted.optional == Some(true);
            let Some(secret) = there(secret, optional)? else { return Ok(Files::new()) };
            let bytes = |key: &str| Some(secret.data.as_ref()?.get(key)?.0.clone());
            let keys = secret.data.iter().flatten().map(|(key, _)| key);
            let missing = |key: &str| format!("references non-existent secret key: {key}");
            keyed(wanted.items.as_deref(), keys, bytes, default_mode, (!optional).then_some(&missing), room)
        }
        (VolumeProjection { config_map: Some(wanted), .. }, Fetched::ConfigMap(config_map)) => {
            let optional = wanted.optional == Some(true);
            let Some(config_map) = there(config_map, optional)? else { return Ok(Files::new()) };
            let text = |key: &str| Some(config_map.data.as_ref()?.get(key)?.clone().into_bytes());
            let bytes =
                |key: &str| text(key).or_else(|| Some(config_map.binary_data.as_ref()?.get(key)?.0.clone()));
            let texts = config_map.data.iter().flatten().map(|(key, _)| key);
            let keys = texts.chain(config_map.binary_data.iter().flatten().map(|(key, _)| key));
            let missing = |key: &str| format!("configmap references non-existent config key: {key}");
            keyed(wanted.items.as_deref(), keys, bytes, default_mode, (!optional).then_some(&missing), room)
        }
        (VolumeProjection { downward_api: Some(wanted), .. }, _) => {
            downward(wanted.items.as_deref().unwrap_or_default(), default_mode, pod, allocatable, room)
        }
        (VolumeProjection { service_account_token: Some(wanted), .. }, Fetched::Token(token)) => {
            let token = token.as_ref().map_err(|error| error.message.clone())?;
            let owner = fs_user(pod);
            let own = owner.is_some() || fs_group::of_pod(pod).is_some();
            let mode = if own { OWN_MODE } else { bits(default_mode) };
            let content = room.take(&wanted.path, token.text.as_bytes().to_vec())?;
            Ok(Files::from([(wanted.path.clone(), ProjectedFile { content, mode, owner })]))
        }
        (VolumeProjection { cluster_trust_bundle: Some(_), .. }, _) => Err(unsupported("clusterTrustBundle")),
        (VolumeProjection { pod_certificate: Some(_), .. }, _) => Err(unsupported("podCertificate")),
        _ => Ok(Files::new()),
    }
}

fn unsupported(source: &str) -> String {
    format!("projected volume source {source} is not supported by this kubelet yet")
}

/// The object; none if it does not exist and is optional.
fn there<K>(found: &Result<Arc<K>, ObjectError>, optional: bool) -> Result<Option<&Arc<K>>, String> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if optional && error.not_found => Ok(None),
        Err(error) => Err(error.message.clone()),
    }
}

/// The files of the wanted keys, each at its path; if no keys are chosen, those of all keys, each under the
/// key's name. A missing key is an error if `missing` gives a text for it.
fn keyed<'a>(
    items: Option<&[KeyToPath]>,
    all: impl Iterator<Item = &'a String>,
    bytes: impl Fn(&str) -> Option<Vec<u8>>,
    default_mode: i32,
    missing: Option<&dyn Fn(&str) -> String>,
    room: &mut SizeBudget,
) -> Result<Files, String> {
    let mut file = |path: &str, bytes: Vec<u8>, mode: i32| {
        let content = room.take(path, bytes)?;
        Ok::<_, String>((path.to_owned(), ProjectedFile { content, mode: bits(mode), owner: None }))
    };
    match items {
        None | Some([]) => {
            let shown = all.filter_map(|key| Some((key, bytes(key)?)));
            shown.map(|(key, bytes)| file(key, bytes, default_mode)).collect()
        }
        Some(items) => {
            let mut files = Files::new();
            for item in items {
                match (bytes(&item.key), missing) {
                    (Some(bytes), _) => {
                        files.extend([file(&item.path, bytes, item.mode.unwrap_or(default_mode))?]);
                    }
                    (None, None) => {}
                    (None, Some(missing)) => return Err(missing(&item.key)),
                }
            }
            Ok(files)
        }
    }
}

fn downward(
    items: &[DownwardAPIVolumeFile],
    default_mode: i32,
    pod: &Pod,
    allocatable: &BTreeMap<String, Quantity>,
    room: &mut SizeBudget,
) -> Result<Files, String> {
    let mut files = Files::new();
    let mut errors = Vec::new();
    for item in items {
        let text = if let Some(field) = &item.field_ref {
            metadata_text(pod, &field.field_path)
        } else if let Some(resource) = &item.resource_field_ref {
            named_resource_text(resource, pod, allocatable, Defaults::All)
        } else {
            Ok(String::new())
        };
        match text {
            Ok(text) => {
                let content = room.take(&item.path, text.into_bytes())?;
                let mode = bits(item.mode.unwrap_or(default_mode));
                files.insert(item.path.clone(), ProjectedFile { content, mode, owner: None });
            }
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(files) } else { Err(aggregate(errors)) }
}

fn bits(mode: i32) -> u32 {
    u32::try_from(mode).unwrap_or(0) & 0o7777
}

/// The user that all containers run as; `None` unless the pod sets the same user for all of them.
fn fs_user(pod: &Pod) -> Option<u32> {
    let spec = pod.spec.as_ref()?;
    let of_pod = spec.security_context.as_ref().and_then(|context| context.run_as_user);
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let own = containers.map(|Container { security_context, .. }| security_context.as_ref());
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let mut users = own
        .chain(ephemeral.map(|container| container.security_context.as_ref()))
        .map(|context| context.and_then(|context| context.run_as_user).or(of_pod));
    let first = users.next()??;
    if users.all(|user| user == Some(first)) { u32::try_from(first).ok() } else { None }
}

/// The paths within a volume at which other volumes are mounted. They are made with the volume, since a
/// volume of objects is read-only to the container.
pub fn nested_mount_points(volume: &str, spec: &PodSpec) -> Vec<PathBuf> {
    let clean = |mount: &VolumeMount| -> PathBuf {
        let parts = mount.mount_path.split('/').filter(|part| !part.is_empty() && *part != ".");
        parts.collect()
    };
    let mut nested = BTreeSet::new();
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
        let mounts = container.volume_mounts.as_deref().unwrap_or_default();
        let all: BTreeSet<PathBuf> = mounts.iter().map(clean).collect();
        let own: BTreeSet<PathBuf> = mounts.iter().filter(|mount| mount.name == volume).map(clean).collect();
        for own in &own {
            // Paths are ordered by their components: what is below a path comes right behind it, and no name is as great as this.
            let beyond = |path: &Path| path.join(OsStr::from_bytes(&[0xff]));
            let mut behind = own.clone();
            while let Some(path) = all.range((Bound::Excluded(behind), Bound::Unbounded)).next()
                && let Ok(below) = path.strip_prefix(own)
            {
                let up = below.iter().position(|part| part == "..");
                // A mount point below another volume's mount point is made in that other volume: it is not looked at.
                behind = match up {
                    None => {
                        nested.insert(below.to_path_buf());
                        beyond(path)
                    }
                    Some(up) => beyond(&own.join(below.iter().take(up + 1).collect::<PathBuf>())),
                };
            }
        }
    }
    nested.into_iter().collect()
}

#[cfg(test)]
mod tests;
