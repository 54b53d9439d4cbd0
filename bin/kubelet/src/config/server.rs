//! The kubelet's HTTP servers: their addresses, certificates, and the authentication and authorisation of callers.

use super::duration::GoDuration;
use super::section::section;

section! {
    /// The HTTPS server, the read-only server and the handlers they offer.
    pub struct ServerConfiguration {
        /// Whether the HTTPS server runs at all.
        "enableServer" enable_server: bool = Pointer(true), Used;
        /// Address of the HTTPS and read-only servers.
        "address" address: String = Value("0.0.0.0".to_owned()), Used;
        /// TCP port of the HTTPS server.
        "port" port: i32 = Value(10250), Used;
        /// TCP port of the read-only server; 0 disables it.
        "readOnlyPort" read_only_port: i32 = Value(0), Used;
        /// PEM file with the serving certificate and its chain.
        "tlsCertFile" tls_cert_file: String = Value(String::new()), Used;
        /// PEM file with the key of `tlsCertFile`.
        "tlsPrivateKeyFile" tls_private_key_file: String = Value(String::new()), Used;
        /// Names of the allowed cipher suites, as Go's crypto/tls spells them.
        "tlsCipherSuites" tls_cipher_suites: Vec<String> = Value(Vec::new()), Used;
        /// Numbers of the key-exchange groups, in order of preference.
        "tlsCurvePreferences" tls_curve_preferences: Vec<i32> = Value(Vec::new()), Used;
        /// Oldest TLS version that is spoken, as `VersionTLS12`.
        "tlsMinVersion" tls_min_version: String = Value(String::new()), Used;
        /// Whether the client certificate is renewed through the API server.
        "rotateCertificates" rotate_certificates: bool = Value(false), Used;
        /// Whether the serving certificate is requested from the API server.
        "serverTLSBootstrap" server_tls_bootstrap: bool = Value(false), Used;
        /// How callers are authenticated.
        "authentication" authentication: Authentication = Value(Authentication::default()), Used;
        /// How callers' requests are authorised.
        "authorization" authorization: Authorization = Value(Authorization::default()), Used;
        /// Whether logs, exec, attach, port-forward and the debugging handlers are offered.
        "enableDebuggingHandlers" enable_debugging_handlers: bool = Pointer(true), Used;
        /// Whether lock contention is profiled.
        "enableContentionProfiling" enable_contention_profiling: bool = Value(false), NotYet;
        /// TCP port of the healthz server; 0 disables it.
        "healthzPort" healthz_port: i32 = Pointer(10248), Used;
        /// Address of the healthz server.
        "healthzBindAddress" healthz_bind_address: String = Value("127.0.0.1".to_owned()), Used;
        /// How long a streaming connection may stay idle.
        "streamingConnectionIdleTimeout" streaming_connection_idle_timeout: GoDuration =
            Value(GoDuration::from_mins(240)), AcceptedNoEffectUpstream;
        /// Whether `/logs/` is offered.
        "enableSystemLogHandler" enable_system_log_handler: bool = Pointer(true), Used;
        /// Whether `/logs/` answers queries for the logs of system services.
        "enableSystemLogQuery" enable_system_log_query: Option<bool> = Value(None), Used;
        /// Whether `/debug/pprof/` is offered, which has no profiles yet.
        "enableProfilingHandler" enable_profiling_handler: bool = Pointer(true), NotYetByDefault;
        /// Whether `/debug/flags/v` is offered.
        "enableDebugFlagsHandler" enable_debug_flags_handler: bool = Pointer(true), Used;
        /// The release whose hidden metrics are shown, as `1.35`; the kubelet has none.
        "showHiddenMetricsForVersion" show_hidden_metrics_for_version: String =
            Value(String::new()), AcceptedNoEffectUpstream;
    }
}

section! {
    /// The ways to authenticate a caller.
    pub struct Authentication {
        /// Client certificates.
        "x509" x509: X509Authentication = Value(X509Authentication::default()), Used;
        /// Bearer tokens, checked by the API server.
        "webhook" webhook: WebhookAuthentication = Value(WebhookAuthentication::default()), Used;
        /// Callers without credentials.
        "anonymous" anonymous: AnonymousAuthentication = Value(AnonymousAuthentication::default()), Used;
    }
}

section! {
    /// Client certificates.
    pub struct X509Authentication {
        /// PEM file with the authorities that client certificates are verified against.
        "clientCAFile" client_ca_file: String = Value(String::new()), Used;
    }
}

section! {
    /// Bearer tokens, checked by TokenReview.
    pub struct WebhookAuthentication {
        /// Whether tokens are accepted.
        "enabled" enabled: bool = Pointer(true), Used;
        /// How long an answer of the API server is remembered.
        "cacheTTL" cache_ttl: GoDuration = Value(GoDuration::from_mins(2)), Used;
    }
}

section! {
    /// Callers without credentials.
    pub struct AnonymousAuthentication {
        /// Whether they are accepted, as `system:anonymous`.
        "enabled" enabled: bool = Pointer(false), Used;
    }
}

section! {
    /// How requests are authorised.
    pub struct Authorization {
        /// `AlwaysAllow` or `Webhook`.
        "mode" mode: String = Value("Webhook".to_owned()), Used;
        /// SubjectAccessReview at the API server.
        "webhook" webhook: WebhookAuthorization = Value(WebhookAuthorization::default()), Used;
    }
}

section! {
    /// How long answers of SubjectAccessReview are remembered.
    pub struct WebhookAuthorization {
        /// How long a permission is remembered.
        "cacheAuthorizedTTL" cache_authorized_ttl: GoDuration = Value(GoDuration::from_mins(5)), Used;
        /// How long a refusal is remembered.
        "cacheUnauthorizedTTL" cache_unauthorized_ttl: GoDuration = Value(GoDuration::from_secs(30)), Used;
    }
}
