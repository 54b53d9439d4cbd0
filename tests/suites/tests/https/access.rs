//! Which callers are let in, and which answers they get (rows 21.2, 21.3, 30.6).

use bridge_reviews::FakeReviews;

use crate::client::Authority;
use crate::server::{Options, Server, UID, reviews};

const JANE: &str = "Authorization: Bearer token-jane";

#[tokio::test]
async fn without_credentials_nobody_is_anybody() {
    let server = Server::start(Options::default()).await;
    for path in ["/pods", "/healthz", "/metrics", "/nothing", "/exec/default/web/main"] {
        assert_eq!(server.client(None).get(path).await, (401, "Unauthorized".to_owned()), "{path}");
    }
    let forged = [
        "X-Remote-User: admin",
        "X-Remote-Group: system:masters",
        "Impersonate-User: admin",
        "X-Forwarded-Client-Cert: Subject=\"CN=admin,O=system:masters\"",
        "Authorization: Basic YWRtaW46YWRtaW4=",
    ];
    let (status, _) = server.client(None).ask("GET", "/pods", &forged).await;
    assert_eq!(status, 401, "headers prove nothing");
}

#[tokio::test]
async fn a_certificate_names_its_user() {
    let allowed = reviews(&[("admin", "get", "pods")]);
    let server = Server::start(Options { reviews: Some(allowed), ..Options::default() }).await;
    let (status, body) = server.client(Some(&server.admin)).get("/pods").await;
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("\"web\""), "{body}");
    let stranger = Authority::new().client("admin", "system:masters");
    let (status, body) = server.client(Some(&stranger)).get("/pods").await;
    assert_eq!((status, body.as_str()), (401, "Unauthorized"), "another authority");
    // A server's certificate does not authenticate a client.
    let (status, _) = server.client(Some(&server.authority.server())).get("/pods").await;
    assert_eq!(status, 401);
    // A token may still authenticate the caller.
    let (status, body) = server.client(Some(&stranger)).ask("GET", "/pods", &[JANE]).await;
    assert_eq!(status, 403, "{body}");
    assert!(body.contains("user=jane"), "{body}");
}

#[tokio::test]
async fn a_token_is_asked_for_where_that_is_on() {
    let allowed = || Some(reviews(&[("jane", "get", "proxy"), ("system:anonymous", "get", "proxy")]));
    let server = Server::start(Options { reviews: allowed(), ..Options::default() }).await;
    let client = server.client(None);
    assert_eq!(client.ask("GET", "/healthz", &[JANE]).await.0, 200);
    assert_eq!(client.ask("GET", "/healthz", &["Authorization: Bearer token-joe"]).await.0, 401);

    let both = Options { anonymous: true, reviews: allowed(), ..Options::default() };
    let server = Server::start(both).await;
    let client = server.client(None);
    assert_eq!(client.get("/healthz").await.0, 200, "anonymous");
    assert_eq!(
        client.ask("GET", "/healthz", &["Authorization: Bearer token-joe"]).await.0,
        401,
        "bad credentials are not none"
    );

    let off = Options { anonymous: true, tokens: false, reviews: allowed(), ..Options::default() };
    let server = Server::start(off).await;
    let (status, _) = server.client(None).ask("GET", "/healthz", &["Authorization: Bearer token-joe"]).await;
    assert_eq!(status, 200, "a way that is off is not looked at");
}

#[tokio::test]
async fn a_refusal_has_upstreams_words() {
    let server = Server::start(Options::default()).await;
    let client = server.client(Some(&server.admin));
    let text = "Forbidden (user=admin, verb=get, resource=nodes, subresource(s)=[pods proxy])\n";
    assert_eq!(client.get("/pods").await, (403, text.to_owned()));
    for reviews in [None, Some(FakeReviews { silent: true, ..FakeReviews::default() })] {
        let server = Server::start(Options { reviews, ..Options::default() }).await;
        let client = server.client(Some(&server.admin));
        let text = "Authorization error (user=admin, verb=get, resource=nodes, subresource=pods)";
        assert_eq!(client.get("/pods").await, (500, text.to_owned()));
        assert_eq!(client.ask("GET", "/pods", &[JANE]).await.0, 500);
        assert_eq!(server.client(None).ask("GET", "/pods", &[JANE]).await.0, 401, "nobody knows the token");
    }
}

