//! Measures, rotates and compresses logs through the bridge.

use std::sync::Arc;
use std::time::Duration;

use bridge_cri::LogReopen;
use bridge_node::host::{Compressed, ContainerLogs, LogError, LogPlace};
use jiff::Timestamp;
use supervision::blame;

use crate::plan::{Need, Writer, need, rotation};

/// How long the runtime may take to reopen a log. After that other logs go on, and the call does as well.
const REOPEN_MAX: Duration = Duration::from_secs(10);

/// The effects of rotating.
#[derive(Clone)]
pub struct Backends {
    /// Tells the runtime, which writes logs, to reopen one.
    pub runtime: Arc<dyn LogReopen>,
    /// The files of logs.
    pub logs: Arc<dyn ContainerLogs>,
}

/// The result of a look at sizes.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// The logs to rotate or reopen.
    pub(crate) needs: Vec<(Writer, Need)>,
    /// Containers of which the log cannot be measured, and why.
    pub(crate) problems: Vec<(Writer, String)>,
}

/// Measures all logs in one call.
pub(crate) async fn look(backends: Backends, writers: Vec<Writer>, bytes_max: u64) -> Looked {
    let places = writers.iter().map(|writer| writer.log.clone()).collect();
    // The call as a whole fails only when the kubelet is ending.
    let sizes = backends.logs.sizes(places).await.unwrap_or_default();
    let mut looked = Looked::default();
    for (writer, size) in writers.into_iter().zip(sizes) {
        let _named = blame::name(&writer.pod.uid.clone());
        match size {
            Ok(size) => looked.needs.extend(need(size, bytes_max).map(|need| (writer, need))),
            Err(error) => looked.problems.push((writer, error.to_string())),
        }
    }
    looked
}

/// The result of a rotation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RotationOutcome {
    /// The runtime has reopened the log.
    Reopened,
    /// The log has been rotated.
    Rotated {
        /// The name of the rotated file.
        aside: String,
        /// Files to compress now.
        compress: Vec<String>,
    },
    /// The rotated name is taken: the next look tries again.
    Later,
}

/// Rotates or reopens a log.
pub(crate) async fn turn(
    backends: Backends,
    writer: Writer,
    need: Need,
    files_max: usize,
    now: Timestamp,
) -> Result<RotationOutcome, String> {
    match need {
        Need::Reopen => reopen(&backends, &writer).await.map(|()| RotationOutcome::Reopened),
        Need::Rotate { .. } => rotate(&backends, &writer, files_max, now).await,
    }
}

async fn rotate(
    backends: &Backends,
    writer: &Writer,
    files_max: usize,
    now: Timestamp,
) -> Result<RotationOutcome, String> {
    let text = |error: LogError| error.to_string();
    let log = &writer.log;
    let beside = backends.logs.rotated(log).await.map_err(text)?;
    let time = now.strftime("%Y%m%d-%H%M%S").to_string();
    let Some(planned) = rotation(&log.file, &beside, files_max, &time) else {
        return Ok(RotationOutcome::Later);
    };
    backends.logs.remove(log, planned.remove).await.map_err(text)?;
    backends.logs.rename(log, &log.file, &planned.aside).await.map_err(text)?;
    if let Err(error) = reopen(backends, writer).await {
        // If the runtime has begun a new file meanwhile, that one is not replaced.
        return match backends.logs.rename(log, &planned.aside, &log.file).await {
            Ok(()) => Err(error),
            Err(stays) => Err(format!("{error}; it stays {}: {stays}", planned.aside)),
        };
    }
    Ok(RotationOutcome::Rotated { aside: planned.aside, compress: planned.compress })
}

async fn reopen(backends: &Backends, writer: &Writer) -> Result<(), String> {
    let reopened = backends.runtime.reopen_container_log(writer.pod.uid.as_str(), &writer.container);
    match tokio::time::timeout(REOPEN_MAX, reopened).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("the runtime does not begin another log: {error}")),
        Err(_) => Err("the runtime does not say whether it has begun another log".to_owned()),
    }
}

/// Compresses one file.
pub(crate) async fn compress(backends: Backends, log: LogPlace, name: String) -> Result<bool, String> {
    let compressed = backends.logs.compress(&log, &name).await.map_err(|error| error.to_string())?;
    Ok(compressed == Compressed::Done)
}
