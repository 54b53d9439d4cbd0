use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

use super::*;

fn http(host: &str, port: u16, path: &str) -> HttpProbe {
    HttpProbe {
        scheme: Scheme::Http,
        host: host.into(),
        port,
        path: path.into(),
        headers: vec![],
        timeout: Duration::from_secs(10),
        asker: "pod".into(),
    }
}

fn report(outcome: ProbeOutcome, output: impl Into<String>) -> Result<ProbeReport, ProbeError> {
    Ok(ProbeReport { outcome, output: output.into() })
}

/// Starts a server that answers so; returns its host and port.
trait Servers {
    async fn serve(&self, answer: FakeAnswer) -> (String, u16);
}

async fn contract(prober: Arc<dyn Prober>, servers: &impl Servers) {
    use FakeAnswer as A;
    use ProbeOutcome as P;
    let respond = |status, body: &str| A::Respond { status, body: body.into(), after: Duration::ZERO };
    for (answer, expected) in [
        (respond(200, "ok"), report(P::Success, "ok")),
        (respond(299, ""), report(P::Success, "")),
        (respond(302, "moved"), report(P::Warning, "Probe terminated redirects, Response body: moved")),
        (respond(304, ""), report(P::Warning, "Probe terminated redirects, Response body: ")),
        (respond(404, "secret"), report(P::Failure, "HTTP probe failed with statuscode: 404")),
        (respond(500, "secret"), report(P::Failure, "HTTP probe failed with statuscode: 500")),
        (A::BreakOff("unexpected EOF".into()), Err(ProbeError::Body("unexpected EOF".into()))),
        (respond(200, &"x".repeat(BODY_BYTES_MAX * 3)), report(P::Success, "x".repeat(BODY_BYTES_MAX))),
    ] {
        let (host, port) = servers.serve(answer.clone()).await;
        assert_eq!(prober.http_get(http(&host, port, "/healthz")).await, expected, "{answer:?}");
    }

    for (answer, status) in [(respond(204, ""), 204), (respond(500, "no"), 500), (A::PlainOnly, 200)] {
        let (host, port) = servers.serve(answer.clone()).await;
        assert_eq!(prober.request(http(&host, port, "/hook")).await, Ok(status), "{answer:?}");
    }
    let short = Duration::from_millis(200);
    let (host, port) = servers.serve(A::Hang).await;
    let late = prober.http_get(HttpProbe { timeout: short, ..http(&host, port, "/x") }).await;
    let words = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
    assert_eq!(late, report(P::Failure, format!("Get \"http://{host}:{port}/x\": {words}")));
    let tcp = |host: &str, port| TcpProbe { host: host.into(), port, timeout: short, asker: "pod".into() };
    assert_eq!(prober.tcp(tcp(&host, port)).await, report(P::Success, ""));

    let (host, port) = servers.serve(A::Refuse).await;
    let refused = format!("dial tcp {host}:{port}: connect: connection refused");
    assert_eq!(prober.tcp(tcp(&host, port)).await, report(P::Failure, &refused));
    let expected = report(P::Failure, format!("Get \"http://{host}:{port}/\": {refused}"));
    assert_eq!(prober.http_get(http(&host, port, "")).await, expected);

    let grpc = |host: &str, port, service: &str| GrpcProbe {
        host: host.into(),
        port,
        service: service.into(),
        timeout: Duration::from_secs(2),
    };
    let nobody = |host: &str, port| {
        let words = "within 2s: context deadline exceeded";
        report(P::Failure, format!("timeout: failed to connect service \"{host}:{port}\" {words}"))
    };
    assert_eq!(prober.grpc(grpc(&host, port, "")).await, nobody(&host, port));
    for mute in [A::Hang, respond(200, "ok")] {
        let (host, port) = servers.serve(mute).await;
        assert_eq!(prober.grpc(grpc(&host, port, "")).await, nobody(&host, port));
    }
    let services = [
        ("", FakeHealth::Serving),
        ("bad", FakeHealth::NotServing),
        ("mute", FakeHealth::Silent),
        ("plain", FakeHealth::Unimplemented),
    ];
    let services = services.map(|(name, health)| (name.to_owned(), health)).into();
    let (host, port) = servers.serve(A::Health(services)).await;
    for (service, outcome, output) in [
        ("", P::Success, "service healthy"),
        ("bad", P::Failure, "service unhealthy (responded with \"NOT_SERVING\")"),
        ("mute", P::Failure, "timeout: health rpc did not complete within 2s"),
        (
            "plain",
            P::Failure,
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): \
             unknown service grpc.health.v1.Health",
        ),
        (
            "other",
            P::Failure,
            "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service",
        ),
    ] {
        assert_eq!(prober.grpc(grpc(&host, port, service)).await, report(outcome, output), "{service}");
    }
}

