//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

use crate::connect::ConnectArgs;

/// The shortest interval between refreshes: every round costs the server some work.
const INTERVAL_MS_MIN: u64 = 100;
/// The longest interval between refreshes.
const INTERVAL_SECONDS_MAX: u64 = 3600;

/// The command line of `understudy`.
#[derive(Debug, Parser)]
#[command(name = "understudy", version, about = "The companion of the Understudy kubelet, for people")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `understudy` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show pods, actors and events of a running kubelet
    Top(TopArgs),
    /// Say what a pod waits for, and why
    Why(WhyArgs),
    /// Show what was done for a pod, step by step
    Timeline(TimelineArgs),
    /// List the pods of a running kubelet, without a control plane
    Pods(PodsArgs),
    /// Tell all that is known of a pod, without a control plane
    Describe(DescribeArgs),
    /// Print what a container has written
    Logs(LogsArgs),
    /// Play sample pods on a runtime in memory: no container runs
    Demo(DemoArgs),
    /// Print a script that completes these commands in a shell
    Completion(CompletionArgs),
}

/// How a table is shown.
#[derive(Clone, Copy, Debug, Args)]
pub struct ShowArgs {
    /// How often to ask
    #[arg(long, default_value = "1s", value_parser = interval, value_name = "DURATION")]
    pub interval: Duration,
    /// Print one plain table and end
    #[arg(long)]
    pub once: bool,
    /// Without colours; so does a NO_COLOR in the environment
    #[arg(long)]
    pub no_color: bool,
}

/// `understudy top`.
#[derive(Debug, Args)]
#[command(
    after_help = "q, Ctrl-C and Ctrl-D end it.\n\nExit codes: 0 it was ended, or with --once the table is printed; 1 with \
                        --once the kubelet cannot be asked, else the terminal cannot be used; 2 wrong use."
)]
pub struct TopArgs {
    /// How to show it.
    #[command(flatten)]
    pub show: ShowArgs,
    /// With --once, print a document instead of a table
    #[arg(short, long, value_enum, value_name = "FORMAT", requires = "once")]
    pub output: Option<WhyOutput>,
    /// The kubelet.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// `understudy why`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the pod runs and is Ready, or has succeeded; 1 the kubelet cannot be asked, or has no \
                        such pod; 2 wrong use; 3 the pod waits, ends, has failed or was refused."
)]
pub struct WhyArgs {
    /// The pod: NAME, NAMESPACE/NAME or its UID
    #[arg(value_name = "POD")]
    pub pod: String,
    /// Its namespace; any unless given
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Print a document instead of text
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<WhyOutput>,
    /// The kubelet.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// What a command prints instead of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhyOutput {
    /// One JSON document; docs/understudy.md describes it
    Json,
}

/// `understudy timeline`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the steps are shown; 1 the kubelet cannot be asked, or has no such pod; 2 wrong use."
)]
pub struct TimelineArgs {
    /// The pod: NAME, NAMESPACE/NAME or its UID
    #[arg(value_name = "POD")]
    pub pod: String,
    /// Its namespace; any unless given
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Print a document instead of text
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<WhyOutput>,
    /// The kubelet.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// `understudy pods`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the pods are listed, also none; 1 the kubelet cannot be asked; 2 wrong use."
)]
pub struct PodsArgs {
    /// Only the pods of this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Print more, or a document
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<PodsOutput>,
    /// The kubelet.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// What `understudy pods` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PodsOutput {
    /// One JSON document; docs/understudy.md describes it
    Json,
    /// The table with IP and UID
    Wide,
}

