//! The targets, in the order of their names.

mod configuration;
mod images;
mod node;
mod pods;
mod records;
mod server;
mod streams;
mod text;
mod wire;

/// A decoder, with what holds of it for any bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is that of its directory of seeds, too.
    pub name: &'static str,
    /// Gives it an input; it panics if something is wrong.
    pub run: fn(&[u8]),
}

/// The targets of these modules, each by the name of its function.
macro_rules! targets {
    ($($module:ident::$name:ident),* $(,)?) => {
        &[$(Target { name: stringify!($name), run: $module::$name }),*]
    };
}

/// All targets.
pub const TARGETS: &[Target] = targets![
    server::accept_headers,
    wire::api_objects,
    wire::certificates,
    node::cgroup_files,
    records::checkpoint_file,
    server::container_log,
    configuration::cpu_set,
    images::credential_answer,
    configuration::credential_providers,
    wire::cri_messages,
    wire::csi_answers,
    records::csi_notes,
    images::docker_config,
    text::duration,
    pods::env_file,
    text::expansion,
    configuration::flags,
    node::flex_answer,
    server::http_range,
    images::image_name,
    configuration::kubeconfig,
    configuration::kubelet_configuration,
    server::log_query,
    configuration::manifest_address,
    pods::manifest_file,
    pods::manifest_url,
    node::mount_table,
    wire::plugin_registration,
    pods::pod_security,
    records::pod_status,
    records::probe_results,
    node::proc_files,
    images::pull_records,
    text::quantity,
    server::request_headers,
    pods::resolv_conf,
    node::selinux_contexts,
    server::server_paths,
    streams::spdy_frames,
    server::streaming_query,
    pods::submitted_pod,
    text::texts,
    configuration::thresholds,
    configuration::understudy_configuration,
    streams::websocket_frames,
    text::yaml,
];

/// The target of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
