//! How the kubelet presents itself to an API server.

use std::sync::Arc;

use bridge_kube::{ConnectSettings, IdentitySource, Kubeconfig};

use crate::KUBERNETES_VERSION;

/// The settings of a client with this identity for the server of this kubeconfig.
pub(crate) fn connect_settings(identity: Arc<dyn IdentitySource>, kubeconfig: Kubeconfig) -> ConnectSettings {
    ConnectSettings { identity, kubeconfig, user_agent: user_agent(), http1_only: http1_only() }
}

/// Whether to speak HTTP/1.1 only (`DISABLE_HTTP2`); all such connections are closed when heartbeats fail.
fn http1_only() -> bool {
    std::env::var_os("DISABLE_HTTP2").is_some_and(|value| !value.is_empty())
}

fn user_agent() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("kubelet/{KUBERNETES_VERSION} ({}/{architecture})", std::env::consts::OS)
}
