//! `/logs/`: the machine's logs as files, as a file server shows them, and queries of them (row 21.8).

use std::io;
use std::ops::Range;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use bridge_io::Io;
use bridge_node::host::{Journal, LogFile, SystemLog, SystemLogFile, SystemLogs};
use bridge_serve::{Connection, StallTimeout};

use crate::sending::{Chunks, body_of};

use crate::access::client;
use crate::journal::{ServiceLogs, words};
use crate::log_query::LogQuery;

/// At most so many chunks of a file wait for a slow reader: there may be as many readers as requests.
const CHUNKS_MAX: usize = 1;
/// So much of a file tells whether it is text.
const SNIFFED_BYTES: usize = 512;
/// As HTTP writes dates.
const DATE: &str = "%a, %d %b %Y %H:%M:%S GMT";

#[derive(Clone)]
struct Serving {
    logs: SystemLogs,
    io: Io,
    /// What answers queries; `None` where there are none.
    services: Option<ServiceLogs>,
}

/// The routes below `/logs/`, with queries if there is a journal.
pub(crate) fn system_logs(logs: SystemLogs, journal: Option<Journal>, io: Io) -> Router {
    let services = journal.map(|journal| ServiceLogs { journal, files: logs.clone(), io: io.clone() });
    let serving = Serving { logs, io, services };
    Router::new().route("/logs/", get(top)).route("/logs/{*path}", get(below)).with_state(serving)
}

/// `/logs` without its slash: a redirection, as Go's servers answer.
pub(crate) async fn slashed(request: Parts) -> Response {
    let query = request.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    (StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, format!("/logs/{query}"))]).into_response()
}

async fn top(State(serving): State<Serving>, connection: Extension<Connection>, request: Parts) -> Response {
    serving.of_client(&request).asked("", &request, &connection.patience).await
}

async fn below(
    State(serving): State<Serving>,
    Path(path): Path<String>,
    connection: Extension<Connection>,
    request: Parts,
) -> Response {
    serving.of_client(&request).asked(&path, &request, &connection.patience).await
}

impl Serving {
    /// The same for the client of a request, against which what is read for it counts.
    fn of_client(self, request: &Parts) -> Self {
        let logs = self.logs.of_tenant(&client(&request.extensions));
        let services = self.services.map(|services| ServiceLogs { files: logs.clone(), ..services });
        Self { logs, services, io: self.io }
    }

    /// Answers a query, or shows what lies at the path.
    async fn asked(&self, path: &str, request: &Parts, patience: &StallTimeout) -> Response {
        let Some(services) = &self.services else { return self.shown(path, None, request, patience).await };
        let query = match LogQuery::parse(request.uri.query().unwrap_or_default()) {
            Ok(Some(query)) => query,
            Ok(None) => return self.shown(path, None, request, patience).await,
            Err(text) => return refusal(StatusCode::BAD_REQUEST, text),
        };
        if !path.is_empty() && path != "/" {
            return refusal(StatusCode::NOT_ACCEPTABLE, "path not allowed in query mode".to_owned());
        }
        if let Err(text) = query.validate() {
            return refusal(StatusCode::NOT_ACCEPTABLE, text);
        }
        let Some(file) = query.files.first().cloned() else {
            return services
                .answer(query, &client(&request.extensions), &request.method, &request.headers)
                .await;
        };
        let name = file.trim_start_matches('/');
        match self.logs.find(name).await {
            Err(error) if is_absent(&error) => {
                refusal(StatusCode::NOT_ACCEPTABLE, query.no_file(&file, &words(&error)))
            }
            _ => self.shown(name, Some(link(name)), request, patience).await,
        }
    }

