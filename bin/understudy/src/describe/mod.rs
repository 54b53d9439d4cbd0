//! `understudy describe`: all that a kubelet's answers say of one pod, in the shape of `kubectl describe pod`.

mod container;
mod document;
mod text;
mod volume;

use anyhow::bail;
use jiff::Timestamp;
use pod_why::why::Asked;

use crate::answers::{items, print, print_document};
use crate::cli::DescribeArgs;

/// Runs `understudy describe`.
///
/// # Errors
/// The command line names no pod, the kubelet cannot be asked, or it has no such pod.
pub async fn describe(args: &DescribeArgs) -> anyhow::Result<()> {
    let asked = Asked::parse(&args.pod, args.namespace.as_deref())?;
    let server = args.connect.server()?;
    let answers = server.ask().await;
    let pods = items(answers.pods, &server)?;
    let mut unread = Vec::new();
    let events = answers.events.unwrap_or_else(|error| {
        unread.push(error.to_string());
        Default::default()
    });
    // The tree has the names of pods that are not desired any more.
    let tree = answers.supervision.unwrap_or_default();
    let subject = asked.find(&server.to_string(), &pods, &tree)?;
    let Some(pod) = subject.pod else {
        let name = subject.full_name();
        bail!("{name} is being ended, and no more is known of it; `understudy why {name}` says what is left");
    };
    let description = document::describe(pod, &events.events, &unread);
    match args.output {
        Some(_) => print_document(&description),
        None => print(&text::lines(&description, Timestamp::now()).join("\n")),
    }
}

#[cfg(test)]
mod tests;
