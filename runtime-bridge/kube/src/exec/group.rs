//! A run of a program with all processes that it starts: a process group of its own.

use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

/// The most bytes of a program's output.
const OUTPUT_BYTES_MAX: u64 = 1024 * 1024;

/// A program that runs. Dropping it before the program's end was seen kills the program with its whole process group.
#[derive(Debug)]
pub(super) struct Group(Child);

/// A program that has ended by itself.
pub(super) struct Ended {
    /// How.
    pub status: ExitStatus,
    /// What it wrote on its standard output.
    pub output: Vec<u8>,
    /// What it wrote on its standard error.
    pub said: Vec<u8>,
}

impl Group {
    pub fn begin(command: &mut Command) -> std::io::Result<Self> {
        command.process_group(0).kill_on_drop(true).spawn().map(Self)
    }

    /// Reads what the program writes, then waits for its end.
    pub async fn ended(&mut self) -> std::io::Result<Ended> {
        let (output, said) = tokio::join!(read(self.0.stdout.take()), read(self.0.stderr.take()));
        Ok(Ended { output: output?, said: said?, status: self.0.wait().await? })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A program whose end was seen has no id any more, and what it has left behind lives on.
        if let Some(group) = self.0.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

async fn read(from: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}
