//! PURE: what a request means to the authoriser (rows 21.3 and 30.6).

use axum::http::Method;

/// Paths that run a command in a container, or open a connection into one.
const INTO_CONTAINERS: [&str; 4] = ["/exec", "/attach", "/run", "/portForward"];

/// The namespace of the pod that a path reaches into or whose logs it names.
pub fn namespace(path: &str) -> Option<&str> {
    let mut parts = path.split('/').skip(1);
    let first = parts.next()?;
    let of_pods = INTO_CONTAINERS.iter().filter_map(|one| one.strip_prefix('/')).chain(["containerLogs"]);
    parts.next().filter(|_| of_pods.into_iter().any(|one| one == first))
}

/// A verb, and the subresources of the Node of which the caller must be allowed at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// `get`, `create`, …; empty for a method without a verb.
    pub verb: &'static str,
    /// In the order in which the authoriser is asked for them.
    pub subresources: Vec<&'static str>,
}

/// The path is `under` or below it.
fn is_under(path: &str, under: &str) -> bool {
    path.strip_prefix(under).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::GET => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

/// The verb and subresources that this request needs. With `by_method`, exec and its like need the verb of their HTTP
/// method; otherwise they need `create`.
pub fn attributes(method: &Method, path: &str, by_method: bool) -> Attributes {
    let under = |one: &str| is_under(path, one);
    let runs = INTO_CONTAINERS.into_iter().any(under);
    let verb = if runs && !by_method { "create" } else { verb(method) };
    let subresources = if under("/pods") || under("/runningpods") {
        vec!["pods", "proxy"]
    } else if under("/healthz") {
        vec!["healthz", "proxy"]
    } else if under("/configz") {
        vec!["configz", "proxy"]
    } else if under("/stats") {
        vec!["stats"]
    } else if under("/metrics") {
        vec!["metrics"]
    } else if under("/logs") {
        vec!["log"]
    } else if under("/checkpoint") {
        vec!["checkpoint"]
    } else if under("/statusz") {
        vec!["statusz"]
    } else if under("/flagz") {
        vec!["configz"]
    } else {
        vec!["proxy"]
    };
    Attributes { verb, subresources }
}

/// Whether the path has plain segments only, so that the path that is authorised is also the one that is answered. No
/// path of the kubelet needs an escape, and names of objects cannot have any.
pub fn is_plain(path: &str) -> bool {
    let mut segments = path.strip_suffix('/').unwrap_or(path).split('/').skip(1);
    path == "/"
        || (path.starts_with('/')
            && !path.contains(['%', '\\', ';'])
            && segments.all(|one| !matches!(one, "" | "." | "..")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &str, path: &str) -> (&'static str, String) {
        let asked = attributes(&method.parse().unwrap(), path, false);
        (asked.verb, asked.subresources.join(" "))
    }

    #[test]
    fn what_reaches_into_a_pod_is_for_its_namespace() {
        for path in [
            "/exec/a/pod/c",
            "/attach/a/pod/c",
            "/run/a/pod/uid/c",
            "/portForward/a/pod",
            "/containerLogs/a/pod/c",
        ] {
            assert_eq!(namespace(path), Some("a"), "{path}");
        }
        for path in ["/", "/pods", "/exec", "/logs/a/pod", "/metrics/cadvisor"] {
            assert_eq!(namespace(path), None, "{path}");
        }
    }

    #[test]
    fn paths_have_their_subresources() {
        let table = [
            ("/pods", "pods proxy"),
            ("/pods/", "pods proxy"),
            ("/pods/default/web", "pods proxy"),
            ("/podsx", "proxy"),
            ("/runningpods/", "pods proxy"),
            ("/healthz", "healthz proxy"),
            ("/healthz/syncloop", "healthz proxy"),
            ("/configz", "configz proxy"),
            ("/stats/summary", "stats"),
            ("/metrics", "metrics"),
            ("/metrics/cadvisor", "metrics"),
            ("/metricsx", "proxy"),
            ("/logs/", "log"),
            ("/logs/syslog", "log"),
            ("/checkpoint/n/p/c", "checkpoint"),
            ("/statusz", "statusz"),
            ("/flagz", "configz"),
            ("/containerLogs/n/p/c", "proxy"),
            ("/execute", "proxy"),
            ("/supervision", "proxy"),
            ("/events", "proxy"),
            ("/page", "proxy"),
            ("/timeline", "proxy"),
            ("/why", "proxy"),
            ("/Pods", "proxy"),
            ("/", "proxy"),
            ("", "proxy"),
        ];
        for (path, subresources) in table {
            assert_eq!(of("GET", path), ("get", subresources.to_owned()), "{path}");
        }
    }

    #[test]
    fn methods_have_their_verbs() {
        let table = [
            ("GET", "get"),
            ("POST", "create"),
            ("PUT", "update"),
            ("PATCH", "patch"),
            ("DELETE", "delete"),
            ("HEAD", ""),
            ("OPTIONS", ""),
        ];
        for (method, verb) in table {
            assert_eq!(of(method, "/pods").0, verb, "{method}");
            assert_eq!(of(method, "/pods/default/web").0, verb, "{method}");
        }
    }

    #[test]
    fn running_something_needs_create_whatever_the_method() {
        for path in ["/exec/n/p/c", "/attach/n/p/c", "/run/n/p/c", "/portForward/n/p", "/exec"] {
            for method in ["GET", "POST", "PUT", "HEAD"] {
                assert_eq!(of(method, path).0, "create", "{method} {path}");
            }
            assert_eq!(attributes(&Method::GET, path, true).verb, "get", "as upstream, when that is wanted");
        }
        assert_eq!(of("GET", "/execute").0, "get");
    }

    #[test]
    fn only_plain_paths_are_plain() {
        for path in ["/", "/pods", "/runningpods/", "/exec/n/p/c", "/run/n/web-0/0a1b/c"] {
            assert!(is_plain(path), "{path}");
        }
        for path in [
            "",
            "pods",
            "*",
            "//pods",
            "/metrics/../exec/n/p/c",
            "/metrics/./x",
            "/metrics/%2e%2e/exec",
            "/%65xec/n/p/c",
            "/exec//p/c",
            "/pods//",
            "/metrics\\..\\exec",
            "/metrics;/x",
        ] {
            assert!(!is_plain(path), "{path}");
        }
    }
}
