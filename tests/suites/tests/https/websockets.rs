//! WebSocket protocols that no runtime speaks, and a runtime over https (row 21.4).

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::client::TlsStream;
use tokio_util::task::AbortOnDropHandle;

use crate::client::{Authority, Client};
use crate::server::{Options, SOON, Server};

const FIVE: &str = "v5.channel.k8s.io";
const INSIDE: &str = "SPDY/3.1+portforward.k8s.io";

async fn start(options: Options) -> (Server, Client) {
    let server = Server::start(Options { always_allow: true, ..options }).await;
    let client = server.client(Some(&server.admin));
    (server, client)
}

async fn runtime() -> (TcpListener, Options) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let streaming = format!("http://{}", listener.local_addr().unwrap());
    (listener, Options { streaming, ..Options::default() })
}

/// A request or an answer up to its body.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Accepts a request on behalf of the runtime, and switches to SPDY with this version of the streams.
async fn switched(listener: &TcpListener, version: &str) -> (TcpStream, String) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let asked = head(&mut stream).await.to_ascii_lowercase();
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: {version}\r\n\r\n"
    );
    stream.write_all(answer.as_bytes()).await.unwrap();
    (stream, asked)
}

fn request(path: &str, protocol: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: kubelet\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: {protocol}\r\nAuthorization: Bearer secret\r\n\r\n"
    )
}

/// Opens a WebSocket, and checks that the caller hears of its own protocol.
async fn opened(client: &Client, path: &str, protocol: &str) -> TlsStream<TcpStream> {
    let mut stream = client.connect().await.unwrap();
    stream.write_all(request(path, protocol).as_bytes()).await.unwrap();
    let answer = head(&mut stream).await.to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 101"), "{answer}");
    for line in [
        "upgrade: websocket\r\n".to_owned(),
        format!("sec-websocket-protocol: {}\r\n", protocol.to_ascii_lowercase()),
        "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n".to_owned(),
    ] {
        assert!(answer.contains(&line), "{line}: {answer}");
    }
    stream
}

/// A frame of a caller, masked with zeros.
fn frame(first: u8, body: &[u8]) -> Vec<u8> {
    [&[first, 0x80 | u8::try_from(body.len()).unwrap(), 0, 0, 0, 0][..], body].concat()
}

/// The next short frame of the server: its first byte, and its body.
async fn heard(stream: &mut (impl AsyncRead + Unpin)) -> (u8, Vec<u8>) {
    let (first, len) = (stream.read_u8().await.unwrap(), stream.read_u8().await.unwrap());
    assert!(len < 126, "a short frame");
    let mut body = vec![0; usize::from(len)];
    stream.read_exact(&mut body).await.unwrap();
    (first, body)
}

/// The next frame of SPDY: its first word, flags, and the rest.
async fn spdy(stream: &mut TcpStream) -> (u32, u8, Vec<u8>) {
    let (word, flags_and_len) = (stream.read_u32().await.unwrap(), stream.read_u32().await.unwrap());
    let mut body = vec![0; usize::try_from(flags_and_len & 0x00ff_ffff).unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    (word, flags_and_len.to_be_bytes()[0], body)
}

async fn say(stream: &mut TcpStream, number: u8, ends: bool, body: &[u8]) {
    let len = u8::try_from(body.len()).unwrap();
    let frame = [&[0, 0, 0, number, u8::from(ends), 0, 0, len][..], body].concat();
    stream.write_all(&frame).await.unwrap();
}

#[tokio::test]
async fn channels_of_version_5_are_streams_of_the_runtime() {
    let (listener, options) = runtime().await;
    let (_server, client) = start(options).await;
    let runtime = async {
        let (mut stream, asked) = switched(&listener, "v4.channel.k8s.io").await;
        assert!(asked.starts_with("post /exec/"), "{asked}");
        assert!(asked.contains("x-stream-protocol-version: v4.channel.k8s.io\r\n"), "{asked}");
        assert!(!asked.contains("websocket") && !asked.contains("secret"), "{asked}");
        for (number, name) in [(1, "error"), (3, "stdin"), (5, "stdout")] {
            let (word, _, body) = spdy(&mut stream).await;
            assert_eq!((word, &body[..4]), (0x8003_0001, &[0, 0, 0, number][..]), "a stream is opened");
            let named = [&b"streamtype\0\0\0"[..], &[u8::try_from(name.len()).unwrap()], name.as_bytes()];
            let named = named.concat();
            assert!(body.windows(named.len()).any(|part| part == named), "{name}: {body:?}");
        }
        assert_eq!(spdy(&mut stream).await, (3, 0, b"in".to_vec()));
        assert_eq!(spdy(&mut stream).await, (3, 1, Vec::new()), "the end of input");
        say(&mut stream, 5, true, b"out").await;
        say(&mut stream, 1, true, br#"{"status":"Success"}"#).await;
        // The kubelet ends the connection.
        assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap(), 0);
    };
    let talk = async {
        let path = "/exec/default/web/main?command=cat&input=1&output=1";
        let mut stream = opened(&client, path, FIVE).await;
        assert_eq!(heard(&mut stream).await, (0x82, vec![1]), "the caller is connected");
        stream.write_all(&frame(0x82, b"\0in")).await.unwrap();
        stream.write_all(&frame(0x82, &[255, 0])).await.unwrap();
        assert_eq!(heard(&mut stream).await, (0x82, b"\x01out".to_vec()));
        assert_eq!(heard(&mut stream).await, (0x82, b"\x03{\"status\":\"Success\"}".to_vec()));
        assert_eq!(heard(&mut stream).await, (0x88, vec![0x03, 0xe8]));
    };
    tokio::time::timeout(SOON, async { tokio::join!(runtime, talk) }).await.expect("both sides speak");
    let (_, page) = client.get("/metrics").await;
    assert!(page.contains("kubelet_websocket_streaming_requests_total{subresource=\"exec\"} 1"), "{page}");
}

#[tokio::test]
async fn ports_are_forwarded_inside_a_websocket() {
    let (listener, options) = runtime().await;
    let (_server, client) = start(options).await;
    let runtime = async {
        let (mut stream, asked) = switched(&listener, "portforward.k8s.io").await;
        assert!(asked.starts_with("post /portforward/"), "{asked}");
        assert!(asked.contains("x-stream-protocol-version: portforward.k8s.io\r\n"), "{asked}");
        assert!(!asked.contains("websocket") && !asked.contains("secret"), "{asked}");
        let mut said = [0; 4];
        stream.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"ping");
        stream.write_all(b"pong").await.unwrap();
    };
    let talk = async {
        // The ports are named inside.
        let mut stream = opened(&client, "/portForward/default/web", INSIDE).await;
        stream.write_all(&[frame(0x02, b"pi"), frame(0x80, b"ng")].concat()).await.unwrap();
        assert_eq!(heard(&mut stream).await, (0x82, b"pong".to_vec()));
        assert_eq!(heard(&mut stream).await, (0x88, vec![0x03, 0xe8]), "the runtime has ended");
    };
    tokio::time::timeout(SOON, async { tokio::join!(runtime, talk) }).await.expect("both sides speak");
}

