//! PURE: the labels of a request. Each has few values, whatever callers ask for.

/// First parts of paths that are told apart.
const PATHS: [&str; 25] = [
    "attach",
    "checkpoint",
    "configz",
    "containerLogs",
    "debug",
    "exec",
    "flagz",
    "healthz",
    "logs",
    "metrics",
    "metrics/cadvisor",
    "metrics/probes",
    "metrics/resource",
    "page",
    "portForward",
    "pods",
    "pprof",
    "run",
    "runningpods",
    "stats",
    "statusz",
    "supervision",
    "events",
    "timeline",
    "why",
];
const METHODS: [&str; 8] = ["OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT"];
/// Paths whose requests may last; upstream does not count port-forwards among them.
const LONG_RUNNING: [&str; 3] = ["exec", "attach", "debug"];
const OTHER: &str = "other";

/// The label `path`.
pub(super) fn path(path: &str) -> &'static str {
    let path = path.strip_prefix('/').unwrap_or(path);
    let mut parts = path.split('/');
    let first = parts.next().unwrap_or_default();
    let root = match (first, parts.next()) {
        ("metrics", Some(second)) => &path[..first.len() + 1 + second.len()],
        _ => first,
    };
    PATHS.into_iter().find(|known| *known == root).unwrap_or(OTHER)
}

/// The label `method`.
pub(super) fn method(method: &str) -> &'static str {
    METHODS.into_iter().find(|known| *known == method).unwrap_or(OTHER)
}

/// The label `long_running`.
pub(super) fn long_running(path: &str) -> &'static str {
    if LONG_RUNNING.contains(&path) { "true" } else { "false" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_cannot_make_labels() {
        for (asked, label, long) in [
            ("/metrics", "metrics", "false"),
            ("/metrics/cadvisor", "metrics/cadvisor", "false"),
            ("/metrics/slis", "other", "false"),
            ("/metrics/cadvisor/x", "metrics/cadvisor", "false"),
            ("/healthz/syncloop", "healthz", "false"),
            ("/exec/ns/pod/container", "exec", "true"),
            ("/portForward/ns/pod", "portForward", "false"),
            ("/debug/pprof/", "debug", "true"),
            ("/stats/summary", "stats", "false"),
            ("/why", "why", "false"),
            ("/timeline", "timeline", "false"),
            ("/page", "page", "false"),
            ("/a/b", "other", "false"),
            ("/", "other", "false"),
            ("", "other", "false"),
        ] {
            assert_eq!((path(asked), long_running(path(asked))), (label, long), "{asked}");
        }
        assert_eq!(["GET", "get", "BREW"].map(method), ["GET", "other", "other"]);
    }
}
