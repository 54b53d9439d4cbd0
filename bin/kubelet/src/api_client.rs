//! How the kubelet presents itself to an API server, whatever it asks there.

use std::sync::Arc;

use bridge_kube::{ConnectSettings, IdentitySource, Kubeconfig};

use crate::KUBERNETES_VERSION;

/// Settings of a client with this identity, to the server of this kubeconfig.
pub(crate) fn connect_settings(identity: Arc<dyn IdentitySource>, kubeconfig: Kubeconfig) -> ConnectSettings {
    ConnectSettings { identity, kubeconfig, user_agent: user_agent(), http1_only: http1_only() }
}

/// Whether connections are those of HTTP/1.1, all of which are given up when heartbeats fail.
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
