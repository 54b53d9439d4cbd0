//! The kubelet's process: reads the command line and configuration, and runs the node.

use std::io::Write;
use std::process::ExitCode;

use kubelet::config::ConfigError;
use kubelet::config::logging::LoggingConfiguration;
use kubelet::config::validation::Host;
use kubelet::flags::{VersionRequest, help_text};
use kubelet::load::{Invocation, Loaded, load};
use kubelet::{KUBERNETES_VERSION, daemon, telemetry};

fn main() -> ExitCode {
    let args: Vec<String> =
        std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    let _last_lines = LastLines;
    match load(&args, &Host::probe(), &mut std::io::stderr()) {
        Ok(Invocation::Help) => print(&help_text()),
        Ok(Invocation::Version(request)) => print(&version_text(request)),
        Ok(Invocation::Run(loaded)) => run(&loaded),
        Err(errors) => refuse(&errors),
    }
}

/// Has the log written to its end when the process ends, also by a panic.
struct LastLines;

impl Drop for LastLines {
    fn drop(&mut self) {
        telemetry::flush();
    }
}

/// Writes to standard output; a closed pipe is no failure.
fn print(text: &str) -> ExitCode {
    let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
    ExitCode::SUCCESS
}

fn version_text(request: VersionRequest) -> String {
    match request {
        VersionRequest::Raw => format!(
            "version.Info{{GitVersion:{KUBERNETES_VERSION:?}, Program:\"understudy\", ProgramVersion:{:?}, Platform:\"{}/{}\"}}",
            env!("CARGO_PKG_VERSION"),
            std::env::consts::OS,
            std::env::consts::ARCH,
        ),
        _ => format!("Kubernetes {KUBERNETES_VERSION}"),
    }
}

fn refuse(errors: &[ConfigError]) -> ExitCode {
    // The configured log may be part of the problem, so the default log reports.
    let _ = telemetry::init(&LoggingConfiguration::default());
    for error in errors {
        tracing::error!(err = %error, "command failed");
    }
    ExitCode::FAILURE
}

fn run(loaded: &Loaded) -> ExitCode {
    let verbosity = match telemetry::init(&loaded.config.process.logging) {
        Ok(verbosity) => verbosity,
        Err(error) => return refuse(&[error]),
    };
    tracing::info!(kubeletVersion = KUBERNETES_VERSION, "Kubelet version");
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    for file in &loaded.skipped_drop_ins {
        tracing::debug!(file = %file.display(), "Skipped file in drop-in directory (does not have .conf extension)");
    }
    tracing::debug!(v = 5, configuration = %loaded.config.to_json(), "KubeletConfiguration");
    daemon::run(loaded, verbosity)
}
