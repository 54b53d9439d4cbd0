//! The tables behind the programs `iptables` and `ip6tables`.

use std::time::Duration;

use bridge_io::Lane;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;

use super::{PacketTables, TablesError, Told};
use crate::mounts::program;

/// How long the program waits for another one that has the tables (upstream's seconds).
const WAITS: [&str; 2] = ["-w", "5"];
/// How long a command may take.
const WITHIN: Duration = Duration::from_secs(60);

/// This machine's tables of one family.
#[derive(Debug, Clone)]
pub struct ProgramTables {
    family: &'static str,
    program: &'static str,
    /// Arguments that come before all others.
    before: Vec<String>,
    lane: Lane,
}

impl ProgramTables {
    /// The tables of IPv4 and those of IPv6. Programs are run on `io`.
    pub fn both(io: &Handle) -> [Self; 2] {
        let of = |family, program| Self {
            family,
            program,
            before: Vec::new(),
            lane: Lane::new("iptables", io.clone()),
        };
        [of("IPv4", "iptables"), of("IPv6", "ip6tables")]
    }

    /// The same tables in the network namespace of a process.
    #[cfg(test)]
    pub(super) fn within(self, pid: u32) -> Self {
        let before = vec![format!("--net=/proc/{pid}/ns/net"), self.program.to_owned()];
        Self { program: "nsenter", before, ..self }
    }

    /// Runs the program; also tells whether it is there.
    fn call(&self, arguments: Vec<String>) -> BoxFuture<'static, (Result<(), TablesError>, bool)> {
        let this = self.clone();
        async move {
            let words: Vec<&str> = this.before.iter().chain(&arguments).map(String::as_str).collect();
            match program::run(&this.lane, this.program, &words, WITHIN, ()).await {
                Ok(_) => (Ok(()), true),
                Err(failed) => {
                    let why = [failed.why.as_str(), failed.output.trim()].join(": ");
                    let why = why.trim_end_matches([':', ' ']).to_owned();
                    let command = format!("{} {}", this.program, words.join(" "));
                    let error = TablesError { command, why, status: failed.code };
                    (Err(error), !failed.is_missing)
                }
            }
        }
        .boxed()
    }
}

impl PacketTables for ProgramTables {
    fn family(&self) -> &'static str {
        self.family
    }

    fn has_program(&self) -> BoxFuture<'static, bool> {
        self.call(vec!["--version".to_owned()]).map(|(_, is_there)| is_there).boxed()
    }

    fn run(&self, arguments: &[&str]) -> Told {
        let arguments = WAITS.iter().chain(arguments).map(|word| (*word).to_owned()).collect();
        self.call(arguments).map(|(told, _)| told).boxed()
    }
}