    /// What lies at the path. As with other file servers the path of a directory ends with a slash, and that of a file does not.
    /// Another URL is told from that of the request, unless it is `named` from `/logs/`.
    async fn shown(
        &self,
        path: &str,
        named: Option<String>,
        request: &Parts,
        patience: &StallTimeout,
    ) -> Response {
        let (name, has_slash) = match path.strip_suffix('/') {
            Some(name) => (name, true),
            None => (path, path.is_empty()),
        };
        let last = name.rsplit('/').next().unwrap_or_default();
        match self.logs.find(name).await {
            Ok(SystemLog::Directory(names)) if has_slash => {
                ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], listing(&names)).into_response()
            }
            Ok(SystemLog::Directory(_)) => moved(&format!("{}/", named.as_deref().unwrap_or(last))),
            Ok(SystemLog::File(_)) if has_slash => moved(&format!("../{last}")),
            Ok(SystemLog::File(found)) => self.file(found, request, patience).await,
            Err(error) => refused(&error),
        }
    }

    async fn file(&self, found: SystemLogFile, request: &Parts, patience: &StallTimeout) -> Response {
        let begins = match found.file.read_at(0).await {
            Ok(begins) => begins,
            Err(error) => return refused(&error),
        };
        let asked = request.headers.get(header::RANGE).and_then(|range| range.to_str().ok());
        let part = match asked.map(|range| part(range, found.bytes)) {
            None | Some(Asked::Whole) => None,
            Some(Asked::Part(part)) => Some(part),
            Some(Asked::Nothing) => {
                let whole = format!("bytes */{}", found.bytes);
                return (StatusCode::RANGE_NOT_SATISFIABLE, [(header::CONTENT_RANGE, whole)], "")
                    .into_response();
            }
        };
        let (status, sent) = match part.clone() {
            Some(part) => (StatusCode::PARTIAL_CONTENT, part),
            None => (StatusCode::OK, 0..found.bytes),
        };
        let body = if request.method == Method::HEAD {
            Body::empty()
        } else {
            let part = sent.clone();
            body_of(&self.io, CHUNKS_MAX, patience.streams(), |chunks| send(found.file, part, chunks))
        };
        let mut answer = (status, body).into_response();
        let told = answer.headers_mut();
        told.insert(header::CONTENT_TYPE, content_type(&begins));
        told.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        told.insert(header::CONTENT_LENGTH, HeaderValue::from(sent.end - sent.start));
        let mut text = |name, text: String| {
            if let Ok(value) = HeaderValue::from_str(&text) {
                told.insert(name, value);
            }
        };
        text(header::LAST_MODIFIED, found.modified.strftime(DATE).to_string());
        if let Some(part) = part {
            text(header::CONTENT_RANGE, format!("bytes {}-{}/{}", part.start, part.end - 1, found.bytes));
        }
        answer
    }
}

/// Sends this part of the file, until the receiver of the chunks is dropped. A file that has become shorter meanwhile ends the
/// connection, since its length has been told.
async fn send(file: LogFile, part: Range<u64>, chunks: Chunks) {
    let mut at = part.start;
    while at < part.end {
        let read = file.read_at(at).await.and_then(|mut block| {
            block.truncate(usize::try_from(part.end - at).unwrap_or(usize::MAX));
            if block.is_empty() { Err(io::Error::other("the file has become shorter")) } else { Ok(block) }
        });
        let is_over = read.is_err();
        at += read.as_ref().map_or(0, Vec::len) as u64;
        if chunks.send(read.map(Bytes::from)).await.is_err() || is_over {
            return;
        }
    }
}

/// What a header Range asks for.
#[derive(Debug, PartialEq)]
pub enum Asked {
    /// No part, or several, which are sent as the whole.
    Whole,
    /// These bytes.
    Part(Range<u64>),
    /// A part that the file does not have.
    Nothing,
}

/// The part of a file of so many bytes that a header Range asks for.
pub fn part(range: &str, bytes: u64) -> Asked {
    let ends = range
        .strip_prefix("bytes=")
        .filter(|parts| !parts.contains(','))
        .and_then(|part| part.split_once('-'));
    let Some((from, to)) = ends else { return Asked::Whole };
    let (from, to) = (from.trim(), to.trim());
    let part = match (from.parse::<u64>(), to.parse::<u64>()) {
        (Ok(from), Ok(to)) if from <= to => from..to.saturating_add(1).min(bytes),
        (Ok(from), Err(_)) if to.is_empty() => from..bytes,
        (Err(_), Ok(last)) if from.is_empty() => bytes.saturating_sub(last)..bytes,
        _ => return Asked::Whole,
    };
    if part.is_empty() { Asked::Nothing } else { Asked::Part(part) }
}

