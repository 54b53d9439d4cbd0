//! The HTTPS server with a real runtime behind it: logs of a container, and commands in it.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use testkit::process::{Port, heard};

use crate::Alone;
use crate::environment::Environment;
use crate::node::{Node, Options, SOON};
use crate::spec::{containers, shell, with};

pub const ALL: &[(&str, Alone)] = &[
    ("logs_and_commands_come_over_https", logs_and_exec),
    ("without_a_certificate_nobody_is_served", refused),
    ("configz_shows_the_cgroup_driver_in_use", configz),
    ("what_clients_cost_is_paid_by_the_servers_thread", threads),
];

/// Longest wait for bytes of an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Certificates of one authority, PEM: its own, the server's with key, a client's with key.
pub(super) struct Certificates {
    authority: String,
    server: (String, String),
    client: (String, String),
}

pub(super) fn certificates() -> Certificates {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = params.self_signed(&key).expect("a certificate").pem();
    let issuer = Issuer::new(params, key);
    let signed = |purpose, name: &str| {
        let mut params = CertificateParams::new(vec!["kubelet".to_owned()]).expect("a host's name");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &issuer).expect("a certificate").pem(), key.serialize_pem())
    };
    let server = signed(ExtendedKeyUsagePurpose::ServerAuth, "kubelet");
    let client = signed(ExtendedKeyUsagePurpose::ClientAuth, "admin");
    Certificates { authority, server, client }
}

/// A kubelet that trusts the authority, with these fields in its configuration.
pub(super) fn node(
    environment: &Arc<Environment>,
    case: &str,
    certificates: &Certificates,
    fields: Value,
) -> (Node, tempfile::TempDir) {
    node_with(environment, case, certificates, fields, Value::Null)
}

/// The same with these fields in its UnderstudyConfiguration.
pub(super) fn node_with(
    environment: &Arc<Environment>,
    case: &str,
    certificates: &Certificates,
    fields: Value,
    understudy: Value,
) -> (Node, tempfile::TempDir) {
    let files = tempfile::tempdir().expect("a temporary directory");
    let write = |name: &str, text: &str| {
        let path = files.path().join(name);
        fs::write(&path, text).expect("a file in a directory of our own");
        path
    };
    let (certificate, key) = &certificates.server;
    let secured = json!({
        "tlsCertFile": write("tls.crt", certificate),
        "tlsPrivateKeyFile": write("tls.key", key),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": false},
            "x509": {"clientCAFile": write("ca.crt", &certificates.authority)},
        },
    });
    let options = Options { kubelet: with(secured, fields), understudy, ..Options::default() };
    (Node::alone(environment, case, options), files)
}

pub(super) type Tls = StreamOwned<ClientConnection, TcpStream>;

pub(super) fn connect(server: Port, certificates: &Certificates, known: bool) -> Result<Tls, String> {
    let pem = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("made here");
    let mut roots = RootCertStore::empty();
    roots.add(pem(&certificates.authority)).expect("an authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has suites for them")
        .with_root_certificates(roots);
    let (certificate, key) = &certificates.client;
    let config = if known {
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("made here");
        builder.with_client_auth_cert(vec![pem(certificate)], key).expect("a pair")
    } else {
        builder.with_no_client_auth()
    };
    let failed = |error: std::io::Error| error.to_string();
    let stream = TcpStream::connect_timeout(&server.0, PATIENCE).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let name = ServerName::try_from("kubelet").expect("a host's name");
    let tls = ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
    Ok(StreamOwned::new(tls, stream))
}

