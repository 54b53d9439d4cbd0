//! The inputs of a container's configuration from outside of its spec: files of variables, objects, parts of
//! volumes, and the runtime's abilities (rows 11.5, 11.6, 10.20, 10.22).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::wire::StatusRequest;
use bridge_io::compute::computed;
use futures::StreamExt;
use futures::future::join;
use k8s_openapi::api::core::v1::{Container, Service};
use messages::facts::Source;
use messages::object_cache::{GetConfigMap, GetSecret, GetServices, ObjectError};
use messages::volume_manager::PrepareSubpaths;

use super::few_at_once;
use super::sandbox::SandboxContext;
use super::sync::{StartFailure, SyncTask};
use crate::container_config::{SubPaths, sub_paths, wants_recursive_read_only};
use crate::env::file::EnvVariables;
use crate::env::objects::{EnvObjects, needed};
use crate::env::{self, EnvFile, EnvSources, FileText, environment, services};
use crate::pod_images::ImageVolumes;
use crate::retry::AFTER_LOST_ANSWER;
use crate::texts::{self, CREATE_CONTAINER_CONFIG_ERROR};

/// The largest file of variables, in bytes. Containers write it, and the kubelet holds it in memory.
const ENV_FILE_BYTES_MAX: u64 = 1024 * 1024;
/// The most bytes of all files of variables of one container, which are read and parsed each time that it starts.
const ENV_FILES_BYTES_MAX: u64 = 8 * ENV_FILE_BYTES_MAX;
/// Longest wait for parts of volumes; after it the container is tried again.
const SUBPATHS_DEADLINE: Duration = Duration::from_secs(60);

/// Longest wait for an object; ObjectCache answers sooner.
const OBJECT_DEADLINE: Duration = Duration::from_secs(10);

/// The inputs of a container's configuration from outside of its spec.
pub(super) struct Prepared {
    /// The container's final environment.
    pub environment: Vec<(String, String)>,
    /// The paths on the host of the parts of volumes, by the index of their mount.
    pub sub_paths: BTreeMap<usize, String>,
    /// The paths within images of the parts of image volumes, by the index of their mount.
    pub image_sub_paths: BTreeMap<usize, String>,
    /// Whether the runtime can make mounts recursively read-only; false if the container does not want that.
    pub recursive_read_only: bool,
}

/// Reads files of variables and objects, has VolumeManager make parts of volumes ready, and asks the runtime
/// if needed.
///
/// # Errors
/// Why the container cannot be configured, in upstream's text.
pub(super) async fn prepare(
    task: &SyncTask,
    sandbox_context: &SandboxContext,
    container: &Container,
) -> Result<Prepared, StartFailure> {
    let exec = &task.exec;
    let config = &exec.deps.config;
    let files = env_files(task, sandbox_context, container).await;
    let (objects, known) = objects(task, container).await?;
    let made = computed(&exec.deps.compute, exec.uid(), {
        let (desired, config, volumes) =
            (task.desired.clone(), config.clone(), sandbox_context.volumes.clone());
        let (pod_ips, container) = (sandbox_context.pod_ips.clone(), container.clone());
        let namespace = exec.pod.namespace.clone();
        move || {
            let links = desired.pod.spec.as_ref().and_then(|spec| spec.enable_service_links).unwrap_or(true);
            let objects = EnvObjects { services: services::variables(&known, &namespace, links), ..objects };
            let sources = EnvSources {
                pod: &desired.pod,
                pod_ips: &pod_ips,
                host_ips: &config.host_ips,
                allocatable: &config.node.allocatable,
                files: config.env_files.then_some(&files),
                objects: &objects,
            };
            let environment = environment(&container, &sources).map_err(|error| error.to_string())?;
            let subpaths = sub_paths(&container, &environment, &volumes, &ImageVolumes::of(&desired.pod));
            Ok((environment, subpaths.map_err(|error| error.to_string())?))
        }
    });
    let made = made.await.map_err(|error| failure(error.to_string(), Some(AFTER_LOST_ANSWER)))?;
    let (environment, subpaths) = made.map_err(|error: String| failure(error, None))?;
    let SubPaths { of_volumes: subpaths, of_images: image_sub_paths } = subpaths;
    let sub_paths = if subpaths.is_empty() {
        BTreeMap::new()
    } else {
        let _step = exec.step(format!("PrepareSubpaths {}", container.name)).await;
        let ask = PrepareSubpaths { pod: exec.pod.clone(), container: container.name.clone(), subpaths };
        let answer = exec.deps.prepare_subpaths.ask(ask, SUBPATHS_DEADLINE).await;
        // No answer, or one from an incarnation of VolumeManager that does not have the pod's volumes: the
        // pod is not at fault.
        let lost = |error: String| failure(format!("PrepareSubpaths: {error}"), Some(AFTER_LOST_ANSWER));
        answer.map_err(|error| lost(error.to_string()))?.map_err(|error| match error.volume.as_str() {
            "" => lost(error.message),
            _ => failure(error.message, None),
        })?
    };
    let recursive_read_only = wants_recursive_read_only(container)
        && makes_recursive_read_only(task, &sandbox_context.runtime_handler)
            .await
            .map_err(|error| failure(error, Some(AFTER_LOST_ANSWER)))?;
    Ok(Prepared { environment, sub_paths, image_sub_paths, recursive_read_only })
}

