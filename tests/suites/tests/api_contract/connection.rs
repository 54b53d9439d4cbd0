//! Real connections: identities that change, servers that go and come back, and the errors when nothing fits.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bridge_io::Io;
use bridge_kube::{
    ApiClient, ConnectSettings, Delete, FileIdentity, IdentitySource, Kubeconfig, PairIdentity, Patch, Select,
};
use bridge_tls::certificates::{CurrentPair, Pair};
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenRequest};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, ServiceAccount};
use serde_json::json;

use crate::following::View;
use crate::subject::{ControlPlane, DEADLINE, UNLIMITED, json as value, object, wait_real_time as block_on};

/// A case by its name.
pub type Case = (&'static str, fn(&ControlPlane));

pub const ALL: &[Case] = &[
    ("a_server_that_stops_and_starts_is_followed_on", outage),
    ("a_server_that_hangs_meets_the_deadline", hang),
    ("a_dead_connection_is_given_up", dead_connection),
    ("another_certificate_is_taken_up", other_certificate),
    ("a_signed_certificate_is_waited_for_and_replaced_under_a_watch", signed_certificate),
    ("another_token_is_taken_up", other_token),
    ("a_program_says_who_we_are", program),
    ("a_wrong_ca_is_named", wrong_ca),
    ("a_wrong_key_is_named", wrong_key),
    ("a_wrong_server_is_named", wrong_server),
    ("a_wrong_name_is_named", wrong_name),
    ("an_unknown_caller_is_told", unknown_caller),
    ("a_node_may_not_touch_another", forbidden),
];

fn io() -> bridge_io::IoRuntime {
    Io::start(2).expect("an I/O runtime")
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A namespace of the suite's connections.
fn namespace(api: &ApiClient) -> String {
    let name = format!("contract-connection-{}", std::process::id());
    let made = block_on(api.create(&object::<Namespace>(json!({"metadata": {"name": name}}))));
    if let Err(error) = made {
        assert!(error.is_already_exists(), "{error}");
    }
    name
}

fn who(api: &ApiClient) -> String {
    let review = SelfSubjectReview::default();
    let seen = value(&block_on(api.create(&review)).expect("a review"));
    seen["status"]["userInfo"]["username"].as_str().expect("a name").to_owned()
}

/// Waits until the server sees the client as this user.
fn becomes(api: &ApiClient, user: &str) {
    let begun = Instant::now();
    loop {
        let seen = who(api);
        if seen == user {
            return;
        }
        assert!(begun.elapsed() < DEADLINE * 2, "still {seen}, not {user}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The administrator's kubeconfig with another user.
fn kubeconfig(plane: &ControlPlane, user: &str) -> String {
    let text = plane.kubeconfig_text();
    let server = text.lines().find(|line| line.contains("server:")).expect("a server").trim();
    let ca = text.lines().find(|line| line.contains("certificate-authority:")).expect("a CA").trim();
    format!(
        "{{current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}], \
         clusters: [{{name: k, cluster: {{{server}, {ca}}}}}], users: [{{name: u, user: {{{user}}}}}]}}"
    )
}

fn client(plane: &ControlPlane, io: &Io, text: &str) -> Result<ApiClient, String> {
    plane.client(io, Path::new("/contract/kubeconfig"), text, DEADLINE)
}

fn outage(plane: &ControlPlane) {
    let io = io();
    let api = plane.admin(&io.io());
    let namespace = namespace(&api);
    let set = |data: &str| {
        let map: ConfigMap =
            object(json!({"metadata": {"name": "outage", "namespace": namespace}, "data": {"a": data}}));
        match block_on(api.create(&map)) {
            Err(error) if error.is_already_exists() => {
                let patch = Patch::Merge(json!({"data": {"a": data}}));
                block_on(api.patch::<ConfigMap>(Some(&namespace), "outage", &patch)).expect("patched");
            }
            other => {
                other.expect("made");
            }
        }
    };
    let data = |view: &View<ConfigMap>| view.known.get("outage")?.data.as_ref()?.get("a").cloned();
    set("1");
    let mut view = View::<ConfigMap>::new(api.follow(Select::named(Some(&namespace), "outage")));
    block_on(view.until("the list", |view| data(view).as_deref() == Some("1")));
    for round in ["2", "3"] {
        plane.script("stop", &[]);
        let error = block_on(api.get::<ConfigMap>(Some(&namespace), "outage")).expect_err("nobody listens");
        assert!(error.is_unanswered() && error.is_transient(), "{error:?}");
        assert!(error.message.contains("cannot connect to") || error.message.contains("closed"), "{error}");
        let troubles = view.troubles.len();
        block_on(view.until("trouble", |view| view.troubles.len() > troubles));
        plane.script("start", &[]);
        set(round);
        block_on(view.until("what is new", |view| data(view).as_deref() == Some(round)));
    }
}

fn hang(plane: &ControlPlane) {
    let io = io();
    let api = plane.admin(&io.io());
    let hurried = api.with_deadline(Duration::from_secs(2));
    block_on(hurried.list::<Namespace>(&Select::default())).expect("an answer");
    plane.script("pause", &[]);
    let asked = block_on(hurried.list::<Namespace>(&Select::default()));
    plane.script("resume", &[]);
    let error = asked.expect_err("no answer");
    assert!(error.is_unanswered() && error.message.contains("no answer within 2 s"), "{error:?}");
    block_on(api.list::<Namespace>(&Select::default())).expect("an answer again");
}

/// Passes bytes on until the connections that are then open are cut off without a word.
struct Middle {
    port: u16,
    connections: Arc<AtomicUsize>,
    /// Connections up to this one pass nothing on any more.
    dead: Arc<AtomicUsize>,
}

impl Middle {
    fn new(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (connections, dead) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let this = Self { port, connections: connections.clone(), dead: dead.clone() };
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.expect("a connection");
                let far = TcpStream::connect(&server).expect("the server");
                let number = connections.fetch_add(1, Ordering::SeqCst) + 1;
                for (mut from, mut to) in
                    [(near.try_clone().expect("a socket"), far.try_clone().expect("a socket")), (far, near)]
                {
                    let dead = dead.clone();
                    std::thread::spawn(move || {
                        let mut bytes = [0; 16 * 1024];
                        while let Ok(count @ 1..) = from.read(&mut bytes) {
                            if dead.load(Ordering::SeqCst) < number && to.write_all(&bytes[..count]).is_err()
                            {
                                break;
                            }
                        }
                        if dead.load(Ordering::SeqCst) < number {
                            let _ = to.shutdown(Shutdown::Both);
                        }
                    });
                }
            }
        });
        this
    }

    fn cut(&self) {
        self.dead.store(self.connections.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

fn dead_connection(plane: &ControlPlane) {
    let io = io();
    let text = plane.kubeconfig_text();
    let server =
        text.lines().find_map(|line| line.trim().strip_prefix("server: https://")).expect("a server");
    let middle = Middle::new(server.to_owned());
    let text = text.replace(server, &format!("127.0.0.1:{}", middle.port));
    let api = client(plane, &io.io(), &text).expect("a client");
    let list = |api: &ApiClient| block_on(api.list::<Namespace>(&Select::default()));
    for _ in 0..3 {
        list(&api).expect("an answer");
    }
    assert_eq!(middle.connections.load(Ordering::SeqCst), 1, "one connection is used for all calls");
    middle.cut();
    let hurried = api.with_deadline(Duration::from_secs(2));
    let error = list(&hurried).expect_err("no answer");
    assert!(error.message.contains("no answer within 2 s"), "{error}");
    hurried.redial();
    list(&api).expect("an answer on a new connection");
    // One connection for the call, and perhaps one before it that asked whether the server is reachable.
    let connections = middle.connections.load(Ordering::SeqCst);
    assert!((2..=3).contains(&connections), "{connections} connections");
}

fn other_certificate(plane: &ControlPlane) {
    let (io, directory) = (io(), temporary());
    let (certificate, key) = (directory.path().join("client.crt"), directory.path().join("client.key"));
    let put = |node: &str, file: &Path, ending: &str| {
        plane.script("node", &[node]);
        let from = plane.directory.join(format!("pki/node-{node}.{ending}"));
        std::fs::copy(from, file).expect("copied");
    };
    put("contract-a", &certificate, "crt");
    put("contract-a", &key, "key");
    let user = format!("client-certificate: '{}', client-key: '{}'", certificate.display(), key.display());
    let text = kubeconfig(plane, &user);
    let api = client(plane, &io.io(), &text).expect("a client");
    becomes(&api, "system:node:contract-a");
    let user = Kubeconfig::read(Path::new("/contract/kubeconfig"), &text).expect("a kubeconfig").user;
    let identity = FileIdentity::new(user);
    let pair = || identity.identity().expect("an identity");
    let whole = pair();
    // Half of a pair: a client that reads it now still uses the old pair.
    put("contract-b", &certificate, "crt");
    identity.refused();
    assert_eq!(pair().generation, whole.generation, "it has looked again, and keeps what it has");
    assert_eq!(who(&api), "system:node:contract-a");
    put("contract-b", &key, "key");
    becomes(&api, "system:node:contract-b");
}

fn signed_certificate(plane: &ControlPlane) {
    let (io, path) = (io(), Path::new("/contract/kubeconfig"));
    let admin = plane.admin(&io.io());
    let namespace = namespace(&admin);
    let pair = |name: &str| {
        let read = |ending: &str| {
            std::fs::read(plane.directory.join(format!("pki/{name}.{ending}"))).expect("a file")
        };
        Arc::new(Pair::read(&read("crt"), &read("key"), Path::new(name)).expect("a pair"))
    };
    let current = CurrentPair::default();
    let settings = ConnectSettings {
        kubeconfig: Kubeconfig::read(path, &plane.kubeconfig_text()).expect("a kubeconfig"),
        identity: Arc::new(PairIdentity::new(current.clone())),
        user_agent: "understudy-contract/1".to_owned(),
        http1_only: false,
    };
    let api = ApiClient::connected(&settings, &io.io(), UNLIMITED, DEADLINE).expect("a client");
    let error = block_on(api.list::<Namespace>(&Select::default())).expect_err("nobody yet");
    assert!(error.message.contains("no valid client certificate"), "{error}");
    let waiting = block_on(async {
        let asked = api.list::<Namespace>(&Select::default());
        current.show(Some(pair("admin")), false);
        asked.await
    });
    waiting.expect("it was waited for");
    assert_eq!(who(&api), "kubernetes-admin");
    let mut view = View::<ConfigMap>::new(api.follow(Select::named(Some(&namespace), "signed")));
    block_on(view.until("the list", |view| view.lists > 0));
    let map = object::<ConfigMap>(json!({"metadata": {"name": "signed", "namespace": namespace}}));
    block_on(admin.create(&map)).expect("created");
    block_on(view.until("the watch, which is open", |view| view.known.contains_key("signed")));
    let troubles = view.troubles.len();
    current.show(Some(pair("kubelet-client")), false);
    assert_eq!(who(&api), "kube-apiserver-kubelet-client");
    block_on(view.until("the watch to be closed", |view| view.troubles.len() > troubles));
    let deleted = admin.delete::<ConfigMap>(Some(&namespace), "signed", &Delete::default());
    block_on(deleted).expect("deleted");
    block_on(view.until("the watch to go on", |view| view.known.is_empty()));
    current.show(None, false);
    let error = block_on(api.list::<Namespace>(&Select::default())).expect_err("nobody any more");
    assert!(error.message.contains("no valid client certificate"), "{error}");
}

fn token(api: &ApiClient, namespace: &str, name: &str) -> String {
    let account: ServiceAccount = object(json!({"metadata": {"name": name, "namespace": namespace}}));
    if let Err(error) = block_on(api.create(&account)) {
        assert!(error.is_already_exists(), "{error}");
    }
    let asked: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}})).expect("a request");
    let given = block_on(api.create_subresource::<ServiceAccount, _>(Some(namespace), name, "token", &asked));
    given.expect("a token").status.and_then(|status| status.token).expect("a token")
}

fn other_token(plane: &ControlPlane) {
    let (io, directory) = (io(), temporary());
    let admin = plane.admin(&io.io());
    let namespace = namespace(&admin);
    let file = directory.path().join("token");
    std::fs::write(&file, token(&admin, &namespace, "first") + "\n").expect("written");
    let user = format!("tokenFile: '{}'", file.display());
    let api = client(plane, &io.io(), &kubeconfig(plane, &user)).expect("a client");
    becomes(&api, &format!("system:serviceaccount:{namespace}:first"));
    std::fs::write(&file, token(&admin, &namespace, "second")).expect("written");
    becomes(&api, &format!("system:serviceaccount:{namespace}:second"));
    let empty = directory.path().join("empty");
    std::fs::write(&empty, " \n").expect("written");
    for (file, said) in [(empty.as_path(), "holds no token"), (Path::new("/no/token"), "No such file")] {
        let user = format!("tokenFile: '{}'", file.display());
        let error = client(plane, &io.io(), &kubeconfig(plane, &user)).expect_err("no token");
        assert!(error.contains(said) && error.contains(&file.display().to_string()), "{error}");
    }
}

fn program(plane: &ControlPlane) {
    let (io, directory) = (io(), temporary());
    let admin = plane.admin(&io.io());
    let namespace = namespace(&admin);
    let (given, runs) = (directory.path().join("given"), directory.path().join("runs"));
    for version in ["v1", "v1beta1"] {
        let version = format!("client.authentication.k8s.io/{version}");
        let give = |status: serde_json::Value| {
            let credential = json!({"apiVersion": version, "kind": "ExecCredential", "status": status});
            std::fs::write(&given, credential.to_string()).expect("written");
        };
        let text = kubeconfig(
            plane,
            &format!(
                "exec: {{apiVersion: {version}, command: /bin/sh, interactiveMode: Never, \
                 args: ['-c', 'echo run >>{}; cat {}']}}",
                runs.display(),
                given.display()
            ),
        );
        give(json!({"token": token(&admin, &namespace, "first")}));
        std::fs::write(&runs, "").expect("written");
        let api = client(plane, &io.io(), &text).expect("a client");
        for _ in 0..3 {
            assert_eq!(who(&api), format!("system:serviceaccount:{namespace}:first"));
        }
        assert_eq!(std::fs::read_to_string(&runs).expect("runs").lines().count(), 1);
        // A certificate in place of a token, once the token is refused.
        plane.script("node", &["contract-a"]);
        let pem = |ending: &str| {
            std::fs::read_to_string(plane.directory.join(format!("pki/node-contract-a.{ending}")))
                .expect("PEM")
        };
        give(json!({"token": "bad"}));
        let api = client(plane, &io.io(), &text).expect("a client");
        let error = block_on(api.list::<Namespace>(&Select::default())).expect_err("no such token");
        assert!(error.is_unauthorized(), "{error:?}");
        give(json!({"clientCertificateData": pem("crt"), "clientKeyData": pem("key")}));
        becomes(&api, "system:node:contract-a");
    }
    let text = kubeconfig(
        plane,
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: /no/such/login, interactiveMode: Never}",
    );
    let api = client(plane, &io.io(), &text).expect("a client");
    let error = block_on(api.list::<Namespace>(&Select::default())).expect_err("no program");
    assert!(error.message.contains("exec plugin /no/such/login: cannot be run"), "{error}");
}

