//! The layer that actors use: reads pass through, mutating calls run in tasks of their own, every call is counted.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use prost::Message as _;
use tokio::time::Instant;

use super::error::{CriError, CriErrorKind};
use super::in_flight::{InFlight, InFlightCalls, Key, Outcome, PullShare, Same};
use super::metrics::CriMetrics;
use super::rpc::{Rpc, for_each_rpc};
use super::runtime::{ContainerEvents, Reply, Runtime};
use super::wire::*;
use bridge_io::Io;
use bridge_pace::history::History;

mod adopt;
mod images;

use self::images::KnownImages;
pub use self::images::ListedImages;

/// The version of the kubelet's runtime API that a runtime must answer with.
pub const KUBELET_API_VERSION: &str = "0.1.0";
/// The longest grace, in seconds, that an `i64` of nanoseconds can hold.
const GRACE_SECONDS_MAX: i64 = i64::MAX / 1_000_000_000;
/// The pauses, in milliseconds, between looks at a container after its process has ended, until the runtime knows the
/// end too. The first look comes after a pause too, since Pleg has looked at the container a moment ago.
const EXIT_LOOKS_MS: [u64; 7] = [15, 30, 60, 120, 250, 500, 1000];

/// A sandbox or container that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ensured {
    /// This call created it. Holds its ID.
    Created(String),
    /// An earlier call with a lost answer created it. Holds its ID. A container may already run, so the caller looks
    /// before starting it.
    Adopted(String),
}

impl Ensured {
    /// The ID.
    #[must_use]
    pub fn into_id(self) -> String {
        match self {
            Ensured::Created(id) | Ensured::Adopted(id) => id,
        }
    }
}

/// Why a sandbox or container could not be ensured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnsureError {
    /// The runtime refused, and no object holds the name: the caller may try the same attempt again.
    #[error("{0}")]
    Failed(CriError),
    /// The outcome was unknown or the name is held, and lists showed nothing usable: the next try needs a higher
    /// attempt.
    #[error("{error}; nothing usable of this attempt appeared")]
    RaiseAttempt {
        /// The failure that made the bridge look.
        error: CriError,
        /// The ID of this attempt's sandbox or container that cannot be used (not ready, or exited); the caller should
        /// remove it.
        unusable: Option<String>,
    },
    /// The outcome is unknown, and the runtime could not be asked: the caller tries the same attempt again once the
    /// runtime answers.
    #[error("{error}; looking for it failed: {look}")]
    NotLooked {
        /// The failure that left the outcome unknown.
        error: CriError,
        /// Why no list could be read.
        look: CriError,
    },
}

impl EnsureError {
    /// The failure of the call itself.
    #[must_use]
    pub fn cri(&self) -> &CriError {
        match self {
            EnsureError::Failed(error)
            | EnsureError::RaiseAttempt { error, .. }
            | EnsureError::NotLooked { error, .. } => error,
        }
    }

    fn into_cri(self) -> CriError {
        match self {
            EnsureError::Failed(error)
            | EnsureError::RaiseAttempt { error, .. }
            | EnsureError::NotLooked { error, .. } => error,
        }
    }
}

/// Calls to the runtime for actors. Cheap to clone; clones share the calls in flight.
///
/// Mutating calls run to their own deadline in a task of the bridge even when the returned future is dropped (or never
/// polled); at most one call touches a sandbox or a container at a time, others wait their turn, and a call that is the
/// same as the last one queued joins it and gets its result. [`in_flight`](Self::in_flight) and
/// [`settled`](Self::settled) find calls by their `pod_uid`.
#[derive(Clone)]
pub struct Operations {
    calls: Calls,
    in_flight: Arc<InFlightCalls>,
    images: Arc<KnownImages>,
}

/// The runtime with every call counted and timed.
#[derive(Clone)]
struct Calls {
    runtime: Arc<dyn Runtime>,
    metrics: CriMetrics,
}

impl Calls {
    fn observed<T: 'static>(&self, rpc: Rpc, call: Reply<T>) -> Reply<T> {
        let metrics = self.metrics.clone();
        async move {
            let started = Instant::now();
            let answer = call.await;
            metrics.observe(rpc, started.elapsed(), answer.is_err());
            answer
        }
        .boxed()
    }
}

macro_rules! reads {
    ($($service:ident { $($kind:ident $method:ident($request:ident) -> $response:ident = $name:ident $label:literal;)* })*) => {
        impl Calls {
            $($(
                fn $method(&self, request: $request) -> Reply<$response> {
                    self.observed(Rpc::$name, self.runtime.$method(request))
                }
            )*)*
        }

        impl Operations {
            $($( reads!(@one $kind $method $request $response $name); )*)*
        }
    };
    (@one read $method:ident $request:ident $response:ident $name:ident) => {
        #[doc = concat!("`", stringify!($name), "`, passed through; dropping it cancels it.")]
        ///
        /// # Errors
        /// The runtime's answer, or that no answer came in time.
        pub fn $method(&self, request: $request) -> Reply<$response> {
            self.calls.$method(request)
        }
    };
    (@one $kind:ident $method:ident $request:ident $response:ident $name:ident) => {};
}
for_each_rpc!(reads);

