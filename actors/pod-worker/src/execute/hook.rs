//! Running lifecycle hooks (row 5.19).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::wire::ExecSyncRequest;
use bridge_http::probes::HttpProbe;
use bridge_io::watch;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::time::{Instant, timeout};

use super::Executor;
use crate::hooks::{Hook, LONGEST, command_failed, in_plain_http};
use crate::texts;

/// Runs a hook to its end; dropping the future ends the wait for it.
///
/// # Errors
/// The message of the failure, for people.
pub(crate) async fn run(exec: &Executor, hook: &Hook) -> Result<(), String> {
    if let Some(command) = &hook.handler.exec {
        command_in_container(exec, hook, command.command.as_deref().unwrap_or_default()).await
    } else if let Some(get) = &hook.handler.http_get {
        let request = hook.request(get).map_err(|error| hook.failed(&error, ""))?;
        http(exec, request).await.map_err(|error| hook.failed(&error, ""))
    } else if let Some(sleep) = &hook.handler.sleep {
        tokio::time::sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))).await;
        Ok(())
    } else {
        Err(hook.invalid())
    }
}

async fn command_in_container(exec: &Executor, hook: &Hook, command: &[String]) -> Result<(), String> {
    let request = ExecSyncRequest {
        container_id: hook.container_id.to_string(),
        cmd: command.to_vec(),
        // No limit here, as upstream has it: the caller that waits for the hook has one.
        timeout: 0,
    };
    let answer = exec.deps.exec.exec_briefly(request).await;
    let (error, output) = match answer {
        Ok(answer) if answer.exit_code == 0 => return Ok(()),
        Ok(answer) => command_failed(command, answer.exit_code, &answer.stdout, &answer.stderr),
        Err(error) => (error.status_text(), String::new()),
    };
    Err(hook.failed(&error, &output))
}

async fn http(exec: &Executor, request: HttpProbe) -> Result<(), String> {
    // Any answer is a success: its status is not checked.
    let Err(error) = exec.deps.prober.request(request.clone()).await else { return Ok(()) };
    let error = error.to_string();
    let Some(plain) = in_plain_http(&request, &error) else { return Err(error) };
    if exec.deps.prober.request(plain).await.is_err() {
        return Err(error);
    }
    exec.deps.metrics.hook_http_fallbacks.inc();
    exec.record(texts::hook_http_fallback(&request.host, request.port), "");
    Ok(())
}

/// A preStop hook. The first stop that waits for it begins it; a later stop of the same container, after the
/// first was cut short, waits for the same run.
#[derive(Clone)]
pub(crate) struct PreStop {
    begun: watch::Sender<bool>,
    ended: Shared<BoxFuture<'static, ()>>,
    is_sleep: bool,
}

impl PreStop {
    /// A hook that begins when it is first waited for.
    pub fn new(exec: Executor, hook: Hook) -> Self {
        let is_sleep = hook.is_sleep();
        let ended = async move {
            if let Err(error) = run(&exec, &hook).await {
                tracing::warn!(error, pod = %exec.pod, "PreStop hook failed");
                exec.record(texts::failed_pre_stop_hook(), &hook.kind.field_path(&hook.container));
            }
        };
        Self { begun: watch::Sender::new(false), ended: ended.boxed().shared(), is_sleep }
    }

    /// Carries the hook on from its beginning to its end, whether or not a stop still waits for it. A hook that
    /// no stop can begin any more ends this, too.
    pub fn carry_on(&self) -> impl Future<Output = ()> + Send + 'static {
        let (mut begun, ended) = (self.begun.subscribe(), self.ended.clone());
        async move {
            if begun.wait_for(|begun| *begun).await.is_ok() {
                ended.await;
            }
        }
    }
}

/// The preStop hooks of containers that may be stopped, by the runtime's ID of the container.
pub(crate) type PreStops = BTreeMap<Arc<str>, PreStop>;

/// Runs a container's preStop hook, if it has one, and waits for it for at most the grace period; what becomes
/// of it after that is told when it ends. Returns the rest of the grace period, in seconds.
pub(super) async fn pre_stop(
    exec: &Executor,
    hooks: &PreStops,
    id: &str,
    name: &str,
    grace_seconds: i64,
) -> i64 {
    let Some(hook) = hooks.get(id).filter(|_| grace_seconds > 0) else { return grace_seconds };
    let _step = exec.step(format!("PreStop {name}")).await;
    let begun = Instant::now();
    hook.begun.send_replace(true);
    let patience = Duration::from_secs(u64::try_from(grace_seconds).unwrap_or(0)).min(LONGEST);
    if timeout(patience, hook.ended.clone()).await.is_err() {
        tracing::info!(pod = %exec.pod, container = name, grace_seconds, "PreStop hook outlasts the grace period");
        if hook.is_sleep {
            exec.deps.metrics.hook_sleeps_cut.inc();
        }
    }
    // Whole seconds are subtracted, as upstream does.
    grace_seconds - i64::try_from(begun.elapsed().as_secs()).unwrap_or(i64::MAX)
}