/// The error of a list that is requested with this kubeconfig.
fn said(plane: &ControlPlane, text: &str) -> String {
    let io = io();
    match client(plane, &io.io(), text) {
        Err(error) => error,
        Ok(api) => block_on(api.list::<Namespace>(&Select::default())).expect_err("refused").to_string(),
    }
}

fn wrong_ca(plane: &ControlPlane) {
    let directory = temporary();
    let text = plane.kubeconfig_text();
    let ca = plane.directory.join("pki/ca.crt").display().to_string();
    let other = plane.directory.join("pki/admin.crt").display().to_string();
    let error = said(plane, &text.replace(&ca, &other));
    assert!(error.contains("certificate"), "{error}");
    let error = said(plane, &text.replace(&ca, "/no/ca.crt"));
    assert!(error.contains("/no/ca.crt") && error.contains("No such file"), "{error}");
    let empty = directory.path().join("empty.crt");
    std::fs::write(&empty, "nothing").expect("written");
    let error = said(plane, &text.replace(&ca, &empty.display().to_string()));
    assert!(error.contains("empty.crt: certificate-authority: holds no certificate"), "{error}");
    let inline = STANDARD.encode("nothing");
    let error = said(
        plane,
        &text.replace(
            &format!("certificate-authority: {ca}"),
            &format!("certificate-authority-data: {inline}"),
        ),
    );
    assert!(error.contains("certificate-authority-data: holds no certificate"), "{error}");
    // Without any CA the system's CAs are used, which do not include this one.
    let error =
        said(plane, &text.replace(&format!("certificate-authority: {ca}"), "tls-server-name: localhost"));
    assert!(error.contains("certificate") || error.contains("TLS"), "{error}");
    let io = io();
    let trusting = text.replace(&format!("certificate-authority: {ca}"), "insecure-skip-tls-verify: true");
    let api = client(plane, &io.io(), &trusting).expect("a client");
    block_on(api.list::<Namespace>(&Select::default())).expect("whatever certificate is taken");
}

