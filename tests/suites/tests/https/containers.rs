//! Access to containers: logs, commands, streams (rows 21.4 to 21.6, 21.9, 21.10, 21.15).

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use node_api::ContainerPlaces;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;

use crate::client::Client;
use crate::server::{MIRROR, Options, SOON, Server, UID};

/// The runtime writes the last lines to the earlier file within this time, below that for which a log settles (200 ms).
const LATE_WITHIN: Duration = Duration::from_millis(150);

async fn open(streaming: &str, debugging: bool) -> (Server, Client) {
    let options =
        Options { always_allow: true, debugging, streaming: streaming.to_owned(), ..Options::default() };
    let server = Server::start(options).await;
    let client = server.client(Some(&server.admin));
    (server, client)
}

#[tokio::test]
async fn logs_are_read_as_asked() {
    let (_server, client) = open("http://127.0.0.1:1", true).await;
    let log = async |query: &str| client.get(&format!("/containerLogs/default/web/main{query}")).await;
    assert_eq!(log("").await, (200, "one\ntwo\nthree\n".to_owned()));
    assert_eq!(log("?tailLines=1").await, (200, "three\n".to_owned()));
    assert_eq!(log("?tail=2").await, (200, "two\nthree\n".to_owned()));
    assert_eq!(log("?tailLines=0").await, (200, String::new()));
    assert_eq!(log("?limitBytes=5").await, (200, "one\nt".to_owned()));
    let (status, stamped) = log("?timestamps=true&tailLines=1").await;
    assert_eq!(status, 200);
    assert!(stamped.ends_with("Z three\n") && stamped.len() == 37, "{stamped:?}");
    assert_eq!(log("?tailLines=x").await, (400, r#"{"message": "Unable to decode query."}"#.to_owned()));
    assert_eq!(log("?tailLines=-1").await, (422, r#"{"message": "Invalid request."}"#.to_owned()));
    assert_eq!(log("?stream=Stdout").await.0, 400);
    let previous = "previous terminated container \"main\" in pod \"web\" not found";
    assert_eq!(log("?previous=true").await, (400, previous.to_owned()));
    let other = async |path: &str| client.get(&format!("/containerLogs/{path}")).await;
    assert_eq!(other("default/no/main").await, (404, "pod \"no\" does not exist".to_owned()));
    let missing = "container \"no\" not found in pod \"web\"";
    assert_eq!(other("default/web/no").await, (404, missing.to_owned()));
    let late = "container \"late\" in pod \"web\" is not available";
    assert_eq!(other("default/web/late").await, (400, late.to_owned()));
}

#[tokio::test]
async fn following_goes_on_over_a_rotation_and_misses_no_line() {
    let (server, client) = open("http://127.0.0.1:1", true).await;
    let log = server.log();
    let write = |file: &mut std::fs::File, line: &str| {
        writeln!(file, "2026-01-01T00:00:00Z stdout F {line}").unwrap();
    };
    let made = |path: &Path| std::fs::File::options().append(true).create(true).open(path).unwrap();
    let mut stream = client.connect().await.unwrap();
    let request = "GET /containerLogs/default/web/main?follow=true HTTP/1.1\r\nHost: kubelet\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut seen = String::new();
    let mut until = async |text: &str, seen: &mut String| {
        let mut block = [0; 4096];
        while !seen.contains(text) {
            let read = tokio::time::timeout(SOON, stream.read(&mut block)).await.expect("more lines");
            *seen += &String::from_utf8_lossy(&block[..read.unwrap()]);
        }
    };
    until("three\n", &mut seen).await;
    let (mut round, mut in_time) = (0, 0);
    while in_time < 3 {
        assert!(round < 100, "this machine is too busy to write a line within {LATE_WITHIN:?}");
        let begun = Instant::now();
        // The runtime begins the new file, and writes its buffered lines to the earlier one.
        let mut earlier = made(&log);
        std::fs::rename(&log, log.with_file_name(format!("0.log.20260101-{round:06}"))).unwrap();
        write(&mut made(&log), &format!("new-{round}"));
        tokio::time::sleep(Duration::from_millis(50)).await;
        write(&mut earlier, &format!("late-{round}"));
        let is_in_time = begun.elapsed() < LATE_WITHIN;
        until(&format!("new-{round}\n"), &mut seen).await;
        let at = |word: &str| seen.find(&format!("{word}-{round}\n"));
        // A round in which this thread itself was held up tells nothing.
        if is_in_time {
            assert!(at("late").is_some() && at("late") < at("new"), "{seen}");
            in_time += 1;
        }
        round += 1;
    }
}

/// Sends a request, and keeps its connection with all of its answer unread; with `begins`, once the answer begins.
async fn held(client: &Client, method: &str, path: &str, begins: bool) -> TlsStream<TcpStream> {
    let mut stream = client.connect().await.unwrap();
    stream.write_all(format!("{method} {path} HTTP/1.1\r\nHost: kubelet\r\n\r\n").as_bytes()).await.unwrap();
    if begins {
        let mut head = [0; 15];
        tokio::time::timeout(SOON, stream.read_exact(&mut head)).await.expect("an answer").unwrap();
        assert_eq!(&head, b"HTTP/1.1 200 OK");
    }
    stream
}

#[tokio::test]
async fn a_client_with_many_logs_of_a_namespace_keeps_no_other_out() {
    let places = ContainerPlaces::new(16, 8);
    let server = Server::start(Options { always_allow: true, places, ..Options::default() }).await;
    let admin = server.client(Some(&server.admin));
    let jane = server.client(Some(&server.authority.client("jane", "system:masters")));
    let log = "/containerLogs/default/web/main";
    let followed = format!("{log}?follow=true");
    let mut all =
        vec![held(&admin, "GET", &followed, true).await, held(&admin, "GET", &followed, true).await];
    let refused = "too many logs of containers are read at once\n";
    assert_eq!(admin.get(log).await, (429, refused.to_owned()), "an eighth of sixteen places are taken");
    assert_eq!(jane.get(log).await.0, 200, "another client waits for none of them");
    drop(all.pop());
    assert_eq!(admin.get(log).await.0, 200, "a place became free");
}

#[tokio::test]
async fn a_client_with_many_commands_in_a_namespace_keeps_no_other_out() {
    let places = ContainerPlaces::new(16, 8);
    let server = Server::start(Options { always_allow: true, places, ..Options::default() }).await;
    let admin = server.client(Some(&server.admin));
    let jane = server.client(Some(&server.authority.client("jane", "system:masters")));
    let hangs = held(&admin, "POST", "/run/default/web/main?cmd=sleep", false).await;
    let run = "/run/default/web/main?cmd=whoami";
    let refused = async {
        // Until the command that hangs has its place, this one has it.
        loop {
            let (status, text) = admin.ask("POST", run, &[]).await;
            if status != 200 {
                return (status, text);
            }
        }
    };
    let refused = tokio::time::timeout(SOON, refused).await.expect("the only place for this is taken");
    assert_eq!(refused, (429, "too many commands are run in containers at once\n".to_owned()));
    assert_eq!(jane.ask("POST", run, &[]).await, (200, "root\n".to_owned()));
    drop(hangs);
}

#[tokio::test]
async fn a_command_is_run() {
    let (_server, client) = open("http://127.0.0.1:1", true).await;
    let run = async |path: &str| client.ask("POST", &format!("/run/{path}"), &[]).await;
    assert_eq!(run("default/web/main?cmd=whoami").await, (200, "root\n".to_owned()));
    assert_eq!(run(&format!("default/web/{UID}/main?cmd=whoami")).await, (200, "root\n".to_owned()));
    let failed = "command 'sh -c false' exited with 1: no\n";
    assert_eq!(run("default/web/main?cmd=sh%20-c+false").await, (500, failed.to_owned()));
    assert_eq!(run("default/no/main?cmd=whoami").await, (404, "pod does not exist".to_owned()));
    let missing = "container not found (\"late\")";
    assert_eq!(run("default/web/late?cmd=whoami").await, (500, missing.to_owned()));
    assert_eq!(run("default/web/other-uid/main?cmd=whoami").await, (404, "pod not found".to_owned()));
    assert_eq!(run(&format!("default/web/{MIRROR}/main?cmd=whoami")).await, (200, "root\n".to_owned()));
    assert_eq!(client.get("/run/default/web/main?cmd=whoami").await.0, 405);
}

#[tokio::test]
async fn streams_pass_through_to_the_runtime() {
    let runtime = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", runtime.local_addr().unwrap());
    let (_server, client) = open(&address, true).await;
    let backend = tokio::spawn(async move {
        let (mut stream, _) = runtime.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
            X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\nhello";
        stream.write_all(answer.as_bytes()).await.unwrap();
        let mut said = [0; 4];
        stream.read_exact(&mut said).await.unwrap();
        stream.write_all(b"bye").await.unwrap();
        (String::from_utf8(head).unwrap().to_ascii_lowercase(), said)
    });
    let talk = async {
        let mut stream = client.connect().await.unwrap();
        let request = "POST /exec/default/web/main?command=sh&input=1&output=1 HTTP/1.1\r\nHost: kubelet\r\n\
            Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nAuthorization: Bearer secret\r\n\
            X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nhello") {
            answer.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(b"ping").await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        (String::from_utf8(answer).unwrap().to_ascii_lowercase(), rest)
    };
    let (answer, rest) = tokio::time::timeout(SOON, talk).await.expect("both sides speak");
    assert!(answer.starts_with("http/1.1 101"), "{answer}");
    assert!(answer.contains("x-stream-protocol-version: v4.channel.k8s.io"), "{answer}");
    assert_eq!(rest, b"bye");
    let (head, said) = backend.await.unwrap();
    assert_eq!(&said, b"ping");
    assert!(head.starts_with("post /exec/") && head.contains("upgrade: spdy/3.1"), "{head}");
    assert!(!head.contains("secret"), "nobody behind sees who asks: {head}");
}

#[tokio::test]
async fn a_stream_that_cannot_be_says_why() {
    let (_server, client) = open("http://127.0.0.1:1", true).await;
    let upgrade = ["Connection: Upgrade, close", "Upgrade: SPDY/3.1"];
    let ask = async |path: &str| client.ask("POST", path, &upgrade).await;
    let streams = "you must specify at least 1 of stdin, stdout, stderr";
    assert_eq!(ask("/exec/default/web/main?command=sh").await, (400, streams.to_owned()));
    assert_eq!(ask("/exec/default/no/main?output=1").await, (404, "pod does not exist".to_owned()));
    let missing = "container late not found in pod web_default";
    assert_eq!(ask("/attach/default/web/late?output=1").await, (500, missing.to_owned()));
    for path in [
        "exec/default/web/other/main?output=1",
        "attach/default/web/other/main?output=1",
        "portForward/default/web/other",
    ] {
        assert_eq!(ask(&format!("/{path}")).await, (404, "pod not found".to_owned()), "{path}");
        // A pod that does not exist is reported before the protocol of the request is checked.
        let plain = client.ask("POST", &format!("/{path}"), &[]).await;
        assert_eq!(plain, (404, "pod not found".to_owned()), "{path}");
    }
    let (status, text) = ask("/exec/default/web/main?command=sh&output=1").await;
    assert_eq!(status, 500, "{text}");
    assert!(text.contains("error dialing backend"), "{text}");
    let (_server, client) = open("unix:///run/streams", true).await;
    let (status, text) = client.ask("POST", "/exec/default/web/main?command=sh&output=1", &upgrade).await;
    assert!(status == 500 && text.contains("the runtime's URL"), "{status} {text}");
}

/// Whichever way a caller sends its token, the runtime gets no part of it.
#[tokio::test]
async fn no_spelling_of_a_token_reaches_the_runtime() {
    let runtime = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", runtime.local_addr().unwrap());
    let (_server, client) = open(&address, true).await;
    // Records the request, and answers with headers that are not meant for the caller.
    let (told, mut heard) = tokio::sync::mpsc::channel::<String>(1);
    let _runtime = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let (mut stream, _) = runtime.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                Sec-WebSocket-Protocol: v4.channel.k8s.io\r\nSet-Cookie: a=b\r\nLocation: /other\r\n\
                Proxy-Authenticate: Basic\r\n\r\n";
            stream.write_all(answer.as_bytes()).await.unwrap();
            let _ = told.send(String::from_utf8_lossy(&head).into_owned()).await;
        }
    }));
    // `secret-token`, in base64.
    let secret = "c2VjcmV0LXRva2Vu";
    let p = "Sec-WebSocket-Protocol";
    for lines in [
        format!("{p}: v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.{secret}"),
        format!("{p}: base64url.bearer.authorization.k8s.io.{secret}\r\n{p}: v4.channel.k8s.io"),
        format!(
            "{p}: v4.channel.k8s.io\r\nsec-websocket-PROTOCOL: base64url.bearer.authorization.k8s.io.{secret}"
        ),
        format!("{p}: v4.channel.k8s.io, Base64Url.Bearer.Authorization.K8s.Io.{secret}"),
        format!("{p}: v4.channel.k8s.io,BASE64URL.BEARER.AUTHORIZATION.K8S.IO.{secret}"),
        format!("{p}:\tv4.channel.k8s.io ,\t base64url.bearer.authorization.k8s.io.{secret} "),
        format!("{p}: v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.{secret}=="),
        format!("{p}: v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.{secret}!"),
        format!("{p}: v4.channel.k8s.io, \"base64url.bearer.authorization.k8s.io.{secret}\""),
        format!("{p}: v4.channel.k8s.io, base64url.bearer.authorization.k8s.io. {secret}\u{e9}"),
        format!(
            "{p}: base64url.bearer.authorization.k8s.io.{secret},v4.channel.k8s.io,base64url.bearer.authorization.k8s.io.{secret}"
        ),
        format!("{p}: v4.channel.k8s.io\r\nAuthorization: Bearer {secret}\r\nauthorization: Bearer {secret}"),
        format!("{p}: v4.channel.k8s.io\r\nCookie: token={secret}\r\nProxy-Authorization: Bearer {secret}"),
        format!(
            "{p}: v4.channel.k8s.io\r\nForwarded: for={secret}\r\nX-Forwarded-For: {secret}\r\nX-Remote-User: {secret}"
        ),
        format!(
            "{p}: v4.channel.k8s.io\r\nImpersonate-User: {secret}\r\nX-Api-Key: {secret}\r\nVia: {secret}"
        ),
    ] {
        let mut stream = client.connect().await.unwrap();
        let request = format!(
            "GET /exec/default/web/main?command=sh&output=1&token={secret} HTTP/1.1\r\nHost: kubelet\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n{lines}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = tokio::time::timeout(SOON, heard.recv()).await.expect("a request").unwrap();
        let lower = head.to_ascii_lowercase();
        assert!(!head.contains(secret) && !lower.contains("bearer"), "{lines}: {head}");
        assert!(lower.contains("sec-websocket-protocol: v4.channel.k8s.io\r\n"), "{lines}: {head}");
        assert!(lower.contains("sec-websocket-key: x"), "{head}");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.unwrap());
        }
        let answer = String::from_utf8_lossy(&answer).to_ascii_lowercase();
        assert!(answer.starts_with("http/1.1 101") && answer.contains("v4.channel.k8s.io"), "{answer}");
        for header in ["set-cookie", "location", "proxy-authenticate"] {
            assert!(!answer.contains(header), "{answer}");
        }
    }
}

