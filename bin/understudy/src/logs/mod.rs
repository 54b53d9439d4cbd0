//! `understudy logs`: what a container has written, passed on as it comes.

mod choice;
mod written;

use std::io::{IsTerminal, Write};

use anyhow::{Context, bail};
use pod_why::why::{Asked, Subject};

use crate::answers::items;
use crate::cli::LogsArgs;
use crate::client::{STREAM_DEADLINE, Server, Stream};
use choice::choose;
use written::{Documents, Harmless};

/// The path of logs, as errors name it.
const PATH: &str = "/containerLogs";

/// Runs `understudy logs`.
///
/// # Errors
/// The kubelet cannot be asked, it has no such pod, container or log, or the log broke off.
pub async fn logs(args: &LogsArgs) -> anyhow::Result<()> {
    let asked = Asked::parse(&args.pod, args.namespace.as_deref())?;
    let server = args.connect.secured()?;
    let pods = items(server.get("/pods").await, &server)?;
    // The log of a pod that only a worker is left of is not served either.
    let subject = asked.find(&server.to_string(), &pods, &Default::default())?;
    let container = container(&subject, args.container.as_deref())?;
    let target = format!("{PATH}/{}/{}/{container}{}", subject.namespace, subject.name, query(args));
    let stream = server.stream(PATH, &target).await?;
    pass_on(stream, args).await.with_context(|| cut_short(&server, &subject, &container))
}

fn cut_short(server: &Server, subject: &Subject<'_>, container: &str) -> String {
    format!("the log of container {container:?} of {} on {server}", subject.full_name())
}

/// The name of the container, with a word on standard error about one that was not named.
fn container(subject: &Subject<'_>, asked: Option<&str>) -> anyhow::Result<String> {
    let Some(pod) = subject.pod else { bail!("{} has no log any more", subject.full_name()) };
    let chosen = choose(pod, asked).map_err(|why| anyhow::anyhow!("{}: {why}", subject.full_name()))?;
    if !chosen.among.is_empty() {
        let others = chosen.among.join(", ");
        let _ = writeln!(std::io::stderr(), "Defaulted container {:?} out of: {others}", chosen.name);
    }
    Ok(chosen.name)
}

/// The query, with its mark; empty for a whole log.
fn query(args: &LogsArgs) -> String {
    let mut pairs = Vec::new();
    let mut flag = |name: &str, is_set: bool| {
        if is_set {
            pairs.push(format!("{name}=true"));
        }
    };
    flag("follow", args.follow);
    flag("previous", args.previous);
    // A document always has the time of its line.
    flag("timestamps", args.timestamps || args.output.is_some());
    if let Some(lines) = args.tail.filter(|lines| *lines >= 0) {
        pairs.push(format!("tailLines={lines}"));
    }
    if let Some(since) = args.since {
        // A part of a second counts as one, since none is the whole log.
        let seconds = since.as_secs().saturating_add(u64::from(since.subsec_nanos() > 0));
        pairs.push(format!("sinceSeconds={}", i64::try_from(seconds).unwrap_or(i64::MAX)));
    }
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

/// Writes the log to standard output, part by part.
async fn pass_on(mut stream: Stream, args: &LogsArgs) -> anyhow::Result<()> {
    // A container that is followed may be silent for as long as it likes.
    let within = (!args.follow).then_some(STREAM_DEADLINE);
    let mut documents = args.output.map(|_| Documents::default());
    let mut harmless = std::io::stdout().is_terminal().then(Harmless::default);
    let mut put = |part: Option<&[u8]>| -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        match (&mut documents, &mut harmless, part) {
            (Some(documents), _, Some(part)) => documents.write(part, &mut out)?,
            (Some(documents), _, None) => documents.end(&mut out)?,
            (None, Some(harmless), Some(part)) => out.write_all(harmless.text(part).as_bytes())?,
            (None, Some(harmless), None) => out.write_all(harmless.end().as_bytes())?,
            (None, None, part) => out.write_all(part.unwrap_or_default())?,
        }
        out.flush()
    };
    let ended = loop {
        match stream.part(within).await {
            Ok(Some(part)) => put(Some(&part[..])).context("write the log")?,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    put(None).context("write the log")?;
    ended.map_err(anyhow::Error::from)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn of(words: &[&str]) -> String {
        let cli = Cli::try_parse_from([&["understudy", "logs", "web"][..], words].concat()).unwrap();
        let Command::Logs(args) = cli.command else { panic!("not logs") };
        query(&args)
    }

    #[test]
    fn the_query_says_what_the_flags_say() {
        assert_eq!(of(&[]), "");
        assert_eq!(of(&["-f", "-p", "--timestamps"]), "?follow=true&previous=true&timestamps=true");
        assert_eq!(of(&["--tail", "0", "--since", "1500ms"]), "?tailLines=0&sinceSeconds=2");
        assert_eq!(of(&["--tail=-1", "-o", "json"]), "?timestamps=true");
    }
}
