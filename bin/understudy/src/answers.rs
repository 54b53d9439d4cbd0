//! `understudy why`, `understudy timeline` and `understudy pods`: ask the kubelet once, and print what pure code makes of its answers.

use std::io::Write;

use anyhow::{Context, anyhow};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use pod_why::rows;
use pod_why::timeline::{self, Timeline};
use pod_why::why::{self, Asked, FindError};
use serde::Serialize;

use crate::cli::{PodsArgs, PodsOutput, TimelineArgs, WhyArgs, WhyOutput};
use crate::client::{FetchError, PodList, Server};
use crate::connect::ConnectError;
use crate::json;
use crate::list;
use crate::terminal::size;

/// The exit code of a command line that cannot be meant.
pub const WRONG_USE: u8 = 2;

/// The exit code of a command that has failed.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    let is_wrong_use = error.downcast_ref::<FindError>().is_some_and(FindError::is_wrong_use)
        || error.downcast_ref::<ConnectError>().is_some_and(ConnectError::is_wrong_use);
    if is_wrong_use { WRONG_USE } else { 1 }
}

/// Runs `understudy why`, and returns the exit code.
///
/// # Errors
/// The command line names no pod, the kubelet cannot be asked, or it has no such pod.
pub async fn why(args: &WhyArgs) -> anyhow::Result<u8> {
    let asked = Asked::parse(&args.pod, args.namespace.as_deref())?;
    let server = args.connect.server()?;
    let answers = server.ask().await;
    let pods = items(answers.pods, &server)?;
    let mut unread = Vec::new();
    let events = answers.events.unwrap_or_else(|error| {
        unread.push(error.to_string());
        Default::default()
    });
    let tree = answers.supervision.unwrap_or_else(|error| {
        unread.push(error.to_string());
        Default::default()
    });
    let subject = asked.find(&server.to_string(), &pods, &tree)?;
    let answer = why::why(&subject, &tree, &events.events, &unread, Timestamp::now());
    match args.output {
        Some(WhyOutput::Json) => print_document(&answer)?,
        None => print(&why::lines(&answer, columns()).join("\n"))?,
    }
    Ok(answer.verdict.exit_code())
}

/// Runs `understudy timeline`.
///
/// # Errors
/// The command line names no pod, the kubelet cannot be asked, or it has no such pod.
pub async fn timeline(args: &TimelineArgs) -> anyhow::Result<()> {
    let asked = Asked::parse(&args.pod, args.namespace.as_deref())?;
    let server = args.connect.server()?;
    let (pods, tree) = tokio::join!(server.get("/pods"), server.get("/supervision"));
    let (pods, tree) = (items(pods, &server)?, tree.unwrap_or_default());
    let subject = asked.find(&server.to_string(), &pods, &tree)?;
    let query = format!("pod={}", subject.uid);
    let told: Timeline = server.get_with("/timeline", &query).await?;
    match args.output {
        Some(WhyOutput::Json) => print_document(&told),
        None => print(&timeline::lines(&subject.full_name(), &told, columns()).join("\n")),
    }
}

/// Runs `understudy pods`.
///
/// # Errors
/// The kubelet cannot be asked.
pub async fn pods(args: &PodsArgs) -> anyhow::Result<()> {
    let server = args.connect.server()?;
    let pods = items(server.get("/pods").await, &server)?;
    let rows = rows::rows(&pods, args.namespace.as_deref(), Timestamp::now());
    let wide = match args.output {
        Some(PodsOutput::Json) => {
            return print_document(&serde_json::json!({ "pods": rows }));
        }
        Some(PodsOutput::Wide) => true,
        None => false,
    };
    if rows.is_empty() {
        // As kubectl does: a script that reads the table reads nothing.
        let _ = writeln!(std::io::stderr(), "{server} has no such pods");
        return Ok(());
    }
    print(&list::table(&rows, wide, columns()).join("\n"))
}

/// The pods of an answer.
pub(crate) fn items(answer: Result<PodList, FetchError>, server: &Server) -> anyhow::Result<Vec<Pod>> {
    match answer {
        Ok(list) => Ok(list.items.unwrap_or_default()),
        Err(error) if error.is_of_access() => Err(anyhow!("{error}")),
        Err(error) if error.answered() => Err(anyhow!("{error}; the kubelet at {server} lists no pods now")),
        Err(error) if server.is_secured() => Err(anyhow!(
            "{error}; is it a kubelet's authenticated port (`port` in its configuration)? --server names another"
        )),
        Err(error) => Err(anyhow!(
            "{error}; is it a kubelet's read-only port (`readOnlyPort` in its configuration)? --server names another"
        )),
    }
}

/// The width to which lines are cut: that of the terminal.
fn columns() -> Option<usize> {
    size().map(|(columns, _)| columns)
}

/// Prints an answer as a document.
pub(crate) fn print_document(answer: &impl Serialize) -> anyhow::Result<()> {
    print(&json::pretty(answer).context("write the document")?)
}

/// Prints an answer.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").context("write the answer")
}