#[tokio::test]
async fn what_runs_and_what_is_configured_is_shown() {
    let (_server, client) = open("http://127.0.0.1:1", true).await;
    let (status, body) = client.get("/runningpods/").await;
    let list: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &list["items"][0]["spec"]["containers"][0]["name"]), (200, &"main".into()));
    let (status, body) = client.get("/configz").await;
    assert_eq!((status, body.as_str()), (200, r#"{"kubeletconfig":{"kind":"KubeletConfiguration"}}"#));
    assert_eq!(client.get("/metrics/probes").await.0, 200);
    assert_eq!(client.get("/logs/").await, (405, "logs endpoint is disabled.\n".to_owned()));
}

#[tokio::test]
async fn the_process_its_flags_and_its_verbosity_are_shown_and_the_verbosity_is_changed() {
    let (_server, client) = open("http://127.0.0.1:1", true).await;
    let (status, flags) = client.get("/flagz").await;
    assert!(
        status == 200 && flags.starts_with("\nkubelet flagz\nWarning: ") && flags.ends_with("\nv=2\n"),
        "{flags}"
    );
    let json = "Accept: application/json;v=v1beta1;g=config.k8s.io;as=Flagz";
    let (status, flags) = client.ask("GET", "/flagz", &[json]).await;
    let told: serde_json::Value = serde_json::from_str(&flags).unwrap();
    let expected = serde_json::json!({
        "kind": "Flagz", "apiVersion": "config.k8s.io/v1beta1", "metadata": { "name": "kubelet" }, "flags": { "v": "2" },
    });
    assert_eq!((status, told), (200, expected));
    let (status, text) = client.get("/statusz").await;
    assert!(
        status == 200 && text.contains("\nBinary version: 1.36.2\n") && text.contains(" /flagz "),
        "{text}"
    );
    assert_eq!(client.ask("GET", "/statusz", &[json]).await.0, 406, "of another page");
    // The body follows the last header.
    let put = async |level: &str| {
        let length = format!("Content-Length: {}\r\n\r\n{level}", level.len());
        client.ask("PUT", "/debug/flags/v", &["Connection: close", &length]).await
    };
    assert_eq!(put("4").await, (200, "successfully set klog.logging.verbosity to 4\n".to_owned()));
    assert_eq!(put("high").await, (400, "strconv.ParseUint: parsing \"high\": invalid syntax\n".to_owned()));
    assert_eq!(client.get("/debug/flags/v").await, (406, "unsupported http method\n".to_owned()));
    assert_eq!(client.get("/debug/pprof/cmdline").await, (200, "kubelet\0--v=2".to_owned()));
    assert_eq!(client.get("/debug/pprof/heap").await.0, 501);
}

#[tokio::test]
async fn a_container_is_written_to_a_file() {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let server = async |checkpointed| {
        Server::start(Options { always_allow: true, checkpointed, ..Options::default() }).await
    };
    let able = server(Some(notes.clone())).await;
    let ask = async |server: &Server, path: &str| {
        server.client(Some(&server.admin)).ask("POST", &format!("/checkpoint/default/{path}"), &[]).await
    };
    let (status, body) = ask(&able, "web/main?timeout=7").await;
    let made = notes.lock().unwrap().pop().expect("it is asked for");
    assert_eq!((status, body), (200, format!("{{\"items\":[\"{}\"]}}", made.location)));
    assert!(made.location.starts_with("/checkpoints/checkpoint-web_default-main-"), "{made:?}");
    assert_eq!(made.timeout, 7);
    for (path, answer) in [
        ("no/main", (404, "pod does not exist")),
        ("web/no", (404, "container no does not exist")),
        ("web/main?timeout=soon", (404, "cannot parse value of timeout parameter")),
        (
            "web/main?timeout=-1",
            (
                500,
                "checkpointing of default/web/main failed (CheckpointContainer requires the timeout value to be > 0)",
            ),
        ),
    ] {
        assert_eq!(ask(&able, path).await, (answer.0, answer.1.to_owned()), "{path}");
    }
    let (status, body) = ask(&server(None).await, "web/main").await;
    assert!(status == 500 && body.starts_with("checkpointing of default/web/main failed ("), "{body}");
}

#[tokio::test]
async fn the_machines_logs_are_shown_as_files_and_nothing_beside_them() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("log");
    std::fs::create_dir_all(logs.join("pods")).unwrap();
    std::fs::write(logs.join("pods/a.log"), "one\ntwo\nthree\n").unwrap();
    std::fs::write(logs.join("long"), vec![b'x'; 100_000]).unwrap();
    std::fs::write(dir.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../secret", logs.join("out")).unwrap();
    let options = Options { always_allow: true, system_logs: Some(logs), ..Options::default() };
    let server = Server::start(options).await;
    let client = server.client(Some(&server.admin));
    let (status, page) = client.get("/logs/").await;
    assert!(status == 200 && page.contains("<a href=\"pods/\">pods/</a>\n"), "{page}");
    assert_eq!(client.get("/logs/pods/a.log").await, (200, "one\ntwo\nthree\n".to_owned()));
    assert_eq!(client.get("/logs/long").await.1.len(), 100_000);
    let part = |range: &str| format!("Range: bytes={range}");
    assert_eq!(client.ask("GET", "/logs/pods/a.log", &[&part("4-6")]).await, (206, "two".to_owned()));
    assert_eq!(client.ask("GET", "/logs/pods/a.log", &[&part("99-")]).await.0, 416);
    for (path, status) in [
        ("/logs", 301),
        ("/logs/pods", 301),
        ("/logs/pods/a.log/", 301),
        ("/logs/out", 404),
        ("/logs/../secret", 400),
        ("/logs/nothing", 404),
    ] {
        assert_eq!(client.get(path).await.0, status, "{path}");
    }
    assert_eq!(client.ask("POST", "/logs/", &[]).await.0, 405);
}

#[tokio::test]
async fn debugging_can_be_off() {
    let (_server, client) = open("http://127.0.0.1:1", false).await;
    for path in [
        "/runningpods/",
        "/containerLogs/default/web/main",
        "/exec/default/web/main",
        "/logs/x",
        "/debug/pprof/cmdline",
    ] {
        let answer = client.get(path).await;
        assert_eq!(answer, (405, "Debug endpoints are disabled.\n".to_owned()), "{path}");
    }
    for path in ["/flagz", "/statusz", "/debug/flags/v"] {
        assert_eq!(client.get(path).await.0, 404, "{path}");
    }
    assert_eq!(client.get("/pods").await.0, 200);
}
