//! All commands over HTTPS: credentials, certificates, and what is said when they do not do.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};

use super::kubelet::{Answer, Kubelet, TOKEN, answers, said, write};

fn told(target: &str) -> Answer {
    match target {
        "/timeline?pod=u-1" => {
            Answer::whole("200 OK", json!({ "uid": "u-1", "uptimeMs": 1, "steps": [] }).to_string())
        }
        _ => Answer::whole("404 Not Found", "404 page not found"),
    }
}

fn kubelet(name: &str) -> Kubelet {
    Kubelet::start(name, answers(told))
}

#[test]
fn every_command_asks_the_authenticated_port_too() {
    let node = kubelet("127.0.0.1");
    let (code, out, err) = node.said(&["pods"]);
    assert!(code == 0 && out.contains("web"), "{out}{err}");
    let (code, out, err) = node.said(&["why", "web"]);
    assert_eq!((code, out.lines().next()), (0, Some("default/web runs and is Ready")), "{err}");
    let (code, out, err) = node.said(&["timeline", "web"]);
    assert!(code == 0 && out.starts_with("default/web: 0 steps"), "{out}{err}");
    let (code, out, err) = node.said(&["top", "--once"]);
    assert!(code == 0 && out.contains("default/web"), "{out}{err}");
    let (code, out, err) = node.said(&["top", "--once", "--output", "json"]);
    let document: Value = serde_json::from_str(&out).expect(&err);
    assert_eq!((code, &document["pods"][0]["name"]), (0, &json!("one")));
    assert!(node.asked().contains(&"/supervision".to_owned()), "{:?}", node.asked());
}

#[test]
fn each_kind_of_credentials_is_shown_to_the_kubelet() {
    let node = kubelet("127.0.0.1");
    let ca = node.file("ca.crt");
    let asked = |flags: &[&str]| {
        let server = ["pods", "--server", &node.url, "--certificate-authority", &ca];
        said(&[&server[..], flags].concat())
    };
    let (code, _, err) = asked(&[]);
    assert!(code == 1 && err.contains("401 Unauthorized") && err.contains("pass --token-file"), "{err}");
    let pair = ["--client-certificate", &node.file("client.crt"), "--client-key", &node.file("client.key")];
    assert_eq!(asked(&pair).0, 0, "{}", asked(&pair).2);
    assert_eq!(asked(&["--token", TOKEN]).0, 0);
    assert_eq!(asked(&["--token-file", &node.file("token")]).0, 0);
    let (code, _, err) = asked(&["--token-file", &node.file("powerless")]);
    assert!(code == 1 && err.contains("subresource(s)=[pods proxy]") && err.contains("rights"), "{err}");
    let (code, _, err) = asked(&["--client-certificate", &ca, "--client-key", &node.file("client.key")]);
    assert!(code == 1 && err.contains("--client-certificate ") && err.contains("--client-key "), "{err}");
    assert!(!err.contains("PRIVATE"), "{err}");
}

#[test]
fn a_kubeconfig_has_authorities_and_credentials() {
    let node = kubelet("127.0.0.1");
    let kubeconfig = |user: &str| {
        let text = format!(
            "current-context: none\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:1', certificate-authority: ca.crt}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n"
        );
        write(node.directory.path(), "kubeconfig", &text)
    };
    let asked = |user: &str, flags: &[&str]| {
        let path = kubeconfig(user);
        let words = ["pods", "--server", &node.url, "--kubeconfig", &path];
        said(&[&words[..], flags].concat())
    };
    let context = ["--context", "c"];
    for user in
        ["client-certificate: client.crt, client-key: client.key", "tokenFile: token", "token: secret-token"]
    {
        let (code, out, err) = asked(user, &context);
        assert!(code == 0 && out.contains("web"), "{user}: {err}");
    }
    let (code, _, err) = asked("tokenFile: token", &[]);
    assert!(code == 1 && err.contains("current-context") && err.contains("\"none\""), "{err}");
    // What the command line names goes first.
    let own = ["--context", "c", "--token-file", &node.file("powerless")];
    assert!(asked("tokenFile: token", &own).2.contains("403 Forbidden"));
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}";
    let (code, _, err) = asked(exec, &context);
    assert!(code == 1 && err.contains("credential plugins are not supported"), "{err}");
}

#[test]
fn a_certificate_that_does_not_do_is_told_with_what_helps() {
    let node = kubelet("node-1");
    let (token, ca) = (node.file("token"), node.file("ca.crt"));
    let asked = |flags: &[&str]| {
        let words = ["pods", "--server", &node.url, "--token-file", &token];
        said(&[&words[..], flags].concat())
    };
    let (code, _, err) = asked(&["--certificate-authority", &node.file("other-ca.crt")]);
    assert!(code == 1 && err.contains("an authority that is not trusted"), "{err}");
    assert!(err.contains("--certificate-authority FILE"), "{err}");
    let (code, _, err) = asked(&["--certificate-authority", &ca]);
    assert!(code == 1 && err.contains("not valid for name") && err.contains("--tls-server-name"), "{err}");
    assert!(node.asked().is_empty(), "the token was shown to a server that is not trusted");
    let (code, _, err) = asked(&["--certificate-authority", &ca, "--tls-server-name", "node-1"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(asked(&["--insecure-skip-tls-verify"]).0, 0);
}

#[test]
fn the_certificate_that_a_kubelet_has_signed_itself_is_its_authority() {
    let node = Kubelet::self_signed("node-1", answers(told));
    let (own, token) = (node.file("own.crt"), node.file("token"));
    let words = ["pods", "--server", &node.url, "--token-file", &token, "--certificate-authority"];
    let named = ["--tls-server-name", "node-1"];
    let (code, _, err) = said(&[&words[..], &[own.as_str()], &named].concat());
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = said(&[&words[..], &[node.file("other-ca.crt").as_str()], &named].concat());
    assert!(code == 1 && err.contains("that certificate"), "{err}");
}

#[test]
fn a_port_without_tls_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
        // The caller closes first, so that it has read the answer.
        while stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {}
    });
    let (code, _, err) = said(&["pods", "--server", &url, "--insecure-skip-tls-verify"]);
    assert!(code == 1 && err.contains("speaks no TLS there"), "{err}");
}

#[test]
fn credentials_over_plain_http_are_wrong_use() {
    let (code, _, err) = said(&["pods", "--server", "http://127.0.0.1:1", "--token", TOKEN]);
    assert!(code == 2 && err.contains("https:// alone"), "{err}");
    assert!(!err.contains(TOKEN), "{err}");
}