fn wrong_key(plane: &ControlPlane) {
    let text = plane.kubeconfig_text();
    plane.script("node", &["contract-a"]);
    let key = plane.directory.join("pki/admin.key").display().to_string();
    let other = plane.directory.join("pki/node-contract-a.key").display().to_string();
    let error = said(plane, &text.replace(&key, &other));
    assert_eq!(error, format!("{other}: client-key: is not the key of the client certificate"));
    let certificate = plane.directory.join("pki/admin.crt").display().to_string();
    let error = said(plane, &text.replace(&key, &certificate));
    assert!(error.contains("admin.crt: client-key: no private key"), "{error}");
}

fn wrong_server(plane: &ControlPlane) {
    let text = plane.kubeconfig_text();
    let server = text.lines().find(|line| line.contains("server:")).expect("a server");
    let to =
        |server: &str| text.replace(text.lines().find(|l| l.contains("server:")).unwrap_or_default(), server);
    let error = said(plane, &to("    server: https://127.0.0.1:1"));
    assert!(error.contains("cannot connect to 127.0.0.1:1") && error.contains("refused"), "{error}");
    let error = said(plane, &to("    server: https://no-such-host.invalid:1"));
    assert!(error.contains("cannot connect to no-such-host.invalid:1"), "{error}");
    let error = said(plane, &to(&server.replace("https", "http")));
    assert!(error.contains("400") || error.contains("HTTP request to an HTTPS server"), "{error}");
    let error = said(plane, &text.replace("current-context: admin", "current-context: other"));
    assert!(error.contains("current-context: Invalid value: \"other\": there is no such context"), "{error}");
}