fn failure(message: String, retry_after: Option<Duration>) -> StartFailure {
    StartFailure { waiting: texts::waiting(CREATE_CONTAINER_CONFIG_ERROR, message), retry_after }
}

/// The objects of the container's variables, still without the variables of services, and all services. A pod that
/// is not from the API server gets services only if they are known, and does not wait for them.
async fn objects(
    task: &SyncTask,
    container: &Container,
) -> Result<(EnvObjects, Arc<[Arc<Service>]>), StartFailure> {
    let (exec, namespace) = (&task.exec, &task.exec.pod.namespace);
    let of_api = task.desired.source == Source::Api;
    let _step = if of_api { Some(exec.step(format!("GetObjects {}", container.name)).await) } else { None };
    let answer = exec.deps.services.ask(GetServices, OBJECT_DEADLINE).await;
    let known = match answer.map_err(|error| format!("GetServices: {error}")) {
        Ok(Ok(known)) => known,
        Ok(Err(_)) | Err(_) if !of_api => Arc::default(),
        Ok(Err(error)) => return Err(failure(error.message, Some(AFTER_LOST_ANSWER))),
        Err(error) => return Err(failure(error, Some(AFTER_LOST_ANSWER))),
    };
    let lost = |error| ObjectError { not_found: false, message: format!("ObjectCache: {error}") };
    let (secrets, config_maps) = needed(container);
    let secrets = secrets.into_iter().map(async |name| {
        let ask = GetSecret {
            pod: exec.pod.uid.clone(),
            namespace: namespace.clone(),
            name: Arc::from(name.as_str()),
        };
        let answer = exec.deps.secrets.ask(ask, OBJECT_DEADLINE).await;
        (name, answer.unwrap_or_else(|error| Err(lost(error))))
    });
    let config_maps = config_maps.into_iter().map(async |name| {
        let ask = GetConfigMap {
            pod: exec.pod.uid.clone(),
            namespace: namespace.clone(),
            name: Arc::from(name.as_str()),
        };
        let answer = exec.deps.config_maps.ask(ask, OBJECT_DEADLINE).await;
        (name, answer.unwrap_or_else(|error| Err(lost(error))))
    });
    let secrets = few_at_once(secrets.collect()).collect::<BTreeMap<_, _>>();
    let config_maps = few_at_once(config_maps.collect()).collect::<BTreeMap<_, _>>();
    let (secrets, config_maps) = join(secrets, config_maps).await;
    Ok((EnvObjects { secrets, config_maps, services: BTreeMap::new() }, known))
}

/// The files of the container's variables, each read and parsed once.
async fn env_files(
    task: &SyncTask,
    sandbox_context: &SandboxContext,
    container: &Container,
) -> BTreeMap<EnvFile, FileText> {
    let mut known = BTreeMap::new();
    if !task.exec.deps.config.env_files {
        return known;
    }
    let mut left = ENV_FILES_BYTES_MAX;
    for (file, wanted) in env::files(container) {
        let text = env_file(task, sandbox_context, &file, wanted, &mut left).await;
        known.insert(file, text);
    }
    known
}

/// `left` is how many bytes of such files may still be read.
async fn env_file(
    task: &SyncTask,
    sandbox_context: &SandboxContext,
    (volume, path): &EnvFile,
    wanted: BTreeSet<String>,
    left: &mut u64,
) -> FileText {
    let exec = &task.exec;
    // An image volume has no path.
    let root = sandbox_context.volumes.host_paths.get(volume).filter(|path| !path.is_empty());
    let Some(root) = root else { return FileText::NoVolume };
    let _step = exec.step(format!("ReadEnvFile {volume}")).await;
    let within = Path::new(path.trim_start_matches('/'));
    let most = ENV_FILE_BYTES_MAX.min(*left);
    let read = exec.deps.dirs.read_volume_file(Path::new(root), within, most).await;
    if let Ok(Some(content)) = &read {
        *left = left.saturating_sub(content.len() as u64);
    }
    let parsed = match read {
        Ok(Some(content)) => {
            let parsed = computed(&exec.deps.compute, exec.uid(), move || {
                let text = String::from_utf8(content).map_err(|error| error.to_string())?;
                Ok::<_, String>(EnvVariables::parse(&text, &wanted))
            });
            parsed.await.unwrap_or_else(|error| Err(error.to_string()))
        }
        Ok(None) => Err("there is no such file".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    let problem = match parsed {
        Ok(parsed) => {
            let shown = Path::new(root).join(within).to_string_lossy().into_owned();
            return FileText::Content(parsed, shown);
        }
        Err(problem) => problem,
    };
    tracing::warn!(problem, pod = %exec.pod, volume, path, "Variables cannot be read from a file");
    FileText::Unreadable
}

/// Whether the runtime's handler of the pod can make mounts recursively read-only.
async fn makes_recursive_read_only(task: &SyncTask, handler: &str) -> Result<bool, String> {
    let exec = &task.exec;
    let _step = exec.step("RuntimeStatus".to_owned()).await;
    let status = exec.deps.runtime.status(StatusRequest { verbose: false }).await;
    let status = status.map_err(|error| error.message)?;
    let own = status.runtime_handlers.iter().find(|known| known.name == handler);
    Ok(own.and_then(|handler| handler.features).is_some_and(|features| features.recursive_read_only_mounts))
}