struct Scripts(FakeProber, Mutex<u16>);

impl Servers for Scripts {
    async fn serve(&self, answer: FakeAnswer) -> (String, u16) {
        let mut port = self.1.lock().unwrap();
        *port += 1;
        self.0.set("10.0.0.1", *port, answer);
        ("10.0.0.1".into(), *port)
    }
}

#[tokio::test(start_paused = true)]
async fn fake_probes_keep_the_contract() {
    let prober = FakeProber::new();
    contract(Arc::new(prober.clone()), &Scripts(prober, Mutex::new(8000))).await;
}

#[tokio::test(start_paused = true)]
async fn a_fake_answers_in_turn_and_counts() {
    let prober = FakeProber::new();
    prober.set("10.0.0.1", 80, FakeAnswer::status(200));
    prober.push("10.0.0.1", 80, [FakeAnswer::status(500), FakeAnswer::Lost]);
    let probe =
        TcpProbe { host: "10.0.0.1".into(), port: 80, timeout: Duration::from_secs(1), asker: "pod".into() };
    let get = || prober.http_get(http("10.0.0.1", 80, "/"));
    assert_eq!(get().await.unwrap().outcome, ProbeOutcome::Failure);
    let lost = prober.tcp(probe).await;
    assert_eq!(lost, report(ProbeOutcome::Failure, "dial tcp 10.0.0.1:80: i/o timeout"));
    assert_eq!(get().await.unwrap().outcome, ProbeOutcome::Success);
    let after = Duration::from_secs(10);
    prober.set("10.0.0.1", 80, FakeAnswer::Respond { status: 200, body: String::new(), after });
    assert_eq!(get().await.unwrap().outcome, ProbeOutcome::Failure, "as late as the timeout is too late");
    assert_eq!(prober.probes("10.0.0.1", 80), 4);
    assert_eq!(prober.probes("10.0.0.1", 81), 0);

    prober.set("10.0.0.1", 8443, FakeAnswer::PlainOnly);
    let tls = HttpProbe { scheme: Scheme::Https, ..http("10.0.0.1", 8443, "/hook") };
    // The wording of a real server's error, which another test checks.
    let words = "Get \"https://10.0.0.1:8443/hook\": http: server gave HTTP response to HTTPS client";
    assert_eq!(prober.request(tls).await, Err(RequestError::NoAnswer(words.to_owned())));
}

/// Reads a request's head.
async fn head(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => bytes.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// A server on this machine that answers each request with `answer(head)` and closes; returns its port and the heads it
/// saw.
async fn raw_server(answer: impl Fn(&str) -> String + Send + 'static) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let heads = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let head = head(&mut stream).await;
            let response = answer(&head);
            heads.lock().unwrap().push(head);
            let _ = stream.write_all(response.as_bytes()).await;
        }
    });
    (port, seen)
}

fn response(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}

#[derive(Default)]
struct Sockets {
    silent: Mutex<Vec<TcpListener>>,
    health: Mutex<Vec<HealthServer>>,
}