#[tokio::test]
async fn a_websocket_that_cannot_be_opened_is_answered_plainly() {
    let (listener, options) = runtime().await;
    let (_server, client) = start(options).await;
    let upgrade = |lines: [&'static str; 2]| {
        let common =
            ["Connection: Upgrade, close", "Upgrade: websocket", "Sec-WebSocket-Protocol: v5.channel.k8s.io"];
        [&common[..], &lines].concat()
    };
    let path = "/exec/default/web/main?command=sh&output=1";
    let (version, key) = ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==");
    for (method, lines) in [
        ("GET", [version, "Sec-WebSocket-Key: x"]),
        ("GET", ["Sec-WebSocket-Version: 8", key]),
        ("POST", [version, key]),
    ] {
        assert_eq!(client.ask(method, path, &upgrade(lines)).await.0, 400, "{method} {lines:?}");
    }
    // The runtime's own refusal, and one that is no agreement, before the caller's connection is a WebSocket.
    for (answer, status, words) in [
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone", 404, "gone"),
        (
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
             X-Stream-Protocol-Version: v1.channel.k8s.io\r\n\r\n",
            500,
            "v1.channel.k8s.io",
        ),
    ] {
        let runtime = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            head(&mut stream).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream
        };
        let lines = upgrade([version, key]);
        let (_stream, (got, text)) = tokio::join!(runtime, client.ask("GET", path, &lines));
        assert!(got == status && text.contains(words), "{got} {text}");
    }
}

/// With the gate off, the runtime itself is asked for what the caller offers.
#[tokio::test]
async fn without_the_gate_nothing_is_translated() {
    let (listener, options) = runtime().await;
    let (_server, client) = start(Options { websockets: false, ..options }).await;
    let mut stream = client.connect().await.unwrap();
    let path = "/exec/default/web/main?command=sh&output=1";
    stream.write_all(request(path, FIVE).as_bytes()).await.unwrap();
    let (mut asking, _) = tokio::time::timeout(SOON, listener.accept()).await.expect("a request").unwrap();
    let asked = head(&mut asking).await.to_ascii_lowercase();
    assert!(asked.contains("sec-websocket-protocol: v5.channel.k8s.io\r\n"), "{asked}");
}

#[tokio::test]
async fn a_runtime_is_reached_over_https_if_its_certificate_is_trusted() {
    let directory = tempfile::tempdir().unwrap();
    let (known, strange) = (Authority::new(), Authority::new());
    let trusted = directory.path().join("ca.crt");
    std::fs::write(&trusted, &known.pem).unwrap();
    for (authority, is_trusted) in [(known, true), (strange, false)] {
        let identity = authority.server_at("127.0.0.1");
        let chain = vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let streaming = format!("https://{}", listener.local_addr().unwrap());
        let _runtime = AbortOnDropHandle::new(tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = TlsAcceptor::from(Arc::new(config)).accept(stream).await else { return };
            head(&mut stream).await;
            let answer =
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nhello";
            stream.write_all(answer.as_bytes()).await.unwrap();
            let _ = stream.read_u8().await;
        }));
        let options = Options { streaming, trusted: Some(trusted.clone()), ..Options::default() };
        let (_server, client) = start(options).await;
        let upgrade = ["Connection: Upgrade, close", "Upgrade: SPDY/3.1"];
        let path = "/exec/default/web/main?command=sh&output=1";
        if is_trusted {
            let mut stream = client.connect().await.unwrap();
            let request =
                format!("POST {path} HTTP/1.1\r\nHost: kubelet\r\n{}\r\n\r\n", upgrade.join("\r\n"));
            stream.write_all(request.as_bytes()).await.unwrap();
            let answer = tokio::time::timeout(SOON, head(&mut stream)).await.expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
            let mut said = [0; 5];
            stream.read_exact(&mut said).await.unwrap();
            assert_eq!(&said, b"hello");
        } else {
            let (status, text) = client.ask("POST", path, &upgrade).await;
            assert!(
                status == 500 && text.contains("error dialing backend: invalid peer certificate"),
                "{text}"
            );
        }
    }
}
