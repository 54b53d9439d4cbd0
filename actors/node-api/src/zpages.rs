//! `/statusz`, `/flagz` and `/debug/flags/v`: which process this is, with which flags it was started, and how much it logs (rows
//! 21.13, 21.14).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bridge_io::clock::Clock;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::routes::TEXT;

/// The name under which the pages speak of the process.
const COMPONENT: &str = "kubelet";
const GROUP: &str = "config.k8s.io";
/// The versions of the pages as objects, and whether each is deprecated.
const VERSIONS: [(&str, bool); 2] = [("v1beta1", false), ("v1alpha1", true)];
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees \
                       and is for debugging purposes only.";
const NOT_ACCEPTABLE: &str =
    "only the following media types are accepted: application/json, application/yaml, text/plain";
/// The most bytes of a request for another level.
const LEVEL_BYTES_MAX: usize = 1024;
/// What is at the top of this server's paths, but for the pages that can be off.
const PATHS: [&str; 19] = [
    "/attach",
    "/checkpoint",
    "/configz",
    "/containerLogs",
    "/debug",
    "/events",
    "/exec",
    "/healthz",
    "/logs",
    "/metrics",
    "/page",
    "/pods",
    "/portForward",
    "/run",
    "/runningpods",
    "/stats",
    "/supervision",
    "/timeline",
    "/why",
];

/// The V level of the process' log. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct LogLevel(Arc<AtomicU32>);

impl LogLevel {
    /// The level that this number is.
    pub fn new(level: Arc<AtomicU32>) -> Self {
        Self(level)
    }

    /// Sets the level, as it is written in a request's body; returns what is answered.
    ///
    /// # Errors
    /// The text is no level, in Go's words.
    fn set(&self, text: &str) -> Result<String, String> {
        let refused = |why| format!("strconv.ParseUint: parsing {text:?}: {why}");
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(refused("invalid syntax"));
        }
        let level = text.parse::<i32>().map_err(|_| refused("value out of range"))?;
        self.0.store(level.unsigned_abs(), Ordering::Relaxed);
        tracing::info!(level, "The log's verbosity was changed");
        Ok(format!("successfully set klog.logging.verbosity to {level}"))
    }
}

impl PartialEq for LogLevel {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Which of the pages are on, and what they tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ZPages {
    /// The command line's flags with their values, as `/flagz` shows them; `None` where it is off.
    pub flagz: Option<Arc<BTreeMap<String, String>>>,
    /// The release of Kubernetes, as `/statusz` shows it; `None` where it is off.
    pub statusz: Option<&'static str>,
    /// `enableDebugFlagsHandler`: the verbosity, which `/debug/flags/v` changes.
    pub debug_flags: Option<LogLevel>,
    /// `enableProfilingHandler`: the command line's words with a zero between them, which `/debug/pprof/cmdline` shows;
    /// `None` where `/debug/pprof/` is off.
    pub pprof: Option<Arc<str>>,
}

/// The routes of the pages that are on. `began` is when the process began.
pub(crate) fn pages(offers: &ZPages, began: Timestamp, clock: Arc<dyn Clock>) -> Router {
    let limit = DefaultBodyLimit::max(LEVEL_BYTES_MAX);
    let mut routes = Router::new().route("/debug/flags/v", debug_flags(offers)).layer(limit);
    if let Some(flags) = offers.flagz.clone() {
        routes = routes.route(
            "/flagz",
            any(move |headers: HeaderMap| async move {
                answer(&headers, "Flagz", || flagz_text(&flags), || json!({ "flags": *flags }))
            }),
        );
    }
    if let Some(version) = offers.statusz {
        let mut paths = PATHS.to_vec();
        paths.extend(offers.flagz.is_some().then_some("/flagz"));
        paths.sort_unstable();
        let status = Status { version, began, paths };
        routes = routes.route(
            "/statusz",
            any(move |headers: HeaderMap| async move {
                let now = clock.now();
                answer(&headers, "Statusz", || status.text(now), || status.object(now))
            }),
        );
    }
    routes
}

/// PUT changes the level.
fn debug_flags(offers: &ZPages) -> axum::routing::MethodRouter {
    let Some(level) = offers.debug_flags.clone() else {
        return any(|| async { (StatusCode::METHOD_NOT_ALLOWED, "flags endpoint is disabled.\n") });
    };
    any(move |method: Method, body: String| async move {
        const NO_SNIFFING: [(HeaderName, HeaderValue); 1] =
            [(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))];
        let (status, text) = match (method == Method::PUT).then(|| level.set(&body)) {
            Some(Ok(text)) => (StatusCode::OK, text),
            Some(Err(why)) => (StatusCode::BAD_REQUEST, why),
            None => (StatusCode::NOT_ACCEPTABLE, "unsupported http method".to_owned()),
        };
        (status, NO_SNIFFING, text + "\n")
    })
}

