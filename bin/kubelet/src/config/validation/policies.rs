//! Rules on enumerated values, and on settings that exclude or need each other.

use super::super::{FeatureGates, GoDuration, KubeletConfiguration};
use super::words::quoted;
use super::{Problems, labels};

pub(super) fn check(config: &KubeletConfiguration, gates: &FeatureGates, problems: &mut Problems) {
    server(config, gates, problems);
    topology(config, problems);
    shutdown(config, gates, problems);
    memory(config, gates, problems);
    image_credentials(config, gates, problems);
    let hairpin = &config.pods.hairpin_mode;
    problems.config(!["none", "hairpin-veth", "promiscuous-bridge"].contains(&hairpin.as_str()), || {
        format!(
            "option {} specified for hairpinMode (--hairpin-mode). Valid options are \"none\", \"hairpin-veth\" or \
             \"promiscuous-bridge\"",
            quoted(hairpin)
        )
    });
    for taint in &config.node.register_with_taints {
        if !labels::taint_is_valid(taint) {
            // Go prints the struct, in which the time of addition is nil.
            problems
                .plain(format!("invalid taint: {{{} {} {} <nil>}}", taint.key, taint.value, taint.effect));
        }
        problems.config(taint.time_added.is_some(), || "taint.TimeAdded is not nil".to_owned());
    }
}

fn server(config: &KubeletConfiguration, gates: &FeatureGates, problems: &mut Problems) {
    let server = &config.server;
    problems.config(server.server_tls_bootstrap && !gates.enabled("RotateKubeletServerCertificate"), || {
        "serverTLSBootstrap true requires feature gate RotateKubeletServerCertificate".to_owned()
    });
    problems.config(config.sources.run_once, || {
        "runOnce (--runOnce) true, Runonce mode has been deprecated and should not be set".to_owned()
    });
    let query = server.enable_system_log_query == Some(true);
    problems.config(query && !gates.enabled("NodeLogQuery"), || {
        "NodeLogQuery feature gate is required for enableSystemLogQuery".to_owned()
    });
    problems.config(query && !server.enable_system_log_handler, || {
        "enableSystemLogHandler is required for enableSystemLogQuery".to_owned()
    });
    problems.config(config.images.container_runtime_endpoint.is_empty(), || {
        "the containerRuntimeEndpoint was not specified or empty".to_owned()
    });
}

fn topology(config: &KubeletConfiguration, problems: &mut Problems) {
    let policy = &config.resources.topology_manager_policy;
    problems.config(!["none", "best-effort", "restricted", "single-numa-node"].contains(&policy.as_str()), || {
        format!(
            "topologyManagerPolicy (--topology-manager-policy) {} must be one of: [\"none\" \"best-effort\" \
             \"restricted\" \"single-numa-node\"]",
            quoted(policy)
        )
    });
    let scope = &config.resources.topology_manager_scope;
    problems.config(!["container", "pod"].contains(&scope.as_str()), || {
        format!(
            "topologyManagerScope (--topology-manager-scope) {} must be one of: \"container\", or \"pod\"",
            quoted(scope)
        )
    });
}

fn shutdown(config: &KubeletConfiguration, gates: &FeatureGates, problems: &mut Problems) {
    let pods = &config.pods;
    let (total, critical) = (pods.shutdown_grace_period, pods.shutdown_grace_period_critical_pods);
    let some = total > GoDuration::ZERO || critical > GoDuration::ZERO;
    let by_priority = !pods.shutdown_grace_period_by_pod_priority.is_empty();
    if gates.enabled("GracefulNodeShutdown") {
        problems.config(critical > total, || {
            format!(
                "shutdownGracePeriodCriticalPods {{{critical}}} must be <= shutdownGracePeriod {{{total}}}"
            )
        });
        for (name, period) in [("shutdownGracePeriod", total), ("shutdownGracePeriodCriticalPods", critical)]
        {
            problems.config(period != GoDuration::ZERO && period < GoDuration::from_secs(1), || {
                format!("{name} {{{period}}} must be either zero or otherwise >= 1 sec")
            });
        }
    }
    problems.config(some && !gates.enabled("GracefulNodeShutdown"), || {
        "specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires feature gate \
         GracefulNodeShutdown"
            .to_owned()
    });
    if gates.enabled("GracefulNodeShutdownBasedOnPodPriority") {
        problems.config(by_priority && some, || {
            "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time"
                .to_owned()
        });
    } else {
        problems.config(by_priority, || {
            "Specifying shutdownGracePeriodByPodPriority requires feature gate \
             GracefulNodeShutdownBasedOnPodPriority"
                .to_owned()
        });
    }
}

