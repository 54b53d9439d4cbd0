//! Rules on the log, tracing and hidden metrics.

use super::super::logging::OutputRoutingOptions;
use super::super::section::FieldValue;
use super::super::{FeatureGates, KubeletConfiguration};
use super::Problems;
use super::words::quoted;

/// klog keeps V levels in a signed 32-bit number.
const VERBOSITY_MAX: u32 = i32::MAX as u32;
/// The only release with hidden metrics that can still be shown: the one before this release.
const HIDDEN_METRICS_VERSION: &str = "1.35";

pub(super) fn check(config: &KubeletConfiguration, gates: &FeatureGates, problems: &mut Problems) {
    let hidden = config.server.show_hidden_metrics_for_version.as_str();
    if !hidden.is_empty() && hidden != HIDDEN_METRICS_VERSION {
        problems.plain(format!(
            "invalid showHiddenMetricsForVersion: showHiddenMetricsForVersion: Invalid value: {}: must be omitted or \
             have the value '{HIDDEN_METRICS_VERSION}'; only the previous minor version is allowed",
            quoted(hidden)
        ));
    }
    logging(config, gates, problems);
    tracing(config, problems);
}

fn logging(config: &KubeletConfiguration, gates: &FeatureGates, problems: &mut Problems) {
    let log = &config.process.logging;
    if !["text", "json"].contains(&log.format.as_str()) {
        problems
            .plain(format!("logging.format: Invalid value: {}: Unsupported log format", quoted(&log.format)));
    }
    if log.verbosity > VERBOSITY_MAX {
        problems.plain(format!(
            "logging.verbosity: Invalid value: {}: Must be <= {VERBOSITY_MAX}",
            log.verbosity
        ));
    }
    if !log.vmodule.is_empty() && log.format != "text" {
        problems.plain("logging.vmodule: Forbidden: Only supported for text log format".to_owned());
    }
    for (index, item) in log.vmodule.iter().enumerate() {
        let path = format!("logging.vmodule[{index}]");
        if item.file_pattern.is_empty() {
            problems.plain(format!("{path}: Required value: File pattern must not be empty"));
        }
        if item.file_pattern.contains(['=', ',']) {
            problems.plain(format!(
                "{path}: Invalid value: {}: File pattern must not contain equal sign or comma",
                quoted(&item.file_pattern)
            ));
        }
        if item.verbosity > VERBOSITY_MAX {
            problems.plain(format!("{path}: Invalid value: {}: Must be <= {VERBOSITY_MAX}", item.verbosity));
        }
    }
    for (format, options) in [("text", &log.options.text), ("json", &log.options.json)] {
        routing(format, options, gates, problems);
    }
}

fn routing(format: &str, options: &OutputRoutingOptions, gates: &FeatureGates, problems: &mut Problems) {
    const GATE: &str = "LoggingAlphaOptions";
    for (set, name) in
        [(options.split_stream, "splitStream"), (!options.info_buffer_size.is_zero(), "infoBufferSize")]
    {
        if set && !gates.enabled(GATE) {
            problems.plain(format!("logging.options.{format}.{name}: Forbidden: Feature {GATE} is disabled"));
        }
    }
}

fn tracing(config: &KubeletConfiguration, problems: &mut Problems) {
    let Some(tracing) = &config.node.tracing else { return };
    let rate = tracing.sampling_rate_per_million.unwrap_or(0);
    let rate_problem = match rate {
        rate if rate < 0 => Some("sampling rate must be positive"),
        rate if rate > 1_000_000 => {
            Some("sampling rate per million must be less than or equal to one million")
        }
        _ => None,
    };
    if let Some(text) = rate_problem {
        problems.plain(format!("tracing.samplingRatePerMillion: Invalid value: {rate}: {text}"));
    }
    let Some(endpoint) = &tracing.endpoint else { return };
    let url = if endpoint.contains("//") { endpoint.clone() } else { format!("dns://{endpoint}") };
    let problem = match url_problem(&url) {
        Some(why) => format!("parse {}: {why}", quoted(&url)),
        None => {
            let scheme = url.split_once("//").map_or("", |(scheme, _)| scheme.trim_end_matches(':'));
            let scheme = scheme.to_ascii_lowercase();
            if ["dns", "unix", "unix-abstract"].contains(&scheme.as_str()) {
                return;
            }
            format!(
                "unsupported scheme: {scheme}.  Options are none, dns, unix, or unix-abstract.  See \
                 https://github.com/grpc/grpc/blob/master/doc/naming.md"
            )
        }
    };
    problems.plain(format!("tracing.endpoint: Invalid value: {}: {problem}", quoted(&url)));
}

/// Why Go reads no URL from this text: its rules on control characters, and on the host and port behind `//`.
fn url_problem(url: &str) -> Option<String> {
    if url.chars().any(|c| c.is_ascii_control()) {
        return Some("net/url: invalid control character in URL".to_owned());
    }
    let (_, rest) = url.split_once("//")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let (name, port) = match (host.starts_with('['), host.rfind(']'), host.rfind(':')) {
        (true, None, _) => return Some("missing ']' in host".to_owned()),
        (true, Some(end), _) => host.split_at(end + 1),
        (false, _, Some(colon)) => host.split_at(colon),
        (false, _, None) => (host, ""),
    };
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
        return Some(format!("invalid port {} after host", quoted(port)));
    }
    let is_allowed =
        |c: &char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(*c);
    let wrong = name.chars().find(|c| !is_allowed(c))?;
    Some(format!("invalid character {} in host name", quoted(&wrong.to_string())))
}
