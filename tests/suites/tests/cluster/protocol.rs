//! kubectl's protocols without kubectl: logs and commands through the API server. Copying is a command (`tar`), and
//! ports are forwarded by a protocol inside a WebSocket's, which only the cases of kubectl show.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use testkit::process::{eventually, heard};

use crate::Shared;
use crate::member::Member;
use crate::node::SOON;
use crate::spec::{containers, shell};

pub const ALL: &[(&str, Shared)] =
    &[("logs_come_through_the_api_server", logs), ("commands_and_attachments_go_through_it", upgrades)];

/// Longest wait for bytes of an answer.
const PATIENCE: Duration = Duration::from_secs(60);
const CLOSE: &str = "Connection: close\r\n";
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: ";

fn connect(plane: &Path) -> Result<StreamOwned<ClientConnection, TcpStream>, String> {
    let pem = |name: &str| fs::read(plane.join("pki").join(name)).expect("the control plane's keys");
    let certificate = |name: &str| CertificateDer::from_pem_slice(&pem(name)).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate("ca.crt")).expect("an authority");
    let key = PrivateKeyDer::from_pem_slice(&pem("admin.key")).expect("a key");
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has suites for them")
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate("admin.crt")], key)
        .expect("a pair");
    let port = fs::read_to_string(plane.join("port")).expect("the control plane's port");
    let failed = |error: std::io::Error| error.to_string();
    let stream = TcpStream::connect(format!("127.0.0.1:{}", port.trim())).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let name = ServerName::try_from("localhost").expect("a host's name");
    let tls = ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
    Ok(StreamOwned::new(tls, stream))
}

/// The answer to a request, read until `enough` or the end; `headers` are lines.
fn get(member: &Member, path: &str, headers: &str, enough: impl Fn(&str) -> bool) -> String {
    let mut stream = connect(&member.setting.plane).expect("the API server listens");
    let path = format!("/api/v1/namespaces/{}/pods/{path}", member.name);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").expect("the request goes out");
    heard(&mut stream, enough)
}

fn logs(member: &Member) {
    let script =
        "echo one; echo two; while ! [ -e /tmp/go ]; do sleep 0.1; done; echo three; exec sleep 100000";
    let pod = member.pod("heard", containers([shell("main", script)]));
    let seen = pod.ready();
    let name = pod.name();
    eventually("both lines", SOON, || match get(member, &format!("{name}/log"), CLOSE, |_| false) {
        all if all.starts_with("HTTP/1.1 200") && all.contains("one\ntwo\n") => Ok(()),
        all => Err(all),
    });
    let tail = get(member, &format!("{name}/log?tailLines=1"), CLOSE, |_| false);
    assert!(tail.contains("two\n") && !tail.contains("one\n"), "{tail}");
    let other = get(member, &format!("{name}/log?previous=true"), CLOSE, |_| false);
    assert!(other.starts_with("HTTP/1.1 400") && other.contains("previous terminated container"), "{other}");
    let pid = member.node.cri.pid(seen.container_id("main"));
    let go = format!("/proc/{pid}/root/tmp/go");
    let followed = get(member, &format!("{name}/log?follow=true"), CLOSE, |text| {
        if text.contains("two") {
            fs::write(&go, "").expect("a file in the container");
        }
        text.contains("three")
    });
    assert!(followed.contains("three\n"), "{followed}");
}

fn upgrades(member: &Member) {
    let pod = member.pod("commanded", containers([shell("main", "while :; do echo tick; sleep 0.2; done")]));
    pod.ready();
    let name = pod.name();
    // The API server sends both on: the kubelet translates the newest protocol, and the runtime speaks the older one.
    for protocol in ["v5.channel.k8s.io", "v4.channel.k8s.io"] {
        let headers = format!("{UPGRADE}{protocol}\r\n");
        let exec = format!(
            "{name}/exec?command=sh&command=-c&command=echo+said%3Becho+wrong+%3E%262%3Bexit+3&stdout=1&stderr=1"
        );
        let said = get(member, &exec, &headers, |text| text.contains("ExitCode"));
        assert!(said.starts_with("HTTP/1.1 101") && said.contains(protocol), "{said}");
        for words in ["said\n", "wrong\n", "NonZeroExitCode", "\"3\""] {
            assert!(said.contains(words), "{protocol}: {words} in {said}");
        }
        let attach = format!("{name}/attach?stdout=1");
        let heard = get(member, &attach, &headers, |text| text.contains("tick"));
        assert!(heard.starts_with("HTTP/1.1 101") && heard.contains("tick\n"), "{heard}");
    }
    let translated = member.node.metric("kubelet_websocket_streaming_requests_total").expect("it is counted");
    assert!(translated >= 2.0, "exec and attach: {translated}");
    let headers = format!("{UPGRADE}v4.channel.k8s.io\r\n");
    let unknown = format!("{name}/exec?command=true&stdout=1&container=none");
    let unknown = get(member, &unknown, &headers, |text| text.contains("\r\n\r\n"));
    assert!(unknown.starts_with("HTTP/1.1 4"), "{unknown}");
}