/// `understudy describe`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the pod is described; 1 the kubelet cannot be asked, or has no such pod; 2 wrong use."
)]
pub struct DescribeArgs {
    /// The pod: NAME, NAMESPACE/NAME or its UID
    #[arg(value_name = "POD")]
    pub pod: String,
    /// Its namespace; any unless given
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Print a document instead of text
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<WhyOutput>,
    /// The kubelet.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// `understudy logs`.
#[derive(Debug, Args)]
#[command(
    after_help = "It needs the authenticated port. On a terminal control characters are shown as pictures; elsewhere the log is \
                        passed on as it is.\n\nExit codes: 0 the log is printed; 1 the kubelet cannot be asked, has no such pod, \
                        container or log, or the log broke off; 2 wrong use."
)]
pub struct LogsArgs {
    /// The pod: NAME, NAMESPACE/NAME or its UID
    #[arg(value_name = "POD")]
    pub pod: String,
    /// Its namespace; any unless given
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// The container; unless given, the one that the pod's annotation names, or its first
    #[arg(short, long, value_name = "CONTAINER")]
    pub container: Option<String>,
    /// Go on while the container runs
    #[arg(short, long)]
    pub follow: bool,
    /// The log of the container before its last restart
    #[arg(short, long)]
    pub previous: bool,
    /// Only so many of the last lines; -1 for all
    #[arg(long, value_name = "LINES", allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..))]
    pub tail: Option<i64>,
    /// Only what is not older: 5s, 2m, 3h
    #[arg(long, value_name = "DURATION", value_parser = since)]
    pub since: Option<Duration>,
    /// Each line begins with its time
    #[arg(long)]
    pub timestamps: bool,
    /// Print a document for each line instead of text
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<WhyOutput>,
    /// The kubelet.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// `understudy demo`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 it was ended; 1 there is no kubelet or no sample, or the kubelet ended by itself; 2 wrong use."
)]
pub struct DemoArgs {
    /// Pods to play instead of the samples: every YAML or JSON file of this directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub manifests: Option<PathBuf>,
    /// End after so many seconds; with --once the table is printed then (15 unless given)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: Option<u32>,
    /// The kubelet to start; the one beside this program unless given
    #[arg(long, env = "KUBELET", value_name = "FILE")]
    pub kubelet: Option<PathBuf>,
    /// Keep the kubelet's log in this file
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// How to show it.
    #[command(flatten)]
    pub show: ShowArgs,
}

/// `understudy completion`.
#[derive(Debug, Args)]
#[command(
    after_help = "For a shell that runs: source <(understudy completion bash), source <(understudy completion zsh), or \
                        understudy completion fish | source. docs/understudy.md says where to put it for those to come."
)]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// A shell that can complete commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

fn interval(text: &str) -> Result<Duration, String> {
    let duration: jiff::SignedDuration =
        text.parse().map_err(|_| format!("{text:?} is no duration such as 500ms, 1s or 1m30s"))?;
    let range = Duration::from_millis(INTERVAL_MS_MIN)..=Duration::from_secs(INTERVAL_SECONDS_MAX);
    Duration::try_from(duration)
        .ok()
        .filter(|duration| range.contains(duration))
        .ok_or_else(|| format!("{text:?} is not between {INTERVAL_MS_MIN}ms and {INTERVAL_SECONDS_MAX}s"))
}

fn since(text: &str) -> Result<Duration, String> {
    let duration = text.parse::<jiff::SignedDuration>().ok();
    duration
        .and_then(|duration| Duration::try_from(duration).ok())
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| format!("{text:?} is no duration such as 5s, 2m or 1h30m"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_pod_is_asked_about_with_namespace_and_format() {
        let cli = Cli::try_parse_from(["understudy", "why", "-n", "default", "web", "-o", "json"]).unwrap();
        let Command::Why(args) = cli.command else { panic!("not why") };
        assert_eq!((args.pod.as_str(), args.namespace.as_deref()), ("web", Some("default")));
        assert_eq!(args.output, Some(WhyOutput::Json));
        assert!(Cli::try_parse_from(["understudy", "why"]).is_err());
        assert!(Cli::try_parse_from(["understudy", "pods", "--output", "yaml"]).is_err());
    }

    #[test]
    fn logs_are_asked_for_as_with_kubectl() {
        let read = |words: &[&str]| {
            let cli = Cli::try_parse_from([&["understudy", "logs"][..], words].concat()).ok()?;
            let Command::Logs(args) = cli.command else { panic!("not logs") };
            Some((args.container, args.follow, args.previous, args.tail, args.since, args.timestamps))
        };
        let all = ["-fp", "-c", "app", "--tail=7", "--since", "1m30s", "--timestamps", "-n", "x", "web"];
        let container = Some("app".to_owned());
        assert_eq!(read(&all), Some((container, true, true, Some(7), Some(Duration::from_secs(90)), true)));
        assert_eq!(read(&["web", "--tail", "-1"]), Some((None, false, false, Some(-1), None, false)));
        for wrong in [&["web", "--tail", "-2"][..], &["web", "--since", "0s"], &["web", "--since", "5"], &[]]
        {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn intervals_have_bounds() {
        assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("1m30s"), Ok(Duration::from_secs(90)));
        for wrong in ["", "x", "1", "10ms", "-1s", "2h"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
