//! Queries of the machine's logs (row 21.8), with a script in the place of journalctl.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::Client;
use crate::server::{Options, SOON, Server};

/// Knows two services, tells its arguments for one of them and hangs for the other, with its number in a file.
fn journalctl(directory: &Path) -> PathBuf {
    let program = directory.join("journalctl");
    let pid = directory.join("pid");
    let script = format!(
        "#!/bin/sh\n\
         case \"$*\" in\n\
         '--field _SYSTEMD_UNIT') echo kubelet.service; echo hangs.service;;\n\
         *--unit=hangs*) echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600;;\n\
         *) echo \"$*\"; echo problem >&2; exit 1;;\n\
         esac\n",
        pid.display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// A server that shows the directory `log` below this one, and answers queries if `is_on`.
async fn open(directory: &Path, is_on: bool) -> (Server, Client) {
    let logs = directory.join("log");
    std::fs::create_dir_all(logs.join("pods")).unwrap();
    std::fs::create_dir_all(logs.join("deep")).unwrap();
    std::fs::write(logs.join("pods/a.log"), "one\ntwo\n").unwrap();
    std::fs::write(logs.join("app.log"), "of the app\n".repeat(10_000)).unwrap();
    std::fs::write(logs.join("deep/deep.log"), "deep\n").unwrap();
    std::fs::write(directory.join("secret"), "secret").unwrap();
    let journal = is_on.then(|| journalctl(directory));
    let options = Options { always_allow: true, system_logs: Some(logs), journal, ..Options::default() };
    let server = Server::start(options).await;
    let client = server.client(Some(&server.admin));
    (server, client)
}

#[tokio::test]
async fn a_query_is_answered_by_the_journal_or_by_files_of_that_name() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, client) = open(dir.path(), true).await;
    let ask = async |query: &str| client.get(&format!("/logs/?{query}")).await;
    let told = "--utc --no-pager --output=short-precise --pager-end --lines=5 --unit=kubelet\nproblem\n";
    assert_eq!(ask("query=kubelet&tailLines=5").await, (200, told.to_owned()));
    let app = "of the app\n".repeat(10_000);
    assert_eq!(ask("query=app").await, (200, app.clone()));
    assert_eq!(ask("query=app.log").await, (200, app));
    assert_eq!(ask("query=deep").await, (200, "deep\n".to_owned()));
    let told = "--utc --no-pager --output=short-precise --unit=kubelet\nproblem\n";
    let both = format!("{told}deep\n\nlog not found for none\n");
    assert_eq!(ask("query=deep&query=kubelet&query=none").await, (200, both));
    let with_options = "\noptions present and query resolved to log files for [app deep]\n\
                        try without specifying options\n";
    assert_eq!(ask("query=app&query=deep&boot=0").await, (200, with_options.to_owned()));
    let (status, text) = ask("query=..").await;
    let outside = "\nerror getting log for ..: openat ..: path escapes from parent\n";
    assert_eq!((status, text.as_str()), (200, outside));
    assert_eq!(ask("query=/pods/a.log").await, (200, "one\ntwo\n".to_owned()));
    assert_eq!(ask("query=pods/").await.0, 200);
    assert_eq!(ask("query=./pods").await.0, 301);
    assert_eq!(client.ask("HEAD", "/logs/?query=hangs", &[]).await, (200, String::new()));
    let plain = client.get("/logs/pods/a.log?other=x").await;
    assert_eq!(plain, (200, "one\ntwo\n".to_owned()), "it is no query");
}

#[tokio::test]
async fn a_query_that_does_not_fit_is_refused_in_upstreams_words() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, client) = open(dir.path(), true).await;
    for (path, status, text) in [
        ("?query=", 400, r#"query: Invalid value: [""]: query cannot be empty"#),
        (
            "pods/a.log?tailLines=x",
            400,
            r#"tailLines: Invalid value: "x": strconv.Atoi: parsing "x": invalid syntax"#,
        ),
        ("pods/a.log?query=kubelet", 406, "path not allowed in query mode"),
        ("?tailLines=5", 406, "query: Required value: cannot be empty with options"),
        ("?query=a*b", 406, r#"query: Invalid value: "a*b": input contains unsupported characters"#),
        ("?query=kubelet&boot=1", 406, "boot: Invalid value: 1: must be less than 1"),
        ("?query=/a&query=b", 406, r#"query: Invalid value: "[/a], [b]": cannot specify a file and service"#),
        ("?query=/a", 406, r#"query: Invalid value: ["/a"]: statat /a: no such file or directory"#),
        (
            "?query=../secret",
            406,
            r#"query: Invalid value: ["../secret"]: statat ../secret: path escapes from parent"#,
        ),
    ] {
        let answer = client.get(&format!("/logs/{path}")).await;
        assert_eq!(answer, (status, format!("{text}\n")), "{path}");
    }
}

#[tokio::test]
async fn without_the_switch_a_query_is_no_query() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, client) = open(dir.path(), false).await;
    let (status, page) = client.get("/logs/?query=kubelet&tailLines=x").await;
    assert!(status == 200 && page.contains("<a href=\"pods/\">pods/</a>\n"), "{page}");
    assert_eq!(client.get("/logs/pods/a.log?query=kubelet").await, (200, "one\ntwo\n".to_owned()));
}

#[tokio::test]
async fn an_answer_is_compressed_if_the_client_takes_that() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, client) = open(dir.path(), true).await;
    let mut stream = client.connect().await.unwrap();
    let request = "GET /logs/?query=app HTTP/1.1\r\nHost: kubelet\r\nAccept-Encoding: gzip\r\n\
                   Connection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(SOON, stream.read_to_end(&mut answer));
    // A close without a notification ends an answer too.
    let _ = read.await.expect("the answer ends");
    let text = String::from_utf8_lossy(&answer);
    assert!(text.contains("content-type: text/plain;charset=UTF-8\r\n"), "{text}");
    assert!(text.contains("content-encoding: gzip\r\n"), "{text}");
    assert!(answer.windows(3).any(|bytes| bytes == [0x1f, 0x8b, 8]), "{text}");
    assert!(answer.len() < 10_000, "it is {} bytes long", answer.len());
}

#[tokio::test]
async fn the_program_of_a_client_that_goes_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, client) = open(dir.path(), true).await;
    let mut stream = client.connect().await.unwrap();
    stream.write_all(b"GET /logs/?query=hangs HTTP/1.1\r\nHost: kubelet\r\n\r\n").await.unwrap();
    let gone = async {
        let file = dir.path().join("pid");
        while !file.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let pid = std::fs::read_to_string(file).unwrap().trim().to_owned();
        assert!(Path::new(&format!("/proc/{pid}")).exists(), "it runs");
        drop(stream);
        while Path::new(&format!("/proc/{pid}")).exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // Below the time that a query may take.
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("the program is ended");
}