/// The page as the caller accepts it: as text, or as an object of this kind.
fn answer(
    headers: &HeaderMap,
    kind: &str,
    text: impl FnOnce() -> String,
    object: impl FnOnce() -> Value,
) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match wanted(accept, kind) {
        Some(Wanted::Text) => ([(header::CONTENT_TYPE, TEXT)], text()).into_response(),
        Some(Wanted::Object { version, is_deprecated, media_type }) => {
            let mut page = json!({
                "kind": kind,
                "apiVersion": format!("{GROUP}/{version}"),
                "metadata": { "name": COMPONENT },
            });
            if let (Value::Object(page), Value::Object(more)) = (&mut page, object()) {
                page.extend(more);
            }
            // JSON is YAML, too.
            let mut answer = ([(header::CONTENT_TYPE, media_type)], format!("{page}\n")).into_response();
            if is_deprecated {
                let text = format!(
                    "299 - \"This version of the {} endpoint is deprecated. Please use a newer version.\"",
                    kind.to_lowercase()
                );
                let value = HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("299"));
                answer.headers_mut().insert(header::WARNING, value);
            }
            answer
        }
        None => {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": NOT_ACCEPTABLE, "reason": "NotAcceptable", "code": 406,
            });
            let json = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
            (StatusCode::NOT_ACCEPTABLE, json, status.to_string()).into_response()
        }
    }
}

#[derive(Debug, PartialEq)]
enum Wanted {
    Text,
    Object { version: &'static str, is_deprecated: bool, media_type: &'static str },
}

/// What the caller accepts most of what there is; text if it does not say.
fn wanted(accept: &str, kind: &str) -> Option<Wanted> {
    if accept.trim().is_empty() {
        return Some(Wanted::Text);
    }
    let mut clauses: Vec<(f32, &str, BTreeMap<&str, &str>)> = accept.split(',').map(clause).collect();
    clauses.sort_by(|one, other| other.0.total_cmp(&one.0));
    clauses.iter().find_map(|(_, media_type, parameters)| {
        let converts = ["as", "g", "v"].iter().any(|key| parameters.contains_key(key));
        let is_it = parameters.get("as") == Some(&kind) && parameters.get("g") == Some(&GROUP);
        let version = VERSIONS.iter().find(|(version, _)| is_it && parameters.get("v") == Some(version));
        let takes = |ours: &str| {
            let family = ours.split_once('/').map(|(family, _)| format!("{family}/*"));
            *media_type == ours || *media_type == "*/*" || family.as_deref() == Some(media_type)
        };
        let structured = ["application/json", "application/yaml"].into_iter().find(|ours| takes(ours));
        match (structured, version) {
            (Some(media_type), Some((version, is_deprecated))) => {
                Some(Wanted::Object { version, is_deprecated: *is_deprecated, media_type })
            }
            _ => (!converts && takes("text/plain")).then_some(Wanted::Text),
        }
    })
}

/// The weight, the media type and the parameters of a clause of an Accept header.
fn clause(text: &str) -> (f32, &str, BTreeMap<&str, &str>) {
    let mut parts = text.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default();
    let mut parameters: BTreeMap<&str, &str> = parts.filter_map(|part| part.split_once('=')).collect();
    let weight = parameters.remove("q").and_then(|weight| weight.parse().ok()).unwrap_or(1.0);
    (weight, media_type, parameters)
}

