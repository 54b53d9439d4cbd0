//! Checks of the server's authentication, authorisation and certificates.

use bridge_tls::serving::{ServingError, protocol};

use super::{StartupFindings, has_api};
use crate::config::SettingError;
use crate::load::Loaded;

pub(super) fn check(loaded: &Loaded, verdict: &mut StartupFindings) {
    authentication(loaded, verdict);
    authorization(loaded, verdict);
    tls(loaded, verdict);
}

/// Checked even without a server, as upstream.
fn authentication(loaded: &Loaded, verdict: &mut StartupFindings) {
    let authentication = &loaded.config.server.authentication;
    let tokens = authentication.webhook.enabled;
    verdict.refuse(tokens && !has_api(loaded), "authentication.webhook.enabled", tokens, || {
        "no client provided, cannot use webhook authentication (there is no --kubeconfig)".to_owned()
    });
    let certificates = !authentication.x509.client_ca_file.is_empty();
    let any = tokens || certificates || authentication.anonymous.enabled;
    verdict.refuse(!any, "authentication", "", || {
        "no authentication method configured (none of x509.clientCAFile, webhook.enabled, anonymous.enabled)"
            .to_owned()
    });
}

fn authorization(loaded: &Loaded, verdict: &mut StartupFindings) {
    const FIELD: &str = "authorization.mode";
    let mode = loaded.config.server.authorization.mode.as_str();
    match mode {
        "AlwaysAllow" => {}
        "Webhook" => verdict.refuse(!has_api(loaded), FIELD, mode, || {
            "no client provided, cannot use webhook authorization (there is no --kubeconfig)".to_owned()
        }),
        "" => verdict.refuse(true, FIELD, mode, || "no authorization mode specified".to_owned()),
        other => verdict.refuse(true, FIELD, mode, || format!("unknown authorization mode {other}")),
    }
}

fn tls(loaded: &Loaded, verdict: &mut StartupFindings) {
    let server = &loaded.config.server;
    let (certificate, key) = (server.tls_cert_file.as_str(), server.tls_private_key_file.as_str());
    // Callers would not trust a self-signed certificate in place of the configured one.
    let alone = |other| format!("certificate and key must be supplied as a pair: {other} is not set");
    verdict.refuse(!certificate.is_empty() && key.is_empty(), "tlsCertFile", certificate, || {
        alone("tlsPrivateKeyFile")
    });
    verdict
        .refuse(certificate.is_empty() && !key.is_empty(), "tlsPrivateKeyFile", key, || alone("tlsCertFile"));
    let spoken = protocol(&server.tls_min_version, &server.tls_cipher_suites, &server.tls_curve_preferences);
    match spoken {
        Ok(_) => {}
        Err(ServingError::Setting { field, value, reason }) => {
            verdict.refusals.push(SettingError { field, value, reason });
        }
        Err(error) => verdict
            .refuse(true, "tlsMinVersion, tlsCipherSuites, tlsCurvePreferences", "", || error.to_string()),
    }
}