/// Text if the beginning of the file is.
fn content_type(begins: &[u8]) -> HeaderValue {
    let begins = &begins[..begins.len().min(SNIFFED_BYTES)];
    // The last letter may be cut.
    let is_utf8 = std::str::from_utf8(begins).map_or_else(|error| error.error_len().is_none(), |_| true);
    let is_text = is_utf8 && !begins.iter().any(|byte| *byte < b' ' && !b"\t\n\x0c\r\x1b".contains(byte));
    HeaderValue::from_static(if is_text { "text/plain; charset=utf-8" } else { "application/octet-stream" })
}

fn moved(to: &str) -> Response {
    match HeaderValue::from_str(to) {
        Ok(to) => (StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, to)]).into_response(),
        Err(_) => StatusCode::NOT_FOUND.into_response(),
    }
}

fn refusal(status: StatusCode, text: String) -> Response {
    (status, [(header::X_CONTENT_TYPE_OPTIONS, "nosniff")], text + "\n").into_response()
}

/// Whether there is nothing at the path that could be shown.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::CrossesDevices
    )
}

/// In the words of Go's file server.
fn refused(error: &io::Error) -> Response {
    match error.kind() {
        _ if is_absent(error) => (StatusCode::NOT_FOUND, "404 page not found\n").into_response(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput => {
            (StatusCode::FORBIDDEN, "403 Forbidden\n").into_response()
        }
        _ => {
            tracing::warn!(%error, "A file of the machine's logs cannot be read");
            (StatusCode::INTERNAL_SERVER_ERROR, "500 Internal Server Error\n").into_response()
        }
    }
}

fn listing(names: &[String]) -> String {
    let lines = names.iter().map(|name| format!("<a href=\"{}\">{}</a>\n", link(name), shown(name)));
    format!(
        "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n{}</pre>\n",
        lines.collect::<String>()
    )
}

/// The name as a relative URL.
fn link(name: &str) -> String {
    use std::fmt::Write;
    let mut url = String::with_capacity(name.len() + 2);
    // A colon in the first segment would end a scheme.
    if name.contains(':') {
        url.push_str("./");
    }
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/:".contains(&byte) {
            url.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(url, "%{byte:02X}");
        }
    }
    url
}

/// The name as text of a page.
fn shown(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&#34;"),
            '\'' => text.push_str("&#39;"),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_file_is_asked_for_in_three_ways() {
        for (range, expected) in [
            ("bytes=0-4", Asked::Part(0..5)),
            ("bytes=4-", Asked::Part(4..10)),
            ("bytes=-3", Asked::Part(7..10)),
            ("bytes=-30", Asked::Part(0..10)),
            ("bytes=2-18446744073709551615", Asked::Part(2..10)),
            ("bytes=10-", Asked::Nothing),
            ("bytes=-0", Asked::Nothing),
            ("bytes=0-1,3-4", Asked::Whole),
            ("bytes=4-2", Asked::Whole),
            ("lines=1-2", Asked::Whole),
        ] {
            assert_eq!(part(range, 10), expected, "{range}");
        }
        assert_eq!(part("bytes=0-0", 0), Asked::Nothing);
    }

    #[test]
    fn names_of_files_are_no_markup() {
        let page = listing(&["a b<script>".to_owned(), "x:y/".to_owned()]);
        assert!(page.contains("<a href=\"a%20b%3Cscript%3E\">a b&lt;script&gt;</a>\n"), "{page}");
        assert!(page.contains("<a href=\"./x:y/\">x:y/</a>\n"), "{page}");
    }

    #[test]
    fn what_is_not_text_is_not_shown_as_text() {
        let mut cut = "x".repeat(SNIFFED_BYTES - 1);
        cut.push('é');
        for (begins, is_text) in [
            (&b"a line\n"[..], true),
            (cut.as_bytes(), true),
            (b"", true),
            (b"\x00\x01", false),
            (b"\xff\xfe", false),
        ] {
            let told = content_type(begins);
            assert_eq!(told == "text/plain; charset=utf-8", is_text, "{begins:?}");
        }
    }
}