fn flagz_text(flags: &BTreeMap<String, String>) -> String {
    let lines = flags.iter().map(|(name, value)| format!("{name}={value}\n"));
    format!("\n{COMPONENT} flagz\n{WARNING}\n") + &lines.collect::<String>()
}

/// What `/statusz` tells.
#[derive(Clone)]
struct Status {
    /// The release of Kubernetes, as `1.36.2`.
    version: &'static str,
    began: Timestamp,
    paths: Vec<&'static str>,
}

impl Status {
    fn up_seconds(&self, now: Timestamp) -> i64 {
        now.duration_since(self.began).as_secs().max(0)
    }

    /// The release without its patch.
    fn emulated(&self) -> &'static str {
        self.version.rsplit_once('.').map_or(self.version, |(release, _)| release)
    }

    fn text(&self, now: Timestamp) -> String {
        let up = self.up_seconds(now);
        format!(
            "\n{COMPONENT} statusz\n{WARNING}\n\nStarted: {}\nUp: {} hr {:02} min {:02} sec\nGo version: none\n\
             Binary version: {}\nEmulation version: {}\nPaths: {}\n",
            self.began.strftime("%a %b %e %H:%M:%S UTC %Y"),
            up / 3600,
            up / 60 % 60,
            up % 60,
            self.version,
            self.emulated(),
            self.paths.join(" "),
        )
    }

    fn object(&self, now: Timestamp) -> Value {
        json!({
            "startTime": Timestamp::from_second(self.began.as_second()).unwrap_or(self.began).to_string(),
            "uptimeSeconds": self.up_seconds(now),
            "goVersion": "",
            "binaryVersion": self.version,
            "emulationVersion": self.emulated(),
            "paths": self.paths,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_form_that_the_caller_accepts_most() {
        let object =
            |version, is_deprecated, media_type| Some(Wanted::Object { version, is_deprecated, media_type });
        let beta = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz";
        for (accept, expected) in [
            ("", Some(Wanted::Text)),
            ("*/*", Some(Wanted::Text)),
            ("text/*", Some(Wanted::Text)),
            ("application/json", None),
            ("application/json, text/plain;q=0.5", Some(Wanted::Text)),
            (beta, object("v1beta1", false, "application/json")),
            (&beta.replace("beta", "alpha"), object("v1alpha1", true, "application/json")),
            (&beta.replace("json", "yaml"), object("v1beta1", false, "application/yaml")),
            (&beta.replace("Statusz", "Flagz"), None),
            (&beta.replace("v1beta1", "v1"), None),
            (&beta.replace("application/json", "text/plain"), None),
            (&format!("text/plain;q=0.1, {beta};q=0.9"), object("v1beta1", false, "application/json")),
        ] {
            assert_eq!(wanted(accept, "Statusz"), expected, "{accept}");
        }
    }

    #[test]
    fn the_status_tells_since_when_the_process_runs() {
        let began = Timestamp::UNIX_EPOCH;
        let status = Status { version: "1.36.2", began, paths: vec!["/pods", "/stats"] };
        let text = status.text(Timestamp::from_second(3 * 3600 + 4 * 60 + 5).unwrap());
        for line in [
            "Started: Thu Jan  1 00:00:00 UTC 1970",
            "Up: 3 hr 04 min 05 sec",
            "Binary version: 1.36.2",
            "Emulation version: 1.36",
            "Paths: /pods /stats",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        assert_eq!(status.object(began)["startTime"], "1970-01-01T00:00:00Z");
        assert_eq!(status.object(Timestamp::MIN)["uptimeSeconds"], 0, "the clock was set back");
    }

    #[test]
    fn a_level_is_a_number() {
        let level = LogLevel::default();
        assert_eq!(level.set("7").as_deref(), Ok("successfully set klog.logging.verbosity to 7"));
        for (text, why) in
            [("", "invalid syntax"), ("-1", "invalid syntax"), ("4294967296", "value out of range")]
        {
            assert_eq!(level.set(text), Err(format!("strconv.ParseUint: parsing {text:?}: {why}")));
        }
        assert_eq!(level.0.load(Ordering::Relaxed), 7);
    }
}