impl Servers for Sockets {
    async fn serve(&self, answer: FakeAnswer) -> (String, u16) {
        let port = match answer {
            FakeAnswer::Refuse => {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                listener.local_addr().unwrap().port()
            }
            FakeAnswer::PlainOnly => raw_server(|_| response("200 OK", "", "")).await.0,
            FakeAnswer::Hang => {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let port = listener.local_addr().unwrap().port();
                self.silent.lock().unwrap().push(listener);
                port
            }
            FakeAnswer::Respond { status: 304, body, .. } => {
                raw_server(move |_| format!("HTTP/1.1 304 Not Modified\r\n\r\n{body}")).await.0
            }
            FakeAnswer::Respond { status, body, .. } => {
                let elsewhere = if status == 302 { "Location: http://elsewhere.example/\r\n" } else { "" };
                raw_server(move |_| response(&format!("{status} X"), elsewhere, &body)).await.0
            }
            FakeAnswer::BreakOff(_) => {
                raw_server(|_| "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this".into()).await.0
            }
            FakeAnswer::Health(services) => {
                let server = HealthServer::start(([127, 0, 0, 1], 0).into()).unwrap();
                services.iter().for_each(|(name, health)| server.set(name, *health));
                let port = server.address().port();
                self.health.lock().unwrap().push(server);
                port
            }
            FakeAnswer::Lost => panic!("packets are not lost on this machine"),
        };
        ("127.0.0.1".into(), port)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_probes_keep_the_contract() {
    contract(Arc::new(NetProber::new(Handle::current())), &Sockets::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grpc_probe_says_who_asks_and_waits_for_a_server_that_comes_late() {
    let prober = NetProber::new(Handle::current());
    // The port is bound, so that no other process takes it; connections are refused until it listens.
    let bound = tokio::net::TcpSocket::new_v4().unwrap();
    bound.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let port = bound.local_addr().unwrap().port();
    let probe =
        GrpcProbe { host: "127.0.0.1".into(), port, service: "a".into(), timeout: Duration::from_secs(60) };
    let asked = tokio::spawn(prober.grpc(probe));
    tokio::task::yield_now().await;
    let server = HealthServer::on(bound.listen(8).unwrap().into_std().unwrap()).unwrap();
    server.set("a", FakeHealth::Serving);
    let answer = asked.await.unwrap().unwrap();
    // The probe may have come before the server had its answer.
    let early = "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service";
    assert!(answer.output == "service healthy" || answer.output == early, "{answer:?}");
    assert_eq!(server.agents(), [USER_AGENT]);
}

/// Says SERVING, and then a mebibyte that no health check has.
#[derive(Clone)]
struct Talkative;

impl tonic::server::NamedService for Talkative {
    const NAME: &'static str = "grpc.health.v1.Health";
}

impl tower::Service<http::Request<tonic::body::Body>> for Talkative {
    type Response = http::Response<tonic::body::Body>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<tonic::body::Body>) -> Self::Future {
        // Field 1 is the status, field 15 one of 2^20 bytes.
        let mut message = vec![0x08, 1, 0x7a, 0x80, 0x80, 0x40];
        message.resize(message.len() + (1 << 20), b'x');
        let mut framed = vec![0];
        framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        framed.extend(message);
        let body = tonic::body::Body::new(http_body_util::Full::new(bytes::Bytes::from(framed)));
        let answer = http::Response::builder().header("content-type", "application/grpc");
        std::future::ready(Ok(answer.body(body).unwrap()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_health_server_that_says_too_much_is_not_heard_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tonic::transport::Server::builder().add_service(Talkative);
    let _server =
        tokio::spawn(server.serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener)));
    let timeout = Duration::from_secs(60);
    let probe = GrpcProbe { host: "127.0.0.1".into(), port, service: String::new(), timeout };
    let answer = NetProber::new(Handle::current()).grpc(probe).await.unwrap();
    assert_eq!(answer.outcome, ProbeOutcome::Failure);
    let told = "error: health rpc probe failed: rpc error: code = OutOfRange desc = Error, decoded message length too large";
    assert!(answer.output.starts_with(told), "{answer:?}");
}

#[tokio::test]
async fn connections_linger_for_a_second() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let socket = socket::Socket::connect(listener.local_addr().unwrap()).await.unwrap();
    assert_eq!(socket.linger(), Some(socket::LINGER));
}

fn lines(head: &str) -> Vec<&str> {
    head.trim_end().split("\r\n").collect()
}

#[tokio::test]
async fn what_a_probe_sends() {
    let prober = NetProber::new(Handle::current());
    let (port, seen) = raw_server(|_| response("200 OK", "", "")).await;
    prober.http_get(http("127.0.0.1", port, "healthz?a=b c")).await.unwrap();
    let given =
        [("host", "custom.example"), ("X-A", "1"), ("X-A", "2"), ("Accept", ""), ("User-Agent", "mine")];
    let headers = given.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    prober.http_get(HttpProbe { headers, ..http("127.0.0.1", port, "/") }).await.unwrap();
    let seen = seen.lock().unwrap();
    let mut first = lines(&seen[0]);
    first.sort();
    assert_eq!(
        first,
        [
            "Accept: */*",
            "Connection: close",
            "GET /healthz?a=b%20c HTTP/1.1",
            &format!("Host: 127.0.0.1:{port}"),
            "User-Agent: kube-probe/1.36",
        ]
    );
    let mut second = lines(&seen[1]);
    second.sort();
    assert_eq!(
        second,
        [
            "Connection: close",
            "GET / HTTP/1.1",
            "Host: custom.example",
            "User-Agent: mine",
            "X-A: 1",
            "X-A: 2"
        ]
    );
}

#[tokio::test]
async fn redirects_on_the_same_host_are_followed_up_to_ten_requests() {
    let prober = NetProber::new(Handle::current());
    // The path /n redirects to /n-1, and /0 answers.
    let (port, seen) = raw_server(|head| {
        let left: u32 = head.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
        match left {
            0 => response("200 OK", "", "end"),
            left => response("302 Found", &format!("Location: {}\r\n", left - 1), "on"),
        }
    })
    .await;
    let headers = vec![("Host".to_owned(), "custom.example".to_owned())];
    let probe = HttpProbe { headers, ..http("127.0.0.1", port, "/9") };
    assert_eq!(prober.http_get(probe).await, report(ProbeOutcome::Success, "end"));
    {
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 10);
        assert!(lines(&seen[9]).contains(&"Host: custom.example"));
        assert!(seen[9].contains(&format!("Referer: http://127.0.0.1:{port}/1\r\n")), "{}", seen[9]);
    }
    let many = prober.http_get(http("127.0.0.1", port, "/10")).await;
    assert_eq!(many, report(ProbeOutcome::Failure, "Get \"0\": stopped after 10 redirects"));
}

#[tokio::test]
async fn a_redirect_to_another_port_of_the_host_is_followed_and_one_without_a_place_is_a_warning() {
    let prober = NetProber::new(Handle::current());
    let (end, _) = raw_server(|_| response("200 OK", "", "there")).await;
    let (port, _) = raw_server(move |head| {
        let location = format!("Location: http://127.0.0.1:{end}/\r\n");
        response("301 Moved", if head.starts_with("GET /lost") { "" } else { &location }, "nowhere")
    })
    .await;
    assert_eq!(prober.http_get(http("127.0.0.1", port, "/")).await, report(ProbeOutcome::Success, "there"));
    assert_eq!(
        prober.http_get(http("127.0.0.1", port, "/lost")).await,
        report(ProbeOutcome::Warning, "Probe terminated redirects, Response body: nowhere")
    );
}

#[tokio::test]
async fn a_redirect_to_an_endless_address_has_a_text_for_people() {
    let prober = NetProber::new(Handle::current());
    for location in
        ["x".repeat(200_000), format!("http://{}", "[".repeat(200_000)), "s".repeat(200_000) + "://"]
    {
        let (port, _) =
            raw_server(move |_| response("302 Found", &format!("Location: {location}\r\n"), "")).await;
        let answer = prober.http_get(http("127.0.0.1", port, "/")).await.expect("a failure");
        assert_eq!(answer.outcome, ProbeOutcome::Failure);
        assert!(answer.output.len() < 3000 && answer.output.contains('…'), "{}", answer.output.len());
    }
}

#[tokio::test]
async fn a_body_that_does_not_end_in_time_is_an_error_not_a_failure() {
    let prober = NetProber::new(Handle::current());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await.unwrap();
        std::future::pending::<()>().await;
    });
    let probe = HttpProbe { timeout: Duration::from_millis(300), ..http("127.0.0.1", port, "/") };
    let error = prober.http_get(probe).await.unwrap_err();
    let words = "context deadline exceeded (Client.Timeout or context cancellation while reading body)";
    assert_eq!(error.to_string(), words);
}

