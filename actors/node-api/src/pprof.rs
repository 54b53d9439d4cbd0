//! `/debug/pprof/`: the command line of the process. Profiles are those of a Go program, and answered with what is missing
//! (row 21.13).

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};

use crate::routes::TEXT;

/// What a Go program offers besides its command line.
const PROFILES: [&str; 9] =
    ["allocs", "block", "goroutine", "heap", "mutex", "profile", "symbol", "threadcreate", "trace"];
const INDEX: &str = "<!doctype html>\n<title>/debug/pprof/</title>\n<ul>\n<li><a href=\"cmdline\">cmdline</a>: the command line \
                     of this process</li>\n</ul>\n<p>Profiles and traces are not supported.</p>\n";
const NO_SNIFFING: [(HeaderName, HeaderValue); 1] =
    [(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))];

/// The routes; `command_line` has its words with a zero between them, and is `None` where the pages are off.
pub(crate) fn pprof(command_line: Option<Arc<str>>) -> Router {
    const PATHS: [&str; 2] = ["/debug/pprof/", "/debug/pprof/{*name}"];
    let Some(command_line) = command_line else {
        let off = || any(|| async { (StatusCode::METHOD_NOT_ALLOWED, "profiling endpoint is disabled.\n") });
        return PATHS.into_iter().fold(Router::new(), |routes, path| routes.route(path, off()));
    };
    let [index, named] = PATHS;
    let index_page = || async { (NO_SNIFFING, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], INDEX) };
    let page = move |Path(name): Path<String>| async move { page(&name, &command_line) };
    Router::new().route(index, get(index_page)).route(named, get(page))
}

fn page(name: &str, command_line: &str) -> Response {
    if name == "cmdline" {
        let text = command_line.to_owned();
        return (NO_SNIFFING, [(header::CONTENT_TYPE, TEXT)], text).into_response();
    }
    let (status, text) = if PROFILES.contains(&name) {
        (StatusCode::NOT_IMPLEMENTED, format!("not supported: this kubelet gives no {name}\n"))
    } else {
        (StatusCode::NOT_FOUND, "Unknown profile\n".to_owned())
    };
    (status, NO_SNIFFING, text).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn asked(routes: &Router, method: &str, path: &str) -> (u16, String) {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let answer = routes.clone().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn the_command_line_is_shown_and_profiles_are_said_to_be_missing() {
        let routes = pprof(Some("kubelet\0--v=2".into()));
        assert_eq!(asked(&routes, "GET", "/debug/pprof/cmdline").await, (200, "kubelet\0--v=2".to_owned()));
        let (status, index) = asked(&routes, "GET", "/debug/pprof/").await;
        assert!(status == 200 && index.contains("<a href=\"cmdline\">"), "{index}");
        let (status, text) = asked(&routes, "GET", "/debug/pprof/profile?seconds=5").await;
        assert_eq!((status, text.as_str()), (501, "not supported: this kubelet gives no profile\n"));
        let unknown = (404, "Unknown profile\n".to_owned());
        assert_eq!(asked(&routes, "GET", "/debug/pprof/a/b").await, unknown);
        assert_eq!(asked(&routes, "POST", "/debug/pprof/cmdline").await.0, 405);
    }

    #[tokio::test]
    async fn it_can_be_off() {
        let routes = pprof(None);
        for path in ["/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/heap"] {
            let off = (405, "profiling endpoint is disabled.\n".to_owned());
            assert_eq!(asked(&routes, "GET", path).await, off, "{path}");
        }
    }
}
