//! Ensures a sandbox or container: after an unknown outcome, or when the name is held, lists what exists before trying
//! again, and adopts what an earlier call did create (row 30.3).

use pod_rules::labels::POD_UID;

use super::*;

/// The pauses before the looks, milliseconds. Together they span a restart of the runtime.
const LOOK_PAUSES_MS: [u64; 5] = [0, 500, 1000, 2000, 4000];
/// The number of lists that must show nothing usable: a runtime may still be rolling back, or finishing, after the call
/// has ended.
const EMPTY_LOOKS: usize = 2;

impl Operations {
    /// `RunPodSandbox` of an attempt, or the sandbox that an earlier call of this attempt made.
    ///
    /// There is one run per pod at a time; the same attempt joins the one in flight. After an unknown outcome, or when
    /// the name is held, sandboxes are listed by the pod's label and the attempt, and a ready one is adopted; of two,
    /// the one with running containers.
    ///
    /// # Errors
    /// See [`EnsureError`], which tells whether to try the same attempt or the next. `InvalidArgument` when
    /// `config.metadata` does not name the pod and the attempt.
    pub fn ensure_sandbox(
        &self,
        pod_uid: &str,
        attempt: u32,
        config: PodSandboxConfig,
        handler: String,
    ) -> BoxFuture<'static, Outcome> {
        let named =
            config.metadata.as_ref().is_some_and(|meta| meta.uid == pod_uid && meta.attempt == attempt);
        if !named {
            return misnamed(Rpc::RunPodSandbox, pod_uid, attempt);
        }
        let calls = self.calls.clone();
        let key = Key::Pod(pod_uid.to_owned());
        let uid = pod_uid.to_owned();
        let work = move || calls.run_or_adopt(uid, attempt, config, handler).boxed();
        self.in_flight.submit(key, Rpc::RunPodSandbox, Some(pod_uid), Same::Attempt(attempt), work)
    }

    /// `CreateContainer` of an attempt, or the container that an earlier call of this attempt made.
    ///
    /// There is one creation per sandbox and container name at a time; the same attempt joins the one in flight. An
    /// adopted container may be running already; one that has exited is not adopted.
    ///
    /// # Errors
    /// See [`EnsureError`]. `InvalidArgument` when `config.metadata` does not name a container and the attempt.
    pub fn ensure_container(
        &self,
        pod_uid: &str,
        sandbox_id: &str,
        attempt: u32,
        config: ContainerConfig,
        sandbox_config: PodSandboxConfig,
    ) -> BoxFuture<'static, Outcome> {
        let name = config.metadata.as_ref().filter(|meta| meta.attempt == attempt && !meta.name.is_empty());
        let Some(name) = name.map(|meta| meta.name.clone()) else {
            return misnamed(Rpc::CreateContainer, pod_uid, attempt);
        };
        let calls = self.calls.clone();
        let key = Key::Create { sandbox_id: sandbox_id.to_owned(), name: name.clone() };
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox_id.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let work = move || calls.create_or_adopt(name, attempt, request).boxed();
        self.in_flight.submit(key, Rpc::CreateContainer, Some(pod_uid), Same::Attempt(attempt), work)
    }
}

fn misnamed(rpc: Rpc, pod_uid: &str, attempt: u32) -> BoxFuture<'static, Outcome> {
    let message = format!("metadata does not name pod {pod_uid} attempt {attempt}");
    let error = CriError::new(rpc, CriErrorKind::InvalidArgument, message);
    std::future::ready(Err(EnsureError::Failed(error))).boxed()
}

/// The result of one look.
enum Seen {
    Usable(String),
    Unusable(String),
    Nothing,
}

