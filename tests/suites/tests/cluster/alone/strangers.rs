//! A crowd of unknown callers at the HTTPS port of a node, each with a token that the API server has to review.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;

use crate::member::Member;
use crate::setting::Setting;
use crate::spec::{containers, sleeper};

const REQUESTS: usize = 800;
const CLIENTS: usize = 8;
/// Requests of one client that are under way; with one more, the oldest hangs up.
const UNDER_WAY: usize = 25;
/// A pod takes a few seconds; behind the crowd it would wait for minutes.
const READY: Duration = Duration::from_secs(10);

fn trusting(authority: &Path) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).expect("a certificate")).expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has suites for them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// Sends requests with tokens that were never seen before, and reads no answer. Returns the number of requests.
fn crowd(server: SocketAddr, tls: &Arc<ClientConfig>, client: usize) -> usize {
    let name = ServerName::from(server.ip());
    let (mut under_way, mut sent) = (VecDeque::new(), 0);
    for n in 0..REQUESTS / CLIENTS {
        let Ok(stream) = TcpStream::connect(server) else { continue };
        stream.set_nodelay(true).expect("an option of TCP");
        let connection = ClientConnection::new(Arc::clone(tls), name.clone()).expect("a client");
        let mut stream = StreamOwned::new(connection, stream);
        let asked = write!(
            stream,
            "GET /pods HTTP/1.1\r\nHost: kubelet\r\nAuthorization: Bearer random-{client}-{n}\r\n\r\n"
        );
        sent += usize::from(asked.and_then(|()| stream.flush()).is_ok());
        under_way.push_back(stream);
        if under_way.len() > UNDER_WAY {
            under_way.pop_front();
        }
    }
    sent
}

pub fn random_tokens(setting: &Arc<Setting>) {
    // Few calls a second: if the unknown callers took any of them, other callers would wait for minutes.
    let few = json!({"kubeAPIQPS": 10, "kubeAPIBurst": 20});
    let member = Member::prepared(setting, "strangers", few, |_| ());
    let server = SocketAddr::new(setting.ip, member.node.server.0.port());
    let tls = trusting(&setting.plane.join("pki/ca.crt"));
    let begun = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let tls = Arc::clone(&tls);
            std::thread::spawn(move || crowd(server, &tls, client))
        })
        .collect();
    let sent: usize = clients.into_iter().map(|client| client.join().expect("a client")).sum();
    println!("{sent} requests in {:?}", begun.elapsed());
    assert!(sent > REQUESTS * 9 / 10, "{sent} requests were sent");
    let begun = Instant::now();
    let pod = member.pod("late", containers([sleeper("main")]));
    pod.ready();
    println!("after them a pod was Ready after {:?}", begun.elapsed());
    assert!(begun.elapsed() < READY, "the pod was Ready after {:?}", begun.elapsed());
}
