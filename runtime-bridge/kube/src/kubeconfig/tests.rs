use super::*;

const BASE: &str = "
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {CLUSTER}}]
users: [{name: u, user: {USER}}]
";
const SERVER: &str = "server: 'https://10.0.0.1:6443'";

fn text(cluster: &str, user: &str) -> String {
    BASE.replace("CLUSTER", cluster).replace("USER", user)
}

fn read(text: &str) -> Result<Kubeconfig, KubeconfigError> {
    Kubeconfig::read(Path::new("/etc/kubernetes/kubelet.conf"), text)
}

fn refused(text: &str) -> String {
    read(text).expect_err("it is wrong").to_string()
}

fn user(fields: &str) -> User {
    read(&text(SERVER, fields)).expect("it is right").user
}

#[test]
fn the_cluster_is_read() {
    let fields =
        "server: 'https://api.example:6443/base/', certificate-authority: pki/ca.crt, tls-server-name: name";
    let read_it = read(&text(fields, "")).unwrap();
    assert_eq!(read_it.server.to_string(), "https://api.example:6443/base");
    let ca = read_it.certificate_authority.unwrap();
    assert_eq!(ca, Pem::File("/etc/kubernetes/pki/ca.crt".into()), "relative to the kubeconfig");
    assert_eq!(read_it.tls_server_name.as_deref(), Some("name"));
    assert!(!read_it.insecure_skip_tls_verify);
    let fields = "server: '10.0.0.1:1', certificate-authority-data: 'YWJj', certificate-authority: x, insecure-skip-tls-verify: true";
    let read_it = read(&text(fields, "")).unwrap();
    assert_eq!(read_it.server.to_string().trim_end_matches('/'), "https://10.0.0.1:1");
    assert_eq!(read_it.certificate_authority, Some(Pem::Inline(b"abc".to_vec())), "data comes first");
    assert!(read_it.insecure_skip_tls_verify);
    let json = r#"{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"k","user":""}}],
        "clusters":[{"name":"k","cluster":{"server":"http://h:1"}}],"users":[]}"#;
    assert!(matches!(read(json).unwrap().user, User::Anonymous));
}

#[test]
fn yaml_means_what_it_means_to_the_go_kubelet() {
    let fields = format!("{SERVER}, insecure-skip-tls-verify: yes");
    assert!(read(&text(&fields, "")).unwrap().insecure_skip_tls_verify);
    // In YAML 1.1 even the letter `n` is a truth value, so a name `n` has to be quoted.
    let wrong = refused(&text(&format!("{SERVER}, tls-server-name: n"), ""));
    assert!(wrong.starts_with("kubeconfig /etc/kubernetes/kubelet.conf: "), "{wrong}");
}

#[test]
fn each_kind_of_user_is_read() {
    assert!(matches!(user(""), User::Anonymous));
    assert!(matches!(user("token: t"), User::Token(token) if token == "t"));
    let both = user("token: t, tokenFile: tokens/t");
    assert!(matches!(both, User::TokenFile(path) if path == Path::new("/etc/kubernetes/tokens/t")));
    let User::Certificate { certificate, key } = user("client-certificate: /c, client-key-data: 'YWJj'")
    else {
        panic!("a certificate");
    };
    assert_eq!((certificate, key), (Pem::File("/c".into()), Pem::Inline(b"abc".to_vec())));
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: ./bin/login, args: [a]}";
    let User::Exec(exec) = user(exec) else { panic!("a program") };
    assert_eq!(exec.command.as_deref(), Some("/etc/kubernetes/./bin/login"));
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: login, interactiveMode: IfAvailable, \
                provideClusterInfo: true}";
    let User::Exec(exec) = user(exec) else { panic!("a program") };
    assert_eq!(exec.command.as_deref(), Some("login"));
    assert_eq!(exec.cluster.unwrap().server.as_deref(), Some("https://10.0.0.1:6443"));
}

#[test]
fn secrets_are_not_shown() {
    let shown =
        format!("{:?} {:?}", user("token: hidden"), user("client-certificate: /c, client-key-data: 'YWJj'"));
    assert!(!shown.contains("hidden") && !shown.contains("YWJj"), "{shown}");
}