/// Turns a mutating call without an answer into an outcome.
fn done<T: Send + 'static>(call: Reply<T>) -> BoxFuture<'static, Outcome> {
    async move { call.await.map(|_| Ensured::Created(String::new())).map_err(EnsureError::Failed) }.boxed()
}

/// The same as [`done`], and an object that is already gone counts as done.
fn done_or_gone<T: Send + 'static>(call: Reply<T>) -> BoxFuture<'static, Outcome> {
    async move {
        match call.await {
            Err(error) if !error.is_not_found() => Err(EnsureError::Failed(error)),
            _ => Ok(Ensured::Created(String::new())),
        }
    }
    .boxed()
}

impl Operations {
    /// Calls to `runtime`, run on `io` and counted in `metrics`.
    #[must_use]
    pub fn new(runtime: Arc<dyn Runtime>, io: Io, metrics: CriMetrics) -> Self {
        Self { calls: Calls { runtime, metrics }, in_flight: InFlightCalls::new(io), images: Arc::default() }
    }

    /// Notes each mutating call in the history of its pod; before the first call.
    #[must_use]
    pub fn noted_in(self, history: History) -> Self {
        Self { in_flight: self.in_flight.noting(history), ..self }
    }

    /// `ExecSync`, of whose outputs the first [`OUTPUT_KEPT_MAX`](super::OUTPUT_KEPT_MAX) bytes are kept, and no more
    /// ever held; dropping it cancels it.
    ///
    /// # Errors
    /// The runtime's answer, or that no answer came in time.
    pub fn exec_briefly(&self, request: ExecSyncRequest) -> Reply<ExecSyncResponse> {
        self.calls.observed(Rpc::ExecSync, self.calls.runtime.exec_briefly(request))
    }

    /// The mutating calls of a pod that have not ended. Pulls belong to no pod.
    #[must_use]
    pub fn in_flight(&self, pod_uid: &str) -> Vec<InFlight> {
        self.in_flight.of_pod(pod_uid)
    }

