//! A crowd of unknown callers at the HTTPS port of a node, each with a token that the API server has to review.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;
use testkit::process::eventually;

use crate::member::Member;
use crate::node::LATER;
use crate::setting::Setting;
use crate::spec::{containers, sleeper};

const CLIENTS: usize = 4;
/// The wait of a client between two requests: together they ask for four times as many reviews as the kubelet has calls.
const PACE: Duration = Duration::from_millis(100);
/// The requests that come before the pod: more than the burst.
const BEFORE: usize = 200;
/// The most requests of one client.
const REQUESTS_MAX: usize = 600;
/// Requests of one client that are under way; with one more, the oldest hangs up.
const UNDER_WAY: usize = 25;
/// A pod takes a few seconds. Each of its calls would wait ten seconds behind the crowd, and it makes several, one after the
/// other.
const READY: Duration = Duration::from_secs(30);

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

/// What the crowd has done, and whether it may go.
#[derive(Default)]
struct Crowd {
    sent: AtomicUsize,
    over: AtomicBool,
}

impl Crowd {
    fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }

    /// Sends requests with tokens that were never seen before, and reads no answer.
    fn join(&self, server: SocketAddr, tls: &Arc<ClientConfig>, client: usize) {
        let name = ServerName::from(server.ip());
        let mut under_way = VecDeque::new();
        for n in 0..REQUESTS_MAX {
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            std::thread::sleep(PACE);
            let Ok(stream) = TcpStream::connect(server) else { continue };
            stream.set_nodelay(true).expect("an option of TCP");
            let connection = ClientConnection::new(Arc::clone(tls), name.clone()).expect("a client");
            let mut stream = StreamOwned::new(connection, stream);
            let asked = write!(
                stream,
                "GET /pods HTTP/1.1\r\nHost: kubelet\r\nAuthorization: Bearer random-{client}-{n}\r\n\r\n"
            );
            let asked = asked.and_then(|()| stream.flush()).is_ok();
            self.sent.fetch_add(usize::from(asked), Ordering::SeqCst);
            under_way.push_back(stream);
            if under_way.len() > UNDER_WAY {
                under_way.pop_front();
            }
        }
    }
}

pub fn random_tokens(setting: &Arc<Setting>) {
    // Few calls a second: if the unknown callers took any of them, other callers would wait for minutes.
    let few = json!({"kubeAPIQPS": 10, "kubeAPIBurst": 20});
    let member = Member::prepared(setting, "strangers", few, |_| ());
    let server = SocketAddr::new(setting.ip, member.node.server.0.port());
    let tls = trusting(&setting.plane.join("pki/ca.crt"));
    let crowd = Crowd::default();
    let (took, meanwhile) = std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (crowd, tls) = (&crowd, &tls);
            scope.spawn(move || crowd.join(server, tls, client));
        }
        let ended = Ended(&crowd.over);
        eventually("the crowd is there", LATER, || match crowd.sent() {
            sent if sent >= BEFORE => Ok(()),
            sent => Err(format!("{sent} requests were sent")),
        });
        let (begun, before) = (Instant::now(), crowd.sent());
        member.pod("late", containers([sleeper("main")])).ready();
        let outcome = (begun.elapsed(), crowd.sent() - before);
        drop(ended);
        outcome
    });
    println!("a pod was Ready after {took:?}, and {meanwhile} requests");
    assert!(meanwhile > 0, "the crowd went on");
    assert!(took < READY, "the pod was Ready after {took:?}");
}

/// Ends the crowd when it is dropped, also by a panic.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
