//! Commands in the fake's containers.

use std::sync::Arc;
use std::time::Duration;

use super::about::unimplemented;
use super::node::{Node, State};
use crate::error::{CriError, CriErrorKind};
use crate::rpc::Rpc;
use crate::wire::*;

/// The exit code of a command that SIGKILL has ended.
const KILLED: i32 = 137;

impl State {
    fn running(&mut self, rpc: Rpc, id: &str) -> Result<(), CriError> {
        if self.container(rpc, id)?.is_running() {
            return Ok(());
        }
        let message = format!("failed to exec in container: container {id:?} is not running");
        Err(CriError::new(rpc, CriErrorKind::Other, message))
    }

    fn streaming_url(&mut self, rpc: Rpc, verb: &str, id: &str) -> Result<String, CriError> {
        self.running(rpc, id)?;
        let address = self.streaming_address.as_ref().ok_or_else(|| unimplemented(rpc))?;
        Ok(format!("{address}/{verb}/{id}"))
    }
}

impl Node {
    pub(super) async fn exec_sync(
        self: Arc<Self>,
        request: ExecSyncRequest,
    ) -> Result<ExecSyncResponse, CriError> {
        let rpc = Rpc::ExecSync;
        let words = request.cmd.join(" ");
        let script = self.update(|state| {
            state.running(rpc, &request.container_id)?;
            let script = state.execs.iter().rev().find(|(part, _)| words.contains(part));
            Ok(script.map(|(_, script)| script.clone()).unwrap_or_default())
        })?;
        let limit = Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0));
        if limit > Duration::ZERO && script.takes > limit {
            tokio::time::sleep(limit).await;
            let message = format!(
                "failed to exec in container: timeout {}s exceeded: context deadline exceeded",
                request.timeout
            );
            return Err(CriError::new(rpc, CriErrorKind::DeadlineExceeded, message));
        }
        // The end of its container ends the command, too.
        let id = request.container_id;
        let killed = self.wait_for(|state| {
            let runs = state.containers.get(&id).is_some_and(|container| container.is_running());
            (!runs).then_some(())
        });
        let exit_code = tokio::select! {
            biased;
            () = tokio::time::sleep(script.takes) => script.exit_code,
            () = killed => KILLED,
        };
        Ok(ExecSyncResponse { stdout: script.stdout, stderr: script.stderr, exit_code })
    }

    pub(super) async fn exec(self: Arc<Self>, request: ExecRequest) -> Result<ExecResponse, CriError> {
        let url = self.update(|state| state.streaming_url(Rpc::Exec, "exec", &request.container_id))?;
        Ok(ExecResponse { url })
    }

    pub(super) async fn attach(self: Arc<Self>, request: AttachRequest) -> Result<AttachResponse, CriError> {
        let url = self.update(|state| state.streaming_url(Rpc::Attach, "attach", &request.container_id))?;
        Ok(AttachResponse { url })
    }

    pub(super) async fn checkpoint_container(
        self: Arc<Self>,
        _: CheckpointContainerRequest,
    ) -> Result<CheckpointContainerResponse, CriError> {
        Err(unimplemented(Rpc::CheckpointContainer))
    }
}