/// The answer to a request, read until `enough` or the end; `headers` are lines.
pub(super) fn ask(
    node: &Node,
    certificates: &Certificates,
    known: bool,
    request: &str,
    headers: &str,
    enough: impl Fn(&str) -> bool,
) -> String {
    // The listener is opened at the same time as the health port's.
    let begun = Instant::now();
    let mut stream = loop {
        match connect(node.server, certificates, known) {
            Ok(stream) => break stream,
            Err(error) if begun.elapsed() > SOON => panic!("{request}: {error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    write!(stream, "{request} HTTP/1.1\r\nHost: kubelet\r\n{headers}\r\n").expect("the request goes out");
    heard(&mut stream, enough)
}

pub(super) const CLOSE: &str = "Connection: close\r\n";
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n";

fn logs_and_exec(environment: &Arc<Environment>) {
    let certificates = certificates();
    let (node, _files) = node(environment, "https", &certificates, json!({}));
    let script = "echo one; echo two >&2; echo three; while ! [ -e /tmp/go ]; do sleep 0.1; done; \
        echo four; exec sleep 100000";
    let file = node.pod("spoken", containers([shell("main", script)]));
    let pod = file.ready();
    let name = format!("{}/{}", node.namespace, pod.text("/metadata/name"));
    let get = |path: &str, headers: &str, enough: &dyn Fn(&str) -> bool| {
        ask(&node, &certificates, true, &format!("GET {path}"), headers, enough)
    };
    let all = get(&format!("/containerLogs/{name}/main"), CLOSE, &|_| false);
    assert!(all.starts_with("HTTP/1.1 200"), "{all}");
    assert!(["one\n", "two\n", "three\n"].iter().all(|line| all.contains(line)), "{all}");
    let tail = get(&format!("/containerLogs/{name}/main?tailLines=1&timestamps=true"), CLOSE, &|_| false);
    assert!(tail.contains("Z ") || tail.contains(":00 "), "{tail}");
    let lines = |text: &str| ["one\n", "two\n", "three\n"].iter().filter(|line| text.contains(*line)).count();
    assert_eq!(lines(&tail), 1, "{tail}");

    let body =
        ask(&node, &certificates, true, &format!("POST /run/{name}/main?cmd=echo%20said"), CLOSE, |_| false);
    assert!(body.ends_with("said\n"), "{body}");

    // The words come last: a command whose reader has gone is ended.
    let exec =
        format!("/exec/{name}/main?command=sh&command=-c&command=touch+/tmp/go;echo+streamed&output=1");
    let streamed = get(&exec, UPGRADE, &|text| text.contains("streamed"));
    assert!(streamed.starts_with("HTTP/1.1 101"), "{streamed}");
    assert!(streamed.contains("streamed\n"), "{streamed}");
    let newer = UPGRADE.replace("v4.channel", "v5.channel");
    let exec = format!("/exec/{name}/main?command=sh&command=-c&command=echo+newer;exit+3&output=1");
    let streamed = get(&exec, &newer, &|text| text.contains("\"message\":\"3\""));
    assert!(streamed.starts_with("HTTP/1.1 101") && streamed.contains("newer\n"), "{streamed}");
    assert!(streamed.contains("\"reason\":\"ExitCode\",\"message\":\"3\""), "{streamed}");

    let followed =
        get(&format!("/containerLogs/{name}/main?follow=true"), CLOSE, &|text| text.contains("four"));
    assert!(followed.contains("four\n"), "{followed}");
    assert_eq!(node.log().matches("\"Audit\"").count(), 3, "one for run, two for exec:\n{}", node.log());
}

fn refused(environment: &Arc<Environment>) {
    let certificates = certificates();
    let (node, _files) = node(environment, "https-refused", &certificates, json!({}));
    for path in ["/pods", "/healthz", "/configz", "/exec/a/b/c?command=x&output=1"] {
        let answer = ask(&node, &certificates, false, &format!("GET {path}"), CLOSE, |_| false);
        assert!(answer.starts_with("HTTP/1.1 401") && answer.ends_with("Unauthorized"), "{path}: {answer}");
    }
    let answer = ask(&node, &certificates, true, "GET /pods", CLOSE, |_| false);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// A client needs no rights for a handshake, and it costs more than all else that a server does for one it turns away. The
/// threads of the calls to the runtime and to the API server are to know nothing of it.
fn threads(environment: &Arc<Environment>) {
    let certificates = certificates();
    let (node, _files) = node(environment, "https-threads", &certificates, json!({}));
    let request = || ask(&node, &certificates, false, "GET /pods", CLOSE, |_| false);
    request();
    let before = node.busy_ns();
    for _ in 0..200 {
        let answer = request();
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    }
    let after = node.busy_ns();
    // No machine shakes hands in a tenth of a millisecond.
    assert!(after["server"] - before["server"] > 200 * 100_000, "{before:?}, then {after:?}");
}

/// A runtime that tells its cgroup driver, as containerd since 2.0, overrides the file; the containerd of these tests
/// has cgroupfs.
fn configz(environment: &Arc<Environment>) {
    let tells = std::env::var("UNDERSTUDY_CONTAINERD_VERSION").is_ok_and(|version| version.starts_with('2'));
    let certificates = certificates();
    let configured = if tells { "systemd" } else { "cgroupfs" };
    let (node, _files) = node(environment, "configz", &certificates, json!({"cgroupDriver": configured}));
    let answer = ask(&node, &certificates, true, "GET /configz", CLOSE, |_| false);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("\"cgroupDriver\":\"cgroupfs\""), "{answer}");
}
