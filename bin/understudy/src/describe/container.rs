//! PURE: what is known of a container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, ContainerState, ContainerStatus, EnvFromSource, EnvVar, EnvVarSource,
    ResourceRequirements, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use crate::view::text::neutralised;

/// A container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Described {
    /// Its name.
    pub name: String,
    /// The runtime's name for it; empty while it has none.
    pub container_id: String,
    /// Its image, as the spec names it.
    pub image: String,
    /// The image that it runs; empty while it has none.
    pub image_id: String,
    /// Its ports, as `80/TCP`.
    pub ports: Vec<String>,
    /// The node's ports that lead to those.
    pub host_ports: Vec<String>,
    /// Its command; empty for that of the image.
    pub command: Vec<String>,
    /// The command's arguments.
    pub args: Vec<String>,
    /// Its state; `None` without a status.
    pub state: Option<State>,
    /// How it was before its last restart.
    pub last_state: Option<State>,
    /// Whether it is ready.
    pub ready: bool,
    /// Its restarts.
    pub restart_count: i32,
    /// What it may use at most, by resource.
    pub limits: BTreeMap<String, String>,
    /// What is kept for it, by resource.
    pub requests: BTreeMap<String, String>,
    /// The objects whose keys are in its environment.
    pub environment_from: Vec<String>,
    /// Its environment.
    pub environment: Vec<Variable>,
    /// Its mounts.
    pub mounts: Vec<Mount>,
}

/// A container's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// `running`, `waiting` or `terminated`.
    pub state: &'static str,
    /// Why, in a word; empty while it runs.
    pub reason: String,
    /// The same at length.
    pub message: String,
    /// How it ended.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// When it began.
    pub started_at: Option<String>,
    /// When it ended.
    pub finished_at: Option<String>,
}

/// A variable of the environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value, or in angle brackets where that comes from.
    pub value: String,
}

/// A mounted volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// Where it is mounted.
    pub path: String,
    /// The volume's name.
    pub volume: String,
    /// Whether the container may not write there.
    pub read_only: bool,
    /// The part of the volume; empty for the whole.
    pub sub_path: String,
}

/// A text that may be absent, harmless.
pub fn text(field: &Option<String>) -> String {
    neutralised(field.as_deref().unwrap_or_default())
}

/// A time, as the API writes it.
pub fn time(field: &Option<Time>) -> Option<String> {
    field.as_ref().map(|Time(at)| at.to_string())
}

/// What is known of a container.
pub fn container(spec: &Container, status: Option<&ContainerStatus>) -> Described {
    // What is in force, while a change of it may be under way.
    let resources = status.and_then(|status| status.resources.as_ref()).or(spec.resources.as_ref());
    let amounts = |of: fn(&ResourceRequirements) -> &Option<BTreeMap<String, Quantity>>| {
        let amounts = resources.into_iter().flat_map(|resources| of(resources).iter().flatten());
        amounts.map(|(name, Quantity(amount))| (neutralised(name), neutralised(amount))).collect()
    };
    let ports = spec.ports.as_deref().unwrap_or_default();
    let words = |words: &Option<Vec<String>>| words.iter().flatten().map(|word| neutralised(word)).collect();
    Described {
        name: neutralised(&spec.name),
        container_id: status.map(|status| text(&status.container_id)).unwrap_or_default(),
        image: text(&spec.image),
        image_id: status.map(|status| neutralised(&status.image_id)).unwrap_or_default(),
        ports: ports.iter().map(|port| numbered(port.container_port, port)).collect(),
        host_ports: ports.iter().map(|port| numbered(port.host_port.unwrap_or(0), port)).collect(),
        command: words(&spec.command),
        args: words(&spec.args),
        state: status.and_then(|status| state(status.state.as_ref()?)),
        last_state: status.and_then(|status| state(status.last_state.as_ref()?)),
        ready: status.is_some_and(|status| status.ready),
        restart_count: status.map_or(0, |status| status.restart_count),
        limits: amounts(|resources| &resources.limits),
        requests: amounts(|resources| &resources.requests),
        environment_from: spec.env_from.iter().flatten().map(from_object).collect(),
        environment: spec.env.iter().flatten().map(variable).collect(),
        mounts: spec.volume_mounts.iter().flatten().map(mount).collect(),
    }
}

fn numbered(number: i32, port: &ContainerPort) -> String {
    let protocol = port.protocol.as_deref().map_or_else(|| "TCP".to_owned(), neutralised);
    format!("{number}/{protocol}")
}

fn state(state: &ContainerState) -> Option<State> {
    let plain = State {
        state: "running",
        reason: String::new(),
        message: String::new(),
        exit_code: None,
        signal: None,
        started_at: None,
        finished_at: None,
    };
    if let Some(running) = &state.running {
        return Some(State { started_at: time(&running.started_at), ..plain });
    }
    if let Some(waiting) = &state.waiting {
        let (reason, message) = (text(&waiting.reason), text(&waiting.message));
        return Some(State { state: "waiting", reason, message, ..plain });
    }
    state.terminated.as_ref().map(|ended| State {
        state: "terminated",
        reason: text(&ended.reason),
        message: text(&ended.message),
        exit_code: Some(ended.exit_code),
        signal: ended.signal.filter(|signal| *signal != 0),
        started_at: time(&ended.started_at),
        finished_at: time(&ended.finished_at),
    })
}

fn from_object(source: &EnvFromSource) -> String {
    let prefix = text(&source.prefix);
    let prefix = if prefix.is_empty() { prefix } else { format!(" with the prefix {prefix:?}") };
    let named = match (&source.config_map_ref, &source.secret_ref) {
        (Some(map), _) => format!("ConfigMap {}", map.name),
        (None, Some(secret)) => format!("Secret {}", secret.name),
        (None, None) => String::new(),
    };
    neutralised(&named) + &prefix
}

fn variable(variable: &EnvVar) -> Variable {
    let value = match &variable.value_from {
        Some(source) => format!("<{}>", came_from(source)),
        None => variable.value.clone().unwrap_or_default(),
    };
    Variable { name: neutralised(&variable.name), value: neutralised(&value) }
}

fn came_from(source: &EnvVarSource) -> String {
    if let Some(map) = &source.config_map_key_ref {
        format!("key {} of ConfigMap {}", map.key, map.name)
    } else if let Some(secret) = &source.secret_key_ref {
        format!("key {} of Secret {}", secret.key, secret.name)
    } else if let Some(field) = &source.field_ref {
        format!("field {}", field.field_path)
    } else if let Some(resource) = &source.resource_field_ref {
        format!("resource {}", resource.resource)
    } else if let Some(file) = &source.file_key_ref {
        format!("key {} of the file {} in volume {}", file.key, file.path, file.volume_name)
    } else {
        "nowhere".to_owned()
    }
}

fn mount(mount: &VolumeMount) -> Mount {
    let part = mount.sub_path.as_ref().or(mount.sub_path_expr.as_ref());
    Mount {
        path: neutralised(&mount.mount_path),
        volume: neutralised(&mount.name),
        read_only: mount.read_only == Some(true),
        sub_path: part.map(|part| neutralised(part)).unwrap_or_default(),
    }
}
