//! A server with TLS that answers as a kubelet's authenticated port does, and the certificates for it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

/// The token of the caller that may do everything.
pub const TOKEN: &str = "secret-token";
/// The token of a caller that may do nothing.
pub const POWERLESS: &str = "powerless-token";

/// A certificate and its key, PEM.
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn sign(&self, names: Vec<String>, purpose: ExtendedKeyUsagePurpose) -> Identity {
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, "jane");
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// The identity of a server with this name or address.
    pub fn server(&self, name: &str) -> Identity {
        self.sign(vec![name.to_owned()], ExtendedKeyUsagePurpose::ServerAuth)
    }

    pub fn client(&self) -> Identity {
        self.sign(Vec::new(), ExtendedKeyUsagePurpose::ClientAuth)
    }
}

/// An answer of the server: status, and the parts of its body. One that does not end is cut off after the last part.
pub struct Answer {
    pub status: &'static str,
    pub parts: Vec<Vec<u8>>,
    pub ends: bool,
}

impl Answer {
    pub fn whole(status: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, parts: vec![body.into()], ends: true }
    }
}

type Answering = Arc<dyn Fn(&str) -> Answer + Send + Sync>;

/// A running server, with the directory of the files for its callers.
pub struct Kubelet {
    pub url: String,
    pub directory: tempfile::TempDir,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Kubelet {
    /// Begins to serve on 127.0.0.1 with a certificate for this name; callers with the token or a certificate are answered.
    pub fn start(name: &str, answering: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let authority = Authority::named("authority");
        let own = authority.server(name);
        Self::start_with(&authority, &own, answering)
    }

    /// The same with a certificate that the server has signed itself; it is also the file `own.crt`.
    pub fn self_signed(name: &str, answering: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, format!("{name}@1"));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        let own = Identity { certificate, key: key.serialize_pem() };
        let started = Self::start_with(&Authority::named("authority"), &own, answering);
        write(started.directory.path(), "own.crt", &own.certificate);
        started
    }

    fn start_with(
        authority: &Authority,
        own: &Identity,
        answering: impl Fn(&str) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        let client = authority.client();
        write("ca.crt", &authority.pem);
        write("client.crt", &client.certificate);
        write("client.key", &client.key);
        write("token", TOKEN);
        write("powerless", POWERLESS);
        write("other-ca.crt", &Authority::named("another authority").pem);
        let config = Arc::new(config(authority, own));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let answering: Answering = Arc::new(answering);
        let log = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, config) = (stream.unwrap(), config.clone());
                let (answering, log) = (answering.clone(), log.clone());
                std::thread::spawn(move || serve(stream, config, &answering, &log));
            }
        });
        Self { url, directory, asked }
    }

    /// The path of one of the callers' files.
    pub fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// The flags that name the server, its authority, and the caller's token.
    pub fn flags(&self) -> Vec<String> {
        let flags = ["--server", &self.url, "--certificate-authority", &self.file("ca.crt")];
        let token = ["--token-file", &self.file("token")];
        flags.into_iter().chain(token).map(str::to_owned).collect()
    }

    /// The targets of the requests so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// Runs the program with these words and the flags of the server.
    pub fn said(&self, words: &[&str]) -> (i32, String, String) {
        let flags = self.flags();
        said(&[words, &flags.iter().map(String::as_str).collect::<Vec<_>>()].concat())
    }
}

/// The exit code, and what was written to standard output and standard error.
pub fn said(words: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_understudy"));
    let output = command.args(words).output().expect("the program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("it ends by itself"), text(&output.stdout), text(&output.stderr))
}

pub fn write(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn config(authority: &Authority, server: &Identity) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let verifier = verifier.allow_unauthenticated().build().unwrap();
    let chain = vec![CertificateDer::from_pem_slice(server.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(server.key.as_bytes()).unwrap();
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .unwrap()
}

/// Answers one request. A caller that refuses the certificate sends none.
fn serve(stream: TcpStream, config: Arc<ServerConfig>, answering: &Answering, log: &Mutex<Vec<String>>) {
    let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
    log.lock().unwrap().push(target.clone());
    let bears =
        |token: &str| head.to_ascii_lowercase().contains(&format!("authorization: bearer {token}\r\n"));
    let answer = if bears(POWERLESS) {
        let text = "Forbidden (user=jane, verb=get, resource=nodes, subresource(s)=[pods proxy])\n";
        Answer::whole("403 Forbidden", text)
    } else if bears(TOKEN) || stream.conn.peer_certificates().is_some() {
        answering(&target)
    } else {
        Answer::whole("401 Unauthorized", "Unauthorized")
    };
    let begin = "transfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    let mut bytes = format!("HTTP/1.1 {}\r\n{begin}", answer.status).into_bytes();
    for part in answer.parts.iter().filter(|part| !part.is_empty()) {
        bytes.extend(format!("{:x}\r\n", part.len()).bytes().chain(part.iter().copied()).chain(*b"\r\n"));
    }
    if answer.ends {
        bytes.extend(b"0\r\n\r\n");
    }
    // A caller that has ended reads no answer.
    let _ = stream.write_all(&bytes);
    stream.conn.send_close_notify();
    let _ = stream.flush();
}

/// A node with a pod of two containers and an init container, in the namespace `default`.
pub fn pods() -> String {
    let status = |name: &str| {
        json!({
            "name": name, "image": "demo:1", "imageID": "", "restartCount": 0, "ready": true, "started": true,
            "state": { "running": {} },
        })
    };
    let web = json!({
        "metadata": { "namespace": "default", "name": "web", "uid": "u-1" },
        "spec": {
            "initContainers": [{ "name": "prepare" }],
            "containers": [{ "name": "app" }, { "name": "beside" }],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [status("app"), status("beside")],
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    });
    let mut one = web.clone();
    one["metadata"] = json!({ "namespace": "default", "name": "one", "uid": "u-2" });
    one["spec"] = json!({ "containers": [{ "name": "only" }] });
    one["status"]["containerStatuses"] = json!([status("only")]);
    json!({ "items": [web, one] }).to_string()
}

/// The answers of a kubelet with these pods, and with what `others` says of other targets.
pub fn answers(others: impl Fn(&str) -> Answer + Send + Sync + 'static) -> impl Fn(&str) -> Answer {
    move |target| match target {
        "/pods" => Answer::whole("200 OK", pods()),
        "/events" => Answer::whole("200 OK", json!({ "events": [] }).to_string()),
        "/supervision" => Answer::whole("200 OK", json!({ "actors": [] }).to_string()),
        other => others(other),
    }
}