fn wrong_name(plane: &ControlPlane) {
    let text = plane.kubeconfig_text();
    let named =
        |name: &str| text.replace("  cluster:\n", &format!("  cluster:\n    tls-server-name: {name}\n"));
    let error = said(plane, &named("elsewhere.example"));
    assert!(error.contains("elsewhere.example") || error.contains("not valid for name"), "{error}");
    let io = io();
    let api = client(plane, &io.io(), &named("kubernetes.default.svc")).expect("a client");
    block_on(api.list::<Namespace>(&Select::default())).expect("another of the server's names");
}

fn unknown_caller(plane: &ControlPlane) {
    let io = io();
    for (user, code) in [("token: unknown", 401), ("", 403)] {
        let api = client(plane, &io.io(), &kubeconfig(plane, user)).expect("a client");
        let error = block_on(api.list::<Namespace>(&Select::default())).expect_err("refused");
        assert_eq!(error.code, code, "{error:?}");
        assert_eq!((error.is_unauthorized(), error.is_forbidden()), (code == 401, code == 403));
    }
}

fn forbidden(plane: &ControlPlane) {
    let io = io();
    let path = plane.script("node", &["contract-a"]);
    let text = std::fs::read_to_string(&path).expect("a kubeconfig");
    let api = plane.client(&io.io(), Path::new(&path), &text, DEADLINE).expect("a client");
    let own: Node = object(json!({"metadata": {"name": "contract-a"}}));
    if let Err(error) = block_on(api.create(&own)) {
        assert!(error.is_already_exists(), "{error}");
    }
    let other: Node = object(json!({"metadata": {"name": "contract-b"}}));
    let error = block_on(api.create(&other)).expect_err("another node's");
    assert!(error.is_forbidden() && error.message.contains("is not allowed to modify node"), "{error}");
}
