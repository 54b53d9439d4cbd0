//! The HTTPS server's settings from the configuration: certificates, authentication and authorisation, and handlers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use bridge_io::Io;
use bridge_io::clock::Clock;
use bridge_node::cgroups::CgroupDriver;
use bridge_reviews::ReviewTtls;
use bridge_tls::certificates::{CertificateStore, CurrentPair, DirCertificates, Purpose};
use bridge_tls::serving::{CertificateSource, ServingSettings, ServingTls, protocol};
use node_api::{AccessConfig, HttpsOffers, LogLevel, ZPages};

use crate::KUBERNETES_VERSION;
use crate::config::KubeletConfiguration;
use crate::config::gates::FeatureGates;
use crate::config::understudy::UnderstudyConfiguration;
use crate::load::Loaded;
use crate::telemetry::Verbosity;
use crate::wait::wait;
use crate::wiring::ServerSettings;

/// The directory of the machine's logs.
const SYSTEM_LOGS: &str = "/var/log";
/// The program that tells the machine's journal.
const JOURNALCTL: &str = "journalctl";

/// The HTTPS server's authentication, authorisation and handlers.
pub fn server(
    config: &KubeletConfiguration,
    understudy: &UnderstudyConfiguration,
    gates: &FeatureGates,
    node: &str,
) -> ServerSettings {
    let server = &config.server;
    let (authentication, authorization) = (&server.authentication, &server.authorization);
    ServerSettings {
        access: AccessConfig {
            node: node.to_owned(),
            anonymous: authentication.anonymous.enabled,
            tokens: authentication.webhook.enabled,
            always_allow: authorization.mode == "AlwaysAllow",
            exec_by_method: understudy.server.exec_by_method,
        },
        ttls: ReviewTtls {
            token: authentication.webhook.cache_ttl.as_std(),
            allowed: authorization.webhook.cache_authorized_ttl.as_std(),
            refused: authorization.webhook.cache_unauthorized_ttl.as_std(),
        },
        offers: HttpsOffers {
            debugging: server.enable_debugging_handlers,
            system_logs: server.enable_system_log_handler.then(|| PathBuf::from(SYSTEM_LOGS)),
            journal: (server.enable_system_log_query == Some(true)).then(|| PathBuf::from(JOURNALCTL)),
            checkpoints: None,
            zpages: ZPages {
                statusz: gates
                    .enabled("ComponentStatusz")
                    .then(|| KUBERNETES_VERSION.trim_start_matches('v')),
                ..ZPages::default()
            },
        },
        split_streams: gates.enabled("PodLogsQuerySplitStreams"),
        websockets: gates.enabled("ExtendWebSocketsToKubelet"),
    }
}

/// What the HTTPS server tells of the process: the flags, and the verbosity, which it also changes.
pub fn tell_of_process(offers: &mut HttpsOffers, loaded: &Loaded, verbosity: Option<&Verbosity>) {
    let checkpoints = Path::new(&loaded.flags.root_dir).join("checkpoints");
    offers.checkpoints = loaded.gates.enabled("ContainerCheckpoint").then_some(checkpoints);
    offers.zpages.flagz = loaded.gates.enabled("ComponentFlagz").then(|| Arc::new(loaded.given.clone()));
    let verbosity = verbosity.filter(|_| loaded.config.server.enable_debug_flags_handler);
    offers.zpages.debug_flags = verbosity.map(|verbosity| LogLevel::new(verbosity.shared()));
    offers.zpages.pprof = loaded.config.server.enable_profiling_handler.then(|| {
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        Arc::from(words.collect::<Vec<_>>().join("\0"))
    });
}

/// The configuration as `/configz` shows it, with the cgroup driver in use, which the runtime may have stated.
pub fn configz(config: &KubeletConfiguration, driver: CgroupDriver) -> Arc<serde_json::Value> {
    let mut shown = config.clone();
    driver.as_str().clone_into(&mut shown.cgroups.cgroup_driver);
    Arc::new(shown.to_json())
}

