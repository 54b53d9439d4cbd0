//! A kubeconfig that is wrong in each field: errors that keep the kubelet from starting, and errors that may pass.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bridge_io::Io;
use bridge_io::clock::SystemClock;
use bridge_kube::{ApiError, RestMetrics, Select};
use k8s_openapi::api::core::v1::Namespace;
use kubelet::cluster::cluster;
use kubelet::config::validation::Host;
use kubelet::identity;
use kubelet::load::{Invocation, load};
use rcgen::{CertificateParams, KeyPair};

use crate::subject::wait_real_time as block_on;

pub const ALL: &[(&str, fn())] = &[
    ("what_can_never_work_keeps_the_kubelet_from_starting", what_can_never_work),
    ("what_may_come_right_is_trouble_that_is_tried_again", what_may_come_right),
    ("a_program_that_fails_is_not_run_for_each_call", a_program_that_fails),
];

const GOOD: &str = "apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters:
- name: k
  cluster:
    server: https://127.0.0.1:1
    certificate-authority: pki/ca.crt
users:
- name: u
  user:
    client-certificate: pki/client.crt
    client-key: pki/client.key
";
const PAIR: &str = "client-certificate: pki/client.crt\n    client-key: pki/client.key";
const CA: &str = "certificate-authority: pki/ca.crt";

/// Files around a kubeconfig.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let this = Self(tempfile::tempdir().expect("a directory"));
        std::fs::create_dir(this.path("pki")).expect("a directory");
        for name in ["ca", "client", "other"] {
            let key = KeyPair::generate().expect("a key");
            let params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
            let certificate = params.self_signed(&key).expect("a certificate").pem();
            std::fs::write(this.path(&format!("pki/{name}.crt")), certificate).expect("written");
            std::fs::write(this.path(&format!("pki/{name}.key")), key.serialize_pem()).expect("written");
        }
        std::fs::write(this.path("empty"), "").expect("written");
        std::fs::write(this.path("garbage"), "\u{1}garbage").expect("written");
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The text of the error that keeps the kubelet from starting with this kubeconfig, if one does.
    fn start(&self, text: &str) -> Result<kubelet::wiring::Cluster, String> {
        std::fs::write(self.path("kubelet.conf"), text).expect("written");
        start(&self.path("kubelet.conf"))
    }
}

fn start(kubeconfig: &Path) -> Result<kubelet::wiring::Cluster, String> {
    let io = runtime();
    let arguments = [format!("--kubeconfig={}", kubeconfig.display())];
    let loaded = load(&arguments, &Host { cgroup_v2: true }, &mut Vec::new()).expect("flags");
    let Invocation::Run(loaded) = loaded else { panic!("it is to run") };
    let clock = Arc::new(SystemClock);
    let calls = RestMetrics::new().expect("well-formed");
    let wanted = identity::wanted(&loaded, "n", &io, clock, &calls.programs).expect("a member of a cluster");
    let made = kubelet::wait::wait(&io, wanted.identify())
        .and_then(|identified| cluster(&loaded, "n", &io, &identified?, &calls));
    made.map_err(|error| format!("{error:#}"))
}

/// The I/O runtime of this process: clients outlive the function that makes them.
fn runtime() -> Io {
    static IO: std::sync::OnceLock<bridge_io::IoRuntime> = std::sync::OnceLock::new();
    IO.get_or_init(|| Io::start(1).expect("an I/O runtime")).io()
}