/// Looks until a usable object appears, or until enough looks have shown none.
async fn look<F>(error: CriError, mut once: F) -> Outcome
where
    F: FnMut() -> BoxFuture<'static, Result<Seen, CriError>>,
{
    if !error.outcome_unknown() && !error.is_name_reserved() {
        return Err(EnsureError::Failed(error));
    }
    let (mut empty, mut unusable, mut failed) = (0, None, None);
    for pause_ms in LOOK_PAUSES_MS {
        if pause_ms > 0 {
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
        match once().await {
            Ok(Seen::Usable(id)) => {
                tracing::info!(id, %error, "adopted what an unanswered call had created");
                return Ok(Ensured::Adopted(id));
            }
            Ok(Seen::Unusable(id)) => (empty, unusable) = (empty + 1, Some(id)),
            Ok(Seen::Nothing) => empty += 1,
            Err(unanswered) => failed = Some(unanswered),
        }
        if empty >= EMPTY_LOOKS {
            break;
        }
    }
    match failed {
        Some(look) if empty < EMPTY_LOOKS => Err(EnsureError::NotLooked { error, look }),
        _ => Err(EnsureError::RaiseAttempt { error, unusable }),
    }
}

impl Calls {
    async fn run_or_adopt(
        self,
        pod_uid: String,
        attempt: u32,
        config: PodSandboxConfig,
        handler: String,
    ) -> Outcome {
        let started = Instant::now();
        let request = RunPodSandboxRequest { config: Some(config), runtime_handler: handler.clone() };
        let answer = self.run_pod_sandbox(request).await;
        self.metrics.observe_sandbox(&handler, started.elapsed(), answer.is_err());
        match answer {
            Ok(ran) => Ok(Ensured::Created(ran.pod_sandbox_id)),
            Err(error) => look(error, || self.clone().see_sandbox(pod_uid.clone(), attempt).boxed()).await,
        }
    }

    async fn see_sandbox(self, pod_uid: String, attempt: u32) -> Result<Seen, CriError> {
        let filter = PodSandboxFilter {
            label_selector: [(POD_UID.to_owned(), pod_uid.clone())].into(),
            ..Default::default()
        };
        let list = self.list_pod_sandbox(ListPodSandboxRequest { filter: Some(filter) }).await?;
        let ours = |sandbox: &PodSandbox| {
            sandbox.metadata.as_ref().is_some_and(|meta| meta.uid == pod_uid && meta.attempt == attempt)
        };
        let (ready, other): (Vec<_>, Vec<_>) =
            list.items.into_iter().filter(ours).partition(|sandbox| is_ready(sandbox.state));
        if ready.len() > 1 {
            for sandbox in &ready {
                if self.runs_containers(&sandbox.id).await? {
                    return Ok(Seen::Usable(sandbox.id.clone()));
                }
            }
        }
        Ok(match (ready.into_iter().next(), other.into_iter().next()) {
            (Some(sandbox), _) => Seen::Usable(sandbox.id),
            (None, Some(sandbox)) => Seen::Unusable(sandbox.id),
            (None, None) => Seen::Nothing,
        })
    }

    async fn runs_containers(&self, sandbox_id: &str) -> Result<bool, CriError> {
        let filter = ContainerFilter {
            pod_sandbox_id: sandbox_id.to_owned(),
            state: Some(ContainerStateValue { state: ContainerState::ContainerRunning.into() }),
            ..Default::default()
        };
        let list = self.list_containers(ListContainersRequest { filter: Some(filter) }).await?;
        Ok(!list.containers.is_empty())
    }

    async fn create_or_adopt(self, name: String, attempt: u32, request: CreateContainerRequest) -> Outcome {
        let sandbox_id = request.pod_sandbox_id.clone();
        match self.create_container(request).await {
            Ok(created) => Ok(Ensured::Created(created.container_id)),
            Err(error) => {
                look(error, || self.clone().see_container(sandbox_id.clone(), name.clone(), attempt).boxed())
                    .await
            }
        }
    }

    async fn see_container(self, sandbox_id: String, name: String, attempt: u32) -> Result<Seen, CriError> {
        let filter = ContainerFilter { pod_sandbox_id: sandbox_id, ..Default::default() };
        let list = self.list_containers(ListContainersRequest { filter: Some(filter) }).await?;
        let ours = |container: &Container| {
            container.metadata.as_ref().is_some_and(|meta| meta.name == name && meta.attempt == attempt)
        };
        Ok(match list.containers.into_iter().find(ours) {
            None => Seen::Nothing,
            Some(container) => match container_state(container.state) {
                ContainerState::ContainerCreated | ContainerState::ContainerRunning => {
                    Seen::Usable(container.id)
                }
                _ => Seen::Unusable(container.id),
            },
        })
    }
}