/// Whether an HTTPS server is configured.
fn is_there(loaded: &Loaded) -> bool {
    loaded.config.server.enable_server && loaded.config.server.port != 0
}

fn path(text: &str) -> Option<PathBuf> {
    Some(text).filter(|text| !text.is_empty()).map(PathBuf::from)
}

/// `tlsCertFile` and `tlsPrivateKeyFile`.
fn files(loaded: &Loaded) -> Option<(PathBuf, PathBuf)> {
    let server = &loaded.config.server;
    path(&server.tls_cert_file).zip(path(&server.tls_private_key_file))
}

/// With `serverTLSBootstrap`, the serving certificate that the cluster signs; empty while there is none yet.
///
/// # Errors
/// The I/O runtime has ended.
pub fn issued(
    loaded: &Loaded,
    io: &Io,
    clock: &dyn Clock,
) -> anyhow::Result<Option<(Arc<dyn CertificateStore>, CurrentPair)>> {
    if !loaded.config.server.server_tls_bootstrap || !is_there(loaded) {
        return Ok(None);
    }
    let directory = Path::new(&loaded.flags.cert_dir);
    let store = DirCertificates::new(io.clone(), directory, Purpose::Serving.prefix(), files(loaded));
    let current = CurrentPair::default();
    let now = clock.now();
    match wait(io, store.load(now))? {
        Ok(Some(pair)) if !pair.is_expired(now) => current.show(Some(pair), false),
        Ok(Some(_)) => tracing::warn!("The serving certificate has expired; another one is asked for"),
        Ok(None) => {}
        Err(error) => {
            tracing::error!(%error, "The serving certificate cannot be used; another one is asked for")
        }
    }
    Ok(Some((Arc::new(store), current)))
}

/// The server's TLS; `None` without a server. Blocks.
///
/// # Errors
/// Certificates cannot be read or made, or no configured TLS version or suite is supported.
pub fn tls(
    loaded: &Loaded,
    node: &str,
    io: &Io,
    clock: Arc<dyn Clock>,
    issued: Option<CurrentPair>,
) -> anyhow::Result<Option<ServingTls>> {
    let server = &loaded.config.server;
    if !is_there(loaded) {
        return Ok(None);
    }
    let protocol =
        protocol(&server.tls_min_version, &server.tls_cipher_suites, &server.tls_curve_preferences)?;
    for warning in &protocol.warnings {
        tracing::warn!("{warning}");
    }
    let certificate = match (issued, files(loaded)) {
        (Some(pair), _) => CertificateSource::Issued(pair),
        (None, Some((certificate, key))) => CertificateSource::Files { certificate, key },
        (None, None) => CertificateSource::SelfSigned {
            directory: PathBuf::from(&loaded.flags.cert_dir),
            host: node.to_owned(),
        },
    };
    let client_ca = path(&server.authentication.x509.client_ca_file);
    let settings = ServingSettings { protocol, certificate, client_ca };
    ServingTls::start(settings, io, clock).map(Some).context("serve over TLS")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_of_logs_are_answered_where_that_is_switched_on() {
        let mut config = KubeletConfiguration::default();
        let mut journal = |query| {
            config.server.enable_system_log_query = query;
            let gates = FeatureGates::default();
            server(&config, &UnderstudyConfiguration::default(), &gates, "n1").offers.journal
        };
        assert_eq!(journal(None), None);
        assert_eq!(journal(Some(false)), None);
        assert_eq!(journal(Some(true)), Some(PathBuf::from("journalctl")));
    }

    #[test]
    fn configz_shows_the_driver_in_use() {
        let config = KubeletConfiguration::default();
        assert_eq!(config.to_json()["cgroupDriver"], "cgroupfs");
        assert_eq!(configz(&config, CgroupDriver::Systemd)["cgroupDriver"], "systemd");
        assert_eq!(configz(&config, CgroupDriver::Cgroupfs)["cgroupDriver"], "cgroupfs");
    }
}