#[tokio::test]
async fn the_page_and_what_it_asks_for_are_for_those_that_may_see_the_node() {
    let server = Server::start(Options::default()).await;
    for path in ["/page", "/why", "/why?pod=0a1b"] {
        assert_eq!(server.client(None).get(path).await, (401, "Unauthorized".to_owned()), "{path}");
        let (status, body) = server.client(Some(&server.admin)).get(path).await;
        assert_eq!(status, 403, "{path}: {body}");
        assert!(body.contains("subresource(s)=[proxy]") || body.contains("subresource=proxy"), "{body}");
    }
    let allowed = reviews(&[("admin", "get", "proxy")]);
    let server = Server::start(Options { reviews: Some(allowed), ..Options::default() }).await;
    let client = server.client(Some(&server.admin));
    let (status, body) = client.get("/page").await;
    assert_eq!(status, 200);
    assert!(body.contains("<title>Understudy</title>"), "{body}");
    let (status, body) = client.get("/why").await;
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("\"default/web ") && body.contains(UID), "a pod has its sentence: {body}");
    let (status, body) = client.get(&format!("/why?pod={UID}")).await;
    assert_eq!((status, body.contains("\"containers\":[{\"name\":\"main\"")), (200, true), "{body}");
}

#[tokio::test]
async fn running_something_needs_create_unless_that_is_off() {
    let get = || Some(reviews(&[("admin", "get", "proxy")]));
    let paths = [
        "/exec/default/web/main?command=id&output=1".to_owned(),
        format!("/exec/default/web/{UID}/main?command=id&output=1"),
        "/attach/default/web/main?output=1".to_owned(),
        "/portForward/default/web".to_owned(),
    ];
    let server = Server::start(Options { reviews: get(), ..Options::default() }).await;
    let client = server.client(Some(&server.admin));
    for path in &paths {
        let (status, body) = client.get(path).await;
        assert_eq!(status, 403, "{path}: {body}");
        assert!(body.contains("verb=create"), "{body}");
    }
    assert_eq!(client.get("/containerLogs/default/web/main").await.0, 200, "reading a log is no running");
    let server = Server::start(Options { reviews: get(), exec_by_method: true, ..Options::default() }).await;
    let client = server.client(Some(&server.admin));
    for path in &paths {
        assert_eq!(client.get(path).await, (500, "Upgrade request required\n".to_owned()), "{path}");
    }
}

#[tokio::test]
async fn what_is_authorized_is_what_is_answered() {
    let metrics = reviews(&[("admin", "get", "metrics"), ("admin", "create", "metrics")]);
    let server = Server::start(Options { reviews: Some(metrics), ..Options::default() }).await;
    let client = server.client(Some(&server.admin));
    assert_eq!(client.get("/metrics").await.0, 200);
    for path in [
        "/metrics/../run/default/web/main?cmd=whoami",
        "/metrics/%2e%2e/run/default/web/main?cmd=whoami",
        "/metrics%2f..%2frun/default/web/main?cmd=whoami",
        "//run/default/web/main?cmd=whoami",
        "/%72un/default/web/main?cmd=whoami",
        "/metrics;/../run/default/web/main?cmd=whoami",
    ] {
        let (status, body) = client.ask("POST", path, &[]).await;
        assert_eq!(status, 400, "{path}: {body}");
    }
    let (status, _) = client.ask("POST", "/run/default/web/main?cmd=whoami", &[]).await;
    assert_eq!(status, 403);
    let override_header = ["X-HTTP-Method-Override: GET", "X-Original-URL: /metrics"];
    let (status, _) = client.ask("POST", "/run/default/web/main?cmd=whoami", &override_header).await;
    assert_eq!(status, 403);
}

#[tokio::test]
async fn figures_need_the_right_to_figures() {
    let allowed = [("jane", "get", "metrics"), ("jane", "create", "stats"), ("admin", "get", "proxy")];
    let server = Server::start(Options { reviews: Some(reviews(&allowed)), ..Options::default() }).await;
    let (client, admin) = (server.client(None), server.client(Some(&server.admin)));
    for path in ["/metrics/resource", "/metrics/cadvisor"] {
        assert_eq!(client.ask("GET", path, &[JANE]).await.0, 200, "{path}");
        let (status, body) = admin.get(path).await;
        assert!(status == 403 && body.contains("subresource(s)=[metrics]"), "{path}: {status} {body}");
    }
    assert_eq!(client.ask("GET", "/stats/summary", &[JANE]).await.0, 403, "only by POST");
    let (status, body) = client.ask("POST", "/stats/summary", &[JANE]).await;
    assert_eq!((status, body.as_str()), (500, "Internal Error: none"), "let in, to a node without figures");
    assert_eq!(client.ask("PUT", "/stats/summary", &[JANE]).await.0, 403);
    let (status, body) = admin.get("/stats/summary").await;
    assert!(status == 403 && body.contains("subresource(s)=[stats]"), "{status} {body}");
}
