//! The parts of the runtime that an actor may use: small traits, of which the wiring hands each actor only its own.
//!
//! [`Operations`] implements all of them; a test may implement one of them alone.
//!
//! An actor with read access cannot change the runtime. This compiles:
//!
//! ```no_run
//! # async fn sample(runtime: &dyn bridge_cri::RuntimeReads) {
//! let _ = runtime.list_containers(Default::default()).await;
//! # }
//! ```
//!
//! and this does not:
//!
//! ```compile_fail,E0599
//! # async fn sample(runtime: &dyn bridge_cri::RuntimeReads) {
//! let _ = runtime.stop_pod_sandbox("uid", "sandbox").await;
//! # }
//! ```
//!
//! nor can an actor that removes pods start one:
//!
//! ```compile_fail,E0599
//! # async fn sample(runtime: &dyn bridge_cri::PodRemoval) {
//! let _ = runtime.start_container("uid", "container").await;
//! # }
//! ```

use std::collections::BTreeSet;

use futures::future::BoxFuture;

use super::in_flight::{InFlight, Outcome, PullShare};
use super::operations::{ListedImages, Operations};
use super::runtime::{ContainerEvents, Reply};
use super::wire::*;

/// Makes each trait, and its implementation by the methods of [`Operations`] of the same names.
macro_rules! ports {
    ($($(#[$about:meta])* $port:ident $(: $more:ident)? {
        $($(#[$says:meta])* fn $method:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*
    })*) => {$(
        $(#[$about])*
        pub trait $port: $($more +)? Send + Sync + 'static {
            $($(#[$says])* fn $method(&self, $($argument: $kind),*) -> $answer;)*
        }

        impl $port for Operations {
            $(fn $method(&self, $($argument: $kind),*) -> $answer {
                Operations::$method(self, $($argument),*)
            })*
        }
    )*};
}

ports! {
    /// The runtime's state and contents; for every actor that only reads.
    ///
    /// # Errors
    /// Every call ends with the runtime's answer, or that no answer came in time.
    RuntimeReads {
        /// `Version`; fails if the runtime's version of the kubelet API is not ours.
        fn check_version() -> Reply<VersionResponse>;
        /// `Status`.
        fn status(request: StatusRequest) -> Reply<StatusResponse>;
        /// `ListPodSandbox`.
        fn list_pod_sandbox(request: ListPodSandboxRequest) -> Reply<ListPodSandboxResponse>;
        /// `PodSandboxStatus`.
        fn pod_sandbox_status(request: PodSandboxStatusRequest) -> Reply<PodSandboxStatusResponse>;
        /// `ListContainers`.
        fn list_containers(request: ListContainersRequest) -> Reply<ListContainersResponse>;
        /// `ContainerStatus`.
        fn container_status(request: ContainerStatusRequest) -> Reply<ContainerStatusResponse>;
        /// The status of a container after its process has ended; see [`Operations::status_after_exit`].
        fn status_after_exit(container_id: &str) -> Reply<ContainerStatusResponse>;
        /// `GetContainerEvents`.
        fn get_container_events() -> Reply<ContainerEvents>;
        /// The mutating calls of a pod that have not ended, by its UID.
        fn in_flight(pod_uid: &str) -> Vec<InFlight>;
        /// Ends when no mutating call of the pod is in flight.
        fn settled(pod_uid: &str) -> BoxFuture<'static, ()>;
        /// Ends when no mutating call of the pod is in flight but stops of containers.
        fn settled_but_for_stops(pod_uid: &str) -> BoxFuture<'static, ()>;
    }

    /// Stops and removals of sandboxes and containers; for PodWorker and, for pods without a worker, GarbageCollector.
    ///
    /// # Errors
    /// Every call ends with the runtime's answer, or that no answer came in time; an object that is already gone is no
    /// error.
    PodRemoval {
        /// `StopPodSandbox`.
        fn stop_pod_sandbox(pod_uid: &str, sandbox_id: &str) -> Reply<()>;
        /// `RemovePodSandbox`.
        fn remove_pod_sandbox(pod_uid: &str, sandbox_id: &str) -> Reply<()>;
        /// `StopContainer` with a grace in seconds; see [`Operations::stop_container`].
        fn stop_container(pod_uid: &str, container_id: &str, grace_s: i64) -> Reply<()>;
        /// `RemoveContainer`.
        fn remove_container(pod_uid: &str, container_id: &str) -> Reply<()>;
    }

    /// The whole lifecycle of a pod's sandbox and containers; for PodWorker.
    ///
    /// # Errors
    /// [`EnsureError`](super::EnsureError) from `ensure_sandbox` and `ensure_container`; else the runtime's answer.
    PodLifecycle: PodRemoval {
        /// The sandbox of an attempt; see [`Operations::ensure_sandbox`].
        fn ensure_sandbox(
            pod_uid: &str, attempt: u32, config: PodSandboxConfig, handler: String
        ) -> BoxFuture<'static, Outcome>;
        /// The container of an attempt; see [`Operations::ensure_container`].
        fn ensure_container(
            pod_uid: &str,
            sandbox_id: &str,
            attempt: u32,
            config: ContainerConfig,
            sandbox_config: PodSandboxConfig
        ) -> BoxFuture<'static, Outcome>;
        /// `StartContainer`.
        fn start_container(pod_uid: &str, container_id: &str) -> Reply<()>;
    }

    /// Commands that run in a container to their end; for probes, hooks and the server's `run`.
    ///
    /// # Errors
    /// The runtime's answer, or that no answer came in time.
    ExecSync {
        /// `ExecSync`.
        fn exec_sync(request: ExecSyncRequest) -> Reply<ExecSyncResponse>;
        /// `ExecSync`, of whose outputs little is kept; see [`Operations::exec_briefly`].
        fn exec_briefly(request: ExecSyncRequest) -> Reply<ExecSyncResponse>;
    }

    /// The addresses of exec, attach and port-forward streams; for NodeApi.
    ///
    /// # Errors
    /// The runtime's answer, or that no answer came in time.
    Streaming {
        /// `Exec`.
        fn exec(request: ExecRequest) -> Reply<ExecResponse>;
        /// `Attach`.
        fn attach(request: AttachRequest) -> Reply<AttachResponse>;
        /// `PortForward`.
        fn port_forward(request: PortForwardRequest) -> Reply<PortForwardResponse>;
    }

    /// Images of what runs in containers, written to files; for NodeApi.
    ///
    /// # Errors
    /// The runtime's answer; `Unimplemented` where it cannot checkpoint.
    Checkpointing {
        /// `CheckpointContainer`; see [`Operations::checkpoint_container`].
        fn checkpoint_container(request: CheckpointContainerRequest) -> Reply<()>;
    }

    /// The list of images; for NodeStatus, and as a part of [`Images`].
    ///
    /// # Errors
    /// The runtime's answer, or that no answer came in time.
    ImageReads {
        /// All images, or those that are known where no answer holds all; see [`Operations::list_all_images`].
        fn list_all_images(more: BoxFuture<'static, BTreeSet<String>>) -> Reply<ListedImages>;
    }

    /// Images and their pulls; for ImageManager.
    ///
    /// # Errors
    /// The runtime's answer, or that no answer came in time.
    Images: ImageReads {
        /// `ImageStatus`.
        fn image_status(request: ImageStatusRequest) -> Reply<ImageStatusResponse>;
        /// `PullImage`; returns the image's reference. See [`Operations::pull_image`].
        fn pull_image(request: PullImageRequest, share: PullShare) -> Reply<String>;
        /// The pulls that have not ended: each image's name and the pull's share.
        fn pulls_in_flight() -> Vec<(String, PullShare)>;
        /// Cancels a share's pulls of an image; returns their number.
        fn cancel_pull(image: &str, share: PullShare) -> usize;
        /// `RemoveImage`.
        fn remove_image(image: ImageSpec) -> Reply<()>;
    }

    /// What the runtime tells of the usage of containers and images; for EvictionManager, ImageManager and StatsProvider.
    ///
    /// # Errors
    /// The runtime's answer, or that no answer came in time.
    Stats {
        /// `ListContainerStats`.
        fn list_container_stats(request: ListContainerStatsRequest) -> Reply<ListContainerStatsResponse>;
        /// `ImageFsInfo`.
        fn image_fs_info(request: ImageFsInfoRequest) -> Reply<ImageFsInfoResponse>;
        /// `PodSandboxStatus`, for the details that some runtimes tell of a sandbox.
        fn pod_sandbox_status(request: PodSandboxStatusRequest) -> Reply<PodSandboxStatusResponse>;
    }

    /// Reopening of container logs; for LogManager.
    ///
    /// # Errors
    /// The runtime's answer; also when the container does not run.
    LogReopen {
        /// `ReopenContainerLog`.
        fn reopen_container_log(pod_uid: &str, container_id: &str) -> Reply<()>;
    }

    /// The node's configuration that the runtime is given; for NodeStatus. On a kubelet alone the process tells it once, at
    /// its start.
    ///
    /// # Errors
    /// The runtime's answer, or that no answer came in time.
    RuntimeConfiguration {
        /// `UpdateRuntimeConfig`.
        fn update_runtime_config(request: UpdateRuntimeConfigRequest) -> Reply<()>;
    }
}
