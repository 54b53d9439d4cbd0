//! Runs kubectl: to its end, beside the case, and on a terminal.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::process::{Input, Running, Said};

use crate::node::LATER;

/// kubectl in one namespace.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    common: Vec<String>,
    is_older: bool,
}

impl Kubectl {
    pub fn new(program: &Path, kubeconfig: &Path, namespace: &str) -> Self {
        let common =
            [format!("--kubeconfig={}", kubeconfig.display()), format!("--namespace={namespace}")].into();
        Self { program: program.to_owned(), common, is_older: false }
    }

    /// The same, which streams as older ones do: by SPDY alone, without a WebSocket.
    pub fn older(self) -> Self {
        Self { is_older: true, ..self }
    }

    /// Runs kubectl to its end, with an empty input.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> Said {
        self.start(arguments).ends(LATER)
    }

    /// The output of kubectl, which must succeed.
    ///
    /// # Panics
    /// kubectl fails.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments);
        assert_eq!(said.code, Some(0), "kubectl {arguments:?}: {}{}", said.out, said.err);
        said.out
    }

    /// Starts kubectl with an empty input.
    pub fn start(&self, arguments: &[&str]) -> Running {
        Running::start(self.command(arguments), Input::Empty, described(arguments))
    }

    /// Starts kubectl with an input that stays open.
    pub fn start_fed(&self, arguments: &[&str]) -> Running {
        Running::start(self.command(arguments), Input::Fed, described(arguments))
    }

    /// Starts kubectl on a terminal of its own with so many rows and columns.
    pub fn start_on_terminal(&self, arguments: &[&str], rows: u16, columns: u16) -> Running {
        let mut command = self.command(arguments);
        command.env("TERM", "dumb");
        Running::on_terminal(&command, rows, columns, described(arguments))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.common).args(arguments);
        if self.is_older {
            command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false");
            command.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false");
        }
        command
    }
}

fn described(arguments: &[&str]) -> String {
    format!("kubectl {}", arguments.join(" "))
}
