//! Flags of the HTTP servers and the sources of pods.

use super::super::FlagRow;
use super::super::kind::{Bool, Duration, Headers, Int32, Ip, Str, Strings};
use super::config_flag;

pub(super) const ROWS: &[FlagRow] = &[
    config_flag!("enable-server", Bool, server.enable_server, "enableServer", "Run the kubelet's server"),
    config_flag!("address", Ip, server.address, "address", "Address of the server; 0.0.0.0 or :: for all"),
    config_flag!("port", Int32, server.port, "port", "Port of the server"),
    config_flag!(
        "read-only-port",
        Int32,
        server.read_only_port,
        "readOnlyPort",
        "Port of the server without authentication; 0 disables it"
    ),
    config_flag!(
        "healthz-port",
        Int32,
        server.healthz_port,
        "healthzPort",
        "Port of the healthz server; 0 disables it"
    ),
    config_flag!(
        "healthz-bind-address",
        Ip,
        server.healthz_bind_address,
        "healthzBindAddress",
        "Address of the healthz server"
    ),
    config_flag!(
        "tls-cert-file",
        Str,
        server.tls_cert_file,
        "tlsCertFile",
        "Serving certificate and its chain, PEM"
    ),
    config_flag!(
        "tls-private-key-file",
        Str,
        server.tls_private_key_file,
        "tlsPrivateKeyFile",
        "Key of the serving certificate, PEM"
    ),
    config_flag!(
        "tls-cipher-suites",
        Strings,
        server.tls_cipher_suites,
        "tlsCipherSuites",
        "Allowed TLS cipher suites"
    ),
    config_flag!(
        "tls-min-version",
        Str,
        server.tls_min_version,
        "tlsMinVersion",
        "Oldest TLS version: VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13"
    ),
    config_flag!(
        "rotate-certificates",
        Bool,
        server.rotate_certificates,
        "rotateCertificates",
        "Renew the client certificate through the API server"
    ),
    config_flag!(
        "rotate-server-certificates",
        Bool,
        server.server_tls_bootstrap,
        "serverTLSBootstrap",
        "Request the serving certificate from the API server"
    ),
    config_flag!(
        "anonymous-auth",
        Bool,
        server.authentication.anonymous.enabled,
        "authentication",
        "Let callers without credentials in as system:anonymous"
    ),
    config_flag!(
        "authentication-token-webhook",
        Bool,
        server.authentication.webhook.enabled,
        "authentication",
        "Check bearer tokens by TokenReview"
    ),
    config_flag!(
        "authentication-token-webhook-cache-ttl",
        Duration,
        server.authentication.webhook.cache_ttl,
        "authentication",
        "How long answers of TokenReview are remembered"
    ),
    config_flag!(
        "client-ca-file",
        Str,
        server.authentication.x509.client_ca_file,
        "authentication",
        "Authorities whose client certificates are believed, PEM"
    ),
    config_flag!(
        "authorization-mode",
        Str,
        server.authorization.mode,
        "authorization",
        "AlwaysAllow or Webhook"
    ),
    config_flag!(
        "authorization-webhook-cache-authorized-ttl",
        Duration,
        server.authorization.webhook.cache_authorized_ttl,
        "authorization",
        "How long a yes of SubjectAccessReview is remembered"
    ),
    config_flag!(
        "authorization-webhook-cache-unauthorized-ttl",
        Duration,
        server.authorization.webhook.cache_unauthorized_ttl,
        "authorization",
        "How long a no of SubjectAccessReview is remembered"
    ),
    config_flag!(
        "enable-debugging-handlers",
        Bool,
        server.enable_debugging_handlers,
        "enableDebuggingHandlers",
        "Offer logs, exec, attach, port-forward and the debugging handlers"
    ),
    config_flag!(
        "contention-profiling",
        Bool,
        server.enable_contention_profiling,
        "enableContentionProfiling",
        "Profile lock contention"
    ),
    config_flag!(
        "streaming-connection-idle-timeout",
        Duration,
        server.streaming_connection_idle_timeout,
        "streamingConnectionIdleTimeout",
        "Without effect"
    ),
    config_flag!(
        "pod-manifest-path",
        Str,
        sources.static_pod_path,
        "staticPodPath",
        "Directory of static pod manifests, or one such file"
    ),
    config_flag!("manifest-url", Str, sources.static_pod_url, "staticPodURL", "URL of further static pods"),
    config_flag!(
        "manifest-url-header",
        Headers,
        sources.static_pod_url_header,
        "staticPodURLHeader",
        "Headers sent to --manifest-url, as name:value, comma-separated or repeated"
    ),
    config_flag!(
        "sync-frequency",
        Duration,
        sources.sync_frequency,
        "syncFrequency",
        "Longest time between two syncs of a pod"
    ),
    config_flag!(
        "file-check-frequency",
        Duration,
        sources.file_check_frequency,
        "fileCheckFrequency",
        "Time between two readings of the static pod path"
    ),
    config_flag!(
        "http-check-frequency",
        Duration,
        sources.http_check_frequency,
        "httpCheckFrequency",
        "Time between two requests to --manifest-url"
    ),
    config_flag!("runonce", Bool, sources.run_once, "runOnce", "Removed; true is refused"),
];
