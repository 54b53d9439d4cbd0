//! The answer to a query of services' logs: what the journal has of them, or the files that are named as they are (row 21.8).

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bridge_io::Io;
use bridge_node::host::{Gzip, Journal, JournalPlace, SystemLog, SystemLogFile, SystemLogs};

use crate::log_query::{LineOptions, LogQuery};
use crate::sending::{Chunks, body_of};

/// A query may take so long, as upstream.
const WITHIN: Duration = Duration::from_secs(30);
/// After so long an answer ends whose reader is slow.
const SENT_WITHIN: Duration = Duration::from_secs(60);
/// At most so many chunks of an answer wait for a slow reader.
const CHUNKS_MAX: usize = 1;
/// After so many seconds a query that found no place may be sent again.
const RETRY_SECONDS: &str = "5";
/// The line of an answer that is cut since it took too long.
const LATE: &str = "\ncontext error: context deadline exceeded\n";
/// The line of an answer without a journal.
const UNAVAILABLE: &str = "\nerror: journal output not available\n";

/// Where the logs of services are looked for.
#[derive(Clone)]
pub struct ServiceLogs {
    /// The journal, asked first.
    pub journal: Journal,
    /// The directory of the machine's logs.
    pub files: SystemLogs,
    /// Where answers are written.
    pub io: Io,
}

/// The client does not read on.
struct Gone;

/// The body of an answer, which may be compressed.
struct Answer {
    chunks: Chunks,
    gzip: Option<Gzip>,
    /// What has not been sent yet.
    waiting: Vec<u8>,
}

impl ServiceLogs {
    /// Answers a query of this client that is valid and names services.
    pub async fn answer(
        &self,
        query: LogQuery,
        client: &str,
        method: &Method,
        headers: &HeaderMap,
    ) -> Response {
        let is_packed = headers.get(header::ACCEPT_ENCODING).is_some_and(|coding| coding == "gzip");
        let body = if method == Method::HEAD {
            Body::empty()
        } else {
            let Some(place) = self.journal.place(client).await else { return too_many() };
            // It ends when the body is dropped, which holds the only receiver of the chunks.
            body_of(&self.io, CHUNKS_MAX, SENT_WITHIN, |chunks| {
                let answer = Answer { chunks, gzip: is_packed.then(Gzip::begin), waiting: Vec::new() };
                self.clone().write(query, place, answer)
            })
        };
        let mut answer = body.into_response();
        let told = answer.headers_mut();
        told.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain;charset=UTF-8"));
        if is_packed {
            told.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        answer
    }

    async fn write(self, query: LogQuery, place: JournalPlace, mut answer: Answer) {
        let reader = answer.chunks.clone();
        let writing = async move {
            let written = tokio::time::timeout(WITHIN, self.copy(&query, place, &mut answer)).await;
            let written = match written {
                Ok(written) => written,
                Err(_late) => answer.write(LATE.as_bytes()).await,
            };
            if written.is_ok() {
                answer.finish().await;
            }
        };
        tokio::select! {
            biased;
            () = reader.closed() => {}
            () = writing => {}
        }
    }

    /// Writes what there is of the services' logs. The programs that it runs end with it.
    async fn copy(&self, query: &LogQuery, place: JournalPlace, answer: &mut Answer) -> Result<(), Gone> {
        let units: Vec<String> = query.services.iter().map(|service| format!("{service}.service")).collect();
        let known = place.known(&units).await;
        let (mut in_journal, mut in_files) = (Vec::new(), Vec::new());
        for (service, is_known) in query.services.iter().zip(known) {
            let found = if is_known { &mut in_journal } else { &mut in_files };
            found.push(service.as_str());
        }
        if !in_journal.is_empty() {
            copy_journal(&place, &query.arguments(&in_journal), answer).await?;
        }
        if !in_files.is_empty() && query.options != LineOptions::default() {
            let text = format!(
                "\noptions present and query resolved to log files for [{}]\ntry without specifying options\n",
                in_files.join(" ")
            );
            return answer.write(text.as_bytes()).await;
        }
        for service in in_files {
            self.copy_file(service, answer).await?;
        }
        Ok(())
    }

    /// Writes the first of the files that a service's log may have.
    async fn copy_file(&self, service: &str, answer: &mut Answer) -> Result<(), Gone> {
        for name in [service.to_owned(), format!("{service}.log"), format!("{service}/{service}.log")] {
            let copied = match self.files.find(&name).await {
                Ok(SystemLog::File(found)) => copied(&found, answer).await?,
                Ok(SystemLog::Directory(_)) => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => Err(error),
            };
            return match copied {
                Ok(()) => Ok(()),
                Err(error) => {
                    let why = words(&error);
                    let text = format!("\nerror getting log for {service}: openat {name}: {why}\n");
                    answer.write(text.as_bytes()).await
                }
            };
        }
        answer.write(format!("\nlog not found for {service}\n").as_bytes()).await
    }
}

async fn copy_journal(place: &JournalPlace, arguments: &[String], answer: &mut Answer) -> Result<(), Gone> {
    let told = match place.begin(arguments) {
        Ok(mut output) => loop {
            match output.next().await {
                Ok(part) if part.is_empty() => break output.ended().await.map(drop),
                Ok(part) => answer.write(&part).await?,
                Err(error) => break Err(error),
            }
        },
        Err(error) => Err(error),
    };
    match told {
        Ok(()) => Ok(()),
        Err(error) => {
            tracing::warn!(%error, "The machine's journal cannot be read");
            answer.write(UNAVAILABLE.as_bytes()).await
        }
    }
}

/// Writes a file as long as it was when it was opened; what cannot be read of it is the inner error.
async fn copied(found: &SystemLogFile, answer: &mut Answer) -> Result<io::Result<()>, Gone> {
    let mut at = 0;
    while at < found.bytes {
        match found.file.read_at(at).await {
            Ok(block) if block.is_empty() => break,
            Ok(block) => {
                at += block.len() as u64;
                answer.write(&block).await?;
            }
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(()))
}

impl Answer {
    /// Sends these bytes. When this is dropped before its end, what was not sent is sent first the next time.
    async fn write(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        match &mut self.gzip {
            Some(gzip) => self.waiting.extend(gzip.pack(bytes)),
            None => self.waiting.extend_from_slice(bytes),
        }
        self.send().await
    }

    async fn send(&mut self) -> Result<(), Gone> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let place = self.chunks.reserve().await.map_err(|_closed| Gone)?;
        place.send(Ok(Bytes::from(std::mem::take(&mut self.waiting))));
        Ok(())
    }

    async fn finish(mut self) {
        if let Some(gzip) = self.gzip.take() {
            self.waiting.extend(gzip.finish());
        }
        let _ = self.send().await;
    }
}

fn too_many() -> Response {
    let text = "too many queries of the machine's logs at once\n";
    (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, RETRY_SECONDS)], text).into_response()
}

/// Why a file cannot be read, in Go's words.
pub fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::NotADirectory => "not a directory".to_owned(),
        io::ErrorKind::CrossesDevices => "path escapes from parent".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}