    /// Ends when no mutating call of the pod is in flight; at once when there is none.
    #[must_use]
    pub fn settled(&self, pod_uid: &str) -> BoxFuture<'static, ()> {
        Arc::clone(&self.in_flight).settled(pod_uid.to_owned(), None).boxed()
    }

    /// Ends when no mutating call of the pod is in flight but stops of containers: a stop with less grace may begin beside them.
    #[must_use]
    pub fn settled_but_for_stops(&self, pod_uid: &str) -> BoxFuture<'static, ()> {
        Arc::clone(&self.in_flight).settled(pod_uid.to_owned(), Some(Rpc::StopContainer)).boxed()
    }

    /// `Version`; checks that the runtime speaks this kubelet's API.
    ///
    /// # Errors
    /// The runtime's answer, or `Other` when it states another version than [`KUBELET_API_VERSION`].
    pub fn check_version(&self) -> Reply<VersionResponse> {
        let asked = self.version(VersionRequest { version: KUBELET_API_VERSION.into() });
        async move {
            let answer = asked.await?;
            if answer.version == KUBELET_API_VERSION {
                return Ok(answer);
            }
            let message = format!("runtime API version {:?} is not {KUBELET_API_VERSION:?}", answer.version);
            Err(CriError::new(Rpc::Version, CriErrorKind::Other, message))
        }
        .boxed()
    }

    /// `GetContainerEvents`.
    ///
    /// # Errors
    /// The runtime's answer; `Unimplemented` where it has no event stream.
    pub fn get_container_events(&self) -> Reply<ContainerEvents> {
        let call = self.calls.runtime.get_container_events(GetEventsRequest {});
        self.calls.observed(Rpc::GetContainerEvents, call)
    }

    /// The verbose status of a container after its process has ended, as soon as the runtime shows the end; after about
    /// 2 s the status as it is.
    ///
    /// # Errors
    /// The runtime's answer.
    pub fn status_after_exit(&self, container_id: &str) -> Reply<ContainerStatusResponse> {
        let request = ContainerStatusRequest { container_id: container_id.to_owned(), verbose: true };
        let calls = self.calls.clone();
        async move {
            for pause_ms in EXIT_LOOKS_MS {
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                let answer = calls.container_status(request.clone()).await?;
                let state = answer.status.as_ref().map(ContainerStatus::state);
                if state != Some(ContainerState::ContainerRunning) {
                    return Ok(answer);
                }
            }
            calls.container_status(request).await
        }
        .boxed()
    }

    /// Puts a mutating call in flight now; the returned future only waits for it.
    fn submit<F>(
        &self,
        key: Key,
        rpc: Rpc,
        pod_uid: Option<&str>,
        same: Same,
        work: F,
    ) -> BoxFuture<'static, Result<String, CriError>>
    where
        F: FnOnce(Calls) -> BoxFuture<'static, Outcome> + Send + 'static,
    {
        let calls = self.calls.clone();
        let outcome = self.in_flight.submit(key, rpc, pod_uid, same, move || work(calls));
        async move { outcome.await.map(Ensured::into_id).map_err(EnsureError::into_cri) }.boxed()
    }

    fn fly_blank<F>(&self, key: Key, rpc: Rpc, pod_uid: &str, same: Same, work: F) -> Reply<()>
    where
        F: FnOnce(Calls) -> BoxFuture<'static, Outcome> + Send + 'static,
    {
        self.submit(key, rpc, Some(pod_uid), same, work).map(|ended| ended.map(drop)).boxed()
    }

    /// `StopPodSandbox`; a sandbox that is gone counts as stopped.
    ///
    /// # Errors
    /// The runtime's answer, or that no answer came in time.
    pub fn stop_pod_sandbox(&self, pod_uid: &str, sandbox_id: &str) -> Reply<()> {
        let request = StopPodSandboxRequest { pod_sandbox_id: sandbox_id.to_owned() };
        let key = Key::Sandbox(sandbox_id.to_owned());
        self.fly_blank(key, Rpc::StopPodSandbox, pod_uid, Same::Always, move |calls| {
            done_or_gone(calls.stop_pod_sandbox(request))
        })
    }

    /// `RemovePodSandbox`; a sandbox that is gone counts as removed.
    ///
    /// # Errors
    /// The runtime's answer, or that no answer came in time.
    pub fn remove_pod_sandbox(&self, pod_uid: &str, sandbox_id: &str) -> Reply<()> {
        let request = RemovePodSandboxRequest { pod_sandbox_id: sandbox_id.to_owned() };
        let key = Key::Sandbox(sandbox_id.to_owned());
        self.fly_blank(key, Rpc::RemovePodSandbox, pod_uid, Same::Always, move |calls| {
            done_or_gone(calls.remove_pod_sandbox(request))
        })
    }

    /// `UpdatePodSandboxResources`.
    ///
    /// # Errors
    /// The runtime's answer; `Unimplemented` from older runtimes.
    pub fn update_pod_sandbox_resources(
        &self,
        pod_uid: &str,
        request: UpdatePodSandboxResourcesRequest,
    ) -> Reply<()> {
        let key = Key::Sandbox(request.pod_sandbox_id.clone());
        let same = Same::Request(request.encode_to_vec());
        self.fly_blank(key, Rpc::UpdatePodSandboxResources, pod_uid, same, move |calls| {
            done(calls.update_pod_sandbox_resources(request))
        })
    }

    /// `StartContainer`.
    ///
    /// # Errors
    /// The runtime's answer, or that no answer came in time.
    pub fn start_container(&self, pod_uid: &str, container_id: &str) -> Reply<()> {
        let request = StartContainerRequest { container_id: container_id.to_owned() };
        let key = Key::Container(container_id.to_owned());
        self.fly_blank(key, Rpc::StartContainer, pod_uid, Same::Always, move |calls| {
            done(calls.start_container(request))
        })
    }

    /// `StopContainer`: the stop signal now, SIGKILL after `grace_s` seconds. A container that is gone counts as
    /// stopped. A stop with a shorter grace than one in flight does not wait for that one, and makes it end sooner.
    ///
    /// # Errors
    /// The runtime's answer, or that no answer came in time.
    pub fn stop_container(&self, pod_uid: &str, container_id: &str, grace_s: i64) -> Reply<()> {
        // A runtime that counts in nanoseconds would overflow into a negative grace, and kill at once.
        let grace_s = grace_s.min(GRACE_SECONDS_MAX);
        let request = StopContainerRequest { container_id: container_id.to_owned(), timeout: grace_s };
        let key = Key::Container(container_id.to_owned());
        self.fly_blank(key, Rpc::StopContainer, pod_uid, Same::Grace(grace_s), move |calls| {
            done_or_gone(calls.stop_container(request))
        })
    }

    /// `RemoveContainer`; a container that is gone counts as removed.
    ///
    /// # Errors
    /// The runtime's answer, or that no answer came in time.
    pub fn remove_container(&self, pod_uid: &str, container_id: &str) -> Reply<()> {
        let request = RemoveContainerRequest { container_id: container_id.to_owned() };
        let key = Key::Container(container_id.to_owned());
        self.fly_blank(key, Rpc::RemoveContainer, pod_uid, Same::Always, move |calls| {
            done_or_gone(calls.remove_container(request))
        })
    }

    /// `UpdateContainerResources`. Updates of one container are applied in the order they were asked for.
    ///
    /// # Errors
    /// The runtime's answer, or that no answer came in time.
    pub fn update_container_resources(
        &self,
        pod_uid: &str,
        request: UpdateContainerResourcesRequest,
    ) -> Reply<()> {
        let key = Key::Container(request.container_id.clone());
        let same = Same::Request(request.encode_to_vec());
        self.fly_blank(key, Rpc::UpdateContainerResources, pod_uid, same, move |calls| {
            done(calls.update_container_resources(request))
        })
    }

    /// `ReopenContainerLog`: the container's output goes to the file at its log path from now on, which is created if
    /// it is missing.
    ///
    /// # Errors
    /// The runtime's answer; also when the container does not run.
    pub fn reopen_container_log(&self, pod_uid: &str, container_id: &str) -> Reply<()> {
        let request = ReopenContainerLogRequest { container_id: container_id.to_owned() };
        let key = Key::Log(container_id.to_owned());
        self.fly_blank(key, Rpc::ReopenContainerLog, pod_uid, Same::Always, move |calls| {
            done(calls.reopen_container_log(request))
        })
    }

    /// `CheckpointContainer`.
    ///
    /// # Errors
    /// The runtime's answer; `Unimplemented` where it cannot checkpoint.
    pub fn checkpoint_container(&self, request: CheckpointContainerRequest) -> Reply<()> {
        let key = Key::Checkpoint(request.container_id.clone());
        let same = Same::Request(request.encode_to_vec());
        let flown = self.submit(key, Rpc::CheckpointContainer, None, same, move |calls| {
            done(calls.checkpoint_container(request))
        });
        flown.map(|ended| ended.map(drop)).boxed()
    }

    /// `UpdateRuntimeConfig`.
    ///
    /// # Errors
    /// The runtime's answer, or that no answer came in time.
    pub fn update_runtime_config(&self, request: UpdateRuntimeConfigRequest) -> Reply<()> {
        let same = Same::Request(request.encode_to_vec());
        let flown = self.submit(Key::Runtime, Rpc::UpdateRuntimeConfig, None, same, move |calls| {
            done(calls.update_runtime_config(request))
        });
        flown.map(|ended| ended.map(drop)).boxed()
    }

    /// `PullImage`; returns the pulled image's reference. Pulls are queued per `share`: a pull of the same image for
    /// the same handler with the same credentials joins the one in flight, another pull of that share waits, and other
    /// shares run beside it.
    ///
    /// # Errors
    /// The runtime's answer; `DeadlineExceeded` when the pull is cancelled.
    pub fn pull_image(&self, request: PullImageRequest, share: PullShare) -> Reply<String> {
        let mut same = PullImageRequest { sandbox_config: None, ..request.clone() };
        let image = same.image.as_mut().map(|spec| {
            // Maps have no order, and pods' annotations do not make another image.
            spec.annotations.clear();
            spec.image.clone()
        });
        let key = Key::Pull(image.unwrap_or_default(), share);
        let known = Arc::clone(&self.images);
        self.submit(key, Rpc::PullImage, None, Same::Request(same.encode_to_vec()), move |calls| {
            async move {
                let pulled = calls.pull_image(request).await.map_err(EnsureError::Failed)?;
                known.note(&pulled.image_ref);
                Ok(Ensured::Created(pulled.image_ref))
            }
            .boxed()
        })
    }

    /// The pulls that have not ended: each image by the name it was asked for, and the share that the pull belongs to.
    #[must_use]
    pub fn pulls_in_flight(&self) -> Vec<(String, PullShare)> {
        self.in_flight.pulls()
    }

    /// Cancels a share's pulls of an image by the name it was asked for; returns their number.
    pub fn cancel_pull(&self, image: &str, share: PullShare) -> usize {
        self.in_flight.cancel(&Key::Pull(image.to_owned(), share), Rpc::PullImage)
    }

    /// `RemoveImage`; an image that is gone counts as removed.
    ///
    /// # Errors
    /// The runtime's answer, or that no answer came in time.
    pub fn remove_image(&self, image: ImageSpec) -> Reply<()> {
        let key = Key::Image(image.image.clone());
        let request = RemoveImageRequest { image: Some(image) };
        let flown = self.submit(key, Rpc::RemoveImage, None, Same::Always, move |calls| {
            done_or_gone(calls.remove_image(request))
        });
        flown.map(|ended| ended.map(drop)).boxed()
    }
}

#[cfg(test)]
#[cfg(feature = "fake")]
mod tests;
