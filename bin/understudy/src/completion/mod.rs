//! `understudy completion`: scripts that complete the command line, made of the definition by which it is parsed.

mod bash;
mod fish;
pub mod table;
mod zsh;

use std::io::Write;

use anyhow::Context;
use clap::CommandFactory;

use crate::cli::{Cli, CompletionArgs, Shell};

/// The script for a shell.
pub fn script(shell: Shell) -> String {
    let table = table::table(Cli::command());
    match shell {
        Shell::Bash => bash::script(&table),
        Shell::Zsh => zsh::script(&table),
        Shell::Fish => fish::script(&table),
    }
}

/// Runs `understudy completion`.
///
/// # Errors
/// Standard output cannot be written to.
pub fn completion(args: &CompletionArgs) -> anyhow::Result<()> {
    std::io::stdout().lock().write_all(script(args.shell).as_bytes()).context("write the script")
}