#[test]
fn what_is_wrong_is_named_with_file_field_and_value() {
    for (cluster, user, said) in [
        ("", "", "clusters[name=k].cluster.server: Required value"),
        ("server: 'ftp://h'", "", "clusters[name=k].cluster.server: Invalid value: \"ftp://h\""),
        ("server: 'https://a b'", "", "clusters[name=k].cluster.server: Invalid value: \"https://a b\""),
        (
            "server: 'https://h', proxy-url: 'http://p'",
            "",
            "clusters[name=k].cluster.proxy-url: is not supported",
        ),
        (
            "server: 'https://h', certificate-authority-data: '*'",
            "",
            "clusters[name=k].cluster.certificate-authority-data: no base64",
        ),
        (SERVER, "client-certificate: /c", "users[name=u].user.client-key: Required value"),
        (SERVER, "client-key: /k", "users[name=u].user.client-certificate: Required value"),
        (
            SERVER,
            "client-certificate: /c, client-key-data: '*'",
            "users[name=u].user.client-key-data: no base64",
        ),
        (SERVER, "username: a, password: b", "users[name=u].user.username: basic authentication"),
        (SERVER, "as: root, token: t", "users[name=u].user.as: is not supported"),
        (SERVER, "auth-provider: {name: gcp}", "users[name=u].user.auth-provider: is not supported"),
        (SERVER, "exec: {command: x}", "users[name=u].user.exec.apiVersion: Required value"),
        (SERVER, "exec: {apiVersion: v1}", "users[name=u].user.exec.command: Required value"),
        (SERVER, "exec: {apiVersion: v1, command: x}", "exec.apiVersion: Unsupported value: \"v1\""),
        (
            SERVER,
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: x}",
            "users[name=u].user.exec.interactiveMode: Required value",
        ),
        (
            SERVER,
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Always}",
            "exec.interactiveMode: Invalid value: \"Always\"",
        ),
    ] {
        let error = refused(&text(cluster, user));
        assert!(
            error.starts_with("kubeconfig /etc/kubernetes/kubelet.conf: ") && error.contains(said),
            "{error}"
        );
    }
}

#[test]
fn references_must_lead_somewhere() {
    let good = text(SERVER, "token: t");
    for (from, to, said) in [
        (
            "current-context: c",
            "current-context: d",
            "current-context: Invalid value: \"d\": there is no such context",
        ),
        ("current-context: c", "current-context: ''", "current-context: Required value"),
        ("cluster: k,", "cluster: l,", "contexts[name=c].context.cluster: Invalid value: \"l\""),
        (
            "user: u}",
            "user: v}",
            "contexts[name=c].context.user: Invalid value: \"v\": there is no such user",
        ),
    ] {
        let error = refused(&good.replace(from, to));
        assert!(error.contains(said), "{error}");
    }
    assert!(refused("contexts: 7").starts_with("kubeconfig /etc/kubernetes/kubelet.conf: "));
    assert!(refused("\t{").starts_with("kubeconfig /etc/kubernetes/kubelet.conf: "));
}

#[test]
fn a_node_writes_itself_one_for_the_same_server() {
    let cluster = format!("{SERVER}, certificate-authority: ../pki/ca.crt, tls-server-name: kubernetes");
    let written =
        read(&text(&cluster, "token: t")).expect("it is right").text_with(Path::new("/pki/a b.pem"));
    let again = Kubeconfig::read(Path::new("/elsewhere/kubelet.conf"), &written).expect(&written);
    assert_eq!(again.server, "https://10.0.0.1:6443");
    assert_eq!(again.certificate_authority, Some(Pem::File("/etc/kubernetes/../pki/ca.crt".into())));
    assert_eq!(again.tls_server_name.as_deref(), Some("kubernetes"));
    assert_eq!(again.client_files(), Some((Path::new("/pki/a b.pem"), Path::new("/pki/a b.pem"))));
    for name in ["default-cluster", "default-auth", "default-context", "namespace: default"] {
        assert!(written.contains(name), "{written}");
    }
    let cluster = format!("{SERVER}, certificate-authority-data: aGk=, insecure-skip-tls-verify: true");
    let written = read(&text(&cluster, "")).expect("it is right").text_with(Path::new("/p"));
    let again = Kubeconfig::read(Path::new("/k"), &written).expect(&written);
    assert_eq!(again.certificate_authority, Some(Pem::Inline(b"hi".to_vec())));
    assert!(again.insecure_skip_tls_verify);
}

#[test]
fn a_context_that_is_named_goes_before_the_current_one() {
    let two = text(SERVER, "token: t")
        .replace("contexts: [", "contexts: [{name: d, context: {cluster: k, user: ''}}, ");
    let named = |context: Option<&str>| Kubeconfig::read_context(Path::new("/config"), &two, context);
    assert!(matches!(named(None).unwrap().user, User::Token(_)));
    assert!(matches!(named(Some("d")).unwrap().user, User::Anonymous));
    let error = named(Some("e")).expect_err("there is none").to_string();
    assert_eq!(error, "kubeconfig /config: contexts: Invalid value: \"e\": there is no such context");
}
