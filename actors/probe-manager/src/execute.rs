//! Runs one probe through the bridge.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::wire::ExecSyncRequest;
use bridge_cri::{CriErrorKind, ExecSync, OUTPUT_KEPT_MAX};
use bridge_http::probes::{
    GrpcProbe, HttpProbe, ProbeError, ProbeOutcome, ProbeReport, Prober, Scheme, TcpProbe,
};

use crate::target::Target;
use crate::texts;
use crate::verdict::{NoAnswer, ProbeAnswer, TRIES_ON_ERROR};

/// At most so many bytes of a command's output are kept; the bridge holds no more of each stream while it arrives.
const OUTPUT_BYTES_MAX: usize = OUTPUT_KEPT_MAX;
/// How much longer than the probe's own timeout the runtime may take to report that the timeout has passed. After that
/// the runtime is taken to be unresponsive, which is not the container's failure.
const RUNTIME_SLACK: Duration = Duration::from_secs(10);

/// The effects through which probes run.
#[derive(Clone)]
pub struct Backends {
    /// Runs commands in containers.
    pub exec: Arc<dyn ExecSync>,
    /// Probes over HTTP, TCP and gRPC.
    pub prober: Arc<dyn Prober>,
}

/// Runs a probe. If the container could not be asked, it is tried again at once, at most [`TRIES_ON_ERROR`] times in
/// all.
pub async fn run(
    backends: Backends,
    target: Target,
    container_id: Arc<str>,
    asker: Arc<str>,
    timeout: Duration,
) -> ProbeAnswer {
    let mut tries = 1;
    loop {
        let answer = run_once(&backends, &target, &container_id, &asker, timeout).await;
        match &answer {
            ProbeAnswer::Errored { why, .. } if *why != NoAnswer::NoRuntime && tries < TRIES_ON_ERROR => {
                tries += 1
            }
            _ => return answer,
        }
    }
}

async fn run_once(
    backends: &Backends,
    target: &Target,
    container_id: &str,
    asker: &Arc<str>,
    timeout: Duration,
) -> ProbeAnswer {
    match target {
        Target::Exec { command } => exec(backends, container_id, command, timeout).await,
        Target::Http { scheme, host, port, path, headers } => {
            let scheme = match scheme.as_str() {
                "http" => Scheme::Http,
                "https" => Scheme::Https,
                other => return unasked(format!("unsupported protocol scheme {other:?}")),
            };
            let probe = HttpProbe {
                scheme,
                host: host.clone(),
                port: *port,
                path: path.clone(),
                headers: headers.clone(),
                timeout,
                asker: asker.clone(),
            };
            reported(backends.prober.http_get(probe)).await
        }
        Target::Tcp { host, port } => {
            let probe = TcpProbe { host: host.clone(), port: *port, timeout, asker: asker.clone() };
            reported(backends.prober.tcp(probe)).await
        }
        Target::Grpc { host, port, service } => {
            let probe = GrpcProbe { host: host.clone(), port: *port, service: service.clone(), timeout };
            reported(backends.prober.grpc(probe)).await
        }
    }
}

fn unasked(message: String) -> ProbeAnswer {
    ProbeAnswer::Errored { why: NoAnswer::Unknown, message }
}

async fn reported(probe: impl Future<Output = Result<ProbeReport, ProbeError>>) -> ProbeAnswer {
    match probe.await {
        Ok(ProbeReport { outcome, output }) => match outcome {
            ProbeOutcome::Success => ProbeAnswer::Success,
            ProbeOutcome::Warning => ProbeAnswer::Warning { output },
            ProbeOutcome::Failure => ProbeAnswer::Failure { output },
            ProbeOutcome::Unknown => unasked(output),
        },
        Err(ProbeError::Body(message)) => ProbeAnswer::Errored { why: NoAnswer::BrokenOff, message },
        Err(error @ ProbeError::NotRun(_)) => unasked(error.to_string()),
    }
}

async fn exec(backends: &Backends, container_id: &str, command: &[String], timeout: Duration) -> ProbeAnswer {
    let timeout_s = timeout.as_secs();
    let request = ExecSyncRequest {
        container_id: container_id.to_owned(),
        cmd: command.to_vec(),
        timeout: i64::try_from(timeout_s).unwrap_or(i64::MAX),
    };
    let call = backends.exec.exec_briefly(request);
    match tokio::time::timeout(timeout + RUNTIME_SLACK, call).await {
        Err(_elapsed) => ProbeAnswer::Errored {
            why: NoAnswer::NoRuntime,
            message: format!("the container runtime did not answer within {:?}", timeout + RUNTIME_SLACK),
        },
        Ok(Ok(answer)) if answer.exit_code == 0 => ProbeAnswer::Success,
        Ok(Ok(answer)) => ProbeAnswer::Failure { output: output(answer.stdout, &answer.stderr) },
        Ok(Err(error)) if error.kind == CriErrorKind::DeadlineExceeded => {
            ProbeAnswer::Failure { output: texts::command_timed_out(command, timeout_s) }
        }
        Ok(Err(error)) => unasked(error.status_text()),
    }
}

/// Both outputs of a command, one after the other, cut at [`OUTPUT_BYTES_MAX`].
fn output(mut stdout: Vec<u8>, stderr: &[u8]) -> String {
    stdout.truncate(OUTPUT_BYTES_MAX);
    let room = OUTPUT_BYTES_MAX - stdout.len();
    stdout.extend(stderr.iter().take(room));
    String::from_utf8_lossy(&stdout).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_both_streams_and_never_more_than_ten_kibibytes() {
        assert_eq!(output(b"out".to_vec(), b"err"), "outerr");
        assert_eq!(output(vec![b'a'; 20_000], b"err").len(), OUTPUT_BYTES_MAX);
        assert_eq!(output(vec![b'a'; OUTPUT_BYTES_MAX - 1], b"err").chars().last(), Some('e'));
    }
}
