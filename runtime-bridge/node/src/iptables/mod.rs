//! The chains of iptables by which other programs know that a kubelet is here, and which iptables it uses (row 12.4).

mod chains;
#[cfg(any(test, feature = "fake"))]
mod fake;
mod program;

use futures::future::BoxFuture;

pub use chains::keep;
#[cfg(any(test, feature = "fake"))]
pub use fake::FakeTables;
pub use program::ProgramTables;

/// Why a command to the tables was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{command}: {why}")]
pub struct TablesError {
    /// The program with its arguments.
    pub command: String,
    /// How it has ended, and what it said.
    pub why: String,
    /// Its exit status; `None` if it could not be run, or has not ended by itself in time.
    pub status: Option<i32>,
}

impl TablesError {
    /// What was asked for is not there, or is there already: the program's status for a command that cannot be carried out.
    fn is_refusal(&self) -> bool {
        self.status == Some(1)
    }

    /// Another program has the tables, or no answer came: whether what was asked for is there is not known.
    fn is_undecided(&self) -> bool {
        self.status.is_none_or(|status| status == 4)
    }
}

/// The outcome of a command.
pub type Told = BoxFuture<'static, Result<(), TablesError>>;

/// The tables of one family of addresses.
pub trait PacketTables: Send + Sync + std::fmt::Debug {
    /// The family: `IPv4`, `IPv6`.
    fn family(&self) -> &'static str;

    /// Whether this machine has the program.
    fn has_program(&self) -> BoxFuture<'static, bool>;

    /// Carries out a command with these arguments, as `iptables` takes them.
    fn run(&self, arguments: &[&str]) -> Told;
}
