//! Pods of a manifest URL.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::process::{eventually, holds};

use crate::Alone;
use crate::environment::Environment;
use crate::node::{Node, Options, SOON};
use crate::pod::PodFile;
use crate::spec::{containers, sleeper};

pub const ALL: &[(&str, Alone)] = &[("pods_come_from_a_url", pods)];

const TOKEN: &str = "Bearer not-to-be-shown";

/// A server that gives every caller with the token the same answer.
struct Server {
    address: SocketAddr,
    answer: Arc<Mutex<(u16, String)>>,
    asked: Arc<AtomicUsize>,
    ends: Arc<AtomicBool>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let answer = Arc::new(Mutex::new((503, String::new())));
        let (asked, ends) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let server = Self { address, answer: answer.clone(), asked: asked.clone(), ends: ends.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(mut stream) = stream else { continue };
                let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
                while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                    match stream.read(&mut buffer) {
                        Ok(0) | Err(_) => break,
                        Ok(read) => request.extend_from_slice(&buffer[..read]),
                    }
                }
                let knows_token = String::from_utf8_lossy(&request).contains(TOKEN);
                let (status, body) = if knows_token {
                    answer.lock().unwrap_or_else(PoisonError::into_inner).clone()
                } else {
                    (401, String::new())
                };
                let head = format!(
                    "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                // The caller may have closed the connection.
                let _ = stream.write_all((head + &body).as_bytes());
                asked.fetch_add(1, Ordering::SeqCst);
            }
        });
        server
    }

    fn serve(&self, status: u16, body: &Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = (status, body);
    }

    /// Waits until the server has been asked twice more: its present answer has been taken in by then.
    fn asked_again(&self) {
        let before = self.asked.load(Ordering::SeqCst);
        eventually("the URL is asked again", SOON, || match self.asked.load(Ordering::SeqCst) {
            now if now >= before + 2 => Ok(()),
            now => Err(format!("{before} then, {now} now")),
        });
    }

    fn stop(&self) {
        self.ends.store(true, Ordering::SeqCst);
        // Its last connection, which makes it look at the flag to end.
        let _ = std::net::TcpStream::connect(self.address);
    }
}

fn pods(environment: &Arc<Environment>) {
    let server = Server::start();
    let url = format!("http://{}/pods", server.address);
    let options = Options {
        kubelet: json!({
            "staticPodURL": url, "staticPodURLHeader": {"Authorization": [TOKEN]}, "httpCheckFrequency": "1s",
        }),
        ..Options::default()
    };
    let node = Node::alone(environment, "manifest-url", options);
    let manifest = |name: &str, container: &str| {
        // The file is not written: only its content is served.
        PodFile::new(&node, name.to_owned()).manifest(containers([sleeper(container)]))
    };
    let served = |name: &str| PodFile::new(&node, name.to_owned());
    // Pods of files do not wait for a URL that does not answer.
    let file = node.pod("file", containers([sleeper("main")]));
    file.ready();
    let event = eventually("an event about the URL", SOON, || node.manifest_event("pods", &["503"]));
    assert_eq!(event.manifest, url);

    server.serve(200, &manifest("one", "main"));
    let one = served("one").ready();
    assert_eq!(one.text("/metadata/annotations/kubernetes.io~1config.source"), "http");
    server.serve(200, &manifest("one", "changed"));
    served("one").wait("another version of it", SOON, |pod| pod.uid() != one.uid() && pod.is_ready());
    served("one").gone(&one);

    let list = |pods: &[Value]| json!({"apiVersion": "v1", "kind": "PodList", "items": pods});
    server.serve(200, &list(&[manifest("one", "changed"), manifest("two", "main")]));
    let two = served("two").ready();
    let mut wrong = manifest("three", "main");
    wrong["spec"]["restartPolicy"] = json!("Perhaps");
    server.serve(200, &list(&[wrong]));
    eventually("an event about the field", SOON, || {
        node.manifest_event("pods", &["spec.restartPolicy", "Perhaps", url.as_str()])
    });
    let stays = || {
        let now = served("two").look()?;
        if now.uid() == two.uid() && now.is_ready() { Ok(()) } else { Err(now.status().to_string()) }
    };
    stays().expect("the last good version stays");
    server.serve(200, &list(&[manifest("two", "main")]));
    let one = served("one").look().expect("it is listed until now");
    served("one").gone(&one);
    stays().expect("it is not touched");

    server.serve(500, &Value::Null);
    server.asked_again();
    stays().expect("pods stay while the server has trouble");
    server.stop();
    holds("pods stay while the server is away", Duration::from_secs(5), stays);
    assert_eq!(served("two").running(two.uid()).len(), 1);
    let log = node.log_tail();
    assert!(!log.contains(TOKEN), "the token is in the log");
    let supervision = node.read_only.text("/supervision").expect("an answer");
    assert!(!supervision.contains(TOKEN) && supervision.contains(&url), "{supervision}");
}
