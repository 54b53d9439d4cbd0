//! The table of RPCs, a line each. The trait, the client, the fake, the server and the metrics are made from it, so
//! that none of them can miss an RPC.

/// Calls the macro `$mac` with the whole table.
///
/// The word before a method says how it is called: `read` may be dropped half way, `mutate` runs to its deadline even
/// if its caller goes away, `pull` runs until it is cancelled. After `=` stands the value of the label `operation_type`
/// in upstream's metrics.
macro_rules! for_each_rpc {
    ($mac:ident) => {
        $mac! {
            runtime {
                read version(VersionRequest) -> VersionResponse = Version "version";
                read status(StatusRequest) -> StatusResponse = Status "status";
                read runtime_config(RuntimeConfigRequest) -> RuntimeConfigResponse = RuntimeConfig "runtime_config";
                mutate update_runtime_config(UpdateRuntimeConfigRequest) -> UpdateRuntimeConfigResponse
                    = UpdateRuntimeConfig "update_runtime_config";
                mutate run_pod_sandbox(RunPodSandboxRequest) -> RunPodSandboxResponse
                    = RunPodSandbox "run_podsandbox";
                mutate stop_pod_sandbox(StopPodSandboxRequest) -> StopPodSandboxResponse
                    = StopPodSandbox "stop_podsandbox";
                mutate remove_pod_sandbox(RemovePodSandboxRequest) -> RemovePodSandboxResponse
                    = RemovePodSandbox "remove_podsandbox";
                read pod_sandbox_status(PodSandboxStatusRequest) -> PodSandboxStatusResponse
                    = PodSandboxStatus "podsandbox_status";
                read list_pod_sandbox(ListPodSandboxRequest) -> ListPodSandboxResponse
                    = ListPodSandbox "list_podsandbox";
                mutate update_pod_sandbox_resources(UpdatePodSandboxResourcesRequest)
                    -> UpdatePodSandboxResourcesResponse
                    = UpdatePodSandboxResources "update_podsandbox_resources";
                read port_forward(PortForwardRequest) -> PortForwardResponse = PortForward "port_forward";
                mutate create_container(CreateContainerRequest) -> CreateContainerResponse
                    = CreateContainer "create_container";
                mutate start_container(StartContainerRequest) -> StartContainerResponse
                    = StartContainer "start_container";
                mutate stop_container(StopContainerRequest) -> StopContainerResponse
                    = StopContainer "stop_container";
                mutate remove_container(RemoveContainerRequest) -> RemoveContainerResponse
                    = RemoveContainer "remove_container";
                read list_containers(ListContainersRequest) -> ListContainersResponse
                    = ListContainers "list_containers";
                read container_status(ContainerStatusRequest) -> ContainerStatusResponse
                    = ContainerStatus "container_status";
                mutate update_container_resources(UpdateContainerResourcesRequest)
                    -> UpdateContainerResourcesResponse
                    = UpdateContainerResources "update_container";
                mutate reopen_container_log(ReopenContainerLogRequest) -> ReopenContainerLogResponse
                    = ReopenContainerLog "reopen_container_log";
                mutate checkpoint_container(CheckpointContainerRequest) -> CheckpointContainerResponse
                    = CheckpointContainer "checkpoint_container";
                read exec_sync(ExecSyncRequest) -> ExecSyncResponse = ExecSync "exec_sync";
                read exec(ExecRequest) -> ExecResponse = Exec "exec";
                read attach(AttachRequest) -> AttachResponse = Attach "attach";
                read container_stats(ContainerStatsRequest) -> ContainerStatsResponse
                    = ContainerStats "container_stats";
                read list_container_stats(ListContainerStatsRequest) -> ListContainerStatsResponse
                    = ListContainerStats "list_container_stats";
                read pod_sandbox_stats(PodSandboxStatsRequest) -> PodSandboxStatsResponse
                    = PodSandboxStats "podsandbox_stats";
                read list_pod_sandbox_stats(ListPodSandboxStatsRequest) -> ListPodSandboxStatsResponse
                    = ListPodSandboxStats "list_podsandbox_stats";
                read list_metric_descriptors(ListMetricDescriptorsRequest) -> ListMetricDescriptorsResponse
                    = ListMetricDescriptors "list_metric_descriptors";
                read list_pod_sandbox_metrics(ListPodSandboxMetricsRequest) -> ListPodSandboxMetricsResponse
                    = ListPodSandboxMetrics "list_podsandbox_metrics";
            }
            image {
                read list_images(ListImagesRequest) -> ListImagesResponse = ListImages "list_images";
                read image_status(ImageStatusRequest) -> ImageStatusResponse = ImageStatus "image_status";
                pull pull_image(PullImageRequest) -> PullImageResponse = PullImage "pull_image";
                mutate remove_image(RemoveImageRequest) -> RemoveImageResponse = RemoveImage "remove_image";
                read image_fs_info(ImageFsInfoRequest) -> ImageFsInfoResponse = ImageFsInfo "image_fs_info";
            }
        }
    };
}
pub(crate) use for_each_rpc;

macro_rules! rpc_enum {
    ($($service:ident { $($kind:ident $method:ident($request:ident) -> $response:ident = $name:ident $label:literal;)* })*) => {
        /// An RPC of RuntimeService or ImageService.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs)]
        pub enum Rpc {
            $($($name,)*)*
            GetContainerEvents,
        }

        impl Rpc {
            /// Every RPC, in the order of the table.
            pub const ALL: &'static [Rpc] = &[$($(Rpc::$name,)*)* Rpc::GetContainerEvents];

            /// The name on the wire, for example `RunPodSandbox`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($(Rpc::$name => stringify!($name),)*)*
                    Rpc::GetContainerEvents => "GetContainerEvents",
                }
            }

            /// The value of upstream's metric label `operation_type`, for example `run_podsandbox`.
            #[must_use]
            pub fn operation_type(self) -> &'static str {
                match self {
                    $($(Rpc::$name => $label,)*)*
                    Rpc::GetContainerEvents => "get_container_events",
                }
            }
        }
    };
}
for_each_rpc!(rpc_enum);

impl std::fmt::Display for Rpc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
