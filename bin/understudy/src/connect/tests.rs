use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    connect: ConnectArgs,
}

fn args(words: &[&str]) -> Option<ConnectArgs> {
    Line::try_parse_from([&["x"][..], words].concat()).ok().map(|line| line.connect)
}

fn server(words: &[&str]) -> Result<String, ConnectError> {
    args(words).expect("the words fit together").server().map(|server| server.to_string())
}

#[test]
fn the_port_follows_from_the_flags() {
    assert_eq!(server(&[]), Ok("http://127.0.0.1:10255".to_owned()));
    assert_eq!(server(&["--insecure-skip-tls-verify"]), Ok("https://127.0.0.1:10250".to_owned()));
    let https = ["--server", "https://node:10250", "--insecure-skip-tls-verify", "--token", "t"];
    assert_eq!(server(&https), Ok("https://node:10250".to_owned()));
    let secured = args(&["--server", "http://node:10255"]).unwrap().secured();
    assert!(secured.is_err_and(|error| error.is_wrong_use()));
}

#[test]
fn a_token_never_goes_over_plain_http() {
    for flags in [&["--token", "t"][..], &["--token-file", "/t"], &["--kubeconfig", "/k"]] {
        let error = server(&[&["--server", "http://node:10255"][..], flags].concat()).unwrap_err();
        assert!(error.is_wrong_use() && error.to_string().contains("https:// alone"), "{error}");
    }
}

#[test]
fn flags_that_exclude_each_other_are_wrong_use() {
    for words in [
        &["--token", "t", "--token-file", "/t"][..],
        &["--client-certificate", "/c"],
        &["--client-key", "/k"],
        &["--certificate-authority", "/a", "--insecure-skip-tls-verify"],
        &["--context", "c"],
        &["--server", "node:10250"],
    ] {
        assert!(args(words).is_none(), "{words:?}");
    }
}

#[test]
fn what_cannot_be_used_is_named_with_its_flag() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(path("empty"), "").unwrap();
    std::fs::write(path("text"), "no pem").unwrap();
    let kubeconfig = |user: &str| {
        let text = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: 'https://api:6443'}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
        );
        std::fs::write(path("kubeconfig"), text).unwrap();
        ["--insecure-skip-tls-verify".to_owned(), "--kubeconfig".to_owned(), path("kubeconfig")]
    };
    let said = |words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let error = server(&words).unwrap_err();
        assert!(!error.is_wrong_use(), "{error}");
        error.to_string()
    };
    let flag = |name: &str, file: &str| said(&[format!("--{name}"), path(file)]);
    assert!(
        flag("token-file", "empty").contains("--token-file")
            && flag("token-file", "empty").contains("no token")
    );
    assert!(flag("certificate-authority", "text").contains("it holds no certificate"));
    assert!(flag("certificate-authority", "none").contains("No such file"));
    assert!(flag("kubeconfig", "none").starts_with("--kubeconfig "));
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}";
    let error = said(&kubeconfig(exec));
    assert!(error.contains("exec: credential plugins are not supported: pass --token-file"), "{error}");
    let error = said(&kubeconfig("tokenFile: none"));
    assert!(error.contains("tokenFile: ") && error.contains("No such file"), "{error}");
    let words = kubeconfig("token: t");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(
        server(&words),
        Ok("https://127.0.0.1:10250".to_owned()),
        "the kubeconfig's server is not asked"
    );
}