fn what_can_never_work() {
    let files = Files::new();
    files.start(GOOD).expect("that works");
    let missing = files.path("missing.conf");
    let error = start(&missing).expect_err("there is none");
    assert!(error.contains(&missing.display().to_string()) && error.contains("No such file"), "{error}");
    // The text to replace, the text in its place, and the words of the error.
    let table: &[(&str, &str, &[&str])] = &[
        (GOOD, "", &["kubelet.conf"]),
        (GOOD, "{", &["kubelet.conf"]),
        (GOOD, "- a\n- b\n", &["kubelet.conf"]),
        (GOOD, "\u{0}\u{1}", &["kubelet.conf"]),
        ("current-context: c", "current-context: d", &["current-context", "\"d\"", "no such context"]),
        ("current-context: c", "", &["current-context", "Required value"]),
        ("cluster: k,", "cluster: x,", &["contexts[name=c].context.cluster", "\"x\"", "no such cluster"]),
        ("user: u}", "user: x}", &["contexts[name=c].context.user", "\"x\"", "no such user"]),
        ("contexts: [", "contexts: 7 #", &["kubelet.conf"]),
        ("server: https://127.0.0.1:1", "", &["clusters[name=k].cluster.server", "Required value"]),
        ("https://127.0.0.1:1", "'https://a b'", &["clusters[name=k].cluster.server", "\"https://a b\""]),
        ("https://127.0.0.1:1", "ftp://h", &["clusters[name=k].cluster.server", "\"ftp://h\""]),
        ("https://127.0.0.1:1", "https://h:99999", &["clusters[name=k].cluster.server", "99999"]),
        (CA, "certificate-authority: pki/no.crt", &["pki/no.crt", "certificate-authority", "No such file"]),
        (CA, "certificate-authority: pki", &["pki: certificate-authority: ", "directory"]),
        (CA, "certificate-authority: empty", &["empty: certificate-authority: holds no certificate"]),
        (CA, "certificate-authority: garbage", &["garbage: certificate-authority: holds no certificate"]),
        (CA, "certificate-authority: pki/ca.key", &["ca.key: certificate-authority: holds no certificate"]),
        (CA, "certificate-authority-data: '*'", &["certificate-authority-data", "no base64"]),
        (CA, "certificate-authority-data: YWJj", &["certificate-authority-data: holds no certificate"]),
        (PAIR, "client-certificate: pki/client.crt", &["users[name=u].user.client-key", "Required value"]),
        (PAIR, "client-key: pki/client.key", &["users[name=u].user.client-certificate", "Required value"]),
        ("pki/client.crt", "pki/no.crt", &["pki/no.crt", "client-certificate", "No such file"]),
        ("pki/client.key", "pki/no.key", &["pki/no.key", "client-key", "No such file"]),
        (
            "pki/client.key",
            "pki/other.key",
            &["other.key: client-key: is not the key of the client certificate"],
        ),
        ("pki/client.key", "pki/client.crt", &["client.crt: client-key: no private key"]),
        ("pki/client.crt", "garbage", &["garbage: client-certificate: holds no certificate"]),
        (PAIR, "tokenFile: empty", &["empty: tokenFile: holds no token"]),
        (PAIR, "tokenFile: no-token", &["no-token", "tokenFile", "No such file"]),
        (PAIR, "username: a\n    password: b", &["users[name=u].user.username", "not supported"]),
        (PAIR, "exec: {apiVersion: v1}", &["users[name=u].user.exec.command", "Required value"]),
        (PAIR, "exec: {command: x}", &["users[name=u].user.exec.apiVersion", "Required value"]),
        (PAIR, "exec: {command: x, apiVersion: v7}", &["users[name=u].user.exec.apiVersion", "\"v7\""]),
        (
            PAIR,
            "exec: {command: x, apiVersion: client.authentication.k8s.io/v1}",
            &["users[name=u].user.exec.interactiveMode", "Required value"],
        ),
    ];
    for (from, to, said) in table {
        assert!(GOOD.contains(from), "{from}");
        let error = files.start(&GOOD.replacen(from, to, 1)).map(|_| ()).expect_err(to);
        let file = files.path("kubelet.conf").display().to_string();
        assert!(error.contains("--kubeconfig") && error.contains(&file), "{to}: {error}");
        for word in *said {
            assert!(error.contains(word), "{to:?} is to be told with {word:?}: {error}");
        }
    }
}

fn called(files: &Files, from: &str, to: &str) -> ApiError {
    let made = files.start(&GOOD.replacen(from, to, 1)).expect("it starts, and tries");
    let api = made.api.with_deadline(Duration::from_secs(50));
    block_on(api.list::<Namespace>(&Select::default())).expect_err("it fails")
}

fn exec(files: &Files, script: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = files.path("plugin");
    let text = format!("#!/bin/sh\necho >> {}\n{script}\n", files.path("runs").display());
    std::fs::write(&path, text).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("executable");
    exec_of("./plugin")
}

fn exec_of(command: &str) -> String {
    format!(
        "exec: {{command: {command}, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}}"
    )
}

fn what_may_come_right() {
    let files = Files::new();
    let at = |text: &str| text.replacen("127.0.0.1:1", "no-such-host.invalid:1", 1);
    let table: Vec<(&str, String, Vec<&str>)> = vec![
        ("x", "x".to_owned(), vec!["cannot connect to 127.0.0.1:1", "refused"]),
        ("https://127.0.0.1:1", at("https://127.0.0.1:1"), vec!["cannot connect to no-such-host.invalid:1"]),
        (PAIR, exec_of("no-such-plugin"), vec!["exec plugin no-such-plugin", "cannot be run"]),
        (PAIR, exec(&files, "echo sorry >&2; exit 3"), vec!["/plugin", "exit status: 3", "sorry"]),
    ];
    for (from, to, said) in table {
        let error = called(&files, from, &to);
        assert!(error.is_unanswered() && error.is_transient(), "{error:?}");
        for word in said {
            assert!(error.to_string().contains(word), "{to}: {error}");
        }
    }
    for (prints, said) in [
        ("", "printed no ExecCredential"),
        ("garbage", "printed no ExecCredential"),
        (r#"{"kind":"Other","apiVersion":"client.authentication.k8s.io/v1"}"#, "gave a Other of"),
        (
            r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1","status":{"token":"t"}}"#,
            "is to give an ExecCredential of API version client.authentication.k8s.io/v1",
        ),
        (r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1"}"#, "gave no status"),
        (
            r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{}}"#,
            "gave neither a token nor a certificate",
        ),
    ] {
        let user = exec(&files, &format!("printf '%s' '{prints}'"));
        let error = called(&files, PAIR, &user);
        assert!(
            error.to_string().contains(said) && error.to_string().contains("/plugin"),
            "{prints}: {error}"
        );
    }
}

fn a_program_that_fails() {
    let files = Files::new();
    let user = exec(&files, "exit 1");
    let made = files.start(&GOOD.replacen(PAIR, &user, 1)).expect("it starts, and tries");
    let begun = std::time::Instant::now();
    for _ in 0..200 {
        block_on(made.api.list::<Namespace>(&Select::default())).expect_err("it fails");
    }
    let runs = std::fs::read_to_string(files.path("runs")).expect("it was run").lines().count();
    let seconds = begun.elapsed().as_secs_f64();
    println!("200 calls in {seconds:.1} s ran a failing plugin {runs} times");
    assert!(runs as f64 <= seconds + 2.0, "{runs} runs in {seconds} s");
}