#[tokio::test]
async fn an_endless_body_is_cut() {
    let prober = NetProber::new(Handle::current());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let endless = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
    });
    let expected = report(ProbeOutcome::Success, "x".repeat(BODY_BYTES_MAX));
    assert_eq!(prober.http_get(http("127.0.0.1", port, "/")).await, expected);
    // The connection is closed after the report.
    tokio::time::timeout(Duration::from_secs(10), endless).await.expect("the connection is closed").unwrap();
}

#[tokio::test]
async fn broken_servers_and_names_fail_in_known_words() {
    let prober = NetProber::new(Handle::current());
    let output = async |probe: HttpProbe| match prober.http_get(probe).await {
        Ok(ProbeReport { outcome: ProbeOutcome::Failure, output }) => output,
        other => panic!("{other:?}"),
    };
    let (port, _) = raw_server(|_| String::new()).await;
    assert_eq!(output(http("127.0.0.1", port, "/")).await, format!("Get \"http://127.0.0.1:{port}/\": EOF"));
    let (port, _) = raw_server(|_| "no http at all\r\n\r\n".into()).await;
    assert!(output(http("127.0.0.1", port, "/")).await.contains("malformed HTTP response"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plain = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(response("400 Bad Request", "", "").as_bytes()).await.unwrap();
        // Closing a socket with unread bytes would reset it, and the answer would be lost.
        let _ = stream.read(&mut [0; 4096]).await;
    });
    let https = output(HttpProbe { scheme: Scheme::Https, ..http("127.0.0.1", plain, "/") }).await;
    assert!(https.ends_with("http: server gave HTTP response to HTTPS client"), "{https}");
    let nobody = output(http("does-not-exist.invalid", 80, "/")).await;
    assert!(nobody.ends_with("dial tcp: lookup does-not-exist.invalid: no such host"), "{nobody}");
    let headers = vec![("not a name".to_owned(), "1".to_owned())];
    let bad = output(HttpProbe { headers, ..http("127.0.0.1", port, "/") }).await;
    assert!(bad.ends_with("net/http: invalid header field name \"not a name\""), "{bad}");
}

