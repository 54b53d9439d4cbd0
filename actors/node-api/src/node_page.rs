//! The page that shows the node in a browser (row 30.9): one document without anything from elsewhere, which asks this server
//! for what it shows. What a browser may do with it is said in its Content-Security-Policy: run this script and this style, and
//! ask this server, even if the name of a pod were taken for code.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// The document.
const DOCUMENT: &str = include_str!("node_page.html");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
/// What browsers are told besides the policy.
const TOLD: [(HeaderName, HeaderValue); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    // A browser keeps the page and asks each time whether it is still the same.
    (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
];

/// The page's headers that follow from its text.
#[derive(Debug)]
struct Headers {
    policy: HeaderValue,
    tag: HeaderValue,
}

impl Headers {
    fn of(document: &str) -> Self {
        let value = |text: String| HeaderValue::from_str(&text).expect("it is made of letters and digits");
        Self { policy: value(policy(document)), tag: value(format!("\"{}\"", hash(document))) }
    }
}

/// The route of the page.
pub(crate) fn routes() -> Router {
    Router::new().route("/page", get(page)).with_state(Arc::new(Headers::of(DOCUMENT)))
}

async fn page(State(of): State<Arc<Headers>>, asked: HeaderMap) -> Response {
    let known = asked.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let is_known = known.flat_map(|tags| tags.split(',')).any(|tag| {
        let tag = tag.trim();
        tag.strip_prefix("W/").unwrap_or(tag).as_bytes() == of.tag.as_bytes()
    });
    let mut answer = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, HTML)], DOCUMENT).into_response()
    };
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, of.policy.clone());
    headers.insert(header::ETAG, of.tag.clone());
    headers.extend(TOLD);
    answer
}

/// What stands between the only two marks of this element.
fn element<'a>(document: &'a str, name: &str) -> &'a str {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let after = document.split_once(&open).map(|(_, after)| after);
    after.and_then(|after| after.split_once(&close)).map(|(inside, _)| inside).unwrap_or_default()
}

fn hash(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text.as_bytes()))
}

fn policy(document: &str) -> String {
    let (script, style) = (hash(element(document, "script")), hash(element(document, "style")));
    [
        "default-src 'none'",
        &format!("script-src 'sha256-{script}'"),
        &format!("style-src 'sha256-{style}'"),
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        // No text can become markup, whatever the script does.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    .join("; ")
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;

    /// The most bytes of the page: it comes over slow networks, and uncompressed.
    const BYTES_MAX: usize = 64 << 10;

    async fn get_page(known: Option<&str>) -> Response {
        let mut request = Request::get("/page");
        if let Some(tag) = known {
            request = request.header(header::IF_NONE_MATCH, tag);
        }
        routes().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    fn header_of<'a>(answer: &'a Response, name: &str) -> &'a str {
        answer.headers().get(name).unwrap_or_else(|| panic!("no {name}")).to_str().unwrap()
    }

    #[tokio::test]
    async fn the_page_may_run_only_its_own_script_and_ask_only_its_server() {
        let answer = get_page(None).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(header_of(&answer, "content-type"), "text/html; charset=utf-8");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cache-control", "no-cache"),
        ] {
            assert_eq!(header_of(&answer, name), value);
        }
        let policy = header_of(&answer, "content-security-policy").to_owned();
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        // Taken apart in another way than the server does it.
        let between = |name: &str| {
            let from = body.find(&format!("<{name}>")).unwrap() + name.len() + 2;
            let to = body.rfind(&format!("</{name}>")).unwrap();
            STANDARD.encode(Sha256::digest(&body.as_bytes()[from..to]))
        };
        let directives: Vec<&str> = policy.split("; ").collect();
        for directive in [
            "default-src 'none'",
            &format!("script-src 'sha256-{}'", between("script")),
            &format!("style-src 'sha256-{}'", between("style")),
            "connect-src 'self'",
            "frame-ancestors 'none'",
        ] {
            assert!(directives.contains(&directive), "{directive}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
    }

    #[tokio::test]
    async fn a_page_that_is_known_is_not_sent_again() {
        let tag = header_of(&get_page(None).await, "etag").to_owned();
        for known in [tag.clone(), format!("\"x\", W/{tag}")] {
            let again = get_page(Some(&known)).await;
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{known}");
            assert_eq!(header_of(&again, "etag"), tag);
            assert!(to_bytes(again.into_body(), usize::MAX).await.unwrap().is_empty());
        }
        assert_eq!(get_page(Some("\"x\"")).await.status(), StatusCode::OK);
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere_and_is_small() {
        assert!(DOCUMENT.len() < BYTES_MAX, "{} bytes", DOCUMENT.len());
        for name in ["script", "style"] {
            assert_eq!(DOCUMENT.matches(&format!("<{name}")).count(), 1, "{name}");
            assert_eq!(DOCUMENT.matches(&format!("</{name}>")).count(), 1, "{name}");
            assert!(!element(DOCUMENT, name).is_empty(), "{name}");
        }
        // The name of a vocabulary, which is never requested.
        let text = DOCUMENT.replace("http://www.w3.org/2000/svg", "");
        for elsewhere in ["http:", "https:", "\"//", "'//", "url(", "@import", " src=", "import(", "import "]
        {
            assert!(!text.contains(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn the_page_makes_no_markup_of_texts() {
        let script = element(DOCUMENT, "script");
        for way in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "eval(",
            "Function(",
            "srcdoc",
            "setHTML",
            "createContextualFragment",
            "javascript:",
        ] {
            assert!(!script.contains(way), "{way}");
        }
        assert!(
            !DOCUMENT.contains(" style=\"") && !DOCUMENT.contains(" onclick"),
            "the policy would refuse it"
        );
    }

    #[test]
    fn what_the_page_asks_for_are_paths_of_this_server() {
        let script = element(DOCUMENT, "script");
        for path in ["\"why\"", "\"stats/summary\"", "\"supervision\"", "\"events\""] {
            assert!(script.contains(path), "relative, so that it works behind a proxy, too: {path}");
        }
    }
}