fn memory(config: &KubeletConfiguration, gates: &FeatureGates, problems: &mut Problems) {
    let swap = &config.pods.memory_swap.swap_behavior;
    if gates.enabled("NodeSwap") {
        problems.config(!["", "NoSwap", "LimitedSwap"].contains(&swap.as_str()), || {
            format!(
                "memorySwap.swapBehavior {} must be one of: \"\", \"LimitedSwap\" or \"NoSwap\"",
                quoted(swap)
            )
        });
    } else {
        problems.config(!swap.is_empty(), || {
            "memorySwap.swapBehavior cannot be set when NodeSwap feature flag is disabled".to_owned()
        });
    }
    let policy = &config.cgroups.memory_reservation_policy;
    problems.config(policy == "TieredReservation" && !gates.enabled("MemoryQoS"), || {
        format!("memoryReservationPolicy {} requires MemoryQoS feature gate to be enabled", quoted(policy))
    });
    problems.config(!["None", "TieredReservation"].contains(&policy.as_str()), || {
        format!(
            "option {} specified for memoryReservationPolicy. Valid options are \"None\" or \"TieredReservation\"",
            quoted(policy)
        )
    });
}

fn image_credentials(config: &KubeletConfiguration, gates: &FeatureGates, problems: &mut Problems) {
    const ALLOWLIST: &str = "NeverVerifyAllowlistedImages";
    let policy = config.images.image_pull_credentials_verification_policy.as_str();
    let patterns = &config.images.preloaded_images_verification_allowlist;
    if !gates.enabled("KubeletEnsureSecretPulledImages") {
        for (set, name) in [
            (!policy.is_empty(), "imagePullCredentialsVerificationPolicy"),
            (!patterns.is_empty(), "preloadedImagesVerificationAllowlist"),
        ] {
            problems.config(set, || {
                format!(
                    "`{name}` must not be set if KubeletEnsureSecretPulledImages feature gate is not enabled"
                )
            });
        }
        return;
    }
    let known = ["NeverVerify", "NeverVerifyPreloadedImages", ALLOWLIST, "AlwaysVerify"];
    problems.config(!known.contains(&policy), || {
        format!(
            "option {} specified for imagePullCredentialsVerificationPolicy. Valid options are \"NeverVerify\", \
             \"NeverVerifyPreloadedImages\", \"NeverVerifyAllowlistedImages\" or \"AlwaysVerify\"",
            quoted(policy)
        )
    });
    if !patterns.is_empty() && policy != ALLOWLIST {
        // The misspelt field name is upstream's.
        problems.config(true, || {
            "can't set `preloadedImagesVerificationAllowlist` if `imagePullCredentialsVertificationPolicy` is not \
             \"NeverVerifyAllowlistedImages\""
                .to_owned()
        });
    } else if let Some(error) = patterns.iter().find_map(|pattern| allowlist_error(pattern)) {
        problems.config(true, || {
            format!("invalid image pattern in `preloadedImagesVerificationAllowlist`: {error}")
        });
    }
}

/// The error of an image pattern, which must be a repository, or a prefix of one that ends in `/*`.
fn allowlist_error(pattern: &str) -> Option<String> {
    if pattern != pattern.trim() {
        return Some(format!("leading/trailing spaces are not allowed: {pattern}"));
    }
    let wildcard = pattern.ends_with("/*");
    let trimmed = if wildcard { &pattern[..pattern.len() - 1] } else { pattern };
    if trimmed.is_empty() {
        return Some(format!("the supplied pattern is too short: {pattern}"));
    }
    if trimmed.contains('*') {
        return Some(format!(
            "not a valid wildcard pattern, only patterns ending with '/*' are allowed: {pattern}"
        ));
    }
    if wildcard {
        return (trimmed.len() == 1).then(|| "at least registry hostname is required".to_owned());
    }
    let last = trimmed.rsplit('/').next().unwrap_or(trimmed);
    if trimmed.contains('@') || (last.contains(':') && trimmed.contains('/')) {
        return Some(format!("neither tag nor digest is accepted in an image reference: {pattern}"));
    }
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-/:".contains(c);
    let (host, path) = trimmed.split_once('/').unwrap_or(("", trimmed));
    let host_allowed = |c: char| allowed(c) || c.is_ascii_uppercase() || "[]".contains(c);
    let well_formed = path.chars().all(allowed)
        && host.chars().all(host_allowed)
        && path.split('/').all(|part| !part.is_empty());
    (!well_formed).then(|| "failed to parse as an image name: invalid reference format".to_owned())
}