/// A TLS server with a certificate that cannot even be parsed: the probe must not look at it.
async fn tls_server(alpn: &[&[u8]]) -> u16 {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
    use rustls::server::{ClientHello, ResolvesServerCert};
    use rustls::sign::CertifiedKey;

    #[derive(Debug)]
    struct Always(Arc<CertifiedKey>);
    impl ResolvesServerCert for Always {
        fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            Some(Arc::clone(&self.0))
        }
    }
    // PKCS#8 of an Ed25519 key; its seed may be any 32 bytes.
    let prefix = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from([&prefix[..], &[7; 32]].concat()));
    let key = rustls::crypto::ring::sign::any_eddsa_type(match &key {
        PrivateKeyDer::Pkcs8(key) => key,
        _ => unreachable!(),
    })
    .unwrap();
    let certificate = CertificateDer::from(b"not a certificate".to_vec());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Always(Arc::new(CertifiedKey::new(vec![certificate], key)))));
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                serve_tls(stream).await;
            }
        }
    });
    port
}

async fn serve_tls(mut stream: tokio_rustls::server::TlsStream<TcpStream>) {
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        head(&mut stream).await;
        let _ = stream.write_all(response("200 OK", "", "over HTTP/1.1").as_bytes()).await;
        let _ = stream.shutdown().await;
        return;
    }
    // Reads the client's preface and first frames, then sends the shortest HTTP/2 response: our settings, and on stream
    // 1 a head with the single field `:status: 204`, number 9 of the static table.
    let mut buffer = [0; 1024];
    let _ = stream.read(&mut buffer).await;
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let headers = [0, 0, 1, 1, 5, 0, 0, 0, 1, 0x89];
    let _ = stream.write_all(&[&settings[..], &headers[..]].concat()).await;
    while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
}

#[tokio::test]
async fn tls_is_not_verified_and_speaks_both_versions_of_http() {
    let prober = NetProber::new(Handle::current());
    for (alpn, expected) in
        [(&[][..], "over HTTP/1.1"), (&[&b"http/1.1"[..]][..], "over HTTP/1.1"), (&[&b"h2"[..]][..], "")]
    {
        let port = tls_server(alpn).await;
        let probe = HttpProbe { scheme: Scheme::Https, ..http("127.0.0.1", port, "/") };
        assert_eq!(prober.http_get(probe).await, report(ProbeOutcome::Success, expected), "{alpn:?}");
    }
}

#[tokio::test]
async fn dropping_a_probe_closes_its_connection() {
    let prober = NetProber::new(Handle::current());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let probe = prober.http_get(http("127.0.0.1", port, "/"));
    let (mut stream, _) = listener.accept().await.unwrap();
    head(&mut stream).await;
    drop(probe);
    let end = tokio::time::timeout(Duration::from_secs(5), stream.read_u8()).await;
    assert!(end.expect("it is closed at once, not at the timeout of 10 s").is_err());
}
