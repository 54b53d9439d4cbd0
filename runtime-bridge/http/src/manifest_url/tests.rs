use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};

use tokio::runtime::Handle;

use super::*;

/// Answers connections one after the other with these bytes; returns the address and the requests.
fn serve(answers: Vec<Vec<u8>>) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, questions) = channel();
    std::thread::spawn(move || {
        for answer in answers {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut buffer) {
                    Ok(0) | Err(_) => break,
                    Ok(read) => request.extend_from_slice(&buffer[..read]),
                }
            }
            let _ = asked.send(String::from_utf8_lossy(&request).to_lowercase());
            // The client may have closed the connection: it reads no more than it wants.
            let _ = stream.write_all(&answer);
        }
    });
    (address, questions)
}

fn response(head: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn url(url: &str, headers: &[(&str, &str)]) -> NetManifestUrl {
    let headers: BTreeMap<String, Vec<String>> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), vec![(*value).to_owned()])).collect();
    NetManifestUrl::new(Handle::current(), ManifestAddress::new(url, &headers).unwrap())
}

#[tokio::test]
async fn the_body_is_taken_and_the_headers_are_sent() {
    let (address, asked) = serve(vec![response("200 OK", b"pods")]);
    let url = url(&format!("http://{address}/a/pods?x=1"), &[("Metadata-Flavor", "Any")]);
    assert_eq!(url.get().await.unwrap(), b"pods");
    let request = asked.recv().unwrap();
    assert!(request.starts_with("get /a/pods?x=1 http/1.1\r\n"), "{request}");
    assert!(request.contains("metadata-flavor: any\r\n"), "{request}");
}

#[tokio::test]
async fn anything_but_200_is_an_error() {
    for head in ["404 Not Found", "204 No Content", "500 Internal Server Error"] {
        let (address, _asked) = serve(vec![response(head, b"")]);
        let error = url(&format!("http://{address}/pods"), &[]).get().await.unwrap_err();
        assert_eq!(error.to_string(), format!("http://{address}/pods: {head}"));
    }
}

#[tokio::test]
async fn nobody_who_listens_is_an_error_that_names_the_url() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = url(&format!("http://jane:secret@{address}/"), &[]).get().await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("Get \"http://{address}/\": dial tcp")), "{error}");
    assert!(!error.contains("secret"), "{error}");
}

#[tokio::test]
async fn a_body_is_bounded() {
    let (address, _asked) = serve(vec![response("200 OK", &vec![b'#'; BODY_BYTES_MAX + 1])]);
    let shown = format!("http://{address}/");
    assert_eq!(url(&shown, &[]).get().await, Err(ManifestUrlError::TooLarge { url: shown }));
    let (address, _asked) = serve(vec![response("200 OK", &vec![b'#'; BODY_BYTES_MAX])]);
    assert_eq!(url(&format!("http://{address}/"), &[]).get().await.unwrap().len(), BODY_BYTES_MAX);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error() {
    let (address, _asked) = serve(vec![b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".to_vec()]);
    let error = url(&format!("http://{address}/"), &[]).get().await.unwrap_err();
    assert!(matches!(error, ManifestUrlError::Failed { .. }), "{error}");
}

#[tokio::test]
async fn redirects_are_followed_and_credentials_stay_behind() {
    let (other, asked_there) = serve(vec![response("200 OK", b"there")]);
    let away = format!("302 Found\r\nLocation: http://localhost:{}/pods", other.port());
    let (address, asked) = serve(vec![response("302 Found\r\nLocation: /moved", b""), response(&away, b"")]);
    let url = url(&format!("http://{address}/"), &[("X-Token", "secret")]);
    assert_eq!(url.get().await.unwrap(), b"there");
    assert!(asked.recv().unwrap().contains("x-token: secret"));
    assert!(asked.recv().unwrap().contains("x-token: secret"), "the same host");
    assert!(!asked_there.recv().unwrap().contains("secret"), "another host");
    let around: Vec<_> = (0..20).map(|_| response("302 Found\r\nLocation: /", b"")).collect();
    let (address, _asked) = serve(around);
    let error = self::url(&format!("http://{address}/"), &[]).get().await.unwrap_err();
    assert!(error.to_string().ends_with("stopped after 10 redirects"), "{error}");
}

#[tokio::test]
async fn https_needs_authorities() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("none.pem");
    std::fs::write(&file, "no certificate").unwrap();
    let url = url("https://127.0.0.1:1/", &[]).trusting(file.clone());
    let error = url.get().await.unwrap_err().to_string();
    let expected = format!("no certificate authorities in {}", file.display());
    assert!(error.ends_with(&expected), "{error}");
}

#[tokio::test]
async fn a_fake_answers_as_it_is_told() {
    let fake = FakeManifestUrl::new("http://host/pods");
    assert!(matches!(fake.get().await, Err(ManifestUrlError::Failed { .. })));
    fake.serve("pods");
    assert_eq!(fake.get().await.unwrap(), b"pods");
    fake.fail("404 Not Found");
    assert_eq!(fake.get().await.unwrap_err().to_string(), "http://host/pods: 404 Not Found");
    fake.stop();
    assert!(fake.get().await.is_err());
    assert_eq!((fake.gets(), fake.shown().as_str()), (4, "http://host/pods"));
}
