//! The process: reads the command line, runs the command, and reports its failure.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use understudy::cli::{Cli, Command};
use understudy::{answers, completion, demo, describe, logs, top};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(answers::WRONG_USE) } else { ExitCode::SUCCESS };
        }
    };
    match run(cli) {
        Ok(code) => ExitCode::from(code),
        // `understudy top | head`: a reader that closes the pipe is no failure.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "understudy: {error:#}");
            ExitCode::from(answers::exit_code(&error))
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let causes = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    causes.into_iter().any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Runs the command, and returns the exit code.
fn run(cli: Cli) -> anyhow::Result<u8> {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio.block_on(async {
        match cli.command {
            Command::Top(args) => top::top(args).await.map(|()| 0),
            Command::Why(args) => answers::why(&args).await,
            Command::Timeline(args) => answers::timeline(&args).await.map(|()| 0),
            Command::Pods(args) => answers::pods(&args).await.map(|()| 0),
            Command::Describe(args) => describe::describe(&args).await.map(|()| 0),
            Command::Logs(args) => logs::logs(&args).await.map(|()| 0),
            Command::Demo(args) => demo::demo(args).await.map(|()| 0),
            Command::Completion(args) => completion::completion(&args).map(|()| 0),
        }
    })
}
